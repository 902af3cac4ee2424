//go:build linux

package fake

import (
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

// A stream on a queue of a stream that waits does not begin. Streams that come and go do not
// come to such a queue while fewer than it takes are there.
func TestQueues(t *testing.T) {
	const queues = 4
	f := New(1)
	f.Queues(queues)
	ctx := must(f.CtxRetain(0))(t)
	word, done := must(f.MemAlloc(ctx, 4096))(t), must(f.MemAlloc(ctx, 4096))(t)
	held := must(f.StreamCreate(ctx))(t)
	if err := f.StreamWait32(ctx, held, word, 1); err != nil {
		t.Fatal(err)
	}
	idle := func(s driver.Stream, limit time.Duration) bool {
		for start := time.Now(); time.Since(start) < limit; time.Sleep(100 * time.Microsecond) {
			if ok, err := f.StreamQuery(ctx, s); err != nil {
				t.Fatal(err)
			} else if ok {
				return true
			}
		}
		return false
	}
	put := func(high bool) driver.Stream {
		t.Helper()
		create := f.StreamCreate
		if high {
			create = f.StreamCreateHighPriority
		}
		s := must(create(ctx))(t)
		if err := f.StreamWrite32(ctx, s, done, 1); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for i := range 3 * queues {
		s := put(i%2 == 0)
		if !idle(s, 20*time.Second) {
			t.Fatalf("stream %d of those that came and went does not begin", i)
		}
		if err := f.StreamDestroy(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.StreamDestroy(ctx, held+1); err == nil {
		t.Error("a stream was destroyed twice")
	}
	var there []driver.Stream
	for range queues {
		there = append(there, put(false))
	}
	last := there[queues-1]
	for _, s := range there[:queues-2] {
		if !idle(s, 20*time.Second) {
			t.Error("a stream with a queue of its own does not begin")
		}
	}
	if idle(last, 10*time.Millisecond) && idle(there[queues-2], 10*time.Millisecond) {
		t.Errorf("%d streams beside one that waits all begin on %d queues", queues, queues)
	}
	// A stream that has work is not used again.
	if err := f.StreamDestroy(ctx, held); err != nil {
		t.Fatal(err)
	}
	made := f.Streams()
	s := must(f.StreamCreate(ctx))(t)
	if f.Streams() == made {
		t.Error("a stream that waits has a new owner")
	}
	hostmem.Store32(uintptr(word), 1)
	for _, x := range append(there, s) {
		if !idle(x, 20*time.Second) {
			t.Error("a stream does not begin when the wait is over")
		}
		if err := f.StreamDestroy(ctx, x); err != nil {
			t.Error(err)
		}
	}
	for _, err := range []error{f.CtxSync(ctx), f.MemFree(ctx, word), f.MemFree(ctx, done), f.CtxRelease(0)} {
		if err != nil {
			t.Error(err)
		}
	}
	if l := f.Leaks().String(); l != "" {
		t.Error(l)
	}
}
