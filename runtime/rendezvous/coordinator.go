package rendezvous

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// status of a rank, as the coordinator sees it.
type status uint8

const (
	absent status = iota // has not said hello
	joined
	left // in order
	lost // its session ended without a word
)

// coordinator decides what becomes of barriers: it lives in the process of rank 0.
// Its methods never wait: what it says goes into outboxes.
type coordinator struct {
	hello hello // of rank 0
	nonce string

	mu      sync.Mutex
	status  []status
	process []string       // by rank, who joined
	outs    []*outbox      // by rank, nil where it has not joined
	wrong   *MismatchError // the first hello that did not fit
	least   int            // the smallest world that somebody spoke of
	refused []*outbox      // of those whose hello did not fit
	groups  map[string]*roster
	formed  chan struct{} // closed when the job's barrier 0 is decided
	idle    chan struct{} // closed when every rank that joined has gone and no more can come

	sessions sync.WaitGroup // of other processes
}

// roster is what the coordinator knows of a group.
type roster struct {
	key   string
	ranks []int
	next  []int             // by member: the barrier that it comes to next
	left  []bool            // by member
	open  map[int]*arrivals // barriers that not all have come to
	first int               // how many barriers all have come to
}

// arrivals is who has come to a barrier.
type arrivals struct {
	parts   []*part // by member, nil for those who have not arrived
	decided bool    // the outcome was told to all
}

func newCoordinator(h hello) *coordinator {
	h.Rank = 0
	c := &coordinator{hello: h, least: h.World, nonce: newID(), status: make([]status, h.World), process: make([]string, h.World), outs: make([]*outbox, h.World),
		groups: map[string]*roster{}, formed: make(chan struct{}), idle: make(chan struct{})}
	all := make([]int, h.World)
	for i := range all {
		all[i] = i
	}
	c.groups[""] = newRoster("", all)
	return c
}

func newRoster(key string, ranks []int) *roster {
	return &roster{key: key, ranks: ranks, next: make([]int, len(ranks)), left: make([]bool, len(ranks)), open: map[int]*arrivals{}}
}

// join admits a rank whose messages go to out. A hello that does not fit, and the loss of a
// rank, are kept until as many as there are ranks have come, or one cancels: then they are
// why the job's barrier 0 fails, for all of them. Once that barrier is decided the world
// takes nobody any more, and nothing is said: who comes then belongs to the next world.
func (c *coordinator) join(h hello, out *outbox) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided() {
		out.put(&message{Kind: kindGone})
		out.close()
		return false
	}
	if wrong := c.admit(h); wrong != nil {
		if c.wrong == nil {
			c.wrong = wrong
		}
		c.refused = append(c.refused, out)
		c.least = min(c.least, max(h.World, 1))
		c.form()
		return false
	}
	c.status[h.Rank], c.process[h.Rank], c.outs[h.Rank] = joined, h.Process, out
	out.put(&message{Kind: kindHello, Data: []byte(c.nonce)})
	c.form()
	return true
}

// form decides the job's barrier 0 if all have come that will hear of it: by a hello that
// does not fit, by a loss, or because all have arrived.
func (c *coordinator) form() {
	g := c.groups[""]
	c.settle(g, 0, g.at(0))
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

// receive takes a message of a rank that has joined. An error is a message that no
// session sends; the caller ends the session.
func (c *coordinator) receive(rank int, m *message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status[rank] != joined {
		return nil // on its way out
	}
	g, at, err := c.roster(rank, m)
	if err != nil {
		return err
	}
	if len(m.Data) > MaxData || m.Part != nil && len(m.Part.Data) > MaxData || len(m.Err) > maxReason {
		return fmt.Errorf("more than %d bytes", MaxData)
	}
	switch m.Kind {
	case kindArrive:
		if m.Part == nil {
			return fmt.Errorf("arrives without a part")
		}
		return c.come(g, at, m)
	case kindCancel:
		return c.cancel(g, at, m)
	case kindNotice, kindBreak:
		c.tell(g, at, &message{Kind: m.Kind, Group: m.Group, Rank: rank, Turn: m.Turn, Data: m.Data, Err: m.Err})
	case kindLeave:
		if m.Group == "" {
			c.gone(rank, left)
		} else {
			c.tell(g, at, &message{Kind: kindGone, Group: g.key, Rank: rank})
			c.leave(g, at)
		}
	default:
		return fmt.Errorf("message of kind %d", m.Kind)
	}
	return nil
}

// roster finds the group of a message, which its first message makes.
func (c *coordinator) roster(rank int, m *message) (*roster, int, error) {
	g := c.groups[m.Group]
	if g == nil {
		in := slices.Sorted(slices.Values(m.Ranks))
		if len(c.groups) >= maxGroups || len(m.Group) > 1024 || len(in) == 0 || in[0] < 0 || in[len(in)-1] >= c.hello.World || len(slices.Compact(in)) != len(m.Ranks) {
			return nil, 0, fmt.Errorf("a group of ranks %v, or more than %d groups", m.Ranks, maxGroups)
		}
		g = newRoster(m.Group, m.Ranks)
		for i, r := range g.ranks {
			g.left[i] = c.status[r] == left
		}
		c.groups[m.Group] = g
	}
	at := slices.Index(g.ranks, rank)
	if at < 0 || m.Group != "" && !slices.Equal(m.Ranks, g.ranks) {
		return nil, 0, fmt.Errorf("rank %d is in no group %q of ranks %v", rank, m.Group, g.ranks)
	}
	return g, at, nil
}

// come counts a member at a barrier.
func (c *coordinator) come(g *roster, at int, m *message) error {
	if m.Turn != g.next[at] || g.left[at] {
		return fmt.Errorf("rank %d comes to barrier %d of group %q after %d", g.ranks[at], m.Turn, g.key, g.next[at])
	}
	waits := 0
	for _, a := range g.open {
		if !a.decided && a.parts[at] != nil {
			waits++
		}
	}
	if waits >= maxWaits || g.next[at]-g.first >= maxAhead {
		return fmt.Errorf("rank %d waits at %d barriers and is %d ahead", g.ranks[at], waits, g.next[at]-g.first)
	}
	a := g.at(m.Turn)
	g.next[at]++
	if !a.decided {
		a.parts[at] = m.Part
		c.settle(g, m.Turn, a)
	}
	g.forget(c)
	return nil
}

func (g *roster) at(turn int) *arrivals {
	a := g.open[turn]
	if a == nil {
		a = &arrivals{parts: make([]*part, len(g.ranks))}
		g.open[turn] = a
	}
	return a
}

// settle decides a barrier if all have arrived, or if one that has not never will.
func (c *coordinator) settle(g *roster, turn int, a *arrivals) {
	if g.forms(turn) && !c.complete() {
		return
	}
	if m := c.hopeless(g, turn, a); m != nil {
		c.decide(g, turn, m)
	} else if !slices.Contains(a.parts, nil) {
		c.decide(g, turn, released(a.parts))
	}
}

// hopeless is the outcome of a barrier that cannot be released, whoever comes: a member is
// gone, or the world cannot form.
func (c *coordinator) hopeless(g *roster, turn int, a *arrivals) *message {
	if g.forms(turn) && c.wrong != nil {
		return &message{Kind: kindOutcome, Rank: c.wrong.Rank, Own: true, Err: EncodeError(c.wrong, maxReason)}
	}
	for i, r := range g.ranks {
		if c.status[r] == lost || a.parts[i] == nil && g.left[i] {
			err := &PeerLostError{Peer: r, Left: c.status[r] != lost}
			return &message{Kind: kindOutcome, Rank: r, Own: true, Err: EncodeError(err, maxReason)}
		}
	}
	return nil
}

// cancel fails a barrier for all, those included that come to it later.
func (c *coordinator) cancel(g *roster, at int, m *message) error {
	if !m.Come {
		if m.Turn != g.next[at] || g.left[at] {
			return fmt.Errorf("rank %d cancels barrier %d of group %q after %d", g.ranks[at], m.Turn, g.key, g.next[at])
		}
	} else if m.Turn >= g.next[at] {
		return fmt.Errorf("rank %d cancels barrier %d of group %q, to which it has not come", g.ranks[at], m.Turn, g.key)
	} else if g.open[m.Turn] == nil { // all had come when it did so
		return nil
	}
	if a := g.at(m.Turn); !a.decided {
		c.decide(g, m.Turn, c.canceled(g, at, m, a))
	}
	if !m.Come {
		g.next[at]++
		g.forget(c)
	}
	return nil
}

// canceled is the outcome of a barrier that a member cancels. That another is lost, or does
// not fit, says more than that somebody did not come in time.
func (c *coordinator) canceled(g *roster, at int, m *message, a *arrivals) *message {
	if m.Late || g.forms(m.Turn) {
		if out := c.hopeless(g, m.Turn, a); out != nil {
			return out
		}
	}
	if !m.Late {
		return &message{Kind: kindOutcome, Rank: g.ranks[at], Err: m.Err}
	}
	e := &TimeoutError{Peer: -1}
	for i, r := range g.ranks {
		if a.parts[i] == nil {
			e.Missing = append(e.Missing, r)
		}
	}
	if len(e.Missing) > 0 {
		e.Peer = e.Missing[0]
	}
	return &message{Kind: kindOutcome, Rank: g.ranks[at], Own: true, Err: EncodeError(e, maxReason)}
}

// forms reports whether the world forms by this barrier.
func (g *roster) forms(turn int) bool { return g.key == "" && turn == 0 }

// decide settles what becomes of a barrier, once, and tells all members.
func (c *coordinator) decide(g *roster, turn int, m *message) {
	if turn < g.first {
		return
	}
	a := g.at(turn)
	if a.decided {
		return
	}
	a.decided, a.parts = true, nil
	m.Group, m.Turn = g.key, turn
	c.tell(g, -1, m)
	if g.forms(turn) {
		close(c.formed)
		for _, out := range c.refused {
			out.put(m)
			out.close()
		}
	}
}

// forget drops the barriers that every member has come to or can never come to.
func (g *roster) forget(c *coordinator) {
	least := -1
	for i, r := range g.ranks {
		if g.left[i] || c.status[r] == lost {
			continue
		}
		if least < 0 || g.next[i] < least {
			least = g.next[i]
		}
	}
	for g.first < least && (g.open[g.first] == nil || g.open[g.first].decided) {
		delete(g.open, g.first)
		g.first++
	}
}

// tell sends m to all members but one, -1 for none.
func (c *coordinator) tell(g *roster, but int, m *message) {
	m.coded = &coded{}
	for i, r := range g.ranks {
		if i != but && c.status[r] == joined && !g.left[i] {
			c.outs[r].put(m)
		}
	}
}

// end is called when the session of a rank has ended.
func (c *coordinator) end(rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone(rank, lost)
}

// gone notes that a rank has left or is lost. It comes to no more barriers.
func (c *coordinator) gone(rank int, how status) {
	if c.status[rank] != joined {
		return
	}
	c.status[rank] = how
	c.tell(c.groups[""], rank, &message{Kind: kindGone, Rank: rank, Lost: how == lost})
	for _, key := range slices.Sorted(maps.Keys(c.groups)) {
		if at := slices.Index(c.groups[key].ranks, rank); at >= 0 {
			c.leave(c.groups[key], at)
		}
	}
	c.outs[rank].close()
	if c.decided() && !slices.Contains(c.status, joined) {
		close(c.idle)
	}
}

// linger waits until the sessions of all others have ended, or limit has passed and all
// have been sent what they were told: rank 0 may end its process when it has left.
func (c *coordinator) linger(limit time.Duration) {
	ended := make(chan struct{})
	go func() {
		<-c.idle
		c.sessions.Wait()
		close(ended)
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ended:
		return
	case <-t.C:
	}
	c.mu.Lock()
	outs := slices.Concat(c.outs, c.refused)
	c.mu.Unlock()
	t.Reset(limit)
	for _, out := range outs {
		if out == nil {
			continue
		}
		select {
		case <-out.flushed():
		case <-t.C:
			return
		}
	}
}

// leave ends a rank's part in one group: what waits for it is decided. A group that all
// have left is forgotten: nobody can speak of it any more.
func (c *coordinator) leave(g *roster, at int) {
	g.left[at] = true
	for _, turn := range slices.Sorted(maps.Keys(g.open)) {
		if a := g.open[turn]; !a.decided {
			c.settle(g, turn, a)
		}
	}
	g.forget(c)
	over := g.key != ""
	for i, r := range g.ranks {
		over = over && (g.left[i] || c.status[r] == lost)
	}
	if over {
		delete(c.groups, g.key)
	}
}
