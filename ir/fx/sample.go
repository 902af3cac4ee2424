package fx

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// sampleOps look images up at places that lie between their elements.
var sampleOps = []row{
	{"aten.grid_sampler_2d.default", "input grid interpolation_mode padding_mode align_corners", gridSample},
}

// How a grid's places are read, as PyTorch numbers it.
const (
	bilinear = 0
	nearest  = 1

	paddingZeros      = 0
	paddingBorder     = 1
	paddingReflection = 2
)

// gridSample looks up [n,c,h,w] at the places of [n,oh,ow,2], of which -1 and 1 are the
// ends of the image. A place between elements takes from the four around it, as near as
// they are; what lies outside is 0, the border or the reflection.
func gridSample(c *call) error {
	x, grid := c.tensor("input"), c.tensor("grid")
	mode, padding, corners := c.int("interpolation_mode", bilinear), c.int("padding_mode", paddingZeros), c.bool("align_corners", false)
	if c.err != nil {
		return c.err
	}
	s, g := static(x), static(grid)
	dt := x.Type().DType()
	if len(s) != 4 || len(g) != 4 || g[3] != 2 || g[0] != s[0] || count(s) == 0 || count(g) == 0 || !dt.IsFloat() || grid.Type().DType() != dt ||
		mode < bilinear || mode > nearest || padding < paddingZeros || padding > paddingReflection {
		return errForm
	}
	acc := accType(dt)
	places := g[1] * g[2]
	grid = c.in(acc, grid)
	var at [2]*ir.Value // columns, rows
	for i, size := range []int64{s[3], s[2]} {
		along := c.shaped(c.make(ir.OpSelect, dimAttr(3).With("index", attr.Int(int64(i))), grid), s[0], places)
		at[i] = c.gridPlace(along, float64(size), padding, corners)
	}
	look := func(col, row *ir.Value) *ir.Value { return c.elementsAt(x, col, row, places) }
	var out *ir.Value
	if mode == nearest {
		out = c.in(acc, look(c.make(ir.OpRound, nil, at[0]), c.make(ir.OpRound, nil, at[1])))
	} else {
		var low, part [2]*ir.Value
		for i := range at {
			low[i] = c.make(ir.OpFloor, nil, at[i])
			part[i] = c.sub(at[i], low[i])
		}
		for k := range 4 {
			var to, weight [2]*ir.Value
			for i := range to {
				to[i], weight[i] = low[i], c.rest(part[i])
				if k>>i&1 == 1 {
					to[i], weight[i] = c.with(ir.OpAdd, low[i], 1), part[i]
				}
			}
			term := c.mul(c.in(acc, look(to[0], to[1])), c.unsqueezed(c.mul(weight[0], weight[1]), 1))
			if out == nil {
				out = term
			} else {
				out = c.add(out, term)
			}
		}
	}
	return c.settle(c.shaped(out, s[0], s[1], g[1], g[2]))
}

// gridPlace is a place from -1 to 1 in units of elements.
func (c *call) gridPlace(x *ir.Value, size float64, padding int64, corners bool) *ir.Value {
	low, high := -0.5, size-0.5 // where reflections turn
	if corners {
		x = c.with(ir.OpMul, c.with(ir.OpAdd, x, 1), (size-1)/2)
		low, high = 0, size-1
	} else {
		x = c.with(ir.OpDiv, c.with(ir.OpSub, c.with(ir.OpMul, c.with(ir.OpAdd, x, 1), size), 1), 2)
	}
	if padding == paddingZeros {
		return x
	}
	if span := high - low; padding == paddingReflection && span <= 0 {
		x = c.with(ir.OpMul, x, 0)
	} else if padding == paddingReflection {
		away := c.make(ir.OpAbs, nil, c.with(ir.OpSub, x, low))
		rest := c.with(ir.OpFmod, away, span)
		turns := c.make(ir.OpFloor, nil, c.with(ir.OpDiv, away, span))
		odd := c.with(ir.OpNe, c.with(ir.OpFmod, turns, 2), 0)
		x = c.make(ir.OpWhere, nil, odd, c.with(ir.OpAdd, c.make(ir.OpNeg, nil, rest), high), c.with(ir.OpAdd, rest, low))
	}
	return c.make(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: attr.Float(size - 1)}, attr.Attr{Key: "min", Val: attr.Float(0)}), x)
}

// elementsAt looks [n,c,h,w] up at whole columns and rows [n,places]: [n,c,places], with 0
// for what lies outside.
func (c *call) elementsAt(x, col, row *ir.Value, places int64) *ir.Value {
	s := static(x)
	inside := func(v *ir.Value, size int64) *ir.Value {
		return c.make(ir.OpLogicalAnd, nil, c.with(ir.OpGe, v, 0), c.with(ir.OpLt, v, float64(size)))
	}
	there := c.make(ir.OpLogicalAnd, nil, inside(col, s[3]), inside(row, s[2]))
	flat := c.add(c.with(ir.OpMul, row, float64(s[3])), col)
	flat = c.in(ir.I64, c.make(ir.OpWhere, nil, there, flat, c.filled(attr.Int(0), flat.Type().DType())))
	if s[2]*s[3] > 1<<24 {
		c.err = errForm // positions are computed in single precision
	}
	index, _ := c.broadcast(c.unsqueezed(flat, 1), []int64{s[0], s[1], places})
	found := c.make(ir.OpGather, dimAttr(2), c.shaped(x, s[0], s[1], s[2]*s[3]), index)
	return c.make(ir.OpWhere, nil, c.unsqueezed(there, 1), found, c.filled(attr.Int(0), x.Type().DType()))
}
