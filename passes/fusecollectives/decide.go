package fusecollectives

import (
	"errors"
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/internal/sched"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/sim"
)

// trial is what a function comes to as it would be scheduled.
type trial struct {
	ms      float64
	peak    int64
	cap     int64
	exposed map[ir.NodeID]float64 // of collectives; look-up only
}

// schedule times f as overlap would order it; limit is the memory that it may take, 0 for that
// of its own order.
func schedule(ctx *passes.Context, f *ir.Func, limit int64) (*trial, error) {
	d, err := deps.Analyze(ctx, f)
	if err != nil {
		return nil, err
	}
	s, err := sched.Schedule(d.Model, sched.Options{Cap: limit, Runs: 8, ExactStates: -1, MemoryTradeoff: -1, Tick: ctx.Tick})
	if err != nil {
		return nil, err
	}
	t, err := sim.EvaluateUnder(d.Model, s.Order, s.Buckets, sim.Contention{Stretch: max(1, ctx.Float("contention"))})
	if err != nil {
		return nil, err
	}
	out := &trial{ms: t.Makespan, peak: t.Peak, cap: s.Cap, exposed: map[ir.NodeID]float64{}}
	for i, n := range d.Nodes {
		if d.Kind[i] == sim.Start {
			out.exposed[n.ID()] = d.Exposed(t, int32(i))
		}
	}
	return out, nil
}

// choice is regions that look the same, and the number of chunks that they are cut into.
type choice struct {
	regions []*region
	chunks  int
}

// decision is what is tried on one function.
type decision struct {
	ctx    *passes.Context
	f      *ir.Func
	taken  map[ir.NodeID]bool // nodes of regions that are cut; look-up only
	before *trial
	best   *trial
	limit  int64
	kept   []choice
}

// decide tries kinds of regions one after the other, and keeps what pays.
func (d *decision) decide() error {
	for _, wide := range []bool{true, false} {
		regions := find(d.ctx, d.f, wide, d.taken)
		if len(regions) == 0 {
			continue
		}
		if d.before == nil {
			t, err := schedule(d.ctx, d.f, 0)
			if err != nil {
				return err
			}
			d.before, d.best = t, t
			d.limit = int64(math.Min(float64(t.cap)*d.ctx.Float("percent")/100, math.MaxInt64/4))
		}
		for _, kind := range kinds(d.f, regions) {
			if err := d.consider(kind); err != nil {
				return err
			}
		}
	}
	if d.before == nil {
		return nil
	}
	d.ctx.Count("makespan-before-ms", d.before.ms)
	d.ctx.Count("makespan-after-ms", d.best.ms)
	d.ctx.Count("peak-before-bytes", float64(d.before.peak))
	d.ctx.Count("peak-after-bytes", float64(d.best.peak))
	d.record()
	_, err := apply(d.ctx, d.f, d.kept, true)
	return err
}

// kinds are regions that look the same, in order.
func kinds(f *ir.Func, regions []*region) [][]*region {
	at := map[string]int{} // look-up only
	var out [][]*region
	for _, r := range regions {
		key := r.looks(f)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// consider keeps regions in the number of chunks that is fastest, if that pays: they cannot
// gain more than what is exposed of their collectives.
func (d *decision) consider(kind []*region) error {
	least := d.before.ms * d.ctx.Float("min-gain") / 100
	exposed := 0.0
	for _, r := range kind {
		for _, id := range r.nodes {
			exposed += d.before.exposed[id]
		}
	}
	if exposed < least || exposed == 0 {
		d.ctx.Count("hidden", 1)
		return nil
	}
	var take *choice
	for chunks := 2; int64(chunks) <= d.ctx.Int("most") && kind[0].rows/int64(chunks) >= d.ctx.Int("min-rows"); chunks *= 2 {
		c := choice{kind, chunks}
		t, known, err := d.try(append(d.kept[:len(d.kept):len(d.kept)], c))
		if err != nil {
			return err
		}
		if !known {
			d.ctx.Count("unknown", 1)
			return nil
		}
		d.ctx.Count("tried", 1)
		first := d.f.NodeByID(kind[0].seed).Name()
		if t == nil {
			d.ctx.Log.Debug("regions in chunks take too much memory", "first", first, "chunks", chunks)
			continue
		}
		d.ctx.Log.Debug("regions in chunks", "first", first, "regions", len(kind), "nodes", len(kind[0].nodes), "collectives", kind[0].comms,
			"chunks", chunks, "exposed", exposed, "ms", t.ms, "before", d.best.ms, "peak", t.peak)
		if t.ms < d.best.ms-least {
			d.best, take = t, &c
		}
	}
	if take == nil {
		return nil
	}
	d.kept = append(d.kept, *take)
	for _, r := range kind {
		for _, id := range r.nodes {
			d.taken[id] = true
		}
	}
	return nil
}

// try schedules a copy of the function in chunks: nil if memory does not suffice, not known if
// the cost model does not know what chunks take.
func (d *decision) try(choices []choice) (t *trial, known bool, err error) {
	d.ctx.Tick()
	f := d.f.Clone()
	priced, err := apply(d.ctx, f, choices, false)
	if err != nil || !priced {
		return nil, priced, err
	}
	t, err = schedule(d.ctx, f, d.limit)
	if errors.Is(err, sched.ErrInfeasible) {
		return nil, true, nil
	}
	return t, true, err
}

// apply cuts regions in f; those that are meant count.
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

// record says of the collectives of regions what was decided, and of the exposed others that
// chunks do not pay.
func (d *decision) record() {
	chunks := map[ir.NodeID]int{}
	for _, c := range d.kept {
		for _, r := range c.regions {
			for _, id := range r.nodes {
				chunks[id] = c.chunks
			}
		}
	}
	for _, n := range d.f.Order() {
		if !n.Op().IsCollective() || d.before.exposed[n.ID()] == 0 {
			continue
		}
		rec := passes.CommRecord{Node: n.Name(), Comm: n.Name(), Group: n.Group().Name, Ms: d.ctx.Cost(n), ExposedBefore: d.before.exposed[n.ID()], Limit: passes.LimitData}
		if k := chunks[n.ID()]; k > 0 {
			rec.AddDetail(fmt.Sprintf("cut into %d chunks with what makes and reads its rows", k))
		} else {
			rec.ExposedAfter = rec.ExposedBefore
			rec.AddDetail("chunks do not pay")
		}
		d.ctx.Record(rec)
	}
}
