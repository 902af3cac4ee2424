package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
)

// site is a world: one for each process, shared by the process's ranks.
type site struct {
	routes  *routes
	islands map[int]*island // by rank, of this process's ranks

	local int // ranks of this process
	mu    sync.Mutex
	lib   nccl.Library // nil before a group needs it
	gone  int          // ranks that have left
}

func newSite(local int) *site { return &site{local: local, islands: map[int]*island{}} }

// nccl is the library, which the first rank that asks opens.
func (s *site) nccl(drv driver.Driver, o *Options) (_ nccl.Library, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lib == nil {
		s.lib, err = o.nccl(drv)
	}
	return s.lib, err
}

// leave gives the world back once all ranks of the process have left.
func (s *site) leave() error {
	s.mu.Lock()
	s.gone++
	last := s.gone == s.local
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.close()
}

func (s *site) close() error {
	var errs []error
	closed := map[*island]bool{}
	for _, rank := range slices.Sorted(maps.Keys(s.islands)) {
		if i := s.islands[rank]; !closed[i] {
			closed[i] = true
			errs = append(errs, i.close())
		}
	}
	return errors.Join(errs...)
}

// offer is what the ranks tell each other in order to meet.
type offer struct {
	Kind    string     `json:"kind"`
	Options string     `json:"options"` // what plans depend on beside the program
	Seat    *topo.Seat `json:"seat,omitempty"`
}

// check compares what the ranks offer: plans that differ would wait for each other for
// ever. It sees how the ranks' devices reach each other.
func check(spec *rt.Spec, met *rt.Meeting, o *Options, own offer) (*routes, error) {
	var seats []topo.Seat
	for r, rec := range met.Records {
		var theirs offer
		if err := json.Unmarshal(rec.Extra, &theirs); err != nil || theirs.Kind != own.Kind || theirs.Seat == nil {
			return nil, &rt.RendezvousError{Rank: spec.Rank, Reason: fmt.Sprintf("rank %d has no CUDA device in a %s of its own", r, own.Kind), Err: err}
		}
		if theirs.Options != own.Options {
			return nil, &rt.MismatchError{Op: "rendezvous", What: "options of the device", Rank: spec.Rank, Peer: r, RankValue: own.Options, PeerValue: theirs.Options}
		}
		if theirs.Seat.Partial {
			theirs.Seat.Machine.Host = topo.Host{ID: rec.Host, Name: rec.Host}
		}
		seats = append(seats, *theirs.Seat)
	}
	return connected(spec, o, seats)
}

// digest is one text for the options that plans depend on.
func (o *Options) digest(spec *rt.Spec) string {
	products := "known"
	if o.Products != nil {
		products = o.Products.Digest()
	}
	s := fmt.Sprintf("scratch %d, beside %v, sms %d, products %s, early %v", o.scratch(), !o.NoBeside, o.SMs, products, !o.NoEarly)
	if o.Transport != "" || o.NCCL.Config != (nccl.Config{}) {
		s += fmt.Sprintf(", transport %q, nccl %+v", o.Transport, o.NCCL.Config)
	}
	g := o.group(spec, "")
	return s + ", groups " + g.Digest()
}

// openProcess builds the world of a rank with a process of its own.
func openProcess(ctx context.Context, drv driver.Driver, spec *rt.Spec, o *Options, dev int) (*site, string, error) {
	own := offer{Kind: "process", Options: o.digest(spec)}
	var err error
	if own.Seat, err = seat(drv, spec, o, dev); err != nil {
		return nil, "", joinError(spec, err)
	}
	extra, err := json.Marshal(own)
	if err != nil {
		return nil, "", err
	}
	met, err := spec.Meet(ctx, extra)
	if err != nil {
		return nil, "", err
	}
	s := newSite(1)
	if s.routes, err = check(spec, met, o, own); err != nil {
		return nil, "", err
	}
	infos, err := drv.Devices()
	if err != nil {
		return nil, "", err
	}
	at := slices.IndexFunc(s.routes.islands, func(ranks []int) bool { return slices.Contains(ranks, spec.Rank) })
	i, err := newIsland(s.routes.islands[at], spec, o, &infos[dev], func(i *island, wo symm.WorldOptions) (*symm.World, error) {
		switch {
		case i.lone:
			return symm.NewSingleRankWorld(drv, spec.Rank, spec.World, dev, wo)
		case len(i.ranks) == 1:
			return symm.NewLocalWorld(drv, []int{dev}, wo)
		}
		return symm.NewProcessWorld(ctx, drv, spec.Job.Sub("island", i.ranks), dev, wo)
	})
	if err != nil {
		return nil, "", errors.Join(joinError(spec, err), s.close())
	}
	s.islands[spec.Rank] = i
	return s, met.Nonce, nil
}

// openLocal builds the world of all ranks of this process; rank 0 does.
func (s *site) openLocal(ctx context.Context, drv driver.Driver, spec *rt.Spec, o *Options, devs []int) (string, error) {
	extra, err := json.Marshal(offer{Kind: "goroutine"})
	if err != nil {
		return "", err
	}
	met, err := spec.Meet(ctx, extra)
	if err != nil {
		return "", err
	}
	if spec.Rank == 0 {
		if err := s.build(ctx, drv, spec, o, devs); err != nil {
			return "", joinError(spec, err)
		}
	}
	// Nobody goes before the world stands or has failed, so that all leave it.
	return met.Nonce, spec.Job.Barrier(ctx, "opening the world")
}

func (s *site) build(ctx context.Context, drv driver.Driver, spec *rt.Spec, o *Options, devs []int) error {
	seats := make([]topo.Seat, len(devs))
	for r, dev := range devs {
		at, err := seat(drv, spec, o, dev)
		if err != nil {
			return err
		}
		seats[r] = *at
	}
	r, err := connected(spec, o, seats)
	if err != nil {
		return err
	}
	s.routes = r
	infos, err := drv.Devices()
	if err != nil {
		return err
	}
	for _, ranks := range r.islands {
		i, err := newIsland(ranks, spec, o, &infos[devs[ranks[0]]], func(i *island, wo symm.WorldOptions) (*symm.World, error) {
			if i.lone {
				return symm.NewSingleRankWorld(drv, ranks[0], spec.World, devs[ranks[0]], wo)
			}
			var at []int
			for _, rank := range ranks {
				at = append(at, devs[rank])
			}
			return symm.NewLocalWorld(drv, at, wo)
		})
		if err != nil {
			return errors.Join(err, s.close())
		}
		for _, rank := range ranks {
			s.islands[rank] = i
		}
	}
	return nil
}
