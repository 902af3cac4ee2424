// Package sched decides the order of a program and which of its collectives
// travel together, so that communication hides under computation within a memory
// cap. It works on sim models; passes translate.
//
// # How
//
// A [sim.Model] is first contracted to the jobs that matter (core.go). A lean
// order is found, one with a low memory peak (lean.go). With it as a certificate
// that there always is a way to finish under the cap (cert.go), a list scheduler
// runs forward in simulated time (engine.go), deferring work such as
// weight-gradient matmuls within a window and spending it where the critical
// chain waits for a collective. A search tries a few dozen policies (search.go).
// Finally collectives of the schedule are joined to buckets where that makes
// nothing late (bucket.go). Every result is judged by [sim.Evaluate].
//
// All decisions are functions of the model and the options alone: no clock, no
// randomness, no map iteration. The rank does not enter.
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

	// Thrift is the fraction of makespan to give up for less memory: of a few
	// tighter caps, the tightest is used at which the makespan is at most 1+Thrift
	// times the best. 0 stands for DefaultThrift, a negative value for none.
	Thrift float64

	// InFlight, if positive, limits the bytes that collectives in flight carry. A
	// single collective may exceed it.
	InFlight int64

	// Cost, if not nil, lets collectives join buckets.
	Cost Cost

	// BucketBytes limits the bytes of a bucket. 0 stands for the size at which,
	// by Cost, doubling it would save less than a twentieth of its time.
	BucketBytes int64

	// Runs limits how many policies are tried per cap; 0 stands for DefaultRuns.
	Runs int

	// ExactStates limits the exact search that programs of at most MaxExact jobs get
	// in addition; 0 stands for DefaultExactStates, a negative value for none.
	ExactStates int
}

// Defaults of Options.
const (
	DefaultThrift      = 0.02
	DefaultRuns        = 24
	DefaultExactStates = 20_000
)

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
	input, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		return nil, err
	}
	p := contract(m)
	r := &Result{Input: input, Bounds: sim.LowerBound(m), Cap: opts.Cap}
	if r.Cap == 0 {
		r.Cap = input.Peak
	}
	ref, floor := p.lean(r.Cap)
	r.Floor = floor
	best := schedule{makespan: math.Inf(1)}
	cap := r.Cap
	if floor <= r.Cap {
		runs := opts.Runs
		if runs <= 0 {
			runs = DefaultRuns
		}
		s := newSearch(p, ref, floor, r.Bounds.Bound)
		s.inFlight = opts.InFlight
		best, cap = s.thrifty(r.Cap, thrift(opts.Thrift), runs)
		r.Runs = s.count
	}
	proved := r.exact(p, &best, opts, cap)
	if best.order == nil {
		return nil, &InfeasibleError{r.Cap, floor, proved}
	}
	if err := r.settle(p, best, opts, cap); err != nil {
		return nil, err
	}
	return r, nil
}

// exact improves the schedule of a small program by exact search. It reports
// whether it proved that there is none.
func (r *Result) exact(p *problem, best *schedule, opts Options, cap int64) bool {
	states := opts.ExactStates
	if states == 0 {
		states = DefaultExactStates
	}
	if states < 0 || p.n() > MaxExact || opts.InFlight > 0 || best.order != nil && best.makespan <= r.Bounds.Bound*(1+1e-12) {
		return false
	}
	jobs, complete, err := exact(p, cap, states, best.makespan*(1-1e-12))
	if err != nil {
		return false
	}
	if jobs != nil {
		best.order = jobs
		best.peak = p.peak(jobs)
		best.makespan = math.Inf(1) // settle evaluates
	}
	return complete && jobs == nil && best.order == nil
}

func thrift(t float64) float64 {
	switch {
	case t == 0:
		return DefaultThrift
	case t < 0:
		return 0
	}
	return t
}

// thrifty searches under the tightest caps first and returns the schedule to use
// and the cap it was made for.
func (s *search) thrifty(cap int64, give float64, runs int) (schedule, int64) {
	type level struct {
		out schedule
		cap int64
	}
	var levels []level
	fastest := math.Inf(1)
	for _, room := range []float64{0.01, 0.1, math.Inf(1)} {
		c := cap
		if x := float64(s.floor) * (1 + room); x < float64(cap) {
			c = int64(x)
		}
		if room < 1 && give == 0 {
			continue
		}
		out, ok := s.under(c, runs)
		if ok {
			levels = append(levels, level{out, c})
			fastest = min(fastest, out.makespan)
		}
		if c == cap || ok && out.makespan <= s.goal*(1+give) {
			break
		}
	}
	for _, l := range levels {
		if l.out.makespan <= fastest*(1+give) {
			return l.out, l.cap
		}
	}
	return schedule{order: s.ref, makespan: math.Inf(1)}, cap
}

// settle turns the schedule of jobs into a result: with buckets if a cost model
// is given, and the input order if nothing better was found.
func (r *Result) settle(p *problem, s schedule, opts Options, cap int64) error {
	var err error
	r.Order = p.expand(s.order, nil)
	if r.Timeline, err = sim.Evaluate(p.m, r.Order, nil); err != nil {
		return err
	}
	if r.Input.Peak <= r.Cap && r.Input.Makespan < r.Timeline.Makespan {
		r.Order, r.Timeline = p.m.InputOrder(), r.Input
		s = schedule{order: p.inputJobs(), makespan: r.Input.Makespan, peak: r.Input.Peak}
	}
	if opts.Cost == nil || len(p.m.Keys) == 0 {
		return nil
	}
	cap = max(cap, r.Timeline.Peak)
	best, err := bucket(p, s, r.Timeline, opts, cap)
	if err != nil {
		return err
	}
	// Joins take the busiest stream off the bounds; the others hold with buckets, too.
	goal := max(r.Bounds.Compute, r.Bounds.Path, r.Bounds.Chain)
	near := func(b *bucketed) bool { return b != nil && b.t.Makespan <= goal*(1+2*closeEnough) }
	if !near(best) {
		b, err := hopeful(p, opts, cap, goal)
		if err != nil {
			return err
		}
		if b != nil && (best == nil || b.t.Makespan < best.t.Makespan*(1-1e-12)) {
			best = b
		}
	}
	if best != nil && !near(best) {
		if best, err = again(p, best, opts, cap, goal); err != nil {
			return err
		}
	}
	if best != nil && best.t.Makespan <= r.Timeline.Makespan*(1+1e-12) {
		r.Order, r.Buckets, r.Timeline = best.order, best.list, best.t
	}
	return nil
}
