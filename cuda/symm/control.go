package symm

import (
	"context"
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

// watch hears, from another goroutine, that a process has ended and that a rank has
// aborted a group.
func (c *control) watch(w *World) {
	c.stop = c.g.Watch(func(e rendezvous.Event) {
		switch e.Kind {
		case rendezvous.Lost:
			w.lost(e.Rank)
		case rendezvous.Broken:
			w.aborted(e.Part, e.Rank, e.Err)
		}
	})
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
