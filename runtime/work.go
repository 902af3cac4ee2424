package runtime

import (
	"context"
	"errors"
	"fmt"
)

// Work is a collective in flight. Whoever holds it may wait for it, or bind it
// to an async input of a program, which then waits for it where it must.
type Work struct {
	r       *Rank
	op      string
	ev      Event
	tensors []Tensor // the results, as places in the rank's arena
	mod     *Module  // whose async output it is, nil for one that the caller started
	settled bool     // has finished, or failed, and its event serves others; guarded by r.mu
	err     error    // how it ended, once settled
}

// Start starts a collective on its own, outside of any program, on the stream of that name (a
// stream of a loaded module, or a new one; empty: one that all such calls share). Tensors are
// places in the rank's arena, see Rank.In and Rank.User. All ranks of the group start the
// same, in the same order relative to the group's other collectives. The error is ctx's, that
// of a call that the device refuses, or what broke the world.
func (r *Rank) Start(ctx context.Context, stream string, c *Collective) (*Work, error) {
	if err := r.take(ctx); err != nil {
		return nil, err
	}
	defer r.give()
	if stream == "" {
		stream = "caller"
	}
	named := r.streams[stream]
	if named == nil {
		var err error
		if named, err = r.stream(stream); err != nil { // for good
			return nil, err
		}
	}
	s := named.Stream
	ev, err := r.event() // first: a peer that is through the collective sees all that this rank holds for it
	if err != nil {
		return nil, err
	}
	if err = r.dev.Collective(s, c); err == nil {
		err = r.dev.Record(s, ev)
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.free = append(r.free, ev)
		return nil, err
	}
	return &Work{r: r, op: c.Name(), ev: ev, tensors: c.Outs}, nil
}

// Tensors are the results, as places in the rank's arena. They hold what they
// should once Wait has returned nil.
func (w *Work) Tensors() []Tensor { return w.tensors }

// Wait waits for the collective. When ctx ends first, the collective goes on and
// Wait may be called again. The error is ctx's, or what broke the world.
func (w *Work) Wait(ctx context.Context) error {
	if over, err := w.over(); over {
		return err
	}
	err := w.r.dev.Synchronize(ctx, w.ev)
	if err != nil && ctx.Err() != nil {
		return err
	}
	return w.settle(err)
}

// Done reports whether the collective has finished without an error.
func (w *Work) Done() bool {
	if over, err := w.over(); over {
		return err == nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return w.r.dev.Synchronize(ctx, w.ev) == nil
}

func (w *Work) over() (bool, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.settled, w.err
}

// settle notes how w ended, and returns it: the first note counts. A module is
// then free to run again, and the event of a caller's collective to serve another.
func (w *Work) settle(err error) error {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if w.settled {
		return w.err
	}
	w.settled, w.err = true, err
	if w.mod != nil {
		w.r.works[w.mod]--
	} else {
		w.r.free = append(w.r.free, w.ev)
	}
	return err
}

// event takes an event that no unsettled Work uses.
func (r *Rank) event() (Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		ev := r.free[n-1]
		r.free = r.free[:n-1]
		return ev, nil
	}
	return r.dev.NewEvent()
}

// bind makes w the async input q of module m: m's event stands for its end, and
// its results are where m expects them. If they are elsewhere they are copied
// there as soon as they are complete, on a stream of their own.
func (w *Work) bind(x *Exec, q *Param, want []Tensor) error {
	if w.r != x.r {
		return errors.New("the collective was started on another rank object")
	}
	if len(want) != len(w.tensors) {
		return fmt.Errorf("%s has %d results, expected %d", w.op, len(w.tensors), len(want))
	}
	s := x.r.inbound - 1
	over, err := w.over()
	if err == nil && !over {
		err = x.r.dev.Wait(s, w.ev)
	}
	if err != nil {
		return err
	}
	for i, t := range want {
		if !t.SameType(w.tensors[i]) {
			return fmt.Errorf("result %d of %s is %v, expected %v", i, w.op, w.tensors[i], t)
		}
		if t.String() == w.tensors[i].String() {
			continue // in place already
		}
		if err := x.r.dev.Copy(s, t, w.tensors[i]); err != nil {
			return err
		}
	}
	if err := x.r.dev.Record(s, x.l.events[q.Event]); err != nil {
		return err
	}
	x.recorded[q.Event] = "inbound"
	x.bound = append(x.bound, w)
	return nil
}
