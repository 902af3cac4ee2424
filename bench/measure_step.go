package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"sort"

	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// inStep is what one rank measured of a program as a whole, in microseconds. The
// program runs as a captured step does: matmuls joined, launches begun early, weights
// fetched ahead, with real data, and with the caches and clocks that it leaves itself.
type inStep struct {
	Chains []float64 `json:"chains"`  // by chain, with nothing beside it
	Calls  []float64 `json:"calls"`   // by launch or copy of the chains, one by one, with nothing beside it; empty if the device does not say
	StepUs float64   `json:"step_us"` // of the step, outside of what it does
	MarkUs float64   `json:"mark_us"` // of a mark, taken off the rest
	Runs   []inRun   `json:"runs"`    // as it is, some replays; as many on all ranks
}

// inRun is one replay of a program as it is: from when to when each chain ran, and after
// them each collective.
type inRun struct {
	From []float64 `json:"from"`
	To   []float64 `json:"to"`
}

// chain is when chain n ran.
func (r *inRun) chain(n int) span { return span{from: r.From[n], to: r.To[n]} }

// The sizes of measurements of steps.
const (
	leastLoad     = 8  // replays before some are looked at, of long steps
	mostLoad      = 48 // of short ones
	togetherSteps = 4  // replays one after the other, of which the last is looked at
	looks         = 2  // as often for every timed replay that was asked for: copies overlapped with compute vary
	mostMarkUs    = 5  // a mark takes no longer, whatever noise says
)

// steps measures the program as a whole.
func (k *meter) steps(ctx context.Context) error {
	c := k.c
	f := finding{What: aStep, Key: c.whole()}
	fresh := false
	for _, chain := range c.chains {
		fresh = k.isNew(finding{What: aChain, Key: c.p.ChainKey(chain)}) || fresh
	}
	if !fresh || !k.isNew(f) {
		return nil
	}
	if slices.ContainsFunc(c.chains, func(chain program.Chain) bool { return chain.Stream != 0 }) {
		return errors.New("it computes on several streams")
	}
	f.Step = new(inStep)
	markUs, err := k.measureIsolated(ctx, f.Step)
	if err != nil {
		return err
	}
	if err := k.measureOverlapped(ctx, f.Step, markUs); err != nil {
		return err
	}
	k.add(f)
	return nil
}

// whole is the key of all of a program.
func (c *measuredProgram) whole() string {
	var all program.Chain
	for i := range c.p.Instrs {
		all.Instrs = append(all.Instrs, i)
	}
	return c.p.ChainKey(all)
}

// replay is one timed replay.
type replay struct {
	us    float64
	marks []float64 // microseconds since the first
}

// replays runs a step of the program, often enough for the clocks to be those of a GPU
// under load, and then some more, of which it tells. The step begins with a mark, behind
// which the inputs are as they were, and which all streams wait for. The pauses are those of run -bench: none, or the
// host's turn between two replays of a program that overwrites its inputs. They tell in
// the clocks: without any a backward step of large matmuls takes a tenth more.
func (k *meter) replays(ctx context.Context, reps int, step func(x *rt.Exec)) (out []replay, err error) {
	c := k.c
	s, err := rt.Prepare(ctx, k.r, c.module, func(x *rt.Exec) {
		x.Mark(c.computeStream())
		c.restoreInputs(x)
		step(x)
	}, c.j.options(k.r, &k.h), true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Bind(ctx, resident(k.inputs)); err != nil {
		return nil, err
	}
	said := 0.0 // not what one rank measured: all do the same
	for _, chain := range c.chains {
		for _, i := range chain.Instrs {
			said += c.guess(&c.p.Instrs[i])
		}
	}
	load := 0
	if us := float64(c.flags.Load.Microseconds()); us > 0 {
		load = int(min(max(us/max(said, 1), leastLoad), mostLoad))
	}
	if _, err := k.paced(ctx, s, 1+load); err != nil {
		return nil, err
	}
	for range reps {
		ms, err := k.paced(ctx, s, togetherSteps)
		if err != nil {
			return nil, err
		}
		at, err := s.Marks(ctx)
		if err != nil {
			return nil, err
		}
		for i := range at {
			at[i] *= 1e3
		}
		out = append(out, replay{ms[len(ms)-1] * 1e3, at})
	}
	return out, nil
}

// paced times replays with the pauses that run -bench has between them.
func (k *meter) paced(ctx context.Context, s *rt.Step, n int) ([]float64, error) {
	if !slices.Contains(k.h.overwrites, true) {
		return s.Time(ctx, n)
	}
	var out []float64
	for range n {
		ms, err := s.Time(ctx, 1)
		if err != nil {
			return nil, err
		}
		out = append(out, ms...)
	}
	return out, nil
}

// measureIsolated measures the chains with nothing beside them, and what a mark takes. The
// collectives that come before the end of a chain are done between it and the next one:
// by then their operands are there, and nobody reads their results or writes where they
// go. So the data are those of the step, which tell in what a matmul takes.
func (k *meter) measureIsolated(ctx context.Context, out *inStep) (markUs float64, err error) {
	c := k.c
	walk := func(x *rt.Exec, mark func()) {
		done := 0 // collectives
		for _, chain := range c.chains {
			for ; done < len(c.collectives) && c.collectives[done] < chain.Instrs[0]; done++ {
				i := c.collectives[done]
				c.forked(c.p.Instrs[i].Stream, func(x *rt.Exec) { rt.Instruct(x, c.p, i) }, func(*rt.Exec) {})(x)
			}
			mark()
			for _, i := range chain.Instrs {
				rt.Instruct(x, c.p, i)
			}
			mark()
		}
	}
	plain, err := k.replays(ctx, c.flags.Reps, func(x *rt.Exec) { walk(x, func() {}) })
	if err != nil {
		return 0, err
	}
	marked, err := k.replays(ctx, c.flags.Reps, func(x *rt.Exec) { walk(x, func() { x.Mark(c.computeStream()) }) })
	if err != nil {
		return 0, err
	}
	whole := func(rs []replay) float64 {
		var us []float64
		for _, r := range rs {
			us = append(us, r.us)
		}
		return median(us)
	}
	markUs = min(max((whole(marked)-whole(plain))/float64(max(2*len(c.chains), 1)), 0), mostMarkUs)
	out.MarkUs = markUs
	for n := range c.chains {
		var us []float64
		for _, r := range marked {
			us = append(us, r.marks[2+2*n]-r.marks[1+2*n])
		}
		out.Chains = append(out.Chains, max(median(us)-markUs, 0))
	}
	var around []float64
	for _, r := range marked {
		around = append(around, r.us-slices.Max(r.marks))
	}
	out.StepUs = max(median(around), 0)
	if out.Calls, err = k.calls(ctx, func(x *rt.Exec) { walk(x, func() {}) }); err != nil {
		return 0, err
	}
	return markUs, nil
}

// calls times the launches and copies of a step one by one, in the order of the chains.
// It returns nothing on a device that does not tell such times, or does several as one.
func (k *meter) calls(ctx context.Context, step func(x *rt.Exec)) (us []float64, err error) {
	c := k.c
	s, err := rt.Prepare(ctx, k.r, c.module, func(x *rt.Exec) {
		c.restoreInputs(x)
		step(x)
	}, c.j.options(k.r, &k.h), false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Bind(ctx, resident(k.inputs)); err != nil {
		return nil, err
	}
	var spans []rt.Span
	for range 2 { // the first meets cold caches
		spans, err = s.Trace(ctx)
		if errors.Is(err, rt.ErrUnsupported) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	for _, sp := range spans {
		if sp.Stream == c.computeStream() {
			us = append(us, (sp.End-sp.Start)*1e3)
		}
	}
	want := 0
	for _, chain := range c.chains {
		want += len(chain.Instrs)
	}
	first := len(us) - want // behind the copies of inputs
	if first < 0 || first != c.copies() {
		return nil, nil
	}
	return us[first:], nil
}

// measureOverlapped measures when chains and collectives run in the step as it is.
func (k *meter) measureOverlapped(ctx context.Context, out *inStep, markUs float64) error {
	c := k.c
	from, to := map[int][]int{}, map[int][]int{} // by instruction: what begins before and ends behind it
	for n, chain := range c.chains {
		a, b := chain.Instrs[0], chain.Instrs[len(chain.Instrs)-1]
		from[a], to[b] = append(from[a], n), append(to[b], n)
	}
	for n, i := range c.collectives {
		from[i], to[i] = append(from[i], len(c.chains)+n), append(to[i], len(c.chains)+n)
	}
	total := len(c.chains) + len(c.collectives)
	var order []int // of marks: n for where n begins, total + n for where it ends
	runs, err := k.replays(ctx, looks*c.flags.Reps, func(x *rt.Exec) {
		order = order[:0]
		for i := range c.p.Instrs {
			stream := c.p.Streams[c.p.Instrs[i].Stream].Name
			for _, n := range from[i] {
				x.Mark(stream)
				order = append(order, n)
			}
			rt.Instruct(x, c.p, i)
			for _, n := range to[i] {
				x.Mark(stream)
				order = append(order, total+n)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, r := range runs {
		run := inRun{make([]float64, total), make([]float64, total)}
		for n, at := range r.marks[1:] {
			if order[n] < total {
				run.From[order[n]] = at
			} else {
				run.To[order[n]-total] = at - markUs
			}
		}
		for n := range run.To {
			run.To[n] = max(run.To[n], run.From[n])
		}
		out.Runs = append(out.Runs, run)
	}
	return nil
}

// spans are the intervals in which things of a chain ran: each has the share of the
// chain's time that it has of the sum of their times.
func (c *measuredProgram) spans(chain program.Chain, from, to float64, us func(in *program.Instr) float64) []span {
	sum := 0.0
	for _, i := range chain.Instrs {
		sum += us(&c.p.Instrs[i])
	}
	var out []span
	at := from
	for _, i := range chain.Instrs {
		part := (to - from) / float64(len(chain.Instrs))
		if sum > 0 {
			part = (to - from) * us(&c.p.Instrs[i]) / sum
		}
		out = append(out, span{i, at, at + part})
		at += part
	}
	return out
}

// span is when an instruction ran.
type span struct {
	instr    int
	from, to float64
}

// overlap is for how long both ran.
func (s span) overlap(o span) float64 { return max(min(s.to, o.to)-max(s.from, o.from), 0) }

// covered is for how long at least one of list ran during s. The list is in order of
// time, and nothing in it overlaps.
func (s span) covered(list []span) float64 {
	sum := 0.0
	first := sort.Search(len(list), func(i int) bool { return list[i].to > s.from })
	for _, o := range list[first:] {
		if o.from >= s.to {
			break
		}
		sum += s.overlap(o)
	}
	return math.Min(sum, s.to-s.from)
}
