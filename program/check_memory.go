package program

import (
	"math/bits"
	"slices"
	"sort"
)

// The frontier of memory.
//
// The arena is cut into segments at the ends of accesses. Each segment keeps the
// latest access that wrote all of it (the writer) and, since then, the reads and
// the writes that leave gaps (the rest). Reads that leave gaps are kept by stream
// instead, and cut nothing: slices of one tensor would cut it into as many pieces as
// there are, and each piece would hold all of them. A new access is compared with
// these only. Accesses come in list order, so of two conflicting ones the earlier must
// be ordered before the later.
//
// Claim: if no comparison failed so far, every earlier access to a byte is
// ordered before a new conflicting one as soon as those of the frontier are.
// An access e leaves the frontier of a segment in two ways:
//
//  1. A write w covers the segment. It was compared with e, so e is before w. A
//     later access to the segment conflicts with w wherever it conflicts with e,
//     because w has every byte and writes: it is compared with w, or with what
//     removed w in turn, and before is transitive.
//  2. e is a read and a later read r of the same stream covers the segment. A
//     later access that conflicts with e writes, so it conflicts with r, and e is
//     before r by the order of the stream.
//
// A write with gaps removes nothing, and of the reads with gaps of a stream a write is
// compared with those that its clock does not have: all others are before it. After a
// failed comparison the pair has been reported, and what comes later may be missing some
// of its consequences.
//
// An entry of the frontier conflicts if the windows share a byte, tested exactly
// where a window has gaps. The writer and the latest covering read of each stream
// cost O(streams) per segment; writes with gaps cost one entry each, reads with gaps
// one for each that a write of another stream does not wait for.

// segment is the frontier of a range of bytes. Indices are into checker.accs.
type segment struct {
	writer int32   // -1: nobody has written all of it
	rest   []int32 // in list order
}

// frontier maps bytes to segments. All ends of accesses are known beforehand, so
// segments live in a slice by the number of their first byte among these, and a
// bit set says which numbers start a segment.
type frontier struct {
	c      *checker
	coords []int64
	from   []int32 // by access: number of its first byte, and
	to     []int32 // of the byte behind its last
	starts bitTree
	seg    []segment
	gaps   [][]int32 // stream -> reads that leave gaps, in list order
	own    []*window // scratch of flow
}

func newFrontier(c *checker) *frontier {
	f := &frontier{c: c, coords: []int64{0}}
	for i := range c.accs {
		f.coords = append(f.coords, c.accs[i].win.lo, c.accs[i].win.hi)
	}
	slices.Sort(f.coords)
	f.coords = slices.Compact(f.coords)
	f.from, f.to = make([]int32, len(c.accs)), make([]int32, len(c.accs))
	for i := range c.accs {
		f.from[i], f.to[i] = f.index(c.accs[i].win.lo), f.index(c.accs[i].win.hi)
	}
	f.starts = newBitTree(len(f.coords))
	f.seg = make([]segment, len(f.coords))
	f.starts.set(0)
	f.seg[0].writer = -1
	f.split(len(f.coords) - 1) // what ends the last one that holds bytes
	return f
}

// index finds a coordinate that is there.
func (f *frontier) index(x int64) int32 {
	return int32(sort.Search(len(f.coords), func(i int) bool { return f.coords[i] >= x }))
}

// split makes a segment start at coordinate number i.
func (f *frontier) split(i int) {
	if f.starts.has(i) {
		return
	}
	s := f.seg[f.starts.prev(i)]
	f.seg[i] = segment{s.writer, slices.Clone(s.rest)}
	f.starts.set(i)
}

// access compares access number id with the frontier under the clock of its
// stream, and adds it.
func (f *frontier) access(id int32, clock []int32) {
	a := &f.c.accs[id]
	lo, hi := int(f.from[id]), int(f.to[id])
	if lo == hi {
		return
	}
	covers := a.win.dense()
	if !a.write && !covers {
		lo = f.starts.prev(lo)
		for int(a.stream) >= len(f.gaps) {
			f.gaps = append(f.gaps, nil)
		}
		f.gaps[a.stream] = append(f.gaps[a.stream], id)
	} else {
		f.split(lo)
		f.split(hi)
	}
	if a.write {
		f.behind(a, clock)
	}
	for i := lo; i < hi; i = f.starts.next(i + 1) {
		s := &f.seg[i]
		f.c.r.Stats.Comparisons += 1 + len(s.rest)
		if s.writer >= 0 {
			f.compare(s.writer, a, clock, i)
		}
		for _, e := range s.rest {
			if a.write || f.c.accs[e].write {
				f.compare(e, a, clock, i)
			}
		}
		if !a.write {
			f.flow(s, a, i)
		}
		switch { // what writes all has one segment for the whole range, below
		case a.write && !covers:
			s.rest = append(s.rest, id)
		case !a.write && covers:
			s.rest = f.read(s.rest, id)
		}
	}
	if a.write && covers {
		for i := f.starts.next(lo + 1); i < hi; i = f.starts.next(i + 1) {
			f.starts.clear(i)
			f.seg[i] = segment{}
		}
		f.seg[lo] = segment{writer: id, rest: f.seg[lo].rest[:0]}
	}
}

// read replaces the reads that a new one makes superfluous.
func (f *frontier) read(rest []int32, id int32) []int32 {
	a := &f.c.accs[id]
	keep := rest[:0]
	for _, e := range rest {
		if b := &f.c.accs[e]; b.write || b.stream != a.stream {
			keep = append(keep, e)
		}
	}
	return append(keep, id)
}

// behind reports a write and, of each stream, the latest read with gaps that nothing
// orders before it and that shares a byte with it.
func (f *frontier) behind(a *access, clock []int32) {
	for _, reads := range f.gaps {
		for _, e := range slices.Backward(reads) {
			b := &f.c.accs[e]
			if before(b, a.stream, clock) {
				break
			}
			f.c.r.Stats.Comparisons++
			if a.win.overlaps(&b.win) {
				f.c.unordered(b, a, max(a.win.lo, b.win.lo), min(a.win.hi, b.win.hi))
				break
			}
		}
	}
}

// compare reports e and a if nothing orders them and they share a byte of
// segment i.
func (f *frontier) compare(e int32, a *access, clock []int32, i int) {
	b := &f.c.accs[e]
	if before(b, a.stream, clock) {
		return
	}
	lo, hi := f.span(i, a)
	switch {
	case b.win.dense() && !a.win.touches(lo, hi), a.win.dense() && !b.win.touches(lo, hi):
		return
	case !b.win.dense() && !a.win.dense() && !b.win.overlaps(&a.win):
		return
	}
	f.c.unordered(b, a, lo, hi)
}

// span is what of segment i is between the ends of an access.
func (f *frontier) span(i int, a *access) (lo, hi int64) {
	return max(f.coords[i], a.win.lo), min(f.coords[f.starts.next(i+1)], a.win.hi)
}

// flow checks that what a reads of segment i was written last through a's own
// buffer.
func (f *frontier) flow(s *segment, a *access, i int) {
	lo, hi := int64(0), int64(0)
	own := f.own[:0]
	for k := len(s.rest) - 1; k >= 0; k-- {
		b := &f.c.accs[s.rest[k]]
		if !b.write {
			continue
		}
		if b.holds(a) {
			own = append(own, &b.win)
			continue
		}
		if hi == 0 {
			lo, hi = f.span(i, a)
		}
		if a.win.misses(&b.win, lo, hi, own) {
			f.c.clobbered(b, a, lo, hi)
			return
		}
	}
	f.own = own
	if s.writer >= 0 && f.c.accs[s.writer].holds(a) {
		return
	}
	lo, hi = f.span(i, a)
	if !a.win.misses(nil, lo, hi, own) {
		return
	}
	if s.writer >= 0 {
		f.c.clobbered(&f.c.accs[s.writer], a, lo, hi)
	} else {
		f.c.unwritten(a, lo, hi)
	}
}

// bitTree is a set of small integers with successor and predecessor: bits, and
// above each layer one that says which words are not empty. O(log64 n).
type bitTree struct {
	layers [][]uint64
}

func newBitTree(n int) bitTree {
	var t bitTree
	for {
		n = (n + 63) / 64
		t.layers = append(t.layers, make([]uint64, max(n, 1)))
		if n <= 1 {
			return t
		}
	}
}

func (t *bitTree) has(i int) bool { return t.layers[0][i/64]>>(i%64)&1 != 0 }

func (t *bitTree) set(i int) {
	for _, l := range t.layers {
		l[i/64] |= 1 << (i % 64)
		i /= 64
	}
}

func (t *bitTree) clear(i int) {
	for _, l := range t.layers {
		l[i/64] &^= 1 << (i % 64)
		if l[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// next is the smallest member at or after i. There must be one, or the result is
// past the end of the universe.
func (t *bitTree) next(i int) int {
	for k := 0; k < len(t.layers); k++ {
		l := t.layers[k]
		if i/64 >= len(l) {
			break
		}
		if w := l[i/64] >> (i % 64); w != 0 {
			i += bits.TrailingZeros64(w)
			for ; k > 0; k-- {
				i = i*64 + bits.TrailingZeros64(t.layers[k-1][i])
			}
			return i
		}
		i = i/64 + 1
	}
	return len(t.layers[0]) * 64
}

// prev is the largest member at or before i, -1 if there is none.
func (t *bitTree) prev(i int) int {
	for k := 0; k < len(t.layers) && i >= 0; k++ {
		if w := t.layers[k][i/64] << (63 - i%64); w != 0 {
			i -= bits.LeadingZeros64(w)
			for ; k > 0; k-- {
				i = i*64 + 63 - bits.LeadingZeros64(t.layers[k-1][i])
			}
			return i
		}
		i = i/64 - 1
	}
	return -1
}
