package rendezvous

import (
	"fmt"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
)

// coordinator decides what becomes of barriers: it lives in the process of rank 0.
type coordinator struct {
	*hub
	hello hello // of rank 0
	nonce string
	after func(time.Duration, func()) // stall.AfterFunc, but of tests

	// These are guarded by mu.
	process []string        // by rank, who joined
	cause   []int           // by rank that is lost: the rank whose loss caused it, itself if none
	address []string        // by rank: where it listens
	askers  map[int]*outbox // of ranks that have asked for their parent, and have no session there
	wrong   *MismatchError  // the first hello that did not fit
	least   int             // the smallest world that somebody spoke of
	refused []*outbox       // of those whose hello did not fit
	formed  chan struct{}   // closed when the job's barrier 0 is decided
	idle    chan struct{}   // closed when every rank that joined has gone and no more can come

	sessions sync.WaitGroup // of other processes
}

func newCoordinator(h hello, t tree) *coordinator {
	h.Rank = 0
	return &coordinator{hub: newHub(t, 0), hello: h, least: h.World, nonce: newID(), after: stall.AfterFunc,
		process: make([]string, h.World), cause: make([]int, h.World), address: make([]string, h.World), askers: map[int]*outbox{},
		formed: make(chan struct{}), idle: make(chan struct{})}
}

// receive takes a message that came over a link.
func (c *coordinator) receive(l *link, m *message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.find(l.from); !ok || c.links[at] != l {
		return nil // on its way out
	}
	if len(m.Data) > MaxData || len(m.Err) > maxReason {
		return fmt.Errorf("more than %d bytes", MaxData)
	}
	switch m.Kind {
	case kindHello:
		return c.behind(l, m.Hello)
	case kindArrive:
		g, a, err := c.arrive(l, m)
		if err != nil {
			return err
		}
		if !a.decided {
			c.settle(g, m.Turn, a)
		}
		c.bound(g, m.Arrival.Who)
		g.forget(c)
	case kindAnswer:
		if g := c.groups[m.Group]; g != nil && g.open[m.Turn] != nil {
			a := g.open[m.Turn]
			if delete(a.asked, l); len(a.asked) == 0 {
				c.conclude(g, m.Turn)
			}
		}
	case kindLeave:
		return c.leave(l, m)
	case kindGone:
		if !l.has(m.Rank) || !l.relay() {
			return fmt.Errorf("rank %d sent a message of rank %d", l.from, m.Rank)
		}
		c.lose(m.Rank, c.past(m.Rank))
	case kindCancel, kindNotice, kindBreak:
		g, at, err := c.member(l, m)
		if err != nil || c.status[m.Rank] != joined {
			return err
		}
		if m.Kind == kindCancel {
			return c.cancel(g, at, m)
		}
		c.tell(&message{Kind: m.Kind, Group: m.Group, Ranks: m.Ranks, Rank: m.Rank, Turn: m.Turn, Data: m.Data, Err: m.Err})
	default:
		return fmt.Errorf("message of kind %d", m.Kind)
	}
	return nil
}

// settle decides a barrier if all have arrived, or if one that has not never will.
func (c *coordinator) settle(g *membership, turn int, a *arrivals) {
	if g.forms(turn) && !c.complete() {
		return
	}
	if m := c.impossible(g, turn); m != nil {
		c.decide(g, turn, m)
	} else if len(a.Who) == len(g.ranks) {
		c.decide(g, turn, released(&a.arrival))
	}
}

// impossible is the outcome of a barrier that cannot be released, whoever comes: a member is
// gone, or the world cannot form.
func (c *coordinator) impossible(g *membership, turn int) *message {
	if g.forms(turn) && c.wrong != nil {
		return &message{Kind: kindOutcome, Rank: c.wrong.Rank, Own: true, Err: EncodeError(c.wrong, maxReason)}
	}
	for i, r := range g.ranks {
		if c.status[r] == lost || g.next[i] <= turn && g.left[i] {
			return &message{Kind: kindOutcome, Rank: r, Own: true, Err: EncodeError(c.missed(r), maxReason)}
		}
	}
	return nil
}

// missed is the error of those who need a rank that is gone.
func (c *coordinator) missed(r int) *PeerLostError {
	if c.status[r] != lost || c.cause[r] == r {
		return &PeerLostError{Peer: r, Left: c.status[r] != lost}
	}
	by := c.cause[r]
	return &PeerLostError{Peer: by, Left: c.status[by] != lost, Detail: reachedThrough(r)}
}

func reachedThrough(r int) string { return fmt.Sprintf("rank %d was reached through it", r) }

// cancel fails a barrier for all, those included that come to it later.
func (c *coordinator) cancel(g *membership, at int, m *message) error {
	instead, err := g.skip(at, m)
	if err != nil || !instead && g.open[m.Turn] == nil { // all had come when it did so
		return err
	}
	c.stop(g, m)
	if instead {
		g.next[at]++
		c.bound(g, []int{at})
		g.forget(c)
	}
	return nil
}

// stop cancels a barrier, if need be when the relays have said who has come.
func (c *coordinator) stop(g *membership, m *message) {
	if a := g.at(m.Turn); !a.decided && !c.inquire(g, m, a) {
		c.decide(g, m.Turn, c.canceled(g, m))
	}
}

// answerLimit is how long relays have to say who has come to a barrier before a rank's time
// was up: half of what that rank waits for the outcome.
const answerLimit = outcomeLimit / 2

// inquire asks the relays for those that have come, if there are any that may know more, before
// m cancels the barrier because a rank's time was up.
func (c *coordinator) inquire(g *membership, m *message, a *arrivals) bool {
	if !m.Late || a.late != nil {
		return a.late != nil && m.Late
	}
	ask := &message{Kind: kindAsk, Group: g.key, Ranks: m.Ranks, Turn: m.Turn}
	for i, r := range g.ranks {
		if l := c.link(r); g.next[i] <= m.Turn && l != nil && l.relay() && !a.asked[l] {
			if a.asked == nil {
				a.asked = map[*link]bool{}
			}
			a.asked[l] = true
			l.out.put(ask)
		}
	}
	if len(a.asked) == 0 {
		return false
	}
	a.late = m
	c.after(answerLimit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conclude(g, m.Turn)
	})
	return true
}

// conclude cancels a barrier when who is missing is known.
func (c *coordinator) conclude(g *membership, turn int) {
	if a := g.open[turn]; a != nil && !a.decided && a.late != nil {
		c.decide(g, turn, c.canceled(g, a.late))
	}
}

// canceled is the outcome of a barrier that a member cancels. That another is lost, or does
// not fit, says more than that somebody did not come in time.
func (c *coordinator) canceled(g *membership, m *message) *message {
	if m.Late || g.forms(m.Turn) {
		if out := c.impossible(g, m.Turn); out != nil {
			return out
		}
	}
	if !m.Late {
		return &message{Kind: kindOutcome, Rank: m.Rank, Err: m.Err}
	}
	e := &TimeoutError{Peer: -1}
	var waits []int // for its parent
	for i, r := range g.ranks {
		switch {
		case g.next[i] > m.Turn:
		case c.status[r] == asked:
			waits = append(waits, r)
		default:
			e.Missing = append(e.Missing, r)
		}
	}
	if e.Missing == nil {
		e.Missing = waits
	}
	if len(e.Missing) > 0 {
		e.Peer = e.Missing[0]
	}
	return &message{Kind: kindOutcome, Rank: m.Rank, Own: true, Err: EncodeError(e, maxReason)}
}

// forms reports whether the world forms by this barrier.
func (g *membership) forms(turn int) bool { return g.key == "" && turn == 0 }

// decide settles what becomes of a barrier, once, and tells all members.
func (c *coordinator) decide(g *membership, turn int, m *message) {
	if turn < g.first {
		return
	}
	a := g.at(turn)
	if a.decided {
		return
	}
	*a = arrivals{decided: true}
	m.Group, m.Turn = g.key, turn
	if g.key != "" {
		m.Ranks = g.ranks
	}
	c.tell(m)
	if g.forms(turn) {
		close(c.formed)
		for _, out := range c.refused {
			out.put(m)
			out.close()
		}
		for _, out := range c.askers {
			out.put(m)
		}
	}
}

// bound takes members to be lost that go on without waiting for anybody.
func (c *coordinator) bound(g *membership, who []int) {
	for _, i := range who {
		if g.next[i]-g.first >= maxAhead || g.waits(i) > maxWaits {
			c.lose(g.ranks[i], g.ranks[i]+1)
		}
	}
}

// waits is the number of undecided barriers that a member waits at, or a few more than it may.
func (g *membership) waits(at int) (n int) {
	if len(g.open) <= maxWaits {
		return 0
	}
	for turn, a := range g.open {
		if !a.decided && turn < g.next[at] {
			n++
		}
	}
	return n
}

// forget drops the barriers that every member has come to or can never come to.
func (g *membership) forget(c *coordinator) {
	least := -1
	for i := range g.ranks {
		if !g.left[i] && (least < 0 || g.next[i] < least) {
			least = g.next[i]
		}
	}
	for g.first < least && (g.open[g.first] == nil || g.open[g.first].decided) {
		delete(g.open, g.first)
		g.first++
	}
}
