//go:build !linux

package shm

import (
	"time"
)

// File is a stub where processes cannot share memory in the way concert needs.
type File struct{}

// Create returns ErrUnsupported.
func Create(pad, data int) (*File, error) { return nil, ErrUnsupported }

// Adopt returns ErrUnsupported.
func Adopt(fd, pad, data int) (*File, error) { return nil, ErrUnsupported }

// FD returns -1.
func (f *File) FD() int { return -1 }

// Close does nothing.
func (f *File) Close() error { return nil }

// World is a stub.
type World struct{}

// Reserve returns ErrUnsupported.
func Reserve(n, pad, data int) (*World, error) { return nil, ErrUnsupported }

// Stride returns 0.
func (w *World) Stride() int { return 0 }

// Place returns ErrUnsupported.
func (w *World) Place(rank int, f *File) (*Segment, error) { return nil, ErrUnsupported }

// Close does nothing.
func (w *World) Close() error { return nil }

// Sleep sleeps for a short time, at most the limit.
func Sleep(word *uint32, value uint32, limit time.Duration) {
	time.Sleep(min(limit, 100*time.Microsecond))
}

// Wake does nothing.
func Wake(word *uint32) {}
