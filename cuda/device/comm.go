package device

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/nccl"
	rt "github.com/seed-ee968945/concert/runtime"
)

// overNCCL is a device's part in groups that NCCL serves.
type overNCCL struct {
	d      *Device
	list   atomic.Pointer[[]*comm]
	turn   *group       // not a group: whose turn it is, of all streams with NCCL's kernels
	looked atomic.Int64 // when, in nanoseconds since start
	start  time.Time

	warmsUp atomic.Bool // ranks are being connected
}

// comm is this rank's communicator of some ranks, for all groups of these ranks.
type comm struct {
	name       string
	ranks      []int // world ranks in order
	crossStage bool  // of one group, with ranks of several stages
	c          *nccl.Comm
	users      int // groups that have it
}

func (n *overNCCL) comms() []*comm { return *n.list.Load() }

// openNCCL begins the device's part, with the first group that needs it for a reason.
func (d *Device) openNCCL(need *TransportError) error {
	if d.over.Load() != nil {
		return nil
	}
	if _, err := d.site.nccl(d.drv, &d.opts); err != nil {
		need.Err = err
		return &rt.RendezvousError{Rank: d.spec.Rank, Reason: "the ranks' devices cannot form a world", Err: need}
	}
	n := &overNCCL{d: d, start: time.Now(), turn: &group{}}
	n.list.Store(&[]*comm{})
	var err error
	if n.turn.turn, err = d.own(d.life).Event(false); err != nil {
		return err
	}
	if err := d.life.Defer("communicators", n.close); err != nil {
		return err
	}
	if !d.opts.NCCL.NoRegister {
		d.domain.Watch(n.watcher())
	}
	d.over.Store(n)
	return nil
}

// turns are the groups, and what is not a group, whose calls take turns.
func (d *Device) turns() []*group {
	all := d.table.Load().groups
	if n := d.over.Load(); n != nil {
		all = append(slices.Clone(all), n.turn)
	}
	return all
}

// crossStageCTAs is how many blocks a collective between stages takes, unless the options say
// otherwise. Those of several groups may wait for peers at once, and so have to find room on
// the device together; a few suffice for a network adapter.
const crossStageCTAs = 4

// joinNCCL gives a group its communicator, if it needs one, which groups of the same ranks share, unless it
// has ranks of several stages. All ranks go through the groups in one order.
func (d *Device) joinNCCL(ctx context.Context, g *group, crossStage bool) error {
	if len(g.ranks) < 2 || g.m != nil {
		return nil
	}
	n := d.over.Load()
	if at := slices.IndexFunc(n.comms(), func(c *comm) bool { return !crossStage && !c.crossStage && slices.Equal(c.ranks, g.ranks) }); at >= 0 {
		return n.use(g, n.comms()[at])
	}
	limit := d.spec.Timeout
	if end, ok := ctx.Deadline(); ok { // which is what joining may take
		limit = max(time.Until(end), time.Millisecond)
	}
	job := d.spec.Job.Sub("nccl", g.ranks)
	joining, stop := job.Context(ctx, "rendezvous") // nobody joins a rank that is gone
	c := &comm{name: g.name, ranks: g.ranks, crossStage: crossStage}
	lib, err := d.site.nccl(d.drv, &d.opts)
	if err != nil {
		stop()
		return err
	}
	config := d.opts.NCCL.Config
	if crossStage && config == (nccl.Config{}) {
		config.MaxCTAs = crossStageCTAs
	}
	c.c, err = nccl.Join(joining, lib, job, c.name, uintptr(d.rank.Ctx),
		nccl.Options{Timeout: d.spec.Timeout, JoinTimeout: limit, Config: config, Unregistered: d.unregistered(g.ranks)})
	cause := context.Cause(joining)
	stop()
	if err == nil {
		list := append(slices.Clone(n.comms()), c)
		n.list.Store(&list)
		if err := n.enroll(g, c); err != nil {
			return joinError(&d.spec, err)
		}
		if crossStage {
			return d.introduce(ctx, c)
		}
		return nil
	}
	// Who dies takes the library's calls along; who leaves in order may have heard of this rank's failure.
	var lost *rt.PeerLostError
	var own *nccl.Error
	if errors.As(cause, &lost) && !(lost.Left && errors.As(err, &own)) {
		return lost
	}
	return joinError(&d.spec, err)
}

// leave ends a group's use of its communicator, which ends with the last.
func (n *overNCCL) leave(g *group) error {
	c := g.nc
	if c == nil {
		return nil
	}
	if c.users--; c.users > 0 {
		return nil
	}
	list := slices.DeleteFunc(slices.Clone(n.comms()), func(o *comm) bool { return o == c })
	n.list.Store(&list)
	return n.end(c, n.d.failure() == nil)
}

// end closes a communicator, together with the other ranks or alone.
func (n *overNCCL) end(c *comm, together bool) error {
	if !together {
		return c.c.Drop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	_ = c.c.Close(ctx) // a rank that did not see all others leave goes alone and breaks it; it is freed all the same
	return nil
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
	for _, c := range n.comms() {
		if err := c.c.Poll(); err != nil {
			d.fail(d.explainNCCL(err))
			return
		}
	}
	if waited > d.spec.Timeout && d.spec.Timeout > 0 && n.busy() {
		d.fail(d.late(waited))
	}
}

// busy reports whether there may be collectives that have not ended: some have been enqueued. That
// one wait has ended says nothing of what other streams have.
func (n *overNCCL) busy() bool {
	return n.warmsUp.Load() || slices.ContainsFunc(n.d.table.Load().groups, func(g *group) bool { return g.nc != nil && g.ran.Load() })
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
		d.link.Changed(5 * time.Second)
		if e := d.missed(); e != nil {
			return e
		}
	}
	return d.waiting().Own(err)
}

// abort breaks all communicators.
func (n *overNCCL) abort(err error) {
	for _, c := range n.comms() {
		c.c.Abort(err)
	}
}

// settled sees, after a wait, whether a communicator broke meanwhile: its collectives then
// ended with undefined results.
func (n *overNCCL) settled() {
	for _, g := range n.d.table.Load().groups {
		if g.nc == nil {
			continue
		}
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
	together := n.d.link.Leave(limit) && works
	var errs []error
	for _, c := range slices.Backward(n.comms()) {
		errs = append(errs, n.end(c, together))
	}
	return errors.Join(errs...)
}
