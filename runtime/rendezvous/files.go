package rendezvous

import (
	"context"
	"errors"
	"slices"
)

// ExchangeFiles gives every rank's descriptor to all others, who get descriptors of their
// own, closed on exec, by index; -1 is none. All ranks must be processes of one user on one machine.
// They travel over connections that end with the call: the group's first rank listens at a
// random name, which the others learn from it alone. Errors are those of Exchange; what
// fails on one rank is a *CanceledError of that rank for all.
func (g *Group) ExchangeFiles(ctx context.Context, op string, fd int) (fds []int, err error) {
	fail := func(err error) error {
		err = g.stopped(op, err, 0)
		g.Cancel(err)
		return err
	}
	here, err := Machine()
	if err != nil {
		return nil, fail(err)
	}
	var ln *Listener
	var token []byte
	if g.Rank() == 0 {
		if fd, err = dupFile(fd); err != nil { // as the others get them
			return nil, fail(err)
		}
		job := Job{ID: "files-" + newID(), Secret: NewSecret(), wrap: g.s.wrap}
		job.Addr = "unix:@concert-" + job.ID
		if ln, err = Listen(ctx, &job); err != nil {
			CloseFiles(fd)
			return nil, fail(err)
		}
		defer ln.Close()
		token = []byte(job.Token())
	}
	err = g.connected(ctx, Call{Op: op, Data: token, Facts: []Fact{{"machines", here}}}, func(ctx context.Context, parts []Part) (err error) {
		if ln == nil {
			fds, err = g.fetch(ctx, string(parts[0].Data), fd)
			return err
		}
		own := fd
		fd = -1
		fds, err = g.spread(ctx, ln, own)
		return err
	})
	if err != nil {
		if ln != nil {
			CloseFiles(fd)
		}
		CloseFiles(fds...)
		return nil, err
	}
	return fds, nil
}

// turnIn is what a rank says with its descriptor.
type turnIn struct {
	Index int  `json:"index"`
	None  bool `json:"none,omitempty"` // no descriptor comes along
}

// sendFile sends one rank's descriptor.
func (c *Conn) sendFile(ctx context.Context, index, fd int) error {
	if fd < 0 {
		return c.Send(ctx, turnIn{index, true})
	}
	return c.Send(ctx, turnIn{Index: index}, fd)
}

// receiveFile receives one rank's descriptor.
func (c *Conn) receiveFile(ctx context.Context) (index, fd int, err error) {
	var t turnIn
	fds, err := c.Receive(ctx, maxHello, &t)
	switch {
	case err != nil:
		return 0, -1, err
	case t.None == (len(fds) == 1):
		CloseFiles(fds...)
		return 0, -1, errors.New("a descriptor is missing")
	case t.None:
		return t.Index, -1, nil
	}
	return t.Index, fds[0], nil
}

// spread collects all descriptors, and gives all of them to every rank. It takes own over.
func (g *Group) spread(ctx context.Context, ln *Listener, own int) (fds []int, err error) {
	fds = slices.Repeat([]int{-1}, len(g.ranks))
	conns := make([]*Conn, len(g.ranks))
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	fds[0] = own
	for range len(g.ranks) - 1 {
		c, err := ln.Accept(ctx)
		if err != nil {
			return fds, err
		}
		at, got, err := c.receiveFile(ctx)
		if err != nil || at < 1 || at >= len(fds) || conns[at] != nil {
			CloseFiles(got)
			c.Close()
			return fds, errors.Join(err, errors.New("a rank turned in no descriptor of its own"))
		}
		fds[at], conns[at] = got, c
	}
	for _, c := range conns[1:] {
		for i, fd := range fds {
			if err := c.sendFile(ctx, i, fd); err != nil {
				return fds, err
			}
		}
	}
	return fds, nil
}

// fetch turns in a descriptor, and takes those of all ranks.
func (g *Group) fetch(ctx context.Context, token string, own int) ([]int, error) {
	fds := slices.Repeat([]int{-1}, len(g.ranks))
	job, err := ParseJob(token)
	if err != nil {
		return fds, err
	}
	job.wrap = g.s.wrap
	c, err := Dial(ctx, job)
	if err != nil {
		return fds, err
	}
	defer c.Close()
	if err := c.sendFile(ctx, g.Rank(), own); err != nil {
		return fds, err
	}
	for i := range fds {
		at, got, err := c.receiveFile(ctx)
		if err != nil || at != i {
			CloseFiles(got)
			return fds, errors.Join(err, errors.New("descriptors came out of order"))
		}
		fds[i] = got
	}
	return fds, nil
}
