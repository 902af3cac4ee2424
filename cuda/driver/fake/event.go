//go:build linux

package fake

import (
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// EventCreate makes an event.
func (f *Driver) EventCreate(driver.Ctx, bool) (driver.Event, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	return driver.Event(f.put(&event{})), nil
}

// EventDestroy forgets an event.
func (f *Driver) EventDestroy(_ driver.Ctx, e driver.Event) error {
	if _, err := drop[*event](f, "cuEventDestroy", uint64(e)); err != nil {
		return err
	}
	return f.call()
}

// EventRecord marks the place in the stream.
func (f *Driver) EventRecord(_ driver.Ctx, e driver.Event, s driver.Stream) error {
	st, err := f.stream("cuEventRecord", s)
	if err != nil {
		return err
	}
	ev, err := lookUp[*event](f, "cuEventRecord", uint64(e))
	if err != nil {
		return err
	}
	mark := &mark{done: make(chan struct{})}
	st.mu.Lock()
	in := st.graph
	st.mu.Unlock()
	ev.mu.Lock()
	ev.mark, ev.in = mark, in
	ev.mu.Unlock()
	return st.push(operation{rec: mark})
}

// mark adds a recording to the graph being captured, anew in every launch of it.
func (f *Driver) mark(e driver.Event, s driver.Stream) error {
	st, err := f.stream("cuEventRecordWithFlags", s)
	if err != nil {
		return err
	}
	ev, err := lookUp[*event](f, "cuEventRecordWithFlags", uint64(e))
	if err != nil {
		return err
	}
	st.mu.Lock()
	capturing := st.graph != nil
	st.mu.Unlock()
	if !capturing {
		return invalid("cuEventRecordWithFlags", "the stream is not capturing")
	}
	return st.push(operation{what: "cuEventRecordWithFlags", run: func() error {
		reached := &mark{done: make(chan struct{}), at: time.Now()}
		close(reached.done)
		ev.mu.Lock()
		defer ev.mu.Unlock()
		ev.mark, ev.in = reached, nil
		return nil
	}})
}

// EventQuery reports whether the last recording was reached.
func (f *Driver) EventQuery(_ driver.Ctx, e driver.Event) (bool, error) {
	ev, err := lookUp[*event](f, "cuEventQuery", uint64(e))
	if err != nil {
		return false, err
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.in != nil {
		return false, &driver.Error{Call: "cuEventQuery", Code: 907, Name: "CUDA_ERROR_CAPTURED_EVENT", Text: "the event was last recorded in a capture"}
	}
	if ev.mark == nil {
		return true, f.call()
	}
	select {
	case <-ev.mark.done:
		return true, f.call()
	default:
		return false, f.call()
	}
}

// EventElapsed is the host time between two recordings.
func (f *Driver) EventElapsed(_ driver.Ctx, from, to driver.Event) (float32, error) {
	var at [2]time.Time
	for i, e := range []driver.Event{from, to} {
		ev, err := lookUp[*event](f, "cuEventElapsedTime", uint64(e))
		if err != nil {
			return 0, err
		}
		ev.mu.Lock()
		mark := ev.mark
		ev.mu.Unlock()
		if mark == nil {
			return 0, invalid("cuEventElapsedTime", "event was not recorded")
		}
		<-mark.done
		at[i] = mark.at
	}
	return float32(at[1].Sub(at[0]).Seconds() * 1e3), f.call()
}
