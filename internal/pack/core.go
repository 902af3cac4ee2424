package pack

import (
	"cmp"
	"slices"
	"sort"
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
// windows of other widths in turn, until a placement works out. The ceiling is the
// goal at first; if a few attempts fail it rises part of the way to the height that
// is known already, and what effort is left when that succeeds goes to the goal
// again.

// Widths of windows, in buffers that come and go, and efforts. Work counts steps of
// the search, visits of rectangles, and fitterWork for each of a fitter's; ten
// million take 25 to 35 ms.
const (
	ringBuffers = 320        // of the wider window
	coreRounds  = 16         // attempts in each window at each ceiling
	coreSteps   = 2_000_000  // of the search for one solution
	coreWork    = 68_000_000 // in all
	coreEach    = 10_000     // for each buffer, up to coreWork
	lookWork    = 8_000_000  // at each ceiling before the last
	fitterWork  = 8
	ringVisits  = 100_000   // of the repair in the wider window, for each solution
	fullVisits  = 2_000_000 // of the repair of all, for each order
)

// coreWidths are the widths of the windows that are searched in turn.
var coreWidths = []int{144, 192, 256}

// window is a range of columns [lo, hi) with what lives there.
type window struct {
	lo, hi   int32
	spanning []int32 // buffers that live at both ends
	core     []int32 // other buffers
}

// core places the buffers from the fullest moment outwards and reports whether that
// gave a placement below one of its ceilings. It does not try with pins or
// mixed alignments, which a stack would have to respect.
func (g *greedy) core() bool {
	if len(g.f.pinned) > 0 || len(g.f.ids) == 0 {
		return false
	}
	align := g.p.Buffers[g.f.ids[0]].align()
	for _, i := range g.f.ids {
		if b := &g.p.Buffers[i]; b.align() != align || b.Size%align != 0 {
			return false
		}
	}
	windows := g.windows(append(slices.Clone(coreWidths), ringBuffers))
	ring := windows[len(windows)-1]
	windows = windows[:len(windows)-1]
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
		for n := 0; n < coreRounds*len(cores) && work > until && g.f.ctx.Err() == nil; n++ {
			seed++
			pinned, spent := cores[int(seed)%len(cores)].try(seed)
			work -= spent
			if pinned == nil {
				continue
			}
			h := newGreedy(g.f.ctx, pinned, ceiling)
			h.f.limit = coreWork
			work -= h.around(fullVisits, bySize, byEnd, byClass)
			if h.height < infinity {
				g.keep(h.best)
			}
			if g.height <= ceiling {
				return true
			}
		}
		return false
	}
	if beneath(g.goal, lookWork) {
		return true
	}
	for _, part := range []int64{8, 4, 2} {
		if beneath(g.goal+(known-g.goal)/part, lookWork) {
			beneath(g.goal, work)
			return true
		}
	}
	return false
}

// windows returns, for each of the widths, the window of the most columns, by load,
// in which at most so many buffers come or go. O((columns + buffers) log columns)
// for each width.
func (g *greedy) windows(widths []int) []*window {
	f := g.f
	load := make([]int64, f.tree.size+1)
	for _, i := range f.ids {
		load[f.l[i]] += g.p.Buffers[i].Size
		load[f.r[i]] -= g.p.Buffers[i].Size
	}
	fullest := make([]int32, f.tree.size) // columns by load
	for c := range fullest {
		fullest[c] = int32(c)
		load[c+1] += load[c]
	}
	slices.SortFunc(fullest, func(a, b int32) int {
		if load[a] != load[b] {
			return cmp.Compare(load[b], load[a])
		}
		return int(a - b)
	})
	lo, hi := make([]int32, len(fullest)), make([]int32, len(fullest)) // of the window of the first columns
	for k, c := range fullest {
		lo[k], hi[k] = c, c+1
		if k > 0 {
			lo[k], hi[k] = min(c, lo[k-1]), max(c+1, hi[k-1])
		}
	}
	come := func(lo, hi int32) (n int) {
		for _, i := range f.ids {
			if l, r := f.l[i], f.r[i]; l < hi && lo < r && (l > lo || r < hi) {
				n++
			}
		}
		return n
	}
	var out []*window
	add := func(lo, hi int32) {
		for _, w := range out {
			if w.lo == lo && w.hi == hi {
				return
			}
		}
		out = append(out, g.window(lo, hi))
	}
	slices.Sort(widths)
	for _, width := range widths {
		k := sort.Search(len(fullest), func(k int) bool {
			return come(lo[k], hi[k]) > width
		})
		k = max(k-1, 0)
		if come(lo[k], hi[k]) >= width/2 {
			add(lo[k], hi[k])
			continue
		}
		// Columns far apart are equally full: go the same way to either side.
		half := int32(sort.Search(len(fullest), func(h int) bool {
			return come(max(0, fullest[0]-int32(h)), min(int32(len(fullest)), fullest[0]+int32(h)+1)) > width
		})) - 1
		add(max(0, fullest[0]-half), min(int32(len(fullest)), fullest[0]+half+1))
	}
	first, last := out[0].lo, out[0].hi
	for _, w := range out {
		first, last = min(first, w.lo), max(last, w.hi)
	}
	out[len(out)-1] = g.window(first, last)
	return out
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
	g       *greedy
	outer   *window
	ring    Problem   // buffer k is core buffer k of the wider window
	bottom  int64     // bytes of what spans the wider window
	ceiling int64     // of ring
	m       *model    // of the core of the narrower window
	s       *searcher // of m, made by the first attempt
	back    []int32   // by buffer of m's problem: its number in ring
	base    int64     // where the core begins in ring, in bytes
	units   int64     // of the model between base and ceiling
	mass    []float64 // by item: size times lifetime
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

// try makes one attempt. It returns the whole problem with the buffers of the wider
// window pinned beneath the ceiling, nil if it found no such places, and the work
// that it took.
func (c *coreSearch) try(seed uint64) (p *Problem, work int) {
	if c.s == nil {
		c.s = newSearcher(c.g.f.ctx, c.m)
	}
	s := c.s
	clear(s.refuted)
	s.steps, s.bump = 0, 1
	s.rng, s.rule, s.until = mix(seed), lowestTight, coreSteps
	for k, mass := range c.mass {
		s.mass[k], s.weight[k] = mass, 1e-9*mass
	}
	out := cutOff
	for d := 0; out == cutOff && s.steps < s.until; d++ {
		limit := float64(len(c.m.items)+spareNodes) * (1 + descentGrowth*float64(d))
		out = s.descend(c.units, int64(limit))
		s.steps++
	}
	if out != found {
		return nil, int(s.steps)
	}
	for k, i := range c.m.buffer {
		b := &c.ring.Buffers[c.back[i]]
		b.Pinned, b.Offset = true, c.base+s.at[k]*c.m.unit
	}
	h := newGreedy(c.g.f.ctx, &c.ring, c.ceiling)
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
		if !g.f.complete {
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
