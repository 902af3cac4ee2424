package rendezvous

import "fmt"

// join admits a rank whose messages go to out. A hello that does not fit, and the loss of a
// rank, are kept until as many as there are ranks have come, or one cancels: then they are
// why the job's barrier 0 fails, for all of them. Once that barrier is decided the world
// accepts no more ranks: later ones belong to the next world.
func (c *coordinator) join(h hello, out *outbox) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.admits(h, out) {
		return nil
	}
	c.process[h.Rank] = h.Process
	l := c.add(h.Rank, out)
	out.put(&message{Kind: kindHello, Data: []byte(c.nonce)})
	c.reach(h)
	c.form()
	return l
}

// ask is join of a rank that is to have its session with its parent: out gets the address as
// soon as there is one, and, if it comes first, the outcome of the job's barrier 0.
func (c *coordinator) ask(h hello, out *outbox) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.admits(h, out) {
		return false
	}
	c.status[h.Rank], c.process[h.Rank], c.askers[h.Rank] = asked, h.Process, out
	if p := c.parent(h.Rank); c.status[p] == joined && c.address[p] != "" {
		c.direct(h.Rank)
	}
	c.form()
	return true
}

// direct sends one that has asked to its parent.
func (c *coordinator) direct(rank int) {
	c.askers[rank].put(&message{Kind: kindHello, Data: []byte(c.nonce), Address: c.address[c.parent(rank)]})
}

// reach notes where a rank is reached by those behind it, and tells those that have asked.
func (c *coordinator) reach(h hello) {
	if c.address[h.Rank] = h.Address; h.Address == "" {
		return
	}
	for r := h.Rank + 1; r < c.past(h.Rank); r++ {
		if c.askers[r] != nil && c.parent(r) == h.Rank {
			c.direct(r)
		}
	}
}

// answer takes what a rank says that has asked for its parent: that it has a session there,
// that it finds none, or that it cancels the job's barrier 0. An error is what nobody says.
func (c *coordinator) answer(rank int, out *outbox, m *message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.askers[rank] != out {
		return ErrClosed
	}
	switch m.Kind {
	case kindReached: // from now on the parent hears if the rank is lost
		delete(c.askers, rank)
		out.close()
	case kindGone:
		c.markUnreachable(rank, c.parent(rank))
	case kindCancel:
		if !c.decided() && len(m.Err) <= maxReason {
			m.Rank, m.Group, m.Ranks, m.Turn = rank, "", nil, 0
			c.stop(c.groups[""], m)
		}
	default:
		return fmt.Errorf("message of kind %d", m.Kind)
	}
	return nil
}

// markUnreachable notes that a rank that has asked for its parent will have no session there.
func (c *coordinator) markUnreachable(rank, cause int) {
	if c.status[rank] == asked { // else its parent hears of it
		c.status[rank], c.cause[rank] = lost, cause
		c.form()
	}
}

// requesterLost is called when a rank that has asked for its parent says no more.
func (c *coordinator) requesterLost(rank int, out *outbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.askers[rank] == out {
		delete(c.askers, rank)
		out.close()
		c.markUnreachable(rank, rank)
	}
}

// admits reports whether a hello fits into the world that is forming.
func (c *coordinator) admits(h hello, out *outbox) bool {
	if c.decided() {
		out.put(&message{Kind: kindGone})
		out.close()
		return false
	}
	wrong := c.admit(h)
	if wrong == nil {
		return true
	}
	if c.wrong == nil {
		c.wrong = wrong
	}
	c.refused = append(c.refused, out)
	c.least = min(c.least, max(h.World, 1))
	c.form()
	return false
}

// form decides the job's barrier 0 if all have come that will hear of it: by a hello that
// does not fit, by a loss, or because all have arrived.
func (c *coordinator) form() {
	if !c.decided() {
		g := c.groups[""]
		c.settle(g, 0, g.at(0))
	}
}

// complete reports whether as many have said hello, with success or without, as there are.
func (c *coordinator) complete() bool {
	came := len(c.refused)
	for _, s := range c.status {
		if s != absent {
			came++
		}
	}
	return came >= c.least
}

// decided reports whether the world has formed, or will not.
func (c *coordinator) decided() bool {
	select {
	case <-c.formed:
		return true
	default:
		return false
	}
}

func (c *coordinator) admit(h hello) *MismatchError {
	e := &MismatchError{Op: "rendezvous", Rank: h.Rank}
	for _, f := range []struct {
		what      string
		got, want any
	}{
		{"versions of the protocol", h.Version, c.hello.Version},
		{"sizes of the world", h.World, c.hello.World},
		{"names of the world", h.Name, c.hello.Name},
	} {
		if f.got != f.want {
			e.What, e.RankValue, e.PeerValue = f.what, fmt.Sprint(f.got), fmt.Sprint(f.want)
			return e
		}
	}
	if h.Rank < 0 || h.Rank >= h.World {
		e.What, e.RankValue, e.PeerValue = "sizes of the world", fmt.Sprintf("more than %d", h.Rank), fmt.Sprint(h.World)
		return e
	}
	if c.status[h.Rank] != absent {
		e.What, e.Peer, e.RankValue, e.PeerValue = fmt.Sprintf("processes that claim to be rank %d", h.Rank), h.Rank, h.Process, c.process[h.Rank]
		return e
	}
	return nil
}

// behind notes that a rank has its session with one that is behind l.
func (c *coordinator) behind(l *link, h *hello) error {
	if h == nil || !l.has(h.Rank) || h.Rank == l.from || c.status[h.Rank] == absent {
		return fmt.Errorf("rank %d brings one that is not awaited", l.from)
	}
	if c.status[h.Rank] == asked { // not lost meanwhile
		c.status[h.Rank] = joined
		c.reach(*h)
	}
	return nil
}
