package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/nccl"
	rt "github.com/seed-ee968945/concert/runtime"
)

// overNCCL is a device's part in groups that NCCL serves.
type overNCCL struct {
	d      *Device
	comms  []*comm
	turn   *group       // not a group: whose turn it is, of all streams with NCCL's kernels
	looked atomic.Int64 // when, in nanoseconds since start
	start  time.Time
}

// comm is this rank's communicator of some ranks, for all groups of these ranks.
type comm struct {
	name  string
	ranks []int // world ranks in order
	c     *nccl.Comm
}

// unavailable is the error of a machine without NCCL.
func (s *site) unavailable(spec *rt.Spec, err error) error {
	e := s.routes.needs(spec)
	e.Err = err
	return &rt.RendezvousError{Rank: spec.Rank, Reason: "the ranks' devices cannot form a world", Err: e}
}

// openNCCL begins the device's part.
func (d *Device) openNCCL() {
	d.nc = &overNCCL{d: d, start: time.Now(), turn: &group{}}
	d.life.Defer("communicators", d.nc.close)
}

// joinNCCL gives subgroup k of group number i its communicator, which groups of the same
// ranks share. All ranks go through the groups in one order.
func (d *Device) joinNCCL(ctx context.Context, g *group, i, k int) error {
	n := d.nc
	if at := slices.IndexFunc(n.comms, func(c *comm) bool { return slices.Equal(c.ranks, g.ranks) }); at >= 0 {
		g.nc = n.comms[at]
		return nil
	}
	limit := d.spec.Timeout
	if end, ok := ctx.Deadline(); ok { // which is what joining may take
		limit = max(time.Until(end), time.Millisecond)
	}
	job := d.spec.Job.Sub("nccl", g.ranks)
	joining, stop := job.Context(ctx, "rendezvous") // nobody joins a rank that is gone
	c := &comm{name: fmt.Sprintf("%d.%d", i, k), ranks: g.ranks}
	var err error
	c.c, err = nccl.Join(joining, d.site.lib, job, c.name, uintptr(d.rank.Ctx),
		nccl.Options{Timeout: d.spec.Timeout, JoinTimeout: limit, Config: d.opts.NCCL.Config})
	cause := context.Cause(joining)
	stop()
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		n.comms, g.nc = append(n.comms, c), c
		return nil
	}
	var lost *rt.PeerLostError
	if errors.As(cause, &lost) {
		return lost
	}
	return joinError(&d.spec, err)
}

// runNCCL enqueues a plan's operations, which have been checked.
func (d *Device) runNCCL(st *stream, p *plan) error {
	c := p.group.nc
	for _, op := range p.ops {
		if err := c.c.Run(context.Background(), uintptr(st.h), op); err != nil {
			d.fail(d.explainNCCL(err))
			return d.failure()
		}
	}
	return nil
}

// brokenNCCL is why a group cannot be used, nil if it can or if NCCL does not serve it.
func (d *Device) brokenNCCL(g *group) error {
	if g.nc == nil || g.nc.c.Err() == nil {
		return nil
	}
	d.fail(d.explainNCCL(g.nc.c.Err()))
	return d.failure()
}

// lookEvery is how often the library and the link are asked while the host waits.
const lookEvery = 500 * time.Microsecond

// look notices what has become of the communicators and of the other ranks; waited is for
// how long the host has waited for its streams.
func (n *overNCCL) look(waited time.Duration) {
	d := n.d
	now := int64(time.Since(n.start))
	if last := n.looked.Load(); now-last < int64(lookEvery) && last != 0 || !n.looked.CompareAndSwap(last, now) {
		return
	}
	for _, c := range n.comms {
		if err := c.c.Poll(); err != nil {
			d.fail(d.explainNCCL(err))
			return
		}
	}
	if waited > d.spec.Timeout && d.spec.Timeout > 0 && n.busy() {
		d.fail(d.late(waited))
	}
}

// busy reports whether there are collectives whose end nobody has seen.
func (n *overNCCL) busy() bool {
	return slices.ContainsFunc(n.d.order, func(g *group) bool { return g.nc != nil && g.dirty })
}

// explainNCCL is the failure of a communicator, with what the other ranks say of it.
func (d *Device) explainNCCL(err error) error {
	if failed := d.failure(); failed != nil {
		return failed
	}
	if e := d.missed(); e != nil {
		return e
	}
	var late *rt.TimeoutError
	switch {
	case errors.As(err, &late) && late.Rank == d.spec.Rank:
		return d.late(late.Elapsed)
	case errors.Is(err, &nccl.Error{Code: nccl.RemoteError}), errors.Is(err, &nccl.Error{Code: nccl.SystemError}):
		// Who it was is about to be told.
		l := d.link
		l.until(5*time.Second, func() bool { return l.lost >= 0 || l.broke != nil || slices.Contains(l.left, true) })
		if e := d.missed(); e != nil {
			return e
		}
	}
	return d.waiting().Own(err)
}

// abort breaks all communicators.
func (n *overNCCL) abort(err error) {
	for _, c := range n.comms {
		c.c.Abort(err)
	}
}

// settled sees, after a wait, whether a communicator broke meanwhile: its collectives then
// ended with undefined results.
func (n *overNCCL) settled() {
	for _, g := range n.d.order {
		if g.nc == nil || !g.dirty {
			continue
		}
		g.dirty = false
		if err := g.nc.c.Err(); err != nil {
			n.d.fail(n.d.explainNCCL(err))
		}
	}
}

// leaveLimit is how long a rank waits for others to leave as well. After that it frees its
// communicators alone; its own part of all collectives has ended. In a broken world only
// rank 0 waits, which hosts what the others learn the reason from.
const leaveLimit = 2 * time.Second

// close leaves. The streams are idle and the graphs are gone.
func (n *overNCCL) close() error {
	limit, works := leaveLimit, n.d.failure() == nil
	if !works {
		limit /= 2
		if n.d.spec.Rank != 0 {
			limit = 0
		}
	}
	together := n.d.link.leave(limit) && works
	var errs []error
	for _, c := range slices.Backward(n.comms) {
		if together {
			ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
			_ = c.c.Close(ctx) // a rank that did not see all others leave goes alone and breaks it; it is freed all the same
			cancel()
		} else {
			errs = append(errs, c.c.Drop())
		}
	}
	return errors.Join(errs...)
}
