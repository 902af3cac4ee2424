package sched

import (
	"errors"

	"github.com/seed-ee968945/concert/sim"
)

// Join keeps the order of computation and only buckets collectives
// where nothing is late for it and live memory stays under the cap; starts move
// to their buckets, waits with them. opts.Cost is required; Cap, InFlight,
// BucketBytes, JoinAny and Cost are used. The result is the input order if no join helps. It takes
// O(n log n) time for n nodes and edges.
func Join(m *sim.Model, opts Options) (*Result, error) {
	if opts.Cost == nil {
		return nil, errors.New("sched: joining collectives needs a cost model")
	}
	input, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		return nil, err
	}
	r := &Result{Input: input, Timeline: input, Order: m.InputOrder(), Bounds: sim.LowerBound(m), Cap: opts.Cap}
	if r.Cap == 0 {
		r.Cap = input.Peak
	}
	if len(m.Keys) == 0 {
		return r, nil
	}
	p := contract(m, opts.Tick)
	s := schedule{order: p.inputJobs(), makespan: input.Makespan, peak: input.Peak}
	b, err := bucket(p, s, input, opts, max(r.Cap, input.Peak))
	if err != nil || b == nil {
		return r, err
	}
	if b.t.Makespan <= input.Makespan*(1+1e-12) {
		r.Order, r.Buckets, r.Timeline = b.order, b.list, b.t
	}
	return r, nil
}
