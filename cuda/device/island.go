package device

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// routes say what carries the collectives of a spec's groups: the same on every rank.
type routes struct {
	by      [][]topo.Decision // by group and subgroup
	islands [][]int           // the ranks, parted into those that share memory
}

// nccl reports whether a subgroup needs NCCL.
func (r *routes) nccl() bool {
	return slices.ContainsFunc(r.by, func(row []topo.Decision) bool {
		return slices.ContainsFunc(row, func(d topo.Decision) bool { return d.Transport == topo.NCCL })
	})
}

// route decides for all groups. Where memory serves all groups and reaches from every rank
// to every other, there is one island. Else islands are as small as groups allow; NCCL
// serves what an island cannot.
func route(spec *rt.Spec, o *Options, l *topo.Layout) (*routes, error) {
	decide := func(ranks []int) (topo.Decision, error) {
		d, err := l.Decide(ranks, topo.DecideOptions{AllowShared: o.ShareDevice})
		switch {
		case err != nil || len(ranks) < 2 || d.Transport == topo.NCCL:
		case o.Transport == topo.NCCL:
			d.Transport, d.Reason = topo.NCCL, "the options say so"
		case len(ranks) > kernels.MaxRanks:
			d.Transport, d.Reason = topo.NCCL, fmt.Sprintf("%d ranks are more than the %d of a group on symmetric memory", len(ranks), kernels.MaxRanks)
		}
		return d, err
	}
	r := &routes{}
	all := make([]int, spec.World)
	isle := make([]int, spec.World) // by rank: the smallest rank of its island
	for i := range all {
		all[i], isle[i] = i, i
	}
	join := func(a, b int) {
		from, to := max(isle[a], isle[b]), min(isle[a], isle[b])
		for i, k := range isle {
			if k == from {
				isle[i] = to
			}
		}
	}
	for _, g := range spec.Groups {
		row := make([]topo.Decision, len(g.Ranks))
		for k, ranks := range g.Ranks {
			var err error
			if row[k], err = decide(ranks); err != nil {
				return nil, fmt.Errorf("group %q: %w", g.Name, err)
			}
			if row[k].Transport == topo.Symmetric {
				for _, rank := range ranks {
					join(ranks[0], rank)
				}
			}
		}
		r.by = append(r.by, row)
	}
	if d, err := decide(all); err != nil {
		return nil, err
	} else if d.Transport == topo.Symmetric && !r.nccl() {
		r.islands = [][]int{all}
		return r, nil
	}
	for first := range all {
		var ranks []int
		for rank, k := range isle {
			if k == first {
				ranks = append(ranks, rank)
			}
		}
		if len(ranks) == 0 {
			continue
		}
		d, err := decide(ranks)
		if err != nil {
			return nil, err
		}
		if d.Transport == topo.Symmetric {
			r.islands = append(r.islands, ranks)
			continue
		}
		// Groups that overlap, of ranks that do not all reach each other.
		for _, rank := range ranks {
			r.islands = append(r.islands, []int{rank})
		}
		for i, g := range spec.Groups {
			for k, of := range g.Ranks {
				if len(of) > 1 && r.by[i][k].Transport == topo.Symmetric && slices.Contains(ranks, of[0]) {
					r.by[i][k] = d
				}
			}
		}
	}
	return r, nil
}

// island is ranks that share memory, as far as this process has to do with them.
type island struct {
	ranks   []int // of the world, in order
	lone    bool  // one rank of a larger world
	world   *symm.World
	groups  [][]*coll.Group // by group of the spec and subgroup; nil for those of one rank, of other islands, and of NCCL
	scratch []uint64        // by group of the spec: offset of scratch for layouts
	arena   uint64          // offset of the arenas
}

// place is a rank's number in the island's world.
func (s *island) place(rank int) int {
	if s.lone {
		return rank
	}
	return slices.Index(s.ranks, rank)
}

// holds reports whether a subgroup is one of the island's groups on symmetric memory.
func (s *island) holds(ranks []int, d topo.Decision) bool {
	return len(ranks) > 1 && d.Transport == topo.Symmetric && slices.Contains(s.ranks, ranks[0])
}

// bytes is the memory that a rank of the island needs.
func (s *island) bytes(spec *rt.Spec, o *Options, r *routes) uint64 {
	n := uint64(spec.ArenaBytes) + 2*arenaAlign
	for i, g := range spec.Groups {
		if len(g.Ranks) == 0 || len(g.Ranks[0]) < 2 {
			continue
		}
		for k, ranks := range g.Ranks {
			if s.holds(ranks, r.by[i][k]) {
				n += groupBytes(o.groupOptions(spec, i))
			}
		}
		n += o.scratch() + barrierBytes + 2*4096
	}
	return n
}

// fill allocates the arena and makes the groups, in the order that all processes
// follow.
func (s *island) fill(ctx context.Context, spec *rt.Spec, o *Options, r *routes) error {
	var err error
	if s.arena, err = s.world.Alloc(uint64(max(spec.ArenaBytes, 1)), arenaAlign); err != nil {
		return fmt.Errorf("arena of %d bytes: %w", spec.ArenaBytes, err)
	}
	for i, g := range spec.Groups {
		row := make([]*coll.Group, len(g.Ranks))
		s.groups = append(s.groups, row)
		s.scratch = append(s.scratch, 0)
		if len(g.Ranks) == 0 || len(g.Ranks[0]) < 2 {
			continue
		}
		if s.scratch[i], err = s.world.Alloc(o.scratch()+barrierBytes, 4096); err != nil {
			return fmt.Errorf("scratch of group %q: %w", g.Name, err)
		}
		for k, ranks := range g.Ranks {
			if !s.holds(ranks, r.by[i][k]) {
				continue
			}
			places := make([]int, len(ranks))
			for j, rank := range ranks {
				places[j] = s.place(rank)
			}
			opts := o.groupOptions(spec, i)
			opts.Job = ranks
			if row[k], err = coll.NewGroup(ctx, s.world, places, opts); err != nil {
				return fmt.Errorf("group %q: %w", g.Name, err)
			}
		}
	}
	return nil
}

// close gives the groups and the memory back.
func (s *island) close() error { return s.world.Close() }
