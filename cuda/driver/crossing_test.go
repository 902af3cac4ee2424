//go:build linux && cgo && (amd64 || arm64)

package driver

import (
	"os"
	"runtime"
	"testing"
)

// envDriver is a library for BenchmarkCrossing: the driver's, or one of empty functions.
const envDriver = "CONCERT_TEST_DRIVER"

// BenchmarkCrossing compares ways to call the driver with a context that has to be
// current. With a library of empty functions the figures are what the ways add.
func BenchmarkCrossing(b *testing.B) {
	path := os.Getenv(envDriver)
	if path == "" {
		b.Skip("set " + envDriver + " to the driver's library")
	}
	d, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	c, err := d.CtxRetain(0)
	if err != nil {
		b.Fatal(err)
	}
	defer d.CtxRelease(0)
	s, err := d.StreamCreate(c)
	if err != nil {
		b.Fatal(err)
	}
	defer d.StreamDestroy(c, s)
	call := func() {
		if _, err := d.StreamQuery(c, s); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("set at each call", func(b *testing.B) { // Go locks the thread, two crossings
		for b.Loop() {
			call()
		}
	})
	b.Run("set within the crossing", func(b *testing.B) { // what launches and command buffers do
		nothing := []uint64{3<<8 | OpFlags, uint64(s), 0} // no flags
		for b.Loop() {
			if err := d.Run(c, nothing); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("locked goroutine", func(b *testing.B) { // one thread for a device
		calls, done := make(chan func()), make(chan struct{})
		go func() {
			runtime.LockOSThread()
			for f := range calls {
				f()
				done <- struct{}{}
			}
		}()
		for b.Loop() {
			calls <- call
			<-done
		}
		close(calls)
	})
}
