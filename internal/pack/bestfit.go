package pack

import (
	"math"
	"slices"
)

// bestFitWork bounds what BestFit spends on orders, in span visits and list
// insertions; a new order is begun only below it. repairWork, and repairEach for
// every buffer, bound what it spends on repairs, in visits of rectangles. Each
// comes to about a tenth of a second.
const (
	bestFitWork    = 4_000_000
	repairWork     = 40_000_000
	repairEach     = 4000
	repairedOrders = 3
	crowded        = 24 // a column is full when less than one part in so many is free
)

// A placementOrder ranks buffers for greedy placement.
type placementOrder int

const (
	bySize  placementOrder = iota // largest first
	byArea                        // largest size times lifetime first
	byLife                        // longest lifetime first
	byTime                        // earliest first, as an allocator at run time would
	byClass                       // all but short-lived ones first, and within both by size
)

// BestFit places the buffers of p one after another, each into the smallest or
// into the lowest gap that takes it between the already placed ones that it
// conflicts with, and returns the best of several orders: by size, by
// lifetime, by area, by time, and then orders in which the buffers that stuck
// out move to the front (squeaky-wheel optimisation). The placements that the
// first orders give are repaired (see repair.go). It stops early when the lower
// bound is met, and begins nothing new after a fixed effort.
//
// The occupied addresses of a time range come from a segment tree over the
// columns of the problem whose nodes keep unions of address ranges. Such
// unions are short where the arena is dense, so an order costs about
// n log n list visits however many buffers are live at once.
//
// It returns offsets by buffer and the height in bytes. The only errors are
// those of [Problem.Check] and pinned buffers that overlap ([*OverlapError]).
func BestFit(p Problem) (offsets []int64, height int64, err error) {
	if err := p.Check(); err != nil {
		return nil, 0, err
	}
	if err := checkPins(&p); err != nil {
		return nil, 0, err
	}
	offsets, height = bestFit(&p, newBound(&p).height)
	return offsets, height, nil
}

// checkPins reports two pinned buffers that conflict and share bytes.
func checkPins(p *Problem) error {
	pinned := Problem{}
	index := make([]int, len(p.Buffers))
	back := []int{}
	offsets := []int64{}
	for i, b := range p.Buffers {
		index[i] = -1
		if b.Pinned {
			index[i] = len(pinned.Buffers)
			pinned.Buffers = append(pinned.Buffers, b)
			back = append(back, i)
			offsets = append(offsets, b.Offset)
		}
	}
	for _, c := range p.Conflicts {
		if a, b := index[c[0]], index[c[1]]; a >= 0 && b >= 0 {
			pinned.Conflicts = append(pinned.Conflicts, [2]int{a, b})
		}
	}
	err := Verify(pinned, offsets, infinity)
	if o, ok := err.(*OverlapError); ok {
		o.A, o.B = back[o.A], back[o.B]
	}
	return err
}

// bestFit is BestFit for a checked problem. It stops at height goal.
func bestFit(p *Problem, goal int64) ([]int64, int64) {
	g := &greedy{p: p, goal: goal, f: newFitter(p), best: make([]int64, len(p.Buffers)), height: infinity}
	if g.try(bySize, true) {
		return g.best, g.height
	}
	rest, back, base := p.withoutSpanning()
	if base == 0 {
		g.more()
		return g.best, g.height
	}
	h := &greedy{p: rest, goal: goal - base, f: newFitter(rest), best: make([]int64, len(rest.Buffers)), height: infinity}
	h.f.work = g.f.work
	if !h.try(bySize, true) {
		h.more()
	}
	if h.height+base >= g.height {
		return g.best, g.height
	}
	next := int64(0)
	for i, b := range p.Buffers {
		g.best[i] = 0
		if len(back) > 0 && back[0] == i {
			g.best[i] = base + h.best[len(h.best)-len(back)]
			back = back[1:]
		} else if b.Size > 0 {
			g.best[i] = next
			next += b.Size
		}
	}
	return g.best, h.height + base
}

// greedy is the state of bestFit: the best placement so far, and what finds others.
type greedy struct {
	p      *Problem
	goal   int64
	f      *fitter
	best   []int64
	height int64
}

// keep keeps a placement if it is the best, and says whether to stop.
func (g *greedy) keep(at []int64) (stop bool) {
	if h := g.p.Height(at); h < g.height {
		copy(g.best, at)
		g.height = h
	}
	return g.height <= g.goal
}

// try places all buffers in an order.
func (g *greedy) try(o placementOrder, lowest bool) (stop bool) {
	g.f.lowest = lowest
	g.f.sort(o)
	g.f.placeAll()
	return g.keep(g.f.at)
}

// more goes on where one order did not do: it tries the other orders and repairs
// what the first few give; then it goes for the crowded part alone, or else for
// what sticks out.
func (g *greedy) more() {
	r := newRepairer(g.f)
	effort := min(repairWork, repairEach*len(g.f.ids))
	at := slices.Clone(g.f.at)
	for k, pass := range []struct {
		order  placementOrder
		lowest bool
	}{{bySize, true}, {byClass, true}, {byLife, true}, {bySize, false}, {byArea, true}, {byArea, false}, {byTime, false}} {
		if g.f.work >= bestFitWork {
			break
		}
		if k > 0 && g.try(pass.order, pass.lowest) {
			return
		}
		if k < repairedOrders {
			copy(at, g.f.at)
			r.descend(at, g.goal, r.work+effort/8)
			if g.keep(at) {
				return
			}
		}
	}
	if g.crowd(effort) {
		return
	}
	// Squeaky wheel: what sticks out goes first the next time.
	g.f.sort(bySize)
	copy(g.f.at, g.best)
	for k := 0; k < 20 && g.f.work < bestFitWork; k++ {
		g.f.lowest = k%2 == 0
		g.f.promote(g.goal)
		g.f.placeAll()
		if g.keep(g.f.at) {
			return
		}
	}
	copy(at, g.best)
	r.descend(at, g.goal, effort)
	g.keep(at)
}

// crowd repairs the buffers that live where the arena is fullest by themselves,
// which takes a fraction of the effort that a step among all takes, and then fits
// the others around them. It returns false where that gains nothing, and does not
// try where most buffers live there.
func (g *greedy) crowd(effort int) bool {
	f := g.f
	load := make([]int64, f.tree.size+1) // by column
	for _, i := range append(slices.Clone(f.ids), f.pinned...) {
		load[f.l[i]] += g.p.Buffers[i].Size
		load[f.r[i]] -= g.p.Buffers[i].Size
	}
	full := make([]int32, len(load)+1) // how many full columns are before a column
	for c, live := 0, int64(0); c < len(load); c++ {
		full[c+1] = full[c]
		if live += load[c]; live > g.goal/crowded*(crowded-1) {
			full[c+1]++
		}
	}
	var sub Problem
	var back []int32
	inside := make([]bool, len(g.p.Buffers))
	for i := range g.p.Buffers {
		if b := &g.p.Buffers[i]; b.Size > 0 && full[f.r[i]] > full[f.l[i]] {
			sub.Buffers = append(sub.Buffers, *b)
			back = append(back, int32(i))
			inside[i] = true
		}
	}
	if len(back) > len(f.ids)/2 || len(g.p.Conflicts) > 0 {
		return false
	}
	h := &greedy{p: &sub, goal: g.goal, f: newFitter(&sub), best: make([]int64, len(sub.Buffers)), height: infinity}
	at := make([]int64, len(sub.Buffers))
	for k, i := range back {
		at[k] = g.best[i]
	}
	h.keep(at)
	r := newRepairer(h.f)
	r.descend(at, g.goal, effort)
	if h.keep(at); h.height >= g.height {
		return false
	}
	f.lowest = true
	f.sort(bySize)
	f.tree.clear()
	for _, i := range f.pinned {
		f.put(i, f.at[i])
	}
	for k, i := range back {
		if !g.p.Buffers[i].Pinned {
			f.put(i, h.best[k])
		}
	}
	for _, i := range f.order {
		if !inside[i] {
			f.put(i, f.find(i))
		}
	}
	g.keep(f.at)
	return true
}

// withoutSpanning takes out the buffers that live beside all others. They may as
// well lie at the bottom: in any placement, what is beneath them can change places
// with them. It returns the rest, the indices of the rest, and the bytes that the
// others take; 0 if there are none, or where pins, extra conflicts, mixed
// alignments or sizes that end between multiples of it would make that wrong.
func (p *Problem) withoutSpanning() (rest *Problem, back []int, base int64) {
	if len(p.Conflicts) > 0 {
		return nil, nil, 0
	}
	start, end, align := int64(math.MinInt64), int64(math.MaxInt64), int64(0) // latest start, earliest end
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Size == 0 {
			continue
		}
		if align == 0 {
			align = b.align()
		}
		if b.Pinned || b.align() != align || b.Size%align != 0 || b.Lower == b.Upper {
			return nil, nil, 0
		}
		start, end = max(start, b.Lower), min(end, b.Upper)
	}
	rest = &Problem{}
	for i, b := range p.Buffers {
		switch {
		case b.Size == 0:
		case b.Lower < end && b.Upper > start:
			base += b.Size
		default:
			rest.Buffers = append(rest.Buffers, b)
			back = append(back, i)
		}
	}
	return rest, back, base
}

// A fitter places buffers greedily.
type fitter struct {
	p      *Problem
	ids    []int32 // buffers to place: neither pinned nor empty
	pinned []int32
	l, r   []int32 // columns by buffer
	extra  [][]int32
	order  []int32
	at     []int64 // offsets by buffer
	placed []bool
	tree   spanTree
	lists  [][]span // scratch: occupied ranges met by one query
	own    []span   // scratch: ranges of extra conflicts
	work   int
	lowest bool  // take the lowest gap that fits, not the smallest
	short  int64 // columns up to which a life is short, see byClass
}

func newFitter(p *Problem) *fitter {
	n := len(p.Buffers)
	f := &fitter{p: p, l: make([]int32, n), r: make([]int32, n), at: make([]int64, n), placed: make([]bool, n)}
	var all []int32
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Pinned {
			f.at[i] = b.Offset
		}
		if b.Size == 0 {
			continue
		}
		all = append(all, int32(i))
		if b.Pinned {
			f.pinned = append(f.pinned, int32(i))
		} else {
			f.ids = append(f.ids, int32(i))
		}
	}
	l, r, cols := columnize(p, all)
	for k, i := range all {
		f.l[i], f.r[i] = l[k], r[k]
	}
	f.tree.init(int(cols))
	f.short = max(20, int64(cols)/256)
	if len(p.Conflicts) > 0 {
		f.extra = make([][]int32, n)
		for _, c := range p.Conflicts {
			f.extra[c[0]] = append(f.extra[c[0]], int32(c[1]))
			f.extra[c[1]] = append(f.extra[c[1]], int32(c[0]))
		}
	}
	f.order = slices.Clone(f.ids)

	return f
}

// sort puts the buffers in an order; ties go by size, then by index.
func (f *fitter) sort(o placementOrder) {
	life := func(i int32) int64 { return int64(f.r[i] - f.l[i]) }
	class := func(i int32) int64 {
		if life(i) > f.short {
			return 1
		}
		return 0
	}
	slices.SortFunc(f.order, func(a, b int32) int {
		x, y := &f.p.Buffers[a], &f.p.Buffers[b]
		c := 0
		switch o {
		case byArea:
			// Sizes reach 2^56 and lifetimes 2^31, hence floats.
			u, v := float64(x.Size)*float64(life(a)), float64(y.Size)*float64(life(b))
			switch {
			case u > v:
				c = -1
			case u < v:
				c = 1
			}
		case byLife:
			c = cmp64(life(b), life(a))
		case byTime:
			c = int(f.l[a] - f.l[b])
		case byClass:
			c = cmp64(class(b), class(a))
		}
		if c == 0 {
			c = cmp64(y.Size, x.Size)
		}
		if c == 0 {
			c = cmp64(life(b), life(a))
		}
		if c == 0 {
			c = int(a - b)
		}
		return c
	})
}

// promote moves the buffers that end above goal to the front of the order.
func (f *fitter) promote(goal int64) {
	out := make([]int32, 0, len(f.order))
	for _, high := range [2]bool{true, false} {
		for _, i := range f.order {
			if (f.at[i]+f.p.Buffers[i].Size > goal) == high {
				out = append(out, i)
			}
		}
	}
	f.order = out
}

// placeAll places every buffer in order.
func (f *fitter) placeAll() {
	f.tree.clear()
	clear(f.placed)
	for _, i := range f.pinned {
		f.put(i, f.at[i])
	}
	for _, i := range f.order {
		f.put(i, f.find(i))
	}
}

func (f *fitter) put(i int32, at int64) {
	f.at[i] = at
	f.placed[i] = true
	f.work += f.tree.add(int(f.l[i]), int(f.r[i]), span{at, at + f.p.Buffers[i].Size})
}

// find returns the start of the smallest gap that takes buffer i, the lowest
// among equals, or of the lowest that does if f.lowest.
func (f *fitter) find(i int32) int64 {
	b := &f.p.Buffers[i]
	f.lists = f.tree.collect(f.lists[:0], int(f.l[i]), int(f.r[i]))
	if f.extra != nil {
		f.own = f.own[:0]
		for _, o := range f.extra[i] {
			if f.placed[o] {
				f.own = append(f.own, span{f.at[o], f.at[o] + f.p.Buffers[o].Size})
			}
		}
		if f.own = union(f.own); len(f.own) > 0 {
			f.lists = append(f.lists, f.own)
		}
	}
	best, bestGap := int64(-1), int64(infinity)
	for start := int64(0); ; {
		gap := f.nextGap(start)
		at := alignUp(gap.lo, b.align())
		if gap.hi-at >= b.Size && gap.hi-gap.lo < bestGap {
			best, bestGap = at, gap.hi-gap.lo
			if gap.hi-gap.lo == b.Size || f.lowest {
				break
			}
		}
		if gap.hi == infinity {
			if best < 0 {
				best = at
			}
			break
		}
		start = gap.hi
	}
	return best
}

// nextGap returns the first gap of the collected lists at or above start, and
// drops the spans below it from the lists. The last gap ends at infinity.
func (f *fitter) nextGap(start int64) span {
	for again := true; again; {
		again = false
		for k := range f.lists {
			l := f.lists[k]
			f.work++
			for len(l) > 0 && l[0].lo <= start {
				if l[0].hi > start {
					start = l[0].hi
					again = true
				}
				l = l[1:]
				f.work++
			}
			f.lists[k] = l
		}
	}
	end := int64(infinity)
	live := f.lists[:0]
	for _, l := range f.lists {
		if len(l) > 0 {
			end = min(end, l[0].lo)
			live = append(live, l)
		}
	}
	f.lists = live
	return span{start, end}
}

// A spanTree is a segment tree over columns that answers which addresses are
// occupied anywhere in a range of columns.
type spanTree struct {
	size  int
	cover [][]span // by node: union of what was added for the whole node
	below [][]span // by node: union of what was added for any part of it
}

func (t *spanTree) init(cols int) {
	t.size = 1
	for t.size < cols {
		t.size *= 2
	}
	t.cover = make([][]span, 2*t.size)
	t.below = make([][]span, 2*t.size)
}

func (t *spanTree) clear() {
	for i := range t.cover {
		t.cover[i] = t.cover[i][:0]
		t.below[i] = t.below[i][:0]
	}
}

// collect appends the lists whose union is what is occupied in [l, r).
func (t *spanTree) collect(lists [][]span, l, r int) [][]span {
	add := func(s []span) {
		if len(s) > 0 {
			lists = append(lists, s)
		}
	}
	a, b := l+t.size, r-1+t.size
	for u, v := a, b+1; u < v; u, v = u/2, v/2 {
		if u&1 == 1 {
			add(t.below[u])
			u++
		}
		if v&1 == 1 {
			v--
			add(t.below[v])
		}
	}
	// Whatever covers an ancestor of either end covers a column of the
	// range; ancestors of other columns are ancestors of these or inside.
	for a /= 2; a > 0; a /= 2 {
		add(t.cover[a])
	}
	for b /= 2; b > 0; b /= 2 {
		if t.shared(l, b) {
			break // from here on the two paths are one
		}
		add(t.cover[b])
	}
	return lists
}

// shared says whether node is an ancestor of column l.
func (t *spanTree) shared(l, node int) bool {
	a := l + t.size
	for a > node {
		a /= 2
	}
	return a == node
}

// add marks s as occupied in columns [l, r) and returns the work it took.
func (t *spanTree) add(l, r int, s span) int {
	work := 0
	a, b := l+t.size, r-1+t.size
	for u, v := a, b+1; u < v; u, v = u/2, v/2 {
		if u&1 == 1 {
			t.cover[u] = insert(t.cover[u], s)
			t.below[u] = insert(t.below[u], s)
			work += 2
			u++
		}
		if v&1 == 1 {
			v--
			t.cover[v] = insert(t.cover[v], s)
			t.below[v] = insert(t.below[v], s)
			work += 2
		}
	}
	for k := 1; a>>k > 0; k++ {
		x, y := a>>k, b>>k
		// Nodes inside the range are covered, or below a covered one.
		if x<<k-t.size < l || (x+1)<<k-t.size > r {
			t.below[x] = insert(t.below[x], s)
			work++
		}
		if y != x && (y<<k-t.size < l || (y+1)<<k-t.size > r) {
			t.below[y] = insert(t.below[y], s)
			work++
		}
	}
	return work
}

// insert adds s to a sorted list of disjoint spans that do not touch.
func insert(l []span, s span) []span {
	// The first span that ends at or above the start of s.
	i, j := 0, len(l)
	for i < j {
		if h := int(uint(i+j) / 2); l[h].hi < s.lo {
			i = h + 1
		} else {
			j = h
		}
	}
	for j < len(l) && l[j].lo <= s.hi {
		s.lo, s.hi = min(s.lo, l[j].lo), max(s.hi, l[j].hi)
		j++
	}
	if i == j {
		return slices.Insert(l, i, s)
	}
	l[i] = s
	if i+1 < j {
		l = append(l[:i+1], l[j:]...)
	}
	return l
}
