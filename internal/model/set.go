package model

import "hash/maphash"

// hash stands for a state: 128 bits, of which no two states of a model share all.
type hash [2]uint64

// set is a set of hashes: a table with open addressing, at most two thirds full. The zero
// hash marks a free place.
type set struct {
	seeds [2]maphash.Seed
	table []hash // a power of two
	n     int
	sum   uint64 // of what touch read
}

func newSet() *set {
	return &set{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, table: make([]hash, 1<<10)}
}

func (s *set) hash(b []byte) hash {
	return hash{maphash.Bytes(s.seeds[0], b), maphash.Bytes(s.seeds[1], b) | 1}
}

// touch reads where hashes are or would be.
func (s *set) touch(hs []hash) {
	mask := uint64(len(s.table) - 1)
	for _, h := range hs {
		s.sum += s.table[h[0]&mask][0]
	}
}

// add reports whether h is new.
func (s *set) add(h hash) bool {
	if !s.put(h) {
		return false
	}
	s.n++
	if 3*s.n > 2*len(s.table) {
		old := s.table
		s.table = make([]hash, 2*len(old))
		for _, h := range old {
			if h != (hash{}) {
				s.put(h)
			}
		}
	}
	return true
}

func (s *set) put(h hash) bool {
	mask := uint64(len(s.table) - 1)
	for i := h[0] & mask; ; i = (i + 1) & mask {
		switch s.table[i] {
		case hash{}:
			s.table[i] = h
			return true
		case h:
			return false
		}
	}
}
