// Package fusecollectives is pass fuse-collectives: it computes the products that
// collectives feed, or that feed collectives, in chunks of rows.
package fusecollectives

import (
	"fmt"
	"math"
	"strings"

	"github.com/seed-ee968945/concert/internal/sched"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/sim"
)

// noCost detaches a cost.
var noCost = math.NaN()

// Pass cuts what a scheduler cannot hide: a gather that feeds a product, a product that feeds
// a reduction, and the residual, norm and activation around them have nothing to run beside
// but each other.
//
// # How
//
// From each collective a region is grown: nodes through which its rows go, by the table of
// rules in rules.go, through products and further collectives to where rows meet, as in
// attention. What a region has in front of its first collective or product and behind its last
// stays outside. Every node of the region becomes one node for each chunk of the rows; pass
// overlap then lets the collective of one chunk run beside the products of another. Rows that
// ranks gather lie in runs, one for each rank, and a chunk has a part of each run: so a chunk
// of a gather is a gather of chunks, and the chunks of a reduce_scatter are those of its
// result. What nodes outside of the region read of it is put together by cat.
//
// Every number is computed of the same numbers in the same order: the pass is exact.
//
// # Whether it pays
//
// Chunks of products leave multiprocessors idle, collectives of chunks cost latency, cats are
// copies, and products beside collectives are slower. So regions that look the same are tried
// together, in several numbers of chunks: the function with chunks is scheduled as overlap
// would, timed by the simulator with contention, and kept if that is faster by min-gain
// percent and takes no more memory than percent of what it took. What the cost model does not
// know is not tried. With the option chunks, all regions are cut so, whatever it costs.
func Pass() passes.Pass {
	return passes.Pass{
		Name: "fuse-collectives",
		Doc:  "Computes products and their collectives in chunks of rows, so that they run beside each other, where that pays.",
		Options: []passes.Option{
			{Name: "chunks", Kind: passes.KindInt, Default: "0", Doc: "cut every region into so many chunks, whether it pays or not; 0 decides by cost"},
			{Name: "most", Kind: passes.KindInt, Default: "4", Doc: "largest number of chunks that is tried"},
			{Name: "min-rows", Kind: passes.KindInt, Default: "64", Doc: "least rows of a run in a chunk, where cost decides"},
			{Name: "min-gain", Kind: passes.KindFloat, Default: "1", Doc: "percent of the step that a kind of region has to gain"},
			{Name: "percent", Kind: passes.KindFloat, Default: "110", Doc: "largest live memory in percent of what the schedule takes without chunks"},
			{Name: "contention", Kind: passes.KindFloat, Default: "1.1", Doc: "how many times as long computation is taken to last beside collectives"},
		},
		Stats: []passes.Stat{
			{Name: "regions", Doc: "regions found"},
			{Name: "fused", Doc: "regions cut into chunks"},
			{Name: "collectives", Doc: "collectives that were cut"},
			{Name: "tried", Doc: "kinds of regions and numbers of chunks that were scheduled"},
			{Name: "unknown", Doc: "kinds of regions of which the cost model does not know what chunks take"},
			{Name: "makespan-before-ms", Doc: "time of the scheduled function before the pass, with contention"},
			{Name: "makespan-after-ms", Doc: "the same after the pass"},
			{Name: "peak-before-bytes", Doc: "largest live memory of that schedule before the pass"},
			{Name: "peak-after-bytes", Doc: "the same after the pass"},
		},
		Run: run,
	}
}

// leastRows is the rows of a run that every chunk has.
const leastRows = 2

func run(ctx *passes.Context, f *ir.Func) error {
	if chunks := ctx.Int("chunks"); chunks > 0 {
		for _, r := range find(ctx, f, true) {
			k := min(chunks, r.rows/leastRows)
			if k < 2 || !ctx.Enable(f.NodeByID(r.seed).Name()) {
				continue
			}
			ctx.Count("fused", 1)
			ctx.Count("collectives", float64(r.comms))
			if _, err := cut(ctx, f, r, int(k)); err != nil {
				return err
			}
		}
		return nil
	}
	return decide(ctx, f)
}

// find lists the regions of f, which share no nodes.
func find(ctx *passes.Context, f *ir.Func, wide bool) []*region {
	g := &grower{f: f, table: rules(), writes: ir.FindWrites(f), wide: wide}
	taken := map[ir.NodeID]bool{}
	var out []*region
	for _, n := range f.Order() {
		ctx.Tick()
		r := g.grow(n, taken)
		if r == nil || r.rows < 2*leastRows {
			continue
		}
		for _, id := range r.nodes {
			taken[id] = true
		}
		out = append(out, r)
		ctx.Count("regions", 1)
	}
	return out
}

// looks is equal for regions of the same operations on the same types.
func (r *region) looks(f *ir.Func) string {
	var b strings.Builder
	for _, id := range r.nodes {
		n := f.NodeByID(id)
		fmt.Fprint(&b, n.Op(), n.Attrs(), r.flows[id])
		for _, v := range n.Results() {
			b.WriteString(v.Type().String())
		}
	}
	return b.String()
}

// trial is a function, as it would be scheduled.
type trial struct {
	f    *ir.Func
	ms   float64
	peak int64
	cap  int64
}

// schedule times f as overlap would order it; cap is the memory that it may take, 0 for that
// of its own order.
func schedule(ctx *passes.Context, f *ir.Func, limit int64) (*trial, error) {
	d, err := deps.Analyze(ctx, f)
	if err != nil {
		return nil, err
	}
	s, err := sched.Schedule(d.Model, sched.Options{Cap: limit, Runs: 4, ExactStates: -1, MemoryTradeoff: -1, Tick: ctx.Tick})
	if err != nil {
		return nil, err
	}
	t, err := sim.EvaluateUnder(d.Model, s.Order, s.Buckets, sim.Contention{Stretch: max(1, ctx.Float("contention"))})
	if err != nil {
		return nil, err
	}
	return &trial{f: f, ms: t.Makespan, peak: t.Peak, cap: s.Cap}, nil
}

// choice is a kind of regions and the number of chunks that they are cut into.
type choice struct {
	regions []*region
	chunks  int
}

// decide tries kinds of regions one after the other, and keeps what pays.
func decide(ctx *passes.Context, f *ir.Func) error {
	regions := find(ctx, f, true)
	var kinds []string
	of := map[string][]*region{} // look-up only
	for _, r := range regions {
		k := r.looks(f)
		if of[k] == nil {
			kinds = append(kinds, k)
		}
		of[k] = append(of[k], r)
	}
	if len(kinds) == 0 {
		return nil
	}
	before, err := schedule(ctx, f, 0)
	if err != nil {
		return err
	}
	limit := int64(math.Min(float64(before.cap)*ctx.Float("percent")/100, math.MaxInt64/4))
	best := before
	var kept []choice
	for _, k := range kinds {
		var take *choice
		for chunks := 2; int64(chunks) <= ctx.Int("most") && of[k][0].rows/int64(chunks) >= ctx.Int("min-rows"); chunks *= 2 {
			c := choice{of[k], chunks}
			t, ok, err := try(ctx, f, append(kept[:len(kept):len(kept)], c), limit)
			if err != nil {
				return err
			}
			if !ok {
				ctx.Count("unknown", 1)
				break
			}
			ctx.Count("tried", 1)
			if t != nil && t.ms < best.ms-before.ms*ctx.Float("min-gain")/100 {
				best, take = t, &c
			}
		}
		if take != nil {
			kept = append(kept, *take)
		}
	}
	ctx.Count("makespan-before-ms", before.ms)
	ctx.Count("makespan-after-ms", best.ms)
	ctx.Count("peak-before-bytes", float64(before.peak))
	ctx.Count("peak-after-bytes", float64(best.peak))
	record(ctx, f, regions, kept)
	_, err = apply(ctx, f, kept, true)
	return err
}

// try schedules a copy of f in chunks: nil if memory does not suffice, false if the cost
// model does not know what chunks take.
func try(ctx *passes.Context, f *ir.Func, choices []choice, limit int64) (*trial, bool, error) {
	ctx.Tick()
	copied := f.Module().Clone().Func(f.Name)
	priced, err := apply(ctx, copied, choices, false)
	if err != nil || !priced {
		return nil, priced, err
	}
	t, err := schedule(ctx, copied, limit)
	if err != nil {
		if _, full := err.(*sched.InfeasibleError); full {
			return nil, true, nil
		}
		return nil, true, err
	}
	return t, true, nil
}

// apply cuts regions in f, asking for leave where it is meant.
func apply(ctx *passes.Context, f *ir.Func, choices []choice, meant bool) (priced bool, err error) {
	priced = true
	for _, c := range choices {
		for _, r := range c.regions {
			if !ctx.Enable(f.NodeByID(r.seed).Name()) {
				continue
			}
			ok, err := cut(ctx, f, r, c.chunks)
			if err != nil {
				return false, err
			}
			priced = priced && ok
			if meant {
				ctx.Count("fused", 1)
				ctx.Count("collectives", float64(r.comms))
			}
		}
	}
	return priced, nil
}

// record says of the collectives of every region what was decided.
func record(ctx *passes.Context, f *ir.Func, regions []*region, kept []choice) {
	chunks := map[*region]int{}
	for _, c := range kept {
		for _, r := range c.regions {
			chunks[r] = c.chunks
		}
	}
	for _, r := range regions {
		for _, id := range r.nodes {
			n := f.NodeByID(id)
			if !n.Op().IsCollective() {
				continue
			}
			rec := passes.CommRecord{Node: n.Name(), Comm: n.Name(), Group: n.Group().Name, Ms: ctx.Cost(n), Limit: passes.LimitSchedule}
			if k := chunks[r]; k > 0 {
				rec.AddDetail(fmt.Sprintf("cut into %d chunks with what reads and makes its rows", k))
			} else {
				rec.AddDetail("not cut: chunks do not pay")
			}
			ctx.Record(rec)
		}
	}
}
