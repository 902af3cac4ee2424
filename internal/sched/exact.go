package sched

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/seed-ee968945/concert/sim"
)

// MaxExact is the largest number of jobs (compute nodes, starts and waits) that
// the exact search accepts.
const MaxExact = 64

// exact searches all orders of a small model, without buckets, for the least
// makespan under a memory cap of cap bytes (0 for none), visiting at most limit
// states. It returns that order and whether the search was complete: then the
// order is optimal, or, if it is nil, no order is under the cap. The error is not
// nil if the model has more than MaxExact jobs. It looks for makespans below best only.
//
// It is a depth-first branch and bound over prefixes of orders. What a prefix
// leaves behind is fully described by the set of jobs that have run, the compute
// clock, when each stream is free and when collectives in flight end; live memory
// follows from the set. Hence a prefix is dropped if another with the same set was
// no later in any of these times. A wait whose collective has finished runs at
// once, as it costs nothing and only frees memory; a wait that blocks is tried
// only for the collective that ends first, since others can follow. Bounds: the
// remaining compute, and per job its earliest start plus its longest path to the
// end, with the remaining load of its stream.
func exact(p *problem, cap int64, limit int, best float64) ([]int32, bool, error) {
	n := p.n()
	if n > MaxExact {
		return nil, false, fmt.Errorf("sched: exact search of %d jobs, at most %d", n, MaxExact)
	}
	if cap == 0 {
		cap = math.MaxInt64
	}
	x := &exacter{p: p, cap: cap, limit: limit, best: best, tail: p.tails(), seen: map[uint64][][]float64{}}
	x.pred = make([]uint64, n)
	x.usedBy = make([]uint64, len(p.size))
	for j := range n {
		for _, q := range p.pred.At(int32(j)) {
			x.pred[j] |= 1 << q
		}
		for _, s := range p.use.At(int32(j)) {
			x.usedBy[s] |= 1 << j
		}
	}
	if p.floor() > cap {
		return nil, true, nil
	}
	x.byTail = p.inputJobs()
	slices.SortStableFunc(x.byTail, func(a, b int32) int {
		switch {
		case x.tail[a] > x.tail[b]:
			return -1
		case x.tail[a] < x.tail[b]:
			return 1
		}
		return 0
	})
	x.load, x.first = make([]float64, p.m.Streams), make([]float64, p.m.Streams)
	x.visit(exactState{free: make([]float64, p.m.Streams), end: make([]float64, n)})
	return x.found, x.limit > 0, nil
}

type exacter struct {
	p      *problem
	cap    int64
	limit  int
	best   float64
	found  []int32
	tail   []float64
	pred   []uint64
	usedBy []uint64 // storage -> jobs
	byTail []int32
	path   []int32
	seen   map[uint64][][]float64

	load, first, times []float64 // what bound and dominated write
}

type exactState struct {
	done uint64
	now  float64
	free []float64 // by stream
	end  []float64 // start -> finish
}

// live returns the bytes live after the done jobs.
func (x *exacter) live(done uint64) int64 {
	p := x.p
	sum := p.base
	for s := range p.size {
		if owner := p.job[p.m.Owner[s]]; owner >= 0 {
			if done&(1<<owner) == 0 {
				continue
			}
		} else if p.m.Kind[p.m.Owner[s]] != sim.Input || p.pinned[s] || x.usedBy[s] == 0 {
			continue
		}
		if p.pinned[s] || x.usedBy[s]&^done != 0 {
			sum += p.size[s]
		}
	}
	return sum
}

// fits reports whether job j can run where so many bytes are live.
func (x *exacter) fits(live int64, j int32) bool {
	for _, s := range x.p.alloc.At(j) {
		live += x.p.size[s]
	}
	return live <= x.cap
}

// bound returns a lower bound on the makespan of any completion.
func (x *exacter) bound(s *exactState) float64 {
	p := x.p
	n := p.n()
	var est [MaxExact]float64
	rest := 0.0
	load, first := x.load, x.first
	for i := range first {
		load[i], first[i] = 0, math.Inf(1)
	}
	b := s.now
	for _, f := range s.free {
		b = max(b, f)
	}
	for j := 0; j < n; j++ { // in input order, so predecessors come first
		if s.done&(1<<j) != 0 {
			continue
		}
		t := s.now
		for _, q := range p.pred.At(int32(j)) {
			if s.done&(1<<q) == 0 {
				t = max(t, est[q]+p.dur[q])
			} else if p.kind[q] == sim.Start {
				t = max(t, s.end[q])
			}
		}
		if p.kind[j] == sim.Start {
			t = max(t, s.free[p.stream[j]])
			load[p.stream[j]] += p.dur[j]
			first[p.stream[j]] = min(first[p.stream[j]], t)
		} else {
			rest += p.dur[j]
		}
		est[j] = t
		b = max(b, t+x.tail[j])
	}
	b = max(b, s.now+rest)
	for i, l := range load {
		if l > 0 {
			b = max(b, first[i]+l)
		}
	}
	return b
}

// dominated reports whether an earlier state with the same jobs done was no later
// in any time, and records this one otherwise.
func (x *exacter) dominated(s *exactState) bool {
	v := append(append(x.times[:0], s.now), s.free...)
	for d := s.done; d != 0; d &= d - 1 {
		j := bits.TrailingZeros64(d)
		if x.p.kind[j] == sim.Start && s.end[j] > s.now {
			v = append(v, s.end[j])
		} else {
			v = append(v, s.now)
		}
	}
	x.times = v
	list := x.seen[s.done]
	for _, w := range list {
		if allAtMost(w, v) {
			return true
		}
	}
	keep := list[:0]
	for _, w := range list {
		if !allAtMost(v, w) {
			keep = append(keep, w)
		}
	}
	x.seen[s.done] = append(keep, slices.Clone(v))
	return false
}

func allAtMost(a, b []float64) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// visit explores all completions of s; path holds the jobs of s.
func (x *exacter) visit(s exactState) {
	if x.limit <= 0 {
		return
	}
	x.limit--
	p := x.p
	n := p.n()
	mark := len(x.path)
	defer func() { x.path = x.path[:mark] }()
	next := math.Inf(1)
	for j := 0; j < n; j++ { // waits that have finished
		if s.done&(1<<j) != 0 || !p.isWait(int32(j)) || x.pred[j]&^s.done != 0 {
			continue
		}
		if end := s.end[p.startOf[j]]; end <= s.now {
			s.done |= 1 << j
			x.path = append(x.path, int32(j))
		} else {
			next = min(next, end)
		}
	}
	if bits.OnesCount64(s.done) == n {
		span := s.now
		for _, f := range s.free {
			span = max(span, f)
		}
		if span < x.best {
			x.best = span
			x.found = slices.Clone(x.path)
		}
		return
	}
	if x.bound(&s) >= x.best || x.dominated(&s) {
		return
	}
	live := int64(0)
	if x.cap != math.MaxInt64 {
		live = x.live(s.done)
	}
	for _, j := range x.byTail {
		if s.done&(1<<j) != 0 || x.pred[j]&^s.done != 0 || p.isWait(j) || !x.fits(live, j) {
			continue
		}
		t := s
		t.done |= 1 << j
		if p.kind[j] == sim.Start {
			t.free, t.end = slices.Clone(s.free), slices.Clone(s.end)
			c := p.stream[j]
			t.free[c] = max(t.free[c], s.now) + p.dur[j]
			t.end[j] = t.free[c]
		} else {
			t.now += p.dur[j]
		}
		x.path = append(x.path, j)
		x.visit(t)
		x.path = x.path[:len(x.path)-1]
	}
	if !math.IsInf(next, 1) {
		t := s
		t.now = next
		x.visit(t)
	}
}
