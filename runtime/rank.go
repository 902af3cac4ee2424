package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Config says how to join a world. The zero value takes everything from the
// environment.
type Config struct {
	// Env is this rank's place; nil: EnvFrom(os.Getenv). Without LocalRank and
	// LocalWorld all ranks are taken to be on one host.
	Env *Env
	// Job is where the ranks find each other; nil: Env.Job.
	Job *rendezvous.Job
	// World names the world, default "world"; ranks of another name do not fit.
	// Survivors of a broken world join under any name they agree on.
	World string
	// Timeout bounds every wait for a peer, default 5 minutes; loops of a step that a device runs
	// by itself may take longer, as long as they iterate. On the host device a stall of this
	// process, as when the whole machine stands still, is no part of a wait.
	Timeout time.Duration
	// HeartbeatTimeout is how long a rank of another host may give no sign of life until it counts
	// as lost, default 20 s. Links that drop for a shorter time go on where they were.
	HeartbeatTimeout time.Duration
	// JoinTimeout bounds Join, default Timeout.
	JoinTimeout time.Duration
	// UserBytes is arena for the caller's own tensors, see Rank.User.
	UserBytes int64
	// Funcs are the Go functions of `call @target`, by target.
	// What the modules that are loaded call has to be there; see [Func].
	Funcs map[string]Func
	// Log, if not nil, is told where the rank's place came from and when the
	// world is complete.
	Log *slog.Logger
}

// Rank is one member of a joined world, which lives as long as the job: a device, and
// modules that are added and dropped while it lives. One module runs at a time. Methods may
// be called from any goroutine.
type Rank struct {
	dev Device
	env Env
	job *rendezvous.Group // this rank's membership, which ends behind the device

	running chan struct{} // has one while an Exec runs, or Start, or what changes the world
	arena   extents       // what is given out of the arena; guarded by running, as what follows
	groups  []*member
	user    Region // the caller's own tensors
	inbound Stream // plus 1: brings async inputs to their place; 0 if no module has any
	units   int    // modules that have been loaded

	mu       sync.Mutex          // guards what follows
	loaded   map[*Module]*loaded // changed with running held, too
	byDigest map[string]*Module
	buffers  map[string]*Buffer // changed with running held, too
	streams  map[string]*namedStream
	free     []Event         // of settled Works
	works    map[*Module]int // async outputs that have not been awaited
	programs map[*program.Program]*Module
	funcs    map[string]Func
}

// namedStream is a stream that modules share by its name.
type namedStream struct {
	Stream
	end   Event // recorded at the end of a run
	users int   // modules that have it, and one for Start
}

const (
	defaultTimeout = 5 * time.Minute
	worldGroup     = "world" // joined worlds always have this group of all ranks
)

// Join joins the other ranks, compares modules with them, and opens a device.
// All ranks pass the same modules in the same order. It returns when the world
// is complete, or with a typed error: TimeoutError names who did not come,
// MismatchError who brought something else, PeerLostError who died on the way.
func Join(ctx context.Context, open Opener, cfg Config, mods ...*Module) (*Rank, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.JoinTimeout <= 0 {
		cfg.JoinTimeout = cfg.Timeout
	}
	if cfg.HeartbeatTimeout <= 0 {
		cfg.HeartbeatTimeout = rendezvous.HeartbeatTimeout
	}
	if cfg.World == "" {
		cfg.World = "world"
	}
	env, err := cfg.env()
	if err != nil {
		return nil, &RendezvousError{Rank: env.Rank, Reason: "cannot tell this rank's place", Err: err}
	}
	if cfg.Log != nil {
		cfg.Log.Info("joining", "rank", env.Rank, "world", env.World, "job", env.ID, "at", env.Addr, "source", env.Source)
	}
	r := &Rank{env: env, running: make(chan struct{}, 1), loaded: map[*Module]*loaded{}, byDigest: map[string]*Module{}, programs: map[*program.Program]*Module{},
		buffers: map[string]*Buffer{}, funcs: cfg.Funcs, streams: map[string]*namedStream{}, works: map[*Module]int{}}
	spec := Spec{Rank: env.Rank, World: env.World, LocalRank: env.LocalRank, Timeout: cfg.Timeout, HeartbeatTimeout: cfg.HeartbeatTimeout, Funcs: cfg.Funcs}
	news, err := r.layOut(mods, cfg.UserBytes)
	if err != nil {
		return nil, &RendezvousError{Rank: env.Rank, Reason: "cannot load", Err: err}
	}
	for _, g := range r.groups {
		spec.Groups = append(spec.Groups, g.Group)
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, cfg.JoinTimeout)
	defer cancel()
	if r.job, err = cfg.join(ctx, env); err != nil {
		return nil, beforeFirst(err, mods, env.World)
	}
	a := agreeing{arena: r.arena.end(), host: env.Host}
	a.digest, a.text = agreement(mods, env.World)
	spec.Job = r.job
	spec.Rendezvous = func(ctx context.Context, extra []byte) (*Membership, error) { return a.join(ctx, r.job, extra) }
	if r.dev, err = open(ctx, spec); err != nil {
		r.job.Cancel(err) // the others may wait for this rank
		return nil, errors.Join(beforeFirst(err, mods, env.World), r.job.Close())
	}
	if err = r.open(ctx, news); err != nil {
		r.job.Cancel(err) // others may be on the way
		r.dev.Abort(err)  // or at work already, where they would see only that this rank has left
		return nil, errors.Join(beforeFirst(err, mods, env.World), r.Close())
	}
	if cfg.Log != nil {
		cfg.Log.Info("joined", "rank", env.Rank, "world", env.World, "arena", r.arena.end(), "took", time.Since(start))
	}
	return r, nil
}

// join joins the job.
func (c *Config) join(ctx context.Context, e Env) (*rendezvous.Group, error) {
	job, err := c.Job, error(nil)
	if job == nil && e.World > 1 {
		if job, err = e.Job(); err != nil {
			return nil, &RendezvousError{Rank: e.Rank, Reason: "cannot tell the job", Err: err}
		}
	}
	g, err := rendezvous.Join(ctx, job, rendezvous.Place{Name: c.World, Rank: e.Rank, World: e.World, Timeout: c.Timeout, HeartbeatTimeout: c.HeartbeatTimeout})
	if err != nil && !rendezvous.Known(err) {
		err = &RendezvousError{Rank: e.Rank, Reason: "cannot join the job", Err: err}
	}
	return g, err
}

func (c *Config) env() (Env, error) {
	if c.Env == nil {
		return EnvFrom(os.Getenv)
	}
	e := *c.Env
	if e.Source == "" {
		e.Source = "options"
	}
	if e.LocalWorld == 0 && e.LocalRank == 0 { // nothing was said
		e.LocalRank = e.Rank
	}
	if e.World < 1 || e.Rank < 0 || e.Rank >= e.World {
		return e, fmt.Errorf("rank %d of a world of %d", e.Rank, e.World)
	}
	return e, nil
}

// Info describes the rank's device and place.
func (r *Rank) Info() Info { return r.dev.Info() }

// Env is where the rank's place came from.
func (r *Rank) Env() Env { return r.env }

// Device is the device underneath, for what this package does not wrap.
func (r *Rank) Device() Device { return r.dev }

// Err is the error that broke the world, nil while it works.
func (r *Rank) Err() error { return r.dev.Err() }

// Abort breaks the world on every rank.
func (r *Rank) Abort(cause error) { r.dev.Abort(cause) }

// Close leaves the world and gives everything back. Peers that still need this
// rank get a PeerLostError that says it left.
func (r *Rank) Close() error { return errors.Join(r.dev.Close(), r.job.Close()) }

// In returns t, a tensor of a loaded module, as a place in the rank's arena. The methods of
// Rank take such places; those of Exec take the module's own. The error says that the module
// is not loaded, or the tensor malformed.
func (r *Rank) In(m *Module, t Tensor) (Tensor, error) {
	l := r.find(m)
	if l == nil {
		return Tensor{}, fmt.Errorf("module %s is not loaded", m.Name)
	}
	lo, _, err := t.Span()
	return l.place(t, lo), err
}

// User returns t, a tensor in the caller's own part of the arena
// (Config.UserBytes), as a place in the rank's arena.
func (r *Rank) User(t Tensor) Tensor { return t.At(r.user.Lo) }

// Upload copies dense host bytes to a place in the arena. The caller sees to it that nothing
// in flight touches it. The error is the device's: bytes of another number than t's, a place
// outside of the arena, or a broken world.
func (r *Rank) Upload(t Tensor, data []byte) error { return r.dev.Upload(t, data) }

// Download copies a place in the arena to dense host bytes. The error is the device's: a place
// outside of the arena, or a broken world.
func (r *Rank) Download(t Tensor) ([]byte, error) {
	if _, _, err := t.Span(); err != nil {
		return nil, err
	}
	data := make([]byte, t.Bytes())
	return data, r.dev.Download(data, t)
}

// Barrier waits until every rank of the world has called it. The error is ctx's, or what broke
// the world: a *TimeoutError or *PeerLostError, for instance.
func (r *Rank) Barrier(ctx context.Context) error {
	w, err := r.Start(ctx, "", &Collective{Op: Barrier, Group: worldGroup})
	if err != nil {
		return err
	}
	return w.Wait(ctx)
}

// open makes room for what the world begins with: it is the first change of an empty world,
// of which the ranks have agreed.
func (r *Rank) open(ctx context.Context, news []*loaded) error {
	for _, l := range news {
		if err := r.compile(l); err != nil {
			return err
		}
	}
	if err := r.addGroups(ctx, r.groups[:1]); err != nil {
		return err
	}
	if r.user.Hi > 0 {
		if err := r.dev.Grow(ctx, r.user); err != nil {
			return err
		}
	}
	for _, l := range news {
		if err := r.grow(ctx, l); err != nil {
			return err
		}
		if err := r.ready(ctx, l); err != nil {
			return err
		}
	}
	if err := r.job.Barrier(ctx, "rendezvous"); err != nil { // nobody launches before all are ready
		return err
	}
	for _, l := range news {
		r.admit(l)
	}
	return nil
}

// take makes the caller the one who has the rank, until give, unless ctx ends first.
func (r *Rank) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case r.running <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Rank) give() { <-r.running }

// stream returns the stream of that name for another user, making it for the first.
func (r *Rank) stream(name string) (*namedStream, error) {
	r.mu.Lock()
	s := r.streams[name]
	r.mu.Unlock()
	if s == nil {
		n, err := r.dev.NewStream(name)
		if err != nil {
			return nil, err
		}
		s = &namedStream{Stream: n}
		if s.end, err = r.dev.NewEvent(); err != nil {
			return nil, errors.Join(err, r.dev.DropStream(n))
		}
		r.mu.Lock()
		r.streams[name] = s
		r.mu.Unlock()
	}
	s.users++
	return s, nil
}

// dropStream undoes stream.
func (r *Rank) dropStream(name string) error {
	s := r.streams[name]
	if s.users--; s.users > 0 {
		return nil
	}
	r.mu.Lock()
	delete(r.streams, name)
	r.mu.Unlock()
	return errors.Join(r.dev.DropEvent(s.end), r.dev.DropStream(s.Stream))
}
