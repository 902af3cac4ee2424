package pack

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// The core
//
// A training step needs most memory for a short while: around the loss, or early in
// backward. There the arena has to be filled to the last byte, and before and after
// there is room to spare. Greedy placement, which knows nothing of this, leaves gaps
// in just that place. So the placement is made from the fullest moment outwards:
//
//  1. Around the fullest column lies a window in which few buffers come and go (the
//     core); most of what lives there outlives it on both sides (it spans the
//     window). What spans it goes to the bottom in one stack, the longest life
//     lowest, so that before and after the window the free addresses form one range.
//  2. The core is searched for a placement on top of the stack and beneath a
//     ceiling (see search.go). The search prefers long lives below.
//  3. With these in their places, the other buffers of a wider window are placed
//     around them greedily; then those of the whole problem, greedily and by repair.
//
// Which of the many solutions of the core leave room for what surrounds it shows
// only in step 3, where most fail; but step 2 takes a few milliseconds and the wider
// window less than one. So the search begins again, with other random numbers and
// other windows in turn, until a placement works out. An attempt that was cut off
// goes on, with the weights that it has learnt, when its turn comes. The ceiling is
// the goal at first; if a few attempts fail it rises part of the way to the height
// that is known already, and what effort is left when that succeeds goes to the goal
// again.

// Widths of windows, in buffers that come and go, and efforts. Work counts steps of
// the search, visits of rectangles, and fitterWork for each of a fitter's; ten
// million take 25 to 35 ms.
const (
	ringBuffers = 320        // of the wider window
	coreRounds  = 16         // attempts in each window at each ceiling
	coreSteps   = 2_000_000  // of the search for one solution
	coreWork    = 36_000_000 // in all
	coreEach    = 10_000     // for each buffer, up to coreWork
	lookWork    = 8_000_000  // at each ceiling before the last
	fitterWork  = 6
	ringVisits  = 400_000   // of the repair in the wider window, for each solution
	fullVisits  = 2_000_000 // of the repair of all, for each order
)

// coreWidths are the widths of the windows that are searched in turn.
var coreWidths = []int{144, 160, 192}

// window is a range of columns [lo, hi) with what lives there.
type window struct {
	lo, hi   int32
	spanning []int32 // buffers that live at both ends
	core     []int32 // other buffers
}

// core places the buffers from the fullest moment outwards and reports whether that
// gave a placement below one of its ceilings. It does not try with pins, extra
// conflicts or mixed alignments, which a stack would have to respect.
func (g *greedy) core() bool {
	if len(g.p.Conflicts) > 0 || len(g.f.pinned) > 0 || len(g.f.ids) == 0 {
		return false
	}
	align := g.p.Buffers[g.f.ids[0]].align()
	for _, i := range g.f.ids {
		if b := &g.p.Buffers[i]; b.align() != align || b.Size%align != 0 {
			return false
		}
	}
	windows, ring := g.windows(coreWidths, ringBuffers)
	work, seed, known := min(coreWork, coreEach*len(g.f.ids)), uint64(0), g.height
	beneath := func(ceiling int64, effort int) bool {
		var cores []*coreSearch
		for _, w := range windows {
			if c := newCoreSearch(g, w, ring, ceiling); c != nil {
				cores = append(cores, c)
			}
		}
		if len(cores) == 0 {
			return false
		}
		until := max(work-effort, 0)
		for n := 0; n < coreRounds*len(cores) && work > until; n++ {
			seed++
			pinned, spent := cores[int(seed)%len(cores)].try(seed)
			work -= spent
			if pinned == nil {
				continue
			}
			h := newGreedy(pinned, ceiling)
			work -= h.around(fullVisits, bySize, byWeight, byEnd)
			if g.keep(h.best); g.height <= ceiling {
				return true
			}
		}
		return false
	}
	if beneath(g.goal, lookWork) {
		return true
	}
	for _, part := range []int64{16, 8, 4, 2} {
		if beneath(g.goal+(known-g.goal)/part, lookWork) {
			beneath(g.goal, work)
			return true
		}
	}
	return false
}

// windows returns windows in which at most so many buffers come or go, for each of
// the widths two: that of the columns with the least free space, and that of the
// columns with the least compared to the largest buffer that lives there, since this
// one needs its space in one piece. The ring has the wider width and covers the
// others. O((columns + buffers) log (columns + buffers)) for each width.
func (g *greedy) windows(widths []int, wider int) (windows []*window, ring *window) {
	f := g.f
	load := make([]int64, f.cols+1)
	for _, i := range f.ids {
		load[f.l[i]] += g.p.Buffers[i].Size
		load[f.r[i]] -= g.p.Buffers[i].Size
	}
	for c := range f.cols {
		load[c+1] += load[c]
	}
	large := f.largest()
	crowd := newCrowd(f)
	first, last := f.cols, int32(0)
	for _, width := range append(slices.Clone(widths), wider) {
		for _, key := range []func(c int32) float64{
			func(c int32) float64 { return float64(g.goal - load[c]) },
			func(c int32) float64 { return float64(g.goal-load[c]) / float64(max(large[c], 1)) },
		} {
			lo, hi := crowd.around(key, width)
			first, last = min(first, lo), max(last, hi)
			if width != wider && !slices.ContainsFunc(windows, func(w *window) bool { return w.lo == lo && w.hi == hi }) {
				windows = append(windows, g.window(lo, hi))
			}
		}
	}
	return windows, g.window(first, last)
}

// largest returns the size of the largest buffer that lives in each column.
func (f *fitter) largest() []int64 {
	ids := slices.Clone(f.ids)
	slices.SortFunc(ids, func(a, b int32) int { return cmp64(f.p.Buffers[b].Size, f.p.Buffers[a].Size) })
	large := make([]int64, f.cols)
	next := make([]int32, f.cols+1) // a column at or after this one with none as yet
	for c := range next {
		next[c] = int32(c)
	}
	find := func(c int32) int32 {
		for next[c] != c {
			next[c] = next[next[c]]
			c = next[c]
		}
		return c
	}
	for _, i := range ids {
		for c := find(f.l[i]); c < f.r[i]; c = find(c) {
			large[c], next[c] = f.p.Buffers[i].Size, c+1
		}
	}
	return large
}

// crowd counts the buffers that come or go in a window.
type crowd struct {
	f      *fitter
	starts []int32 // by column: buffers that start before it
	byEnd  []int32
	ends   []int32 // by column: buffers that end before it
}

func newCrowd(f *fitter) *crowd {
	c := &crowd{f: f, starts: make([]int32, f.cols+2), ends: make([]int32, f.cols+2), byEnd: slices.Clone(f.ids)}
	slices.SortFunc(c.byEnd, func(a, b int32) int { return int(f.r[a] - f.r[b]) })
	for _, i := range f.ids {
		c.starts[f.l[i]+1]++
		c.ends[f.r[i]+1]++
	}
	for t := range f.cols + 1 {
		c.starts[t+1] += c.starts[t]
		c.ends[t+1] += c.ends[t]
	}
	return c
}

// exceeds reports whether more than limit buffers come or go in [lo, hi). O(limit)
// and the buffers that both come and go.
func (c *crowd) exceeds(lo, hi int32, limit int) bool {
	n := int(c.starts[hi] - c.starts[lo+1])
	if n > limit {
		return true
	}
	for _, i := range c.byEnd[c.ends[lo+1]:c.ends[hi]] {
		if c.f.l[i] <= lo {
			n++
		}
	}
	return n > limit
}

// around returns the window of the columns of least key, passing over those too far
// away for the width.
func (c *crowd) around(key func(c int32) float64, width int) (lo, hi int32) {
	keys, order := make([]float64, c.f.cols), make([]int32, c.f.cols)
	for t := range c.f.cols {
		keys[t], order[t] = key(t), t
	}
	slices.SortFunc(order, func(a, b int32) int {
		if k := cmp.Compare(keys[a], keys[b]); k != 0 {
			return k
		}
		return int(a - b)
	})
	lo, hi = order[0], order[0]+1
	least, most := int32(0), c.f.cols // what lies outside is too far away
	for _, t := range order {
		switch {
		case t < least || t >= most || lo <= t && t < hi:
		case t < lo && c.exceeds(t, hi, width):
			least = t + 1
		case t < lo:
			lo = t
		case c.exceeds(lo, t+1, width):
			most = t
		default:
			hi = t + 1
		}
	}
	return lo, hi
}

// window lists what lives in columns [lo, hi).
func (g *greedy) window(lo, hi int32) *window {
	w := &window{lo: lo, hi: hi}
	for _, i := range g.f.ids {
		switch l, r := g.f.l[i], g.f.r[i]; {
		case l >= hi || lo >= r:
		case l <= lo && hi <= r:
			w.spanning = append(w.spanning, i)
		default:
			w.core = append(w.core, i)
		}
	}
	slices.SortStableFunc(w.spanning, func(a, b int32) int {
		return int(g.f.r[b]-g.f.l[b]) - int(g.f.r[a]-g.f.l[a])
	})
	return w
}

// coreSearch looks for placements of a wider window around solutions of a narrower
// one.
type coreSearch struct {
	g        *greedy
	outer    *window
	ring     Problem   // buffer k is core buffer k of the wider window
	bottom   int64     // bytes of what spans the wider window
	ceiling  int64     // of ring
	m        *model    // of the core of the narrower window
	s        *searcher // of m, made by the first attempt
	back     []int32   // by buffer of m's problem: its number in ring
	base     int64     // where the core begins in ring, in bytes
	units    int64     // of the model between base and ceiling
	cut      bool      // the last attempt was cut off, the next one goes on with it
	descents int       // of this attempt and of those that it goes on with
	mass     []float64 // by item: size times lifetime
}

// newCoreSearch returns nil if what spans a window exceeds the ceiling.
func newCoreSearch(g *greedy, inner, outer *window, ceiling int64) *coreSearch {
	c := &coreSearch{g: g, outer: outer}
	for _, i := range outer.spanning {
		c.bottom += g.p.Buffers[i].Size
	}
	c.ceiling = ceiling - c.bottom
	clipped := func(i int32, w *window) Buffer {
		b := g.p.Buffers[i]
		b.Lower, b.Upper = int64(max(g.f.l[i], w.lo)), int64(min(g.f.r[i], w.hi))
		return b
	}
	number := make([]int32, len(g.p.Buffers)) // in ring, from 1
	for k, i := range outer.core {
		number[i] = int32(k) + 1
		c.ring.Buffers = append(c.ring.Buffers, clipped(i, outer))
	}
	for _, i := range inner.spanning {
		if k := number[i] - 1; k >= 0 {
			c.ring.Buffers[k].Pinned, c.ring.Buffers[k].Offset = true, c.base
			c.base += g.p.Buffers[i].Size
		}
	}
	if c.base > c.ceiling {
		return nil
	}
	var core Problem
	for _, i := range inner.core {
		core.Buffers = append(core.Buffers, clipped(i, inner))
		c.back = append(c.back, number[i]-1)
	}
	c.m = newModel(&core)
	c.units = (c.ceiling - c.base) / c.m.unit
	for _, k := range c.m.buffer {
		i := inner.core[k]
		c.mass = append(c.mass, float64(g.p.Buffers[i].Size)*float64(g.f.r[i]-g.f.l[i]))
	}
	return c
}

// try makes one attempt, or goes on with the last one if that was cut off. It returns the whole problem with the buffers of the wider
// window pinned beneath the ceiling, nil if it found no such places, and the work
// that it took.
func (c *coreSearch) try(seed uint64) (p *Problem, work int) {
	if c.s == nil {
		c.s = newSearcher(context.Background(), c.m)
	}
	s := c.s
	if !c.cut {
		clear(s.refuted)
		s.bump, s.rng, s.rule, c.descents = 1, mix(seed), lowestTight, 0
		for k := range c.mass {
			it := &c.m.items[k]
			s.mass[it.id] = float64(it.size) * math.Sqrt(float64(it.r-it.l))
			s.weight[k] = 1e-9 * c.mass[k]
		}
	}
	s.steps, s.until = 0, coreSteps
	out := cutOff
	for ; out == cutOff && s.steps < s.until; c.descents++ {
		limit := float64(len(c.m.items)+spareNodes) * (1 + descentGrowth*float64(c.descents))
		out = s.descend(c.units, int64(limit))
		s.steps++
	}
	c.cut = out == cutOff
	if out != found {
		return nil, int(s.steps)
	}
	for k, i := range c.m.buffer {
		b := &c.ring.Buffers[c.back[i]]
		b.Pinned, b.Offset = true, c.base+s.at[k]*c.m.unit
	}
	h := newGreedy(&c.ring, c.ceiling)
	if work = int(s.steps) + h.around(ringVisits, bySize); h.height > c.ceiling {
		return nil, work
	}
	p = &Problem{Buffers: slices.Clone(c.g.p.Buffers)}
	at := int64(0)
	for _, i := range c.outer.spanning {
		p.Buffers[i].Pinned, p.Buffers[i].Offset = true, at
		at += p.Buffers[i].Size
	}
	for k, i := range c.outer.core {
		p.Buffers[i].Pinned, p.Buffers[i].Offset = true, c.bottom+h.best[k]
	}
	return p, work
}

// around places what is not pinned, greedily in the given orders and by a repair of
// each that takes up to so many visits, and returns the work that it took.
func (g *greedy) around(visits int, orders ...placementOrder) int {
	var r *repairer
	at := make([]int64, len(g.p.Buffers))
	for _, o := range orders {
		if g.try(o, true) {
			break
		}
		if r == nil {
			r = newRepairer(g.f)
		}
		copy(at, g.f.at)
		if r.descend(at, g.goal, r.work+visits); g.keep(at) {
			break
		}
	}
	work := fitterWork * g.f.work
	if r != nil {
		work += r.work
	}
	return work
}
