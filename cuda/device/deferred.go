package device

import (
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
)

// deferred are, by stream, the collectives overlapped with compute whose reductions take place in a
// stream of their group while the stream itself has gone on (coll.Prepared.AddAhead).
// So the copies of one bucket of gradients need not wait until the one before it is
// reduced, which takes multiprocessors. Whoever waits for the stream waits for the
// reductions: its events are recorded in the stream that reduces.
//
// What may follow without waiting is another such collective that shares no memory with
// them. Everything else joins them first, and so does the stream when its group goes on
// in another one: that stream may bring a kernel that stages without asking for credit,
// or one more of them, which takes the credits that a later join would wait for. All
// ranks decide alike.
type deferred map[*stream][]*plan // looked up only

// add joins what has to be joined before p is added to st, and gives p's commands if it
// goes ahead itself.
func (t deferred) add(st *stream, p *plan, c *driver.Commands) *driver.Commands {
	if p.ahead == nil || slices.ContainsFunc(t[st], p.collides) {
		t.join(st, c)
	}
	if p.ahead != nil {
		t[st] = append(t[st], p)
	}
	return p.ahead
}

// collides reports whether p must not begin before o has ended: they are of different
// groups, or one writes what the other reads or writes.
func (p *plan) collides(o *plan) bool {
	if p.group != o.group {
		return true
	}
	overlap := func(a, b []library.Memory) bool {
		return slices.ContainsFunc(a, func(m library.Memory) bool { return slices.ContainsFunc(b, m.Overlaps) })
	}
	return overlap(p.touches[1], o.touches[0]) || overlap(p.touches[1], o.touches[1]) || overlap(p.touches[0], o.touches[1])
}

// end is the stream in which an event stands for all that st was given.
func (t deferred) end(st *stream) driver.Stream {
	if len(t[st]) > 0 {
		return t[st][0].group.m.ReductionStream()
	}
	return st.h
}

// wait makes st wait for an event, and the reductions behind which events of st are recorded.
func (t deferred) wait(st *stream, ev driver.Event, c *driver.Commands) {
	c.Wait(st.h, ev)
	if end := t.end(st); end != st.h {
		c.Wait(end, ev)
	}
}

// join makes st wait for its reductions.
func (t deferred) join(st *stream, c *driver.Commands) {
	if len(t[st]) > 0 {
		t[st][0].group.m.Join(c, st.h)
		delete(t, st)
	}
}
