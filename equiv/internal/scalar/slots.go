package scalar

import "math/bits"

// slots finds numbers, which are given from 0 on, by hashes of what they are of. A map would hash
// and compare keys that it holds once more, beside the table's.
type slots struct {
	at   []slot // a power of two of them, at most half of them taken
	used int32
}

// slot has a number and one, or nothing.
type slot struct {
	hash   uint32
	number int32
}

// find is the slot whose number is of the same, or the free one where it belongs, until the next add.
func (s *slots) find(hash uint64, same func(number int32) bool) *slot {
	if int(s.used)*2 >= len(s.at) {
		s.grow()
	}
	for i := hash; ; i++ {
		p := &s.at[i&uint64(len(s.at)-1)]
		if p.number == 0 || p.hash == uint32(hash) && same(p.number-1) {
			return p
		}
	}
}

// add gives a free slot the next number.
func (s *slots) add(free *slot, hash uint64) {
	s.used++
	*free = slot{uint32(hash), s.used}
}

func (s *slots) grow() {
	old := s.at
	s.at = make([]slot, max(64, 4*len(old)))
	for _, p := range old {
		if p.number == 0 {
			continue
		}
		i := uint64(p.hash)
		for ; s.at[i&uint64(len(s.at)-1)].number != 0; i++ {
		}
		s.at[i&uint64(len(s.at)-1)] = p
	}
}

// mixed is a hash of two words.
func mixed(a, b uint64) uint64 {
	high, low := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd1b54a32d192ed03)
	return high ^ low ^ a
}
