package cudagen

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// fillsFromEmpty reports whether n makes elements from an operand that has none, so that they are
// all the same number, or those of the first operand. What cat joins may be empty, too: it is
// passed over.
func fillsFromEmpty(n *ir.Node) bool {
	none := func(v *ir.Value) bool { return elements(v).Equal(ir.D(0)) }
	return n.Op() != ir.OpCat && slices.ContainsFunc(n.Args(), none) && !slices.ContainsFunc(n.Results(), none)
}

// nothing writes what n makes of nothing.
func (g *generator) nothing(n *ir.Node) error {
	v := n.Result(0)
	dt := v.Type().DType()
	dom, e := domainOf(n.Arg(0).Type().DType(), dt), "0"
	copied := false
	switch n.Op() {
	case ir.OpSum, ir.OpConvolution, ir.OpGroupedMatmul:
	case ir.OpProd:
		e = "1"
	case ir.OpMean:
		dom, e = domF64, "nan_of<f64>()"
	case ir.OpAmax, ir.OpAmin:
		_, e = accumulatorOf(reduction{n: n})
	case ir.OpReduceWindow:
		if how := n.Attrs().Str("reduce", ""); how != "argmax" {
			_, _, e = windowFold(n)
		}
	case ir.OpIndexPut, ir.OpIndexAdd, ir.OpScatter, ir.OpSliceScatter:
		copied = true
	default:
		return unsupported(n, "an operand is empty")
	}
	if copied {
		dom = storageDomain(n.Arg(0).Type().DType())
	}
	// The others stay operands although nothing of them is loaded: the program says what the
	// operation is given.
	g.ins = nil
	for _, v := range n.Args() {
		if !elements(v).Equal(ir.D(0)) && !slices.Contains(g.ins, v) {
			g.ins = append(g.ins, v)
		}
	}
	count := g.x.Count(g.r.shape(v))
	_, most := count.Bounds()
	g.f.big = far(append([]*ir.Value{v}, g.ins...)...)
	t := g.intType()
	g.grid = (most + 255) / 256
	g.top.Emit("const %s i = (%s)blockIdx.x * 256 + threadIdx.x;", t, t)
	g.top.Emit("if (i >= %s) return;", count)
	at := g.x.Unravel(g.x.NewAtom("i", most-1, 1, g.top).Expr(), g.r.shape(v))
	if copied {
		e = "load(in0 + " + g.offset(n.Arg(0), at).String() + ")"
	}
	g.top.Emit("store(out0 + %s, %s);", g.offset(v, at), rounded("("+string(dom)+")"+e, dom, dt))
	return nil
}
