package device

import (
	"math/bits"
	"sync"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/owned"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

// enter starts a call of a device that works, which leave ends: nothing that the device has
// is given back meanwhile.
func (d *Device) enter() error {
	if d.life.Begin() != nil {
		return rt.ErrClosed
	}
	if err := d.failure(); err != nil {
		d.life.Done()
		return err
	}
	return nil
}

func (d *Device) leave() { d.life.Done() }

// own makes objects of the driver that s gives back.
func (d *Device) own(s *lifecycle.Scope) owned.Maker {
	return owned.Maker{Driver: d.drv, Ctx: d.rank.Ctx, Life: s}
}

// openStream makes a stream with a scope of its own. Those that compute have the usual
// priority, those that communicate the highest, so that their few blocks start at once.
func (d *Device) openStream(name string, high bool) (_ *stream, err error) {
	s := &stream{name: name}
	if s.life, err = d.life.New("stream " + name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.life.EndInCall() // the first error matters
		}
	}()
	if s.h, err = d.own(s.life).Stream(high); err == nil {
		s.join, err = d.own(s.life).Event(false)
	}
	return s, err
}

// temporary is a scope for what a call makes for itself; it ends when the streams are idle.
func (d *Device) temporary(name string) (*lifecycle.Scope, error) {
	s, err := d.life.New(name)
	if err != nil {
		return nil, err
	}
	return s, s.Work(lifecycle.Hooks{Tend: d.tend, Idle: d.idle})
}

// spares is memory of the device that steps and timers have done with, by size. It is freed with
// the device: to free memory waits for all that runs there, and where ranks share a device, what
// a peer runs may wait for the rank that frees.
type spares struct {
	mu sync.Mutex
	by map[uint64][]driver.Ptr
}

func (s *spares) put(at driver.Ptr, bytes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[uint64][]driver.Ptr{}
	}
	s.by[bytes] = append(s.by[bytes], at)
}

// take is 0 if there is none.
func (s *spares) take(bytes uint64) driver.Ptr {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.by[bytes]
	if len(list) == 0 {
		return 0
	}
	s.by[bytes] = list[:len(list)-1]
	return list[len(list)-1]
}

// borrow takes memory of the device, of which nobody says what it holds, until s ends.
func (d *Device) borrow(s *lifecycle.Scope, bytes uint64) (at driver.Ptr, err error) {
	size := uint64(1) << bits.Len64(max(bytes, 256)-1)
	if at = d.spares.take(size); at == 0 {
		if at, err = d.own(d.life).Alloc(size); err != nil {
			return 0, err
		}
	}
	if err := s.Defer("memory", func() error { d.spares.put(at, size); return nil }); err != nil {
		d.spares.put(at, size)
		return 0, err
	}
	return at, nil
}
