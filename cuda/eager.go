package cuda

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Work is a collective in flight: one half of a call whose other half, the wait,
// happens elsewhere, on another stream or on the host. A compiled program whose
// inputs or outputs are in flight takes or leaves one of these.
type Work struct {
	m    *Member
	ev   Event
	once sync.Once
	err  error
}

// Start enqueues op on stream s and returns its handle. Operands and results
// belong to the collective until a wait for it. The handle must be ended by Close.
func (m *Member) Start(s Stream, op Op) (*Work, error) {
	p, err := m.Prepare(op)
	if err != nil {
		return nil, err
	}
	return p.Start(s)
}

// Start enqueues a prepared collective and returns its handle.
func (p *Prepared) Start(s Stream) (*Work, error) {
	m := p.m
	d, c := m.Rank.World.drv, m.Rank.Ctx
	ev, err := d.EventCreate(c, false)
	if err != nil {
		return nil, err
	}
	w := &Work{m: m, ev: ev}
	if err := p.Enqueue(s); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if err := d.EventRecord(c, ev, s); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// WaitOn makes a stream of the same rank wait for the collective; the host goes on.
func (w *Work) WaitOn(s Stream) error {
	return w.m.Rank.World.drv.StreamWait(w.m.Rank.Ctx, s, w.ev)
}

// Wait blocks until the collective has ended and reports what became of it: nil, a
// *TimeoutError, or an error that wraps ErrAborted. When ctx ends first the group is
// aborted, because a collective that one rank leaves can end on no rank; the error
// then wraps ctx's cause. It polls, so that no thread is stuck in the driver.
func (w *Work) Wait(ctx context.Context) error {
	d, c := w.m.Rank.World.drv, w.m.Rank.Ctx
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, 100*time.Microsecond) {
		ok, err := d.EventQuery(c, w.ev)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if err := ctx.Err(); err != nil {
			w.m.Abort(context.Cause(ctx))
			ctx = context.WithoutCancel(ctx) // the kernels give up soon; wait for that
		}
		if pause > 10*time.Microsecond { // short collectives end while we spin
			time.Sleep(pause)
		}
	}
	return w.m.Check(context.WithoutCancel(ctx), w.m.Rank.setup)
}

// Done reports whether the collective has ended, well or not.
func (w *Work) Done() (bool, error) {
	return w.m.Rank.World.drv.EventQuery(w.m.Rank.Ctx, w.ev)
}

// Close frees the handle. The collective itself goes on if it has not ended.
func (w *Work) Close() error {
	w.once.Do(func() { w.err = w.m.Rank.World.drv.EventDestroy(w.m.Rank.Ctx, w.ev) })
	return w.err
}
