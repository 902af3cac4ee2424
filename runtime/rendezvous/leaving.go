package rendezvous

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// end is called when nothing more comes over a link: its rank is lost unless it has left,
// and so are those behind it.
func (c *coordinator) end(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.find(l.from); ok && c.links[at] == l {
		c.lose(l.from, l.to)
	}
}

// lose notes that the session of a rank has ended, and those of the ranks behind it. Where that
// rank has left they go on, but have no way here: nobody has died.
func (c *coordinator) lose(from, to int) {
	var ranks []int
	for r := from; r < to; r++ {
		ranks = append(ranks, r)
	}
	who := c.depart(ranks, lost)
	for _, r := range who {
		c.cause[r] = from
	}
	c.gone(who, &message{Kind: kindGone, Who: who, Rank: from, Lost: c.status[from] != left})
}

// leave notes that ranks leave a group, or the job.
func (c *coordinator) leave(l *link, m *message) error {
	g, at, err := c.leavers(l, m)
	if err != nil {
		return err
	}
	if m.Group == "" {
		c.gone(c.depart(m.Who, left), &message{Kind: kindGone, Who: m.Who})
		return nil
	}
	for _, i := range at {
		g.left[i] = true
	}
	c.tell(&message{Kind: kindGone, Group: g.key, Ranks: g.ranks, Who: m.Who})
	c.abandon(g)
	return nil
}

// gone ends the part of ranks that have left the job, or are lost, in everything, and tells
// the others.
func (c *coordinator) gone(who []int, m *message) {
	if len(who) == 0 {
		return
	}
	c.drop()
	c.tell(m)
	for _, key := range slices.Sorted(maps.Keys(c.groups)) {
		if g := c.groups[key]; c.strike(g) {
			c.abandon(g)
		}
	}
	if c.decided() && !slices.Contains(c.status, joined) {
		close(c.idle)
	}
}

// abandon decides what waits for members that have left a group. A group that all have left is
// forgotten: no message can refer to it.
func (c *coordinator) abandon(g *membership) {
	for _, turn := range slices.Sorted(maps.Keys(g.open)) {
		if a := g.open[turn]; !a.decided {
			c.settle(g, turn, a)
		}
	}
	g.forget(c)
	if g.key != "" && !slices.Contains(g.left, false) {
		delete(c.groups, g.key)
	}
}

// leavers are the members of a group that a message says leave it.
func (h *hub) leavers(l *link, m *message) (g *membership, at []int, err error) {
	if g, err = h.membership(m); err != nil {
		return nil, nil, err
	}
	for _, r := range m.Who {
		i := r
		if m.Group != "" {
			i = slices.Index(g.ranks, r)
		}
		if !l.has(r) || i < 0 {
			return nil, nil, fmt.Errorf("rank %d says that rank %d leaves group %q of ranks %v", l.from, r, m.Group, g.ranks)
		}
		at = append(at, i)
	}
	return g, at, nil
}

// strike takes the ranks that are gone off a group, and reports whether there were any.
func (h *hub) strike(g *membership) (any bool) {
	for i, r := range g.ranks {
		if !g.left[i] && h.here(r) && h.is(r) > joined {
			g.left[i], any = true, true
		}
	}
	return any
}

// ended waits until idle is closed and all sessions have ended, or t has fired, and reports
// which.
func ended(idle <-chan struct{}, sessions *sync.WaitGroup, t *time.Timer) bool {
	all := make(chan struct{})
	go func() {
		<-idle
		sessions.Wait()
		close(all)
	}()
	select {
	case <-all:
		return true
	case <-t.C:
		return false
	}
}

// linger waits until the sessions of all others have ended, or limit has passed and all
// have been sent what they were told: rank 0 may end its process when it has left.
func (c *coordinator) linger(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	if ended(c.idle, &c.sessions, t) {
		return
	}
	c.mu.Lock()
	outs := slices.Clone(c.refused)
	for _, l := range c.links {
		outs = append(outs, l.out)
	}
	for _, out := range c.askers {
		outs = append(outs, out)
	}
	c.mu.Unlock()
	t.Reset(limit)
	for _, out := range outs {
		if !out.flush(t.C) {
			return
		}
	}
}
