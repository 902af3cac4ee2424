package device

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/device/internal/code"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Compile implements runtime.Device.
func (d *Device) Compile(n int, u rt.Unit) error {
	var err error
	switch {
	case len(u.Kernels) > 0 && u.Source == "":
		err = fmt.Errorf("module %s has kernels without source: it was made for the host only", u.Name)
	case d.code != nil:
		err = d.code.Compile(n, &u)
	}
	if err != nil {
		return &rt.RendezvousError{Rank: d.spec.Rank, Reason: "cannot compile the modules' kernels", Err: err}
	}
	return nil
}

// Load implements runtime.Device.
func (d *Device) Load(n int) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if d.code == nil {
		return nil
	}
	return d.code.Unit(n).Load(d.own(d.life))
}

// Unload implements runtime.Device.
func (d *Device) Unload(n int) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if d.code == nil {
		return nil
	}
	return d.code.Unload(n, func(u *code.Unit) error { return d.forget(func(p *plan) bool { return p.unit == u }) })
}
