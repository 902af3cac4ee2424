package pack

import (
	"cmp"
	"slices"
)

// The sweep
//
// Greedy placement looks at every gap that a buffer does not fit into, which is
// quadratic where tens of thousands of buffers live at once. There the sweep takes
// over: it goes through time as an allocator would at run time, gives each buffer the
// smallest free range that takes it (best fit), the larger of two that begin together
// first, and joins free ranges when buffers end. O(n log n). What it is worse at, few
// buffers at once, greedy placement is fast at.

// sweep places the buffers of a checked problem in the order of time and returns their
// offsets. Unpinned buffers lie above all pinned ones.
func sweep(p *Problem) []int64 {
	lives, base, common := sweepLives(p)
	events := make([]event, 0, 2*len(p.Buffers))
	at := make([]int64, len(p.Buffers))
	for i := range p.Buffers {
		b := &p.Buffers[i]
		switch {
		case b.Pinned:
			at[i] = b.Offset
		case b.Size == 0:
		default:
			need := b.Size + b.align() - 1
			if common > 0 {
				need = alignUp(b.Size, common)
			}
			l := lives[i]
			events = append(events, event{l.lo, need, int32(i), true}, event{l.hi, need, int32(i), false})
		}
	}
	slices.SortFunc(events, inTime)
	s := newRanges(base, len(events)/2)
	of := make([]int32, len(p.Buffers)) // the range of a live buffer
	for _, e := range events {
		if !e.start {
			s.release(of[e.id])
			continue
		}
		of[e.id] = s.take(e.need)
		at[e.id] = alignUp(s.list[of[e.id]].lo, p.Buffers[e.id].align())
	}
	return at
}

// sweepLives returns the lifetimes by buffer, on a clock that is even where buffers begin
// or end, where the unpinned ones may begin to lie, and the largest alignment if all
// others divide it, else 0.
func sweepLives(p *Problem) (lives []span, base, common int64) {
	var times []int64
	for i := range p.Buffers {
		b := &p.Buffers[i]
		times = append(times, b.Lower, b.Upper)
		common = max(common, b.align())
		if b.Pinned {
			base = max(base, b.Offset+b.Size)
		}
	}
	base = alignUp(base, max(common, 1))
	slices.Sort(times)
	times = slices.Compact(times)
	clock := func(t int64) int64 {
		k, _ := slices.BinarySearch(times, t)
		return 2 * int64(k)
	}
	lives = make([]span, len(p.Buffers))
	for i := range p.Buffers {
		b := &p.Buffers[i]
		lives[i].lo = clock(b.Lower)
		lives[i].hi = max(clock(b.Upper), lives[i].lo+1)
		if common > 0 && common%b.align() != 0 {
			common = 0
		}
	}
	return lives, base, common
}

// ranges divides the addresses from some base to infinity into taken and free ranges,
// which form a list in the order of addresses; no two neighbours are free. The free
// ones are also a treap by length, then address.
type ranges struct {
	list []addressRange
	idle []int32 // entries of list that are in no use
	root int32
}

type addressRange struct {
	span
	prev, next  int32 // in the order of addresses, -1 at the ends
	left, right int32 // of the treap, -1 for none
	free        bool
}

func newRanges(base int64, n int) *ranges {
	s := &ranges{list: make([]addressRange, 1, n+1)}
	s.list[0] = addressRange{span: span{base, infinity}, prev: -1, next: -1, left: -1, right: -1, free: true}
	return s
}

// take takes the first bytes of the shortest free range of at least need bytes.
func (s *ranges) take(need int64) int32 {
	best := int32(-1)
	for at := s.root; at >= 0; {
		if r := &s.list[at]; r.hi-r.lo >= need {
			best, at = at, r.left
		} else {
			at = r.right
		}
	}
	s.drop(best)
	if r := s.list[best]; r.hi-r.lo > need {
		rest := s.add(addressRange{span: span{r.lo + need, r.hi}, prev: best, next: r.next, free: true})
		if r.next >= 0 {
			s.list[r.next].prev = rest
		}
		s.list[best].hi, s.list[best].next = r.lo+need, rest
		s.insert(rest)
	}
	s.list[best].free = false
	return best
}

// release frees a range and joins it with free neighbours.
func (s *ranges) release(at int32) {
	if p := s.list[at].prev; p >= 0 && s.list[p].free {
		s.drop(p)
		s.list[at].lo, s.list[at].prev = s.list[p].lo, s.list[p].prev
		if q := s.list[p].prev; q >= 0 {
			s.list[q].next = at
		}
		s.idle = append(s.idle, p)
	}
	if n := s.list[at].next; n >= 0 && s.list[n].free {
		s.drop(n)
		s.list[at].hi, s.list[at].next = s.list[n].hi, s.list[n].next
		if q := s.list[n].next; q >= 0 {
			s.list[q].prev = at
		}
		s.idle = append(s.idle, n)
	}
	s.list[at].free = true
	s.insert(at)
}

func (s *ranges) add(r addressRange) int32 {
	if n := len(s.idle); n > 0 {
		at := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.list[at] = r
		return at
	}
	s.list = append(s.list, r)
	return int32(len(s.list) - 1)
}

// less orders free ranges by length, then address.
func (s *ranges) less(a, b int32) bool {
	x, y := &s.list[a], &s.list[b]
	if c := cmp.Compare(x.hi-x.lo, y.hi-y.lo); c != 0 {
		return c < 0
	}
	return x.lo < y.lo
}

// above says which of two ranges is nearer to the root of the treap.
func above(a, b int32) bool { return mix(uint64(a)) < mix(uint64(b)) }

// insert puts a range into the treap.
func (s *ranges) insert(at int32) {
	link := &s.root
	for *link >= 0 && above(*link, at) {
		if s.less(at, *link) {
			link = &s.list[*link].left
		} else {
			link = &s.list[*link].right
		}
	}
	under := *link
	*link = at
	l, r := &s.list[at].left, &s.list[at].right
	for under >= 0 { // split what was there
		if s.less(under, at) {
			*l, l = under, &s.list[under].right
			under = *l
		} else {
			*r, r = under, &s.list[under].left
			under = *r
		}
	}
	*l, *r = -1, -1
}

// drop takes a range out of the treap.
func (s *ranges) drop(at int32) {
	link := &s.root
	for *link != at {
		if s.less(at, *link) {
			link = &s.list[*link].left
		} else {
			link = &s.list[*link].right
		}
	}
	l, r := s.list[at].left, s.list[at].right
	for l >= 0 && r >= 0 { // join what hung there
		if above(l, r) {
			*link, link = l, &s.list[l].right
			l = *link
		} else {
			*link, link = r, &s.list[r].left
			r = *link
		}
	}
	*link = max(l, r)
}
