package aten

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
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
	x, grid := c.Tensor("input"), c.Tensor("grid")
	mode, padding, corners := c.Int("interpolation_mode", bilinear), c.Int("padding_mode", paddingZeros), c.Bool("align_corners", false)
	if c.Err != nil {
		return c.Err
	}
	s, g := traced.Static(x), traced.Static(grid)
	dt := x.Type().DType()
	if len(s) != 4 || len(g) != 4 || g[3] != 2 || g[0] != s[0] || traced.Count(s) == 0 || traced.Count(g) == 0 || !dt.IsFloat() || grid.Type().DType() != dt ||
		mode < bilinear || mode > nearest || padding < paddingZeros || padding > paddingReflection {
		return traced.ErrForm
	}
	acc := accType(dt)
	places := g[1] * g[2]
	grid = c.In(acc, grid)
	var at [2]*ir.Value // columns, rows
	for i, size := range []int64{s[3], s[2]} {
		along := c.Shaped(c.Make(ir.OpSelect, traced.DimAttr(3).With("index", attr.Int(int64(i))), grid), s[0], places)
		at[i] = c.gridPlace(along, float64(size), padding, corners)
	}
	look := func(col, row *ir.Value) *ir.Value { return c.elementsAt(x, col, row, places) }
	var out *ir.Value
	if mode == nearest {
		out = c.In(acc, look(c.Make(ir.OpRound, nil, at[0]), c.Make(ir.OpRound, nil, at[1])))
	} else {
		var low, part [2]*ir.Value
		for i := range at {
			low[i] = c.Make(ir.OpFloor, nil, at[i])
			part[i] = c.sub(at[i], low[i])
		}
		for k := range 4 {
			var to, weight [2]*ir.Value
			for i := range to {
				to[i], weight[i] = low[i], c.rest(part[i])
				if k>>i&1 == 1 {
					to[i], weight[i] = c.With(ir.OpAdd, low[i], 1), part[i]
				}
			}
			term := c.mul(c.In(acc, look(to[0], to[1])), c.Unsqueezed(c.mul(weight[0], weight[1]), 1))
			if out == nil {
				out = term
			} else {
				out = c.add(out, term)
			}
		}
	}
	return c.Settle(c.Shaped(out, s[0], s[1], g[1], g[2]))
}

// gridPlace is a place from -1 to 1 in units of elements.
func (c *call) gridPlace(x *ir.Value, size float64, padding int64, corners bool) *ir.Value {
	low, high := -0.5, size-0.5 // where reflections turn
	if corners {
		x = c.With(ir.OpMul, c.With(ir.OpAdd, x, 1), (size-1)/2)
		low, high = 0, size-1
	} else {
		x = c.With(ir.OpDiv, c.With(ir.OpSub, c.With(ir.OpMul, c.With(ir.OpAdd, x, 1), size), 1), 2)
	}
	if padding == paddingZeros {
		return x
	}
	if span := high - low; padding == paddingReflection && span <= 0 {
		x = c.With(ir.OpMul, x, 0)
	} else if padding == paddingReflection {
		away := c.Make(ir.OpAbs, nil, c.With(ir.OpSub, x, low))
		rest := c.With(ir.OpFmod, away, span)
		turns := c.Make(ir.OpFloor, nil, c.With(ir.OpDiv, away, span))
		odd := c.With(ir.OpNe, c.With(ir.OpFmod, turns, 2), 0)
		x = c.Make(ir.OpWhere, nil, odd, c.With(ir.OpAdd, c.Make(ir.OpNeg, nil, rest), high), c.With(ir.OpAdd, rest, low))
	}
	return c.Make(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: attr.Float(size - 1)}, attr.Attr{Key: "min", Val: attr.Float(0)}), x)
}

// elementsAt looks [n,c,h,w] up at whole columns and rows [n,places]: [n,c,places], with 0
// for what lies outside.
func (c *call) elementsAt(x, col, row *ir.Value, places int64) *ir.Value {
	s := traced.Static(x)
	inside := func(v *ir.Value, size int64) *ir.Value {
		return c.Make(ir.OpLogicalAnd, nil, c.With(ir.OpGe, v, 0), c.With(ir.OpLt, v, float64(size)))
	}
	there := c.Make(ir.OpLogicalAnd, nil, inside(col, s[3]), inside(row, s[2]))
	flat := c.add(c.With(ir.OpMul, row, float64(s[3])), col)
	flat = c.In(ir.I64, c.Make(ir.OpWhere, nil, there, flat, c.Filled(attr.Int(0), flat.Type().DType())))
	if s[2]*s[3] > 1<<24 {
		c.Err = traced.ErrForm // positions are computed in single precision
	}
	index, _ := c.Broadcast(c.Unsqueezed(flat, 1), []int64{s[0], s[1], places})
	found := c.Make(ir.OpGather, traced.DimAttr(2), c.Shaped(x, s[0], s[1], s[2]*s[3]), index)
	return c.Make(ir.OpWhere, nil, c.Unsqueezed(there, 1), found, c.Filled(attr.Int(0), x.Type().DType()))
}
