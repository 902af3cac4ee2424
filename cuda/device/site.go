package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/store"
)

// site is a world: one for each process, shared by the process's ranks.
type site struct {
	routes  *routes
	islands map[int]*island // by rank, of this process's ranks
	lib     nccl.Library    // nil where no group needs it
	store   store.Store     // where the ranks meet for NCCL, nil where no group needs it
	away    *presence       // of a process whose groups need NCCL

	process bool // this process drives one rank of several processes
	local   int  // ranks of this process
	mu      sync.Mutex
	cond    *sync.Cond
	roll    roll  // of the ranks of this process
	gone    []int // ranks that have left
	why     error // why the world cannot be built
	cause   error // who broke the world first, as that rank reports it
	whose   int
}

func newSite(local int) *site {
	s := &site{local: local, islands: map[int]*island{}, roll: newRoll(local)}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// meet waits until all ranks of the world have called it as often as this one. A rank
// that gives up, because ctx ends or time is up, ends it for all; one that has left can
// come no more.
func (s *site) meet(ctx context.Context, spec *rt.Spec) error {
	if s.process {
		return s.islands[spec.Rank].world.Meet(ctx)
	}
	_, err := s.compare(ctx, spec, "")
	return err
}

// compare is meet of a world of one process, with a text of every rank.
func (s *site) compare(ctx context.Context, spec *rt.Spec, text string) ([]string, error) {
	start := time.Now()
	if _, ok := ctx.Deadline(); !ok { // while joining there is one
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, spec.Timeout)
		defer cancel()
	}
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})
	defer stop()
	return s.arrive(spec.Rank, text, func(missing []int) error {
		switch {
		case s.cause != nil:
			return rt.AdoptError(unwrapAborted(s.cause), "meeting", spec.Rank, originOf(s.cause, s.whose))
		case len(s.gone) > 0:
			return &rt.PeerLostError{Op: "meeting", Rank: spec.Rank, Peer: s.gone[0], Left: true}
		case ctx.Err() == nil:
			return nil
		}
		s.why = context.Cause(ctx)
		if errors.Is(s.why, context.DeadlineExceeded) {
			s.why = &rt.TimeoutError{Op: "meeting", Rank: spec.Rank, Peer: missing[0], Missing: missing, Elapsed: time.Since(start)}
		}
		s.cond.Broadcast()
		return s.why
	})
}

// arrive waits until all ranks of this process have called it as often as this one, or
// the building has failed, or over, which hears who is missing, gives an error; s.mu is
// held for over.
func (s *site) arrive(rank int, text string, over func(missing []int) error) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != nil {
		return nil, s.why
	}
	meeting := s.roll.come(rank, text)
	for {
		missing := s.roll.missing(meeting)
		if len(missing) == 0 {
			s.cond.Broadcast()
			return s.roll.heard(meeting), nil
		}
		if s.why != nil {
			return nil, s.why
		}
		if err := over(missing); err != nil {
			return nil, err
		}
		s.cond.Wait()
	}
}

// giveUp ends the building of a world for all ranks of the process.
func (s *site) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == nil {
		s.why = err
	}
	s.cond.Broadcast()
}

// broke notes who broke the world first.
func (s *site) broke(rank int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause, s.whose = err, rank
	}
	s.cond.Broadcast()
}

// breaker is who broke the world first among this process's ranks, and how.
func (s *site) breaker() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whose, s.cause
}

// leave gives the world back once all ranks of the process have left.
func (s *site) leave(rank int) error {
	s.mu.Lock()
	s.gone = append(s.gone, rank)
	last := len(s.gone) == s.local
	s.cond.Broadcast()
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
	if s.away != nil {
		s.away.close()
	} else if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(errs...)
}

// offer is what the ranks tell each other in order to meet.
type offer struct {
	Meeting string     `json:"meeting"` // a token: rank 0's counts
	Kind    string     `json:"kind"`
	Options string     `json:"options"` // what plans depend on beside the program
	Seat    *topo.Seat `json:"seat,omitempty"`
}

// check compares what the ranks offer: plans that differ would wait for each other for
// ever. It sees how the ranks' devices reach each other.
func check(spec *rt.Spec, met *rt.Meeting, o *Options, own offer) (*routes, []offer, error) {
	var seats []topo.Seat
	var offers []offer
	for r, rec := range met.Records {
		var theirs offer
		if err := json.Unmarshal(rec.Extra, &theirs); err != nil || theirs.Kind != own.Kind || theirs.Seat == nil {
			return nil, nil, &rt.RendezvousError{Rank: spec.Rank, Reason: fmt.Sprintf("rank %d has no CUDA device in a %s of its own", r, own.Kind), Err: err}
		}
		if theirs.Options != own.Options {
			return nil, nil, &rt.SizeMismatchError{Op: "rendezvous", What: "options of the device", Rank: spec.Rank, Peer: r, RankValue: own.Options, PeerVal: theirs.Options}
		}
		if theirs.Seat.Partial {
			theirs.Seat.Machine.Host = topo.Host{ID: rec.Host, Name: rec.Host}
		}
		seats, offers = append(seats, *theirs.Seat), append(offers, theirs)
	}
	r, err := connected(spec, o, seats)
	return r, offers, err
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
func openProcess(ctx context.Context, drv cuda.Driver, spec *rt.Spec, o *Options, dev int) (*site, string, error) {
	m, err := cuda.NewMeeting()
	if err != nil {
		return nil, "", err
	}
	own := offer{Meeting: m.Token(), Kind: "process", Options: o.digest(spec)}
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
	r, offers, err := check(spec, met, o, own)
	if err != nil {
		return nil, "", err
	}
	s := newSite(1)
	s.process, s.routes = true, r
	if r.nccl() {
		if err := s.openNCCL(ctx, drv, spec, o); err != nil {
			return nil, "", joinError(spec, err)
		}
	}
	at := slices.IndexFunc(r.islands, func(ranks []int) bool { return slices.Contains(ranks, spec.Rank) })
	i := &island{ranks: r.islands[at], lone: len(r.islands[at]) == 1 && spec.World > 1}
	if m, err = cuda.ParseMeeting(offers[i.ranks[0]].Meeting); err != nil {
		return nil, "", joinError(spec, err)
	}
	m.Timeout = spec.Timeout
	if end, ok := ctx.Deadline(); ok {
		m.Timeout = min(m.Timeout, max(time.Until(end), time.Millisecond))
	}
	wo := cuda.WorldOptions{Bytes: i.bytes(spec, o, r), ShareDevice: o.ShareDevice}
	switch {
	case i.lone:
		i.world, err = cuda.NewLoneWorld(drv, spec.Rank, spec.World, dev, wo)
	case len(i.ranks) == 1:
		i.world, err = cuda.NewLocalWorld(drv, []int{dev}, wo)
	default:
		i.world, err = cuda.NewProcessWorld(ctx, drv, m, i.place(spec.Rank), len(i.ranks), dev, wo)
	}
	if err != nil {
		return nil, "", errors.Join(joinError(spec, i.translate(err)), s.close())
	}
	s.islands[spec.Rank] = i
	if err := i.fill(ctx, spec, o, r); err != nil {
		return nil, "", errors.Join(joinError(spec, i.translate(err)), s.close())
	}
	return s, met.Nonce, nil
}

// openLocal builds the world of all ranks of this process; the last one to come does.
func (s *site) openLocal(ctx context.Context, drv cuda.Driver, spec *rt.Spec, o *Options, devs []int) (string, error) {
	extra, err := json.Marshal(offer{Kind: "goroutine"})
	if err != nil {
		return "", err
	}
	met, err := spec.Meet(ctx, extra)
	if err != nil {
		s.giveUp(err)
		return "", err
	}
	if err := s.meet(ctx, spec); err != nil {
		return "", err
	}
	if spec.Rank == 0 {
		if err := s.build(ctx, drv, spec, o, devs); err != nil {
			s.giveUp(joinError(spec, err))
			return "", joinError(spec, err)
		}
	}
	// Nobody goes before the world stands or has failed, so that all leave it.
	_, err = s.arrive(spec.Rank, "", func([]int) error { return nil })
	return met.Nonce, err
}

func (s *site) build(ctx context.Context, drv cuda.Driver, spec *rt.Spec, o *Options, devs []int) error {
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
		s.store = store.NewMem()
	}
	for _, ranks := range r.islands {
		i := &island{ranks: ranks, lone: len(ranks) == 1 && spec.World > 1}
		wo := cuda.WorldOptions{Bytes: i.bytes(spec, o, r), ShareDevice: o.ShareDevice}
		if i.lone {
			i.world, err = cuda.NewLoneWorld(drv, ranks[0], spec.World, devs[ranks[0]], wo)
		} else {
			var at []int
			for _, rank := range ranks {
				at = append(at, devs[rank])
			}
			i.world, err = cuda.NewLocalWorld(drv, at, wo)
		}
		if err != nil {
			return errors.Join(i.translate(err), s.close())
		}
		for _, rank := range ranks {
			s.islands[rank] = i
		}
		if err := i.fill(ctx, spec, o, r); err != nil {
			return errors.Join(i.translate(err), s.close())
		}
	}
	return nil
}
