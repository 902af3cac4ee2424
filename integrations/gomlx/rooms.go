package gomlx

import (
	"context"
	"fmt"
	"slices"
	"weak"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	rt "github.com/seed-ee968945/concert/runtime"
)

// First values of variables are made once, and the step that trains them has its own memory for
// them: there would be two of everything, of which a device may have room for one. So large
// results of the program that makes them are in buffers of the world, and the program is dropped
// when it has run. The first program that gives new values to such variables takes the buffers
// for its own memory of them, and nothing is copied.

// roomSize is how many bytes a value has at least that gets a buffer of the world: these are of some MiB.
const roomSize = 1 << 20

// room is a buffer of the world, which has a value on each rank.
type room struct {
	on    []*rt.Buffer           // by rank, nil those of other processes
	held  []weak.Pointer[Buffer] // results that are there
	taken bool                   // a program has it for a variable
}

// roomy reports whether so many bytes are worth a buffer.
func roomy(bytes int64) bool { return bytes >= roomSize }

// apart lays a program out so that what may be in buffers of the world has places of its own.
func (c *compiled) apart() error {
	var names []string
	for i := range c.prog.Inputs {
		if q := &c.prog.Inputs[i]; c.donated(i) && roomy(c.prog.Room(q)) {
			names = append(names, q.Name)
		}
	}
	for i := range c.prog.Outputs {
		if q := &c.prog.Outputs[i]; c.initial && roomy(c.prog.Room(q)) {
			names = append(names, q.Name)
		}
	}
	if names == nil {
		return nil
	}
	prog, err := c.prog.Isolate(names...)
	if err != nil {
		return errors.WithStack(err)
	}
	c.prog = prog
	return nil
}

// rooms are the buffers that a program is to use, by input or result: new ones for first values,
// and those that variables are in whose place its results take. The world is locked.
func (w *world) rooms(c *compiled, inputs []compute.Buffer) (map[string]*room, error) {
	out := map[string]*room{}
	if c.initial {
		at := map[int64]*room{} // results may be one value
		for _, q := range c.mod.Outputs {
			if !roomy(q.Room) {
				continue
			}
			off := q.Tensors[0].Off
			if at[off] == nil {
				m, err := w.newRoom(q.Room)
				if err != nil {
					return nil, err
				}
				at[off] = m
			}
			out[q.Name] = at[off]
		}
		return out, nil
	}
	np := len(c.params)
	if len(inputs) != np*len(w.ranks) {
		return nil, nil // which is an error that others tell of
	}
	given := map[*room]bool{}
	for k, i := range c.params {
		q := &c.mod.Inputs[i]
		if !c.donated(i) || !roomy(q.Room) {
			continue
		}
		if m := w.roomOf(q, func(j int) compute.Buffer { return inputs[j*np+k] }); m != nil && !given[m] {
			out[q.Name], given[m] = m, true
		}
	}
	return out, nil
}

// roomOf is the buffer of the world that a variable is in on all ranks, if no program has taken it and
// it may be an input's memory.
func (w *world) roomOf(q *rt.Param, of func(j int) compute.Buffer) (m *room) {
	for j, r := range w.ranks {
		if r == nil {
			continue
		}
		u, _ := of(j).(*Buffer)
		if u == nil {
			return nil
		}
		u.mu.Lock()
		p := u.at
		u.mu.Unlock()
		if p == nil || p.l.w != w || p.rank != j || p.room == nil || p.room.taken || m != nil && p.room != m {
			return nil
		}
		m = p.room
		view, err := m.on[j].View(0, q.Tensors[0].DType, q.Tensors[0].Shape...)
		if err != nil || !same(view, p.t) || m.on[j].Bytes() < q.Room || !slices.Equal(view.StridesOrDense(), q.Tensors[0].StridesOrDense()) {
			return nil
		}
	}
	return m
}

// newRoom makes a buffer.
func (w *world) newRoom(bytes int64) (*room, error) {
	w.made++
	m := &room{on: make([]*rt.Buffer, len(w.ranks))}
	name, ctx := fmt.Sprint("variable ", w.made), w.b.context()
	err := w.each(func(j int, r *rt.Rank) (err error) {
		m.on[j], err = r.NewBuffer(ctx, name, bytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.free = append(w.free, m)
	return m, nil
}

// take says whose the buffers are that a program has been added with.
func (l *loaded) take(rooms map[string]*room) {
	if l.c.initial {
		for _, q := range l.c.mod.Outputs {
			l.rooms = append(l.rooms, rooms[q.Name])
		}
		return
	}
	for _, i := range l.c.params {
		if m := rooms[l.c.mod.Inputs[i].Name]; m != nil {
			m.taken = true
			l.taken, l.held = append(l.taken, m), append(l.held, m.held...)
		}
	}
	l.w.free = slices.DeleteFunc(l.w.free, func(m *room) bool { return m.taken })
}

// left puts a result where a run has left it.
func (l *loaded) left(u *Buffer, i int) {
	p := weak.Make(u)
	if l.rooms == nil || l.rooms[i] == nil {
		l.held = append(l.held, p)
		return
	}
	u.at.room = l.rooms[i]
	u.at.room.held = append(u.at.room.held, p)
}

// once drops a program that has made first values: small ones come to Go's memory.
func (l *loaded) once() error {
	if err := l.save(nil); err != nil {
		return err
	}
	l.users = 0
	return l.unload()
}

// empty gives buffers back. The world is locked.
func (w *world) empty(rooms []*room) error {
	ctx := context.Background()
	return w.each(func(j int, _ *rt.Rank) error {
		for _, m := range rooms {
			if err := m.on[j].Free(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// sweep gives back buffers of variables that nobody has any more. Of several processes each would
// find others.
func (w *world) sweep() error {
	if w.b.place != nil {
		return nil
	}
	var idle []*room
	w.free = slices.DeleteFunc(w.free, func(m *room) bool {
		if slices.ContainsFunc(m.held, m.has) {
			return false
		}
		idle = append(idle, m)
		return true
	})
	return w.empty(idle)
}

// has reports whether a value is still there, for somebody.
func (m *room) has(p weak.Pointer[Buffer]) bool {
	u := p.Value()
	if u == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.at != nil && u.at.room == m
}
