// Package shm provides the memory of the host device: for each rank a signal pad, and
// segments of an arena that are added and removed, visible to all ranks of a world.
//
// Ranks that are goroutines of one process use memory of the Go heap (Heap),
// which the race detector watches. Ranks that are processes map each other's
// sealed memory files into one flat range of addresses, rank r at base + r x
// stride (File, World), of which only the mapped files are accessible. Outside of cuda, this is the
// only package of concert that uses unsafe and system calls.
package shm

import (
	"errors"
	"unsafe"
)

// ErrUnsupported says that this operating system cannot share memory between
// processes in the way this package needs.
var ErrUnsupported = errors.New("shm: shared memory between processes needs Linux")

// Pad is one rank's signal pad. Its words appear under three types; which word is used
// how is the user's protocol.
type Pad struct {
	Words []uint32 // for atomic operations of package sync/atomic
	Quads []uint64 // the pad again
	Bytes []byte   // the pad again
}

// PadOf is a pad of zeroed memory, which Heap or a mapping has given.
func PadOf(b []byte) *Pad {
	at, n := unsafe.Pointer(unsafe.SliceData(b)), len(b)/8
	return &Pad{Words: unsafe.Slice((*uint32)(at), 2*n), Quads: unsafe.Slice((*uint64)(at), n), Bytes: b}
}

// Heap returns zeroed memory of the Go heap, one allocation each, so that an index out of
// range in one piece cannot reach another. It is aligned for atomics.
func Heap(n int) []byte {
	quads := make([]uint64, roundUp(max(n, 64), 64)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(quads))), n)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
