// Package owned creates driver objects and registers each with the scope that releases it.
package owned

import (
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
)

// Maker makes objects in a context, for a scope.
type Maker struct {
	Driver driver.Driver
	Ctx    driver.Ctx
	Life   *lifecycle.Scope
}

// hand gives the scope what was made, unless that failed.
func hand[T any](m Maker, what string, made T, err error, give func(driver.Ctx, T) error) (T, error) {
	if err != nil {
		return made, err
	}
	return made, m.Life.Defer(what, func() error { return give(m.Ctx, made) })
}

// Stream makes a stream, of the highest priority if high is set.
func (m Maker) Stream(high bool) (driver.Stream, error) {
	make := m.Driver.StreamCreate
	if high {
		make = m.Driver.StreamCreateHighPriority
	}
	s, err := make(m.Ctx)
	return hand(m, "stream", s, err, m.Driver.StreamDestroy)
}

// Event makes an event, which tells the time if timing is set.
func (m Maker) Event(timing bool) (driver.Event, error) {
	e, err := m.Driver.EventCreate(m.Ctx, timing)
	return hand(m, "event", e, err, m.Driver.EventDestroy)
}

// Alloc makes plain memory of the device.
func (m Maker) Alloc(bytes uint64) (driver.Ptr, error) {
	p, err := m.Driver.MemAlloc(m.Ctx, bytes)
	return hand(m, "memory", p, err, m.Driver.MemFree)
}

// Host makes memory of the host that devices reach, and says where it is for them.
func (m Maker) Host(bytes uint64) (uintptr, driver.Ptr, error) {
	at, dev, err := m.Driver.HostAlloc(m.Ctx, bytes)
	at, err = hand(m, "host memory", at, err, m.Driver.HostFree)
	return at, dev, err
}

// Memory makes memory of a device that can be mapped and shared.
func (m Maker) Memory(dev int, bytes uint64, how driver.Sharing) (driver.Mem, error) {
	mem, err := m.Driver.MemCreate(m.Ctx, dev, bytes, how)
	return m.Imported(mem, err)
}

// Imported takes memory over that was made elsewhere.
func (m Maker) Imported(mem driver.Mem, err error) (driver.Mem, error) {
	return hand(m, "memory that can be mapped", mem, err, m.Driver.MemRelease)
}

// Addresses reserves a range of addresses.
func (m Maker) Addresses(bytes uint64) (driver.Ptr, error) {
	at, err := m.Driver.Reserve(m.Ctx, bytes, 0)
	return hand(m, "range of addresses", at, err, func(c driver.Ctx, at driver.Ptr) error { return m.Driver.Unreserve(c, at, bytes) })
}

// Mapping maps memory at addresses.
func (m Maker) Mapping(at driver.Ptr, bytes uint64, mem driver.Mem) error {
	err := m.Driver.Map(m.Ctx, at, bytes, mem)
	_, err = hand(m, "mapping", at, err, func(c driver.Ctx, at driver.Ptr) error { return m.Driver.Unmap(c, at, bytes) })
	return err
}

// Module loads code.
func (m Maker) Module(image []byte) (driver.Module, error) {
	mod, err := m.Driver.ModuleLoad(m.Ctx, image)
	return hand(m, "module", mod, err, m.Driver.ModuleUnload)
}
