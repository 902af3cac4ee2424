package rendezvous

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// relay is the hub of a rank that others are behind. It decides nothing: what comes from
// below goes to its parent, in the order in which each rank said it, and what comes from there
// to those whom it concerns. Who has come to a barrier it puts together, and hands on when all
// have that it knows of, or something else has to be said behind it.
type relay struct {
	*hub
	nonce   string
	timeout time.Duration // of the rank's Place
	up      *outbox
	hangUp  func() // ends the session with the parent behind what was sent
	asks    map[point]*inquiry
	over    bool          // there is no way to rank 0 any more
	lives   bool          // the world has formed
	formed  chan struct{} // closed when the job's barrier 0 is decided
	idle    chan struct{} // closed when no session is left

	sessions sync.WaitGroup // of other processes, the parent's among them
}

// inquiry is a question of rank 0, who has come to a barrier.
type inquiry struct {
	ranks []int          // of the group
	waits map[*link]bool // relays below that have not answered
}

func newRelay(t tree, rank int, timeout time.Duration) *relay {
	up := newOutbox()
	return &relay{timeout: timeout, hub: newHub(t, rank), up: up, hangUp: up.close, asks: map[point]*inquiry{}, formed: make(chan struct{}), idle: make(chan struct{})}
}

// join admits a child, which rank 0 has sent here.
func (r *relay) join(h hello, out *outbox) *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.Version != protocolVersion || h.World != r.world || h.Rank <= r.rank || !r.here(h.Rank) || r.parent(h.Rank) != r.rank || r.is(h.Rank) != absent || r.is(r.rank) > joined || r.over || r.decided() {
		out.put(&message{Kind: kindGone})
		out.close()
		return nil
	}
	l := r.add(h.Rank, out)
	out.put(&message{Kind: kindHello, Data: []byte(r.nonce)})
	r.up.put(&message{Kind: kindHello, Hello: &h})
	return l
}

func (r *relay) decided() bool {
	select {
	case <-r.formed:
		return true
	default:
		return false
	}
}

// receive takes a message from below.
func (r *relay) receive(l *link, m *message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.find(l.from); !ok || r.links[at] != l {
		return nil // on its way out
	}
	if len(m.Data) > MaxData || len(m.Err) > maxReason {
		return fmt.Errorf("more than %d bytes", MaxData)
	}
	switch m.Kind {
	case kindHello:
		if h := m.Hello; h == nil || !l.has(h.Rank) || h.Rank == l.from || r.is(h.Rank) != absent {
			return fmt.Errorf("rank %d brings one that is not awaited", l.from)
		}
		r.status[m.Hello.Rank-r.rank] = joined
		r.up.put(m)
	case kindArrive:
		g, _, err := r.arrive(l, m)
		if err != nil {
			return err
		}
		r.hand(g)
	case kindAnswer:
		p := point{m.Group, m.Turn}
		if q := r.asks[p]; q == nil || !q.waits[l] {
			return fmt.Errorf("rank %d answers what nobody has asked", l.from)
		}
		r.answered(p, l)
	case kindLeave:
		g, at, err := r.leavers(l, m)
		if err != nil {
			return err
		}
		r.leave(g, at, m)
	case kindGone:
		if !l.has(m.Rank) || !l.relay() {
			return fmt.Errorf("rank %d sent a message of rank %d", l.from, m.Rank)
		}
		r.lose(m.Rank, r.past(m.Rank))
	case kindCancel, kindNotice, kindBreak:
		g, at, err := r.member(l, m)
		if err != nil || r.is(m.Rank) != joined {
			return err
		}
		if m.Kind == kindCancel {
			instead, err := g.skip(at, m)
			if err != nil {
				return err
			}
			r.flush(g)
			if instead {
				g.next[at]++
			}
		}
		r.up.put(m)
		r.hand(g)
	default:
		return fmt.Errorf("message of kind %d", m.Kind)
	}
	return nil
}

// hand hands on the barriers of a group to which all have come that can, and what waits for
// others before them: a rank comes to one after the other.
func (r *relay) hand(g *membership) {
	least := -1
	for i, rank := range g.ranks {
		if r.here(rank) && !g.left[i] && (least < 0 || g.next[i] < least) {
			least = g.next[i]
		}
	}
	for turn := range g.open {
		if least < 0 || turn < least || len(g.open) > maxWaits {
			r.flush(g)
			return
		}
	}
}

// flush hands on who has come to barriers of a group, if it is known.
func (r *relay) flush(g *membership) {
	if g == nil {
		return
	}
	for _, turn := range slices.Sorted(maps.Keys(g.open)) {
		m := &message{Kind: kindArrive, Group: g.key, Turn: turn, Arrival: &g.open[turn].arrival}
		if g.key != "" {
			m.Ranks = g.ranks
		}
		r.up.put(m)
	}
	clear(g.open)
}

// leave hands on that ranks leave a group, or the job.
func (r *relay) leave(g *membership, at []int, m *message) {
	if m.Group == "" {
		r.part(r.depart(m.Who, left), m)
		return
	}
	r.flush(g)
	for _, i := range at {
		g.left[i] = true
	}
	r.up.put(m)
	r.abandon(g)
}

// lose hands on that the session of a rank has ended.
func (r *relay) lose(from, to int) {
	var ranks []int
	for rank := from; rank < to; rank++ {
		ranks = append(ranks, rank)
	}
	r.part(r.depart(ranks, lost), &message{Kind: kindGone, Rank: from})
}

// part ends the part of ranks that have left the job, or are lost, in everything. Rank 0 is told
// by m, unless it knows.
func (r *relay) part(who []int, m *message) {
	if len(who) == 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(r.groups)) {
		r.flush(r.groups[key])
	}
	if m != nil {
		r.up.put(m)
	}
	for _, key := range slices.Sorted(maps.Keys(r.groups)) {
		if g := r.groups[key]; r.strike(g) {
			r.abandon(g)
		}
	}
	r.drop()
	for p, q := range r.asks {
		for l := range q.waits {
			if _, ok := r.find(l.from); !ok {
				r.answered(p, l)
			}
		}
	}
	r.finish()
}

// abandon forgets a group that all who are here have left.
func (r *relay) abandon(g *membership) {
	for i, rank := range g.ranks {
		if r.here(rank) && !g.left[i] {
			return
		}
	}
	if g.key != "" {
		delete(r.groups, g.key)
	}
}

// finish ends the session with the parent when no session is left.
func (r *relay) finish() {
	if len(r.links) == 0 && (r.over || r.is(r.rank) > joined) {
		select {
		case <-r.idle:
		default:
			close(r.idle)
			r.hangUp()
		}
	}
}

// down takes a message of the parent.
func (r *relay) down(m *message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m.Kind {
	case kindAsk:
		r.ask(m)
		return
	case kindOver:
		r.cut(m.Rank)
		return
	case kindOutcome:
		if m.Group == "" && m.Turn == 0 && !r.decided() {
			r.lives = m.Err == nil
			close(r.formed)
		}
	case kindGone: // rank 0 may have lost one that is here: it broke a rule
		if m.Group == "" && m.Lost {
			r.part(r.depart(m.Who, lost), nil)
		}
	}
	r.tell(m)
}

// ask says who has come to a barrier, and answers once the relays below have, if they do.
func (r *relay) ask(m *message) {
	r.flush(r.groups[m.Group])
	p, q := point{m.Group, m.Turn}, &inquiry{m.Ranks, map[*link]bool{}}
	for _, l := range r.links {
		if l.relay() {
			q.waits[l] = true
			l.out.put(m)
		}
	}
	r.asks[p] = q
	r.answered(p, nil)
}

// answered notes that a relay below has answered.
func (r *relay) answered(p point, l *link) {
	q := r.asks[p]
	if delete(q.waits, l); len(q.waits) > 0 {
		return
	}
	delete(r.asks, p)
	r.flush(r.groups[p.group])
	r.up.put(&message{Kind: kindAnswer, Group: p.group, Turn: p.turn, Ranks: q.ranks})
}

// cut ends all sessions here: there is no way to rank 0 any more, because of a rank.
func (r *relay) cut(because int) {
	if r.over {
		return
	}
	r.over = true
	for _, l := range r.links {
		l.out.put(&message{Kind: kindOver, Rank: because})
		l.out.close()
	}
	r.links = nil
	if !r.decided() {
		close(r.formed)
	}
	r.finish()
}

// end is called when nothing more comes over a link.
func (r *relay) end(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.find(l.from); !ok || r.links[at] != l {
		return
	}
	if l.from == r.rank { // broke a rule: this process is lost with those behind it
		r.cut(r.rank)
		return
	}
	r.lose(l.from, l.to)
}

// orphan is called when nothing more comes from the parent.
func (r *relay) orphan() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut(r.parent(r.rank))
}

// linger waits until no session is left, and until the parent's machine has what was said: the
// process may end when its rank has left. In a world that has formed those behind it may still
// need each other, so it waits for as long as one of them may wait at a barrier; else for limit.
func (r *relay) linger(limit time.Duration) {
	r.mu.Lock()
	if r.lives {
		limit = r.timeout
	}
	r.mu.Unlock()
	if limit <= 0 {
		limit = math.MaxInt64
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	if ended(r.idle, &r.sessions, t) {
		return
	}
	t.Reset(closeLimit)
	r.up.flush(t.C)
}
