package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device/internal/domain"
	"github.com/seed-ee968945/concert/cuda/device/internal/progress"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

// group is this rank's subgroup of a group.
type group struct {
	name    string
	life    *lifecycle.Scope
	ranks   []int         // world ranks in order
	pos     int           // of this rank
	m       *coll.Member  // nil in a subgroup of one, and where NCCL serves
	nc      *comm         // where NCCL serves, else nil
	log     *progress.Log // nil in a subgroup of one
	scratch driver.Ptr    // on this rank; the same offset on all
	room    uint64        // bytes of scratch
	ran     atomic.Bool   // whether it has had collectives

	// Two streams that share a group take turns in the order of their calls.
	last *stream
	turn driver.Event

	names progress.Names // of its calls, for errors
}

// AddGroup implements runtime.Device. It fails on all ranks if it fails on one.
func (d *Device) AddGroup(ctx context.Context, spec rt.Group) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	row, err := d.opts.decide(d.site.routes, spec) // alike on all ranks
	if err != nil {
		return joinError(&d.spec, err)
	}
	d.carries(spec, row)
	d.made++
	k := domain.NeedsNCCL(row)
	if k >= 0 {
		err = d.openNCCL(&TransportError{Group: spec.Name, Ranks: spec.Ranks[k], Decision: row[k]})
	}
	if err == nil && d.domain.Leads(d.spec.Rank) {
		err = d.domain.Add(ctx, spec, row, d.opts.group(&d.spec, spec.Name), d.opts.scratch())
	}
	g := &group{name: spec.Name, names: progress.Names{Group: spec.Name, Most: maxPlans}}
	if err = d.barrierAfter(ctx, err); err == nil {
		err = d.barrierAfter(ctx, d.openGroup(g, spec, row))
		if err == nil && k >= 0 { // no rank waits there for one that failed on its own
			err = d.barrierAfter(ctx, d.joinNCCL(ctx, g, spec.CrossStage))
		}
		if err == nil {
			d.groups[g.name] = g
			d.change(func(t *table) { t.groups = append(slices.Clone(t.groups), g) })
			return nil
		}
		_ = d.barrier(ctx) // a rank that failed comes here first, and others still look at what it gives back
	}
	return errors.Join(err, d.closeGroup(g))
}

// closeGroup gives back what a rank has of a group, and with that of the domain's first rank
// what the domain has.
func (d *Device) closeGroup(g *group) error {
	var errs []error
	if g.nc != nil {
		errs = append(errs, d.over.Load().leave(g))
	}
	if g.life != nil {
		errs = append(errs, g.life.EndInCall())
	}
	if d.domain.Leads(d.spec.Rank) {
		errs = append(errs, d.domain.Drop(g.name))
	}
	return errors.Join(errs...)
}

// openGroup makes this rank's part of a group, whose subgroups go the ways of row, but for what
// joins it to the others over NCCL.
func (d *Device) openGroup(g *group, spec rt.Group, row []topo.Decision) (err error) {
	if g.life, err = d.life.New("group " + g.name); err != nil {
		return err
	}
	g.ranks, g.pos = spec.Find(d.spec.Rank)
	at := slices.IndexFunc(spec.Ranks, func(list []int) bool { return len(list) > 0 && len(g.ranks) > 0 && list[0] == g.ranks[0] })
	if len(g.ranks) < 2 || at < 0 {
		return nil
	}
	if g.turn, err = d.own(g.life).Event(false); err != nil {
		return err
	}
	g.log = progress.NewLog(fmt.Sprintf("%d.%d", d.made, at), g.ranks)
	g.room = d.opts.scratch()
	if d.domain.Holds(spec.Ranks[at], row[at]) {
		s := d.domain.Group(g.name)
		if s == nil { // a rank whose world broke did not wait for this one
			return rt.ErrClosed
		}
		place := d.domain.Place(d.spec.Rank)
		for _, m := range s.Row[at].Members() {
			if m.Rank.ID == place {
				g.m = m
				m.Naming = g.names.Of
			}
		}
		g.scratch = d.domain.World.Addr(place, s.Scratch)
		return nil
	}
	g.scratch, err = d.own(g.life).Alloc(g.scratchBytes())
	return err
}

// scratchBytes is what scratch over NCCL takes, in whole pages, by which memory is registered.
func (g *group) scratchBytes() uint64 {
	const page = 64 << 10
	return (g.room + barrierBytes + page - 1) &^ (page - 1)
}

// DropGroup implements runtime.Device.
func (d *Device) DropGroup(name string) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	g := d.groups[name]
	if g == nil {
		return d.call("drop group", fmt.Errorf("no group %q", name))
	}
	delete(d.groups, name)
	d.change(func(t *table) {
		t.groups = slices.DeleteFunc(slices.Clone(t.groups), func(o *group) bool { return o == g })
	})
	return errors.Join(d.forget(func(p *plan) bool { return p.group == g }), d.closeGroup(g))
}

// takeTurn makes st wait for the group's last collective if that is in another stream. All
// groups that NCCL serves take turns with each other: their kernels wait for peers, and
// nothing but one order on all ranks keeps them from waiting in a circle. Collectives between stages
// have no such order: that they do not wait for each other is proved of them, with
// turns within each (program.CheckStages).
func (d *Device) takeTurn(g *group, st *stream) error {
	g.ran.Store(true)
	if g.nc != nil && !g.nc.crossStage {
		g.last = st
		g = d.over.Load().turn
	}
	last := g.last
	g.last = st
	if last == nil || last == st || g.turn == 0 { // nothing is shared between calls of a group of one
		return nil
	}
	if d.rec != nil {
		d.rec.add(item{st: last, record: g.turn, turn: true})
		d.rec.add(item{st: st, wait: g.turn})
		return nil
	}
	if err := d.drv.EventRecord(d.rank.Ctx, g.turn, last.h); err != nil {
		return err
	}
	return d.drv.StreamWait(d.rank.Ctx, st.h, g.turn)
}
