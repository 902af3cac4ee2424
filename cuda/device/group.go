package device

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
)

// group is this rank's subgroup of a group of the spec.
type group struct {
	name    string
	ranks   []int        // world ranks in order
	pos     int          // of this rank
	m       *coll.Member // nil in a subgroup of one, and where NCCL serves
	nc      *comm        // where NCCL serves, else nil
	log     *ledger      // nil in a subgroup of one
	scratch driver.Ptr   // on this rank; the same offset on all
	room    uint64       // bytes of scratch
	dirty   bool         // has run collectives that nobody has checked; asked where NCCL serves

	// Two streams that share a group take turns in the order of their calls.
	last *stream
	turn driver.Event

	labelMu       sync.Mutex
	labels, older map[uint32]string // by number of the call: what it was, for errors
}

// named keeps the name of a call: of the last maxPlans at least, and of twice as many at
// most.
func (g *group) named(seq uint32, name string) {
	g.labelMu.Lock()
	defer g.labelMu.Unlock()
	if len(g.labels) >= maxPlans {
		g.labels, g.older = map[uint32]string{}, g.labels
	}
	g.labels[seq] = name
}

// label names a call of the group by the number that kernels report, and where it has been
// forgotten by what it was, if that is known.
func (g *group) label(seq uint32, what string) string {
	g.labelMu.Lock()
	defer g.labelMu.Unlock()
	for _, m := range [2]map[uint32]string{g.labels, g.older} {
		if s, ok := m[seq]; ok {
			return s
		}
	}
	if what == "" {
		what = "collective"
	}
	return fmt.Sprintf("%s on %q", what, g.name)
}

func (d *Device) openGroups(ctx context.Context) error {
	isle := d.site.islands[d.spec.Rank]
	place := isle.place(d.spec.Rank)
	if d.site.routes.nccl() {
		d.openNCCL()
	}
	for i, spec := range d.spec.Groups {
		g := &group{name: spec.Name, labels: map[uint32]string{}}
		g.ranks, g.pos = spec.Find(d.spec.Rank)
		d.groups[g.name] = g
		d.order = append(d.order, g)
		at := slices.IndexFunc(spec.Ranks, func(list []int) bool { return len(list) > 0 && len(g.ranks) > 0 && list[0] == g.ranks[0] })
		if len(g.ranks) < 2 || at < 0 {
			continue
		}
		if cg := isle.groups[i][at]; cg != nil {
			for _, m := range cg.Members() {
				if m.Rank.ID == place {
					g.m = m
					m.Naming = g.label
				}
			}
		} else if err := d.joinNCCL(ctx, g, i, at); err != nil {
			return err
		}
		g.log = &ledger{name: fmt.Sprintf("%d.%d", i, at), ranks: g.ranks}
		d.mu.Lock()
		d.logs = append(d.logs, g.log)
		d.mu.Unlock()
		var err error
		if g.turn, err = d.newEvent(d.life, false); err != nil {
			return err
		}
		g.scratch, g.room = isle.world.Addr(place, isle.scratch[i]), d.opts.scratch()
	}
	if d.nc == nil {
		return nil
	}
	var err error
	d.order = append(d.order, d.nc.turn)
	d.nc.turn.turn, err = d.newEvent(d.life, false)
	return err
}

// takeTurn makes st wait for the group's last collective if that is in another stream. All
// groups that NCCL serves take turns with each other: their kernels wait for peers, and
// nothing but one order on all ranks keeps them from waiting in a circle.
func (d *Device) takeTurn(g *group, st *stream) error {
	if g.nc != nil {
		g.last, g.dirty = st, true
		g = d.nc.turn
	}
	last := g.last
	g.last, g.dirty = st, true
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
