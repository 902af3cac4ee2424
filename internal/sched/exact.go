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
	if p.floor() > cap {
		return nil, true, nil
	}
	x := newExacter(p, cap, limit, best)
	x.visit(0, 0)
	return x.found, x.limit > 0, nil
}

// newExacter lays out what the search reads of a model again and again: sets of jobs are words.
func newExacter(p *problem, cap int64, limit int, best float64) *exacter {
	n := p.n()
	x := &exacter{p: p, cap: cap, limit: limit, best: best, tail: p.tails(), seen: map[uint64]int{}}
	x.pred, x.need = make([]uint64, n), make([]int64, n)
	usedBy := make([]uint64, len(p.size))
	for j := range n {
		for _, q := range p.pred.At(int32(j)) {
			x.pred[j] |= 1 << q
		}
		for _, s := range p.use.At(int32(j)) {
			usedBy[s] |= 1 << j
		}
		for _, s := range p.alloc.At(int32(j)) {
			x.need[j] += p.size[s]
		}
		if p.kind[j] == sim.Start {
			x.starts |= 1 << j
		}
		if p.isWait(int32(j)) {
			x.waits |= 1 << j
		}
	}
	for s := range p.size {
		held := exactStorage{size: p.size[s], users: usedBy[s]}
		if owner := p.job[p.m.Owner[s]]; owner >= 0 {
			held.owner = 1 << owner
		} else if p.m.Kind[p.m.Owner[s]] != sim.Input || p.pinned[s] || usedBy[s] == 0 {
			continue
		}
		if p.pinned[s] {
			held.users = math.MaxUint64 // is used past the last job
		}
		x.storages = append(x.storages, held)
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
	x.free, x.end = make([]float64, p.m.Streams), make([]float64, n)
	return x
}

type exacter struct {
	p             *problem
	cap           int64
	limit         int
	best          float64
	found         []int32
	tail          []float64
	pred          []uint64
	need          []int64 // bytes that a job allocates
	starts, waits uint64
	storages      []exactStorage
	byTail        []int32

	// The state that visit is in, with the jobs done and the compute clock, which it is given.
	path []int32
	free []float64 // by stream
	end  []float64 // start -> finish, if it is done

	seen  map[uint64]int // jobs done -> which of lists
	lists [][][]float64
	room  []float64 // of which lists take their times

	load, first, times []float64 // what bounded and dominated write
}

// exactStorage is live where its owner is done and one of its users is not.
type exactStorage struct {
	size         int64
	owner, users uint64
}

// live returns the bytes live after the done jobs.
func (x *exacter) live(done uint64) int64 {
	sum := x.p.base
	for i := range x.storages {
		if s := &x.storages[i]; s.owner&^done == 0 && s.users&^done != 0 {
			sum += s.size
		}
	}
	return sum
}

// bounded reports whether a lower bound on the makespan of any completion is not below the best.
func (x *exacter) bounded(done uint64, now float64) bool {
	p := x.p
	n := p.n()
	rest := 0.0
	load, first := x.load, x.first
	for i, f := range x.free {
		if f >= x.best {
			return true
		}
		load[i], first[i] = 0, math.Inf(1)
	}
	if now >= x.best {
		return true
	}
	var finish [MaxExact]float64
	for d := done & x.starts; d != 0; d &= d - 1 {
		j := bits.TrailingZeros64(d)
		finish[j] = x.end[j]
	}
	all := ^uint64(0) >> (MaxExact - n)
	for d := all &^ done; d != 0; d &= d - 1 { // in input order, so predecessors come first
		j := bits.TrailingZeros64(d)
		t := now
		for q := x.pred[j] & (x.starts | ^done); q != 0; q &= q - 1 {
			t = max(t, finish[bits.TrailingZeros64(q)])
		}
		if x.starts&(1<<j) != 0 {
			c := p.stream[j]
			t = max(t, x.free[c])
			load[c] += p.dur[j]
			first[c] = min(first[c], t)
		} else {
			rest += p.dur[j]
		}
		if t+x.tail[j] >= x.best {
			return true
		}
		finish[j] = t + p.dur[j]
	}
	if now+rest >= x.best {
		return true
	}
	for i, l := range load {
		if l > 0 && first[i]+l >= x.best {
			return true
		}
	}
	return false
}

// dominated reports whether an earlier state with the same jobs done was no later
// in any time, and records this one otherwise.
func (x *exacter) dominated(done uint64, now float64) bool {
	v := append(append(x.times[:0], now), x.free...)
	for d := done & x.starts; d != 0; d &= d - 1 {
		v = append(v, max(now, x.end[bits.TrailingZeros64(d)]))
	}
	x.times = v
	at, ok := x.seen[done]
	if !ok {
		at = len(x.lists)
		x.seen[done], x.lists = at, append(x.lists, nil)
	}
	list := x.lists[at]
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
	if len(x.room) < len(v) {
		x.room = make([]float64, max(len(v), min(1<<13, 16*len(v)*(1+len(x.lists)))))
	}
	own := x.room[:len(v):len(v)]
	x.room = x.room[len(v):]
	copy(own, v)
	x.lists[at] = append(keep, own)
	return false
}

func allAtMost(a, b []float64) bool {
	b = b[:len(a)]
	for i, v := range a {
		if v > b[i] {
			return false
		}
	}
	return true
}

// visit explores all completions of a state, with these jobs done and this compute clock.
func (x *exacter) visit(done uint64, now float64) {
	if x.limit <= 0 {
		return
	}
	x.limit--
	p := x.p
	mark := len(x.path)
	next := math.Inf(1)
	for d := x.waits &^ done; d != 0; d &= d - 1 { // waits that have finished
		j := bits.TrailingZeros64(d)
		if x.pred[j]&^done != 0 {
			continue
		}
		if end := x.end[p.startOf[j]]; end <= now {
			done |= 1 << j
			x.path = append(x.path, int32(j))
		} else {
			next = min(next, end)
		}
	}
	if bits.OnesCount64(done) == p.n() {
		span := now
		for _, f := range x.free {
			span = max(span, f)
		}
		if span < x.best {
			x.best = span
			x.found = slices.Clone(x.path)
		}
	} else if !x.bounded(done, now) && !x.dominated(done, now) {
		x.branch(done, now, next)
	}
	x.path = x.path[:mark]
}

// branch visits what can follow a state, in which the first collective in flight ends at next.
func (x *exacter) branch(done uint64, now, next float64) {
	p := x.p
	live := int64(0)
	if x.cap != math.MaxInt64 {
		live = x.live(done)
	}
	for _, j := range x.byTail {
		if done&(1<<j) != 0 || x.pred[j]&^done != 0 || x.waits&(1<<j) != 0 || live+x.need[j] > x.cap {
			continue
		}
		x.path = append(x.path, j)
		if x.starts&(1<<j) != 0 {
			c := p.stream[j]
			before := x.free[c]
			x.free[c] = max(before, now) + p.dur[j]
			x.end[j] = x.free[c]
			x.visit(done|1<<j, now)
			x.free[c] = before
		} else {
			x.visit(done|1<<j, now+p.dur[j])
		}
		x.path = x.path[:len(x.path)-1]
	}
	if !math.IsInf(next, 1) {
		x.visit(done, next)
	}
}
