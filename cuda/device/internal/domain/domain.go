// Package domain divides a world into domains of ranks that share memory, identically on all
// ranks, and owns that memory and its groups.
package domain

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

// Routes say what carries the collectives of groups: the same on every rank.
type Routes struct {
	share   bool           // ranks may share a device
	want    topo.Transport // of all groups; empty where any will do
	layout  *topo.Layout
	Domains [][]int // the ranks, parted into those that share memory
}

// Route parts the ranks into domains: first by what the world's first groups want, then as
// large as memory reaches from every rank to every other.
func Route(spec *rt.Spec, share bool, want topo.Transport, l *topo.Layout) (*Routes, error) {
	r := &Routes{share: share, want: want, layout: l}
	for rank := range spec.World {
		r.Domains = append(r.Domains, []int{rank})
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
func (r *Routes) join(ranks []int) error {
	has := func(domain []int) bool {
		return slices.ContainsFunc(ranks, func(rank int) bool { return slices.Contains(domain, rank) })
	}
	var all []int
	n := 0
	for _, domain := range r.Domains {
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
	r.Domains = append(slices.DeleteFunc(r.Domains, has), all)
	slices.SortFunc(r.Domains, slices.Compare)
	return nil
}

func (r *Routes) decide(ranks []int) (topo.Decision, error) {
	d, err := r.layout.Decide(ranks, topo.DecideOptions{AllowShared: r.share})
	switch {
	case err != nil || len(ranks) < 2 || d.Transport == topo.NCCL:
	case r.want == topo.NCCL:
		d.Transport, d.Reason = topo.NCCL, "the options say so"
	case len(ranks) > kernels.MaxRanks:
		d.Transport, d.Reason = topo.NCCL, fmt.Sprintf("%d ranks are more than the %d of a group on symmetric memory", len(ranks), kernels.MaxRanks)
	}
	return d, err
}

// Of decides for the subgroups of a group.
func (r *Routes) Of(g rt.Group) ([]topo.Decision, error) {
	row := make([]topo.Decision, len(g.Ranks))
	for k, ranks := range g.Ranks {
		var err error
		if row[k], err = r.decide(ranks); err != nil {
			return nil, fmt.Errorf("group %q: %w", g.Name, err)
		}
		d := &row[k]
		if len(ranks) > 1 && d.Transport == topo.Symmetric && !slices.ContainsFunc(r.Domains, func(domain []int) bool { return within(ranks, domain) }) {
			d.Transport, d.Reason = topo.NCCL, "its ranks share memory with others that do not all reach each other"
		}
	}
	return row, nil
}

func within(ranks, all []int) bool {
	return !slices.ContainsFunc(ranks, func(rank int) bool { return !slices.Contains(all, rank) })
}

// Apart reports whether the ranks are each on a host of its own.
func (r *Routes) Apart(ranks []int) bool {
	for i, a := range ranks {
		for _, b := range ranks[i+1:] {
			if r.layout.Ranks[a].Machine == r.layout.Ranks[b].Machine {
				return false
			}
		}
	}
	return true
}

// SeveralHosts reports whether the world has more than one host.
func (r *Routes) SeveralHosts() bool {
	return slices.ContainsFunc(r.layout.Ranks, func(p topo.Place) bool { return p.Machine != r.layout.Ranks[0].Machine })
}

// NeedsNCCL is the first subgroup that does, -1 for none.
func NeedsNCCL(row []topo.Decision) int {
	return slices.IndexFunc(row, func(d topo.Decision) bool { return d.Transport == topo.NCCL })
}

// arenaAlign is what the end of an arena's addresses is a multiple of.
const arenaAlign = 2 << 20

// Domain is ranks that share memory, as far as this process has to do with them. One of its
// ranks here, who leads, does what concerns all of them.
type Domain struct {
	ranks  []int // of the world, in order
	single bool  // one rank of a larger world
	World  *symm.World
	above  uint64 // offset of what is not the arena's

	Gate    sync.RWMutex                // held by transfers, and when regions go
	regions atomic.Pointer[[]rt.Region] // of the arena, in order

	mu       sync.Mutex
	groups   map[string]*shared
	watchers []Watcher
}

// Watcher is told of the arena's regions: of one that has come, before anybody uses it, and of
// one that goes, while it is still memory. What Came returns makes growing fail.
type Watcher struct{ Came, Goes func(rt.Region) error }

// Watch adds a watcher. Whoever grows or shrinks the arena calls all of this process.
func (s *Domain) Watch(w Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, w)
}

// Regions are the arena's.
func (s *Domain) Regions() []rt.Region { return *s.regions.Load() }

// tell calls one function of each watcher.
func (s *Domain) tell(at rt.Region, of func(Watcher) func(rt.Region) error) error {
	s.mu.Lock()
	list := s.watchers
	s.mu.Unlock()
	var errs []error
	for _, w := range list {
		errs = append(errs, of(w)(at))
	}
	return errors.Join(errs...)
}

func came(w Watcher) func(rt.Region) error { return w.Came }
func goes(w Watcher) func(rt.Region) error { return w.Goes }

// shared is a group on the domain's memory.
type shared struct {
	Row     []*coll.Group // by subgroup, nil for those of one rank, of other domains, and of NCCL
	at      uint64        // of its memory
	Scratch uint64        // offset of scratch for layouts
}

// New opens a domain without memory, of whose ranks those on devs are here. o's
// addresses follow from the memory of a device.
func New(ctx context.Context, drv driver.Driver, spec *rt.Spec, ranks, devs []int, memory uint64, o symm.WorldOptions) (*Domain, error) {
	s := &Domain{ranks: ranks, single: len(ranks) == 1 && spec.World > 1, groups: map[string]*shared{}}
	s.regions.Store(&[]rt.Region{})
	// More than the device's memory, in case that it is given back here and there.
	s.above = arenaAlign
	for s.above < 4*memory {
		s.above *= 2
	}
	o.Addresses = s.above + s.above/4
	var err error
	switch {
	case s.single:
		s.World, err = symm.NewSingleRankWorld(drv, ranks[0], spec.World, devs[0], o)
	case len(devs) == len(ranks):
		s.World, err = symm.NewLocalWorld(drv, devs, o)
	default:
		s.World, err = symm.NewProcessWorld(ctx, drv, spec.Job.Sub("domain", ranks), devs[0], o)
	}
	return s, err
}

// Place is a rank's number in the domain's world.
func (s *Domain) Place(rank int) int {
	if s.single {
		return rank
	}
	return slices.Index(s.ranks, rank)
}

// Leads reports whether a rank is the first of the domain in this process.
func (s *Domain) Leads(rank int) bool { return s.World.Local()[0].ID == s.Place(rank) }

// Grow turns a region of the arena into zeroed memory.
func (s *Domain) Grow(ctx context.Context, at rt.Region) error {
	if uint64(at.Hi) > s.above {
		return fmt.Errorf("an arena of %d bytes, this device has addresses for %d", at.Hi, s.above)
	}
	if err := s.World.Grow(ctx, uint64(at.Lo), uint64(at.Hi-at.Lo)); err != nil {
		return err
	}
	for _, r := range s.World.Local() {
		drv := s.World.Driver()
		err := drv.Memset32(r.Ctx, r.Setup(), s.World.Addr(r.ID, uint64(at.Lo)), 0, uint64(at.Hi-at.Lo+3)/4)
		if err == nil {
			err = drv.StreamSync(r.Ctx, r.Setup())
		}
		if err != nil {
			return errors.Join(err, s.World.Shrink(uint64(at.Lo)))
		}
	}
	list := append(slices.Clone(*s.regions.Load()), at)
	slices.SortFunc(list, func(a, b rt.Region) int { return int(min(max(a.Lo-b.Lo, -1), 1)) })
	s.regions.Store(&list)
	if err := s.tell(at, came); err != nil {
		return errors.Join(err, s.Shrink(at))
	}
	return nil
}

// Shrink gives a region back. Transfers that have begun end first.
func (s *Domain) Shrink(at rt.Region) error {
	s.Gate.Lock()
	defer s.Gate.Unlock()
	list := slices.Clone(*s.regions.Load())
	i := slices.Index(list, at)
	if i < 0 {
		return fmt.Errorf("no region %d to %d", at.Lo, at.Hi)
	}
	list = slices.Delete(list, i, i+1)
	s.regions.Store(&list)
	return errors.Join(s.tell(at, goes), s.World.Shrink(uint64(at.Lo)))
}

// Region is the one that bytes lo to hi are in; an empty range is in any.
func (s *Domain) Region(lo, hi int64) (rt.Region, bool) {
	for _, at := range *s.regions.Load() {
		if at.Lo <= lo && hi <= at.Hi {
			return at, true
		}
	}
	return rt.Region{}, lo == hi
}

// Arena is the end of the last region.
func (s *Domain) Arena() int64 {
	list := *s.regions.Load()
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].Hi
}

// Holds reports whether a subgroup is one of the domain's groups on symmetric memory.
func (s *Domain) Holds(ranks []int, d topo.Decision) bool {
	return len(ranks) > 1 && d.Transport == topo.Symmetric && slices.Contains(s.ranks, ranks[0])
}

// Add makes a group, whose subgroups share one piece of memory: no rank is in two of them.
func (s *Domain) Add(ctx context.Context, g rt.Group, row []topo.Decision, opts coll.GroupOptions, scratch uint64) (err error) {
	n := &shared{Row: make([]*coll.Group, len(g.Ranks))}
	for k, ranks := range g.Ranks {
		if !s.Holds(ranks, row[k]) {
			continue
		}
		if opts.Range.Bytes == 0 {
			opts.Range.Bytes = (opts.Memory() + 4095) &^ 4095
			bytes := opts.Range.Bytes + scratch
			n.at = s.World.FirstFree(s.above, bytes)
			if err := s.World.Grow(ctx, n.at, bytes); err != nil {
				return fmt.Errorf("memory of group %q: %w", g.Name, err)
			}
			opts.Range.At, n.Scratch = n.at, n.at+opts.Range.Bytes
			s.mu.Lock()
			s.groups[g.Name] = n
			s.mu.Unlock()
		}
		opts.Job = ranks
		places := make([]int, len(ranks))
		for j, rank := range ranks {
			places[j] = s.Place(rank)
		}
		if n.Row[k], err = coll.NewGroup(ctx, s.World, places, opts); err != nil {
			return errors.Join(fmt.Errorf("group %q: %w", g.Name, err), s.Drop(g.Name))
		}
	}
	return nil
}

// Group is one that add has made; nil if the domain has no part in it.
func (s *Domain) Group(name string) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[name]
}

// Drop gives a group back.
func (s *Domain) Drop(name string) error {
	n := s.Group(name)
	if n == nil {
		return nil
	}
	s.mu.Lock()
	delete(s.groups, name)
	s.mu.Unlock()
	var errs []error
	for _, g := range n.Row {
		errs = append(errs, g.Close())
	}
	return errors.Join(append(errs, s.World.Shrink(n.at))...)
}

// Close gives the groups and the memory back.
func (s *Domain) Close() error { return s.World.Close() }
