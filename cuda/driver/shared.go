package driver

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// Shared is what all worlds on a driver have in common: who asked to hear of streams that
// are destroyed, and what does not change about devices while a process lives. That is
// found out once, when it is first asked for; a driver that fails is asked again. The zero
// value is ready.
type Shared struct {
	mu     sync.Mutex
	access map[[2]int]bool // by device and peer
	fabric map[int]error   // by device: what a trial found

	streams  sync.Mutex // of what follows
	by       map[Stream]map[StreamUser]bool
	captures map[Ctx]*captures
}

// StreamUser keeps something about a stream that it has not made.
type StreamUser interface {
	// StreamDestroyed is called before a stream is destroyed. Its error is the destroyer's.
	StreamDestroyed(s Stream) error
}

// Watch makes u hear, once, that s is destroyed through the driver.
func (f *Shared) Watch(s Stream, u StreamUser) {
	f.streams.Lock()
	defer f.streams.Unlock()
	if f.by == nil {
		f.by = map[Stream]map[StreamUser]bool{}
	}
	if f.by[s] == nil {
		f.by[s] = map[StreamUser]bool{}
	}
	f.by[s][u] = true
}

// Unwatch undoes every Watch of u.
func (f *Shared) Unwatch(u StreamUser) {
	f.streams.Lock()
	defer f.streams.Unlock()
	for s, all := range f.by {
		if delete(all, u); len(all) == 0 {
			delete(f.by, s)
		}
	}
}

// Destroying tells those that watch s. A driver calls it before it destroys a stream.
func (f *Shared) Destroying(s Stream) error {
	f.streams.Lock()
	all := f.by[s]
	delete(f.by, s)
	captures := slices.Collect(maps.Values(f.captures))
	f.streams.Unlock()
	for _, x := range captures {
		x.end(s)
	}
	var errs []error
	for u := range all {
		errs = append(errs, u.StreamDestroyed(s))
	}
	return errors.Join(errs...)
}

// CanAccess is Driver.CanAccessPeer, asked once for a pair of devices.
func (f *Shared) CanAccess(drv Driver, dev, peer int) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pair := [2]int{dev, peer}
	if ok, known := f.access[pair]; known {
		return ok, nil
	}
	ok, err := drv.CanAccessPeer(dev, peer)
	if err != nil {
		return false, err
	}
	if f.access == nil {
		f.access = map[[2]int]bool{}
	}
	f.access[pair] = ok
	return ok, nil
}

// TryFabric makes memory with a fabric handle and imports the handle again: nil, or a
// *FabricError. That fabric handles work, or that the driver does not support or permit
// them, stays so and is tried once for a device.
func (f *Shared) TryFabric(drv Driver, c Ctx, dev int, info DeviceInfo) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err, known := f.fabric[dev]; known {
		return err
	}
	err := tryFabric(drv, c, dev, info)
	if err != nil && info.Fabric && !errors.Is(err, &Error{Code: CodeNotPermitted}) && !errors.Is(err, &Error{Code: CodeNotSupported}) {
		return err // for lack of memory, for example
	}
	if f.fabric == nil {
		f.fabric = map[int]error{}
	}
	f.fabric[dev] = err
	return err
}

// Forget is for drivers whose devices change after all.
func (f *Shared) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.access, f.fabric = nil, nil
}
