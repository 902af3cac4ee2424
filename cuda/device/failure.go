package device

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-ee968945/concert/cuda"
	rt "github.com/seed-ee968945/concert/runtime"
)

// report is how a failure travels to other ranks: as the text of the reason for which
// a group was aborted.
type report struct {
	Origin int             `json:"origin"` // world rank
	Err    json.RawMessage `json:"err"`    // as rt.EncodeError makes it
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
	if !d.broken.Set(err) || d.site == nil {
		return
	}
	d.site.broke(d.spec.Rank, err)
	var own *rt.AbortedError
	origin, cause := d.spec.Rank, err
	if errors.As(err, &own) {
		origin = own.Origin
		if own.Err != nil {
			cause = own.Err
		}
	}
	r := &report{Origin: origin, Err: rt.EncodeError(cause, reportBytes)}
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
		cause = rt.ErrAborted
	}
	d.fail(&rt.AbortedError{Rank: d.spec.Rank, Origin: d.spec.Rank, Err: cause})
}

// Err implements runtime.Device. It also notices what other ranks reported.
func (d *Device) Err() error {
	if err := d.failure(); err != nil {
		return err
	}
	if d.closed.Load() {
		return rt.ErrClosed
	}
	return d.look(0)
}

// look hears what has become of the groups, and does what their hosts must while
// they wait: waited is for how long this one has. It returns the failure.
func (d *Device) look(waited time.Duration) error {
	if whose, err := d.site.breaker(); err != nil && whose != d.spec.Rank {
		d.fail(rt.AdoptError(unwrapAborted(err), "", d.spec.Rank, originOf(err, whose)))
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

// unwrapAborted is the cause that a rank that broke the world had.
func unwrapAborted(err error) error {
	var a *rt.AbortedError
	if errors.As(err, &a) && a.Err != nil {
		return a.Err
	}
	return err
}

func originOf(err error, rank int) int {
	var a *rt.AbortedError
	if errors.As(err, &a) {
		return a.Origin
	}
	return rank
}

// explain turns what a group reports into the runtime's error.
func (d *Device) explain(g *group, err error) error {
	var t *cuda.TimeoutError
	var gone *cuda.GaveUpError
	var lost *cuda.PeerLostError
	me := d.spec.Rank
	switch {
	case errors.As(err, &gone):
		from := g.member(gone.Rank)
		var r report
		if json.Unmarshal([]byte(gone.Reason), &r) != nil {
			return &rt.AbortedError{Rank: me, Origin: from, Err: errors.New(gone.Reason)}
		}
		return rt.AdoptError(rt.DecodeError(r.Err), "", me, r.Origin)
	case errors.As(err, &t):
		peer := g.member(t.Peer)
		return &rt.TimeoutError{Op: g.label(t.Seq, t.Op), Rank: me, Peer: peer, Missing: []int{peer}, Group: g.name, Elapsed: t.Elapsed}
	case errors.As(err, &lost):
		errors.As(d.site.islands[me].translate(lost), &lost)
		return &rt.PeerLostError{Op: "collectives on \"" + g.name + "\"", Rank: me, Peer: lost.Rank, Group: g.name}
	}
	return &rt.AbortedError{Rank: me, Origin: me, Err: err}
}

// settled sees, after a wait, whether a peer gave up meanwhile: collectives then end
// with undefined results.
func (d *Device) settled() error {
	if d.nc != nil {
		d.nc.settled()
	}
	for _, g := range d.order {
		if g.m == nil || !g.m.GivenUp() {
			continue
		}
		// The peer's reason is on its way.
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if err := d.look(0); err != nil {
				return err
			}
		}
		d.fail(&rt.AbortedError{Rank: d.spec.Rank, Origin: d.spec.Rank, Err: errors.New("a peer gave up group " + g.name + " for a reason that it did not tell")})
	}
	return d.failure()
}

// joinError is a failure to open a device as the runtime's error.
func joinError(spec *rt.Spec, err error) error {
	var lost *cuda.PeerLostError
	var late *cuda.MeetingTimeoutError
	var gave *cuda.MeetingError
	var rend *rt.RendezvousError
	var mine *rt.TimeoutError
	switch {
	case err == nil, errors.As(err, &rend), errors.As(err, &mine), errors.Is(err, rt.ErrPeerLost),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &late):
		e := &rt.TimeoutError{Op: "meeting", Rank: spec.Rank, Peer: -1, Elapsed: late.Waited, Missing: late.Missing, Detail: err.Error()}
		if len(late.Missing) > 0 {
			e.Peer = late.Missing[0]
		}
		return e
	case errors.As(err, &gave) && gave.Left:
		return &rt.PeerLostError{Op: "meeting", Rank: spec.Rank, Peer: gave.Rank, Left: true}
	case errors.Is(err, cuda.ErrTimeout):
		return &rt.TimeoutError{Op: "meeting", Rank: spec.Rank, Peer: -1, Elapsed: spec.Timeout, Detail: err.Error()}
	case errors.As(err, &lost) && lost.Rank >= 0:
		return &rt.PeerLostError{Op: "rendezvous", Rank: spec.Rank, Peer: lost.Rank}
	}
	return &rt.RendezvousError{Rank: spec.Rank, Reason: "cannot build the world of devices", Err: err}
}
