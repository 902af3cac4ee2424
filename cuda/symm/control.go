package symm

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// control is a process's membership of a world of several processes; nil in a world of
// one.
type control struct {
	g    *rendezvous.Group
	stop func()
}

// abortNotice is what a process tells the others of a group that a member has aborted.
type abortNotice struct {
	Group int             // number
	Err   json.RawMessage // as rendezvous.EncodeError makes it
}

// maxNotice bounds the reason of an abort.
const maxNotice = 64 << 10

// watch hears, from another goroutine, that a process has ended and that a rank has
// aborted a group.
func (c *control) watch(w *World) {
	c.stop = c.g.Watch(func(e rendezvous.Event) {
		var n abortNotice
		switch {
		case e.Kind == rendezvous.Lost:
			w.lost(e.Rank)
		case e.Kind == rendezvous.Notice && json.Unmarshal(e.Data, &n) == nil:
			w.aborted(n.Group, e.Rank, rendezvous.DecodeError(n.Err))
		}
	})
}

// tell says to the other processes that a member aborted a group.
func (c *control) tell(group int, why error) {
	b, err := json.Marshal(abortNotice{group, rendezvous.EncodeError(why, maxNotice)})
	if err == nil { // text and numbers only
		c.g.Notify(b)
	}
}

// skip cancels the next barrier, to which this process cannot come because of why.
func (c *control) skip(why error) {
	if c != nil {
		c.g.Cancel(why)
	}
}

// Close leaves the world.
func (c *control) Close() error {
	c.stop()
	return c.g.Close()
}

// exchange gives a memory handle to all other processes and takes theirs, by rank, which
// the caller closes.
func (c *control) exchange(ctx context.Context, own memHandle, how driver.Sharing) ([]memHandle, error) {
	const op = "exchange of memory handles"
	out := slices.Repeat([]memHandle{noHandle}, len(c.g.Ranks()))
	if how == driver.ByFabric {
		parts, err := c.g.Exchange(ctx, rendezvous.Call{Op: op, Data: own.fabric})
		for i, p := range parts {
			if len(p.Data) > 0 {
				out[i].fabric = p.Data
			}
		}
		return out, err
	}
	fds, err := c.g.ExchangeFiles(ctx, op, own.fd)
	for i, fd := range fds {
		out[i].fd = fd
	}
	return out, err
}
