package pack

import (
	"cmp"
	"context"
	"slices"
)

// A placementOrder ranks buffers for greedy placement.
type placementOrder int

const (
	bySize  placementOrder = iota // largest first
	byArea                        // largest size times lifetime first
	byLife                        // longest lifetime first
	byTime                        // earliest first, as an allocator at run time would
	byClass                       // all but short-lived ones first, and within both by size
	byEnd                         // first what lives to the end, the longest first, and as high as the goal allows
)

// A fitter places buffers greedily.
type fitter struct {
	ctx      context.Context
	p        *Problem
	ids      []int32 // buffers to place: neither pinned nor empty
	pinned   []int32
	l, r     []int32 // columns by buffer
	order    []int32
	at       []int64 // offsets by buffer, a placement if it is complete
	complete bool
	tree     spanTree
	lists    [][]span // scratch: occupied ranges that one query overlaps
	work     int
	limit    int   // of the work for one placement of all
	lowest   bool  // take the lowest gap that fits, not the smallest
	top      int64 // beneath which buffers that live to the end go as high as possible; 0: they do not
	cols     int32 // number of columns
	short    int64 // columns up to which a life is short, see byClass
}

func newFitter(ctx context.Context, p *Problem) *fitter {
	n := len(p.Buffers)
	f := &fitter{ctx: ctx, p: p, limit: orderWork, l: make([]int32, n), r: make([]int32, n), at: make([]int64, n)}
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
	f.cols = cols
	f.tree.init(int(cols))
	f.short = max(20, int64(cols)/256)
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
	last := func(i int32) int64 {
		if f.r[i] == f.cols {
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
			c = cmp.Compare(life(b), life(a))
		case byTime:
			c = int(f.l[a] - f.l[b])
		case byClass:
			c = cmp.Compare(class(b), class(a))
		case byEnd:
			if c = cmp.Compare(last(b), last(a)); c == 0 && last(a) == 1 {
				c = cmp.Compare(life(b), life(a))
			}
		}
		if c == 0 {
			c = cmp.Compare(y.Size, x.Size)
		}
		if c == 0 {
			c = cmp.Compare(life(b), life(a))
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

// placeAll places every buffer in order and reports whether it did: it ends when that
// takes more work than the limit allows, and with the context.
func (f *fitter) placeAll() bool {
	f.complete = false
	until := f.work + f.limit
	f.tree.clear()
	for _, i := range f.pinned {
		f.put(i, f.at[i])
	}
	for k, i := range f.order {
		if f.work > until || k&63 == 0 && f.ctx.Err() != nil {
			return false
		}
		f.put(i, f.find(i))
	}
	f.complete = true
	return true
}

func (f *fitter) put(i int32, at int64) {
	f.at[i] = at
	f.work += f.tree.add(int(f.l[i]), int(f.r[i]), span{at, at + f.p.Buffers[i].Size})
}

// find returns the start of the smallest gap that takes buffer i, the lowest
// among equals, or of the lowest that does if f.lowest. For a buffer that lives to
// the end and a top, it returns the highest place beneath the top if there is one.
func (f *fitter) find(i int32) int64 {
	b := &f.p.Buffers[i]
	f.lists = f.tree.collect(f.lists[:0], int(f.l[i]), int(f.r[i]))
	best, bestGap := int64(-1), int64(infinity)
	high := f.top > 0 && f.r[i] == f.cols
	for start := int64(0); ; {
		gap := f.nextGap(start)
		at := alignUp(gap.lo, b.align())
		if under := min(gap.hi, f.top) - b.Size; high && under >= at {
			best = under - under%b.align()
		} else if !high && gap.hi-at >= b.Size && gap.hi-gap.lo < bestGap {
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
