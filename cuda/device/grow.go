package device

import (
	"context"
	"errors"
	"slices"

	rt "github.com/seed-ee968945/concert/runtime"
)

// Grow implements runtime.Device. It fails on all ranks if it fails on one.
func (d *Device) Grow(ctx context.Context, at rt.Region) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	var err error
	leads := d.domain.Leads(d.spec.Rank)
	if leads {
		err = d.domain.Grow(ctx, at)
	}
	failed := d.barrierAfter(ctx, err)
	if failed != nil && leads && err == nil {
		failed = errors.Join(failed, d.domain.Shrink(at))
	}
	return failed
}

// Shrink implements runtime.Device.
func (d *Device) Shrink(at rt.Region) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	err := d.forget(func(p *plan) bool { return slices.Contains(p.regions, at) })
	if d.domain.Leads(d.spec.Rank) {
		err = errors.Join(err, d.domain.Shrink(at))
	}
	return err
}
