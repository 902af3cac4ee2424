package aten

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// sampleOps look images up at places that lie between their elements.
var sampleOps = []row{
	{"aten.grid_sampler_2d.default aten.grid_sampler_3d.default", "input grid interpolation_mode padding_mode align_corners", gridSample},
	{"aten.grid_sampler_2d_backward.default aten.grid_sampler_3d_backward.default", "grad_output input grid interpolation_mode padding_mode align_corners output_mask", gridSampleBackward},
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
// and 1 are the ends of the image; or one of three dimensions at those of [n,od,oh,ow,3].
type gridded struct {
	x, grid       *ir.Value
	s, g          ir.Shape
	acc           ir.DType
	mode, padding int64
	corners       bool
	places        ir.Dim
	sizes         []int64     // of columns, rows and, if there are any, planes
	along         []*ir.Value // these as the grid has them
	at            []*ir.Value // and in units of elements
	low, high     []float64   // between which reflections turn
}

func (c *call) gridded() (q gridded, err error) {
	q.x, q.grid = c.Tensor("input"), c.Tensor("grid")
	q.mode, q.padding, q.corners = c.Int("interpolation_mode", bilinear), c.Int("padding_mode", paddingZeros), c.Bool("align_corners", false)
	if c.Err != nil {
		return q, c.Err
	}
	q.s, q.g = q.x.Type().Shape(), q.grid.Type().Shape()
	s, g, dt := q.s, q.g, q.x.Type().DType()
	n := len(s) - 2
	if n < 2 || n > 3 || len(g) != len(s) || !g[n+1].Equal(ir.D(int64(n))) || !g[0].Equal(s[0]) || q.mode == bicubic && n > 2 || traced.Empty(q.x) || traced.Empty(q.grid) || !dt.IsFloat() || q.grid.Type().DType() != dt ||
		q.mode < bilinear || q.mode > bicubic || q.padding < paddingZeros || q.padding > paddingReflection {
		return q, traced.ErrForm
	}
	q.acc, q.places = traced.AccType(dt), g[1:n+1].NumElems()
	grid := c.In(q.acc, q.grid)
	for i := range n {
		size := traced.Constant(s[n+1-i])
		along := c.Reshaped(c.Make(ir.OpSelect, traced.DimAttr(int64(n+1)).With("index", attr.Int(int64(i))), grid), ir.Shape{s[0], q.places})
		at, low, high := c.gridUnits(along, float64(size), q.corners)
		q.sizes, q.along, q.low, q.high = append(q.sizes, size), append(q.along, along), append(q.low, low), append(q.high, high)
		if q.mode != bicubic { // which moves each element that it takes
			at = c.padded(q, i, at)
		}
		q.at = append(q.at, at)
	}
	return q, c.Err
}

// around are the elements around each place, four, eight or sixteen, each with its weight by columns, rows and planes
// and how fast that grows.
func (c *call) around(q gridded, each func(to, weight, slope []*ir.Value)) {
	first, many := 0.0, 2
	if q.mode == bicubic {
		first, many = -1, 4
	}
	all := 1
	var low []*ir.Value
	var weight, slope [][]*ir.Value
	for i := range q.at {
		low = append(low, c.Make(ir.OpFloor, nil, q.at[i]))
		w, s := c.between(c.Sub(q.at[i], low[i]), many)
		weight, slope, all = append(weight, w), append(slope, s), all*many
	}
	for k := range all {
		var to, w, s []*ir.Value
		rest := k
		for i := range low {
			at := rest % many
			rest /= many
			x := low[i]
			if first+float64(at) != 0 {
				x = c.With(ir.OpAdd, x, first+float64(at))
			}
			if q.mode == bicubic {
				x = c.padded(q, i, x)
			}
			to, w, s = append(to, x), append(w, weight[i][at]), append(s, slope[i][at])
		}
		each(to, w, s)
	}
}

// nearest are the elements nearest to each place.
func (c *call) nearest(q gridded) (to []*ir.Value) {
	for _, at := range q.at {
		to = append(to, c.Make(ir.OpRound, nil, at))
	}
	return to
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
	var out *ir.Value
	if q.mode == nearest {
		out = c.elementsAt(q, c.nearest(q))
	} else {
		c.around(q, func(to, weight, _ []*ir.Value) {
			out = c.plus(out, c.Mul(c.elementsAt(q, to), c.Unsqueezed(c.Mul(weight[0], weight[1:]...), 1)))
		})
	}
	return c.Settle(c.Reshaped(out, q.out()))
}

// gridSampleBackward adds the gradient of each place to the elements around it, and gives
// that of the place: how the elements differ.
func gridSampleBackward(c *call) error {
	q, err := c.gridded()
	dy, mask := c.Tensor("grad_output"), c.Mask("output_mask", 2)
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	s := q.s
	if !dy.Type().Shape().Equal(q.out()) {
		return traced.ErrForm
	}
	dy = c.Reshaped(c.In(q.acc, dy), ir.Shape{s[0], s[1], q.places})
	image := c.Full(attr.Int(0), q.acc, ir.Shape{s[0], s[1], s[2:].NumElems()})
	add := func(to []*ir.Value, x *ir.Value) {
		there, index := c.positionsAt(q, to)
		x = c.Make(ir.OpWhere, nil, c.Unsqueezed(there, 1), x, c.Filled(attr.Int(0), q.acc))
		image = c.Make(ir.OpScatter, traced.DimAttr(2).With("reduce", attr.String("add")), image, index, x)
	}
	slopes := make([]*ir.Value, len(q.at))
	if q.mode == nearest {
		add(c.nearest(q), dy)
		zero := c.Full(attr.Int(0), q.acc, ir.Shape{s[0], q.places})
		for i := range slopes {
			slopes[i] = zero
		}
	} else {
		c.around(q, func(to, weight, slope []*ir.Value) {
			add(to, c.Mul(dy, c.Unsqueezed(c.Mul(weight[0], weight[1:]...), 1)))
			found := c.Over(ir.OpSum, c.Mul(c.elementsAt(q, to), dy), false, 1)
			for i := range slopes {
				factors := append(slices.Delete(slices.Clone(weight), i, i+1), slope[i])
				slopes[i] = c.plus(slopes[i], c.Mul(found, factors...))
			}
		})
		for i, size := range q.sizes {
			padding := q.padding
			if q.mode == bicubic {
				padding = paddingZeros
			}
			slopes[i] = c.Mul(slopes[i], c.gridSlope(q.along[i], float64(size), padding, q.corners))
		}
	}
	for i := range slopes {
		slopes[i] = c.Unsqueezed(slopes[i], 2)
	}
	all := []*ir.Value{c.Reshaped(image, s), c.Reshaped(c.Make(ir.OpCat, traced.DimAttr(2), slopes...), q.g)}
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
	return c.Make(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: attr.Float(float64(q.sizes[i] - 1))}, attr.Attr{Key: "min", Val: attr.Float(0)}), at)
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

// out is the shape of what is looked up.
func (q gridded) out() ir.Shape { return slices.Concat(q.s[:2], q.g[1:len(q.g)-1]) }

// elementsAt looks the image up at whole columns, rows and planes [n,places]: [n,c,places], with 0
// for what lies outside.
func (c *call) elementsAt(q gridded, to []*ir.Value) *ir.Value {
	there, index := c.positionsAt(q, to)
	found := c.Make(ir.OpGather, traced.DimAttr(2), c.Reshaped(q.x, ir.Shape{q.s[0], q.s[1], q.s[2:].NumElems()}), index)
	return c.In(q.acc, c.Make(ir.OpWhere, nil, c.Unsqueezed(there, 1), found, c.Filled(attr.Int(0), q.x.Type().DType())))
}

// positionsAt says which columns, rows and planes [n,places] lie inside of the image, and where, flat: 0 outside.
func (c *call) positionsAt(q gridded, to []*ir.Value) (there, index *ir.Value) {
	var flat *ir.Value
	for i, v := range to {
		inside := c.Make(ir.OpLogicalAnd, nil, c.With(ir.OpGe, v, 0), c.With(ir.OpLt, v, float64(q.sizes[i])))
		if there == nil {
			there = inside
		} else {
			there = c.Make(ir.OpLogicalAnd, nil, there, inside)
		}
	}
	for i, v := range slices.Backward(to) {
		if flat == nil {
			flat = v
		} else {
			flat = c.Add(c.With(ir.OpMul, flat, float64(q.sizes[i])), v)
		}
	}
	flat = c.In(ir.I64, c.Make(ir.OpWhere, nil, there, flat, c.Filled(attr.Int(0), flat.Type().DType())))
	if intmath.Product(q.sizes) > 1<<24 {
		c.Err = traced.ErrForm // positions are computed in single precision
	}
	index, _ = c.Broadcast(c.Unsqueezed(flat, 1), ir.Shape{q.s[0], q.s[1], q.places})
	return there, index
}
