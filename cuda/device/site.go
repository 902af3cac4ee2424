package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/cuda/device/internal/domain"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
)

// site is a world: one for each process, shared by the process's ranks.
type site struct {
	kind    string      // of its ranks
	devs    map[int]int // by rank, of this process's ranks: its device
	routes  *domain.Routes
	domains map[int]*domain.Domain // by rank, of this process's ranks

	mu   sync.Mutex
	lib  nccl.Library // nil before a group needs it
	gone int          // ranks that have left
}

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
	last := s.gone == len(s.devs)
	s.mu.Unlock()
	if !last {
		return nil
	}
	var errs []error
	closed := map[*domain.Domain]bool{}
	for _, rank := range slices.Sorted(maps.Keys(s.domains)) {
		if i := s.domains[rank]; !closed[i] {
			closed[i] = true
			errs = append(errs, i.Close())
		}
	}
	return errors.Join(errs...)
}

// offer is what the ranks tell each other in order to join.
type offer struct {
	Kind     string         `json:"kind"`
	Options  string         `json:"options"` // what plans depend on beside the program
	Location *topo.Location `json:"location,omitempty"`
}

// check compares what the ranks offer: plans that differ would wait for each other for
// ever. It sees how the ranks' devices reach each other.
func check(spec *rt.Spec, members *rt.Membership, o *Options, own offer) (*domain.Routes, error) {
	var locations []topo.Location
	for r, rec := range members.Records {
		var theirs offer
		if err := json.Unmarshal(rec.Extra, &theirs); err != nil || theirs.Kind != own.Kind || theirs.Location == nil {
			return nil, &rt.RendezvousError{Rank: spec.Rank, Reason: fmt.Sprintf("rank %d has no CUDA device in a %s of its own", r, own.Kind), Err: err}
		}
		if theirs.Options != own.Options {
			return nil, &rt.MismatchError{Op: "rendezvous", What: "options of the device", Rank: spec.Rank, Peer: r, RankValue: own.Options, PeerValue: theirs.Options}
		}
		if theirs.Location.Partial {
			theirs.Location.Machine.Host = topo.Host{ID: rec.Host, Name: rec.Host}
		}
		locations = append(locations, *theirs.Location)
	}
	return connected(spec, o, locations)
}

// digest is one text for the options that plans depend on.
func (o *Options) digest(spec *rt.Spec) string {
	matmuls := "known"
	if o.Matmuls != nil {
		matmuls = o.Matmuls.Digest()
	}
	s := fmt.Sprintf("scratch %d, beside %v, sms %d, matmuls %s, early %v", o.scratch(), !o.NoOverlap, o.SMs, matmuls, !o.NoDependentLaunch)
	if o.Transport != "" || o.NCCL.Config != (nccl.Config{}) {
		s += fmt.Sprintf(", transport %q, nccl %+v", o.Transport, o.NCCL.Config)
	}
	if o.NCCL.NoRegister {
		s += ", unregistered"
	}
	g := o.group(spec, "")
	return s + ", groups " + g.Digest()
}

// open opens the device of a rank. The first one of the process builds its part of the world.
func (s *site) open(ctx context.Context, drv driver.Driver, spec rt.Spec, o Options) (_ rt.Device, err error) {
	dev, ok := s.devs[spec.Rank]
	if !ok {
		return nil, joinError(&spec, fmt.Errorf("rank %d has no device: %d are listed", spec.Rank, len(s.devs)))
	}
	d, err := newDevice(drv, spec, o, dev)
	if err != nil {
		return nil, err
	}
	d.site = s
	if err := s.join(ctx, d); err != nil {
		return nil, errors.Join(joinError(&spec, err), d.Close())
	}
	return d.ready()
}

// join tells the other ranks where this one is, and returns when all have their part of the
// world. Nobody goes before it stands or has failed, so that all leave it.
func (s *site) join(ctx context.Context, d *Device) (err error) {
	own := offer{Kind: s.kind, Options: d.opts.digest(&d.spec)}
	if own.Location, err = domain.LocationOf(d.drv, &d.spec, d.opts.Machine, d.dev); err != nil {
		return err
	}
	extra, err := json.Marshal(own)
	if err != nil {
		return err
	}
	members, err := d.spec.Rendezvous(ctx, extra)
	if err != nil {
		return err
	}
	d.nonce = members.Nonce
	r, err := check(&d.spec, members, &d.opts, own)
	if err != nil {
		return err
	}
	if d.spec.Rank == slices.Min(slices.Collect(maps.Keys(s.devs))) {
		s.routes = r
		if err := s.build(ctx, d); err != nil {
			return err
		}
	}
	return d.spec.Job.Barrier(ctx, "opening the world")
}

// build opens the domains that this process has a part in.
func (s *site) build(ctx context.Context, d *Device) error {
	infos, err := d.drv.Devices()
	if err != nil {
		return err
	}
	for _, ranks := range s.routes.Domains {
		var devs []int // of those here
		for _, rank := range ranks {
			if dev, ok := s.devs[rank]; ok {
				devs = append(devs, dev)
			}
		}
		if len(devs) == 0 {
			continue
		}
		i, err := domain.New(ctx, d.drv, &d.spec, ranks, devs, infos[devs[0]].Memory,
			symm.WorldOptions{ShareDevice: d.opts.ShareDevice, Images: d.opts.Images, Network: s.routes.SeveralHosts() && !d.opts.NCCL.NoRegister})
		if err != nil {
			return err
		}
		for _, rank := range ranks {
			s.domains[rank] = i
		}
	}
	return nil
}
