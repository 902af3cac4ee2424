package cudagen

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// The gradient of a gather of one element of each row is one-hot rows, scaled. Their sums need no
// walk over the row.

// oneHot returns the scatter that v is made of if every element of a row of v is
// zero, or NaN where a factor of the row is not finite, but for the one that the
// scatter writes; nil if v is no such tensor.
func (g *generator) oneHot(v *ir.Value) *ir.Node {
	n := v.Def()
	if !g.r.Has(n) || !slices.Equal(sizes(v), g.f.shape) || !heldInF32(v) {
		return nil
	}
	switch n.Op() {
	case ir.OpScatter:
		fill := n.Arg(0).Def()
		d := dimOf(n)
		want := slices.Clone(g.f.shape)
		want[d] = 1
		for k, gone := range g.f.isReduced {
			if gone != (k == d) {
				return nil
			}
		}
		if !g.r.Has(fill) || fill.Op() != ir.OpFull || fill.Attrs().Number("value").F != 0 || n.Attrs().Has("reduce") || !slices.Equal(sizes(n.Arg(1)), want) {
			return nil
		}
		return n
	case ir.OpNeg, ir.OpConvert:
		return g.oneHot(n.Arg(0))
	case ir.OpMul:
		if len(n.Args()) == 1 {
			return g.oneHot(n.Arg(0))
		}
		for i, a := range n.Args() {
			if s := g.oneHot(a); s != nil && g.perRow(n.Arg(1-i)) {
				return s
			}
		}
	}
	return nil
}

func heldInF32(v *ir.Value) bool { return storageDomain(v.Type().DType()) == domF32 }

// perRow reports whether v is the same for all columns of a row.
func (g *generator) perRow(v *ir.Value) bool {
	s := sizes(v)
	pad := len(g.f.shape) - len(s)
	for d, gone := range g.f.isReduced {
		if gone && d >= pad && s[d-pad] != 1 {
			return false
		}
	}
	return pad >= 0
}

// sumOneHot adds the one number of a row that is not zero, and one of the others,
// which may be NaN, if the reduction is such a sum.
func (g *generator) sumOneHot(r reduction) (bool, error) {
	n := r.n
	if n.Op() != ir.OpSum || g.f.columns || g.f.dynamicLength || g.f.length < 2 || !heldInF32(n.Result(0)) {
		return false, nil
	}
	s := g.oneHot(n.Arg(0))
	if s == nil {
		return false, nil
	}
	savedElem, savedBody := g.elem, g.body
	defer func() { g.elem, g.body = savedElem, savedBody }()
	g.elem, g.body = nil, g.top
	d := dimOf(s)
	at := g.inShape(nil)
	at[d] = index.Constant(0)
	p, err := g.pos(s, 1, at, index.Extent{N: g.f.length}, false)
	if err != nil {
		return false, err
	}
	other := g.fresh("p")
	g.top.Emit("const %s %s = %s + 1 < %d ? %s + 1 : 0;", g.intType(), other, p, g.f.length, p)
	a := accumulator{name: g.fresh("s"), typ: "sum32"}
	sum := "(sum32)0"
	for _, e := range []index.Expr{g.x.NewAtom(other, g.f.length-1, 1, g.top).Expr(), p} {
		at := slices.Clone(at)
		at[d] = e
		x, err := g.value(n.Arg(0), at)
		if err != nil {
			return false, err
		}
		sum = fmt.Sprintf("Sum()(%s, (sum32)%s)", sum, x)
	}
	g.top.Emit("const sum32 %s = %s;  // %s", a.name, sum, statement(n))
	g.folds[r] = a
	return true, nil
}
