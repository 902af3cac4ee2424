// Package eager runs collectives on buffers without a compiled program. A call returns a
// handle at once, and its plan is cached for the next call with the same arguments.
package eager

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
)

// Work is a collective in flight: one half of a call whose other half, the wait,
// happens elsewhere, on another stream or on the host. A compiled program whose
// inputs or outputs are in flight takes or leaves one of these. It is a value, which
// Close ends for all its copies; the zero value is work that has ended. Work that was
// captured is for WaitOn streams of the same capture only: it never runs itself.
type Work struct {
	e    *workEvent
	turn uint32 // of the event
}

// workEvent is an event that handles use in turn.
type workEvent struct {
	m    *Comm
	ev   driver.Event
	turn atomic.Uint32 // grows when a handle is closed
	next *workEvent    // that is free
}

// Comm runs collectives of one rank of a group without a compiled program. It remembers
// what it has planned, so one serves all calls of a rank.
type Comm struct {
	*coll.Member
	mu    sync.Mutex // of plans
	plans [MaxPlans / planWays]planSet
	works sync.Mutex // of spare; held for short
	spare *workEvent
}

// New makes the collectives of a member. They end with its group.
func New(m *coll.Member) *Comm { return &Comm{Member: m} }

// errWorkClosed is what a closed handle reports.
var errWorkClosed = fmt.Errorf("the handle of a collective: %w", symm.ErrClosed)

// newWork takes a handle whose event has yet to be recorded, within a call.
func (m *Comm) newWork() (Work, error) {
	k := m
	k.works.Lock()
	e := k.spare
	if e != nil {
		k.spare, e.next = e.next, nil
	}
	k.works.Unlock()
	if e == nil {
		ev, err := m.NewEvent()
		if err != nil {
			return Work{}, err
		}
		e = &workEvent{m: m, ev: ev}
	}
	return Work{e: e, turn: e.turn.Load()}, nil
}

// free gives the event to the next handle, once.
func (w Work) free() {
	if w.e == nil || !w.e.turn.CompareAndSwap(w.turn, w.turn+1) {
		return
	}
	k := w.e.m
	k.works.Lock()
	w.e.next, k.spare = k.spare, w.e
	k.works.Unlock()
}

// begin starts a call with the handle, which m.done ends, unless it or its group is closed.
func (w Work) begin() error {
	if err := w.e.m.Begin(); err != nil {
		return err
	}
	if w.e.turn.Load() != w.turn {
		w.e.m.Done()
		return errWorkClosed
	}
	return nil
}

// WaitOn makes a stream of the same rank wait for the collective; the host goes on.
func (w Work) WaitOn(s driver.Stream) error {
	if w.e == nil {
		return nil
	}
	if err := w.begin(); err != nil {
		return err
	}
	m := w.e.m
	defer m.Done()
	return m.Rank.World.Driver().StreamWait(m.Rank.Ctx, s, w.e.ev)
}

// Wait blocks until the collective has ended and reports what became of it: nil, a
// *TimeoutError, or a *CanceledError. When ctx ends first the group is
// aborted, because a collective that one rank leaves can end on no rank; the error
// then wraps ctx's cause. It polls, so that no thread is stuck in the driver, and ends
// late waits of collectives without kernels. What the stream has to do before the
// collective it gives two seconds when ctx has ended.
func (w Work) Wait(ctx context.Context) error {
	if err := symm.CheckContext(ctx); err != nil {
		return err
	}
	if w.e == nil {
		return nil
	}
	if err := w.begin(); err != nil {
		return err
	}
	m := w.e.m
	defer m.Done()
	if err := m.Drain(ctx, w.done); err != nil {
		return err
	}
	return m.Check(context.WithoutCancel(ctx), m.HostStream())
}

// Done reports whether the collective has ended, well or not. It does not end waits that
// are late: large calls by copies have no kernel that would, so a host that asks again and
// again without Wait or Check calls Member.Tend as well.
func (w Work) Done() (bool, error) {
	if w.e == nil {
		return true, nil
	}
	if err := w.begin(); err != nil {
		return false, err
	}
	defer w.e.m.Done()
	return w.done()
}

// done is Done within a call.
func (w Work) done() (bool, error) {
	if w.e.turn.Load() != w.turn {
		return false, errWorkClosed
	}
	return w.e.m.Rank.World.Driver().EventQuery(w.e.m.Rank.Ctx, w.e.ev)
}

// Close gives the handle back; a second time it does nothing. The collective itself
// goes on if it has not ended. What is not closed lives as long as the group.
func (w Work) Close() error {
	w.free()
	return nil
}
