package sched

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// bucketed is an order of jobs with buckets, evaluated.
type bucketed struct {
	jobs  []int32
	found []joined
	order []int32 // of nodes
	list  []sim.Bucket
	t     *sim.Timeline
}

// bucket joins collectives of a schedule, whose timeline is base, and evaluates the
// outcome. It returns nil if no buckets keep to makespan and cap.
func bucket(p *problem, s schedule, base *sim.Timeline, opts Options, cap int64) (*bucketed, error) {
	limits := make([]int64, len(p.m.Keys))
	for k, key := range p.m.Keys {
		limits[k] = opts.limit(key)
	}
	air := int64(math.MaxInt64)
	if opts.InFlight > 0 {
		air, _ = inFlight(p.m, base)
		air = max(air, opts.InFlight)
	}
	for range 3 {
		found := join(p, s, opts, cap, func(k int32) int64 { return limits[k] })
		for range 10 {
			if len(found) == 0 {
				return nil, nil
			}
			b, run, err := evaluate(p, s.order, found, cap, opts.InFlight)
			if err != nil {
				return nil, err
			}
			n := len(found)
			peak, at := p.packedPeak(b.jobs, run, len(found))
			switch {
			case max(peak, b.t.Peak) > cap:
				found = withoutHolding(p, found, b.jobs, at)
			case b.t.Makespan > base.Makespan*(1+1e-12):
				found = withoutDelaying(p, found, run, b.order, base, b.t)
			case air < math.MaxInt64:
				bytes, at := inFlight(p.m, b.t)
				if bytes <= air {
					return b, nil
				}
				found = withoutInFlight(p, found, b.t, at)
			default:
				return b, nil
			}
			if len(found) == n {
				break
			}
		}
		for k := range limits {
			limits[k] /= 4
		}
	}
	return nil, nil
}

// limit returns the largest bucket of a key, in bytes.
func (o *Options) limit(key sim.Key) int64 {
	limit := o.BucketBytes
	switch {
	case limit > 0:
	case o.JoinAny:
		limit = math.MaxInt64 / 4
	default:
		limit = saturation(o.Cost, key)
	}
	if o.InFlight > 0 {
		limit = min(limit, o.InFlight)
	}
	return limit
}

// inFlight returns the most bytes that collectives in flight carry at any time
// of a timeline, and the first time at which they do. A collective is in flight
// from its issue to its end. A timeline without these gives 0.
func inFlight(m *sim.Model, t *sim.Timeline) (bytes int64, at float64) {
	type event struct {
		at    float64
		bytes int64
	}
	var events []event
	for v, k := range m.Kind {
		if k == sim.Start && t.Issue != nil && t.End[v] > t.Issue[v] {
			events = append(events, event{t.Issue[v], m.Bytes[v]}, event{t.End[v], -m.Bytes[v]})
		}
	}
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.bytes, b.bytes)) // ends before issues
	})
	now := int64(0)
	for _, e := range events {
		if now += e.bytes; now > bytes {
			bytes, at = now, e.at
		}
	}
	return bytes, at
}

// withoutInFlight returns the buckets without those that are in flight at a time.
func withoutInFlight(p *problem, found []joined, t *sim.Timeline, at float64) []joined {
	return slices.DeleteFunc(slices.Clone(found), func(b joined) bool {
		v := p.node[b.members[0]]
		return t.Issue[v] <= at && at < t.End[v]
	})
}

// evaluate realizes buckets in an order of jobs and evaluates the outcome.
func evaluate(p *problem, jobs []int32, found []joined, cap, inFlight int64) (*bucketed, []int32, error) {
	b := &bucketed{found: found}
	var run []int32
	b.jobs, run = realize(p, jobs, found, cap, inFlight)
	b.order, b.list = p.expand(b.jobs, run), p.buckets(found)
	var err error
	b.t, err = sim.Evaluate(p.m, b.order, b.list)
	return b, run, err
}

// reschedule schedules anew with the buckets of b as single collectives, which take
// less time than their members did, and lets them join further. It returns b if
// that does not shorten the makespan.
func reschedule(p *problem, b *bucketed, opts Options, cap int64, goal float64) (*bucketed, error) {
	q := p.merge(b.jobs, b.found)
	ref, floor := q.inputJobs(), b.t.Peak
	if least, peak := q.minMemory(cap); peak <= cap {
		ref, floor = least, peak
	}
	s := newSearch(q, ref, floor, goal)
	s.inFlight, s.light = opts.InFlight, opts.light()
	out, ok := s.under(cap, min(againRuns, opts.runs()))
	if !ok || out.makespan >= b.t.Makespan*(1-closeEnough) {
		return b, nil
	}
	base := &sim.Timeline{Makespan: out.makespan}
	next, err := bucket(q, out, base, opts, cap)
	if err != nil || next == nil || next.t.Makespan >= b.t.Makespan {
		return b, err
	}
	return next, nil
}

// scheduleOptimistically schedules as if reductions that only the output needs took no latency,
// which is nearly so once they have joined buckets, then lets them join and evaluates
// by what they really take. It returns nil if that comes to nothing.
func (a *attempt) scheduleOptimistically(cap int64) (*bucketed, error) {
	p, opts := a.p, a.opts
	ref, floor := p.minMemory(cap)
	s, ok := a.optimistic[floor]
	if !ok {
		if q := p.optimistic(opts.Cost); q != nil {
			s = newSearch(q, ref, floor, a.goal)
		}
		a.optimistic[floor] = s
	}
	if s == nil {
		return nil, nil
	}
	s.inFlight, s.light = opts.InFlight, opts.light()
	out, ok := s.under(cap, min(againRuns, opts.runs()))
	if !ok {
		return nil, nil
	}
	base, err := sim.Evaluate(p.m, p.expand(out.order, nil), nil)
	if err != nil {
		return nil, err
	}
	return bucket(p, out, base, opts, cap)
}

// optimistic returns the problem in which reductions that only the output needs take next to no
// latency, nil if there are none.
func (p *problem) optimistic(cost Cost) *problem {
	q := *p
	q.dur = slices.Clone(p.dur)
	any := false
	for j := range q.dur {
		if p.kind[j] != sim.Start || p.key(int32(j)) < 0 || !p.forOutput(int32(j)) {
			continue
		}
		latency := cost(p.m.Keys[p.key(int32(j))], 1)
		q.dur[j] = max(q.dur[j]-float64(0.9*latency), 0.05*q.dur[j])
		any = true
	}
	if !any {
		return nil
	}
	return &q
}

// againRuns is how many policies are tried for a program with buckets in place.
const againRuns = 12

// buckets returns the buckets in terms of nodes.
func (p *problem) buckets(found []joined) []sim.Bucket {
	out := make([]sim.Bucket, len(found))
	for i, b := range found {
		var members []int32
		for _, c := range b.members {
			members = append(members, p.members(c)...)
		}
		out[i] = sim.Bucket{Members: members, Dur: b.dur}
	}
	return out
}

// withoutDelaying returns the buckets without those for which, or for a collective behind
// which, the compute stream stands still longer than before.
func withoutDelaying(p *problem, found []joined, run, order []int32, base, t *sim.Timeline) []joined {
	bad := make([]bool, len(found))
	last := make([]int32, p.m.Streams) // last bucket of each stream
	for i := range last {
		last[i] = -1
	}
	for _, v := range order {
		j := p.job[v]
		if j < 0 || p.kind[j] != sim.Start {
			continue
		}
		if run[j] >= 0 {
			last[p.stream[j]] = run[j]
		}
		if base.End == nil {
			continue
		}
		for _, w := range p.waits.At(j) {
			x := p.node[w]
			if more := (t.End[x] - t.Issue[x]) - (base.End[x] - base.Issue[x]); more > 1e-6 && last[p.stream[j]] >= 0 {
				bad[last[p.stream[j]]] = true
			}
		}
	}
	var out []joined
	for b := range found {
		if !bad[b] {
			out = append(out, found[b])
		}
	}
	return out
}

// withoutHolding returns the buckets without those that hold memory at place at of an
// order of jobs, from their first operand to the last use of a result.
func withoutHolding(p *problem, found []joined, jobs []int32, at int32) []joined {
	pos := make([]int32, len(jobs))
	for i, j := range jobs {
		pos[j] = int32(i)
	}
	return slices.DeleteFunc(slices.Clone(found), func(b joined) bool {
		first, last := int32(math.MaxInt32), int32(-1)
		for _, c := range b.members {
			first = min(first, pos[c])
			for _, q := range p.pred.At(c) {
				first = min(first, pos[q])
			}
			for _, s := range p.alloc.At(c) {
				for _, q := range p.users.At(s) {
					last = max(last, pos[q])
				}
			}
		}
		return first <= at && at <= last
	})
}

// packedPeak returns the largest live memory of an order of jobs with buckets, and
// where it is, if the results of each bucket are freed together.
func (p *problem) packedPeak(jobs, run []int32, buckets int) (int64, int32) {
	t := newTally(p, run, buckets)
	peak, at := t.live, int32(-1)
	for i, j := range jobs {
		if live := t.run(j); live > peak {
			peak, at = live, int32(i)
		}
	}
	return peak, at
}

// tally counts live bytes along an order of jobs, where the results of each bucket
// are freed together.
type tally struct {
	p     *problem
	live  int64
	left  []int32 // storage -> users still to come
	of    []int32 // storage -> bucket of which it is a result, -1 for none
	held  []int32 // bucket -> results still in use
	bytes []int64 // bucket -> bytes of results to free
}

// newTally returns a tally before the first job; run[j] is the bucket of start or
// wait j, -1 for none.
func newTally(p *problem, run []int32, buckets int) *tally {
	t := &tally{p: p, live: p.floor(), left: make([]int32, len(p.size)), of: make([]int32, len(p.size)), held: make([]int32, buckets), bytes: make([]int64, buckets)}
	for s := range t.left {
		t.left[s] = int32(len(p.users.At(int32(s))))
		t.of[s] = -1
	}
	for j, b := range run {
		if b < 0 || p.kind[j] != sim.Start {
			continue
		}
		for _, s := range p.alloc.At(int32(j)) {
			t.of[s] = b
			t.held[b]++
			if !p.pinned[s] {
				t.bytes[b] += p.size[s]
			}
		}
	}
	return t
}

// run counts job j and returns the bytes live after its allocations.
func (t *tally) run(j int32) int64 {
	p := t.p
	for _, s := range p.alloc.At(j) {
		t.live += p.size[s]
	}
	live := t.live
	for _, s := range p.use.At(j) {
		if t.left[s]--; t.left[s] > 0 {
			continue
		}
		if b := t.of[s]; b < 0 && !p.pinned[s] {
			t.live -= p.size[s]
		} else if b >= 0 {
			if t.held[b]--; t.held[b] == 0 {
				t.live -= t.bytes[b]
			}
		}
	}
	return live
}

// saturation returns the bucket size at which doubling it saves less than a
// twentieth of its time.
func saturation(cost Cost, key sim.Key) int64 {
	size := int64(64 << 10)
	for size < 4<<30 && cost(key, 2*size) < 1.9*cost(key, size) {
		size *= 2
	}
	return size
}
