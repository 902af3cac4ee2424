package pack

import (
	"math/bits"
	"slices"
)

// maxLifts bounds the iterations of rule (1) in one propagation.
const maxLifts = 6

// itemSteps is what handling one item in propagation costs beside its columns.
const itemSteps = 4

// propagate recomputes the columns [from, to) of the frame, whose items
// changed there, and whatever follows from them. It returns false if the frame
// is refuted, having made the buffers of the offending column heavier.
func (s *searcher) propagate(f *frame, from, to int32) bool {
	for iteration := 0; ; iteration++ {
		for t := from; t < to; t++ {
			*f.column(t) = column{minTop: infinity, least: infinity}
		}
		for i := range f.items {
			it := &f.items[i]
			if it.l >= to {
				break
			}
			if it.r <= from {
				continue
			}
			top := it.lo + it.size
			if top > f.ceil {
				s.blame(f, it.l)
				return false
			}
			cols := f.cols[max(it.l, from)-f.left : min(it.r, to)-f.left]
			s.steps += int64(len(cols)) + itemSteps
			for t := range cols {
				cols[t].minTop = min(cols[t].minTop, top)
			}
		}
		if iteration == maxLifts {
			break
		}
		l, r := s.lift(f, from, to)
		if l >= r {
			break
		}
		from, to = min(from, l), max(to, r)
	}
	return s.load(f, from, to)
}

// lift applies rule (1) to the items that overlap [from, to). It returns the
// columns whose items rose, empty if none did.
func (s *searcher) lift(f *frame, from, to int32) (l, r int32) {
	l, r = to, from
	for i := range f.items {
		it := &f.items[i]
		if it.l >= to {
			break
		}
		if it.r <= from || it.lo == it.real || it.x {
			continue
		}
		rest := int64(infinity)
		for _, c := range f.cols[it.l-f.left : it.r-f.left] {
			rest = min(rest, c.minTop)
		}
		if rest > it.lo {
			// rest counts the item itself and so is at most its top.
			if s.m.align != nil {
				rest = alignUp(rest, s.m.align[it.id])
			}
			it.raise(rest)
			l, r = min(l, it.l), max(r, it.r)
		}
	}
	return l, r
}

// load applies rule (2) to the columns [from, to) and completes them. Keys
// hold lo above an index, so that one sort of integers orders the items.
func (s *searcher) load(f *frame, from, to int32) bool {
	shift := bits.Len(uint(len(f.items)))
	s.keys = s.keys[:0]
	for i := range f.items {
		it := &f.items[i]
		if it.l >= to {
			break
		}
		if it.r > from {
			s.keys = append(s.keys, uint64(it.lo)<<shift|uint64(i))
		}
	}
	slices.Sort(s.keys)
	s.steps += itemSteps * int64(len(f.items))
	for k := len(s.keys) - 1; k >= 0; k-- {
		it := &f.items[s.keys[k]&(1<<shift-1)]
		room := f.ceil - it.lo
		first := max(it.l, from)
		cols := f.cols[first-f.left : min(it.r, to)-f.left]
		for t := range cols {
			c := &cols[t]
			c.load += it.size
			if c.load > room || s.m.colPins != nil && c.load+s.pinned(first+int32(t), it.lo, f.ceil) > room {
				s.blame(f, first+int32(t))
				return false
			}
			if c.least != it.lo {
				c.least, c.count = it.lo, 0
			}
			c.count++
		}
	}
	return true
}

// pinned returns the pinned addresses of column t in [lo, ceil).
func (s *searcher) pinned(t int32, lo, ceil int64) int64 {
	if len(s.m.colPins[t]) == 0 {
		return 0
	}
	return s.m.pinnedAbove(t, lo) - s.m.pinnedAbove(t, ceil)
}

// blame makes the unplaced buffers of column t heavier, large and long ones
// more, since they are harder to place later. Later conflicts count more, by a
// factor that halves the weight of old ones in about 700.
func (s *searcher) blame(f *frame, t int32) {
	for i := range f.items {
		if it := &f.items[i]; it.l <= t && t < it.r {
			s.weight[it.id] += s.bump * s.mass[it.id]
		}
	}
	if s.bump *= 1.001; s.bump > 1e100 {
		for i := range s.weight {
			s.weight[i] *= 1e-100
		}
		s.bump *= 1e-100
	}
}

// narrow drops the columns whose items all live in a neighbouring column too,
// which more and more do as items are placed. It renumbers the columns of the
// frame from 0; nothing but pinned ranges knows them by number.
func (s *searcher) narrow(f *frame) {
	n := len(f.cols)
	s.marks = slices.Grow(s.marks[:0], n+1)[:n+1]
	clear(s.marks)
	const start, end = 1, 2
	for i := range f.items {
		s.marks[f.items[i].l-f.left] |= start
		s.marks[f.items[i].r-f.left] |= end
	}
	s.renumber = slices.Grow(s.renumber[:0], 2*(n+1))[:2*(n+1)]
	l, r := s.renumber[:n+1], s.renumber[n+1:]
	cols, grew, full := int32(0), false, 0
	for t, m := range s.marks {
		if m&end != 0 && grew {
			// The column of the last start has all that live since the last end.
			f.cols[cols] = f.cols[full]
			cols++
			grew = false
		}
		r[t] = cols
		if m&start != 0 {
			l[t], grew, full = cols, true, t
		}
	}
	if int(cols) == n {
		return
	}
	for i := range f.items {
		it := &f.items[i]
		it.l, it.r = l[it.l-f.left], r[it.r-f.left]
	}
	f.left, f.cols = 0, f.cols[:cols]
}
