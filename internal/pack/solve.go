package pack

import (
	"context"
	"fmt"
	"math/bits"
)

// DefaultSteps is the effort of [Solve] when Options.Steps is 0.
const DefaultSteps = 1_000_000_000

// maxBuffers is the largest number of buffers for which [Solve] searches. The states of
// the search take up to 40*n*n bytes for n buffers, and never more than about 350 MB:
// beyond some 3,000 buffers it may not be able to finish a descent.
const maxBuffers = 4096

// Options bound what [Solve] may use and spend.
type Options struct {
	// Capacity is the height that the placement must not exceed, in bytes;
	// 0 means that any height will do.
	Capacity int64
	// Goal is a height at which Solve stops although a lower one may exist,
	// in bytes; 0 means to go on to the lower bound. With Goal equal to
	// Capacity, Solve stops as soon as the placement fits.
	Goal int64
	// Steps limits the effort of the search; 0 means DefaultSteps, a
	// negative value no search at all. A step is the visit of one buffer in
	// one column of the problem, a few nanoseconds; it depends on nothing
	// but the problem, so results do not depend on the machine.
	Steps int64
}

// Result is a placement and what is known about it.
type Result struct {
	Offsets []int64 // by buffer, in bytes; 0 for buffers of size 0 that are not pinned
	Height  int64   // the largest end of a buffer, in bytes
	// LowerBound is a height in bytes that no placement undercuts: the
	// section bound, or more where the search proved more.
	LowerBound int64
	// Exact says that Height is the least possible.
	Exact bool
	// Method says what found the placement: "best-fit" or "search".
	Method string
	// Nodes and Steps are how many partial placements the search expanded
	// and what effort that took, in the unit of Options.Steps.
	Nodes, Steps int64
}

// Solve places the buffers of p as low as it can within the effort of opt. It
// takes the better of best fit (see bestfit.go) and a search (see search.go for how it works)
// which first tries the lower bound, then Capacity if that is not met yet, and
// then halves the gap between the two again and again with growing effort.
// The search counts each size as rounded up to the largest number that divides
// every alignment; where sizes are not such multiples, even an exhausted search
// may miss the optimum by less than that number, and Exact is then not claimed.
//
// The result is always a correct placement. If it exceeds opt.Capacity, the
// error is a [*CapacityError] and the result is still the best one found. If
// ctx ends, Solve returns the best placement found so far, without an error
// unless it exceeds the capacity. Other errors are those of [Problem.Check]
// and pinned buffers that overlap ([*OverlapError]).
func Solve(ctx context.Context, p Problem, opt Options) (Result, error) {
	if err := p.Check(); err != nil {
		return Result{}, err
	}
	if opt.Capacity < 0 || opt.Goal < 0 {
		return Result{}, fmt.Errorf("%w: negative option in %+v", ErrProblem, opt)
	}
	if err := checkPins(&p); err != nil {
		return Result{}, err
	}
	bd := newBound(&p)
	v := &solver{p: &p, opt: opt, goal: max(opt.Goal, bd.height)}
	v.res.LowerBound = bd.height
	v.res.Method = "best-fit"
	v.res.Offsets, v.res.Height = bestFit(ctx, &p, bd.height)
	if !v.done() {
		v.search(ctx)
	}
	v.res.Exact = v.res.Height <= v.res.LowerBound
	if opt.Capacity > 0 && v.res.Height > opt.Capacity {
		return v.res, &CapacityError{
			Capacity: opt.Capacity, Height: v.res.Height, LowerBound: v.res.LowerBound,
			Proved: v.res.LowerBound > opt.Capacity, Peak: bd.live, PeakTime: bd.time,
			PeakBytes: peakBytes(&p, bd.live),
		}
	}
	return v.res, nil
}

func peakBytes(p *Problem, live []int) int64 {
	sum := int64(0)
	for _, i := range live {
		sum += p.Buffers[i].Size
	}
	return sum
}

// A solver drives searches towards lower heights.
type solver struct {
	p    *Problem
	opt  Options
	goal int64
	res  Result

	m *model
	s *searcher
	// ceil is the ceiling that the searcher's table of refuted states is
	// for, descents how many were begun at it.
	ceil, descents int64
	// refuted is the highest ceiling known to be too low, in units.
	refuted int64
	effort  int64 // steps that the search may take in all
	// pad is what rounding sizes to the common alignment may have added to
	// a height, in bytes.
	pad int64
}

// done reports whether the placement is good enough.
func (v *solver) done() bool { return v.res.Height <= max(v.goal, v.res.LowerBound) }

// Efforts of the driver.
const (
	spareNodes    = 50         // the first descent at a ceiling may take n + this many nodes
	descentGrowth = 0.01       // and each later one this share more
	firstLook     = 50_000_000 // steps for the lower bound, before all else
	firstSlice    = 20_000_000 // steps for each ceiling in the first iteration of halving
)

func (v *solver) search(ctx context.Context) {
	effort := v.opt.Steps
	if effort == 0 {
		effort = DefaultSteps
	}
	if effort < 0 || len(v.p.Buffers) > maxBuffers {
		return
	}
	v.m = newModel(v.p)
	// Keys of propagation hold an offset and an index in one word.
	if bits.Len64(uint64(v.res.Height/v.m.unit))+bits.Len(uint(len(v.m.items)))+1 > 63 {
		return
	}
	if a := commonAlign(v.p); a > 1 {
		for i := range v.p.Buffers {
			v.pad = max(v.pad, alignUp(v.p.Buffers[i].Size, a)-v.p.Buffers[i].Size)
		}
	}
	v.s = newSearcher(ctx, v.m)
	v.refuted = v.units(v.res.LowerBound) - 1
	v.effort = effort
	v.attempt(v.refuted+1, firstLook)
	if c := v.opt.Capacity; c > 0 && v.res.Height > c && v.res.LowerBound <= c {
		v.attempt(max(c/v.m.unit, v.refuted+1), v.effort)
	}
	for iteration := uint(0); v.alive(); iteration++ {
		v.halve(firstSlice<<min(iteration, 30), iteration)
	}
}

// alive reports whether it is worth going on: there is room between what is
// refuted and what is placed, and effort left.
func (v *solver) alive() bool {
	return !v.done() && v.s.steps < v.effort && v.units(v.res.Height) > v.refuted+1 && v.s.ctx.Err() == nil
}

// units rounds a height up to units.
func (v *solver) units(height int64) int64 { return alignUp(height, v.m.unit) / v.m.unit }

// halve looks for the least ceiling at which slice steps suffice, to a
// precision that grows with the iterations.
func (v *solver) halve(slice int64, iteration uint) {
	hard := v.refuted // the highest ceiling that slice steps did not suffice for
	for v.alive() {
		high := v.units(v.res.Height)
		if high-hard <= max(1, high>>(7+min(iteration, 40))) {
			return
		}
		if ceil := hard + (high-hard)/2; v.attempt(ceil, slice) != found {
			hard = ceil
		}
	}
}

// attempt searches for a placement below ceil (in units) with up to budget
// steps and keeps it if it is the best so far.
func (v *solver) attempt(ceil, budget int64) outcome {
	if v.ceil != ceil {
		v.ceil, v.descents = ceil, 0
		clear(v.s.refuted)
	}
	v.s.until = min(v.effort, v.s.steps+budget)
	for v.s.steps < v.s.until {
		v.s.rule = ruleOf(v.descents)
		// A descent that never backtracks takes at most a node for each
		// item; more than a few to spare are rarely worth it.
		first := float64(len(v.m.items) + spareNodes)
		limit := int64(first * (1 + descentGrowth*float64(v.descents)))
		was := v.s.steps
		out := v.s.descend(ceil, limit)
		v.s.steps = max(v.s.steps, was+1)
		v.descents++
		v.res.Nodes, v.res.Steps = v.res.Nodes+v.s.nodes, v.s.steps
		switch {
		case out == found:
			v.keep()
			return found
		case out == refuted:
			// Every placement needs another unit, save what the topmost
			// buffer's rounding added.
			v.refuted = max(v.refuted, ceil)
			v.res.LowerBound = max(v.res.LowerBound, min((ceil+1)*v.m.unit-v.pad, v.res.Height))
			return refuted
		case v.s.ctx.Err() != nil:
			return cutOff
		}
	}
	return cutOff
}

// ruleOf gives the rule for the k-th descent at a ceiling. The first two win
// most often, but on some problems only the others do.
func ruleOf(k int64) columnRule {
	switch k % 8 {
	case 6:
		return tightest
	case 7:
		return lowestTight
	}
	return columnRule(k % 2)
}

// keep takes the searcher's placement if it is better than the best so far.
func (v *solver) keep() {
	offsets := make([]int64, len(v.p.Buffers))
	for i := range v.p.Buffers {
		if v.p.Buffers[i].Pinned {
			offsets[i] = v.p.Buffers[i].Offset
		}
	}
	for k, i := range v.m.buffer {
		offsets[i] = v.s.at[k] * v.m.unit
	}
	if h := v.p.Height(offsets); h < v.res.Height {
		v.res.Offsets, v.res.Height, v.res.Method = offsets, h, "search"
	}
}
