package nccl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Options are the knobs of a communicator. The zero value is the default of each.
type Options struct {
	// Timeout bounds every wait and leaving; 0 is 10 minutes.
	Timeout time.Duration
	// JoinTimeout bounds joining, which takes the library up to seconds; 0 is Timeout.
	JoinTimeout time.Duration
	Config      Config
	// Unregistered is why this rank's memory is not to be registered with the network; nil:
	// it is where Register is called, if the library can.
	Unregistered error
}

const defaultTimeout = 10 * time.Minute

// abortGrace is how long Close waits for an abort: the library may join threads of its
// own that are slow to notice, and it waits for the graphs that hold the communicator's
// work. callGrace is how long an abort waits for another call on the communicator.
const (
	abortGrace = 30 * time.Second
	callGrace  = 5 * time.Second
)

// Comm is one rank's membership of a group. Ops of one Comm are enqueued in one
// order, the same on every rank; methods may be called from any goroutine.
type Comm struct {
	lib     Library
	ctx     uintptr
	name    string
	rank, n int
	timeout time.Duration
	g       *rendezvous.Group

	lacks error // why no memory is registered, nil if it is

	calls  sync.Mutex   // held by a call of the library that changes the communicator
	regs   []registered // under calls; after a break its abort's
	mu     sync.Mutex   // guards h, err and seq; never held while the library may block
	h      Handle
	err    error // why the group is broken, ErrClosed after Close
	seq    uint64
	broken chan struct{} // closed when err is set
	bare   chan struct{} // closed when an abort has ended all registrations; nil before there is one
	freed  chan struct{} // closed when it has freed the communicator

	stop func() // ends hearing of breaks elsewhere
}

// record is what ranks bring when they join.
type record struct {
	Version int    `json:"nccl"`
	ID      []byte `json:"id,omitempty"` // of rank 0
	// Unregistered is why the rank registers no memory.
	Unregistered string `json:"unregistered,omitempty"`
}

// Join makes this rank a member of a communicator of the ranks of g, on the device whose
// driver context is ctx; name is for errors. All ranks of g call it. The communicator takes g
// over and leaves it in the end. It returns when the communicator is complete, or with an
// error of the rendezvous, in which an *Error of the library may be.
func Join(cx context.Context, lib Library, g *rendezvous.Group, name string, ctx uintptr, o Options) (*Comm, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	c := &Comm{lib: lib, ctx: ctx, name: name, rank: g.Rank(), n: len(g.Ranks()), timeout: o.Timeout, g: g, broken: make(chan struct{})}
	c.stop = g.Watch(c.receive)
	start := time.Now()
	if o.JoinTimeout <= 0 {
		o.JoinTimeout = o.Timeout
	}
	cx, cancel := context.WithTimeout(cx, o.JoinTimeout)
	defer cancel()
	err := c.join(cx, &o, start)
	if err == nil {
		return c, nil
	}
	if broken := c.fail(err, false); !errors.Is(broken, err) {
		err = broken // by another rank, before
	}
	c.gone()
	return nil, errors.Join(fmt.Errorf("joining NCCL group %q of ranks %v: %w", name, g.Ranks(), err), c.end())
}

// end leaves the group.
func (c *Comm) end() error {
	c.stop()
	return c.g.Close()
}

func (c *Comm) join(cx context.Context, o *Options, start time.Time) error {
	id, err := c.bootstrap(cx, o)
	if err != nil {
		return err
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	if err := c.Err(); err != nil { // broken before there was anything to abort
		return err
	}
	h, err := c.lib.Init(c.ctx, c.n, id, c.rank, o.Config)
	c.mu.Lock()
	broken := c.err
	if broken == nil {
		c.h = h
	}
	c.mu.Unlock()
	if broken != nil { // meanwhile, by another rank; h has no other owner
		if h != 0 {
			_ = c.lib.Abort(c.ctx, h) // nothing was captured that it could wait for
		}
		return broken
	}
	if err != nil && code(err) != InProgress {
		return err
	}
	return c.settle(cx, "join", start)
}

// bootstrap exchanges records: the library's version, rank 0's id, and whether memory is registered.
func (c *Comm) bootstrap(cx context.Context, o *Options) (id ID, err error) {
	var me record
	lacks := c.unregistered(o)
	if lacks != nil {
		me.Unregistered = lacks.Error()
	}
	if me.Version, err = c.lib.Version(); err == nil && c.rank == 0 {
		if id, err = c.lib.UniqueID(); err == nil {
			me.ID = id[:]
		}
	}
	b, jerr := json.Marshal(me)
	if err = errors.Join(err, jerr); err != nil {
		c.fail(err, false) // before others leave because of it
		c.g.Cancel(err)
		return id, err
	}
	parts, err := c.g.Exchange(cx, rendezvous.Call{Op: fmt.Sprintf("joining NCCL group %q", c.name), Data: b})
	if err != nil {
		return id, err
	}
	records := make([]record, len(parts))
	for r, p := range parts {
		rec := &records[r]
		if err := json.Unmarshal(p.Data, rec); err != nil {
			return id, c.differs("records", r, "well formed", err)
		}
		if rec.Version/100 != me.Version/100 {
			return id, c.differs("versions of NCCL", r, VersionText(me.Version), VersionText(rec.Version))
		}
		if r == 0 {
			if len(rec.ID) != len(id) {
				return id, c.differs("bytes of NCCL's id", r, len(id), len(rec.ID))
			}
			copy(id[:], rec.ID)
		}
	}
	c.agree(records, lacks)
	return id, nil
}

// VersionText writes a version as major.minor.patch.
func VersionText(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// settle polls until the communicator is no longer in progress. c.calls is held.
func (c *Comm) settle(cx context.Context, what string, start time.Time) error {
	// The library does an op in a thread of its own that takes some tens of
	// microseconds: yield for so long, sleep only after.
	const spin = 500 * time.Microsecond
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		state, err := c.state()
		for began := time.Now(); err == nil && state == InProgress && pause == 20*time.Microsecond && time.Since(began) < spin; {
			runtime.Gosched()
			state, err = c.state()
		}
		if err != nil || state == Success {
			return err
		}
		if err := c.pause(cx, what, start, pause); err != nil {
			return err
		}
	}
}

// state is the communicator's: Success, InProgress, or an error.
func (c *Comm) state() (Code, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return Success, c.err
	}
	state, err := c.lib.AsyncError(c.h)
	if err != nil {
		return Success, err
	}
	if state != Success && state != InProgress {
		return state, &Error{Call: "ncclCommGetAsyncError", Code: state, Text: c.lib.LastError(c.h)}
	}
	return state, nil
}

// pause waits a little, less if the group breaks or cx ends.
func (c *Comm) pause(cx context.Context, what string, start time.Time, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.broken:
		return c.Err()
	case <-cx.Done():
		if cause := context.Cause(cx); !errors.Is(cause, context.DeadlineExceeded) {
			return c.where(what).Own(cause)
		}
		return c.late(what, time.Since(start))
	}
}

// Run enqueues op on a stream of the rank's device. When it returns nil the op is
// in the stream; its end is the stream's matter, and its failure that of Wait. An op
// that cannot be is an *OpError and leaves the group whole; any other error breaks
// the group.
func (c *Comm) Run(cx context.Context, stream uintptr, op Op) error {
	calls, err := op.plan(c.rank, c.n)
	if err != nil {
		return err
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	c.mu.Lock()
	h, err := c.h, c.err
	if err == nil {
		c.seq++
	}
	c.mu.Unlock()
	if err != nil || len(calls) == 0 {
		return err
	}
	switch err := c.lib.Submit(c.ctx, h, stream, calls); {
	case err == nil:
		return nil
	case code(err) != InProgress:
		return c.fail(c.where(op.Name()).Own(err), true)
	}
	cx, cancel := context.WithTimeout(cx, c.timeout)
	defer cancel()
	if err := c.settle(cx, op.Name(), time.Now()); err != nil {
		return c.fail(err, true)
	}
	return nil
}

// Wait polls until done reports true, which the caller makes of an event or stream
// of its driver, and watches the communicator meanwhile. It returns nil, or the
// error that broke the group: the library's, the deadline's, cx's, another rank's.
// what is what a *TimeoutError says was waited for.
func (c *Comm) Wait(cx context.Context, what string, done func() (bool, error)) error {
	start := time.Now()
	cx, cancel := context.WithTimeout(cx, c.timeout)
	defer cancel()
	var looked time.Time
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, 200*time.Microsecond) {
		ok, err := done()
		if err != nil {
			return c.fail(c.where(what).Own(err), false)
		}
		if ok {
			return c.Err()
		}
		if now := time.Now(); now.Sub(looked) > time.Millisecond {
			looked = now
			if _, err := c.state(); err != nil {
				return c.fail(err, false)
			}
		}
		if err := c.pause(cx, what, start, pause); err != nil {
			return c.fail(err, false)
		}
	}
}

// Poll asks the library for the communicator's state, which Err does not, and breaks the
// group if it has failed. It returns Err. For a host that waits for streams by itself
// instead of calling Wait.
func (c *Comm) Poll() error {
	if _, err := c.state(); err != nil {
		return c.fail(err, false)
	}
	return nil
}

// Err is the error that broke the group, nil while it works.
func (c *Comm) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Rank is this rank's place in the group.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks of the group.
func (c *Comm) Size() int { return c.n }
