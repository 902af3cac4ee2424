package shm

import (
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dup gives Adopt a descriptor of its own, as a peer would.
func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWorldIsFlat(t *testing.T) {
	const size, off, n = 10000, 8192, 3
	page := os.Getpagesize()
	w, err := Reserve(n, 1<<40) // far more than there is memory
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var segs [][]byte
	var files []*File
	for r := range n {
		f, err := Create(size)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
		s, err := w.Map(r, off, f)
		if err != nil {
			t.Fatal(err)
		}
		segs = append(segs, s)
	}
	for r, s := range segs {
		if len(s) != roundUp(size, page) {
			t.Errorf("rank %d: %d bytes", r, len(s))
		}
		if got := int(uintptr(unsafe.Pointer(&s[0])) - uintptr(unsafe.Pointer(&segs[0][0]))); got != r*w.Stride() {
			t.Errorf("rank %d is %d bytes from rank 0, want %d", r, got, r*w.Stride())
		}
		s[size-1] = byte(r + 1)
	}
	// Another mapping of rank 1 sees what was written.
	v, err := Reserve(1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	f, err := Adopt(dup(t, files[1].FD()), size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := v.Map(0, 0, f)
	if err != nil {
		t.Fatal(err)
	}
	if s[size-1] != 2 {
		t.Errorf("the second mapping has %d", s[size-1])
	}
	for _, c := range []struct{ rank, off int }{{n, 0}, {-1, 0}, {0, 1}, {0, -page}, {0, w.Stride() - page}} {
		if _, err := w.Map(c.rank, c.off, f); err == nil {
			t.Errorf("rank %d was mapped at %d", c.rank, c.off)
		}
	}
}

// TestUnmap: what comes after a piece that was given back is zeroed memory at its address.
func TestUnmap(t *testing.T) {
	w, err := Reserve(1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var at *byte
	for round := range 3 {
		f, err := Create(5000)
		if err != nil {
			t.Fatal(err)
		}
		b, err := w.Map(0, 4*os.Getpagesize(), f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if b[0] != 0 || at != nil && at != &b[0] {
			t.Errorf("round %d: %d at %p, before at %p", round, b[0], &b[0], at)
		}
		at, b[0] = &b[0], 7
		if err := w.Unmap(0, 4*os.Getpagesize(), 5000); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAdoptRefuses(t *testing.T) {
	f, err := Create(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Ftruncate(f.FD(), 0); err == nil {
		t.Error("a sealed file shrank")
	}
	if _, err := Adopt(dup(t, f.FD()), 12288); err == nil || !strings.Contains(err.Error(), "expected 12288") {
		t.Errorf("wrong size: %v", err)
	}
	plain, err := os.CreateTemp(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	if _, err := Adopt(dup(t, int(plain.Fd())), 8192); err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("unsealed file: %v", err)
	}
}

func TestSleepAndWake(t *testing.T) {
	w, err := Reserve(2, 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f, err := Create(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Two mappings of one file, as two processes would have.
	am, err := w.Map(0, 0, f)
	if err != nil {
		t.Fatal(err)
	}
	bm, err := w.Map(1, 0, f)
	if err != nil {
		t.Fatal(err)
	}
	a, b := PadOf(am), PadOf(bm)
	start := time.Now()
	Sleep(&a.Words[3], 7, time.Hour) // another value: returns at once
	Sleep(&a.Words[3], 0, 5*time.Millisecond)
	if d := time.Since(start); d < 5*time.Millisecond {
		t.Errorf("slept for %v", d)
	}
	for round := range uint32(50) { // asleep already, or not yet
		done := make(chan struct{})
		go func() {
			defer close(done)
			for atomic.LoadUint32(&a.Words[3]) == round {
				Sleep(&a.Words[3], round, time.Hour)
			}
		}()
		for range 20 * round {
			runtime.Gosched()
		}
		atomic.StoreUint32(&b.Words[3], round+1)
		Wake(&b.Words[3])
		<-done // or the test hangs
	}
}
