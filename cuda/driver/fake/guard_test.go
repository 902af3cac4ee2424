//go:build linux

package fake

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

// gated is a fake with a stream that waits for a word of memory.
func gated(t *testing.T) (f *Driver, c driver.Ctx, s driver.Stream, gate driver.Ptr) {
	t.Helper()
	f = New(1)
	c = must(f.CtxRetain(0))(t)
	s, gate = must(f.StreamCreate(c))(t), must(f.MemAlloc(c, 4096))(t)
	if err := f.StreamWait32(c, s, gate, 1); err != nil {
		t.Fatal(err)
	}
	return f, c, s, gate
}

// open lets the stream go on.
func open(gate driver.Ptr) { hostmem.Store32(uintptr(gate), 1) }

// closeGated gives all but the stream back, and checks what is left.
func closeGated(t *testing.T, f *Driver, c driver.Ctx, gate driver.Ptr, leaks string) {
	t.Helper()
	if err := errors.Join(f.MemFree(c, gate), f.CtxRelease(0)); err != nil {
		t.Error(err)
	}
	if l := f.Leaks().String(); !strings.Contains(l, leaks) || leaks == "" && l != "" {
		t.Errorf("leaks: %q, want %q", l, leaks)
	}
}

// What a stream does to memory that was given back is reported, with who enqueued it and who
// gave the memory back.
func TestLateWrite(t *testing.T) {
	f, c, s, gate := gated(t)
	p := must(f.MemAlloc(c, 4096))(t)
	if err := errors.Join(f.Memset32(c, s, p+64, 7, 4), f.MemFree(c, p)); err != nil {
		t.Fatal(err)
	}
	open(gate)
	if err := f.StreamSync(c, s); !errors.Is(err, &driver.Error{Code: 700}) {
		t.Errorf("the stream ends with %v", err)
	}
	late := f.Late()
	if len(late) != 1 {
		t.Fatalf("reported: %q", late)
	}
	for _, part := range []string{"cuMemsetD32Async, enqueued by fake.TestLateWrite", "byte 0x40 of alloc that fake.TestLateWrite", "gave back without waiting"} {
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
	p := must(f.MemAlloc(c, 4096))(t)
	if err := errors.Join(f.Memset32(c, s, p, 7, 4), f.StreamDestroy(c, s)); err != nil {
		t.Fatal(err)
	}
	if l := f.Leaks(); l["stream that was destroyed and has work"] != 1 {
		t.Errorf("leaks: %v", l)
	}
	open(gate)
	if err := f.CtxSync(c); err != nil || hostmem.Load32(uintptr(p)) != 7 {
		t.Errorf("%v, the work of the stream: %d", err, hostmem.Load32(uintptr(p)))
	}
	if err := f.MemFree(c, p); err != nil {
		t.Error(err)
	}
	closeGated(t, f, c, gate, "")
}

// A stream that is used again is not reached by who has destroyed it.
func TestUsedAgain(t *testing.T) {
	f := New(1)
	f.Queues(1)
	c := must(f.CtxRetain(0))(t)
	old := must(f.StreamCreate(c))(t)
	if err := f.StreamDestroy(c, old); err != nil {
		t.Fatal(err)
	}
	s := must(f.StreamCreate(c))(t)
	if f.Streams() != 1 {
		t.Errorf("%d streams", f.Streams())
	}
	for what, err := range map[string]error{"used": f.StreamSync(c, old), "destroyed": f.StreamDestroy(c, old)} {
		if err == nil {
			t.Errorf("a stream is %s that was destroyed", what)
		}
	}
	if err := errors.Join(f.StreamDestroy(c, s), f.CtxRelease(0)); err != nil {
		t.Error(err)
	}
}

// must is v, unless it cannot be had.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
