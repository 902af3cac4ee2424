package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A world changes at safe points. All ranks make the same change, one after the other in the
// same order, each where nothing of its own runs:
//
//  1. the change is checked, and what it needs alone is made;
//  2. the ranks agree: they compare what the change is, by digest;
//  3. no run begins, since the rank's lock is held, and what runs has ended (quiet);
//  4. memory is mapped, groups, streams and events are made (ready);
//  5. runs begin again.
//
// After 2, 3 and 4 all ranks meet. A rank that fails cancels the next meeting in place of
// coming to it, so that all fail at the same one, undo what they did, and go on with the
// world as it was. So nothing that may block a device happens while a peer's kernel waits.

// Bindings say, by name, which inputs and outputs of a module lie in buffers of the world.
type Bindings map[string]*Buffer

// Add loads a module while the world lives. All ranks of the world call it with the same
// module and bindings. A rank that fails, or brings another module, fails for all, and
// everything goes on as before; the errors are those of Join, of which [CanceledError] says
// who failed. On a device that is no [Grower] the error wraps ErrUnsupported.
func (r *Rank) Add(ctx context.Context, m *Module, bind Bindings) error {
	r.running.Lock()
	defer r.running.Unlock()
	l, err := r.load(m, bind)
	c := change{op: "adding a module", err: err}
	if err == nil {
		c.op = "adding module " + m.Name
		c.digest, c.text = agreement([]*Module{m}, r.env.World)
		c.digest += l.bindings()
		defer func() {
			if r.find(m) != l {
				r.unload(l)
			}
		}()
	}
	var grown bool
	c.apply = func(g Grower) error {
		if m.Arena == 0 {
			return nil
		}
		err := g.Grow(ctx, l.at)
		grown = err == nil
		return err
	}
	c.finish = func(g Grower) error {
		for _, h := range l.groups {
			if h.users == 1 {
				if err := g.AddGroup(h.Group); err != nil {
					return err
				}
			}
		}
		return r.prepare(l)
	}
	c.undo = func(g Grower) (err error) {
		r.dismiss(l)
		for _, h := range l.groups {
			if h.users == 1 {
				g.DropGroup(h.Name)
			}
		}
		if grown {
			err = g.Shrink(l.at)
		}
		return err
	}
	if err := r.change(ctx, &c); err != nil {
		return err
	}
	r.admit(l)
	return nil
}

// Drop unloads a module and gives its memory back; buffers that it was bound to stay. All
// ranks of the world call it. Async outputs have to be awaited before.
func (r *Rank) Drop(ctx context.Context, m *Module) error {
	r.running.Lock()
	defer r.running.Unlock()
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
		c.digest, c.text = agreement([]*Module{m}, r.env.World)
	}
	if err := r.change(ctx, &c); err != nil {
		return err
	}
	r.dismiss(l)
	g := r.dev.(Grower)
	for _, name := range r.unload(l) {
		g.DropGroup(name)
	}
	if m.Arena == 0 {
		return nil
	}
	return g.Shrink(l.at)
}

// change is what all ranks do to a world together.
type change struct {
	op           string
	digest, text string // what has to be the same on all ranks
	err          error  // why this rank cannot take part

	apply  func(g Grower) error // meets the other ranks itself, and tells them if it fails
	finish func(g Grower) error
	undo   func(g Grower) error
}

// change makes a change, with r.running held. See the head of this file.
func (r *Rank) change(ctx context.Context, c *change) error {
	own := func(err error) error { return &CallError{Rank: r.env.Rank, Op: c.op, Err: err} }
	if err := r.dev.Err(); err != nil {
		r.job.Cancel(err)
		return err
	}
	g, ok := r.dev.(Grower)
	if !ok {
		return own(fmt.Errorf("a %s device does not change while it lives: %w", r.dev.Info().Kind, ErrUnsupported))
	}
	refuse := func(err error) error { // at the next meeting
		err = own(err)
		r.job.Cancel(err)
		return err
	}
	if c.err != nil {
		return refuse(c.err)
	}
	kind, _, _ := strings.Cut(c.op, " ")
	a := agreeing{op: c.op, digest: c.digest, text: c.text}
	if _, err := a.exchange(ctx, r.job, nil, Fact{What: "changes of the world", Value: kind}); err != nil {
		return err
	}
	if err := r.dev.Sync(ctx); err != nil {
		return refuse(err)
	}
	if err := r.job.Barrier(ctx, c.op); err != nil {
		return err
	}
	if c.apply == nil {
		return nil
	}
	err := c.apply(g)
	if err == nil && c.finish != nil {
		if err = c.finish(g); err != nil {
			err = refuse(err)
		}
	}
	if err == nil {
		err = r.job.Barrier(ctx, c.op)
	}
	if err == nil {
		return nil
	}
	if more := c.undo(g); more != nil {
		err = errors.Join(err, more)
	}
	return err
}
