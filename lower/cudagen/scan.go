package cudagen

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// scans reports whether a block should make the running sums of a line together: lines are
// long, and either are along memory or are too few for a thread each.
func (g *generator) scans(n *ir.Node) bool {
	x := n.Arg(0)
	shape, d := sizes(x), dimOf(n)
	if len(shape) == 0 || shape[d] < 64 {
		return false
	}
	inner := intmath.Product(shape[d+1:]) == 1
	if st := x.Type().Strides(); st != nil {
		inner = st[d] == 1
	}
	return inner || intmath.Product(shape)/shape[d] < 4096
}

// scan has a block for each line. Its lanes take some elements each, and one piece of the
// line after the other, so that equal inputs give equal bits.
func (g *generator) scan(n *ir.Node) {
	const each = 4
	x, v := n.Arg(0), n.Result(0)
	d := dimOf(n)
	shape := g.r.shape(x)
	others, outer := slices.Clone(shape), slices.Clone(x.Type().Shape())
	others[d], outer[d] = index.Extent{N: 1}, ir.D(1)
	lines := g.x.Count(others)
	_, most := lines.Bounds()
	lanes := int64(256)
	for lanes > 32 && lanes*each/2 >= shape[d].N {
		lanes /= 2
	}
	f := g.f
	f.block, f.lanes, f.big = int(lanes), int(lanes), far(x, v)
	g.grid, g.ins = most, []*ir.Value{x}
	dom := domainOf(x.Type().DType(), v.Type().DType())
	sum, size, t := sumType(dom), g.x.Size(shape[d]).String(), g.intType()
	e := g.top.Emit
	e("constexpr int lanes = LANES(%d), each = lanes == 1 ? 1 : %d;", lanes, each)
	e("const %s row = blockIdx.x;", t)
	if index.HasDynamic(others) {
		g.need = g.r.named(outer)
		e("if (row >= %s) return;", lines)
	}
	row := g.x.NewAtom("row", most-1, 1, g.top)
	at := func(v *ir.Value) string {
		to := g.x.Unravel(row.Expr(), others)
		to[d] = g.x.NewAtom("j", shape[d].N-1, 1, g.top).Expr()
		return g.offset(v, to).String()
	}
	result := "add_of(add_of(carry, before), part[v])"
	if sum == "sum32" {
		result = "(f32)" + result
	}
	e("const int lane = threadIdx.x %% lanes;")
	e("%s carry = 0;", sum)
	e("for (%s first = 0; first < %s; first += lanes * each) {", t, size)
	e("  %s part[each], mine = 0, all;", sum)
	e("#pragma unroll")
	e("  for (int v = 0; v < each; ++v) {")
	e("    const %s j = first + lane * each + v;", t)
	e("    if (j < %s) mine = add_of(mine, (%s)load(in0 + %s));", size, sum, at(x))
	e("    part[v] = mine;")
	e("  }")
	e("  const %s before = scan_lanes<lanes>(mine, all);", sum)
	e("#pragma unroll")
	e("  for (int v = 0; v < each; ++v) {")
	e("    const %s j = first + lane * each + v;", t)
	e("    if (j < %s) store(out0 + %s, %s);", size, at(v), rounded(result, dom, v.Type().DType()))
	e("  }")
	e("  carry = add_of(carry, all);")
	e("}")
}
