package nccl

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// How a group breaks, hears of it, and is left.

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
	cause = c.where("operations").Own(cause)
	return c.follow(cause, true, holds)
}

// follow breaks the group with cause, which it tells the others unless one of them said it.
func (c *Comm) follow(cause error, tell, holds bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if tell { // before anybody here sees the break, and leaves
		c.g.Break(0, cause)
	}
	c.err = cause
	if h := c.h; h != 0 {
		c.h, c.bare, c.freed = 0, make(chan struct{}), make(chan struct{})
		c.abort(h, holds)
	}
	close(c.broken)
	return cause
}

// abort begins to free h, and Close waits for its end. The library ends the kernels at
// once, but does not free the communicator before the graphs are gone that its work was
// captured in, which the caller may still hold. Another call on the communicator ends
// soon, since calls do not wait for peers and polling has seen the break; only one that
// is stuck is not waited for.
func (c *Comm) abort(h Handle, holds bool) {
	go func() {
		defer close(c.freed)
		for clock := stall.Start(); !holds && clock.Look() < callGrace; time.Sleep(time.Millisecond) {
			if holds = c.calls.TryLock(); holds {
				c.calls.Unlock() // none begins any more: they see the break
			}
		}
		if holds {
			c.discard(h)
		}
		close(c.bare)
		_ = c.lib.Abort(c.ctx, h) // there is nothing left to do with its failure
	}()
}

// gone waits until an abort that has begun has freed the communicator, for abortGrace at
// most: then a thread of the library is lost, but the caller is not.
func (c *Comm) gone() { c.wait(func() chan struct{} { return c.freed }) }

// wait waits for a channel that an abort closes, if one has begun.
func (c *Comm) wait(of func() chan struct{}) {
	c.mu.Lock()
	ended := of()
	c.mu.Unlock()
	if ended == nil {
		return
	}
	select {
	case <-ended:
	case <-stall.After(abortGrace):
	}
}

// receive follows another rank that breaks the group. One that breaks it because this one has
// canceled their exchange may be heard of before this one's own failure is known here, which
// says more.
func (c *Comm) receive(e rendezvous.Event) {
	if e.Kind != rendezvous.Broken {
		return
	}
	at := c.where("operations")
	if from, ok := e.Err.(*rendezvous.CanceledError); !ok || from.Origin != at.Rank {
		c.follow(at.Adopt(e.Err, e.Rank), false, false)
	}
}

// Close leaves the group: it waits until all ranks do, so that no rank's operations are cut
// off, and frees the communicator. When cx or the deadline ends first, or when the
// group is broken, it is aborted. The caller's streams must have ended their ops.
// Closing twice is an error that is ErrClosed.
func (c *Comm) Close(cx context.Context) error {
	err := c.leave(cx)
	c.gone() // without c.calls, for which a break that comes just now may wait
	return errors.Join(err, c.end())
}

// Drop leaves the group at once, without waiting for the other ranks and without telling
// them: what they run from now on ends by their deadline only. The caller's streams must
// have ended their ops. It may be called once, and instead of Close.
func (c *Comm) Drop() error {
	c.mu.Lock()
	h, err := c.h, c.err
	c.err = ErrClosed
	if err == nil {
		c.h, c.bare, c.freed = 0, make(chan struct{}), make(chan struct{})
		close(c.broken)
	}
	c.mu.Unlock()
	if err == nil {
		c.abort(h, false)
	}
	c.gone()
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return c.end()
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
	if err = c.deregister(h); err == nil {
		err = c.lib.Finalize(c.ctx, h)
	}
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
