package sched

import (
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// Costs are estimates. Computation overlapped with copies is slower than alone; collectives
// are faster or slower than their table says. Of schedules that take the same by the
// costs as given, some lose more than others when the costs are off. Where the last
// gather bounds a step, for example, it does not matter by these costs in what order
// the others come, as compute has to wait in the end in any case; but if compute is
// slower than assumed, what it stood still at the beginning is lost.
//
// So the program is also scheduled as if the costs were off in a few ways, and every
// schedule so made is evaluated in several scenarios. The one wins that takes least on
// average over the scenarios, among those that are no slower by the costs as given, and
// have no higher peak, than the schedule that was made for them.
//
// Schedules for slower compute start compute as early as they can: they gather in
// the order of need and put into one bucket what is needed together. Those for
// slower communication spread evenly what hides it.

// scenario is a cost scenario, how far the costs are off: factors of the durations of compute and of
// communication.
type scenario struct{ compute, comm float64 }

// scenarios are those in which schedules are evaluated.
var scenarios = [...]scenario{{1.1, 1}, {1.25, 1}, {1, 0.85}, {1, 1.15}, {1.1, 0.85}, {1.25, 1.15}, {1, 1.5}}

// variants are the scenarios for which the program is scheduled besides the costs as
// given, those first that gain most often.
var variants = [...]scenario{{1.25, 1}, {1.1, 0.85}, {1, 1.15}, {1, 1.5}}

// A variant is not tried if in its scenario a schedule is this close to the bound.
const lossless = 0.003

// robust returns the schedule to use if b is the best by the costs as given. Programs
// that are large, or took many runs, do without some or all variants.
func (a *attempt) robust(b *bucketed) (*bucketed, error) {
	limit := b.t.Makespan * (1 + 1e-12)
	b, err := a.addSlack(b)
	if err != nil || a.search.long == 0 {
		return b, err
	}
	base := a.spans(b)
	best, least := b, float64(len(scenarios))
	for _, c := range variants {
		if a.search.count*a.p.n() > budget {
			break
		}
		x, err := a.made(c, b)
		if err != nil {
			return nil, err
		}
		if x == nil || x.t.Makespan > limit || x.t.Peak > b.t.Peak {
			continue
		}
		sum := 0.0
		for k, t := range a.spans(x) {
			sum += t / base[k]
		}
		if sum < least*(1-closeEnough) {
			best, least = x, sum
		}
	}
	return best, nil
}

// made returns a loose schedule made for a scenario under the peak of b, evaluated by the
// costs as given; nil if there is none, or b is close to the bound in that scenario.
func (a *attempt) made(c scenario, b *bucketed) (*bucketed, error) {
	v := a.variant(c)
	if newSpanner(a.p, b).span(c) <= v.r.Bounds.Bound*(1+lossless) {
		return nil, nil
	}
	x, err := v.once(b.t.Peak)
	a.search.count += v.search.count
	if x == nil || err != nil {
		return nil, err
	}
	if x, err = a.restore(x, c); err != nil {
		return nil, err
	}
	return a.addSlack(x)
}

// Programs of more jobs get no slack. It fills the memory under the peak, and of so
// many buffers no placement is then found that the peak has room for: 1.2% above it on
// the one graph of this size that was tried, where without it the placement is exact.
const slackJobs = 8192

// addSlack is problem.addSlack where the size of the program and the options allow it, which a
// limit of what is in flight does not.
func (a *attempt) addSlack(b *bucketed) (*bucketed, error) {
	if a.opts.InFlight > 0 || a.p.n() > slackJobs {
		return b, nil
	}
	return a.p.addSlack(b)
}

// variant returns the attempt to schedule the same program in a scenario, with fewer
// runs, and never more than were asked for.
func (a *attempt) variant(c scenario) *attempt {
	x := a.scenarios[c]
	if x == nil {
		p := *a.p
		p.m = inScenario(a.p.m, c)
		p.dur = slices.Clone(p.dur)
		for j := range p.dur {
			p.dur[j] *= c.of(p.kind[j])
		}
		x = newCosts(&p)
		a.scenarios[c] = x
	}
	v := &attempt{costs: x, opts: a.opts, r: &Result{Bounds: x.bounds, Cap: a.r.Cap}}
	v.opts.Runs = min(againRuns, a.opts.runs())
	v.opts.ExactStates = -1
	if cost := a.opts.Cost; cost != nil {
		v.opts.Cost = func(key sim.Key, bytes int64) float64 { return float64(cost(key, bytes) * c.comm) }
	}
	v.goal = v.r.goal(v.opts)
	v.search = x.search(a.search.ref, a.search.floor)
	v.search.inFlight, v.search.light = a.opts.InFlight, v.opts.light()
	return v
}

// inScenario returns the model in a scenario.
func inScenario(m *sim.Model, c scenario) *sim.Model {
	out := *m
	out.Dur = slices.Clone(m.Dur)
	for i := range out.Dur {
		out.Dur[i] *= c.of(m.Kind[i])
	}
	return &out
}

// of returns the factor of the durations of a kind of node.
func (c scenario) of(k sim.Kind) float64 {
	if k == sim.Start {
		return c.comm
	}
	return c.compute
}

// restore returns a schedule made for a scenario, evaluated by the costs as given.
func (a *attempt) restore(x *bucketed, c scenario) (*bucketed, error) {
	out := &bucketed{order: x.order, list: slices.Clone(x.list)}
	for i := range out.list {
		out.list[i].Dur /= c.comm
	}
	var err error
	out.t, err = sim.Evaluate(a.p.m, out.order, out.list)
	return out, err
}

// spans returns the makespans of a schedule in all scenarios.
func (a *attempt) spans(b *bucketed) []float64 {
	s := newSpanner(a.p, b)
	out := make([]float64, len(scenarios))
	for i, c := range scenarios {
		out[i] = s.span(c)
	}
	return out
}

// spanner computes makespans of one schedule by the rules of package sim.
type spanner struct {
	p    *problem
	jobs []int32
	dur  []float64 // start -> milliseconds; of later members of a bucket, negative
	end  []float64
	free []float64

	links links     // streams that have links in common; nil for none
	line  []float64 // links -> when they become free
}

func newSpanner(p *problem, b *bucketed) *spanner {
	s := &spanner{p: p, jobs: p.jobsOf(b.order), dur: slices.Clone(p.dur), end: make([]float64, p.n()), free: make([]float64, p.m.Streams), line: make([]float64, p.m.Streams)}
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

// span returns the makespan in a scenario.
func (s *spanner) span(c scenario) float64 {
	clear(s.free)
	clear(s.line)
	now := 0.0
	p := s.p
	for _, j := range s.jobs {
		switch {
		case p.kind[j] == sim.Start:
			k := p.stream[j]
			if s.dur[j] >= 0 {
				begin := max(s.free[k], now)
				if s.links != nil {
					begin = max(begin, s.line[s.links[k]])
				}
				s.free[k] = begin + float64(s.dur[j]*c.comm)
				if s.links != nil {
					s.line[s.links[k]] = s.free[k]
				}
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
