package pack

import "math/bits"

// A rankSet is a set of small integers with neighbour queries in
// O(log_64 n): a bitmap, a bitmap of its nonzero words, and so on.
type rankSet struct {
	levels [][]uint64
}

func newRankSet(n int) *rankSet {
	s := &rankSet{}
	for {
		n = (n + 63) / 64
		s.levels = append(s.levels, make([]uint64, max(n, 1)))
		if n <= 1 {
			return s
		}
	}
}

func (s *rankSet) add(i int) {
	for _, w := range s.levels {
		w[i>>6] |= 1 << (i & 63)
		i >>= 6
	}
}

func (s *rankSet) remove(i int) {
	for _, w := range s.levels {
		w[i>>6] &^= 1 << (i & 63)
		if w[i>>6] != 0 {
			return
		}
		i >>= 6
	}
}

// before returns the largest member below i, or -1.
func (s *rankSet) before(i int) int {
	for l, w := range s.levels {
		if m := w[i>>6] & (1<<(i&63) - 1); m != 0 {
			i = i&^63 | (63 - bits.LeadingZeros64(m))
			for l--; l >= 0; l-- {
				i = i<<6 | (63 - bits.LeadingZeros64(s.levels[l][i]))
			}
			return i
		}
		i >>= 6
	}
	return -1
}

// after returns the smallest member above i, or -1.
func (s *rankSet) after(i int) int {
	for l, w := range s.levels {
		if m := w[i>>6] &^ (1<<(i&63) | (1<<(i&63) - 1)); m != 0 {
			i = i&^63 | bits.TrailingZeros64(m)
			for l--; l >= 0; l-- {
				i = i<<6 | bits.TrailingZeros64(s.levels[l][i])
			}
			return i
		}
		i >>= 6
	}
	return -1
}
