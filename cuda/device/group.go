package device

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda"
)

// group is this rank's subgroup of a group of the spec.
type group struct {
	name    string
	ranks   []int        // world ranks in order
	pos     int          // of this rank
	m       *cuda.Member // nil in a subgroup of one, and where NCCL serves
	nc      *comm        // where NCCL serves, else nil
	scratch cuda.Ptr     // on this rank; the same offset on all
	room    uint64       // bytes of scratch
	dirty   bool         // has run collectives that nobody has checked

	// Two streams that share a group take turns in the order of their calls.
	last *stream
	turn cuda.Event

	labels map[uint32]string // by number of the call: what it was, for errors
}

// member is the world rank at a position.
func (g *group) member(pos int) int {
	if pos < 0 || pos >= len(g.ranks) {
		return -1
	}
	return g.ranks[pos]
}

// label names a call of the group by the number that kernels report.
func (g *group) label(seq uint32) string {
	if s, ok := g.labels[seq]; ok {
		return s
	}
	return fmt.Sprintf("collective on %q", g.name)
}

func (d *Device) openGroups() error {
	for i, spec := range d.spec.Groups {
		g := &group{name: spec.Name, labels: map[uint32]string{}}
		g.ranks, g.pos = spec.Find(d.spec.Rank)
		d.groups[g.name] = g
		d.order = append(d.order, g)
		for k, list := range spec.Ranks {
			cg := d.site.groups[i][k]
			if cg == nil || len(list) == 0 || len(g.ranks) == 0 || list[0] != g.ranks[0] {
				continue
			}
			for _, m := range cg.Members() {
				if m.Rank.ID == d.spec.Rank {
					g.m = m
				}
			}
		}
		if g.m == nil {
			continue
		}
		var err error
		if g.turn, err = d.drv.EventCreate(d.rank.Ctx, false); err != nil {
			return err
		}
		g.scratch, g.room = d.site.world.Addr(d.spec.Rank, d.site.scratch[i]), d.opts.scratch()
	}
	return nil
}

// takeTurn makes st wait for the group's last collective if that is in another stream.
func (d *Device) takeTurn(g *group, st *stream) error {
	last := g.last
	g.last, g.dirty = st, true
	if last == nil || last == st || g.turn == 0 { // nothing is shared between calls of a group of one
		return nil
	}
	if d.rec != nil {
		d.rec.add(item{st: last, record: g.turn})
		d.rec.add(item{st: st, wait: g.turn})
		return nil
	}
	if err := d.drv.EventRecord(d.rank.Ctx, g.turn, last.h); err != nil {
		return err
	}
	return d.drv.StreamWait(d.rank.Ctx, st.h, g.turn)
}
