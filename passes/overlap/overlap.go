// Package overlap has pass overlap, which schedules a whole function and buckets its
// collectives, and pass bucket, which only buckets.
package overlap

import (
	"math"

	"github.com/seed-ee968945/concert/internal/sched"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/sim"
)

// Pass hands the whole function to the global scheduler (package
// internal/sched, which explains how it decides) and writes its answer back: the
// order of everything, and which collectives share a bucket. bucket asks
// the same package for buckets only and keeps the order of computation; how a
// bucket is written, and which collectives may be in one, is in its file.
func Pass() passes.Pass {
	return passes.Pass{
		Name: "overlap",
		Doc:  "Decides starts, waits, compute order and buckets together so that communication hides under a memory cap.",
		Options: append(append(capOptions(),
			passes.Option{Name: "memory-tradeoff", FormerName: "thrift", Kind: passes.KindFloat, Default: "0.02", Doc: "fraction of the makespan to give up for a lower peak of memory"},
			passes.Option{Name: "reuse", Kind: passes.KindBool, Default: "false", Doc: "count memory as it is after reuse-buffers, where that lets more be hidden: a later reuse-buffers{inputs=dying} is relied on"},
			passes.Option{Name: "runs", Kind: passes.KindInt, Default: "0", Doc: "how many policies to try per cap, 0 for the scheduler's default"},
			passes.Option{Name: "buckets", Kind: passes.KindBool, Default: "true", Doc: "also bucket collectives, where the cost model knows what a bucket takes"},
		), bucketOptions()...),
		Stats: append(scheduleStats(),
			passes.Stat{Name: "bound-ms", Doc: "lower bound of the makespan without buckets"},
			passes.Stat{Name: "gap-percent", Doc: "how far the makespan can be from the best one, in percent of the bound"},
			passes.Stat{Name: "runs", Doc: "list schedules tried"},
		),
		OrderOnly:    true,
		FunctionPass: true,
		Run:          runOverlap,
	}
}

func capOptions() []passes.Option {
	return []passes.Option{
		{Name: "cap", Kind: passes.KindBytes, Default: "0", Doc: "largest live memory, 0 for the input's own peak"},
		{Name: "percent", Kind: passes.KindFloat, Default: "100", Doc: "the cap in percent of the input's own peak, where cap is 0"},
	}
}

func scheduleStats() []passes.Stat {
	return []passes.Stat{
		{Name: "makespan-before-ms", Doc: "time of the function before the pass"},
		{Name: "makespan-after-ms", Doc: "time of the function after the pass"},
		{Name: "exposed-before-ms", Doc: "makespan minus the costs of all that runs on the compute stream, before the pass"},
		{Name: "exposed-after-ms", Doc: "the same after the pass"},
		{Name: "peak-before-bytes", Doc: "largest live memory before the pass"},
		{Name: "peak-after-bytes", Doc: "largest live memory after the pass"},
		{Name: "cap-bytes", Doc: "the cap"},
		{Name: "buckets", Doc: "buckets of two or more collectives"},
		{Name: "bucketed", Doc: "collectives in them"},
	}
}

func runOverlap(ctx *passes.Context, f *ir.Func) error {
	s, err := newScheduler(ctx, f)
	if err != nil || !ctx.Enable("order") {
		return err
	}
	opts := s.options()
	opts.Known = &sched.Known{}
	opts.MemoryTradeoff, opts.Runs = ctx.Float("memory-tradeoff"), int(min(ctx.Int("runs"), math.MaxInt32))
	if opts.MemoryTradeoff == 0 {
		opts.MemoryTradeoff = -1 // the scheduler's zero means its default
	}
	if !ctx.Bool("buckets") {
		opts.Cost = nil
	}
	r, err := sched.Schedule(s.d.Model, opts)
	if err != nil {
		return err
	}
	if err := s.raiseCap(&r, opts, ctx.Bool("reuse")); err != nil {
		return err
	}
	ctx.Count("bound-ms", r.Bounds.Bound)
	ctx.Count("gap-percent", max(0, 100*r.Gap()))
	ctx.Count("runs", float64(r.Runs))
	return s.apply(r)
}

// scheduler translates between a function and package internal/sched.
type scheduler struct {
	ctx *passes.Context
	f   *ir.Func
	d   *deps.Func
	cap int64   // bytes; 0 for the input's own peak
	may joining // who may join buckets

	gone []*ir.Node // starts and waits that buckets stand for, readers first
	next string     // the next useful cap, if memory is what limits; else empty
}

func newScheduler(ctx *passes.Context, f *ir.Func) (*scheduler, error) {
	s := &scheduler{ctx: ctx, f: f, cap: ctx.Bytes("cap"), may: newJoining(ctx)}
	d, err := deps.AnalyzeWith(f, sim.FuncOptions{Ms: ctx.Cost, Bucketable: s.may.bucketable, Tag: s.may.tag})
	if err != nil {
		return nil, err
	}
	s.d = d
	if pct := ctx.Float("percent"); s.cap == 0 && pct != 100 {
		t, err := sim.Evaluate(d.Model, d.InputOrder(), nil)
		if err != nil {
			return nil, err
		}
		s.cap = int64(math.Min(float64(t.Peak)*pct/100, math.MaxInt64/4))
	}
	return s, nil
}

// cost is what the cost model says about a bucket; where it knows nothing, no
// bucket pays.
func (s *scheduler) cost(key sim.Key, bytes int64) float64 {
	op, ok := ir.OpByName(key.Op)
	g := s.f.Module().Group(key.Group)
	if !ok || g == nil || s.ctx.Costs() == nil {
		return math.Inf(1)
	}
	ms, ok := s.ctx.Costs().CommMs(op, g, ir.Reduction(key.Reduce), bytes)
	if !ok {
		return math.Inf(1)
	}
	return ms
}

// apply writes a schedule back, counts and reports.
func (s *scheduler) apply(r *sched.Result) error {
	ctx := s.ctx
	in, out := r.Input, r.Timeline
	ctx.Count("makespan-before-ms", in.Makespan)
	ctx.Count("makespan-after-ms", out.Makespan)
	ctx.Count("exposed-before-ms", in.Exposed)
	ctx.Count("exposed-after-ms", out.Exposed)
	ctx.Count("peak-before-bytes", float64(in.Peak))
	ctx.Count("peak-after-bytes", float64(out.Peak))
	ctx.Count("cap-bytes", float64(r.Cap))
	s.record(r)
	return s.write(r, ctx.Count)
}

// write puts a schedule into the function.
func (s *scheduler) write(r *sched.Result, count func(stat string, by float64)) error {
	d := s.d
	if err := s.f.SetOrder(d.Permuted(r.Order)); err != nil {
		return err
	}
	pos := make([]int32, len(r.Order))
	for p, v := range r.Order {
		pos[v] = int32(p)
	}
	for _, b := range r.Buckets {
		if len(b.Members) < 2 {
			continue
		}
		if err := s.formBucket(b, pos); err != nil {
			return err
		}
		count("buckets", 1)
		count("bucketed", float64(len(b.Members)))
	}
	for _, n := range s.gone {
		s.f.Remove(n)
	}
	return nil
}

// record says for every collective how far it moved and what that gained.
func (s *scheduler) record(r *sched.Result) {
	d := s.d
	before, after := s.launchesBefore(d.InputOrder()), s.launchesBefore(r.Order)
	inBucket := make([]bool, d.Len())
	for _, b := range r.Buckets {
		for _, m := range b.Members {
			inBucket[m] = len(b.Members) > 1
		}
	}
	for i, n := range d.Nodes {
		i := int32(i)
		if d.Kind[i] != sim.Start {
			continue
		}
		rec := passes.CommRecord{Node: n.Name(), Comm: n.Name(), Group: n.Group().Name, Ms: d.Dur[i],
			Moves: int(max(after[i]-before[i], before[i]-after[i])), ExposedBefore: d.Exposed(r.Input, i), ExposedAfter: d.Exposed(r.Timeline, i), Limit: passes.LimitHidden}
		if rec.ExposedAfter > 0 {
			if rec.Limit = s.exposedBy(r.Timeline, i); rec.Limit == passes.LimitSchedule && s.next != "" {
				rec.Limit, rec.Detail = passes.LimitMemory, s.next
			}
		}
		if inBucket[i] {
			rec.AddDetail("in a bucket")
		} else if why := s.may.exclusion(n); why != "" {
			rec.AddDetail("in no bucket: " + why)
		}
		s.ctx.Record(rec)
	}
}

// exposedBy says why a collective is not hidden: its stream was busy when the
// compute stream issued it, or it was issued as soon as its operands were there,
// or the schedule as a whole, its cap included, left it late.
func (s *scheduler) exposedBy(t *sim.Timeline, i int32) passes.Limit {
	if t.Begin[i] > t.Issue[i] {
		return passes.LimitStream
	}
	for _, p := range s.d.Pred.At(i) {
		if t.End[p] >= t.Issue[i] {
			return passes.LimitData
		}
	}
	return passes.LimitSchedule
}

// launchesBefore counts, by node, the launches before it.
func (s *scheduler) launchesBefore(order []int32) []int32 {
	out := make([]int32, len(order))
	count := int32(0)
	for _, v := range order {
		out[v] = count
		if deps.Launches(s.d.Nodes[v]) {
			count++
		}
	}
	return out
}
