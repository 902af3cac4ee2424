package sched

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/heap"
	"github.com/seed-ee968945/concert/sim"
)

// A minimum-memory order is a legal order with a low memory peak, made without regard to
// time. The schedulers need one as the certificate that whatever they have done
// so far can still be completed under the cap.
//
// Every node is either eager or lazy. An eager node lowers live memory, or keeps
// it: it runs as early as possible, with whatever it needs. A lazy node raises
// live memory: it runs when an eager node needs it, or at the end. Which nodes
// are eager is decided at the time: a node is as soon as it is ready and the
// storages it would free outweigh those that it allocates.

// inputJobs returns the jobs in input order.
func (p *problem) inputJobs() []int32 {
	o := make([]int32, p.n())
	for i := range o {
		o[i] = int32(i)
	}
	return o
}

// minMemory returns the order with the lowest memory peak of a few, and that peak.
// Orders that follow the input are preferred; only if none is under the cap,
// others are looked at.
func (p *problem) minMemory(cap int64) ([]int32, int64) {
	l := p.least
	if l.near == nil {
		l.near = p.inputJobs()
		l.nearPeak = p.peak(l.near)
		for _, lazy := range []bool{false, true} {
			ref := p.lazyComm(lazy)
			if q := p.peak(ref); q < l.nearPeak || q == l.nearPeak && !lazy {
				l.near, l.nearPeak = ref, q
			}
		}
	}
	if l.nearPeak <= cap {
		return l.near, l.nearPeak
	}
	if l.any == nil {
		l.any, l.anyPeak = l.near, l.nearPeak
		for _, r := range []int64{0, 1, 4, 16} {
			ref := p.greedyMinMemory(r)
			if q := p.peak(ref); q < l.anyPeak {
				l.any, l.anyPeak = ref, q
			}
		}
	}
	return l.any, l.anyPeak
}

// leastMemory is what minMemory has found: near the input order, and of all orders. Nobody
// changes the orders.
type leastMemory struct {
	near, any         []int32
	nearPeak, anyPeak int64
}

// greedyMinMemory returns the order in which, of the jobs that are ready, the one runs
// next that adds least to live memory; of those that add the same, the first in
// input order. What a job adds counts in units of 1/r of the largest storage, so
// that with small r the input order weighs more; 0 stands for bytes. O(n log n).
func (p *problem) greedyMinMemory(r int64) []int32 {
	n := p.n()
	unit := int64(1)
	if r > 0 {
		for _, s := range p.size {
			unit = max(unit, s/r)
		}
	}
	left := make([]int32, len(p.size))
	for s := range left {
		left[s] = int32(len(p.users.At(int32(s))))
	}
	net := make([]int64, n)
	blocked := make([]int32, n)
	done := make([]bool, n)
	for j := int32(0); int(j) < n; j++ {
		blocked[j] = int32(len(p.pred.At(j)))
		for _, s := range p.alloc.At(j) {
			if left[s] > 1 || p.pinned[s] {
				net[j] += p.size[s]
			}
		}
		for _, s := range p.use.At(j) {
			if left[s] == 1 && !p.pinned[s] && p.job[p.m.Owner[s]] != int32(j) {
				net[j] -= p.size[s]
			}
		}
	}
	// A job's net only falls, and it is filed again when it does, so that stale
	// entries come up after the job has run.
	type entry struct {
		net int64
		job int32
	}
	h := &heap.Heap[entry]{Less: func(a, b entry) bool {
		if x, y := a.net/unit, b.net/unit; x != y {
			return x < y
		}
		return a.job < b.job
	}}
	for j := int32(0); int(j) < n; j++ {
		if blocked[j] == 0 {
			h.Push(entry{net[j], j})
		}
	}
	out := make([]int32, 0, n)
	for len(out) < n {
		j := h.Pop().job
		if done[j] {
			continue
		}
		done[j] = true
		out = append(out, j)
		for _, s := range p.use.At(j) {
			if left[s]--; left[s] != 1 || p.pinned[s] {
				continue
			}
			for _, k := range p.users.At(s) {
				if !done[k] && p.job[p.m.Owner[s]] != k {
					net[k] -= p.size[s]
					if blocked[k] == 0 {
						h.Push(entry{net[k], k})
					}
				}
			}
		}
		for _, k := range p.succ.At(j) {
			if blocked[k]--; blocked[k] == 0 {
				h.Push(entry{net[k], k})
			}
		}
	}
	return out
}

// lazyComm returns the input order with every collective started and waited for
// as late as its first user allows, except that a collective which frees at least
// as much as it allocates runs at once.
func (p *problem) lazyComm(lazyCompute bool) []int32 {
	n := p.n()
	l := &lazyOrder{problem: p, compute: lazyCompute, out: make([]int32, 0, n), done: make([]bool, n), left: make([]int32, len(p.size)), blocked: make([]int32, n)}
	for s := range l.left {
		l.left[s] = int32(len(p.users.At(int32(s))))
	}
	for j := range l.blocked {
		l.blocked[j] = int32(len(p.pred.At(int32(j))))
	}
	for j := int32(0); int(j) < n; j++ {
		if l.done[j] {
			continue
		}
		if p.kind[j] == sim.Compute && !lazyCompute {
			l.demand(j)
			continue
		}
		if l.blocked[j] == 0 {
			l.check = append(l.check, j)
			l.settle()
		}
		if !l.done[j] && lazyCompute && p.kind[j] == sim.Compute && l.net(j) < 0 {
			l.demand(j)
		}
	}
	for j := int32(0); int(j) < n; j++ {
		if !l.done[j] {
			l.demand(j)
		}
	}
	return l.out
}

// lazyOrder is an order that lazyComm makes.
type lazyOrder struct {
	*problem
	compute bool // compute is lazy, too
	out     []int32
	done    []bool
	left    []int32 // by storage: users that have not run
	blocked []int32 // by job: predecessors that have not run
	check   []int32 // jobs that have become ready
	need    []int32 // scratch of demand
}

func (l *lazyOrder) emit(j int32) {
	l.done[j] = true
	l.out = append(l.out, j)
	for _, s := range l.use.At(j) {
		l.left[s]--
	}
	for _, k := range l.succ.At(j) {
		if l.blocked[k]--; l.blocked[k] == 0 {
			l.check = append(l.check, k)
		}
	}
}

// net is what job j adds to live memory: what it allocates, less what it is the last
// user of.
func (l *lazyOrder) net(j int32) int64 {
	net := int64(0)
	for _, s := range l.alloc.At(j) {
		net += l.size[s]
	}
	for _, s := range l.use.At(j) {
		if l.left[s] == 1 && !l.pinned[s] {
			net -= l.size[s]
		}
	}
	return net
}

// shrinks reports whether running ready job j does not raise live memory. A start's
// operands are freed by its wait.
func (l *lazyOrder) shrinks(j int32) bool {
	net := l.net(j)
	if l.kind[j] == sim.Start {
		for _, w := range l.waits.At(j) {
			for _, s := range l.use.At(w) {
				if l.left[s] == 2 && !l.pinned[s] && slices.Contains(l.use.At(j), s) && !slices.Contains(l.alloc.At(j), s) {
					net -= l.size[s]
				}
			}
		}
	}
	return net <= 0
}

// settle runs what has become ready and is eager.
func (l *lazyOrder) settle() {
	for len(l.check) > 0 {
		j := l.check[len(l.check)-1]
		l.check = l.check[:len(l.check)-1]
		if l.done[j] {
			continue
		}
		if l.kind[j] == sim.Wait && l.startOf[j] >= 0 && l.done[l.startOf[j]] {
			l.emit(j)
		} else if (l.compute || l.kind[j] == sim.Start) && l.shrinks(j) {
			l.emit(j)
		}
	}
}

// demand runs job j with whatever it needs, in input order.
func (l *lazyOrder) demand(j int32) {
	l.need = append(l.need[:0], j)
	l.done[j] = true // as a mark, until emitted below
	for i := 0; i < len(l.need); i++ {
		for _, q := range l.pred.At(l.need[i]) {
			if !l.done[q] {
				l.done[q] = true
				l.need = append(l.need, q)
			}
		}
	}
	slices.Sort(l.need)
	for _, q := range l.need {
		l.emit(q)
	}
	l.settle()
}

// deferred returns the reference order ref with all jobs that begin at most ms
// milliseconds before the end, by the given tails, moved behind all others. As a
// job's tail is at least that of its successors, the order stays legal. A wait
// stays where what it comes after stays, its start above all, so that what the
// collective holds is freed as before.
func (p *problem) deferred(ref []int32, tail []float64, ms float64) []int32 {
	out := make([]int32, 0, len(ref))
	var last []int32
	moved := make([]bool, len(ref))
	for _, j := range ref {
		if tail[j] <= ms && (!p.isWait(j) || slices.ContainsFunc(p.pred.At(j), func(q int32) bool { return moved[q] })) {
			last, moved[j] = append(last, j), true
		} else {
			out = append(out, j)
		}
	}
	slices.SortStableFunc(last, func(a, b int32) int {
		switch {
		case tail[a] > tail[b]:
			return -1
		case tail[a] < tail[b]:
			return 1
		}
		return 0
	})
	return append(out, last...)
}

// fillers returns the reference order ref with some reductions, and the compute
// that runs for them alone, moved to the end: enough to hide ms milliseconds of
// collectives there. It takes those whose results only the output needs, best
// ratio of compute to communication first, if they have more of the former than
// of the latter. They come in descending order of their communication, so that
// little is left to do when compute ends (Johnson's rule). Nil if there is none.
func (p *problem) fillers(ref []int32, ms float64) []int32 {
	into, own := p.private()
	var cand []int32
	for j := range own {
		if own[j] > 1.1*p.dur[j] && p.dur[j] > 0 && p.forOutput(int32(j)) {
			cand = append(cand, int32(j))
		}
	}
	slices.SortStableFunc(cand, func(a, b int32) int { return cmp.Compare(own[b]*p.dur[a], own[a]*p.dur[b]) })
	k := 0
	for ; k < len(cand) && ms > 0; k++ {
		ms -= own[cand[k]] - p.dur[cand[k]]
	}
	if cand = cand[:k]; k == 0 {
		return nil
	}
	slices.SortStableFunc(cand, func(a, b int32) int { return cmp.Compare(p.dur[b], p.dur[a]) })
	place := make([]int32, p.n()) // start -> place among the moved, from 1
	for i, c := range cand {
		place[c] = int32(i) + 1
	}
	moved := make([][]int32, k)
	out := make([]int32, 0, len(ref))
	for _, j := range ref {
		c := into[j]
		if p.isWait(j) {
			c = p.startOf[j]
		}
		if c >= 0 && place[c] > 0 {
			moved[place[c]-1] = append(moved[place[c]-1], j)
		} else {
			out = append(out, j)
		}
	}
	for _, m := range moved {
		out = append(out, m...)
	}
	return out
}

// forOutput reports whether no job needs the results of start j.
func (p *problem) forOutput(j int32) bool {
	for _, k := range p.succ.At(j) {
		if !p.isWait(k) || p.startOf[k] != j || len(p.succ.At(k)) > 0 {
			return false
		}
	}
	return true
}
