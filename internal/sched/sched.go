// Package sched decides the order of a program and which of its collectives
// are bucketed, so that communication overlaps with compute within a memory
// cap. It works on sim models; passes translate.
//
// # How
//
// A [sim.Model] is first contracted to the jobs that matter (core.go). A minimum-memory
// order is found (minmemory.go). It certifies
// that the program can always finish under the cap (cert.go), while a list scheduler
// runs forward in simulated time (engine.go), deferring work such as
// weight-gradient matmuls within a window and spending it where the critical
// path waits for a collective. A search tries a few dozen policies (search.go),
// but none that has to come to what an earlier one came to (known.go);
// small programs also get an exact search (exact.go). Collectives of the
// schedule are bucketed where that delays nothing (bucket.go); as
// buckets take less time than their members did, the program is then scheduled
// again with the buckets in place, and they may grow (settle.go, merge.go). Of
// equally good schedules, the one is taken that loses least
// when costs are off (robust.go), and it gets as much slack as memory permits
// (slack.go). Every result is evaluated by [sim.Evaluate].
//
// All decisions are functions of the model and the options alone: no clock, no
// map iteration, randomness from fixed seeds only, no arithmetic that differs
// between machines. The rank does not enter.
package sched

import (
	"errors"
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/sim"
)

// Cost returns the milliseconds that one collective takes to carry the given
// bytes, as the sum of max(operand bytes, result bytes) over its members. It
// should not fall as bytes grow.
type Cost func(key sim.Key, bytes int64) float64

// Options says what to optimise for. The zero value schedules without buckets
// under the peak of the input order.
type Options struct {
	// Cap is the largest live memory in bytes, of inputs and everything else; 0
	// stands for the peak of the input order.
	Cap int64

	// MemoryTradeoff is the fraction of makespan to give up for less memory: of a few
	// tighter caps, the tightest is used at which the makespan is at most 1+MemoryTradeoff
	// times the best. 0 stands for DefaultMemoryTradeoff, a negative value for none.
	MemoryTradeoff float64

	// InFlight, if positive, limits the bytes that collectives in flight carry. A
	// single collective may exceed it.
	InFlight int64

	// Cost, if not nil, lets collectives join buckets.
	Cost Cost

	// BucketBytes limits the bytes of a bucket. 0 stands for the size at which,
	// by Cost, doubling it would save less than a twentieth of its time, or with
	// JoinAny for no limit. InFlight limits it too.
	BucketBytes int64

	// JoinAny also lets collectives join where Cost does not promise that this
	// saves time. A bucket then counts as long as its members one after the other.
	JoinAny bool

	// Runs limits how many policies are tried per cap; 0 stands for DefaultRuns.
	Runs int

	// ExactStates limits the exact search that programs of at most MaxExact jobs get
	// in addition; 0 stands for DefaultExactStates, a negative value for none.
	ExactStates int

	// Known, if not nil, is what other calls for the same model have found out.
	Known *Known

	// Tick, if not nil, is called at least every few milliseconds. It may end the search
	// by a panic, which nothing here recovers.
	Tick func()
}

// Defaults of Options.
const (
	DefaultMemoryTradeoff = 0.02
	DefaultRuns           = 24
	DefaultExactStates    = 20_000
)

// runs is Runs, or its default.
func (o *Options) runs() int {
	if o.Runs <= 0 {
		return DefaultRuns
	}
	return o.Runs
}

// light reports whether a search makes no random variations: who asks for fewer policies than
// usual wants to know soon about what a schedule comes to.
func (o *Options) light() bool { return o.runs() < DefaultRuns }

// Result is a schedule.
type Result struct {
	Order   []int32      // all nodes; a legal order
	Buckets []sim.Bucket // members stand together in Order, and so do their waits

	Timeline *sim.Timeline // of Order and Buckets
	Input    *sim.Timeline // of the input order
	Bounds   sim.Bounds
	Cap      int64 // the cap of the options, resolved
	Floor    int64 // peak of the order from which the scheduler set out, made for memory alone
	Runs     int   // list scheduler runs
}

// Gap returns how far the makespan can be from the best possible one without
// buckets, as a fraction of the lower bound.
func (r *Result) Gap() float64 {
	if r.Bounds.Bound == 0 {
		return 0
	}
	return r.Timeline.Makespan/r.Bounds.Bound - 1
}

// ErrInfeasible is wrapped by the error of Schedule if it found no order under
// the cap. Only if InfeasibleError.Proved is set does that prove that there is none.
var ErrInfeasible = errors.New("no order under the memory cap found")

// InfeasibleError says how far the scheduler got.
type InfeasibleError struct {
	Cap    int64 // bytes
	Floor  int64 // lowest peak found, bytes
	Proved bool  // no order is under the cap
}

// Error implements error.
func (e *InfeasibleError) Error() string {
	if e.Proved {
		return fmt.Sprintf("sched: no order is under the memory cap of %d bytes; lowest peak found %d bytes", e.Cap, e.Floor)
	}
	return fmt.Sprintf("sched: %v: cap %d bytes, lowest peak found %d bytes", ErrInfeasible, e.Cap, e.Floor)
}

// Unwrap returns ErrInfeasible.
func (e *InfeasibleError) Unwrap() error { return ErrInfeasible }

// Schedule orders the program. The result is never slower than the input order
// if that is under the cap. The error is an *InfeasibleError if no order under
// the cap was found. It takes O(n log n) time for n nodes and edges.
func Schedule(m *sim.Model, opts Options) (*Result, error) {
	a, err := newAttempt(m, opts)
	if err != nil {
		return nil, err
	}
	p, r, input := a.p, a.r, a.r.Input
	best, err := a.tradeMemory()
	if err != nil {
		return nil, err
	}
	if r.Runs = a.search.count; best == nil {
		return nil, &InfeasibleError{r.Cap, r.Floor, a.proved}
	}
	if best, err = a.robust(best); err != nil {
		return nil, err
	}
	r.Runs = a.search.count
	r.Order, r.Buckets, r.Timeline = best.order, best.list, best.t
	if input.Peak <= r.Cap && input.Makespan < r.Timeline.Makespan {
		r.Order, r.Buckets, r.Timeline = m.InputOrder(), nil, input
		if opts.Cost != nil && len(m.Keys) > 0 {
			b, err := bucket(p, schedule{order: p.inputJobs()}, input, opts, r.Cap)
			if err != nil {
				return nil, err
			}
			if b != nil && b.t.Makespan <= input.Makespan {
				r.Order, r.Buckets, r.Timeline = b.order, b.list, b.t
			}
		}
	}
	return r, nil
}

// goal returns a lower bound that holds with buckets, too, if there may be any: joins
// take the busiest stream off the bounds.
func (r *Result) goal(opts Options) float64 {
	if opts.Cost == nil {
		return r.Bounds.Bound
	}
	return max(r.Bounds.Compute, r.Bounds.Path, r.Bounds.Chain)
}

// attempt makes schedules for one model under several caps.
type attempt struct {
	*costs
	r      *Result
	opts   Options
	search *search
	goal   float64 // no makespan can be below
	proved bool    // no order is under the cap of the result
}

// newAttempt prepares to schedule a model.
func newAttempt(m *sim.Model, opts Options) (*attempt, error) {
	known := opts.Known
	if known == nil {
		known = &Known{}
	}
	if known.given == nil {
		input, err := sim.Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			return nil, err
		}
		known.given = newCosts(contract(m, opts.Tick))
		known.given.input = input
	}
	c := known.given
	r := &Result{Input: c.input, Bounds: c.bounds, Cap: opts.Cap}
	if r.Cap == 0 {
		r.Cap = c.input.Peak
	}
	ref, floor := c.p.minMemory(r.Cap)
	r.Floor = floor
	a := &attempt{costs: c, r: r, opts: opts, search: c.search(ref, floor)}
	a.search.inFlight, a.search.light = opts.InFlight, opts.light()
	a.goal = r.goal(opts)
	return a, nil
}

// tradeMemory tries tight caps first and returns the outcome to use, nil if there is
// none.
func (a *attempt) tradeMemory() (*bucketed, error) {
	give := a.opts.MemoryTradeoff
	if give == 0 {
		give = DefaultMemoryTradeoff
	}
	give = max(give, 0)
	var outcomes []*bucketed
	fastest := math.Inf(1)
	for _, room := range []float64{0.01, 0.1, math.Inf(1)} {
		cap := a.r.Cap
		if x := float64(a.search.floor) * (1 + room); x < float64(cap) {
			cap = int64(x)
		}
		if cap < a.r.Cap && give == 0 {
			continue
		}
		b, err := a.once(cap)
		if err != nil {
			return nil, err
		}
		if b != nil {
			outcomes = append(outcomes, b)
			fastest = min(fastest, b.t.Makespan)
		}
		if cap == a.r.Cap || b != nil && b.t.Makespan <= a.goal*(1+give) {
			break
		}
	}
	for _, b := range outcomes {
		if b.t.Makespan <= fastest*(1+give) {
			return b, nil
		}
	}
	return nil, nil
}

// under returns the best outcome under one cap, nil if none was found.
func (a *attempt) under(cap int64) (*bucketed, error) {
	s := schedule{makespan: math.Inf(1)}
	if a.search.floor <= cap {
		if out, ok := a.search.under(cap, a.opts.runs()); ok {
			s = out
		}
	}
	a.exact(&s, cap)
	if s.order == nil {
		return nil, nil
	}
	plain := &bucketed{jobs: s.order, order: a.p.expand(s.order, nil)}
	var err error
	if plain.t, err = sim.Evaluate(a.p.m, plain.order, nil); err != nil {
		return nil, err
	}
	if a.opts.Cost == nil || len(a.p.m.Keys) == 0 {
		return plain, nil
	}
	best, err := bucket(a.p, s, plain.t, a.opts, cap)
	if err != nil {
		return nil, err
	}
	if !a.near(best) {
		b, err := a.scheduleOptimistically(cap)
		if err != nil {
			return nil, err
		}
		if b != nil && (best == nil || b.t.Makespan < best.t.Makespan*(1-1e-12)) {
			best = b
		}
	}
	if best, err = a.smaller(s, plain.t, best, cap); err != nil {
		return nil, err
	}
	if best != nil && !a.near(best) {
		if best, err = reschedule(a.p, best, a.opts, cap, a.goal); err != nil {
			return nil, err
		}
	}
	if best == nil || best.t.Makespan > plain.t.Makespan*(1+1e-12) {
		return plain, nil
	}
	return best, nil
}

// smaller tries buckets that are smaller than those of best: large ones can delay
// what a part of them would not. Large programs do without.
func (a *attempt) smaller(s schedule, base *sim.Timeline, best *bucketed, cap int64) (*bucketed, error) {
	if a.large() {
		return best, nil
	}
	for _, part := range []int64{6, 4, 2} { // eighths
		if best == nil || a.near(best) || best.t.Makespan > base.Makespan {
			return best, nil
		}
		largest := int64(0)
		for _, b := range best.list {
			bytes := int64(0)
			for _, c := range b.Members {
				bytes += a.p.m.Bytes[c]
			}
			largest = max(largest, bytes)
		}
		opts := a.opts
		opts.BucketBytes = max(largest/8*part, 1)
		b, err := bucket(a.p, s, base, opts, cap)
		if err != nil {
			return nil, err
		}
		if b != nil && b.t.Makespan < best.t.Makespan*(1-1e-12) {
			best = b
		}
	}
	return best, nil
}

// near reports whether an outcome is so good that more runs would not pay: large
// programs, where runs take long, are content earlier.
func (a *attempt) near(b *bucketed) bool {
	gap := 2 * closeEnough
	if a.large() {
		gap = 0.005
	}
	return b != nil && b.t.Makespan <= a.goal*(1+gap)
}

// large reports whether runs take so long that only those are made that pay most.
func (a *attempt) large() bool { return a.p.n()*againRuns*2 > budget }

// exact improves the schedule of a small program by exact search.
func (a *attempt) exact(s *schedule, cap int64) {
	states := a.opts.ExactStates
	if states == 0 {
		states = DefaultExactStates
	}
	if states < 0 || a.p.n() > MaxExact || a.opts.InFlight > 0 || s.order != nil && s.makespan <= a.r.Bounds.Bound*(1+1e-12) {
		return
	}
	jobs, complete, err := exact(a.p, cap, states, s.makespan*(1-1e-12))
	if err != nil {
		return
	}
	if jobs != nil {
		s.order, s.peak = jobs, a.p.peak(jobs)
	} else if complete && s.order == nil && cap == a.r.Cap {
		a.proved = true
	}
}
