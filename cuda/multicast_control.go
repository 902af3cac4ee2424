//go:build linux

package cuda

import "errors"

// One process hands an object to all others by way of rank 0. Connections keep their
// order, so it is there when a meeting ends at which the giver arrived behind it.

// hand gives g to every other process of the world; it stays the caller's.
func (c *control) hand(g gift) error {
	m := message{Kind: msgHand}
	if g.handle != nil {
		m.Handles = [][]byte{g.handle}
	}
	return c.handOn(m, g, c.rank)
}

// handOn sends m from rank 0 to all but from, from other ranks to rank 0.
func (c *control) handOn(m message, g gift, from int) error {
	var errs []error
	for r, conn := range c.conns {
		if conn != nil && r != from {
			errs = append(errs, send(conn, m, g.fds()...))
		}
	}
	return errors.Join(errs...)
}

// receiveHanded keeps what came from a rank until it is taken. What is not an object, or
// cannot be passed on, is missed by who needs it.
func (c *control) receiveHanded(m message, fds []int, from int) {
	all, err := wrap(m.Handles, fds, 1)
	if err != nil {
		return
	}
	if c.rank == 0 {
		c.handOn(m, all[0], from)
	}
	c.mu.Lock()
	old := c.handed
	c.handed = all[0]
	c.mu.Unlock()
	old.close()
}

// takeHanded gives what was handed over since the last call, or none. The caller closes it.
func (c *control) takeHanded() gift {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.handed
	c.handed = none
	return g
}
