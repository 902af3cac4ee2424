package shm

import (
	"os"
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
	const pad, data, n = 5000, 10000, 3
	w, err := Reserve(n, pad, data)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var segs []*Segment
	var files []*File
	for r := range n {
		f, err := Create(pad, data)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
		s, err := w.Place(r, f)
		if err != nil {
			t.Fatal(err)
		}
		segs = append(segs, s)
	}
	for r, s := range segs {
		if len(s.Data) != data || len(s.Bytes) < pad {
			t.Errorf("rank %d: %d and %d bytes", r, len(s.Bytes), len(s.Data))
		}
		if got := int(uintptr(unsafe.Pointer(&s.Data[0])) - uintptr(unsafe.Pointer(&segs[0].Data[0]))); got != r*w.Stride() {
			t.Errorf("rank %d is %d bytes from rank 0, want %d", r, got, r*w.Stride())
		}
		s.Data[data-1] = byte(r + 1)
	}
	// Another mapping of rank 1 sees what was written.
	v, err := Reserve(1, pad, data)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	f, err := Adopt(dup(t, files[1].FD()), pad, data)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := v.Place(0, f)
	if err != nil {
		t.Fatal(err)
	}
	if s.Data[data-1] != 2 {
		t.Errorf("the second mapping has %d", s.Data[data-1])
	}
	if _, err := w.Place(n, f); err == nil {
		t.Error("a rank outside of the world was placed")
	}
	if other, err := Create(pad, data+8192); err != nil {
		t.Error(err)
	} else {
		if _, err := w.Place(0, other); err == nil {
			t.Error("a segment of another size was placed")
		}
		other.Close()
	}
}

func TestAdoptRefuses(t *testing.T) {
	f, err := Create(4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Ftruncate(f.FD(), 0); err == nil {
		t.Error("a sealed file shrank")
	}
	if _, err := Adopt(dup(t, f.FD()), 4096, 8192); err == nil || !strings.Contains(err.Error(), "expected 12288") {
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
	if _, err := Adopt(dup(t, int(plain.Fd())), 4096, 4096); err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("unsealed file: %v", err)
	}
}

func TestSleepAndWake(t *testing.T) {
	w, err := Reserve(2, 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f, err := Create(4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Two mappings of one file, as two processes would have.
	a, err := w.Place(0, f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.Place(1, f)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	Sleep(&a.Words[3], 7, time.Minute) // another value: returns at once
	Sleep(&a.Words[3], 0, 5*time.Millisecond)
	if d := time.Since(start); d < 5*time.Millisecond || d > 10*time.Second {
		t.Errorf("slept for %v", d)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for atomic.LoadUint32(&a.Words[3]) == 0 {
			Sleep(&a.Words[3], 0, time.Minute)
		}
	}()
	time.Sleep(5 * time.Millisecond)
	atomic.StoreUint32(&b.Words[3], 1)
	Wake(&b.Words[3])
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("not woken")
	}
}
