package sim

import (
	"fmt"
	"math"
)

// Bucket is a set of collectives that run as one: one start, one wait. In an
// order, the starts of its members stand next to each other, and so do their
// waits; the group counts as one node.
type Bucket struct {
	Members []int32 // starts, in the order of the bucket
	Dur     float64 // milliseconds of the whole bucket
}

// OrderError reports an order or a bucket that is not legal.
type OrderError struct {
	Position int   // index in the order, -1 if the error is of the whole
	Node     int32 // node at that position, -1 if none
	Reason   string
}

// Error implements error.
func (e *OrderError) Error() string {
	if e.Position < 0 {
		return "sim: order: " + e.Reason
	}
	return fmt.Sprintf("sim: order: node %d at position %d: %s", e.Node, e.Position, e.Reason)
}

// Timeline is what one order amounts to.
type Timeline struct {
	Makespan float64   // milliseconds, the last finish
	Compute  float64   // milliseconds, sum of compute durations
	Exposed  float64   // Makespan - Compute
	Begin    []float64 // node -> milliseconds; of a start, when its stream takes it up
	End      []float64 // node -> milliseconds; of a wait, when the compute stream passes it
	Issue    []float64 // node -> milliseconds when the compute stream reaches it
	Memory   []int64   // position in the order -> live bytes after the node's allocations
	Peak     int64     // largest of Memory
	PeakAt   int       // first position that reaches Peak
}

// Contention is how computation and communication slow each other down.
type Contention struct {
	// Stretch is how many times as long computation takes while any collective is
	// in flight. 0 and 1 mean no contention.
	Stretch float64
}

// Evaluate prices one order of all nodes of m with the given buckets. It checks
// that the order is legal (*OrderError) and takes time linear in nodes and edges.
func Evaluate(m *Model, order []int32, buckets []Bucket) (*Timeline, error) {
	return EvaluateUnder(m, order, buckets, Contention{})
}

// EvaluateUnder is Evaluate with contention. Timeline.Compute stays the sum of the durations
// without it, so that Exposed includes what contention costs. The error is an *OrderError: the
// order is illegal, a bucket is, or the contention less than 1.
func EvaluateUnder(m *Model, order []int32, buckets []Bucket, c Contention) (*Timeline, error) {
	if c.Stretch == 0 {
		c.Stretch = 1
	}
	if math.IsNaN(c.Stretch) || math.IsInf(c.Stretch, 0) || c.Stretch < 1 {
		return nil, &OrderError{-1, -1, fmt.Sprintf("contention stretches computation by %v, less than 1", c.Stretch)}
	}
	pos, err := positions(m, order)
	if err != nil {
		return nil, err
	}
	bucketOf, err := checkBuckets(m, order, pos, buckets)
	if err != nil {
		return nil, err
	}
	t := &Timeline{}
	t.time(m, order, buckets, bucketOf, c.Stretch)
	t.memory(m, order, pos)
	return t, nil
}

func positions(m *Model, order []int32) ([]int32, error) {
	n := m.Len()
	if len(order) != n {
		return nil, &OrderError{-1, -1, fmt.Sprintf("%d nodes, the program has %d", len(order), n)}
	}
	pos := make([]int32, n)
	for i := range pos {
		pos[i] = -1
	}
	for p, v := range order {
		if v < 0 || int(v) >= n {
			return nil, &OrderError{p, v, "no such node"}
		}
		if pos[v] >= 0 {
			return nil, &OrderError{p, v, fmt.Sprintf("also at position %d", pos[v])}
		}
		pos[v] = int32(p)
		for _, q := range m.Pred.At(v) {
			if pos[q] < 0 {
				return nil, &OrderError{p, v, fmt.Sprintf("comes before its operand %d", q)}
			}
		}
	}
	return pos, nil
}

// checkBuckets returns the bucket of every start, -1 for none.
func checkBuckets(m *Model, order, pos []int32, buckets []Bucket) ([]int32, error) {
	bucketOf := make([]int32, m.Len())
	for i := range bucketOf {
		bucketOf[i] = -1
	}
	for b := range buckets {
		members := buckets[b].Members
		if len(members) == 0 {
			return nil, &OrderError{-1, -1, fmt.Sprintf("bucket %d is empty", b)}
		}
		if d := buckets[b].Dur; math.IsNaN(d) || math.IsInf(d, 0) || d < 0 {
			return nil, &OrderError{-1, -1, fmt.Sprintf("bucket %d takes %v ms", b, d)}
		}
		first, last := int32(math.MaxInt32), int32(-1)
		waits, wfirst, wlast := int32(0), int32(math.MaxInt32), int32(-1)
		for _, s := range members {
			if s < 0 || int(s) >= m.Len() || m.Kind[s] != Start {
				return nil, &OrderError{-1, s, fmt.Sprintf("bucket %d: node %d is not a collective", b, s)}
			}
			if bucketOf[s] >= 0 {
				return nil, &OrderError{int(pos[s]), s, "in two buckets"}
			}
			if k := m.Key[s]; k < 0 || k != m.Key[members[0]] {
				return nil, &OrderError{int(pos[s]), s, fmt.Sprintf("bucket %d mixes collectives that cannot share a bucket", b)}
			}
			bucketOf[s] = int32(b)
			first, last = min(first, pos[s]), max(last, pos[s])
			for _, w := range m.Succ.At(s) {
				if m.Kind[w] == Wait {
					waits++
					wfirst, wlast = min(wfirst, pos[w]), max(wlast, pos[w])
				}
			}
		}
		if int(last-first)+1 != len(members) {
			return nil, &OrderError{int(first), order[first], fmt.Sprintf("the starts of bucket %d are not adjacent", b)}
		}
		if waits > 0 && wlast-wfirst+1 != waits {
			return nil, &OrderError{int(wfirst), order[wfirst], fmt.Sprintf("the waits of bucket %d are not adjacent", b)}
		}
		for _, s := range members {
			for _, q := range m.Pred.At(s) {
				if pos[q] >= first {
					return nil, &OrderError{int(pos[s]), s, fmt.Sprintf("bucket %d starts before its operand %d", b, q)}
				}
			}
		}
	}
	return bucketOf, nil
}

func (t *Timeline) time(m *Model, order []int32, buckets []Bucket, bucketOf []int32, stretch float64) {
	n := m.Len()
	back := make([]float64, 3*n)
	t.Begin, t.End, t.Issue = back[:n:n], back[n:2*n:2*n], back[2*n:]
	free := make([]float64, m.Streams)
	bucketEnd := make([]float64, len(buckets))
	for i := range bucketEnd {
		bucketEnd[i] = -1
	}
	now, last := 0.0, 0.0 // last: the latest finish of a collective so far
	for _, v := range order {
		t.Issue[v], t.Begin[v] = now, now
		switch m.Kind[v] {
		case Compute:
			// Nothing is issued while v runs, and what has been issued runs on without a
			// gap, so that communication is in flight up to last and not beyond.
			d := m.Dur[v]
			if over := min(float64(d*stretch), last-now); stretch > 1 && over > 0 {
				now += over + (d - over/stretch)
			} else {
				now += d
			}
			t.Compute += m.Dur[v]
		case Start:
			s := m.Stream[v]
			b := bucketOf[v]
			if b >= 0 && bucketEnd[b] >= 0 { // a later member of a bucket that has begun
				t.End[v] = bucketEnd[b]
				t.Begin[v] = bucketEnd[b] - buckets[b].Dur
				continue
			}
			begin, dur := max(now, free[s]), m.Dur[v]
			if b >= 0 {
				dur = buckets[b].Dur
				bucketEnd[b] = begin + dur
			}
			free[s] = begin + dur
			t.Begin[v], t.End[v] = begin, free[s]
			last = max(last, free[s])
			continue
		case Wait:
			if c := m.StartOf[v]; c >= 0 {
				now = max(now, t.End[c])
			}
		}
		t.End[v] = now
	}
	t.Makespan = max(last, now)
	t.Exposed = t.Makespan - t.Compute
}

func (t *Timeline) memory(m *Model, order, pos []int32) {
	lastUse := make([]int32, len(m.Size))
	live := int64(0)
	for s := range lastUse {
		lastUse[s] = pos[m.Owner[s]]
		if m.Kind[m.Owner[s]] == Input {
			live += m.Size[s]
		}
	}
	for p, v := range order {
		for _, s := range m.Use.At(v) {
			lastUse[s] = max(lastUse[s], int32(p))
		}
	}
	t.Memory = make([]int64, len(order))
	t.Peak = -1
	for p, v := range order {
		if m.Kind[v] != Input {
			for _, s := range m.Alloc.At(v) {
				live += m.Size[s]
			}
		}
		t.Memory[p] = live
		if live > t.Peak {
			t.Peak, t.PeakAt = live, p
		}
		for _, s := range m.Use.At(v) {
			if lastUse[s] == int32(p) && !m.Pinned[s] {
				live -= m.Size[s]
			}
		}
	}
	t.Peak = max(t.Peak, 0)
}
