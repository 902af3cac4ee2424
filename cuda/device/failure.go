package device

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-ee968945/concert/cuda/symm"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// report is how a failure travels to other ranks: as the text of the reason for which
// a group was aborted.
type report struct {
	Origin int             `json:"origin"` // world rank
	Err    json.RawMessage `json:"err"`    // as rendezvous.EncodeError makes it
}

// Error is the report itself.
func (r *report) Error() string {
	b, err := json.Marshal(r)
	if err != nil {
		return "unreadable report"
	}
	return string(b)
}

const reportBytes = 4096

// failure is the first failure, nil while the device works.
func (d *Device) failure() error { return d.broken.Err() }

// fail breaks the device and the world. The first cause counts.
func (d *Device) fail(err error) {
	if !d.broken.Set(err) || d.link == nil {
		return
	}
	var own *rt.CanceledError
	origin, cause := d.spec.Rank, err
	if errors.As(err, &own) {
		origin = own.Origin
		if own.Err != nil {
			cause = own.Err
		}
	}
	r := &report{Origin: origin, Err: rendezvous.EncodeError(cause, reportBytes)}
	d.link.breaks(r) // ahead of what the others see of groups that end, which says less
	for _, g := range d.order {
		if g.m != nil {
			g.m.Abort(r)
		}
	}
	if d.nc != nil {
		d.nc.abort(r)
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
	if r := d.link.reason(); r != nil {
		d.fail(rendezvous.AdoptError(rendezvous.DecodeError(r.Err), "", d.spec.Rank, r.Origin))
	}
	for _, g := range d.order {
		if g.m == nil {
			continue
		}
		if err := g.m.Tend(waited); err != nil {
			d.fail(d.explain(g, err))
		}
	}
	if d.nc != nil {
		d.nc.look(waited)
	}
	return d.failure()
}

// explain turns what a group reports into the runtime's error.
func (d *Device) explain(g *group, err error) error {
	var t *symm.TimeoutError
	var gone *symm.PeerAbortError
	var lost *symm.PeerLostError
	me := d.spec.Rank
	switch {
	case errors.As(err, &gone):
		from := g.member(gone.Rank)
		var r report
		if json.Unmarshal([]byte(gone.Reason), &r) != nil {
			return &rt.CanceledError{Rank: me, Origin: from, Err: errors.New(gone.Reason)}
		}
		return rendezvous.AdoptError(rendezvous.DecodeError(r.Err), "", me, r.Origin)
	case errors.As(err, &t):
		peer := g.member(t.Peer)
		return &rt.TimeoutError{Op: g.label(t.Seq, t.Op), Rank: me, Peer: peer, Missing: []int{peer}, Group: g.name, Elapsed: t.Elapsed}
	case errors.As(err, &lost):
		return &rt.PeerLostError{Op: "collectives on \"" + g.name + "\"", Rank: me, Peer: lost.Peer, Group: g.name}
	}
	return &rt.CanceledError{Rank: me, Origin: me, Err: err}
}

// settled sees, after a wait, whether a peer gave up meanwhile: collectives then end
// with undefined results.
func (d *Device) settled() error {
	if d.nc != nil {
		d.nc.settled()
	}
	for _, g := range d.order {
		if g.m == nil || !g.m.Aborted() {
			continue
		}
		// The peer's reason is on its way.
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if err := d.look(0); err != nil {
				return err
			}
		}
		d.fail(&rt.CanceledError{Rank: d.spec.Rank, Origin: d.spec.Rank, Err: errors.New("a peer gave up group " + g.name + " for a reason that it did not tell")})
	}
	return d.failure()
}

// joinError is a failure to open a device as the runtime's error.
func joinError(spec *rt.Spec, err error) error {
	var rend *rt.RendezvousError
	var late *rt.TimeoutError
	if err == nil || errors.As(err, &rend) || errors.As(err, &late) || errors.Is(err, rt.ErrPeerLost) || errors.Is(err, rt.ErrMismatch) ||
		errors.Is(err, rt.ErrCanceled) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &rt.RendezvousError{Rank: spec.Rank, Reason: "cannot build the world of devices", Err: err}
}
