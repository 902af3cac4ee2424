// Package fusecollectives has pass fuse-collectives: it splits matmuls that feed
// collectives, or are fed by them, into chunks of rows.
package fusecollectives

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// noCost detaches a cost.
var noCost = math.NaN()

// Pass cuts what a scheduler cannot hide: a gather that feeds a matmul, a matmul that feeds
// a reduction, and the residual, norm and activation around them have nothing to run beside
// but each other.
//
// # How
//
// From each collective a region is grown: nodes through which its rows go, by the table of
// rules in rules.go, through matmuls and further collectives to where rows meet, as in
// attention. What a region has in front of its first collective or matmul and behind its last
// stays outside. Every node of the region becomes one node for each chunk of the rows; pass
// overlap then lets the collective of one chunk run beside the matmuls of another. Rows that
// ranks gather lie in runs, one for each rank, and a chunk has a part of each run: so a chunk
// of a gather is a gather of chunks, and the chunks of a reduce_scatter are those of its
// result. What nodes outside of the region read of it is put together by cat.
//
// Every number is computed of the same numbers in the same order: the pass is exact.
//
// # Whether it pays
//
// Chunks of matmuls leave multiprocessors idle, collectives of chunks cost latency, cats are
// copies, and matmuls overlapped with collectives are slower. So regions that look the same are tried
// together, in several numbers of chunks, and where that does not pay, smaller regions of a
// collective and the matmuls next to it: the function with chunks is scheduled as overlap
// would, timed by the simulator with contention, and kept if that is faster by min-gain
// percent and takes no more memory than percent of what it took. What the cost model does not
// know is not tried. With the option chunks, all regions are cut so, whatever it costs.
func Pass() passes.Pass {
	return passes.Pass{
		Name: "fuse-collectives",
		Doc:  "Computes matmuls and their collectives in chunks of rows, so that they run beside each other, where that pays.",
		Options: []passes.Option{
			{Name: "chunks", Kind: passes.KindInt, Default: "0", Doc: "cut every region into so many chunks, whether it pays or not; 0 decides by cost"},
			{Name: "most", Kind: passes.KindInt, Default: "4", Doc: "largest number of chunks that is tried"},
			{Name: "min-rows", Kind: passes.KindInt, Default: "64", Doc: "least rows of a run in a chunk, where cost decides"},
			{Name: "min-gain", Kind: passes.KindFloat, Default: "1", Doc: "percent of the step that a kind of region has to gain"},
			{Name: "percent", Kind: passes.KindFloat, Default: "110", Doc: "largest live memory in percent of what the schedule takes without chunks"},
			{Name: "contention", Kind: passes.KindFloat, Default: "1.1", Doc: "how many times as long computation is taken to last overlapped with collectives"},
		},
		Stats: []passes.Stat{
			{Name: "regions", Doc: "regions found, of both reaches"},
			{Name: "fused", Doc: "regions cut into chunks"},
			{Name: "collectives", Doc: "collectives that were cut"},
			{Name: "hidden", Doc: "kinds of regions whose collectives the schedule hides as they are"},
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
		for _, r := range find(ctx, f, true, map[ir.NodeID]bool{}) {
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
	d := &decision{ctx: ctx, f: f, taken: map[ir.NodeID]bool{}}
	return d.decide()
}

// find lists the regions of f, which share no nodes, and none with those that are taken.
func find(ctx *passes.Context, f *ir.Func, wide bool, taken map[ir.NodeID]bool) []*region {
	g := &grower{f: f, table: rules(), writes: ir.FindWrites(f), wide: wide}
	taken = maps.Clone(taken)
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
