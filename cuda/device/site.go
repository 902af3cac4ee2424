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
	lib     nccl.Library    // nil where no group needs it

	local int // ranks of this process
	mu    sync.Mutex
	gone  int // ranks that have left
}

func newSite(local int) *site { return &site{local: local, islands: map[int]*island{}} }

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
	for i, g := range spec.Groups {
		opts := o.groupOptions(spec, i)
		s += fmt.Sprintf(", %s %s", g.Name, opts.Digest())
	}
	return s
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
	if s.routes.nccl() {
		if s.lib, err = o.nccl(drv); err != nil {
			return nil, "", joinError(spec, s.unavailable(spec, err))
		}
		if err := spec.Job.Barrier(ctx, "loading NCCL"); err != nil { // nobody goes on where one has none
			return nil, "", err
		}
	}
	at := slices.IndexFunc(s.routes.islands, func(ranks []int) bool { return slices.Contains(ranks, spec.Rank) })
	i := &island{ranks: s.routes.islands[at], lone: len(s.routes.islands[at]) == 1 && spec.World > 1}
	wo := symm.WorldOptions{Bytes: i.bytes(spec, o, s.routes), ShareDevice: o.ShareDevice}
	switch {
	case i.lone:
		i.world, err = symm.NewSingleRankWorld(drv, spec.Rank, spec.World, dev, wo)
	case len(i.ranks) == 1:
		i.world, err = symm.NewLocalWorld(drv, []int{dev}, wo)
	default:
		i.world, err = symm.NewProcessWorld(ctx, drv, spec.Job.Sub("island", i.ranks), dev, wo)
	}
	if err != nil {
		return nil, "", errors.Join(joinError(spec, err), s.close())
	}
	s.islands[spec.Rank] = i
	if err := i.fill(ctx, spec, o, s.routes); err != nil {
		return nil, "", errors.Join(joinError(spec, err), s.close())
	}
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
	if r.nccl() {
		if s.lib, err = o.nccl(drv); err != nil {
			return s.unavailable(spec, err)
		}
	}
	for _, ranks := range r.islands {
		i := &island{ranks: ranks, lone: len(ranks) == 1 && spec.World > 1}
		wo := symm.WorldOptions{Bytes: i.bytes(spec, o, r), ShareDevice: o.ShareDevice}
		if i.lone {
			i.world, err = symm.NewSingleRankWorld(drv, ranks[0], spec.World, devs[ranks[0]], wo)
		} else {
			var at []int
			for _, rank := range ranks {
				at = append(at, devs[rank])
			}
			i.world, err = symm.NewLocalWorld(drv, at, wo)
		}
		if err != nil {
			return errors.Join(err, s.close())
		}
		for _, rank := range ranks {
			s.islands[rank] = i
		}
		if err := i.fill(ctx, spec, o, r); err != nil {
			return errors.Join(err, s.close())
		}
	}
	return nil
}
