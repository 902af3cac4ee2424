package cuda

import (
	"sync/atomic"
	"unsafe"
)

// load32 and store32 access a word of memory that a device or another process shares.
func load32(at uintptr) uint32     { return atomic.LoadUint32((*uint32)(pointer(at))) }
func store32(at uintptr, v uint32) { atomic.StoreUint32((*uint32)(pointer(at)), v) }

// pointer turns the address of memory that is not Go's into a pointer.
func pointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

// hostBytes views host memory that is not Go's.
func hostBytes(at uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
}
