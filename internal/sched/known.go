package sched

import (
	"cmp"
	"math"

	"github.com/seed-ee968945/concert/sim"
)

// Known is what calls of Schedule for one model, with the same options but Cap, Runs and
// ExactStates, have found out for each other. It changes no result. The zero Known knows
// nothing; one is for one goroutine at a time.
type Known struct{ given *costs }

// costs are a problem with its durations, and what has been done with them.
type costs struct {
	p      *problem
	input  *sim.Timeline // of the input order; nil for a scenario
	bounds sim.Bounds

	outcomes   map[capped]outcome
	searches   map[int64]*search   // by the peak of the order from which they set out, which decides that order
	optimistic map[int64]*search   // likewise, of scheduleOptimistically; nil if it has nothing to do
	scenarios  map[scenario]*costs // of the given costs
}

func newCosts(p *problem) *costs {
	return &costs{p: p, bounds: sim.LowerBound(p.m), outcomes: map[capped]outcome{}, searches: map[int64]*search{}, optimistic: map[int64]*search{}, scenarios: map[scenario]*costs{}}
}

// search returns the search that sets out from an order with a peak.
func (c *costs) search(ref []int32, floor int64) *search {
	s := c.searches[floor]
	if s == nil {
		s = newSearch(c.p, ref, floor, c.bounds.Bound)
		c.searches[floor] = s
	}
	s.count = 0
	return s
}

// capped is all that differs between attempts under the same costs.
type capped struct {
	cap, floor   int64
	runs, states int
}

// outcome is what a search came to, nil for nothing, and how many runs it took.
type outcome struct {
	best *bucketed
	runs int
}

// once is under, but for what is known.
func (a *attempt) once(cap int64) (*bucketed, error) {
	key := capped{cap, a.search.floor, a.opts.runs(), a.opts.ExactStates}
	if o, ok := a.outcomes[key]; ok && (o.best != nil || cap < a.r.Cap) { // else there is something to prove
		a.search.count += o.runs
		return o.best, nil
	}
	before := a.search.count
	b, err := a.under(cap)
	if err == nil {
		a.outcomes[key] = outcome{b, a.search.count - before}
	}
	return b, err
}

// The window, the lead, the reserve and the cap of a run decide nothing but how numbers that
// come up in it compare with them. So a run goes as an earlier one did if its limits lie
// where none of these comparisons comes out otherwise, and then need not be made.

// interval is where a limit may lie: from least on, and below.
type interval[T cmp.Ordered] struct{ least, below T }

// reached narrows the interval to limits that x does not exceed, exceeded to those that it does.
func (s *interval[T]) reached(x T) {
	if x > s.least {
		s.least = x
	}
}

func (s *interval[T]) exceeded(x T) {
	if x < s.below {
		s.below = x
	}
}

func (s *interval[T]) has(limit T) bool { return s.least <= limit && limit < s.below }

// limits are the intervals of the limits of a run but for the cap. Ahead is of window and lead together.
type limits struct{ window, ahead, reserve interval[float64] }

func anyLimits() limits {
	all := interval[float64]{math.Inf(-1), math.Inf(1)}
	return limits{all, all, all}
}

func anyCap() interval[int64] { return interval[int64]{math.MinInt64, math.MaxInt64} }

// ran is a run that was made.
type ran struct {
	e      *engine
	of     try
	limits limits
	cap    interval[int64]
	least  schedule // makespan and peak; of a run that was given up, bounds of them
}

// keep remembers the last run of an engine.
func (s *search) keep(e *engine, t try) {
	s.made = append(s.made, ran{e, t, e.seen, e.cert.seen, e.least})
}

// is reports whether a run that nothing ends would come to what r came to.
func (r *ran) is(e *engine, t try, pol *policy, cap int64) bool {
	return r.e == e && r.of.tail == t.tail && r.of.shake == t.shake && r.of.wait == t.wait && r.of.feed == t.feed &&
		r.limits.window.has(pol.window) && r.limits.ahead.has(pol.window+pol.lead) && r.limits.reserve.has(pol.reserve) && r.cap.has(cap)
}

// known reports whether a run is known not to be better than the best so far.
func (s *search) known(e *engine, t try, pol *policy) bool {
	for i := range s.made {
		if r := &s.made[i]; r.is(e, t, pol, s.cap) {
			return !s.improves(&r.least)
		}
	}
	return false
}
