package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// routes say what carries the collectives of groups: the same on every rank.
type routes struct {
	spec    *rt.Spec
	o       *Options
	layout  *topo.Layout
	domains [][]int // the ranks, parted into those that share memory
}

// route parts the ranks into domains: first by what the world's first groups want, then as
// large as memory reaches from every rank to every other.
func route(spec *rt.Spec, o *Options, l *topo.Layout) (*routes, error) {
	r := &routes{spec: spec, o: o, layout: l}
	for rank := range spec.World {
		r.domains = append(r.domains, []int{rank})
	}
	for _, g := range spec.Groups {
		for _, ranks := range g.Ranks {
			if err := r.join(ranks); err != nil {
				return nil, fmt.Errorf("group %q: %w", g.Name, err)
			}
		}
	}
	for a := range spec.World {
		for b := range a {
			if err := r.join([]int{b, a}); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// join makes one domain of those of some ranks, if memory serves all of them.
func (r *routes) join(ranks []int) error {
	has := func(domain []int) bool {
		return slices.ContainsFunc(ranks, func(rank int) bool { return slices.Contains(domain, rank) })
	}
	var all []int
	n := 0
	for _, domain := range r.domains {
		if has(domain) {
			all = append(all, domain...)
			n++
		}
	}
	if n < 2 {
		return nil
	}
	slices.Sort(all)
	d, err := r.decide(all)
	if err != nil || d.Transport != topo.Symmetric {
		return err
	}
	r.domains = append(slices.DeleteFunc(r.domains, has), all)
	slices.SortFunc(r.domains, slices.Compare)
	return nil
}

func (r *routes) decide(ranks []int) (topo.Decision, error) {
	d, err := r.layout.Decide(ranks, topo.DecideOptions{AllowShared: r.o.ShareDevice})
	switch {
	case err != nil || len(ranks) < 2 || d.Transport == topo.NCCL:
	case r.o.Transport == topo.NCCL:
		d.Transport, d.Reason = topo.NCCL, "the options say so"
	case len(ranks) > kernels.MaxRanks:
		d.Transport, d.Reason = topo.NCCL, fmt.Sprintf("%d ranks are more than the %d of a group on symmetric memory", len(ranks), kernels.MaxRanks)
	}
	return d, err
}

// of decides for the subgroups of a group. One that only NCCL can serve is a *TransportError
// where the options do not allow that.
func (r *routes) of(g rt.Group) ([]topo.Decision, error) {
	row := make([]topo.Decision, len(g.Ranks))
	for k, ranks := range g.Ranks {
		var err error
		if row[k], err = r.decide(ranks); err != nil {
			return nil, fmt.Errorf("group %q: %w", g.Name, err)
		}
		d := &row[k]
		if len(ranks) > 1 && d.Transport == topo.Symmetric && !slices.ContainsFunc(r.domains, func(domain []int) bool { return within(ranks, domain) }) {
			d.Transport, d.Reason = topo.NCCL, "its ranks share memory with others that do not all reach each other"
		}
		if d.Transport == topo.NCCL && r.o.Transport == topo.Symmetric {
			return nil, &TransportError{Group: g.Name, Ranks: ranks, Decision: *d}
		}
	}
	return row, nil
}

func within(ranks, all []int) bool {
	return !slices.ContainsFunc(ranks, func(rank int) bool { return !slices.Contains(all, rank) })
}

// needsNCCL is the first subgroup that does, -1 for none.
func needsNCCL(row []topo.Decision) int {
	return slices.IndexFunc(row, func(d topo.Decision) bool { return d.Transport == topo.NCCL })
}

// domain is ranks that share memory, as far as this process has to do with them. One of its
// ranks here, who leads, does what concerns all of them.
type domain struct {
	ranks []int // of the world, in order
	lone  bool  // one rank of a larger world
	world *symm.World
	above uint64 // offset of what is not the arena's

	gate    sync.RWMutex                // held by transfers, and when regions go
	regions atomic.Pointer[[]rt.Region] // of the arena, in order

	mu     sync.Mutex
	groups map[string]*shared
}

// shared is a group on the domain's memory.
type shared struct {
	row     []*coll.Group // by subgroup, nil for those of one rank, of other domains, and of NCCL
	at      uint64        // of its memory
	scratch uint64        // offset of scratch for layouts
}

// newDomain opens an domain without memory, of whose ranks those on devs are here.
func newDomain(ctx context.Context, d *Device, ranks, devs []int, info *driver.DeviceInfo) (*domain, error) {
	i := &domain{ranks: ranks, lone: len(ranks) == 1 && d.spec.World > 1, groups: map[string]*shared{}}
	i.regions.Store(&[]rt.Region{})
	// More than the device's memory, in case that it is given back here and there.
	i.above = arenaAlign
	for i.above < 4*info.Memory {
		i.above *= 2
	}
	o := symm.WorldOptions{Addresses: i.above + i.above/4, ShareDevice: d.opts.ShareDevice, Images: d.opts.Images}
	var err error
	switch {
	case i.lone:
		i.world, err = symm.NewSingleRankWorld(d.drv, ranks[0], d.spec.World, devs[0], o)
	case len(devs) == len(ranks):
		i.world, err = symm.NewLocalWorld(d.drv, devs, o)
	default:
		i.world, err = symm.NewProcessWorld(ctx, d.drv, d.spec.Job.Sub("domain", ranks), devs[0], o)
	}
	return i, err
}

// place is a rank's number in the domain's world.
func (s *domain) place(rank int) int {
	if s.lone {
		return rank
	}
	return slices.Index(s.ranks, rank)
}

// leads reports whether a rank is the first of the domain in this process.
func (s *domain) leads(rank int) bool { return s.world.Local()[0].ID == s.place(rank) }

// grow turns a region of the arena into zeroed memory.
func (s *domain) grow(ctx context.Context, at rt.Region) error {
	if uint64(at.Hi) > s.above {
		return fmt.Errorf("an arena of %d bytes, this device has addresses for %d", at.Hi, s.above)
	}
	if err := s.world.Grow(ctx, uint64(at.Lo), uint64(at.Hi-at.Lo)); err != nil {
		return err
	}
	for _, r := range s.world.Local() {
		drv := s.world.Driver()
		err := drv.Memset32(r.Ctx, r.Setup(), s.world.Addr(r.ID, uint64(at.Lo)), 0, uint64(at.Hi-at.Lo+3)/4)
		if err == nil {
			err = drv.StreamSync(r.Ctx, r.Setup())
		}
		if err != nil {
			return errors.Join(err, s.world.Shrink(uint64(at.Lo)))
		}
	}
	list := append(slices.Clone(*s.regions.Load()), at)
	slices.SortFunc(list, func(a, b rt.Region) int { return int(min(max(a.Lo-b.Lo, -1), 1)) })
	s.regions.Store(&list)
	return nil
}

// shrink gives a region back. Transfers that have begun end first.
func (s *domain) shrink(at rt.Region) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	list := slices.Clone(*s.regions.Load())
	i := slices.Index(list, at)
	if i < 0 {
		return fmt.Errorf("no region %d to %d", at.Lo, at.Hi)
	}
	list = slices.Delete(list, i, i+1)
	s.regions.Store(&list)
	return s.world.Shrink(uint64(at.Lo))
}

// region is the one that bytes lo to hi lie in; no bytes lie anywhere.
func (s *domain) region(lo, hi int64) (rt.Region, bool) {
	for _, at := range *s.regions.Load() {
		if at.Lo <= lo && hi <= at.Hi {
			return at, true
		}
	}
	return rt.Region{}, lo == hi
}

// arena is the end of the last region.
func (s *domain) arena() int64 {
	list := *s.regions.Load()
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].Hi
}

// holds reports whether a subgroup is one of the domain's groups on symmetric memory.
func (s *domain) holds(ranks []int, d topo.Decision) bool {
	return len(ranks) > 1 && d.Transport == topo.Symmetric && slices.Contains(s.ranks, ranks[0])
}

// add makes a group, whose subgroups share one piece of memory: no rank is in two of them.
func (s *domain) add(ctx context.Context, g rt.Group, row []topo.Decision, opts coll.GroupOptions, scratch uint64) (err error) {
	n := &shared{row: make([]*coll.Group, len(g.Ranks))}
	for k, ranks := range g.Ranks {
		if !s.holds(ranks, row[k]) {
			continue
		}
		if opts.Room.Bytes == 0 {
			opts.Room.Bytes = (opts.Memory() + 4095) &^ 4095
			bytes := opts.Room.Bytes + scratch
			n.at = s.world.Vacant(s.above, bytes)
			if err := s.world.Grow(ctx, n.at, bytes); err != nil {
				return fmt.Errorf("memory of group %q: %w", g.Name, err)
			}
			opts.Room.At, n.scratch = n.at, n.at+opts.Room.Bytes
			s.mu.Lock()
			s.groups[g.Name] = n
			s.mu.Unlock()
		}
		opts.Job = ranks
		places := make([]int, len(ranks))
		for j, rank := range ranks {
			places[j] = s.place(rank)
		}
		if n.row[k], err = coll.NewGroup(ctx, s.world, places, opts); err != nil {
			return errors.Join(fmt.Errorf("group %q: %w", g.Name, err), s.drop(g.Name))
		}
	}
	return nil
}

// group is one that add has made; nil if the domain has no part in it.
func (s *domain) group(name string) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[name]
}

// drop gives a group back.
func (s *domain) drop(name string) error {
	n := s.group(name)
	if n == nil {
		return nil
	}
	s.mu.Lock()
	delete(s.groups, name)
	s.mu.Unlock()
	var errs []error
	for _, g := range n.row {
		errs = append(errs, g.Close())
	}
	return errors.Join(append(errs, s.world.Shrink(n.at))...)
}

// close gives the groups and the memory back.
func (s *domain) close() error { return s.world.Close() }
