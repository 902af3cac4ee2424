package fx

import (
	"math"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
)

// Floats that are computed from sizes, PyTorch's SymFloats: n / (n - 1), say. Where a tensor's
// computation reads one, it is computed in double precision, as Python does.

// float is a size, a number if that is nil, or what an operation gives of others.
type float struct {
	how    *floatOp
	args   []*float
	size   *ir.Dim
	number float64
}

// floatOp is an operation on tensors, and what it makes of numbers.
type floatOp struct {
	op    ir.Op
	arity int
	of    func(a, b float64) float64
}

// floatOps are the operations by the target's name; look-up only.
var floatOps = func() map[string]*floatOp {
	root := &floatOp{ir.OpSqrt, 1, func(a, _ float64) float64 { return math.Sqrt(a) }}
	return map[string]*floatOp{
		"operator.truediv": {ir.OpDiv, 2, func(a, b float64) float64 { return a / b }},
		"operator.add":     {ir.OpAdd, 2, func(a, b float64) float64 { return a + b }},
		"operator.sub":     {ir.OpSub, 2, func(a, b float64) float64 { return a - b }},
		"operator.mul":     {ir.OpMul, 2, func(a, b float64) float64 { return a * b }},
		"operator.pow":     {ir.OpPow, 2, math.Pow},
		"operator.neg":     {ir.OpNeg, 1, func(a, _ float64) float64 { return -a }},
		"torch.sym_float":  {ir.OpAbs, 1, func(a, _ float64) float64 { return a }}, // of a size
		"torch.sym_max":    {ir.OpMaximum, 2, func(a, b float64) float64 { return max(a, b) }},
		"torch.sym_min":    {ir.OpMinimum, 2, func(a, b float64) float64 { return min(a, b) }},
		"torch.sym_sqrt":   root, "torch._sym_sqrt": root, "math.sqrt": root,
	}
}()

// float is what the target gives; nil if it is no operation of floatOps.
func (c *node) float() *float {
	how := floatOps[c.targetName()]
	if how == nil || len(c.Args.List) != how.arity {
		return nil
	}
	f, x, open := &float{how: how}, [2]float64{}, false
	for k := range c.Args.List {
		a := c.im.floatOf(&c.Args.List[k])
		if a == nil {
			return nil
		}
		f.args, x[k], open = append(f.args, a), a.number, open || a.size != nil || a.how != nil
	}
	if !open {
		return &float{number: how.of(x[0], x[1])}
	}
	return f
}

// floatOf is the number that an argument is, if that is one.
func (im *importer) floatOf(v *pytext.Value) *float {
	switch v.Kind {
	case pytext.Int:
		return &float{number: float64(v.Int)}
	case pytext.Float:
		return &float{number: v.Float}
	case pytext.Name:
		if d := im.sizeOf(v); d != nil {
			return &float{size: d}
		}
		return im.nodes[im.index[v.Text]].float
	}
	return nil
}

// counted is the float as a tensor of one element, which goes into results of an element type.
func (c *node) counted(f *float) *ir.Value {
	dt := dtype.F32
	if len(c.n.Out) > 0 {
		if of, ok := pytext.ParseDType(c.n.Out[0].DType); ok && of == dtype.F64 {
			dt = of
		}
	}
	return c.In(dt, c.computed(f, map[*float]*ir.Value{}))
}

// computed is counted in double precision; made has what is there already.
func (c *node) computed(f *float, made map[*float]*ir.Value) *ir.Value {
	if v := made[f]; v != nil {
		return v
	}
	var args []*ir.Value
	for _, a := range f.args {
		args = append(args, c.computed(a, made))
	}
	switch {
	case f.size != nil:
		made[f] = c.In(dtype.F64, c.Counted(*f.size))
	case f.how == nil:
		made[f] = c.Filled(attr.Float(f.number), dtype.F64)
	default:
		made[f] = c.Make(f.how.op, nil, args...)
	}
	return made[f]
}
