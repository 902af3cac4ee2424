package device

import (
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
