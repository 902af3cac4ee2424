package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// A world changes at safe points. All ranks make the same change, one after the other in the
// same order, each where nothing of its own runs:
//
//  1. the change is checked, and what takes no device is made: kernels are compiled;
//  2. the ranks agree: they compare what the change is, by digest;
//  3. no run begins, since the rank's lock is held, and what runs has ended (quiet);
//  4. memory is mapped or given back, groups, streams and events are made, code is loaded;
//  5. runs begin again.
//
// A barrier of all ranks follows 2, 3 and 4. A rank that fails cancels the next one instead of
// arriving at it, so that all fail at the same one, undo what they did, pass another, and go on
// with the world as it was. So nothing that may block a device happens while a peer's kernel
// waits. A world opens as an empty one that changes, see Join.

// Bindings say, by name, which inputs and outputs of a module are in buffers of the world.
type Bindings map[string]*Buffer

// Add loads a module while the world lives. All ranks of the world call it with the same
// module and bindings. A rank that fails, or brings another module, fails for all, and
// everything goes on as before; the errors are those of Join, of which [CanceledError] says
// who failed.
func (r *Rank) Add(ctx context.Context, m *Module, bind Bindings) error {
	r.running <- struct{}{}
	defer r.give()
	l, err := r.load(m, bind)
	c := change{op: "adding a module", err: err}
	if err == nil {
		c.op = "adding module " + m.Name
		c.programs(m, r.env.World)
		c.same = append(c.same, Fact{What: "bindings to buffers", Value: l.bindings()})
		c.err = r.compile(l)
		c.apply = func() error { return r.grow(ctx, l) }
		c.finish = func() error { return r.ready(ctx, l) }
		c.undo = func() error { return r.unload(l) }
	}
	if err := r.change(ctx, &c); err != nil {
		return err
	}
	r.admit(l)
	return nil
}

// Drop unloads a module, closes its captured steps and gives back its memory, kernels, groups
// and streams, as far as nothing else has them; buffers that it was bound to stay. All ranks
// of the world call it. Async outputs have to be awaited before. The error is a *CallError on
// all ranks if the module is not loaded or has such outputs on one of them, or what broke the
// world.
func (r *Rank) Drop(ctx context.Context, m *Module) error {
	r.running <- struct{}{}
	defer r.give()
	l := r.find(m)
	c := change{op: "dropping a module"}
	r.mu.Lock()
	left := r.works[m]
	r.mu.Unlock()
	switch {
	case l == nil:
		c.err = errors.New("it is not loaded")
	case left > 0:
		c.err = fmt.Errorf("%d of its async outputs have not been awaited", left)
	default:
		c.op = "dropping module " + m.Name
		c.programs(m, r.env.World)
	}
	c.finish = func() error { return r.unload(l) }
	return r.change(ctx, &c)
}

// change is what all ranks do to a world together.
type change struct {
	op   string
	same []Fact // on all ranks
	text string // of programs
	err  error  // why this rank cannot take part

	apply  func() error // exchanges with the other ranks itself, and tells them if it fails; may be nil
	finish func() error
	undo   func() error // nil where there is no way back
}

// programs says that the module has to be the same.
func (c *change) programs(m *Module, world int) {
	var digest string
	digest, c.text = agreement([]*Module{m}, world)
	c.same = []Fact{{What: rendezvous.Programs, Value: digest}}
}

// change makes a change, with r.running held. See the head of this file.
func (r *Rank) change(ctx context.Context, c *change) error {
	err := r.quiesce(ctx, c)
	agreed := err == nil
	if agreed {
		err = r.apply(ctx, c)
	}
	if err == nil || c.undo == nil {
		return err
	}
	if more := c.undo(); more != nil && r.dev.Err() == nil { // a broken world gives back what it can, and the rest when it is closed
		err = errors.Join(err, more)
	}
	if agreed { // all have failed, and no rank runs anything before all have undone it
		r.job.Barrier(context.WithoutCancel(ctx), c.op) // the first error matters
	}
	return err
}

// refuse tells the others, at the next barrier, that this rank has failed.
func (r *Rank) refuse(c *change, err error) error {
	err = &CallError{Rank: r.env.Rank, Op: c.op, Err: err}
	r.job.Cancel(err)
	return err
}

// quiesce agrees on a change, and waits until nothing runs on any rank.
func (r *Rank) quiesce(ctx context.Context, c *change) error {
	if err := r.dev.Err(); err != nil {
		r.job.Cancel(err)
		return err
	}
	if c.err != nil {
		return r.refuse(c, c.err)
	}
	kind, _, _ := strings.Cut(c.op, " ")
	a := agreeing{op: c.op, text: c.text}
	if _, err := a.exchange(ctx, r.job, nil, append([]Fact{{What: "changes of the world", Value: kind}}, c.same...)...); err != nil {
		return err
	}
	if err := r.dev.Sync(ctx); err != nil {
		return r.refuse(c, err)
	}
	return r.job.Barrier(ctx, c.op)
}

// apply does what was agreed.
func (r *Rank) apply(ctx context.Context, c *change) error {
	if c.apply != nil {
		if err := c.apply(); err != nil {
			return err
		}
	}
	if c.finish != nil {
		if err := c.finish(); err != nil {
			return r.refuse(c, err)
		}
	}
	return r.job.Barrier(ctx, c.op)
}
