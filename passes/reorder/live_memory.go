package reorder

import (
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/sim"
)

// liveMemory keeps the memory of an order exact while neighbouring runs of nodes
// change places. Nodes are numbered as in deps.
//
// A storage is freed after its last user in the order. Moving run X behind its
// right neighbour Y changes three things and nothing else: every node of Y no
// longer has what X added before it, every node of X has what Y adds, and a
// storage that both use and whose last user stood in Y is now freed by its last
// user in X. So an exchange costs the storages of the nodes in both runs.
type liveMemory struct {
	m     *sim.Model
	order []int32 // position -> node
	pos   []int32 // node -> position
	last  []int32 // storage -> its last user, -1 if it is never freed
	alloc []int64 // node -> bytes that it allocates
	freed []int64 // node -> bytes freed after it: sizes of storages whose last user it is
	live  []int64 // node -> bytes live after its allocations and before its frees

	// Scratch of exchange.
	stamp []int32 // storage -> generation in which user was set
	user  []int32 // storage -> last user within run X
	gen   int32
	moved []transfer
}

// transfer says that a storage is freed by another node.
type transfer struct {
	storage, from, to int32
}

// newLiveMemory computes the memory of the order 0, 1, ..., n-1 from scratch.
func newLiveMemory(d *deps.Func) *liveMemory {
	n := len(d.Nodes)
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	l := &liveMemory{m: d.Model, pos: make([]int32, n), stamp: make([]int32, len(d.Size)), user: make([]int32, len(d.Size))}
	l.reset(order)
	return l
}

// reset recomputes everything for an order, which it keeps. Linear.
func (l *liveMemory) reset(order []int32) {
	m := l.m
	n := len(order)
	l.order = order
	l.last = make([]int32, len(m.Size))
	l.alloc, l.freed, l.live = make([]int64, n), make([]int64, n), make([]int64, n)
	for s := range l.last { // an unused storage is freed by the node that makes it
		l.last[s] = -1
		if !m.Pinned[s] {
			l.last[s] = m.Owner[s]
		}
	}
	for p, v := range order {
		l.pos[v] = int32(p)
		for _, s := range m.Use.At(v) {
			if !m.Pinned[s] {
				l.last[s] = v
			}
		}
	}
	for s, v := range l.last {
		if v >= 0 {
			l.freed[v] += m.Size[s]
		}
	}
	now := int64(0)
	for _, v := range order { // inputs are live from the start
		if l.isInput(v) {
			for _, s := range m.Alloc.At(v) {
				now += m.Size[s]
			}
		}
	}
	for _, v := range order {
		if !l.isInput(v) {
			for _, s := range m.Alloc.At(v) {
				l.alloc[v] += m.Size[s]
			}
		}
		now += l.alloc[v]
		l.live[v] = now
		now -= l.freed[v]
	}
}

// isInput reports whether v is an input, whose storages exist before the program runs.
func (l *liveMemory) isInput(v int32) bool { return l.m.Kind[v] == sim.Input }

// peak is the largest live memory. Linear.
func (l *liveMemory) peak() int64 {
	top := int64(0)
	for _, b := range l.live {
		top = max(top, b)
	}
	return top
}

// exchange moves the run of nodes at positions lo..mid-1 behind the run at
// mid..hi-1 if no node of either then has more than limit bytes live, or no more
// than the largest of them had before. It reports whether it did, and the
// largest live memory that the nodes of both runs have or would have had.
func (l *liveMemory) exchange(lo, mid, hi int32, limit int64) (ok bool, top int64) {
	l.transfers(lo, mid, hi)
	for _, t := range l.moved {
		l.freed[t.from] -= l.m.Size[t.storage]
		l.freed[t.to] += l.m.Size[t.storage]
	}
	first := l.order[lo]
	base := l.live[first] - l.alloc[first]
	now, before := base, int64(0)
	for i := range hi - lo {
		v := l.rotated(lo, mid, hi, i)
		now += l.alloc[v]
		top = max(top, now)
		before = max(before, l.live[v])
		now -= l.freed[v]
	}
	if top > limit && top > before {
		for _, t := range l.moved {
			l.freed[t.from] += l.m.Size[t.storage]
			l.freed[t.to] -= l.m.Size[t.storage]
		}
		return false, top
	}
	for _, t := range l.moved {
		l.last[t.storage] = t.to
	}
	rotate(l.order[lo:hi], int(mid-lo))
	now = base
	for p := lo; p < hi; p++ {
		v := l.order[p]
		l.pos[v] = p
		now += l.alloc[v]
		l.live[v] = now
		now -= l.freed[v]
	}
	return true, top
}

// rotated is node i of the order that the exchange would give.
func (l *liveMemory) rotated(lo, mid, hi, i int32) int32 {
	if i < hi-mid {
		return l.order[mid+i]
	}
	return l.order[lo+i-(hi-mid)]
}

// transfers finds the storages that another node would free: those last used in
// the right run and used in the left one too.
func (l *liveMemory) transfers(lo, mid, hi int32) {
	l.gen++
	l.moved = l.moved[:0]
	for _, v := range l.order[lo:mid] {
		for _, s := range l.m.Use.At(v) {
			l.stamp[s], l.user[s] = l.gen, v
		}
	}
	for _, v := range l.order[mid:hi] {
		for _, s := range l.m.Use.At(v) {
			if l.last[s] == v && l.stamp[s] == l.gen {
				l.moved = append(l.moved, transfer{s, v, l.user[s]})
			}
		}
	}
}

// rotate turns s[:k], s[k:] into s[k:], s[:k] in place.
func rotate(s []int32, k int) {
	reverse(s[:k])
	reverse(s[k:])
	reverse(s)
}

func reverse(s []int32) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
}
