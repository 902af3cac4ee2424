//go:build !linux

package shm

import (
	"time"
)

// File is a stub where processes cannot share memory in the way concert needs.
type File struct{}

// Create returns ErrUnsupported.
func Create(size int) (*File, error) { return nil, ErrUnsupported }

// Adopt returns ErrUnsupported.
func Adopt(fd, size int) (*File, error) { return nil, ErrUnsupported }

// FD returns -1.
func (f *File) FD() int { return -1 }

// Close does nothing.
func (f *File) Close() error { return nil }

// World is a stub.
type World struct{}

// Reserve returns ErrUnsupported.
func Reserve(n, stride int) (*World, error) { return nil, ErrUnsupported }

// Stride returns 0.
func (w *World) Stride() int { return 0 }

// Map returns ErrUnsupported.
func (w *World) Map(rank, off int, f *File) ([]byte, error) { return nil, ErrUnsupported }

// Unmap returns ErrUnsupported.
func (w *World) Unmap(rank, off, size int) error { return ErrUnsupported }

// Close does nothing.
func (w *World) Close() error { return nil }

// Sleep sleeps for a short time, at most the limit.
func Sleep(word *uint32, value uint32, limit time.Duration) {
	time.Sleep(min(limit, 100*time.Microsecond))
}

// Wake does nothing.
func Wake(word *uint32) {}
