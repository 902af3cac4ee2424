//go:build linux

package fake

import "github.com/seed-ee968945/concert/cuda/driver"

// RegisterCall makes it a HostDriver.
func (f *Driver) RegisterCall(run func(args []uint64) error) driver.CFunc {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.callbacks = append(f.callbacks, run)
	return driver.CFunc(len(f.callbacks))
}

func (f *Driver) callback(s driver.Stream, fn driver.CFunc, args []uint64) error {
	f.mu.Lock()
	if fn == 0 || int(fn) > len(f.callbacks) {
		f.mu.Unlock()
		return invalid("called function", "%d was not registered", fn)
	}
	run := f.callbacks[fn-1]
	f.mu.Unlock()
	args = append([]uint64(nil), args...)
	return f.work("called function", s, func() error {
		f.pause()
		return run(args)
	})
}
