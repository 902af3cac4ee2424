package library

import (
	"errors"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// Loader keeps the promise of Library.Plan that steps leave nothing to load. One
// goroutine at a time uses it.
type Loader struct {
	drv  driver.Driver
	ctx  driver.Ctx
	done map[any]bool
}

// NewLoader makes a loader for a context.
func NewLoader(drv driver.Driver, ctx driver.Ctx) *Loader {
	return &Loader{drv: drv, ctx: ctx, done: map[any]bool{}}
}

// Load loads what commands on driver.Main need, without running them (driver.Preload), if it
// has not done so for the key before: what identifies the code, such as the library's
// plan, whatever the addresses.
func (l *Loader) Load(key any, c *driver.Commands) error {
	if l.done[key] || c.Len() == 0 {
		return nil
	}
	s, err := l.drv.StreamCreate(l.ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(driver.Preload(l.drv, l.ctx, s, c), l.drv.StreamDestroy(l.ctx, s)); err != nil {
		return err
	}
	l.done[key] = true
	return nil
}

// Forget drops a key whose code is no longer there.
func (l *Loader) Forget(key any) { delete(l.done, key) }
