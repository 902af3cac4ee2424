package main

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
// program runs as a captured step does: products joined, launches begun early, weights
// fetched ahead, with the caches and clocks that it leaves itself.
type inStep struct {
	Chains []float64 `json:"chains"`  // by chain, without collectives
	StepUs float64   `json:"step_us"` // of the step, outside of all chains
	// With collectives: from when to when each chain ran, and after them each
	// collective, since the first of them began.
	From []float64 `json:"from"`
	To   []float64 `json:"to"`
}

// The sizes of measurements of steps.
const (
	togetherSteps = 4 // replays one after the other, of which the last is looked at
	mostMarkUs    = 5 // a mark takes no longer, whatever noise says
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
	f.Step = new(inStep)
	markUs, err := k.apart(ctx, f.Step)
	if err != nil {
		return err
	}
	if err := k.together(ctx, f.Step, markUs); err != nil {
		return err
	}
	k.add(f)
	return nil
}

// whole is the key of all of a program.
func (c *calibration) whole() string {
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

// replays runs a step of the program, perhaps without collectives, after one time that
// does not count. Inputs that it overwrites are brought in anew each time.
func (k *meter) replays(ctx context.Context, skip bool, step func(x *rt.Exec)) (out []replay, err error) {
	opts := k.c.j.options(k.r)
	opts.SkipCollectives = skip
	s, err := rt.Prepare(ctx, k.r, k.c.module, step, opts, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	again := k.h.again(k.inputs)
	spoils := slices.Contains(k.h.overwrites, true)
	for n := range 1 + k.c.flags.run.reps {
		if n == 0 || spoils {
			if err := s.Bind(ctx, again); err != nil {
				return nil, err
			}
		}
		times := togetherSteps
		if spoils {
			times = 1
		}
		ms, err := s.Time(ctx, times)
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
		if n > 0 {
			out = append(out, replay{ms[len(ms)-1] * 1e3, at})
		}
	}
	slices.SortStableFunc(out, func(a, b replay) int { // the middle one is then the median
		switch {
		case a.us < b.us:
			return -1
		case a.us > b.us:
			return 1
		}
		return 0
	})
	return out, nil
}

// apart measures the chains without collectives, and what a mark takes.
func (k *meter) apart(ctx context.Context, out *inStep) (markUs float64, err error) {
	c := k.c
	first := map[int]bool{} // instructions at the head of a chain
	last := make([]int, len(c.p.Streams))
	for i := range last {
		last[i] = -1
	}
	for n, chain := range c.chains {
		first[chain.Instrs[0]] = true
		last[chain.Stream] = n
	}
	walk := func(x *rt.Exec, mark func(stream int)) {
		for i := range c.p.Instrs {
			if first[i] {
				mark(c.p.Instrs[i].Stream)
			}
			rt.Instruct(x, c.p, i)
		}
		for stream, n := range last {
			if n >= 0 {
				mark(stream)
			}
		}
	}
	plain, err := k.replays(ctx, true, func(x *rt.Exec) { walk(x, func(int) {}) })
	if err != nil {
		return 0, err
	}
	marked, err := k.replays(ctx, true, func(x *rt.Exec) {
		walk(x, func(stream int) { x.Mark(c.p.Streams[stream].Name) })
	})
	if err != nil {
		return 0, err
	}
	marks := len(marked[0].marks)
	middle := len(marked) / 2
	markUs = min(max((marked[middle].us-plain[middle].us)/float64(marks), 0), mostMarkUs)
	// A chain lasts until the next mark of its stream; those at the end come last.
	next := make([]int, len(c.p.Streams)) // by stream: the mark behind
	end := len(c.chains)
	for stream, n := range last {
		if n >= 0 {
			next[stream] = end
			end++
		}
	}
	out.Chains = make([]float64, len(c.chains))
	for n := len(c.chains) - 1; n >= 0; n-- {
		stream := c.chains[n].Stream
		var us []float64
		for _, r := range marked {
			us = append(us, r.marks[next[stream]]-r.marks[n])
		}
		out.Chains[n] = max(median(us)-markUs, 0)
		next[stream] = n
	}
	var around []float64
	for _, r := range marked {
		around = append(around, r.us-slices.Max(r.marks))
	}
	out.StepUs = max(median(around), 0)
	return markUs, nil
}

// together measures when chains and collectives run in the step as it is.
func (k *meter) together(ctx context.Context, out *inStep, markUs float64) error {
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
	runs, err := k.replays(ctx, false, func(x *rt.Exec) {
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
	out.From, out.To = make([]float64, total), make([]float64, total)
	for n, at := range runs[len(runs)/2].marks {
		if order[n] < total {
			out.From[order[n]] = at
		} else {
			out.To[order[n]-total] = at - markUs
		}
	}
	for n := range out.To {
		out.To[n] = max(out.To[n], out.From[n])
	}
	return nil
}

// spans are the intervals in which things of a chain ran: each has the share of the
// chain's time that it has of the sum of their times.
func (c *calibration) spans(chain program.Chain, from, to float64, us func(in *program.Instr) float64) []span {
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
