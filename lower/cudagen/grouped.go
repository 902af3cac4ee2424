package cudagen

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// groupedMatmul is a product for each group of rows, of columns or of inner indices. A
// block has a tile of one group's product: it looks for its group among the ends, which
// are known on the device only, so that the grid is what any ends need at most. Each
// element is summed over ascending inner indices, as on the host.
func (g *generator) groupedMatmul(n *ir.Node) {
	const tile, depth = 64, 16
	a, b, ends, out := n.Arg(0), n.Arg(1), n.Arg(2), n.Result(0)
	sa, sb, so := g.r.shape(a), g.r.shape(b), g.r.shape(out)
	text := func(e index.Extent) string { return g.x.Size(e).String() }
	inner := sa[len(sa)-1]
	rows, cols := text(so[len(so)-2]), text(so[len(so)-1])
	groups, distance := text(g.r.shape(ends)[0]), g.stride(ends, 0).Paren()
	matrices := func(v *ir.Value) (group, first, second string) { // strides
		s, t := g.r.shape(v), make([]string, v.Type().Rank())
		for d := range t {
			t[d] = g.stride(v, d).Paren()
		}
		if len(s) == 3 {
			return t[0], t[1], t[2]
		}
		return "0", t[0], t[1]
	}
	ag, ar, ak := matrices(a)
	bg, bk, bc := matrices(b)
	og, or, oc := matrices(out)
	g.f.big = true // sizes are in 64-bit expressions
	dom := domainOf(a.Type().DType(), b.Type().DType(), out.Type().DType())
	g.ins = []*ir.Value{a, b, ends}
	g.f.block, g.f.lanes = 256, 256
	e := g.top.Emit
	tiles := func(e index.Extent) int64 { return (e.N + tile - 1) / tile }
	grouped, other, of, over := so[0], so[len(so)-1], "row", "col" // by groups of rows
	switch {
	case len(sa) == len(sb):
		grouped = inner
	case len(sa) == 3:
		grouped, other, of, over = so[1], so[0], "col", "row"
	}
	e("constexpr int lanes = LANES(256);")
	e("__shared__ %s x[%d][%d], y[%d][%d];", dom, depth, tile+1, depth, tile+1)
	e("const int lane = threadIdx.x %% 256;")
	if len(sa) == len(sb) {
		down, across := tiles(so[len(so)-2]), tiles(so[len(so)-1])
		g.grid = g.r.shape(ends)[0].N * down * across
		e("const int group = blockIdx.x / %d;", down*across)
		e("if (group >= %s) return;", groups)
		e("const i64 row = blockIdx.x / %d %% %d * %d, col = blockIdx.x %% %d * %d, row_end = %s, col_end = %s;", across, down, tile, across, tile, rows, cols)
		e("const i64 begin = group > 0 ? position(load(in2 + (group - 1) * %s), %s + 1, false) : 0;", distance, text(grouped))
		e("const i64 end = position(load(in2 + group * %s), %s + 1, false);", distance, text(grouped))
		e("if (end < begin) __trap();")
	} else {
		g.grid = (grouped.N/tile + g.r.shape(ends)[0].N + 1) * tiles(other)
		e("const i64 %s = blockIdx.x %% %d * %d, %s_end = %s;", over, tiles(other), tile, over, text(other))
		e("i64 %s = blockIdx.x / %d * %d, %s_end = 0;", of, tiles(other), tile, of)
		e("int group = 0;")
		e("for (i64 first = 0;; first = %s_end, ++group) { // %s is counted from the group's first", of, of)
		e("  if (group > %s) return;", groups)
		e("  %s_end = group < %s ? position(load(in2 + group * %s), %s + 1, false) : %s;", of, groups, distance, text(grouped), text(grouped))
		e("  if (%s_end < first) __trap();", of)
		e("  const i64 places = (%s_end - first + %d) / %d * %d;", of, tile-1, tile, tile)
		e("  if (%s < places) {", of)
		e("    %s += first;", of)
		e("    break;")
		e("  }")
		e("  %s -= places;", of)
		e("}")
		e("const i64 begin = 0, end = group < %s ? %s : 0; // after the last group all is 0", groups, text(inner))
	}
	e("%s sum[256 / lanes][16] = {};", dom)
	e("for (i64 k0 = begin; k0 < end; k0 += %d) {", depth)
	g.gather("x", "row", fmt.Sprintf("in0 + (i64)group * %s", ag), ar, ak, dom, tile, depth)
	g.gather("y", "col", fmt.Sprintf("in1 + (i64)group * %s", bg), bc, bk, dom, tile, depth)
	g.tileProduct(depth, fmt.Sprintf("store(out0 + (i64)group * %s + i * %s + j * %s, %s);", og, or, oc, rounded("sum[u][q]", dom, out.Type().DType())))
}

// tileProduct adds the product of what gather has loaded, ends the loop over inner indices,
// and stores the sums.
func (g *generator) tileProduct(depth int, store string) {
	e := g.top.Emit
	e("  sync_block();")
	e("  for (int u = 0; u < 256 / lanes; ++u) {")
	e("    const int i = (lane + u * lanes) / 16, j = (lane + u * lanes) %% 16;")
	e("    for (int k = 0; k < %d; ++k)", depth)
	e("#pragma unroll")
	e("      for (int q = 0; q < 16; ++q) sum[u][q] = add_of(sum[u][q], mul_of(x[k][i + q / 4 * 16], y[k][j + q %% 4 * 16]));")
	e("  }")
	e("  sync_block();")
	e("}")
	e("for (int u = 0; u < 256 / lanes; ++u) {")
	e("  for (int q = 0; q < 16; ++q) {")
	e("    const i64 i = row + (lane + u * lanes) / 16 + q / 4 * 16, j = col + (lane + u * lanes) %% 16 + q %% 4 * 16;")
	e("    if (i < row_end && j < col_end) %s", store)
	e("  }")
	e("}")
}

// gather loads a tile of an operand in which neighbouring threads take what is contiguous.
func (g *generator) gather(to, from, base, outer, inner string, dom domain, tile, depth int) {
	e := g.top.Emit
	e("  for (int t = lane; t < %d; t += lanes) {", tile*depth)
	if inner == "1" {
		e("    const int i = t / %d, k = t %% %d;", depth, depth)
	} else {
		e("    const int i = t %% %d, k = t / %d;", tile, tile)
	}
	e("    %s[k][i] = %s + i < %s_end && k0 + k < end ? (%s)load(%s + (%s + i) * %s + (k0 + k) * %s) : (%s)0;", to, from, from, dom, base, from, outer, inner, dom)
	e("  }")
}
