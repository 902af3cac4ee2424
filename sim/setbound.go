package sim

import "github.com/seed-ee968945/concert/internal/heap"

// SetBound is a lower bound on the makespan of every order without buckets,
// whatever the memory cap: for each stream, the largest over all sets S of its
// jobs of
//
//	min head(S) + sum of durations(S) + min tail(S)
//
// where a job's head is the longest dependence path before it and its tail the
// longest one after it (Carlier 1982). The maximum over all sets is the makespan
// of Jackson's preemptive schedule: at any time, of the jobs whose head has passed,
// run the one with the longest tail. O(n log n).
//
// It adds to LowerBound what neither a path nor a full stream shows alone: a
// stream that cannot start before something else has run, or that leaves work
// behind for another when it ends.
func SetBound(m *Model) float64 {
	head, tail := pathLengths(m)
	best := 0.0
	jobs := make([][]int32, 1+m.Streams) // by stream, the compute stream first
	for i := range m.Len() {
		switch m.Kind[i] {
		case Compute:
			jobs[0] = append(jobs[0], int32(i))
		case Start:
			jobs[1+m.Stream[i]] = append(jobs[1+m.Stream[i]], int32(i))
		}
	}
	for _, js := range jobs {
		best = max(best, jackson(m, js, head, tail))
	}
	return best
}

// pathLengths returns, for every node, the length of the longest dependence path
// before it and after it, its own duration excluded. Nodes are numbered in a legal
// order, so two sweeps do.
func pathLengths(m *Model) (head, tail []float64) {
	n := m.Len()
	head, tail = make([]float64, n), make([]float64, n)
	for v := range int32(n) {
		for _, p := range m.Pred.At(v) {
			head[v] = max(head[v], head[p]+m.Dur[p])
		}
	}
	for v := int32(n) - 1; v >= 0; v-- {
		for _, s := range m.Succ.At(v) {
			tail[v] = max(tail[v], tail[s]+m.Dur[s])
		}
	}
	return head, tail
}

// jackson is the makespan, tails included, of Jackson's preemptive schedule.
func jackson(m *Model, jobs []int32, head, tail []float64) float64 {
	byHead := heap.Heap[int32]{Less: func(a, b int32) bool { return head[a] < head[b] || head[a] == head[b] && a < b }}
	ready := heap.Heap[int32]{Less: func(a, b int32) bool { return tail[a] > tail[b] || tail[a] == tail[b] && a < b }}
	for _, j := range jobs {
		byHead.Push(j)
	}
	left := make(map[int32]float64, 1) // remaining duration of preempted jobs; look-up only
	now, best := 0.0, 0.0
	for byHead.Len() > 0 || ready.Len() > 0 {
		if ready.Len() == 0 {
			now = max(now, head[byHead.Top()])
		}
		for byHead.Len() > 0 && head[byHead.Top()] <= now {
			ready.Push(byHead.Pop())
		}
		j := ready.Top()
		rest, preempted := left[j]
		if !preempted {
			rest = m.Dur[j]
		}
		if byHead.Len() > 0 && head[byHead.Top()] < now+rest { // somebody may preempt
			next := head[byHead.Top()]
			left[j] = rest - (next - now)
			now = next
			continue
		}
		ready.Pop()
		now += rest
		best = max(best, now+tail[j])
	}
	return best
}
