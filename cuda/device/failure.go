package device

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/stall"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// failure is the first failure, nil while the device works.
func (d *Device) failure() error { return d.broken.Err() }

// fail breaks the device and the world. The first cause counts.
func (d *Device) fail(err error) {
	if !d.broken.Set(err, func() { d.link.Break(err) }) || d.link == nil {
		return
	}
	d.stopLoops()
	for _, g := range d.table.Load().groups {
		if g.m != nil {
			g.m.Abort(err)
		}
	}
	if n := d.over.Load(); n != nil {
		n.abort(err)
	}
}

// Abort implements runtime.Device.
func (d *Device) Abort(cause error) {
	if cause == nil {
		cause = rt.ErrCanceled
	}
	d.fail(&rt.CanceledError{Rank: d.spec.Rank, Origin: d.spec.Rank, Err: cause})
}

// Err implements runtime.Device. It also notices what other ranks reported.
func (d *Device) Err() error {
	if err := d.failure(); err != nil {
		return err
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return d.look(0)
}

// look hears what has become of the groups, and does what their hosts must while
// they wait: waited is for how long this one has. It returns the failure.
func (d *Device) look(waited time.Duration) error {
	if err := errors.Join(d.badSizes.error(), d.missed()); err != nil {
		d.fail(err)
	}
	for _, g := range d.table.Load().groups {
		if g.m == nil {
			continue
		}
		if err := g.m.Poll(waited); err != nil && !errors.Is(err, symm.ErrClosed) { // it is being dropped
			d.fail(d.explain(err))
		}
	}
	if n := d.over.Load(); n != nil {
		n.look(d.still(waited))
	}
	return d.failure()
}

// explain says what the device was waiting for in the failure of a group that does not.
func (d *Device) explain(err error) error {
	switch err.(type) {
	case *rt.PeerLostError, *rt.CanceledError:
		return d.waiting().Adopt(err, -1)
	}
	return d.waiting().Own(err)
}

// onPeerFailure breaks an open device because of what the link has heard: its host may be in a call
// of a library that only this ends.
func (d *Device) onPeerFailure() {
	if !d.open.Load() {
		return
	}
	if err := d.missed(); err != nil {
		d.fail(err)
	}
}

// settled sees, after a wait, whether a peer gave up meanwhile: collectives then end
// with undefined results.
func (d *Device) settled() error {
	if err := d.badSizes.error(); err != nil {
		d.fail(err)
	}
	if n := d.over.Load(); n != nil {
		n.settled()
	}
	for _, g := range d.table.Load().groups {
		if g.m == nil || !g.m.Aborted() {
			continue
		}
		// The peer's reason is on its way.
		for clock := stall.Start(); clock.Look() < 2*time.Second; time.Sleep(time.Millisecond) {
			if err := d.look(0); err != nil {
				return err
			}
		}
		d.fail(&rt.CanceledError{Rank: d.spec.Rank, Origin: -1, Group: g.name, Err: errors.New("a peer gave up group " + g.name + " for a reason that it did not tell")})
	}
	return d.failure()
}

// joinError is a failure to open a device as the runtime's error.
func joinError(spec *rt.Spec, err error) error {
	var rend *rt.RendezvousError
	if err == nil || errors.As(err, &rend) || rendezvous.Known(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &rt.RendezvousError{Rank: spec.Rank, Reason: "cannot build the world of devices", Err: err}
}
