package device

import (
	"github.com/seed-ee968945/concert/cuda/driver"
	rt "github.com/seed-ee968945/concert/runtime"
)

// hostKernels computes on a driver whose memory is the host's: the fake one. Launches
// are functions that the driver calls in stream order.
type hostKernels struct{ drv driver.HostDriver }

// newHostKernels is nil on a real driver.
func newHostKernels(drv driver.Driver) *hostKernels {
	if d, ok := drv.(driver.HostDriver); ok {
		return &hostKernels{d}
	}
	return nil
}

// add adds a function to a command buffer. Its error breaks the device.
func (h *hostKernels) add(c *driver.Commands, d *Device, name string, run func() error) {
	c.Call(driver.Main, h.drv.RegisterCall(func([]uint64) error {
		if err := run(); err != nil {
			d.fail(d.call(name, err))
			return err
		}
		return nil
	}))
}

// launch adds a launch.
func (h *hostKernels) launch(c *driver.Commands, d *Device, name string, k *rt.Kernel) error {
	run, err := k.OnHost(d.hostBytes)
	if err == nil {
		h.add(c, d, name, run)
	}
	return err
}

// hostBytes are bytes of this rank's arena on such a driver.
func (d *Device) hostBytes(lo, hi int64) []byte {
	return driver.HostBytes(d.base+driver.Ptr(lo), uint64(hi-lo))
}
