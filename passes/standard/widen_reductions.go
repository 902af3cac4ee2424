package standard

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// widen-reductions reduces over ranks in another type, or by another reduction, where CUDA devices
// (kernels.ReduceAs, NCCL) have no such reduction of the operands' own type. A conversion before the
// collective and one after its wait give every bit that a reduction in the type itself gives:
//
//	i16, u16        i32: sums and products wrap to the same lower bits, min and max keep their order
//	u32, u64        i32, i64 with the highest bit flipped, which keeps the order: min and max only
//	8-bit floats    f32, in which ranks add them anyway, rounding once
//	averages        of integers sums in 64 bits, divided after the wait
//
// Sums of bools become maxima, products minima, which devices have. A collective that something other
// than its waits reads, or whose operands are written while it is in flight, remains as it is, and so
// do averages of integers together with floats: devices refuse it. Linear.
func widenReductions() passes.Pass {
	return passes.Pass{
		Name:         "widen-reductions",
		Doc:          "Reduces over ranks in a type that CUDA devices reduce, where they lack the operands' own.",
		FunctionPass: true,
		Stats:        []passes.Stat{{Name: "widened", Doc: "tensors that are reduced in another type"}},
		Run: func(ctx *passes.Context, f *ir.Func) error {
			for _, n := range slices.Clone(f.Order()) {
				if !n.Op().Info().Reduces {
					continue
				}
				if as, ok := ofBools(n); ok && ctx.Enable(n.Name()) {
					f.SetAttrs(n, n.Attrs().With("reduce", attr.String(string(as))))
					ctx.Count("widened", float64(len(n.Args())))
				}
				if widenable(n) && ctx.Enable(n.Name()) {
					for i := range n.Args() {
						if c := carrierOf(n, i); c != (carrier{as: n.Arg(i).Type().DType()}) {
							widen(f, n, i, c)
							ctx.Count("widened", 1)
						}
					}
					if ofIntegers(n) {
						f.SetAttrs(n, n.Attrs().With("reduce", attr.String(string(ir.Sum))))
					}
				}
			}
			return nil
		},
	}
}

// ofBools is the minimum or maximum that a product or sum of bools is.
func ofBools(n *ir.Node) (r ir.Reduction, ok bool) {
	r = map[ir.Reduction]ir.Reduction{ir.Sum: ir.Max, ir.Product: ir.Min}[n.Reduction()]
	return r, r != "" && !slices.ContainsFunc(n.Args(), func(v *ir.Value) bool { return v.Type().DType() != ir.Bool })
}

// ofIntegers reports whether n is an average of integers only, over more than one rank.
func ofIntegers(n *ir.Node) bool {
	return n.Reduction() == ir.Avg && n.Group().Size() > 1 && !slices.ContainsFunc(n.Args(), func(v *ir.Value) bool { return !v.Type().DType().IsInt() })
}

// carrier is how to reduce elements of a type.
type carrier struct {
	as      ir.DType
	flip    int64 // what to combine them with by xor before and after it, if that is not 0
	divisor int64 // what to divide them by after it, if that is not 0
}

// carrierOf is that of operand i of a reduction.
func carrierOf(n *ir.Node, i int) carrier {
	dt, r := n.Arg(i).Type().DType(), n.Reduction()
	ordered := r == ir.Min || r == ir.Max
	switch {
	case dt.IsFloat8():
		return carrier{as: ir.F32}
	case ofIntegers(n):
		as := ir.I64
		if dt == ir.U64 {
			as = dt
		}
		return carrier{as: as, divisor: int64(n.Group().Size())}
	case r == ir.Avg:
	case dt == ir.I16 || dt == ir.U16:
		return carrier{as: ir.I32}
	case dt == ir.U32 && ordered:
		return carrier{as: ir.I32, flip: math.MinInt32}
	case dt == ir.U64 && ordered:
		return carrier{as: ir.I64, flip: math.MinInt64}
	}
	return carrier{as: dt}
}

// widenable reports whether some operand has a carrier, and only waits read the results.
func widenable(n *ir.Node) bool {
	if !onlyAwaited(n) {
		return false
	}
	for i, v := range n.Args() {
		if carrierOf(n, i) != (carrier{as: v.Type().DType()}) {
			return true
		}
	}
	return false
}

// onlyAwaited reports whether only waits read a collective's results, and nothing writes operands in flight.
func onlyAwaited(n *ir.Node) bool {
	other := func(u ir.Use) bool {
		return u.Node.Op() != ir.OpWaitTensor || len(u.Node.Args()) != len(u.Node.DeclaredArgs())
	}
	return len(n.Args()) == len(n.DeclaredArgs()) && !slices.ContainsFunc(n.Result(0).Uses(), other)
}

// widen reduces operand i of n as c says.
func widen(f *ir.Func, n *ir.Node, i int, c carrier) {
	v := n.Arg(i)
	// What is made of a node has its order-only edges: of n before it, of a wait after that.
	point := func(at, from *ir.Node, op ir.Op, attrs ir.Attrs, x *ir.Value, dt ir.DType) *ir.Value {
		return f.InsertBefore(at, ir.NodeSpec{Op: op, Name: n.Name() + "_" + op.Name(), Args: []*ir.Value{x}, Attrs: attrs, Results: []ir.Type{ir.TensorOf(dt, x.Type().Shape())}, Pos: n.Pos(), From: []*ir.Node{from}}).Result(0)
	}
	narrow, wide := v.Type().DType(), v
	if c.as != narrow {
		wide = point(n, n, ir.OpConvert, ir.Attrs{}, wide, c.as)
	}
	if c.flip != 0 {
		wide = point(n, n, ir.OpBitwiseXor, ir.A("scalar", c.flip), wide, c.as)
	}
	f.SetArg(n, i, wide)
	types := slices.Clone(n.Result(0).Type().Elems())
	types[i] = types[i].WithDType(c.as)
	f.SetType(n.Result(0), ir.Async(types...))
	for _, u := range n.Result(0).Uses() {
		w := u.Node
		r, after := w.Result(i), w.Next()
		users := slices.Clone(r.Uses())
		f.SetType(r, types[i])
		if len(users) == 0 {
			continue
		}
		back := r
		if c.flip != 0 {
			back = point(after, w, ir.OpBitwiseXor, ir.A("scalar", c.flip), back, c.as)
		}
		if c.divisor != 0 {
			back = point(after, w, ir.OpTruncDivide, ir.A("scalar", c.divisor), back, c.as)
		}
		if c.as != narrow {
			back = point(after, w, ir.OpConvert, ir.Attrs{}, back, narrow)
		}
		for _, use := range users {
			f.SetArg(use.Node, use.Index, back)
		}
	}
}
