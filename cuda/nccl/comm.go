package nccl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/runtime/store"
)

// Options are the knobs of a communicator. The zero value is the default of each.
type Options struct {
	// Timeout bounds every wait and leaving; 0 is 10 minutes.
	Timeout time.Duration
	// JoinTimeout bounds joining, which takes the library up to seconds; 0 is Timeout.
	JoinTimeout time.Duration
	Config      Config
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
	st      store.Store

	calls  sync.Mutex // held by a call of the library that changes the communicator
	mu     sync.Mutex // guards h, err and seq; never held while the library may block
	h      Handle
	err    error // why the group is broken, ErrClosed after Close
	seq    uint64
	broken chan struct{} // closed when err is set
	freed  chan struct{} // closed when an abort has freed the communicator; nil before there is one

	stop    context.CancelFunc // ends the watcher
	watched chan struct{}      // closed when it has ended
}

// record is what ranks write into the store when they join.
type record struct {
	N       int    `json:"n"`
	Version int    `json:"nccl"`
	ID      []byte `json:"id,omitempty"` // of rank 0
}

type breakRecord struct {
	Rank   int    `json:"rank"`
	Reason string `json:"reason"`
}

func (c *Comm) key(parts ...string) string {
	k := "nccl/" + c.name
	for _, p := range parts {
		k += "/" + p
	}
	return k
}

// Join makes rank a member of the group called name of n ranks, on the device whose
// driver context is ctx. All ranks call it with the same name, n and store; a name
// serves once in a store. It returns when the communicator is complete, or with a
// *JoinError, a *TimeoutError, a *BrokenError, or an *Error of the library.
func Join(cx context.Context, lib Library, st store.Store, name string, rank, n int, ctx uintptr, o Options) (*Comm, error) {
	if rank < 0 || n < 1 || rank >= n {
		return nil, &JoinError{Group: name, Rank: rank, Reason: fmt.Sprintf("rank must be in [0, %d)", n)}
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	wctx, stop := context.WithCancel(context.WithoutCancel(cx))
	c := &Comm{lib: lib, ctx: ctx, name: name, rank: rank, n: n, timeout: o.Timeout, st: st,
		broken: make(chan struct{}), stop: stop, watched: make(chan struct{})}
	go c.watch(wctx)
	start := time.Now()
	if o.JoinTimeout <= 0 {
		o.JoinTimeout = o.Timeout
	}
	cx, cancel := context.WithTimeout(cx, o.JoinTimeout)
	defer cancel()
	err := c.join(cx, o.Config, start)
	if err == nil {
		return c, nil
	}
	err = c.fail(err, false)
	c.stop()
	<-c.watched
	c.gone()
	return nil, err
}

func (c *Comm) join(cx context.Context, conf Config, start time.Time) error {
	id, err := c.meet(cx, start)
	if err != nil {
		return err
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	if err := c.Err(); err != nil { // broken before there was anything to abort
		return err
	}
	h, err := c.lib.Init(c.ctx, c.n, id, c.rank, conf)
	c.mu.Lock()
	broken := c.err
	if broken == nil {
		c.h = h
	}
	c.mu.Unlock()
	if broken != nil { // meanwhile, by another rank: nobody else knows of h
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

// meet publishes this rank's record, and reads rank 0's id and everyone's version.
func (c *Comm) meet(cx context.Context, start time.Time) (id ID, err error) {
	me := record{N: c.n}
	if me.Version, err = c.lib.Version(); err != nil {
		return id, err
	}
	if c.rank == 0 {
		if id, err = c.lib.UniqueID(); err != nil {
			return id, err
		}
		me.ID = id[:]
	}
	b, err := json.Marshal(me)
	if err != nil {
		return id, err
	}
	_, won, err := c.st.CompareAndSet(cx, c.key("rank", strconv.Itoa(c.rank)), nil, b)
	if err != nil {
		return id, c.storeErr(err, start)
	}
	if !won {
		return id, &JoinError{Group: c.name, Rank: c.rank, Reason: "cannot join", Err: ErrTaken}
	}
	gx, cancel := context.WithCancel(cx)
	defer cancel()
	go func() { // a break elsewhere ends the wait for ranks that will not come
		select {
		case <-c.broken:
			cancel()
		case <-gx.Done():
		}
	}()
	for r := range c.n {
		v, err := c.st.Get(gx, c.key("rank", strconv.Itoa(r)))
		if err != nil {
			if broken := c.Err(); broken != nil {
				return id, broken
			}
			if errors.Is(err, store.ErrWait) {
				return id, &TimeoutError{Group: c.name, Rank: c.rank, What: fmt.Sprintf("join: waiting for rank %d", r), Elapsed: time.Since(start), Err: cx.Err()}
			}
			return id, c.storeErr(err, start)
		}
		var rec record
		if err := json.Unmarshal(v, &rec); err != nil {
			return id, &JoinError{Group: c.name, Rank: c.rank, Reason: fmt.Sprintf("record of rank %d is malformed", r), Err: err}
		}
		if rec.N != c.n {
			return id, &JoinError{Group: c.name, Rank: c.rank, Reason: fmt.Sprintf("the group has %d ranks here and %d at rank %d", c.n, rec.N, r)}
		}
		if rec.Version/100 != me.Version/100 {
			return id, &JoinError{Group: c.name, Rank: c.rank, Reason: fmt.Sprintf("NCCL %s here and %s at rank %d", VersionText(me.Version), VersionText(rec.Version), r)}
		}
		if r == 0 {
			if len(rec.ID) != len(id) {
				return id, &JoinError{Group: c.name, Rank: c.rank, Reason: fmt.Sprintf("the id of rank 0 has %d bytes", len(rec.ID))}
			}
			copy(id[:], rec.ID)
		}
	}
	return id, nil
}

// VersionText writes a version as major.minor.patch.
func VersionText(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

func (c *Comm) storeErr(err error, start time.Time) error {
	return &JoinError{Group: c.name, Rank: c.rank, Reason: fmt.Sprintf("the store failed after %v", time.Since(start).Round(time.Millisecond)), Err: err}
}

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
		e := &TimeoutError{Group: c.name, Rank: c.rank, What: what, Elapsed: time.Since(start)}
		c.mu.Lock()
		e.Seq = c.seq
		c.mu.Unlock()
		if !errors.Is(cx.Err(), context.DeadlineExceeded) {
			e.Err = context.Cause(cx)
		}
		return e
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
		return c.fail(fmt.Errorf("%s: %w", op.Name(), err), true)
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
			return c.fail(fmt.Errorf("%s: %w", what, err), false)
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
