// Package shm provides the memory of the host device: one segment per rank, made
// of a signal pad and an arena, visible to all ranks of a world.
//
// Ranks that are goroutines of one process use segments on the Go heap (Heap),
// which the race detector watches. Ranks that are processes map each other's
// sealed memory files into one flat range of addresses, rank r at base + r x
// stride (File, World). Outside of cuda, this is the only package of concert
// that uses unsafe and system calls.
package shm

import (
	"errors"
	"unsafe"
)

// ErrUnsupported says that this operating system cannot share memory between
// processes in the way this package needs.
var ErrUnsupported = errors.New("shm: shared memory between processes needs Linux")

// Segment is one rank's memory. The words of the pad appear under three types;
// which word is used how is the user's protocol.
type Segment struct {
	Words []uint32 // the pad, for atomic operations of package sync/atomic
	Quads []uint64 // the pad again
	Bytes []byte   // the pad again
	Data  []byte   // the arena, at a multiple of 64 bytes
}

// padAlign is the granularity of the pad: a cache line pair.
const padAlign = 128

// Heap returns a zeroed segment on the Go heap.
func Heap(pad, data int) *Segment {
	pad = roundUp(max(pad, padAlign), padAlign)
	// One allocation for each, so that an out-of-range index in one cannot
	// reach the other. The pad is made of quads to be aligned for atomics.
	quads := make([]uint64, pad/8)
	arena := make([]uint64, roundUp(max(data, 64), 64)/8)
	return &Segment{
		Words: unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(quads))), pad/4),
		Quads: quads,
		Bytes: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(quads))), pad),
		Data:  unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(arena))), data),
	}
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
