package standard

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// collectives-in-matmuls marks the gathers that should take place within the matmul that waits for
// them (place.InMatmulKey), by one kernel that begins with the rank's own rows, and the reduce_scatters that
// should within the matmul of their operand, by one that sends its tiles to their owners. Nothing else
// changes: sums are the same but for the order in which a kernel adds, and a device without such a
// kernel does one after the other. It decides by the final order, for only there is known what overlaps with a collective.
//
// A gather of rows qualifies if nothing computes between it and its wait, the next launch is a
// matmul of its rows, and no other collective is in flight until that has ended: the kernel holds
// all multiprocessors while it waits for peers.
//
// With n ranks, a gather of g and a matmul of m, which takes m' in tiles of a rank's rows, it takes
//
//	max(m', g + m'/n) + overhead
//
// in place of g + m: at best the links are busy all the time, and what comes last is
// multiplied when it has come.
//
// A reduce_scatter qualifies if nothing else takes the product, nothing is done between the matmul and it, or between
// it and its wait, and no other collective of its group is in flight from the matmul on. A reduce_scatter of r takes
//
//	max(m', r) + r (n+1)/(n-1) memory-percent + overhead
//
// in place of m + r: tiles leave while others are computed, and then n pieces are read from memory and one is
// written, where the links carry n-1.
//
// Either is marked if that gains min-gain percent; its cost becomes what that exceeds m by, so that simulations
// and reports count the pair as it is. Linear.
func collectivesInMatmuls() passes.Pass {
	return passes.Pass{
		Name: "collectives-in-matmuls",
		Doc:  "Lets gathers and reduce_scatters that nothing overlaps with take place within the matmul behind or before them, where that pays.",
		Options: []passes.Option{
			{Name: "overhead-us", Kind: passes.KindFloat, Default: "8", Doc: "microseconds that sending rows and waiting for them cost a matmul"},
			{Name: "memory-percent", Kind: passes.KindFloat, Default: "10", Doc: "what a byte of memory takes of the time that the links between ranks take for it"},
			{Name: "min-gain", Kind: passes.KindFloat, Default: "3", Doc: "percent of the collective and the matmul, one after the other, that have to be gained"},
		},
		Stats: []passes.Stat{
			{Name: "candidates", Doc: "collectives that nothing overlaps with, directly before a matmul of their rows, or behind that of their operand"},
			{Name: "fused", Doc: "those that take place within the matmul"},
			{Name: "before-ms", Doc: "what these and their matmuls take one after the other"},
			{Name: "after-ms", Doc: "what they take together"},
		},
		Run: runCollectivesInMatmuls,
	}
}

func runCollectivesInMatmuls(ctx *passes.Context, f *ir.Func) error {
	order := f.Order()
	flying, ours := 0, map[*ir.Group]int{} // collectives that have begun, and that nobody has waited for; ours of a group
	for _, n := range f.Inputs() {
		if n.Result(0).Type().IsAsync() {
			flying++
		}
	}
	async := flying // of groups that nobody knows
	for i, n := range order {
		ctx.Tick()
		switch {
		case n.Op() == ir.OpWaitTensor && n.Arg(0).Def().Op() != ir.OpWaitTensor:
			flying--
			if d := n.Arg(0).Def(); d.Op().IsCollective() {
				ours[d.Group()]--
			} else {
				async--
			}
		case n.Op().IsCollective():
			may := !n.Ordered() && !n.Meta().Has(place.InMatmulKey)
			if m := matmulAfter(order[i:]); m != nil && flying == 0 && may {
				gatherWithin(ctx, f, n, m)
			}
			if m := matmulBefore(order, i); m != nil && async == 0 && ours[n.Group()] == 0 && may {
				scatterWithin(ctx, f, n, m)
			}
			flying++
			ours[n.Group()]++
		}
	}
	return nil
}

// matmulBefore is the matmul of whose product the reduce_scatter at a place in the order gives each rank its rows, if
// nothing is done between the two, or before anybody waits for it; else nil.
func matmulBefore(order []*ir.Node, at int) *ir.Node {
	s := order[at]
	m := place.ScatteredMatmul(s)
	if m == nil || !hasKernel(s.Arg(0).Type()) || m.Arg(0).Type().DType() != s.Arg(0).Type().DType() || m.Arg(1).Type().Rank() != 2 ||
		!s.Arg(0).Type().Contiguous() || !m.Result(0).Type().Contiguous() || !alongRows(s) {
		return nil
	}
	if r := s.Reduction(); r != ir.Sum && r != ir.Avg {
		return nil
	}
	for i := at - 1; order[i] != m; i-- {
		if i == 0 || doesWork(order[i]) {
			return nil
		}
	}
	for _, n := range order[at+1:] {
		if n.Op() == ir.OpWaitTensor && n.Arg(0) == s.Result(0) {
			return m
		}
		if doesWork(n) {
			return nil
		}
	}
	return nil
}

// doesWork reports whether a node does anything, or waits for what others do.
func doesWork(n *ir.Node) bool {
	return deps.Launches(n) || n.Op().IsCollective() || n.Op() == ir.OpWaitTensor || n.Op().Class() == ir.ClassOutput
}

// hasKernel reports whether there are kernels that multiply a type.
func hasKernel(t ir.Type) bool { return t.DType() == ir.BF16 || t.DType() == ir.F16 }

// matmulAfter is the matmul that takes the rows of the gather that an order begins with, nil if
// anything is done before it.
func matmulAfter(order []*ir.Node) *ir.Node {
	g := order[0]
	if t := g.Arg(0).Type(); g.Op() != ir.OpAllGather || len(g.Args()) != 1 || g.Group().Size() < 2 || !hasKernel(t) || !alongRows(g) {
		return nil
	}
	rows := map[*ir.Value]bool{} // views of the gathered rows, look-up only
	for _, n := range order[1:] {
		switch {
		case n.Op() == ir.OpWaitTensor && n.Arg(0) == g.Result(0):
			rows[n.Result(0)] = true
		case n.Op().Class() == ir.ClassView:
			if len(n.Args()) == 1 && rows[n.Arg(0)] {
				rows[n.Result(0)] = true
			}
		case n.Op() == ir.OpMatmul && rows[n.Arg(0)] && !rows[n.Arg(1)]:
			if !fusibleMatmul(n, g) {
				return nil
			}
			return n
		case doesWork(n):
			return nil
		}
	}
	return nil
}

// fusibleMatmul reports whether a matmul is of all that a gather brings, by one right operand, in its type: what
// kernels there are for.
func fusibleMatmul(m, g *ir.Node) bool {
	x := m.Arg(0).Type()
	return x.Contiguous() && x.Shape().NumElems().Equal(g.Result(0).Type().Elems()[0].Shape().NumElems()) &&
		m.Arg(1).Type().Rank() == 2 && m.Result(0).Type().DType() == x.DType()
}

// alongRows reports whether a gather lays whole rows one after the other, or a reduce_scatter gives out such.
func alongRows(g *ir.Node) bool {
	shape, ok := g.Arg(0).Type().Shape().Static()
	return ok && intmath.Product(shape[:g.Attrs().Int("dim", 0)]) == 1
}

// tileRows are the rows of a tile of the kernel.
const tileRows = 128

// gatherWithin marks gather g if it pays to do it within matmul m.
func gatherWithin(ctx *passes.Context, f *ir.Func, g, m *ir.Node) {
	if cut, ok := rankTiledMs(ctx, g, m); ok {
		decide(ctx, f, g, m, max(cut, ctx.Cost(g)+cut/float64(g.Group().Size())))
	}
}

// scatterWithin marks reduce_scatter s if it pays to do it within matmul m.
func scatterWithin(ctx *passes.Context, f *ir.Func, s, m *ir.Node) {
	if cut, ok := rankTiledMs(ctx, s, m); ok {
		n, links := float64(s.Group().Size()), ctx.Cost(s)
		decide(ctx, f, s, m, max(cut, links)+links*(n+1)/(n-1)*ctx.Float("memory-percent")/100)
	}
}

// rankTiledMs is what matmul m takes in tiles of the rows of each rank of c's group. It reports false if a row of it is of
// several ranks.
func rankTiledMs(ctx *passes.Context, c, m *ir.Node) (ms float64, ok bool) {
	shape, ok := m.Arg(0).Type().Shape().Static()
	ranks := int64(c.Group().Size())
	if !ok || len(shape) == 0 || intmath.Product(shape) == 0 {
		return 0, false
	}
	rows := intmath.Product(shape[:len(shape)-1])
	if rows%ranks != 0 {
		return 0, false
	}
	tiles := func(rows int64) float64 { return float64((rows + tileRows - 1) / tileRows) }
	return ctx.Cost(m) * float64(ranks) * tiles(rows/ranks) / tiles(rows), true
}

// decide marks collective c, which takes so long with matmul m but for the overhead, if that pays.
func decide(ctx *passes.Context, f *ir.Func, c, m *ir.Node, within float64) {
	ctx.Count("candidates", 1)
	within += ctx.Float("overhead-us") / 1e3
	ms, matmul := ctx.Cost(c), ctx.Cost(m)
	r := passes.CommRecord{Node: c.Name(), Comm: c.Name(), Group: c.Group().Name, Ms: ms, ExposedBefore: ms, ExposedAfter: ms, Limit: passes.LimitData}
	switch {
	case within > (ms+matmul)*(1-ctx.Float("min-gain")/100):
		r.AddDetail(fmt.Sprintf("%%%s would take %.4f ms with it, %.4f one after the other", m.Name(), within, ms+matmul))
	case ctx.Enable(c.Name()):
		f.SetMeta(c, c.Meta().With(place.InMatmulKey, attr.Bool(true)))
		f.SetCost(c, max(0, within-matmul))
		ctx.Count("fused", 1)
		ctx.Count("before-ms", ms+matmul)
		ctx.Count("after-ms", within)
		r.ExposedAfter = max(0, within-matmul)
		r.AddDetail("within %" + m.Name())
	}
	ctx.Record(r)
}
