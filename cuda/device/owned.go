package device

import (
	"github.com/seed-ee968945/concert/cuda/driver"
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

// newEvent makes an event that s gives back.
func (d *Device) newEvent(s *lifecycle.Scope, timing bool) (driver.Event, error) {
	e, err := d.drv.EventCreate(d.rank.Ctx, timing)
	if err != nil {
		return 0, err
	}
	return e, s.Defer("event", func() error { return d.drv.EventDestroy(d.rank.Ctx, e) })
}

// module loads code that s gives back.
func (d *Device) module(s *lifecycle.Scope, image []byte) (driver.Module, error) {
	m, err := d.drv.ModuleLoad(d.rank.Ctx, image)
	if err != nil {
		return 0, err
	}
	return m, s.Defer("module", func() error { return d.drv.ModuleUnload(d.rank.Ctx, m) })
}

// alloc makes memory that s gives back.
func (d *Device) alloc(s *lifecycle.Scope, bytes uint64) (driver.Ptr, error) {
	p, err := d.drv.MemAlloc(d.rank.Ctx, bytes)
	if err != nil {
		return 0, err
	}
	return p, s.Defer("memory", func() error { return d.drv.MemFree(d.rank.Ctx, p) })
}

// openStream makes a stream with a scope of its own. Those that compute have the usual
// priority, those that communicate the highest, so that their few blocks start at once.
func (d *Device) openStream(name string, urgent bool) (_ *stream, err error) {
	s := &stream{name: name}
	if s.life, err = d.life.New("stream " + name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.life.EndInCall() // the first error matters
		}
	}()
	create := d.drv.StreamCreate
	if urgent {
		create = d.drv.StreamCreateHighPriority
	}
	if s.h, err = create(d.rank.Ctx); err != nil {
		return nil, err
	}
	if err = s.life.Defer("stream", func() error { return d.drv.StreamDestroy(d.rank.Ctx, s.h) }); err != nil {
		return nil, err
	}
	if s.join, err = d.newEvent(s.life, false); err != nil {
		return nil, err
	}
	return s, nil
}

// temporary is a scope for what a call makes for itself; it ends when the streams are idle.
func (d *Device) temporary(name string) (*lifecycle.Scope, error) {
	s, err := d.life.New(name)
	if err != nil {
		return nil, err
	}
	return s, s.Work(lifecycle.Hooks{Tend: d.tend, Idle: d.idle})
}
