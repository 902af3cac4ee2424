package fuse

import (
	"math"

	"github.com/seed-ee968945/concert/internal/sched"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/sim"
)

// AddSlack gives a schedule slack that there is memory for after fusion. Pass overlap
// counts every temporary tensor, but those inside a region are never written: where
// they set the peak, prefetches were put off for the sake of memory that is not needed.
// So collectives are issued again as early as their stream is idle, and waits moved to
// what needs them, with regions as launches (internal/sched/slack.go). The order
// of launches stays. Reductions that take longer than was counted on then find the
// links less far behind. What memory is spent on that is bounded by what overlap
// counted on, which is within the cap that it was given.
func AddSlack() passes.Pass {
	return passes.Pass{
		Name: "add-slack", FormerName: "loosen",
		Doc: "Issues collectives earlier and waits for them later around regions, where memory has room, so that costs that are off do less harm.",
		Options: []passes.Option{
			{Name: "percent", Kind: passes.KindFloat, Default: "110", Doc: "largest live memory in percent of what it was before the pass, with regions as launches; never more than with every node by itself, and more than 100 only where that gains something"},
		},
		Stats: []passes.Stat{
			{Name: "raised", Doc: "collectives issued earlier"},
			{Name: "sunk", Doc: "waits moved back"},
			{Name: "makespan-before-ms", Doc: "time of the function before the pass"},
			{Name: "makespan-after-ms", Doc: "time of the function after the pass"},
			{Name: "peak-before-bytes", Doc: "largest live memory before the pass, with regions as launches"},
			{Name: "peak-after-bytes", Doc: "the same after the pass"},
		},
		OrderOnly: true,
		Run:       runAddSlack,
	}
}

func runAddSlack(ctx *passes.Context, f *ir.Func) error {
	d, err := deps.Analyze(ctx, f)
	if err != nil {
		return err
	}
	m, units, err := launchModel(d)
	if err != nil {
		return err
	}
	before, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		return err
	}
	if !ctx.Enable("order") {
		return nil
	}
	plain, err := sim.Evaluate(d.Model, d.InputOrder(), nil)
	if err != nil {
		return err
	}
	limit := min(int64(math.Min(float64(before.Peak)*ctx.Float("percent")/100, math.MaxInt64/4)), plain.Peak)
	order, after, err := sched.AddSlack(m, ctx.Tick, sharedLinks(m, units), before.Peak, limit)
	if err != nil {
		return err
	}
	ctx.Count("makespan-before-ms", before.Makespan)
	ctx.Count("makespan-after-ms", after.Makespan)
	ctx.Count("peak-before-bytes", float64(before.Peak))
	ctx.Count("peak-after-bytes", float64(after.Peak))
	countMoves(ctx, m, order)
	nodes := make([]*ir.Node, 0, len(d.Nodes))
	for _, u := range order {
		nodes = append(nodes, units[u]...)
	}
	return f.SetOrder(nodes)
}

// sharedLinks numbers the streams of a model of launches so that those of groups over
// the same ranks have one number.
func sharedLinks(m *sim.Model, units [][]*ir.Node) []int32 {
	out := make([]int32, m.Streams)
	of := make([]*ir.Group, m.Streams)
	for u, k := range m.Stream {
		if k >= 0 {
			of[k] = units[u][0].Group()
		}
	}
	for k := range out {
		out[k] = int32(k)
		for i := range k {
			if of[i] != nil && of[k] != nil && samePartition(of[i], of[k]) {
				out[k] = out[i]
				break
			}
		}
	}
	return out
}

// samePartition reports whether two groups have the same subgroups, in whatever order.
func samePartition(a, b *ir.Group) bool {
	if a.Size() != b.Size() {
		return false
	}
	in := map[int]int{} // rank -> subgroup of a; look-up only
	for i, ranks := range a.Ranks {
		for _, r := range ranks {
			in[r] = i
		}
	}
	for _, ranks := range b.Ranks {
		for _, r := range ranks {
			if in[r] != in[ranks[0]] {
				return false
			}
		}
	}
	return true
}

// countMoves counts the starts that have fewer launches before them in an order of the
// model than in its input order, and the waits that have more.
func countMoves(ctx *passes.Context, m *sim.Model, order []int32) {
	was, work := make([]int32, m.Len()), int32(0)
	for u := range was {
		if was[u] = work; m.Kind[u] == sim.Compute {
			work++
		}
	}
	work = 0
	for _, u := range order {
		switch {
		case m.Kind[u] == sim.Compute:
			work++
		case m.Kind[u] == sim.Start && work < was[u]:
			ctx.Count("raised", 1)
		case m.Kind[u] == sim.Wait && work > was[u]:
			ctx.Count("sunk", 1)
		}
	}
}

// launchModel returns the model in which every region is one node, and what of the
// function each of its nodes stands for. Tensors that only their region reads take no
// memory. Linear.
func launchModel(d *deps.Func) (*sim.Model, [][]*ir.Node, error) {
	var units [][]*ir.Node
	unit := make([]int32, len(d.Nodes)) // node -> node of the new model
	for i, n := range d.Nodes {
		last := len(units) - 1
		if i > 0 && n.Meta().Has(passes.FusionKey) && d.Nodes[i-1].Meta().Has(passes.FusionKey) && n.Meta().Int(passes.FusionKey, 0) == d.Nodes[i-1].Meta().Int(passes.FusionKey, 0) {
			units[last] = append(units[last], n)
		} else {
			units = append(units, d.Nodes[i:i+1:i+1])
		}
		unit[i] = int32(len(units) - 1)
	}
	escapes := make([]bool, len(d.Size)) // storages that not only their owner's unit touches
	for v := range d.Nodes {
		for _, s := range d.Use.At(int32(v)) {
			escapes[s] = escapes[s] || unit[v] != unit[d.Owner[s]]
		}
	}
	b := sim.NewBuilder(len(units))
	to := make([]int32, len(d.Size)) // storage -> storage of the new model
	made, first := int32(0), int32(0)
	for u, nodes := range units {
		s := sim.Spec{Kind: d.Kind[first], StartOf: -1}
		if len(nodes) > 1 {
			s.Kind = sim.Compute
		}
		for i := range nodes {
			v := first + int32(i)
			s.Ms += d.Dur[v]
			for _, p := range d.Pred.At(v) {
				if unit[p] != int32(u) {
					s.Operands = append(s.Operands, unit[p])
				}
			}
			for _, x := range d.Use.At(v) {
				if unit[d.Owner[x]] != int32(u) {
					s.Reads = append(s.Reads, to[x])
				}
			}
			for _, x := range d.Alloc.At(v) {
				if len(nodes) > 1 && !escapes[x] {
					continue
				}
				to[x] = made
				made++
				s.Alloc = append(s.Alloc, d.Size[x])
				s.Pinned = s.Kind == sim.Input && d.Pinned[x] // what is returned is found to be
			}
		}
		if s.Kind == sim.Start {
			s.Key, s.Bytes = sim.Key{Group: nodes[0].Group().Name}, d.Bytes[first]
		}
		if p := d.StartOf[first]; s.Kind == sim.Wait && p >= 0 {
			s.StartOf = unit[p]
		}
		b.Add(s)
		first += int32(len(nodes))
	}
	m, err := b.Build()
	return m, units, err
}
