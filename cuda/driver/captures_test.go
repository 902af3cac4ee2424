package driver

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A wait for a context's work begins when no capture is left, and no capture while the wait may
// stand before the driver.
func TestCapturesAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Shared
		refused := errors.New("the stream captures already")
		if err := f.BeginCapture(1, 11, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		for s, want := range map[Stream]error{11: refused, 12: refused} { // neither begins one, nor ends one
			if err := f.BeginCapture(1, s, func() error { return refused }); err != want {
				t.Errorf("stream %d: %v", s, err)
			}
		}
		f.CaptureEnded(1, 12) // as where a capture is ended in another stream
		inside, leave := false, make(chan error)
		wait := func() error { inside = true; return <-leave }
		ended := make(chan error)
		go func() { ended <- f.SyncContext(1, wait) }()
		synctest.Wait()
		if inside {
			t.Error("a wait while a stream captures")
		}
		start := time.Now() // the wait is first, unless the capture before it needs this one
		if err := f.BeginCapture(1, 14, func() error { return nil }); err != nil || time.Since(start) != letIn {
			t.Errorf("a capture began %v after a wait that is to be first, %v", time.Since(start), err)
		}
		f.CaptureEnded(1, 14)
		if err := f.SyncContext(2, func() error { return nil }); err != nil { // another context
			t.Error(err)
		}
		if err := f.Destroying(11); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !inside {
			t.Fatal("a destroyed stream is taken for one that captures")
		}
		start = time.Now()
		if err := f.BeginCapture(1, 13, func() error { return nil }); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != letIn {
			t.Errorf("a capture began %v after a wait, want %v", d, letIn)
		}
		failed := errors.New("a kernel failed")
		leave <- failed
		if err := <-ended; err != failed {
			t.Error(err)
		}
		f.CaptureEnded(1, 13)
		start = time.Now()
		go func() { leave <- nil }()
		if err := f.SyncContext(1, wait); err != nil {
			t.Error(err)
		}
		if err := f.BeginCapture(1, 13, func() error { return nil }); err != nil || time.Since(start) != 0 {
			t.Errorf("after a wait that has ended: %v, %v", time.Since(start), err)
		}
		start = time.Now()
		err := f.SyncContext(1, func() error { t.Error("a wait while a stream captures"); return nil })
		if !errors.Is(err, &Error{Call: "cuCtxSynchronize", Code: 900}) || time.Since(start) != longest {
			t.Errorf("a capture that never ends: %v, after %v", err, time.Since(start))
		}
	})
}
