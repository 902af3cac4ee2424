package symm

import (
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
)

// owner makes objects of the driver in a rank's context, and hands each to a scope, which
// gives it back.
type owner struct {
	r    *Rank
	life *lifecycle.Scope
}

func (r *Rank) own(s *lifecycle.Scope) owner { return owner{r, s} }

// owned hands over what was made unless that failed.
func owned[T any](o owner, what string, made T, err error, give func(driver.Ctx, T) error) (T, error) {
	if err != nil {
		return made, err
	}
	return made, o.life.Defer(what, func() error { return give(o.r.Ctx, made) })
}

// stream makes a stream, of the highest priority if high is set.
func (o owner) stream(high bool) (driver.Stream, error) {
	d := o.r.World.drv
	make := d.StreamCreate
	if high {
		make = d.StreamCreateHighPriority
	}
	s, err := make(o.r.Ctx)
	return owned(o, "stream", s, err, d.StreamDestroy)
}

func (o owner) event() (driver.Event, error) {
	d := o.r.World.drv
	e, err := d.EventCreate(o.r.Ctx, false)
	return owned(o, "event", e, err, d.EventDestroy)
}

// alloc makes plain memory.
func (o owner) alloc(bytes uint64) (driver.Ptr, error) {
	d := o.r.World.drv
	p, err := d.MemAlloc(o.r.Ctx, bytes)
	return owned(o, "memory", p, err, d.MemFree)
}

// host makes memory of the host that devices reach.
func (o owner) host(bytes uint64) (uintptr, driver.Ptr, error) {
	d := o.r.World.drv
	at, dev, err := d.HostAlloc(o.r.Ctx, bytes)
	at, err = owned(o, "host memory", at, err, d.HostFree)
	return at, dev, err
}

// memory makes memory that can be mapped and shared.
func (o owner) memory(bytes uint64, how driver.Sharing) (driver.Mem, error) {
	m, err := o.r.World.drv.MemCreate(o.r.Ctx, o.r.Dev, bytes, how)
	return o.imported(m, err)
}

// imported takes memory over that was made elsewhere.
func (o owner) imported(m driver.Mem, err error) (driver.Mem, error) {
	return owned(o, "memory that can be mapped", m, err, o.r.World.drv.MemRelease)
}

func (o owner) addresses(bytes uint64) (driver.Ptr, error) {
	d := o.r.World.drv
	at, err := d.Reserve(o.r.Ctx, bytes, 0)
	return owned(o, "range of addresses", at, err, func(c driver.Ctx, at driver.Ptr) error { return d.Unreserve(c, at, bytes) })
}

func (o owner) mapping(at driver.Ptr, bytes uint64, m driver.Mem) error {
	d := o.r.World.drv
	err := d.Map(o.r.Ctx, at, bytes, m)
	_, err = owned(o, "mapping", at, err, func(c driver.Ctx, at driver.Ptr) error { return d.Unmap(c, at, bytes) })
	return err
}

func (o owner) module(image []byte) (driver.Module, error) {
	d := o.r.World.drv
	m, err := d.ModuleLoad(o.r.Ctx, image)
	return owned(o, "module", m, err, d.ModuleUnload)
}

// drained gives a question for the end of all work of the rank's device, which can be asked
// again and again, by one goroutine. The driver has none: one call waits for each answer.
func (r *Rank) drained() func() (bool, error) {
	var asked func() (bool, error)
	return func() (bool, error) {
		if asked == nil {
			asked = r.synced()
		}
		ok, err := asked()
		if ok || err != nil {
			asked = nil
		}
		return ok, err
	}
}

// NewStream makes a stream that the group gives back, of the highest priority if high is
// set.
func (m *Member) NewStream(high bool) (driver.Stream, error) {
	return m.Rank.own(m.Group.life).stream(high)
}

// NewEvent makes an event without timing that the group gives back.
func (m *Member) NewEvent() (driver.Event, error) { return m.Rank.own(m.Group.life).event() }

// NewMemory makes plain memory of the rank's device that the group gives back.
func (m *Member) NewMemory(bytes uint64) (driver.Ptr, error) {
	return m.Rank.own(m.Group.life).alloc(bytes)
}
