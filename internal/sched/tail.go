package sched

import (
	"math"

	"github.com/seed-ee968945/concert/internal/heap"
	"github.com/seed-ee968945/concert/sim"
)

// heads returns for each job the length of the longest path that ends before it,
// in milliseconds.
func (p *problem) heads() []float64 {
	h := make([]float64, p.n())
	for j := range h {
		for _, q := range p.pred.At(int32(j)) {
			h[j] = max(h[j], h[q]+p.dur[q])
		}
	}
	return h
}

// tails returns for each job the length of the longest path from its beginning.
func (p *problem) tails() []float64 {
	t := make([]float64, p.n())
	for j := p.n() - 1; j >= 0; j-- {
		for _, q := range p.succ.At(int32(j)) {
			t[j] = max(t[j], t[q])
		}
		t[j] += p.dur[j]
	}
	return t
}

// private returns for each job the start that it runs for alone, -1 if there is
// none: starts themselves, and compute jobs from which that start is reached and
// nothing else is. sum is, for each start, the compute that runs for it alone.
func (p *problem) private() (into []int32, sum []float64) {
	into = make([]int32, p.n())
	sum = make([]float64, p.n())
	for j := int32(p.n()) - 1; j >= 0; j-- {
		into[j] = -1
		if p.kind[j] == sim.Start {
			into[j] = j
		} else if p.kind[j] == sim.Compute && len(p.succ.At(j)) == 1 {
			if k := into[p.succ.At(j)[0]]; k >= 0 {
				into[j] = k
				sum[k] += p.dur[j]
			}
		}
	}
	return into, sum
}

// backward schedules the program from its end, without regard to memory, and
// returns for each job how long before the end it begins. In contrast to the
// longest path, the result knows that jobs share streams: used as a priority, it
// starts early what has much behind it on any stream.
//
// Of the jobs that are ready, the compute stream takes the one with the largest
// head. So does a communication stream, unless the compute stream would run dry
// meanwhile: then it takes, as Johnson's rule for two machines in sequence asks,
// the shortest collective that has more compute of its own than it takes.
func (p *problem) backward(head []float64) []float64 {
	_, own := p.private()
	b := &backwards{p: p, head: head, own: own, tail: make([]float64, p.n()), ready: make([]float64, p.n()), blocked: make([]int32, p.n())}
	return b.run()
}

type backwards struct {
	p       *problem
	head    []float64
	own     []float64
	tail    []float64
	ready   []float64
	blocked []int32
	avail   []heap.Heap[int32] // resource -> ready jobs by head; resource 0 is the compute stream
	short   []heap.Heap[int32] // stream -> ready starts with more compute of their own than they take, shortest first
	taken   []bool             // starts that have left one of the two heaps
	free    []float64          // resource -> when it becomes free
	coming  heap.Heap[int32]   // jobs that become ready later, by time
	backlog float64            // compute ready to run
}

func (b *backwards) resource(j int32) int32 {
	if b.p.kind[j] == sim.Start {
		return b.p.stream[j] + 1
	}
	return 0
}

func (b *backwards) finish(j int32, t float64) {
	b.tail[j] = t
	for _, q := range b.p.pred.At(j) {
		b.ready[q] = max(b.ready[q], t)
		if b.blocked[q]--; b.blocked[q] == 0 {
			b.coming.Push(q)
		}
	}
}

func (b *backwards) run() []float64 {
	p, n := b.p, b.p.n()
	res := p.m.Streams + 1
	b.avail, b.short = make([]heap.Heap[int32], res), make([]heap.Heap[int32], res)
	b.free = make([]float64, res)
	b.taken = make([]bool, n)
	for i := range b.avail {
		b.avail[i].Less = func(x, y int32) bool {
			if b.head[x] != b.head[y] {
				return b.head[x] > b.head[y]
			}
			return x > y
		}
		b.short[i].Less = func(x, y int32) bool {
			if p.dur[x] != p.dur[y] {
				return p.dur[x] < p.dur[y]
			}
			return x > y
		}
	}
	b.coming.Less = func(x, y int32) bool {
		if b.ready[x] != b.ready[y] {
			return b.ready[x] < b.ready[y]
		}
		return x > y
	}
	for j := n - 1; j >= 0; j-- {
		if b.blocked[j] = int32(len(p.succ.At(int32(j)))); b.blocked[j] == 0 {
			b.coming.Push(int32(j))
		}
	}
	for now := 0.0; ; {
		for b.coming.Len() > 0 && b.ready[b.coming.Top()] <= now {
			b.arrive(b.coming.Pop())
		}
		next := math.Inf(1)
		for r := range b.avail {
			if b.free[r] <= now {
				if j := b.take(r, now); j >= 0 {
					b.free[r] = now + p.dur[j]
					b.finish(j, b.free[r])
				}
			}
			if b.avail[r].Len() > 0 {
				next = min(next, b.free[r])
			}
		}
		if b.coming.Len() > 0 {
			next = min(next, max(now, b.ready[b.coming.Top()]))
		}
		if math.IsInf(next, 1) {
			return b.tail
		}
		now = next
	}
}

// arrive files a job that is ready.
func (b *backwards) arrive(j int32) {
	if b.p.dur[j] == 0 {
		b.finish(j, b.ready[j])
		return
	}
	r := b.resource(j)
	b.avail[r].Push(j)
	if r == 0 {
		b.backlog += b.p.dur[j]
	} else if b.own[j] > b.p.dur[j] {
		b.short[r].Push(j)
	}
}

// take removes the job that resource r runs next, -1 if there is none.
func (b *backwards) take(r int, now float64) int32 {
	h, s := &b.avail[r], &b.short[r]
	for h.Len() > 0 && b.taken[h.Top()] {
		h.Pop()
	}
	for s.Len() > 0 && b.taken[s.Top()] {
		s.Pop()
	}
	if h.Len() == 0 {
		return -1
	}
	if r == 0 {
		b.backlog -= b.p.dur[h.Top()]
		return h.Pop()
	}
	j := h.Top()
	if s.Len() > 0 && b.p.dur[j] > b.backlog+max(0, b.free[0]-now) {
		j = s.Pop()
	} else {
		h.Pop()
	}
	b.taken[j] = true
	return j
}
