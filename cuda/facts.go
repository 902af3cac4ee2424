package cuda

import (
	"errors"
	"sync"
)

// facts is what does not change about a driver's devices while a process lives. It is
// found out once, when it is first asked for; a driver that fails is asked again.
type facts struct {
	mu     sync.Mutex
	access map[[2]int]bool // by device and peer
	fabric map[int]error   // by device: what a trial found
}

// canAccess is CanAccessPeer, asked once.
func (f *facts) canAccess(drv Driver, dev, peer int) (bool, error) {
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

// tryFabric is tryFabric, tried once: that fabric handles work, or that the driver does
// not support or permit them, stays so.
func (f *facts) tryFabric(drv Driver, c Ctx, dev int, info DeviceInfo) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err, known := f.fabric[dev]; known {
		return err
	}
	err := tryFabric(drv, c, dev, info)
	if err != nil && info.Fabric && !errors.Is(err, &Error{Code: codeNotPermitted}) && !errors.Is(err, &Error{Code: codeNotSupported}) {
		return err // for lack of memory, for example
	}
	if f.fabric == nil {
		f.fabric = map[int]error{}
	}
	f.fabric[dev] = err
	return err
}

// forget is for drivers whose devices change after all.
func (f *facts) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.access, f.fabric = nil, nil
}
