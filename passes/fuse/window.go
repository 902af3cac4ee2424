package fuse

import (
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"slices"
)

// window judges joins by the stretch of the order that they change. What is live at
// its ends is the same before and after a join, and what happens behind it follows
// from the clocks at its end: the order being the same there, none of its nodes can
// be late if no clock is. So a join costs time proportional to its window, and a walk
// to the end of the order only where it makes something in the window later.
type window struct {
	u *fuser

	launches liveMemory // with regions as launches
	nodes    liveMemory // with every node by itself, nil without that bound
	lastPos  []int32    // storage -> position of its last use

	// Clocks before each position, as far as they are known: of the compute
	// stream, and when each communication stream is free.
	known int32
	now   []float64
	free  [][]float64
	ends  []float64 // node -> finish of a start in front of known

	// What the last try found.
	nextNow  []float64 // by position in the window, and at its end
	nextFree [][]float64
	nextEnds []float64 // by position in the window, of starts
	far      []float64 // node -> finish of starts behind the window

	kept float64 // makespan of the order before the last try, negative if it is not known

	tick  int32
	stamp []int32 // storage -> the last tick that met it
	seat  []int32 // storage -> its last unit in the window
}

// liveMemory is what is live along the order with some nodes as one launch.
type liveMemory struct {
	unit []int32 // node -> the region that it belongs to, -1 for none
	live []int64 // position at which a unit begins -> bytes live before it
	next []int64 // by position in the window, what the last try found
}

// newWindow computes the state of the order at hand. Linear.
func newWindow(u *fuser) *window {
	n, s := len(u.order), len(u.d.Size)
	w := &window{u: u, kept: -1, lastPos: make([]int32, s), now: make([]float64, n+1), free: make([][]float64, n+1),
		ends: make([]float64, n), stamp: make([]int32, s), seat: make([]int32, s)}
	for i := range w.free {
		w.free[i] = make([]float64, u.d.Streams)
	}
	for s := range w.lastPos {
		w.lastPos[s] = u.pos[u.d.Owner[s]]
	}
	base := int64(0)
	for v := range u.d.Inputs {
		for _, s := range u.d.Alloc.At(v) {
			base += u.d.Size[s]
		}
	}
	for p, v := range u.order {
		for _, s := range u.d.Use.At(v) {
			w.lastPos[s] = int32(p)
		}
	}
	w.launches = liveMemory{unit: u.unit}
	w.memory(&w.launches, 0, int32(n), base)
	w.launches.live = slices.Clone(w.launches.next)
	if !u.kernels {
		w.nodes = liveMemory{unit: slices.Repeat([]int32{-1}, n)}
		w.memory(&w.nodes, 0, int32(n), base)
		w.nodes.live = slices.Clone(w.nodes.next)
	}
	return w
}

// memory finds the largest live memory in a window of the order at hand, of which base
// bytes are live in front. A region takes what others read when it begins and gives
// its operands back when it ends; what only it touches takes nothing.
func (w *window) memory(m *liveMemory, lo, hi int32, base int64) int64 {
	d, order := w.u.d, w.u.order[lo:hi]
	unitOf := m.unit
	w.tick++
	units, before := int32(-1), int32(-1)
	for _, v := range order {
		if x := unitOf[v]; x < 0 || x != before {
			units++
		}
		before = unitOf[v]
		for _, list := range [2][]int32{d.Alloc.At(v), d.Use.At(v)} {
			for _, s := range list {
				w.seat[s] = units
			}
		}
	}
	freed := make([]int64, units+1)
	m.next = slices.Grow(m.next[:0], len(order))[:len(order)]
	// dies says that s, which has bytes, gives them back in this window.
	dies := func(s int32) {
		if w.stamp[s] != w.tick && w.lastPos[s] < hi && !d.Pinned[s] {
			freed[w.seat[s]] += d.Size[s]
		}
		w.stamp[s] = w.tick
	}
	now, top := base, int64(0)
	for i, x := 0, int32(0); i < len(order); x++ {
		j := i + 1
		for j < len(order) && unitOf[order[i]] >= 0 && unitOf[order[j]] == unitOf[order[i]] {
			j++
		}
		m.next[i] = now
		for _, v := range order[i:j] {
			for _, s := range d.Alloc.At(v) {
				switch {
				case v < d.Inputs: // live from the start
					dies(s)
				case j == i+1 || w.seat[s] > x || w.lastPos[s] >= hi:
					now += d.Size[s]
					dies(s)
				default:
					w.stamp[s] = w.tick
				}
			}
			for _, s := range d.Use.At(v) {
				dies(s)
			}
		}
		top = max(top, now)
		now -= freed[x]
		i = j
	}
	return top
}

// clocks is the state before a position.
type clocks struct {
	now  float64
	free []float64
}

// step runs one node. ends holds the finish of starts, by node.
func (c *clocks) step(d *deps.Func, v int32, end func(start int32) float64) (finish float64) {
	switch {
	case d.StartOf[v] >= 0:
		c.now = max(c.now, end(d.StartOf[v]))
	case d.Stream[v] >= 0:
		s := d.Stream[v]
		c.free[s] = max(c.now, c.free[s]) + d.Dur[v]
		return c.free[s]
	default:
		c.now += d.Dur[v]
	}
	return c.now
}

// advance finds the clocks up to a position of the order at hand.
func (w *window) advance(to int32) {
	c := clocks{w.now[w.known], slices.Clone(w.free[w.known])}
	for ; w.known < to; w.known++ {
		v := w.u.order[w.known]
		w.ends[v] = c.step(w.u.d, v, func(s int32) float64 { return w.ends[s] })
		w.now[w.known+1] = c.now
		copy(w.free[w.known+1], c.free)
	}
}

// try judges the order at hand, which differs from the one before in lo..hi-1 alone,
// up to whose end advance found the clocks before. It reports whether no more memory is
// live than before the pass, and whether the makespan is no longer than it was: with
// kernels before this join, else before the pass.
func (w *window) try(lo, hi int32) (memory, time bool) {
	u, n := w.u, int(hi-lo)
	if w.memory(&w.launches, lo, hi, w.launches.live[lo]) > u.peak {
		return false, true
	}
	if w.nodes.live != nil && w.memory(&w.nodes, lo, hi, w.nodes.live[lo]) > u.nodesPeak {
		return false, true
	}
	w.nextNow = slices.Grow(w.nextNow[:0], n+1)[:n+1]
	w.nextEnds = slices.Grow(w.nextEnds[:0], n)[:n]
	for len(w.nextFree) < n+1 {
		w.nextFree = append(w.nextFree, make([]float64, u.d.Streams))
	}
	c := clocks{w.now[lo], slices.Clone(w.free[lo])}
	end := func(s int32) float64 {
		if p := u.pos[s]; p >= lo && p < hi {
			return w.nextEnds[p-lo]
		}
		return w.ends[s]
	}
	late := func(next, was float64) bool { return next > was+slack*max(was, 1) }
	ok := true
	for i, v := range u.order[lo:hi] {
		w.nextNow[i] = c.now
		copy(w.nextFree[i], c.free)
		w.nextEnds[i] = c.step(u.d, v, end)
		ok = ok && !(u.d.Stream[v] >= 0 && late(w.nextEnds[i], w.ends[v]))
	}
	w.nextNow[n] = c.now
	copy(w.nextFree[n], c.free)
	ok = ok && !late(c.now, w.now[hi])
	for s := range c.free {
		ok = ok && !late(c.free[s], w.free[hi][s])
	}
	if ok {
		return true, true
	}
	limit := u.time
	if u.kernels {
		if w.kept < 0 {
			w.kept = w.makespanFrom(clocks{w.now[hi], slices.Clone(w.free[hi])}, hi, func(s int32) float64 { return w.ends[s] })
		}
		limit = w.kept
	}
	return true, !late(w.makespanFrom(c, hi, end), limit)
}

// makespanFrom is when everything has finished if the clocks before a position are c and
// starts before it finish at end.
func (w *window) makespanFrom(c clocks, from int32, end func(start int32) float64) float64 {
	if w.far == nil {
		w.far = make([]float64, len(w.u.order))
	}
	far := func(s int32) float64 {
		if w.u.pos[s] >= from {
			return w.far[s]
		}
		return end(s)
	}
	for _, v := range w.u.order[from:] {
		if d := w.u.d; d.StartOf[v] < 0 && d.Stream[v] < 0 {
			c.now += d.Dur[v]
		} else {
			w.far[v] = c.step(d, v, far)
		}
	}
	// What has begun on a stream ends before the stream is free.
	for _, f := range c.free {
		c.now = max(c.now, f)
	}
	return c.now
}

// keep takes over what the last try found.
func (w *window) keep(lo, hi int32) {
	copy(w.launches.live[lo:hi], w.launches.next)
	if w.nodes.live != nil {
		copy(w.nodes.live[lo:hi], w.nodes.next)
	}
	copy(w.now[lo:hi+1], w.nextNow)
	for i, v := range w.u.order[lo:hi] {
		copy(w.free[lo+int32(i)], w.nextFree[i])
		w.ends[v] = w.nextEnds[i]
		for _, list := range [2][]int32{w.u.d.Alloc.At(v), w.u.d.Use.At(v)} {
			for _, s := range list {
				if w.lastPos[s] < hi {
					w.lastPos[s] = lo + int32(i)
				}
			}
		}
	}
	copy(w.free[hi], w.nextFree[hi-lo])
	w.known, w.kept = hi, -1
}
