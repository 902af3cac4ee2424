package pack

// A columnRule names the column that the search branches on; the first
// criterion decides, the second breaks ties, then the earliest column wins.
type columnRule int

const (
	lowestFewest columnRule = iota // among the globally lowest: fewest ways to go on, least slack
	fewest                         // of all columns: fewest ways to go on, least slack
	tightest                       // of all columns: least slack, fewest candidates
	lowestTight                    // among the globally lowest: least slack, fewest candidates
)

// nextEvent returns the least offset above b.lo at which b may rest on a
// pinned buffer.
func (s *searcher) nextEvent(b *item) int64 {
	next := int64(infinity)
	for _, p := range s.m.pins[b.id] {
		if p.hi > b.lo {
			next = min(next, p.hi)
		}
	}
	return next
}

// choose returns the index of the item to branch on.
func (s *searcher) choose(f *frame) int {
	lowest := int64(infinity)
	for i := range f.cols {
		lowest = min(lowest, f.cols[i].least)
	}
	bestA, bestB, best := int64(infinity), int64(infinity), int32(-1)
	for i := range f.cols {
		c := &f.cols[i]
		if c.least != lowest && (s.rule == lowestFewest || s.rule == lowestTight) || c.count == 0 {
			continue
		}
		slack := f.ceil - c.least - c.load
		a, b := slack, int64(c.count)
		if s.rule == lowestFewest || s.rule == fewest {
			a, b = int64(c.count), slack
			if slack > 0 {
				a++ // the column may also leave a gap here
			}
		}
		if a > bestA || a == bestA && b >= bestB {
			continue
		}
		if t := f.left + int32(i); s.closed(f, t, c.least) {
			bestA, bestB, best = a, b, t
		}
	}
	least := f.column(best).least
	pick, heaviest := -1, -1.0
	for i := range f.items {
		it := &f.items[i]
		if it.l > best {
			break
		}
		if best < it.r && it.lo == least {
			if w := s.weight[it.id] * (1 + s.random()); w > heaviest {
				pick, heaviest = i, w
			}
		}
	}
	return pick
}

// closed reports whether no unplaced item fits beneath any candidate of column t.
func (s *searcher) closed(f *frame, t int32, least int64) bool {
	for i := range f.items {
		it := &f.items[i]
		if it.l > t {
			break
		}
		if t >= it.r || it.lo != least {
			continue
		}
		for _, c := range f.cols[it.l-f.left : it.r-f.left] {
			if c.minTop <= least {
				return false
			}
		}
	}
	return true
}

// random returns the next number of a fixed sequence, in [0, 1).
func (s *searcher) random() float64 {
	s.rng += 0x9e3779b97f4a7c15
	return float64(mix(s.rng)>>11) / (1 << 53)
}
