package library

import (
	"github.com/seed-ee968945/concert/cuda/driver"
)

// Loader keeps the promise of Library.Plan that steps leave nothing to load. One
// goroutine at a time uses it.
type Loader struct {
	drv  driver.Driver
	ctx  driver.Ctx
	s    driver.Stream // of its own, 0 before the first load
	done map[any]bool
}

// NewLoader makes a loader for a context.
func NewLoader(drv driver.Driver, ctx driver.Ctx) *Loader {
	return &Loader{drv: drv, ctx: ctx, done: map[any]bool{}}
}

// Load loads what commands on driver.Main need, without running them (driver.Preload), if it
// has not done so for the key before: what identifies the code, such as the library's
// plan, whatever the addresses.
func (l *Loader) Load(key any, c *driver.Commands) (err error) {
	if l.done[key] || c.Len() == 0 {
		return nil
	}
	if l.s == 0 {
		if l.s, err = l.drv.StreamCreate(l.ctx); err != nil {
			return err
		}
	}
	if err := driver.Preload(l.drv, l.ctx, l.s, c); err != nil {
		return err
	}
	l.done[key] = true
	return nil
}

// Forget drops a key whose code is no longer there.
func (l *Loader) Forget(key any) { delete(l.done, key) }

// Close gives back what the loader holds.
func (l *Loader) Close() error {
	if l.s == 0 {
		return nil
	}
	s := l.s
	l.s = 0
	return l.drv.StreamDestroy(l.ctx, s)
}
