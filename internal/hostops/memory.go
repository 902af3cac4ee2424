package hostops

import (
	"sync"
	"unsafe"
)

// memory is what a kernel computes in besides its operands. It is kept from call to call, since most
// tensors of a small model take less time to compute than a few slices to allocate and to collect.
//
// A processor holds a load back that agrees in its last 12 bits with a store before it. Loops that go
// through slices of 2 or 4 KiB in step, and tensors at the start of a page, would do that at every
// element, and take twice the time. So slices are apart by a quarter of their size, and the first is not
// at the start of a page.
type memory struct {
	words []uint64
	used  int
}

const (
	memoryLine  = 8              // words of a cache line
	memoryFirst = 9 * memoryLine // where the first slice is
)

var memories = sync.Pool{New: func() any { return &memory{words: make([]uint64, 1<<12)} }}

// take is n numbers of any value, until the memory is given back; of no memory they are new.
func take[T num](m *memory, n int64) []T {
	if m == nil {
		return make([]T, n)
	}
	var none [1]T
	size := int(n) * int(unsafe.Sizeof(none[0])) / memoryLine
	size = (size + size/4 + memoryLine) &^ (memoryLine - 1)
	if m.used+size > len(m.words) { // what was taken before keeps the old words
		m.words, m.used = make([]uint64, max(2*len(m.words), memoryFirst+size)), memoryFirst
	}
	p := unsafe.Pointer(&m.words[m.used])
	m.used += size
	return unsafe.Slice((*T)(p), n)
}

// within calls fn with memory.
func within(fn func(m *memory, lo, hi int64), lo, hi int64) {
	m := memories.Get().(*memory)
	m.used = memoryFirst
	fn(m, lo, hi)
	memories.Put(m)
}
