package sched

import (
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// Costs are estimates. Computation beside copies is slower than alone, collectives
// are faster or slower than their table says. Of the schedules that take about the
// same by the costs as given, some lose more than others when the costs are off: if
// communication bounds the step, for example, it does not matter by these costs
// whether compute starts early, as it has to wait later in any case; but if compute
// takes longer than assumed, what it stood still at the beginning is lost.
//
// So the program is also scheduled as if compute or communication took longer or
// shorter, and every schedule so made is judged under all of a few such scenes. Of
// those that are as fast as the fastest by the costs as given, the one wins that
// takes least on average over the scenes.

// scene is how far the costs are off: factors of the durations of compute and of
// communication.
type scene struct{ compute, comm float64 }

// scenes are what schedules are judged under besides the costs as given.
var scenes = [...]scene{{1.1, 1}, {1.25, 1}, {1, 0.85}, {1, 1.15}, {1.1, 0.85}, {1.25, 1.15}}

// variants are what the program is scheduled for besides the costs as given: compute
// that is slower in proportion, which makes early starts of compute count. Slow
// communication needs none, as loose schedules stand it.
var variants = [...]scene{{1.1, 0.85}, {1.25, 1}}

// robust returns the schedule to use if b is the best by the costs as given.
func (a *attempt) robust(b *bucketed) (*bucketed, error) {
	limit := b.t.Makespan * (1 + 1e-12)
	b, err := a.loosened(b)
	if err != nil || a.search.long == 0 {
		return b, err
	}
	list := []*bucketed{b}
	for _, c := range variants {
		v := a.variant(c)
		if newSpanner(a.p, b).span(c) <= v.r.Bounds.Bound*(1+lossless) {
			continue
		}
		x, err := v.under(b.t.Peak)
		if err != nil {
			return nil, err
		}
		a.search.count += v.search.count
		if x == nil {
			continue
		}
		if x, err = a.restore(x, c); err != nil {
			return nil, err
		}
		if x.t.Peak > b.t.Peak {
			continue
		}
		if x, err = a.loosened(x); err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	var best *bucketed
	least := 0.0
	base := a.spans(b)
	for _, x := range list {
		if x.t.Makespan > limit {
			continue
		}
		sum := 0.0
		for k, t := range a.spans(x) {
			sum += t / base[k]
		}
		if best == nil || sum < least*(1-closeEnough) {
			best, least = x, sum
		}
	}
	return best, nil
}

// loosened is loosen where the options allow it: what is in flight is not limited.
func (a *attempt) loosened(b *bucketed) (*bucketed, error) {
	if a.opts.InFlight > 0 {
		return b, nil
	}
	return a.p.loosen(b)
}

// A variant is not tried if, in its scene, a schedule is this close to the bound.
const lossless = 0.003

// variant returns the attempt to schedule the same program in a scene.
func (a *attempt) variant(c scene) *attempt {
	m, p := *a.p.m, *a.p
	m.Dur, p.dur = slices.Clone(m.Dur), slices.Clone(p.dur)
	for i := range m.Dur {
		m.Dur[i] *= c.of(m.Kind[i])
	}
	for j := range p.dur {
		p.dur[j] *= c.of(p.kind[j])
	}
	p.m = &m
	v := &attempt{p: &p, opts: a.opts}
	v.opts.Runs = againRuns
	v.opts.ExactStates = -1
	if cost := a.opts.Cost; cost != nil {
		v.opts.Cost = func(key sim.Key, bytes int64) float64 { return float64(cost(key, bytes) * c.comm) }
	}
	v.r = &Result{Bounds: sim.LowerBound(&m), Cap: a.r.Cap}
	v.search = newSearch(&p, a.search.ref, a.search.floor, v.r.Bounds.Bound)
	v.goal = v.r.goal(v.opts)
	v.search.inFlight = a.opts.InFlight
	v.search.light = true
	return v
}

// of returns the factor of the durations of a kind of node.
func (c scene) of(k sim.Kind) float64 {
	if k == sim.Start {
		return c.comm
	}
	return c.compute
}

// restore returns a schedule made for a scene, judged by the costs as given.
func (a *attempt) restore(x *bucketed, c scene) (*bucketed, error) {
	out := &bucketed{order: x.order, list: slices.Clone(x.list)}
	for i := range out.list {
		out.list[i].Dur /= c.comm
	}
	var err error
	out.t, err = sim.Evaluate(a.p.m, out.order, out.list)
	return out, err
}

// spans returns the makespans of a schedule under all scenes.
func (a *attempt) spans(b *bucketed) []float64 {
	s := newSpanner(a.p, b)
	out := make([]float64, len(scenes))
	for i, c := range scenes {
		out[i] = s.span(c)
	}
	return out
}

// spanner computes makespans of one schedule.
type spanner struct {
	p    *problem
	jobs []int32
	dur  []float64 // start -> milliseconds; of later members of a bucket, negative
	end  []float64
	free []float64
}

func newSpanner(p *problem, b *bucketed) *spanner {
	s := &spanner{p: p, jobs: p.jobsOf(b.order), dur: slices.Clone(p.dur), end: make([]float64, p.n()), free: make([]float64, p.m.Streams)}
	of := p.bucketOf(b.list)
	seen := make([]bool, len(b.list))
	for _, j := range s.jobs {
		if k := of[j]; k >= 0 && p.kind[j] == sim.Start {
			if s.dur[j] = -1; !seen[k] {
				s.dur[j] = b.list[k].Dur
			}
			seen[k] = true
		}
	}
	return s
}

// span returns the makespan in a scene.
func (s *spanner) span(c scene) float64 {
	clear(s.free)
	now := 0.0
	p := s.p
	for _, j := range s.jobs {
		switch {
		case p.kind[j] == sim.Start:
			k := p.stream[j]
			if s.dur[j] >= 0 {
				s.free[k] = max(s.free[k], now) + float64(s.dur[j]*c.comm)
			}
			s.end[j] = s.free[k]
		case p.isWait(j):
			now = max(now, s.end[p.startOf[j]])
		default:
			now += float64(s.dur[j] * c.compute)
		}
	}
	for _, t := range s.free {
		now = max(now, t)
	}
	return now
}

// jobsOf returns the jobs of an order of nodes.
func (p *problem) jobsOf(order []int32) []int32 {
	out := make([]int32, 0, p.n())
	for _, v := range order {
		if j := p.job[v]; j >= 0 {
			out = append(out, j)
		}
	}
	return out
}

// bucketOf returns for each start and wait the bucket it is in, -1 for none.
func (p *problem) bucketOf(list []sim.Bucket) []int32 {
	of := make([]int32, p.n())
	for j := range of {
		of[j] = -1
	}
	for b := range list {
		for _, v := range list[b].Members {
			c := p.job[v]
			of[c] = int32(b)
			for _, w := range p.waits.At(c) {
				of[w] = int32(b)
			}
		}
	}
	return of
}
