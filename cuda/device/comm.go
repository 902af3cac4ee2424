package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

	mu    sync.Mutex
	count uint64 // collectives enqueued so far: the same on all ranks when none is late
	last  []some // the last of them
}

// some is collectives that were enqueued together, after so many others.
type some struct {
	from  uint64
	names []called
}

type called struct{ name, group string }

// keptCalls is how many enqueuings a communicator remembers, to name what a peer lacks.
const keptCalls = 64

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
	c.enqueued([]called{{p.name, p.group.name}})
	for _, op := range p.ops {
		if err := c.c.Run(context.Background(), uintptr(st.h), op); err != nil {
			d.fail(d.explainNCCL(err))
			return d.failure()
		}
	}
	return nil
}

// alarm breaks an open device because of what the link has heard: its host may be in a call
// of a library that only this ends.
func (d *Device) alarm() {
	switch err := d.link.reason(); {
	case !d.open.Load():
	case d.nc != nil:
		if err := d.nc.missed(); err != nil {
			d.fail(err)
		}
	case err != nil:
		d.fail(err)
	}
}

// brokenNCCL is why a group cannot be used, nil if it can or if NCCL does not serve it.
func (d *Device) brokenNCCL(g *group) error {
	if g.nc == nil || g.nc.c.Err() == nil {
		return nil
	}
	d.fail(d.explainNCCL(g.nc.c.Err()))
	return d.failure()
}

// enqueued counts collectives.
func (c *comm) enqueued(names []called) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, some{c.count, names})
	if len(c.last) > keptCalls {
		c.last = slices.Delete(c.last, 0, 1)
	}
	c.count += uint64(len(names))
}

func (c *comm) counted() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// call is collective number n, counted from 0, if it is remembered.
func (c *comm) call(n uint64) (called, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.last {
		if n >= s.from && n-s.from < uint64(len(s.names)) {
			return s.names[n-s.from], true
		}
	}
	return called{}, false
}

// counts is what this rank has enqueued, by communicator.
func (d *Device) counts() map[string]uint64 {
	out := map[string]uint64{}
	d.mu.Lock()
	var comms []*comm
	if d.nc != nil {
		comms = d.nc.comms
	}
	d.mu.Unlock()
	for _, c := range comms {
		out[c.name] = c.counted()
	}
	return out
}

// callsOf lists the collectives of a step by communicator.
func callsOf(items []item) map[*comm][]called {
	out := map[*comm][]called{}
	for i := range items {
		if p := items[i].plan; p != nil && p.group != nil && p.group.nc != nil {
			c := p.group.nc
			out[c] = append(out[c], called{p.name, p.group.name})
		}
	}
	return out
}

// replayed counts the collectives of a graph.
func (d *Device) replayed(calls map[*comm][]called) {
	for c, names := range calls {
		c.enqueued(names)
	}
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
	if err := n.missed(); err != nil {
		d.fail(err)
		return
	}
	for _, c := range n.comms {
		if err := c.c.Poll(); err != nil {
			d.fail(d.explainNCCL(err))
			return
		}
	}
	if waited > d.spec.Timeout && d.spec.Timeout > 0 && n.busy() {
		d.fail(n.late(waited))
	}
}

// busy reports whether there are collectives whose end nobody has seen.
func (n *overNCCL) busy() bool {
	return slices.ContainsFunc(n.d.order, func(g *group) bool { return g.nc != nil && g.dirty })
}

// missed is what the other ranks' notes say of a broken world, or of a rank that is gone
// or has left without what this one has enqueued, as an error; nil if there is nothing.
func (n *overNCCL) missed() error {
	d := n.d
	if err := d.link.reason(); err != nil {
		return err
	}
	if r := n.d.link.gone(); r >= 0 {
		return &rt.PeerLostError{Op: n.current(), Rank: d.spec.Rank, Peer: r}
	}
	for _, c := range n.comms {
		for _, r := range c.ranks {
			left, counts := n.d.link.quit(r)
			if !left || r == d.spec.Rank || counts[c.name] >= c.counted() {
				continue
			}
			k, _ := c.call(counts[c.name])
			return &rt.PeerLostError{Op: k.name, Rank: d.spec.Rank, Peer: r, Group: k.group, Left: true}
		}
	}
	return nil
}

// current names the last collective.
func (n *overNCCL) current() string {
	for _, c := range n.comms {
		if count := c.counted(); count > 0 {
			if k, ok := c.call(count - 1); ok {
				return k.name
			}
		}
	}
	return "waiting"
}

// late is the error of a wait that took too long. It asks the other ranks what they have
// enqueued, and names those that lack what this rank waits for.
func (n *overNCCL) late(waited time.Duration) error {
	d := n.d
	told := n.d.link.ask(500 * time.Millisecond)
	e := &rt.TimeoutError{Op: n.current(), Rank: d.spec.Rank, Peer: -1, Elapsed: waited}
	for _, c := range n.comms {
		least := c.counted()
		for _, r := range c.ranks {
			if r != d.spec.Rank && told[r] != nil {
				least = min(least, told[r][c.name])
			}
		}
		for _, r := range c.ranks {
			switch {
			case r == d.spec.Rank || slices.Contains(e.Missing, r):
			case told[r] == nil:
				e.Missing, e.Detail = append(e.Missing, r), "does not answer"
			case told[r][c.name] == least && least < c.counted():
				e.Missing = append(e.Missing, r)
				e.Detail = fmt.Sprintf("has enqueued %d collectives of the group, rank %d has %d", least, d.spec.Rank, c.counted())
			}
		}
		if len(e.Missing) > 0 {
			e.Peer = e.Missing[0]
			if k, ok := c.call(least); ok {
				e.Op, e.Group = k.name, k.group
			}
			return e
		}
	}
	e.Detail = "every rank has enqueued as much"
	return e
}

// explainNCCL is the failure of a communicator, with what the other ranks say of it.
func (d *Device) explainNCCL(err error) error {
	if failed := d.failure(); failed != nil {
		return failed
	}
	if e := d.nc.missed(); e != nil {
		return e
	}
	var late *rt.TimeoutError
	switch {
	case errors.As(err, &late) && late.Rank == d.spec.Rank:
		return d.nc.late(late.Elapsed)
	case errors.Is(err, &nccl.Error{Code: nccl.RemoteError}), errors.Is(err, &nccl.Error{Code: nccl.SystemError}):
		// Who it was is about to be told.
		l := d.link
		l.until(5*time.Second, func() bool { return l.lost >= 0 || l.broke != nil || slices.Contains(l.left, true) })
		if e := d.nc.missed(); e != nil {
			return e
		}
	}
	return d.where().Own(err)
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
