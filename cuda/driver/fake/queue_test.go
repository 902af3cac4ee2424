//go:build linux

package fake

import (
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

// queuesT is streams of a driver with few queues.
type queuesT struct {
	*Driver
	t    *testing.T
	ctx  driver.Ctx
	done driver.Ptr // what every stream writes
}

// start makes a stream that writes a word.
func (q *queuesT) start(high bool) driver.Stream {
	q.t.Helper()
	create := q.StreamCreate
	if high {
		create = q.StreamCreateHighPriority
	}
	s := must(create(q.ctx))(q.t)
	if err := q.StreamWrite32(q.ctx, s, q.done, 1); err != nil {
		q.t.Fatal(err)
	}
	return s
}

// idle reports whether a stream has nothing to do within the limit.
func (q *queuesT) idle(s driver.Stream, limit time.Duration) bool {
	q.t.Helper()
	for start := time.Now(); time.Since(start) < limit; time.Sleep(100 * time.Microsecond) {
		if ok, err := q.StreamQuery(q.ctx, s); err != nil {
			q.t.Fatal(err)
		} else if ok {
			return true
		}
	}
	return false
}

func (q *queuesT) destroy(s driver.Stream) {
	q.t.Helper()
	if err := q.StreamDestroy(q.ctx, s); err != nil {
		q.t.Fatal(err)
	}
}

// A stream on a queue of a stream that waits does not begin. Streams that come and go do not
// come to such a queue while fewer than it takes are there.
func TestQueues(t *testing.T) {
	const queues = 4
	q := &queuesT{Driver: New(1), t: t}
	q.Queues(queues)
	ctx := must(q.CtxRetain(0))(t)
	word := must(q.MemAlloc(ctx, 4096))(t)
	q.ctx, q.done = ctx, must(q.MemAlloc(ctx, 4096))(t)
	held := must(q.StreamCreate(ctx))(t)
	if err := q.StreamWait32(ctx, held, word, 1); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * queues {
		s := q.start(i%2 == 0)
		if !q.idle(s, 20*time.Second) {
			t.Fatalf("stream %d of those that came and went does not begin", i)
		}
		q.destroy(s)
	}
	if err := q.StreamDestroy(ctx, held+1); err == nil {
		t.Error("a stream was destroyed twice")
	}
	var there []driver.Stream
	for range queues {
		there = append(there, q.start(false))
	}
	last := there[queues-1]
	for _, s := range there[:queues-2] {
		if !q.idle(s, 20*time.Second) {
			t.Error("a stream with a queue of its own does not begin")
		}
	}
	if q.idle(last, 10*time.Millisecond) && q.idle(there[queues-2], 10*time.Millisecond) {
		t.Errorf("%d streams beside one that waits all begin on %d queues", queues, queues)
	}
	// A stream that has work is not used again.
	q.destroy(held)
	made := q.Streams()
	s := must(q.StreamCreate(ctx))(t)
	if q.Streams() == made {
		t.Error("a stream that waits has a new owner")
	}
	hostmem.Store32(uintptr(word), 1)
	for _, x := range append(there, s) {
		if !q.idle(x, 20*time.Second) {
			t.Error("a stream does not begin when the wait is over")
		}
		q.destroy(x)
	}
	for _, err := range []error{q.CtxSync(ctx), q.MemFree(ctx, word), q.MemFree(ctx, q.done), q.CtxRelease(0)} {
		if err != nil {
			t.Error(err)
		}
	}
	if l := q.Leaks().String(); l != "" {
		t.Error(l)
	}
}
