package cudagen

import (
	"slices"
)

// access is an element of a tensor in memory that a kernel reads.
type access struct {
	size, span int64 // bytes of an element, and of all elements that are read
	off        lin
}

// arrange finds the order in which threads walk the results. What several results
// read again, cosines of all heads or keys of a group of them, is to be read by
// neighbouring threads: the dimensions that the most bytes do not depend on go
// inside, but for the innermost, in which elements are next to each other.
func (f *form) arrange(r *region) error {
	f.order = nil
	if f.rows || len(f.shape) < 3 || f.list != nil || f.limits != nil {
		return nil
	}
	probe := *f
	probe.width, probe.half = 1, 0
	g := newGenerator(r, &probe)
	reads, err := g.reads()
	if err != nil {
		return err
	}
	const small = 64 << 10 // bytes that stay in the first cache anyhow
	inner := len(f.shape) - 1
	gain := make([]int64, inner)
	for _, a := range reads {
		if a.span < small {
			continue
		}
		for d := range gain {
			if f.shape[d] > 1 && !a.off.depends(g.walk[d]) {
				gain[d] += a.size
			}
		}
	}
	order := make([]int, inner)
	for d := range order {
		order[d] = d
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(gain[a] - gain[b]) })
	if order = append(order, inner); !slices.IsSorted(order) {
		f.order = order
	}
	return nil
}

// reads lists what the kernel reads, as functions of one atom for each dimension.
func (g *generator) reads() ([]access, error) {
	g.body = g.top
	g.probe = &[]access{}
	g.index = make([]lin, len(g.f.shape))
	g.walk = make([]*atom, len(g.f.shape))
	for d, n := range g.f.shape {
		g.walk[d] = g.x.newAtom(string(rune('a'+d%26)), n-1, 1, g.top)
		g.index[d] = g.walk[d].lin()
	}
	g.col = g.x.newAtom("i", g.f.count-1, 1, g.top)
	if err := g.everyResult(); err != nil {
		return nil, err
	}
	return *g.probe, nil
}
