//go:build linux

package fake

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// A capture ends only where it began, and only with the work of every stream that joined
// it waited for, directly or through another stream.
func TestCaptureJoins(t *testing.T) {
	type stream = int
	for _, c := range []struct {
		name  string
		body  func(r *capturing)
		end   stream
		error int // the driver's code; 0: the capture ends
	}{
		{name: "one stream", body: func(r *capturing) { r.work(0) }},
		{name: "forked and joined", body: func(r *capturing) { r.after(1, 0); r.work(1); r.after(0, 1) }},
		{name: "forked without work", body: func(r *capturing) { r.work(0); r.after(1, 0) }},
		{name: "never joined", body: func(r *capturing) { r.after(1, 0); r.work(1) }, error: 904},
		{name: "work behind the join", body: func(r *capturing) { r.after(1, 0); r.work(1); r.after(0, 1); r.work(1) }, error: 904},
		{name: "recorded, not waited for", body: func(r *capturing) { r.after(1, 0); r.work(1); r.record(1) }, error: 904},
		{name: "through another", body: func(r *capturing) {
			r.after(1, 0)
			r.after(2, 0)
			r.work(1)
			r.after(2, 1)
			r.after(0, 2)
		}},
		{name: "joined by another only", body: func(r *capturing) {
			r.after(1, 0)
			r.after(2, 0)
			r.work(1)
			r.after(2, 1)
		}, error: 904},
		{name: "another has it from before the work", body: func(r *capturing) {
			r.after(1, 0)
			r.after(2, 1)
			r.work(1)
			r.after(0, 2)
		}, error: 904},
		{name: "ended elsewhere", body: func(r *capturing) { r.after(1, 0); r.after(0, 1) }, end: 1, error: 903},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newCapturing(t)
			if err := r.f.CaptureBegin(r.ctx, r.s[0]); err != nil {
				t.Fatal(err)
			}
			c.body(r)
			g, err := r.f.CaptureEnd(r.ctx, r.s[c.end])
			if c.error == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if err := r.f.GraphDestroy(r.ctx, g); err != nil {
					t.Error(err)
				}
			} else if e := (*driver.Error)(nil); !errors.As(err, &e) || e.Code != c.error {
				t.Fatalf("got %v, want code %d", err, c.error)
			}
			if c.error == 903 { // it goes on
				if _, err := r.f.CaptureEnd(r.ctx, r.s[0]); err != nil {
					t.Fatal(err)
				}
			}
			for i := range r.s { // no stream captures any longer
				if err := r.f.StreamSync(r.ctx, r.s[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// capturing is three streams of a fake driver.
type capturing struct {
	t   *testing.T
	f   *Driver
	ctx driver.Ctx
	s   [3]driver.Stream
}

func newCapturing(t *testing.T) *capturing {
	r := &capturing{t: t, f: New(1)}
	var err error
	if r.ctx, err = r.f.CtxRetain(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.f.CtxRelease(0) })
	for i := range r.s {
		if r.s[i], err = r.f.StreamCreate(r.ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.f.StreamDestroy(r.ctx, r.s[i]) })
	}
	return r
}

func (r *capturing) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// work adds an item that does nothing.
func (r *capturing) work(i int) {
	r.t.Helper()
	r.ok(r.f.Memset32(r.ctx, r.s[i], 0, 0, 0))
}

func (r *capturing) record(i int) driver.Event {
	r.t.Helper()
	e, err := r.f.EventCreate(r.ctx, false)
	r.ok(err)
	r.t.Cleanup(func() { r.f.EventDestroy(r.ctx, e) })
	r.ok(r.f.EventRecord(r.ctx, e, r.s[i]))
	return e
}

// after makes stream i wait for what stream k has so far.
func (r *capturing) after(i, k int) {
	r.t.Helper()
	r.ok(r.f.StreamWait(r.ctx, r.s[i], r.record(k)))
}

// Worlds of a process end, which waits for all work of a context, while others capture.
func TestCtxSyncAmongCaptures(t *testing.T) {
	r := newCapturing(t)
	var captures sync.WaitGroup
	for _, s := range r.s {
		captures.Go(func() {
			for range 300 {
				err := r.f.CaptureBegin(r.ctx, s)
				if err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched()
				g, err := r.f.CaptureEnd(r.ctx, s)
				if err == nil {
					err = r.f.GraphDestroy(r.ctx, g)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { captures.Wait(); close(ended) }()
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		default:
		}
		if err := r.f.CtxSync(r.ctx); err != nil {
			t.Error(err)
		}
	}
}

// What the driver does where nothing keeps the two apart: neither goes well.
func TestCtxSyncInCapture(t *testing.T) {
	r := newCapturing(t)
	if err := r.f.CaptureBegin(r.ctx, r.s[0]); err != nil {
		t.Fatal(err)
	}
	c, err := lookUp[*primaryContext](r.f, "", uint64(r.ctx))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.f.syncAll(c); !errors.Is(err, &driver.Error{Call: "cuCtxSynchronize", Code: 900}) {
		t.Errorf("got %v", err)
	}
	if _, err := r.f.CaptureEnd(r.ctx, r.s[0]); !errors.Is(err, &driver.Error{Call: "cuStreamEndCapture", Code: 901}) {
		t.Errorf("got %v", err)
	}
}
