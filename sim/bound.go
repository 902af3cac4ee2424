package sim

import (
	"math/bits"

	"github.com/seed-ee968945/concert/internal/heap"
)

// Bounds are lower bounds on the makespan of any legal order without buckets, in
// milliseconds. All hold whatever the memory cap.
type Bounds struct {
	Compute float64 // sum of compute durations
	Stream  float64 // busiest communication stream
	Path    float64 // longest dependency path
	Chain   float64 // Compute + heaviest chain of collectives that nothing can hide
	Bound   float64 // the largest of them

	// Exact is false if the chain bound was weakened to stay near linear time;
	// it is then still a lower bound.
	Exact bool
}

// chainWork limits the exact chain bound: word operations of its sweeps. It is
// enough for programs of 20,000 nodes whose every collective is critical, some
// 100 ms at worst.
const chainWork = 4e8

// chainSteps limits the search for compute that can run beside one collective.
const chainSteps = 256

// LowerBound computes the bounds of m.
//
// The chain bound is the sum of compute durations plus the heaviest dependency
// chain of collectives, where a collective weighs max(0, its duration minus the
// durations of all compute nodes that are neither before nor after it). Most
// collectives of a real program have plenty of independent compute close by: a
// bounded walk outwards from the collective, through its ancestors in descending
// and its descendants in ascending order, meets it soon, as whatever the walk
// skips is independent. For the rest, bit sets of 64 collectives at a time sweep
// over the program.
func LowerBound(m *Model) Bounds {
	b := Bounds{Compute: m.ComputeTime()}
	n := m.Len()
	streams := make([]float64, m.Streams)
	head := make([]float64, n)
	for v := int32(0); int(v) < n; v++ {
		h := 0.0
		for _, p := range m.Pred.At(v) {
			h = max(h, head[p])
		}
		head[v] = h + m.Dur[v]
		b.Path = max(b.Path, head[v])
		if m.Kind[v] == Start {
			streams[m.Stream[v]] += m.Dur[v]
		}
	}
	for _, s := range streams {
		b.Stream = max(b.Stream, s)
	}
	var weight []float64
	weight, b.Exact = chainWeights(m, b.Compute)
	b.Chain = b.Compute
	for v := int32(0); int(v) < n; v++ {
		h := 0.0
		for _, p := range m.Pred.At(v) {
			h = max(h, head[p])
		}
		head[v] = h + weight[v]
		b.Chain = max(b.Chain, b.Compute+head[v])
	}
	b.Bound = max(b.Compute, b.Stream, b.Path, b.Chain)
	return b
}

// chainWeights returns per node the time of a collective that no independent
// compute can hide.
func chainWeights(m *Model, total float64) ([]float64, bool) {
	n := m.Len()
	weight := make([]float64, n)
	w := newWalker(m)
	var open []int32
	for v := int32(0); int(v) < n; v++ {
		if m.Kind[v] == Start && m.Dur[v] > 0 && !w.hidden(v) {
			open = append(open, v)
		}
	}
	exact := true
	if words := float64(len(open)+63) / 64; words*float64(len(m.Pred.Val)+n)*2 > chainWork {
		open = open[:0]
		exact = false
	}
	related := make([]float64, 64)
	set := make([]uint64, n)
	for len(open) > 0 {
		k := min(64, len(open))
		sweep(m, open[:k], set, related)
		for i, v := range open[:k] {
			weight[v] = max(0, m.Dur[v]-(total-related[i]))
			if weight[v] < 1e-9*total { // rounding of the two sums
				weight[v] = 0
			}
		}
		open = open[k:]
	}
	return weight, exact
}

// sweep adds up in related the durations of all compute nodes that come before or
// after each of up to 64 collectives.
func sweep(m *Model, block []int32, set []uint64, related []float64) {
	clear(related)
	add := func(v int32) {
		if m.Kind[v] != Compute {
			return
		}
		for s := set[v]; s != 0; s &= s - 1 {
			related[bits.TrailingZeros64(s)] += m.Dur[v]
		}
	}
	n := int32(m.Len())
	clear(set)
	for i, v := range block {
		set[v] = 1 << i
	}
	for v := block[0]; v < n; v++ {
		for _, p := range m.Pred.At(v) {
			set[v] |= set[p]
		}
		add(v)
	}
	clear(set)
	for i, v := range block {
		set[v] = 1 << i
	}
	for v := block[len(block)-1]; v >= 0; v-- {
		for _, s := range m.Succ.At(v) {
			set[v] |= set[s]
		}
		add(v)
	}
}

// walker finds independent compute near a collective.
type walker struct {
	m     *Model
	sum   []float64 // prefix sums of compute durations in input order
	stamp []int32
	mark  int32
	heap  heap.Ints // of positions to visit, negated going back
}

func newWalker(m *Model) *walker {
	w := &walker{m: m, sum: make([]float64, m.Len()+1), stamp: make([]int32, m.Len())}
	for i, k := range m.Kind {
		w.sum[i+1] = w.sum[i]
		if k == Compute {
			w.sum[i+1] += m.Dur[i]
		}
	}
	return w
}

// hidden reports whether a short walk finds enough independent compute to hide
// the collective v.
func (w *walker) hidden(v int32) bool {
	enough := float64(w.m.Dur[v] * (1 + 1e-9))
	found := w.walk(v, -1, enough)
	return found > enough || found+w.walk(v, 1, enough-found) > enough
}

// walk visits the ancestors (dir -1) or descendants (dir 1) of v by distance in
// input order and returns the compute time it passed over, stopping at enough.
func (w *walker) walk(v, dir int32, enough float64) float64 {
	w.mark++
	w.heap = w.heap[:0]
	edges := &w.m.Pred
	if dir > 0 {
		edges = &w.m.Succ
	}
	free, at := 0.0, v
	push := func(v int32) {
		for _, p := range edges.At(v) {
			if w.stamp[p] != w.mark {
				w.stamp[p] = w.mark
				w.heap.Push(dir * p)
			}
		}
	}
	push(v)
	for steps := 0; len(w.heap) > 0; steps++ {
		p := dir * w.heap.Pop()
		if dir < 0 {
			free += w.sum[at] - w.sum[p+1] // nodes strictly between are no ancestors
		} else {
			free += w.sum[p] - w.sum[at+1]
		}
		at = p
		if free > enough || steps >= chainSteps {
			return free
		}
		push(p)
	}
	if dir < 0 {
		return free + w.sum[at]
	}
	return free + w.sum[len(w.sum)-1] - w.sum[at+1]
}
