package host

import (
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

// completion is a point in a stream: its channel is closed when the stream has
// passed it.
type completion struct{ ch chan struct{} }

func newCompletion() *completion { return &completion{make(chan struct{})} }

func (c *completion) done() { close(c.ch) }

// event stands for the completion that its latest Record made.
type event struct{ cur *completion }

// stream runs work in order on a goroutine of its own. After a failure of the
// device it drops work: completions of dropped work never fire, and whoever
// waits for them learns of the failure instead.
type stream struct {
	d    *Device
	name string
	life *lifecycle.Scope

	mu     sync.Mutex
	work   []func() error
	wake   *sync.Cond // work came, or the end
	ending bool
	ended  chan struct{}
}

// NewStream implements runtime.Device.
func (d *Device) NewStream(name string) (rt.Stream, error) {
	if d.life.Begin() != nil {
		return 0, rt.ErrClosed
	}
	defer d.life.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &stream{d: d, name: name, ended: make(chan struct{})}
	s.wake = sync.NewCond(&s.mu)
	var err error
	if s.life, err = d.life.New("stream " + name); err != nil {
		return 0, err
	}
	go s.run()
	s.life.Defer("stream", s.stop)
	at := slices.Index(d.streams, nil)
	if at < 0 {
		at = len(d.streams)
		d.streams = append(d.streams, nil)
	}
	d.streams[at] = s
	return rt.Stream(at), nil
}

// DropStream implements runtime.Device.
func (d *Device) DropStream(s rt.Stream) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.streams[s] = nil
	d.mu.Unlock()
	return st.life.EndInCall()
}

// NewEvent implements runtime.Device.
func (d *Device) NewEvent() (rt.Event, error) {
	if d.life.Err() != nil {
		return 0, rt.ErrClosed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.Index(d.events, nil)
	if at < 0 {
		at = len(d.events)
		d.events = append(d.events, nil)
	}
	d.events[at] = &event{}
	return rt.Event(at), nil
}

// DropEvent implements runtime.Device.
func (d *Device) DropEvent(e rt.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.event("drop", e)
	if err == nil {
		d.events[e] = nil
	}
	return err
}

// event finds an event; d.mu is held.
func (d *Device) event(op string, e rt.Event) (*event, error) {
	if int(e) < 0 || int(e) >= len(d.events) || d.events[e] == nil {
		return nil, d.call(op, fmt.Errorf("no event %d", e))
	}
	return d.events[e], nil
}

// stream returns the stream to enqueue on, or why that cannot be.
func (d *Device) stream(s rt.Stream) (*stream, error) {
	if err := d.failure(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s < 0 || int(s) >= len(d.streams) || d.streams[s] == nil {
		return nil, d.call("enqueue", fmt.Errorf("no stream %d", s))
	}
	return d.streams[s], nil
}

// push enqueues f.
func (s *stream) push(f func() error) {
	s.mu.Lock()
	s.work = append(s.work, f)
	s.mu.Unlock()
	s.wake.Signal()
}

// hook lets tests hold the stream back.
func (s *stream) hook() {
	if h := s.d.opts.StreamHook; h != nil {
		h(s.d.spec.Rank, s.name)
	}
}

// stop ends the goroutine after the work in progress and waits for that.
func (s *stream) stop() error {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.wake.Signal()
	<-s.ended
	return nil
}

func (s *stream) run() {
	defer close(s.ended)
	var batch []func() error
	for {
		s.mu.Lock()
		for len(s.work) == 0 && !s.ending {
			s.wake.Wait()
		}
		if s.ending {
			s.mu.Unlock()
			return
		}
		batch, s.work = s.work, batch[:0]
		s.mu.Unlock()
		for i, f := range batch {
			batch[i] = nil // the queue must not keep operands alive
			if s.d.failure() != nil {
				continue
			}
			if err := f(); err != nil {
				s.d.fail(err)
			}
		}
	}
}

// recorded is what an event stands for.
func (d *Device) recorded(op string, e rt.Event) (*completion, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ev, err := d.event(op, e)
	if err == nil && ev.cur == nil {
		err = d.call(op, fmt.Errorf("event %d was never recorded", e))
	}
	if err != nil {
		return nil, err
	}
	return ev.cur, nil
}

// Record implements runtime.Device.
func (d *Device) Record(s rt.Stream, e rt.Event) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	c := newCompletion()
	d.mu.Lock()
	ev, err := d.event("record", e)
	if err == nil {
		ev.cur = c
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	st.push(func() error { c.done(); return nil })
	return nil
}

// Wait implements runtime.Device.
func (d *Device) Wait(s rt.Stream, e rt.Event) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	c, err := d.recorded("wait", e)
	if err != nil {
		return err
	}
	st.push(func() error { return d.waitFor(c) })
	return nil
}

// waitFor blocks a stream until c fires or the device breaks.
func (d *Device) waitFor(c *completion) error {
	select {
	case <-c.ch:
		return nil
	case <-d.broken.Done():
		return d.failure()
	}
}
