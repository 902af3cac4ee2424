package program

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
)

// window is the set of bytes of the arena that a tensor covers: runs of equal
// length, whose starts form nested arithmetic progressions.
type window struct {
	lo, hi int64 // first byte and one past the last; equal if there is none
	run    int64 // bytes of each run
	levels []level
	// ragged says that the tensor's strides do not nest (a sliding window, say);
	// then run and levels are meaningless and every byte from lo to hi counts.
	ragged bool
}

// level repeats what is inside it count times, stride bytes apart. Levels are
// listed from the inside out, and a level's stride exceeds the extent of what is
// inside, so runs are disjoint and ascend with their index.
type level struct {
	stride, count int64
}

// maxRuns bounds the runs that a comparison of two windows looks at; beyond, they
// count as overlapping.
const maxRuns = 1 << 18

// dense reports whether the window has no gaps.
func (w *window) dense() bool { return !w.ragged && len(w.levels) == 0 }

// window computes the bytes of a tensor: without strides, those of its greatest
// extent, else those of symbols at their bounds. What the tensor covers at run time is
// a prefix of the former or a subset of the latter.
func (p *Program) window(t *Tensor) (window, error) {
	b := &p.Buffers[t.Buffer]
	fail := func() (window, error) {
		return window{}, fmt.Errorf("a tensor reaches outside of buffer %%%s", b.Name)
	}
	w := window{lo: b.Offset + t.Offset, run: int64(t.DType.Size())}
	w.hi = w.lo
	if t.Strides == nil {
		n, ok := p.Span(t)
		if !ok || t.Offset < 0 || n > b.Size-t.Offset {
			return fail()
		}
		w.hi += n
		w.run = n
		return w, nil
	}
	if slices.ContainsFunc(t.Strides, func(s dim.Dim) bool { _, ok := s.Const(); return !ok }) {
		n, ok := p.Span(t)
		if !ok || t.Offset < 0 || n > b.Size-t.Offset {
			return fail()
		}
		w.hi, w.ragged = w.lo+n, n > 0
		return w, nil
	}
	type axis struct{ n, stride int64 } // bytes
	axes := make([]axis, 0, len(t.Shape))
	for i := len(t.Shape) - 1; i >= 0; i-- {
		n, ok := p.Bound(t.Shape[i])
		if !ok {
			return fail()
		}
		if n == 0 {
			return w, nil
		}
		stride, _ := t.Strides[i].Const()
		s, ok := mulSize(stride, w.run)
		if !ok {
			return fail()
		}
		if n > 1 && s != 0 {
			axes = append(axes, axis{n, s})
		}
	}
	slices.SortStableFunc(axes, func(a, b axis) int { return cmp.Compare(a.stride, b.stride) })
	extent := w.run
	for _, a := range axes {
		reach, ok := mulSize(a.n-1, a.stride)
		if !ok {
			return fail()
		}
		switch last := len(w.levels) - 1; {
		case w.ragged:
		case last < 0 && a.stride <= w.run:
			w.run += reach
		case last >= 0 && a.stride == w.levels[last].stride*w.levels[last].count:
			w.levels[last].count *= a.n
		case a.stride > extent || last >= 0 && a.stride == extent:
			w.levels = append(w.levels, level{a.stride, a.n})
		default:
			w.ragged = true
		}
		extent += reach
		if extent < 0 || extent > b.Size {
			return fail()
		}
	}
	w.hi = w.lo + extent
	if w.lo < b.Offset || w.hi > b.Offset+b.Size {
		return fail()
	}
	return w, nil
}

// mulSize multiplies sizes; false if one is negative or the product is too large.
func mulSize(a, b int64) (int64, bool) {
	if a < 0 || b < 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo < 1<<62
}

// sameElements reports whether two tensors are the same elements of the arena in
// the same order, their element types apart, whatever the values of symbols.
func (p *Program) sameElements(t, u *Tensor) bool {
	if p.Buffers[t.Buffer].Offset+t.Offset != p.Buffers[u.Buffer].Offset+u.Offset || t.DType.Size() != u.DType.Size() {
		return false
	}
	if t.Strides == nil && u.Strides == nil {
		m, ok := p.Extent(t)
		n, ok2 := p.Extent(u)
		return ok && ok2 && m.Equal(n)
	}
	if len(t.Shape) != len(u.Shape) {
		return false
	}
	ts, us := t.SymbolicStrides(), u.SymbolicStrides()
	for i, n := range t.Shape {
		if !n.Equal(u.Shape[i]) || !n.Equal(dim.New(1)) && !n.Equal(dim.New(0)) && !ts[i].Equal(us[i]) {
			return false
		}
	}
	return true
}

// next returns the first bytes of w at or after x, up to the end of their run; lo
// is w.hi if there are none. O(levels).
func (w *window) next(x int64) (lo, hi int64) {
	if x >= w.hi {
		return w.hi, w.hi
	}
	if w.ragged {
		return max(x, w.lo), w.hi
	}
	if x <= w.lo {
		return w.lo, w.lo + w.run
	}
	// From the outside in, the repetition that x falls in. If x falls into the gap
	// behind it, another one follows on the same level: after the last one of a
	// level, x would be outside of the repetition that the level is in.
	at := w.lo
	for k := len(w.levels) - 1; k >= 0; k-- {
		l := w.levels[k]
		at += min((x-at)/l.stride, l.count-1) * l.stride
		if x >= at+w.extent(k) {
			at += l.stride
			return at, at + w.run
		}
	}
	return x, at + w.run
}

// extent is the number of bytes from the start to the end of one repetition of level k.
func (w *window) extent(k int) int64 {
	n := w.run
	for _, l := range w.levels[:k] {
		n += (l.count - 1) * l.stride
	}
	return n
}

// touches reports whether w has a byte in lo..hi-1.
func (w *window) touches(lo, hi int64) bool {
	at, _ := w.next(lo)
	return at < min(hi, w.hi)
}

// overlaps reports whether w and v share a byte; true if that takes too long to tell.
func (w *window) overlaps(v *window) bool {
	x, end := max(w.lo, v.lo), min(w.hi, v.hi)
	if x >= end {
		return false
	}
	if w.dense() {
		return v.touches(x, end)
	}
	if v.dense() {
		return w.touches(x, end)
	}
	for range maxRuns {
		a, _ := w.next(x)
		b, _ := v.next(a)
		if a >= end || b >= end {
			return false
		}
		if b == a {
			return true
		}
		x = b
	}
	return true
}

// misses reports whether some byte of w within lo..hi-1 (and of v, unless nil) is
// in none of the windows by; true if that takes too long to tell.
func (w *window) misses(v *window, lo, hi int64, by []*window) bool {
	x, end := max(lo, w.lo), min(hi, w.hi)
	if v != nil {
		x, end = max(x, v.lo), min(end, v.hi)
	}
	for range maxRuns {
		a, _ := w.next(x)
		if v != nil && a < end {
			if b, _ := v.next(a); b > a {
				x = b
				if x >= end {
					return false
				}
				continue
			}
		}
		if a >= end {
			return false
		}
		x = a
		for _, c := range by {
			if b, e := c.next(a); b <= a {
				x = max(x, e)
			}
		}
		if x == a {
			return true
		}
	}
	return true
}
