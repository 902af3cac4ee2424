package pack

// An item is one buffer in a state of the search.
type item struct {
	id   int32
	l, r int32 // columns [l, r)
	x    bool  // lives beside a pinned buffer
	size int64 // in units
	lo   int64 // least offset that is not refuted, in units
	real int64 // least offset above the placed neighbours; lo > real if raised
	hash uint64
}

func (it *item) overlaps(o *item) bool { return it.l < o.r && o.l < it.r }

// raise sets lo, and the hash that depends on it.
func (it *item) raise(lo int64) {
	it.lo = lo
	it.rehash()
}

func (it *item) rehash() {
	it.hash = mix(mix(uint64(it.lo)+0x9e3779b97f4a7c15) + uint64(it.id))
}

// mix is the finaliser of splitmix64, a bijection of good avalanche.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// A column is what propagation derives for one column of a state.
type column struct {
	least  int64 // least lo of its unplaced buffers
	minTop int64 // least lo+size of them
	load   int64 // sum of their sizes
	count  int32 // how many of them have lo == least
}

// A frame is one component of a state: unplaced items by (l, r), the columns
// [left, left+len(cols)) that they cover, and the ceiling.
type frame struct {
	items []item
	cols  []column
	left  int32
	ceil  int64
}

func (f *frame) column(t int32) *column { return &f.cols[t-f.left] }

// extent returns the columns [left, right) that the items cover.
func (f *frame) extent() (left, right int32) {
	left = f.items[0].l
	for i := range f.items {
		right = max(right, f.items[i].r)
	}
	return left, right
}

// key hashes the frame's state.
func (s *searcher) key(f *frame) uint64 {
	h := mix(uint64(f.ceil))
	for i := range f.items {
		h += f.items[i].hash
	}
	return h
}
