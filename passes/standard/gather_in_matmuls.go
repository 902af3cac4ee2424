package standard

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// gather-in-matmuls marks the gathers that should take place within the matmul that waits for
// them (place.InMatmulKey), by one kernel that begins with the rank's own rows. Nothing else
// changes: sums are the same but for the order in which a kernel adds, and a device without such a
// kernel does one after the other. It decides by the final order, for only there is known what overlaps with a gather.
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
// multiplied when it has come. The gather is marked if that gains min-gain percent; its cost
// becomes what that exceeds m by, so that simulations and reports count the pair as it is. Linear.
func gatherInMatmuls() passes.Pass {
	return passes.Pass{
		Name: "gather-in-matmuls",
		Doc:  "Lets gathers that nothing overlaps with take place within the matmul that waits for them, where that pays.",
		Options: []passes.Option{
			{Name: "overhead-us", Kind: passes.KindFloat, Default: "8", Doc: "microseconds that sending rows and waiting for them cost a matmul"},
			{Name: "min-gain", Kind: passes.KindFloat, Default: "3", Doc: "percent of the gather and the matmul, one after the other, that have to be gained"},
		},
		Stats: []passes.Stat{
			{Name: "candidates", Doc: "gathers that nothing overlaps with, directly before a matmul of their rows"},
			{Name: "fused", Doc: "those that take place within the matmul"},
			{Name: "before-ms", Doc: "what these and their matmuls take one after the other"},
			{Name: "after-ms", Doc: "what they take together"},
		},
		Run: runGatherInMatmuls,
	}
}

func runGatherInMatmuls(ctx *passes.Context, f *ir.Func) error {
	order := f.Order()
	flying := 0 // collectives that have begun, and that nobody has waited for
	for _, n := range f.Inputs() {
		if n.Result(0).Type().IsAsync() {
			flying++
		}
	}
	for i, n := range order {
		ctx.Tick()
		switch {
		case n.Op() == ir.OpWaitTensor && n.Arg(0).Def().Op() != ir.OpWaitTensor:
			flying--
		case n.Op().IsCollective():
			if m := taker(order[i:]); m != nil && flying == 0 && !n.Meta().Has(place.InMatmulKey) {
				gatherWithin(ctx, f, n, m)
			}
			flying++
		}
	}
	return nil
}

// taker is the matmul that takes the rows of the gather that an order begins with, nil if
// anything is done before it.
func taker(order []*ir.Node) *ir.Node {
	g := order[0]
	if t := g.Arg(0).Type(); g.Op() != ir.OpAllGather || len(g.Args()) != 1 || g.Group().Size() < 2 || t.DType() != ir.BF16 && t.DType() != ir.F16 || !outermost(g) {
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
			if !multiplies(n, g) {
				return nil
			}
			return n
		case deps.Launches(n), n.Op().IsCollective(), n.Op() == ir.OpWaitTensor, n.Op().Class() == ir.ClassOutput:
			return nil
		}
	}
	return nil
}

// multiplies reports whether a matmul is of all that a gather brings, by one right operand, in its type: what
// kernels there are for.
func multiplies(m, g *ir.Node) bool {
	x := m.Arg(0).Type()
	return x.Contiguous() && x.Shape().NumElems().Equal(g.Result(0).Type().Elems()[0].Shape().NumElems()) &&
		m.Arg(1).Type().Rank() == 2 && m.Result(0).Type().DType() == x.DType()
}

// outermost reports whether a gather lays whole rows behind each other.
func outermost(g *ir.Node) bool {
	shape, ok := g.Arg(0).Type().Shape().Static()
	return ok && product(shape[:g.Attrs().Int("dim", 0)]) == 1
}

func product(sizes []int64) int64 {
	p := int64(1)
	for _, n := range sizes {
		p *= n
	}
	return p
}

// tileRows are the rows of a tile of the kernel.
const tileRows = 128

// gatherWithin marks gather g if it pays to do it within matmul m.
func gatherWithin(ctx *passes.Context, f *ir.Func, g, m *ir.Node) {
	shape, ok := m.Arg(0).Type().Shape().Static()
	ranks := int64(g.Group().Size())
	if !ok || len(shape) == 0 || product(shape) == 0 {
		return
	}
	rows := product(shape[:len(shape)-1])
	if rows%ranks != 0 {
		return // a matmul's row is of several ranks
	}
	ctx.Count("candidates", 1)
	tiles := func(rows int64) float64 { return float64((rows + tileRows - 1) / tileRows) }
	gather, matmul := ctx.Cost(g), ctx.Cost(m)
	cut := matmul * float64(ranks) * tiles(rows/ranks) / tiles(rows)
	within := max(cut, gather+cut/float64(ranks)) + ctx.Float("overhead-us")/1e3
	r := passes.CommRecord{Node: g.Name(), Comm: g.Name(), Group: g.Group().Name, Ms: gather, ExposedBefore: gather, ExposedAfter: gather, Limit: passes.LimitData}
	switch {
	case within > (gather+matmul)*(1-ctx.Float("min-gain")/100):
		r.AddDetail(fmt.Sprintf("%%%s would take %.4f ms with it, %.4f behind it", m.Name(), within, gather+matmul))
	case ctx.Enable(g.Name()):
		f.SetMeta(g, g.Meta().With(place.InMatmulKey, attr.Bool(true)))
		f.SetCost(g, max(0, within-matmul))
		ctx.Count("fused", 1)
		ctx.Count("before-ms", gather+matmul)
		ctx.Count("after-ms", within)
		r.ExposedAfter = max(0, within-matmul)
		r.AddDetail("within %" + m.Name())
	}
	ctx.Record(r)
}
