package topo

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Location is what a rank tells the others of where it is.
type Location struct {
	World   int     `json:"world"`
	GPU     string  `json:"gpu"` // its UUID
	Machine Machine `json:"machine"`
	// Partial says that the machine is what the CUDA driver shows one process: GPUs may
	// be hidden from it, and how they are joined is not told.
	Partial bool `json:"partial,omitempty"`
}

// NewLayout makes the layout of ranks 0 to len(locations)-1, the same on every rank; rank is
// the one that asks, for errors. Ranks of one host must have the same machine, or, where
// one of them is partial, machines that agree in what both have: they are joined into
// one. The error is a *rendezvous.MismatchError, or says what no layout can have.
func NewLayout(rank int, locations []Location) (*Layout, error) {
	a := newArranger(rank, len(locations))
	for i := range locations {
		if err := a.add(&locations[i]); err != nil {
			return nil, err
		}
	}
	return a.l, a.l.Check()
}

// arranger adds one rank after the other to a layout.
type arranger struct {
	me, world int
	l         *Layout
	first     []int  // rank that brought each machine
	partial   []bool // by machine
}

func newArranger(me, world int) *arranger {
	return &arranger{me: me, world: world, l: &Layout{Version: Version}}
}

// add adds the next rank, which is at s.
func (a *arranger) add(s *Location) error {
	l, r := a.l, len(a.l.Ranks)
	name := fmt.Sprintf("machine of rank %d", r)
	if err := s.Machine.Check(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if s.World != a.world {
		return &rendezvous.MismatchError{Op: "rendezvous", What: "sizes of the world", Rank: a.me, Peer: r, RankValue: fmt.Sprint(a.world), PeerValue: fmt.Sprint(s.World)}
	}
	at := slices.IndexFunc(l.Machines, func(m Machine) bool { return m.Host.ID == s.Machine.Host.ID })
	if at < 0 {
		at = len(l.Machines)
		l.Machines, a.first, a.partial = append(l.Machines, s.Machine), append(a.first, r), append(a.partial, s.Partial)
	} else {
		m, d := &l.Machines[at], []Difference(nil)
		if a.partial[at] || s.Partial {
			var joined Machine
			if joined, d = merge(m, &s.Machine, a.partial[at], s.Partial); len(d) == 0 {
				*m, a.partial[at] = joined, true
			}
		} else {
			d = Compare(m, &s.Machine)
		}
		if len(d) > 0 {
			return readings(a.first[at], r, d)
		}
	}
	g := slices.IndexFunc(l.Machines[at].GPUs, func(g GPU) bool { return g.UUID == s.GPU })
	if g < 0 {
		return fmt.Errorf("%s: has no GPU %s", name, s.GPU)
	}
	l.Ranks = append(l.Ranks, Place{Machine: at, GPU: g})
	return nil
}

// merge joins two readings of one host of which one or both may lack GPUs. Where both
// are partial, they must agree in all that both tell; where one is whole, what it says
// counts.
func merge(a, b *Machine, aPartial, bPartial bool) (Machine, []Difference) {
	both, better, other := aPartial && bPartial, a, b
	if !bPartial {
		better, other = b, a
	}
	var diffs []Difference
	differ := func(field, x, y string) {
		if x != y {
			diffs = append(diffs, Difference{field, fmt.Sprintf("%q", x), fmt.Sprintf("%q", y)})
		}
	}
	differ("cuda", a.CUDA, b.CUDA)
	out := *better
	out.GPUs = slices.Clone(a.GPUs) // in this order, for ranks have their places
	for _, g := range b.GPUs {
		i := slices.IndexFunc(out.GPUs, func(o GPU) bool { return o.UUID == g.UUID })
		switch {
		case i < 0:
			out.GPUs = append(out.GPUs, g)
		case both:
			differ("gpus["+g.UUID+"].name", out.GPUs[i].Name, g.Name)
		case !bPartial:
			out.GPUs[i] = g
		}
	}
	out.Pairs = nil
	for j := range out.GPUs {
		for i := range j {
			p := Pair{A: i, B: j, Way: WayUnknown, Read: Untold, Write: Untold, NVLink: Untold, Atomics: Untold, PCI: Untold}
			pa, pb := better.between(out.GPUs[i].UUID, out.GPUs[j].UUID), other.between(out.GPUs[i].UUID, out.GPUs[j].UUID)
			switch {
			case pa != nil:
				p = *pa
				if pb != nil && both {
					differ(fmt.Sprintf("pairs[%s, %s].read", out.GPUs[i].UUID, out.GPUs[j].UUID), pa.Read, pb.Read)
				}
			case pb != nil:
				p = *pb
			}
			p.A, p.B = i, j
			out.Pairs = append(out.Pairs, p)
		}
	}
	slices.SortFunc(out.Pairs, func(x, y Pair) int {
		if x.A != y.A {
			return x.A - y.A
		}
		return x.B - y.B
	})
	return out, diffs
}

// between is what joins the GPUs of two UUIDs, nil where one of them is not there.
func (m *Machine) between(a, b string) *Pair {
	find := func(u string) int { return slices.IndexFunc(m.GPUs, func(g GPU) bool { return g.UUID == u }) }
	return m.Pair(find(a), find(b))
}
