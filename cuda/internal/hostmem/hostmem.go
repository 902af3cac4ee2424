// Package hostmem accesses non-Go memory by address: memory that devices and other processes
// share with the host.
package hostmem

import (
	"sync/atomic"
	"unsafe"
)

// Load32 reads a word of memory that a device or another process writes.
func Load32(at uintptr) uint32 { return atomic.LoadUint32((*uint32)(Pointer(at))) }

// Store32 writes a word of memory that a device or another process reads.
func Store32(at uintptr, v uint32) { atomic.StoreUint32((*uint32)(Pointer(at)), v) }

// Pointer turns an address into a pointer.
func Pointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

// Bytes views n bytes from an address on.
func Bytes(at uintptr, n int) []byte { return unsafe.Slice((*byte)(Pointer(at)), n) }
