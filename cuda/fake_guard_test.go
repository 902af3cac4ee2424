//go:build linux

package cuda

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// gated is a fake with a stream that waits for a word of memory.
func gated(t *testing.T) (f *Fake, c Ctx, s Stream, gate Ptr) {
	t.Helper()
	if *onGPU || process != nil {
		t.Skip("is about the fake driver")
	}
	f = NewFake(1)
	c = got(f.CtxRetain(0))(t)
	s, gate = got(f.StreamCreate(c))(t), got(f.MemAlloc(c, 4096))(t)
	if err := f.StreamWait32(c, s, gate, 1); err != nil {
		t.Fatal(err)
	}
	return f, c, s, gate
}

// open lets the stream go on.
func open(gate Ptr) { store32(uintptr(gate), 1) }

// closeGated gives all but the stream back, and checks what is left.
func closeGated(t *testing.T, f *Fake, c Ctx, gate Ptr, leaks string) {
	t.Helper()
	if err := errors.Join(f.MemFree(c, gate), f.CtxRelease(0)); err != nil {
		t.Error(err)
	}
	if l := f.sortedLeaks(); !strings.Contains(l, leaks) || leaks == "" && l != "" {
		t.Errorf("leaks: %q, want %q", l, leaks)
	}
}

// What a stream does to memory that was given back is reported, with who enqueued it and who
// gave the memory back.
func TestLateWrite(t *testing.T) {
	f, c, s, gate := gated(t)
	p := got(f.MemAlloc(c, 4096))(t)
	if err := errors.Join(f.Memset32(c, s, p+64, 7, 4), f.MemFree(c, p)); err != nil {
		t.Fatal(err)
	}
	open(gate)
	if err := f.StreamSync(c, s); !errors.Is(err, &Error{Code: 700}) {
		t.Errorf("the stream ends with %v", err)
	}
	late := f.Late()
	if len(late) != 1 {
		t.Fatalf("reported: %q", late)
	}
	for _, part := range []string{"cuMemsetD32Async, enqueued by cuda.TestLateWrite", "byte 0x40 of alloc that cuda.TestLateWrite", "gave back without waiting"} {
		if !strings.Contains(late[0], part) {
			t.Errorf("%q lacks %q", late[0], part)
		}
	}
	if err := f.StreamDestroy(c, s); err != nil {
		t.Error(err)
	}
	closeGated(t, f, c, gate, "cuMemsetD32Async, enqueued by")
}

// A stream that was destroyed finishes its work, which the context is waited for with, and
// which is a leak until then.
func TestDestroyedStream(t *testing.T) {
	f, c, s, gate := gated(t)
	p := got(f.MemAlloc(c, 4096))(t)
	if err := errors.Join(f.Memset32(c, s, p, 7, 4), f.StreamDestroy(c, s)); err != nil {
		t.Fatal(err)
	}
	if l := f.Leaks(); l["stream that was destroyed and has work"] != 1 {
		t.Errorf("leaks: %v", l)
	}
	open(gate)
	if err := f.CtxSync(c); err != nil || load32(uintptr(p)) != 7 {
		t.Errorf("%v, the work of the stream: %d", err, load32(uintptr(p)))
	}
	if err := f.MemFree(c, p); err != nil {
		t.Error(err)
	}
	closeGated(t, f, c, gate, "")
}

// Loading, mapping, freeing and uploading wait for a kernel that waits for a peer, and fail
// with its name when that takes too long.
func TestBlockedByKernel(t *testing.T) {
	if *onGPU || process != nil {
		t.Skip("is about the fake driver")
	}
	r := newRigT(t, 2)
	f, m := r.drv.(*Fake), r.g.Members()[0]
	c, s := m.Rank.Ctx, r.streams[0]
	p := got(f.MemAlloc(c, 4096))(t)
	r.must(m.Wait(s, 0, 1))
	until(t, func() bool {
		f.guard.mu.Lock()
		defer f.guard.mu.Unlock()
		return len(f.guard.waiting[0]) > 0
	})
	f.Patience(time.Millisecond)
	if err := f.MemFree(c, p); err == nil || !strings.Contains(err.Error(), "kernel wait of rank 0, which waits for rank 1") {
		t.Errorf("got %v", err)
	}
	f.guard.mu.Lock()
	if len(f.guard.late) != 1 {
		t.Errorf("reported: %q", f.guard.late)
	}
	f.guard.late = nil
	f.guard.mu.Unlock()
	f.Patience(0)
	freed := make(chan error, 1)
	go func() { freed <- f.MemFree(c, p) }()
	r.must(r.g.Members()[1].Signal(r.streams[1], 0, 0), <-freed, m.Check(t.Context(), s))
}
