package aten

import (
	"cmp"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// sampleOps look images up at places that lie between their elements.
var sampleOps = []row{
	{"aten.grid_sampler_2d.default", "input grid interpolation_mode padding_mode align_corners", gridSample},
	{"aten.grid_sampler_2d_backward.default", "grad_output input grid interpolation_mode padding_mode align_corners output_mask", gridSampleBackward},
}

// How a grid's places are read, as PyTorch numbers it.
const (
	bilinear = 0
	nearest  = 1
	bicubic  = 2

	paddingZeros      = 0
	paddingBorder     = 1
	paddingReflection = 2
)

// gridded is how an image [n,c,h,w] is looked up at the places of [n,oh,ow,2], of which -1
// and 1 are the ends of the image.
type gridded struct {
	x, grid       *ir.Value
	s, g          ir.Shape
	acc           ir.DType
	mode, padding int64
	corners       bool
	places        ir.Dim
	along         [2]*ir.Value // columns and rows, as the grid has them
	at            [2]*ir.Value // and in units of elements
	low, high     [2]float64   // between which reflections turn
}

func (c *call) gridded() (q gridded, err error) {
	q.x, q.grid = c.Tensor("input"), c.Tensor("grid")
	q.mode, q.padding, q.corners = c.Int("interpolation_mode", bilinear), c.Int("padding_mode", paddingZeros), c.Bool("align_corners", false)
	if c.Err != nil {
		return q, c.Err
	}
	q.s, q.g = q.x.Type().Shape(), q.grid.Type().Shape()
	s, g, dt := q.s, q.g, q.x.Type().DType()
	if len(s) != 4 || len(g) != 4 || !g[3].Equal(ir.D(2)) || !g[0].Equal(s[0]) || traced.Empty(q.x) || traced.Empty(q.grid) || !dt.IsFloat() || q.grid.Type().DType() != dt ||
		q.mode < bilinear || q.mode > bicubic || q.padding < paddingZeros || q.padding > paddingReflection {
		return q, traced.ErrForm
	}
	q.acc, q.places = traced.AccType(dt), g[1].Mul(g[2])
	grid := c.In(q.acc, q.grid)
	for i, size := range []int64{traced.Constant(s[3]), traced.Constant(s[2])} {
		q.along[i] = c.Reshaped(c.Make(ir.OpSelect, traced.DimAttr(3).With("index", attr.Int(int64(i))), grid), ir.Shape{s[0], q.places})
		q.at[i], q.low[i], q.high[i] = c.gridUnits(q.along[i], float64(size), q.corners)
		if q.mode != bicubic { // which moves each element that it takes
			q.at[i] = c.padded(q, i, q.at[i])
		}
	}
	return q, c.Err
}

// around are the elements around each place, four or sixteen, each with its weight by columns and by rows and how
// fast that grows.
func (c *call) around(q gridded, each func(to, weight, slope [2]*ir.Value)) {
	first, many := 0.0, 2
	if q.mode == bicubic {
		first, many = -1, 4
	}
	var low [2]*ir.Value
	var weight, slope [2][]*ir.Value
	for i := range q.at {
		low[i] = c.Make(ir.OpFloor, nil, q.at[i])
		weight[i], slope[i] = c.between(c.Sub(q.at[i], low[i]), many)
	}
	for k := range many * many {
		var to, w, s [2]*ir.Value
		for i, at := range []int{k % many, k / many} {
			if to[i] = low[i]; first+float64(at) != 0 {
				to[i] = c.With(ir.OpAdd, low[i], first+float64(at))
			}
			if q.mode == bicubic {
				to[i] = c.padded(q, i, to[i])
			}
			w[i], s[i] = weight[i][at], slope[i][at]
		}
		each(to, w, s)
	}
}

// between are the weights of elements around a part of the way from one to the next, and their derivatives: of two, linear
// ones, of four, Keys's cubic convolution.
func (c *call) between(part *ir.Value, many int) (weights, slopes []*ir.Value) {
	if many == 2 {
		one := c.Filled(attr.Int(1), part.Type().DType())
		return []*ir.Value{c.Rest(part), part}, []*ir.Value{c.Make(ir.OpNeg, nil, one), one}
	}
	const a = -0.75
	polynomial := func(x *ir.Value, cs ...float64) *ir.Value {
		y := c.With(ir.OpMul, x, cs[0])
		for _, k := range cs[1 : len(cs)-1] {
			y = c.Mul(c.With(ir.OpAdd, y, k), x)
		}
		return c.With(ir.OpAdd, y, cs[len(cs)-1])
	}
	rest := c.Rest(part)
	for i, x := range []*ir.Value{c.With(ir.OpAdd, part, 1), part, rest, c.With(ir.OpAdd, rest, 1)} {
		w, s := polynomial(x, a+2, -(a+3), 0, 1), polynomial(x, 3*(a+2), -2*(a+3), 0)
		if i%3 == 0 {
			w, s = polynomial(x, a, -5*a, 8*a, -4*a), polynomial(x, 3*a, -10*a, 8*a)
		}
		if i > 1 {
			s = c.Make(ir.OpNeg, nil, s)
		}
		weights, slopes = append(weights, w), append(slopes, s)
	}
	return weights, slopes
}

// plus is the sum of what there is and one more.
func (c *call) plus(sum, x *ir.Value) *ir.Value {
	if sum == nil {
		return x
	}
	return c.Add(sum, x)
}

// gridSample looks an image up. A place between elements takes from the four around it, as
// near as they are; what lies outside is 0, the border or the reflection.
func gridSample(c *call) error {
	q, err := c.gridded()
	if err != nil {
		return err
	}
	look := func(to [2]*ir.Value) *ir.Value { return c.In(q.acc, c.elementsAt(q.x, to[0], to[1], q.places)) }
	var out *ir.Value
	if q.mode == nearest {
		out = look([2]*ir.Value{c.Make(ir.OpRound, nil, q.at[0]), c.Make(ir.OpRound, nil, q.at[1])})
	} else {
		c.around(q, func(to, weight, _ [2]*ir.Value) {
			out = c.plus(out, c.Mul(look(to), c.Unsqueezed(c.Mul(weight[0], weight[1]), 1)))
		})
	}
	return c.Settle(c.Reshaped(out, ir.Shape{q.s[0], q.s[1], q.g[1], q.g[2]}))
}

// gridSampleBackward adds the gradient of each place to the elements around it, and gives
// that of the place: how the elements differ.
func gridSampleBackward(c *call) error {
	q, err := c.gridded()
	dy, mask := c.Tensor("grad_output"), c.Mask("output_mask", 2)
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	s, g := q.s, q.g
	if !dy.Type().Shape().Equal(ir.Shape{s[0], s[1], g[1], g[2]}) {
		return traced.ErrForm
	}
	dy = c.Reshaped(c.In(q.acc, dy), ir.Shape{s[0], s[1], q.places})
	image := c.Full(attr.Int(0), q.acc, ir.Shape{s[0], s[1], s[2].Mul(s[3])})
	add := func(to [2]*ir.Value, x *ir.Value) {
		there, index := c.positionsAt(q.x, to[0], to[1], q.places)
		x = c.Make(ir.OpWhere, nil, c.Unsqueezed(there, 1), x, c.Filled(attr.Int(0), q.acc))
		image = c.Make(ir.OpScatter, traced.DimAttr(2).With("reduce", attr.String("add")), image, index, x)
	}
	var slopes [2]*ir.Value
	if q.mode == nearest {
		add([2]*ir.Value{c.Make(ir.OpRound, nil, q.at[0]), c.Make(ir.OpRound, nil, q.at[1])}, dy)
		zero := c.Full(attr.Int(0), q.acc, ir.Shape{s[0], q.places})
		slopes = [2]*ir.Value{zero, zero}
	} else {
		c.around(q, func(to, weight, slope [2]*ir.Value) {
			add(to, c.Mul(dy, c.Unsqueezed(c.Mul(weight[0], weight[1]), 1)))
			found := c.Over(ir.OpSum, c.Mul(c.In(q.acc, c.elementsAt(q.x, to[0], to[1], q.places)), dy), false, 1)
			for i := range slopes {
				slopes[i] = c.plus(slopes[i], c.Mul(found, weight[1-i], slope[i]))
			}
		})
		for i, size := range []int64{traced.Constant(s[3]), traced.Constant(s[2])} {
			padding := q.padding
			if q.mode == bicubic {
				padding = paddingZeros
			}
			slopes[i] = c.Mul(slopes[i], c.gridSlope(q.along[i], float64(size), padding, q.corners))
		}
	}
	all := []*ir.Value{c.Reshaped(image, s), c.Reshaped(c.Make(ir.OpCat, traced.DimAttr(2), c.Unsqueezed(slopes[0], 2), c.Unsqueezed(slopes[1], 2)), g)}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	var out []*ir.Value
	for i, asked := range mask {
		if asked || len(ts) == 2 { // PyTorch hands the places' back though nobody asks
			out, c.Items = append(out, all[i]), append(c.Items, i)
		}
	}
	return c.Settle(out...)
}

// gridUnits is a place from -1 to 1 in units of elements, and between where reflections turn.
func (c *call) gridUnits(x *ir.Value, size float64, corners bool) (at *ir.Value, low, high float64) {
	if corners {
		return c.With(ir.OpMul, c.With(ir.OpAdd, x, 1), (size-1)/2), 0, size - 1
	}
	return c.With(ir.OpDiv, c.With(ir.OpSub, c.With(ir.OpMul, c.With(ir.OpAdd, x, 1), size), 1), 2), -0.5, size - 0.5
}

// padded is a place in units of elements, columns or rows, where the padding moves it.
func (c *call) padded(q gridded, i int, at *ir.Value) *ir.Value {
	if q.padding == paddingZeros {
		return at
	}
	if q.padding == paddingReflection {
		at, _ = c.reflected(at, q.low[i], q.high[i])
	}
	return c.Make(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: attr.Float(float64(traced.Constant(q.s[3-i]) - 1))}, attr.Attr{Key: "min", Val: attr.Float(0)}), at)
}

// reflected moves what lies beyond an end back by as much, and says where it went an odd
// number of times; nil if there is nothing between the ends.
func (c *call) reflected(x *ir.Value, low, high float64) (at, odd *ir.Value) {
	span := high - low
	if span <= 0 {
		return c.With(ir.OpMul, x, 0), nil
	}
	away := c.Make(ir.OpAbs, nil, c.With(ir.OpSub, x, low))
	rest := c.With(ir.OpFmod, away, span)
	turns := c.Make(ir.OpFloor, nil, c.With(ir.OpDiv, away, span))
	odd = c.With(ir.OpNe, c.With(ir.OpFmod, turns, 2), 0)
	return c.Make(ir.OpWhere, nil, odd, c.With(ir.OpAdd, c.Make(ir.OpNeg, nil, rest), high), c.With(ir.OpAdd, rest, low)), odd
}

// gridSlope is how fast gridPlace changes.
func (c *call) gridSlope(x *ir.Value, size float64, padding int64, corners bool) *ir.Value {
	at, low, high := c.gridUnits(x, size, corners)
	slope := c.Filled(attr.Float((high-low)/2), x.Type().DType())
	if padding == paddingZeros {
		return slope
	}
	if padding == paddingReflection {
		before := c.With(ir.OpLt, at, low)
		to, odd := c.reflected(at, low, high)
		if odd != nil {
			slope = c.Make(ir.OpWhere, nil, c.Make(ir.OpNe, nil, odd, before), c.Make(ir.OpNeg, nil, slope), slope)
		}
		at = to
	}
	inside := c.Make(ir.OpLogicalAnd, nil, c.With(ir.OpGt, at, 0), c.With(ir.OpLt, at, size-1))
	return c.Make(ir.OpWhere, nil, inside, slope, c.Filled(attr.Int(0), x.Type().DType()))
}

// elementsAt looks [n,c,h,w] up at whole columns and rows [n,places]: [n,c,places], with 0
// for what lies outside.
func (c *call) elementsAt(x, col, row *ir.Value, places ir.Dim) *ir.Value {
	s := x.Type().Shape()
	there, index := c.positionsAt(x, col, row, places)
	found := c.Make(ir.OpGather, traced.DimAttr(2), c.Reshaped(x, ir.Shape{s[0], s[1], s[2].Mul(s[3])}), index)
	return c.Make(ir.OpWhere, nil, c.Unsqueezed(there, 1), found, c.Filled(attr.Int(0), x.Type().DType()))
}

// positionsAt says which columns and rows [n,places] lie inside of [n,c,h,w], and where, flat,
// in each of its images: 0 outside.
func (c *call) positionsAt(x, col, row *ir.Value, places ir.Dim) (there, index *ir.Value) {
	s := x.Type().Shape()
	high, wide := traced.Constant(s[2]), traced.Constant(s[3])
	inside := func(v *ir.Value, size int64) *ir.Value {
		return c.Make(ir.OpLogicalAnd, nil, c.With(ir.OpGe, v, 0), c.With(ir.OpLt, v, float64(size)))
	}
	there = c.Make(ir.OpLogicalAnd, nil, inside(col, wide), inside(row, high))
	flat := c.Add(c.With(ir.OpMul, row, float64(wide)), col)
	flat = c.In(ir.I64, c.Make(ir.OpWhere, nil, there, flat, c.Filled(attr.Int(0), flat.Type().DType())))
	if high*wide > 1<<24 {
		c.Err = traced.ErrForm // positions are computed in single precision
	}
	index, _ = c.Broadcast(c.Unsqueezed(flat, 1), ir.Shape{s[0], s[1], places})
	return there, index
}
