package device

import (
	"context"

	"github.com/seed-ee968945/concert/cuda/driver"
	rt "github.com/seed-ee968945/concert/runtime"
)

// LocalOpener opens the devices of goroutine ranks that join one by one.
func LocalOpener(drv driver.Driver, devs []int, o Options) rt.Opener {
	o.Devices = devs
	s := newSite(len(devs))
	return func(ctx context.Context, spec rt.Spec) (rt.Device, error) { return s.open(ctx, drv, spec, o) }
}
