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

// ErrClosed is what a Comm returns after Close. ErrTaken is wrapped by the error of
// a Join that changes nothing for those who have joined.
var (
	ErrClosed = errors.New("the communicator is closed")
	ErrTaken  = errors.New("this rank of the group has joined before: two processes claim it, or the name is used twice in one store")
)

// TimeoutError says that a group did not get on in time.
type TimeoutError struct {
	Group   string
	Rank    int
	What    string // what was waited for: "join", an op's name, "leave"
	Seq     uint64 // ops of this rank enqueued so far
	Elapsed time.Duration
	Err     error // the context's error, or nil when the group's own deadline passed
}

// Error names the group, the rank, what it waited for and how long.
func (e *TimeoutError) Error() string {
	s := fmt.Sprintf("nccl group %q, rank %d: %s did not end in %v (%d ops enqueued): a peer is lost, late, or runs other ops",
		e.Group, e.Rank, e.What, e.Elapsed.Round(time.Millisecond), e.Seq)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the context's error; a passed deadline matches DeadlineExceeded.
func (e *TimeoutError) Unwrap() error {
	if e.Err == nil {
		return context.DeadlineExceeded
	}
	return e.Err
}

// BrokenError says that the group is broken. The cause is the rank's own error, or
// what another rank recorded.
type BrokenError struct {
	Group  string
	Rank   int    // this rank
	Origin int    // the rank that broke the group, -1 if unknown
	Reason string // what that rank said
	Err    error  // the cause when it is this rank's own
}

// Error names the group and the cause.
func (e *BrokenError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("nccl group %q, rank %d: broken: %v", e.Group, e.Rank, e.Err)
	}
	return fmt.Sprintf("nccl group %q, rank %d: broken by rank %d: %s", e.Group, e.Rank, e.Origin, e.Reason)
}

// Unwrap gives the cause.
func (e *BrokenError) Unwrap() error { return e.Err }

// JoinError says that the ranks of a group do not fit together.
type JoinError struct {
	Group  string
	Rank   int
	Reason string
	Err    error
}

// Error names the group, the rank and the reason.
func (e *JoinError) Error() string {
	s := fmt.Sprintf("nccl group %q, rank %d: %s", e.Group, e.Rank, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *JoinError) Unwrap() error { return e.Err }

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

// Abort breaks the group on every rank. Kernels that wait for a peer end. It does not wait
// for that, nor for the library.
func (c *Comm) Abort(cause error) {
	if cause == nil {
		cause = errors.New("aborted")
	}
	c.fail(cause, false)
}

// fail breaks the group with cause, tells the other ranks, and returns the error
// that the group has from now on: the first one wins. holds says that
// the caller has c.calls.
func (c *Comm) fail(cause error, holds bool) error {
	var b *BrokenError
	if !errors.As(cause, &b) && !errors.Is(cause, ErrClosed) {
		cause = &BrokenError{Group: c.name, Rank: c.rank, Origin: c.rank, Err: cause}
	}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}
	c.err = cause
	h := c.h
	c.h = 0
	if h != 0 {
		c.freed = make(chan struct{})
	}
	close(c.broken)
	c.mu.Unlock()
	if h != 0 {
		c.abort(h, holds)
	}
	if b == nil && !errors.Is(cause, ErrTaken) {
		c.tell(cause)
	}
	return cause
}

// tell records the break for the others; a store that is gone cannot be told.
func (c *Comm) tell(cause error) {
	reason := cause.Error()
	var b *BrokenError
	if errors.As(cause, &b) && b.Err != nil {
		reason = b.Err.Error() // who reads it names the group and the rank again
	}
	v, err := json.Marshal(breakRecord{Rank: c.rank, Reason: reason})
	if err != nil {
		return
	}
	cx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _, _ = c.st.CompareAndSet(cx, c.key("broken"), nil, v)
}

// abort begins to free h, and Close waits for its end. The library ends the kernels at
// once, but does not free the communicator before the graphs are gone that its work was
// captured in, which the caller may still hold. Another call on the communicator ends
// soon, since calls do not wait for peers and polling has seen the break; only one that
// is stuck is not waited for.
func (c *Comm) abort(h Handle, holds bool) {
	go func() {
		defer close(c.freed)
		for end := time.Now().Add(callGrace); !holds && time.Now().Before(end); time.Sleep(time.Millisecond) {
			if c.calls.TryLock() {
				c.calls.Unlock() // none begins any more: they see the break
				break
			}
		}
		_ = c.lib.Abort(c.ctx, h) // there is nothing left to do with its failure
	}()
}

// gone waits until an abort that has begun has freed the communicator, for abortGrace at
// most: then a thread of the library is lost, but the caller is not.
func (c *Comm) gone() {
	c.mu.Lock()
	freed := c.freed
	c.mu.Unlock()
	if freed == nil {
		return
	}
	t := time.NewTimer(abortGrace)
	defer t.Stop()
	select {
	case <-freed:
	case <-t.C:
	}
}

// watch waits until another rank breaks the group, and follows it.
func (c *Comm) watch(cx context.Context) {
	defer close(c.watched)
	v, err := c.st.Get(cx, c.key("broken"))
	if err != nil {
		return // the group is closed, or the store is: the deadline still holds
	}
	var r breakRecord
	if err := json.Unmarshal(v, &r); err != nil {
		r = breakRecord{Rank: -1, Reason: fmt.Sprintf("malformed record %.80q", v)}
	}
	if r.Rank == c.rank {
		return // it is ourselves who said so
	}
	c.fail(&BrokenError{Group: c.name, Rank: c.rank, Origin: r.Rank, Reason: r.Reason}, false)
}

// Close leaves the group: it waits until all ranks do, so that nobody's ops are cut
// off, and frees the communicator. When cx or the deadline ends first, or when the
// group is broken, it is aborted. The caller's streams must have ended their ops.
// Closing twice is an error that is ErrClosed.
func (c *Comm) Close(cx context.Context) error {
	err := c.leave(cx)
	c.stop()
	<-c.watched // without c.calls, for which a break that comes just now may wait
	c.gone()
	return err
}

// Drop leaves the group at once, without waiting for the other ranks and without telling
// them: what they run from now on ends by their deadline only. The caller's streams must
// have ended their ops. It may be called once, and instead of Close.
func (c *Comm) Drop() error {
	c.mu.Lock()
	h, err := c.h, c.err
	c.err = ErrClosed
	if err == nil {
		c.h, c.freed = 0, make(chan struct{})
		close(c.broken)
	}
	c.mu.Unlock()
	if err == nil {
		c.abort(h, false)
	}
	c.stop()
	<-c.watched
	c.gone()
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return nil
}

func (c *Comm) leave(cx context.Context) error {
	c.calls.Lock()
	defer c.calls.Unlock()
	c.mu.Lock()
	h, err := c.h, c.err
	if err != nil {
		c.err = ErrClosed
		c.mu.Unlock()
		if errors.Is(err, ErrClosed) {
			return ErrClosed
		}
		return nil // its abort has freed it; the failure was reported when it happened
	}
	c.mu.Unlock()
	start := time.Now()
	cx, cancel := context.WithTimeout(cx, c.timeout)
	defer cancel()
	err = c.lib.Finalize(c.ctx, h)
	if code(err) == InProgress {
		err = c.settle(cx, "leave", start)
	}
	if err != nil {
		err = c.fail(err, true)
		c.mu.Lock()
		c.err = ErrClosed
		c.mu.Unlock()
		return err
	}
	c.mu.Lock()
	if c.h != h { // another rank's break came just now and has freed it
		c.err = ErrClosed
		c.mu.Unlock()
		return nil
	}
	c.h, c.err = 0, ErrClosed
	close(c.broken)
	c.mu.Unlock()
	return c.lib.Destroy(c.ctx, h)
}
