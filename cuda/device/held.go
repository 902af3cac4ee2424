package device

import (
	"context"
	"errors"

	"github.com/seed-ee968945/concert/cuda/device/internal/pace"
	"github.com/seed-ee968945/concert/cuda/library"
)

// Resources that libraries hold for plans are released when the plans can no longer run. A
// plan is held by the device while it keeps it for the next equal call, and by every
// capture and captured step that has it. What was enqueued may still run when the last
// of them lets go, so the plan waits until the streams are seen idle. Libraries are used
// by the goroutine that enqueues, and captured steps may be closed by another: giving
// back is up to the former, when it makes plans.

// hold says that a plan is held once more.
func (d *Device) hold(ps ...*plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range ps {
		if p != nil {
			p.holders++
		}
	}
}

// drop undoes hold.
func (d *Device) drop(ps ...*plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range ps {
		if p == nil {
			continue
		}
		if p.holders--; p.holders == 0 && p.owned != nil {
			d.retired = append(d.retired, p)
		}
	}
}

// keep adds a plan to those that are kept. When they are as many as there may be, all
// others go.
func (d *Device) keep(key string, p *plan) {
	if len(d.plans) >= d.most {
		for _, old := range d.plans {
			d.drop(old)
		}
		clear(d.plans)
	}
	d.hold(p)
	d.plans[key] = p
}

// forget lets go of plans that are kept.
func (d *Device) forget(gone func(p *plan) bool) error {
	for key, p := range d.plans {
		if gone(p) {
			d.drop(p)
			delete(d.plans, key)
		}
	}
	return d.giveBack()
}

// giveBack releases the unreferenced plans, if the streams are idle. Once they are
// as many as the plans that are kept it waits for that.
func (d *Device) giveBack() error {
	d.mu.Lock()
	n := len(d.retired)
	d.mu.Unlock()
	if n == 0 {
		return nil
	}
	idle, err := d.idle()
	if err == nil && !idle {
		if n < d.most {
			return nil
		}
		err = d.await(context.Background(), new(pace.Waits), d.idle)
	}
	if err != nil {
		return err
	}
	// Those that were retired meanwhile may have been enqueued meanwhile.
	d.mu.Lock()
	var gone []library.Releaser
	for _, p := range d.retired[:n] {
		if p.holders == 0 && p.owned != nil { // else its current holder releases it later
			gone = append(gone, p.owned)
			p.owned = nil
		}
	}
	d.retired = d.retired[n:]
	d.mu.Unlock()
	var errs []error
	for _, o := range gone {
		errs = append(errs, o.Release())
	}
	return errors.Join(errs...)
}
