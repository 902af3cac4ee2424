// Package pipelinecollectives has pass pipeline-collectives: software pipelining of the collectives
// in a loop, which then overlap with the next or the previous iteration.
package pipelinecollectives

import (
	"errors"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/sched"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/passes/internal/loops"
	"github.com/seed-ee968945/concert/sim"
)

// Pass is software pipelining of collectives, for loops whose length follows from constants and that pass unroll has
// left; package equiv proves it by induction over the iterations: within one iteration nothing hides a gather of what the iteration
// begins with, or a reduction of what it ends with.
//
// What a collective sends may follow from counters and from what no iteration changes, as a row of stacked weights
// does. The iteration before then starts it, and carries what it brings (ahead.go). And what it brings may only be
// stored, as gradients are; then the iteration behind runs it, and what it sends is carried (behind.go). Either way one iteration stands
// outside of the loop, so that no collective runs more often than before.
//
// What is carried has landed: an iteration waits for what it starts at its end, beside all that it
// computes, so that no more is hidden where tensors in flight go around. Both cost the same
// memory, a second buffer, and a copy an iteration, which is reckoned with.
//
// A collective moves if a schedule of the iteration, in a schedule of the function, is faster then, and the
// function stays under its cap of memory; one after the other in program order. Such a trial takes as long as a
// schedule of both.
//
// A loop whose length a run decides stays as it is. If its condition reads what an iteration ends with, an iteration
// knows only then whether there is another one, when nothing is left that would hide a collective. If it counts to a
// bound that is data, the iteration outside may not exist either: the first gather and the last iteration would have to be
// in a branch with the loop, and what is in branches is not scheduled with what surrounds them. Without a guard a
// collective is not harmless: the row that it sends may be one that the stacked weights do not have, which is
// an error, and every rank runs one more.
//
// After the CollectivePipeliner of XLA, which goes by options and sizes.
func Pass() passes.Pass {
	return passes.Pass{
		Name: "pipeline-collectives",
		Doc:  "Starts collectives of loops one iteration ahead, or runs them one iteration behind, where that hides them.",
		Options: []passes.Option{
			{Name: "cap", Kind: passes.KindBytes, Default: "0", Doc: "largest live memory, 0 for the input's own peak"},
			{Name: "percent", Kind: passes.KindFloat, Default: "100", Doc: "the cap in percent of the input's own peak, where cap is 0"},
			{Name: "min-gain", Kind: passes.KindFloat, Default: "0.1", Doc: "percent of the function's time that moving a collective has to save"},
			{Name: "when", Kind: passes.KindString, Default: "faster", Choices: []string{"faster", "always"}, Doc: "move collectives if that saves time under the cap, or all that can move"},
		},
		Stats: []passes.Stat{
			{Name: "loops", Doc: "loops with collectives"},
			{Name: "ahead", Doc: "collectives that start an iteration ahead"},
			{Name: "behind", Doc: "collectives that run an iteration behind"},
			{Name: "stay", Doc: "collectives that could move and do not, as that saves nothing"},
			{Name: "over-cap", Doc: "the same, as memory does not suffice"},
			{Name: "unknown", Doc: "loops with collectives whose length a run decides, that are too long to be counted, or whose costs are attached"},
			{Name: "makespan-before-ms", Doc: "time of functions with loops whose collectives could move"},
			{Name: "makespan-after-ms", Doc: "the same after the pass"},
			{Name: "peak-before-bytes", Doc: "their largest live memory"},
			{Name: "peak-after-bytes", Doc: "the same after the pass"},
		},
		Run: run,
	}
}

func run(ctx *passes.Context, f *ir.Func) error {
	d := &decision{ctx: ctx, f: f}
	for _, n := range slices.Clone(f.Order()) {
		if n.Op() != ir.OpWhile || !slices.ContainsFunc(n.Bodies()[1].Order(), func(c *ir.Node) bool { return c.Op().IsCollective() }) {
			continue
		}
		ctx.Count("loops", 1)
		if err := d.loop(n); err != nil {
			return err
		}
	}
	if d.before != nil {
		ctx.Count("makespan-before-ms", d.before.ms)
		ctx.Count("makespan-after-ms", d.best.ms)
		ctx.Count("peak-before-bytes", float64(d.before.peak))
		ctx.Count("peak-after-bytes", float64(d.best.peak))
	}
	return nil
}

// decision is what is tried on one function.
type decision struct {
	ctx    *passes.Context
	f      *ir.Func
	before *trial // nil until something could move
	best   *trial
	limit  int64 // bytes
}

// trial is what a function comes to as it would be scheduled.
type trial struct {
	ms   float64
	peak int64
}

// loop moves collectives of one loop.
func (d *decision) loop(n *ir.Node) error {
	l := d.read(d.f, n)
	if l == nil {
		d.ctx.Count("unknown", 1)
		return nil
	}
	if l.iterations < 2 || slices.ContainsFunc(slices.Concat(l.cond.Order(), l.body.Order()), isFence) {
		return nil
	}
	n, err := d.choose(n, "ahead", l.startable(), (*loop).startAhead)
	if err != nil {
		return err
	}
	if l = d.read(d.f, n); l == nil || l.iterations < 2 {
		return nil
	}
	_, err = d.choose(n, "behind", l.deferrable(), (*loop).storeBehind)
	return err
}

// isFence reports whether collectives keep their side of a node: a call, or what runs one, that communicates.
func isFence(n *ir.Node) bool {
	return n.Effects()&ir.EffectCommunicates != 0 && !n.Op().IsCollective() && (n.Op().Info().Bodies == nil ||
		slices.ContainsFunc(n.Bodies(), func(f *ir.Func) bool { return slices.ContainsFunc(f.Order(), isFence) }))
}

// read is a loop of known length, nil of others.
func (d *decision) read(f *ir.Func, n *ir.Node) *loop {
	if _, attached := n.Cost(); attached {
		return nil
	}
	l := &loop{f: f, n: n, cond: n.Bodies()[0], body: n.Bodies()[1]}
	l.writes = ir.FindWrites(l.body)
	l.first = loops.NewKnown(f).State(n)
	var end loops.End
	if l.iterations, l.last, end = loops.Count(n, l.first, loops.MaxCounted, d.ctx.Tick); end != loops.Counted {
		return nil
	}
	l.counts()
	return l
}

// choose moves those of some collectives that pay, and returns the loop that is left.
func (d *decision) choose(n *ir.Node, where string, comms []*ir.Node, move func(*loop, []*ir.Node) *ir.Node) (*ir.Node, error) {
	if len(comms) > 0 && d.before == nil {
		if err := d.begin(); err != nil {
			return n, err
		}
	}
	if len(comms) == 0 {
		return n, nil
	}
	least := d.before.ms * d.ctx.Float("min-gain") / 100
	var kept []*ir.Node
	for _, c := range comms {
		d.ctx.Tick()
		if !d.ctx.Enable(n.Name() + "/" + c.Name()) {
			continue
		}
		t, err := d.try(n, append(kept[:len(kept):len(kept)], c), move)
		if err != nil {
			return n, err
		}
		rec := passes.CommRecord{Node: n.Name() + "/" + c.Name(), Comm: c.Name(), Group: c.Group().Name, Ms: d.ctx.Cost(c), Limit: passes.LimitSchedule}
		switch {
		case t == nil:
			d.ctx.Count("over-cap", 1)
			rec.Limit = passes.LimitMemory
			rec.AddDetail("an iteration " + where + " takes too much memory")
		case d.ctx.Str("when") == "faster" && (t.ms > d.best.ms-least || t.ms == d.best.ms):
			d.ctx.Count("stay", 1)
			rec.AddDetail("an iteration " + where + " saves nothing")
		default:
			kept, d.best = append(kept, c), t
			d.ctx.Count(where, 1)
			rec.AddDetail("an iteration " + where)
		}
		d.ctx.Record(rec)
	}
	if kept == nil {
		return n, nil
	}
	return move(d.read(d.f, n), kept), nil
}

// begin reckons what the function takes as it is.
func (d *decision) begin() error {
	if d.limit = d.ctx.Bytes("cap"); d.ctx.Str("when") == "always" {
		d.limit = math.MaxInt64 / 4
	}
	if d.limit == 0 {
		m, err := deps.Analyze(d.ctx, d.f)
		if err != nil {
			return err
		}
		t, err := sim.Evaluate(m.Model, m.InputOrder(), nil)
		if err != nil {
			return err
		}
		d.limit = int64(math.Min(float64(t.Peak)*d.ctx.Float("percent")/100, math.MaxInt64/4))
	}
	t, err := d.price(d.f.Clone(), math.MaxInt64/4)
	d.before, d.best = t, t
	return err
}

// try is what the function takes if collectives of a loop move; nil if that is too much memory.
func (d *decision) try(n *ir.Node, comms []*ir.Node, move func(*loop, []*ir.Node) *ir.Node) (*trial, error) {
	f := d.f.Clone()
	l := d.read(f, f.NodeByID(n.ID()))
	var own []*ir.Node
	for _, c := range comms {
		own = append(own, l.body.NodeByID(c.ID()))
	}
	n = move(l, own)
	copies := 0.0
	for k := l.n.Carried(); k < n.Carried(); k++ {
		v := n.Result(k)
		c := f.InsertAfter(n, ir.NodeSpec{Op: ir.OpClone, Args: []*ir.Value{v}, Results: []ir.Type{v.Type()}})
		copies += d.ctx.Cost(c) * float64(l.iterations-1)
		f.Remove(c)
	}
	t, err := d.price(f, d.limit)
	if errors.Is(err, sched.ErrInfeasible) {
		return nil, nil
	}
	if t != nil {
		t.ms += copies
	}
	return t, err
}

// price schedules a function, and the bodies of its loops before it.
func (d *decision) price(f *ir.Func, limit int64) (*trial, error) {
	for _, n := range f.Order() {
		if n.Op() != ir.OpWhile {
			continue
		}
		body := n.Bodies()[1]
		m, s, err := d.schedule(body, 0)
		if err != nil {
			return nil, err
		}
		if err := body.SetOrder(m.Permuted(s.Order)); err != nil {
			return nil, err
		}
	}
	_, s, err := d.schedule(f, limit)
	if err != nil {
		return nil, err
	}
	return &trial{s.Timeline.Makespan, s.Timeline.Peak}, nil
}

func (d *decision) schedule(f *ir.Func, limit int64) (*deps.Func, *sched.Result, error) {
	m, err := deps.Analyze(d.ctx, f)
	if err != nil {
		return nil, nil, err
	}
	s, err := sched.Schedule(m.Model, sched.Options{Cap: limit, Runs: 32, ExactStates: -1, MemoryTradeoff: -1, Tick: d.ctx.Tick})
	return m, s, err
}
