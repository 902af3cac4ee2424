package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// forest is a world as processes have it, without goroutines and connections: coordinator,
// relays and sessions are those of the package, and messages wait in queues, from which
// they are taken in random order.
type forest struct {
	rng    *rand.Rand
	t      tree
	c      *coordinator
	ranks  []*leaf
	timers []func()
	dead   []int
	sub    []int // ranks of a group

	checked map[*message]bool // outcomes whose data is right, unless said
}

// leaf is a rank of a forest.
type leaf struct {
	rank   int
	g      *Group
	h      hello
	relay  *relay     // of a rank that others are behind
	up     []*message // of one that is none
	link   *link      // of its parent
	own    *link      // of its relay, or the coordinator
	ask    *outbox
	said   []*message // behind its question
	asks   bool
	dead   bool
	cut    bool // the end of its connection has come up
	fallen bool // as well: down
	script []byte
	w      chan *message
	p      point
	of     int // how many come there
	sub    *Group
	got    []string
	late   bool // is to cancel what it waits at
}

func newForest(rng *rand.Rand, base, world int, script []byte) *forest {
	f := &forest{rng: rng, t: tree{base, world}, checked: map[*message]bool{}}
	f.sub = rng.Perm(world)[:1+rng.IntN(world)]
	h := hello{Version: protocolVersion, World: world}
	f.c = newCoordinator(h, f.t)
	f.c.after = func(_ time.Duration, fire func()) { f.timers = append(f.timers, fire) }
	for r := range world {
		l := &leaf{rank: r, h: h, script: slices.Clone(script)}
		l.h.Rank = r
		s := newSession(Place{Rank: r, World: world})
		s.hangUp = func() {}
		if r > 0 {
			s.parent, s.because = f.t.parent(r), f.t.parent(r)
		}
		s.send = func(m *message) { l.up = append(l.up, m) }
		l.g = s.job()
		f.ranks = append(f.ranks, l)
	}
	root := f.ranks[0]
	root.own = f.c.join(root.h, newOutbox())
	root.g.s.send = func(m *message) { must(f.c.receive(root.own, m)) }
	return f
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// enter lets a rank have its session with its parent.
func (f *forest) enter(l *leaf) bool {
	p := f.ranks[f.t.parent(l.rank)]
	if p.dead || p.rank > 0 && p.relay == nil {
		return false
	}
	h := l.h
	if f.t.inner(l.rank) {
		h.Address = fmt.Sprint(l.rank)
	}
	var n node = f.c
	if p.rank > 0 {
		n = p.relay
	}
	if l.link = n.join(h, newOutbox()); l.link == nil {
		return false
	}
	if h.Address != "" {
		l.relay = newRelay(f.t, l.rank, 0)
		l.own = l.relay.add(l.rank, newOutbox())
		l.g.s.send = func(m *message) { must(l.relay.receive(l.own, m)) }
	}
	return true
}

// turns are the ways to go on.
func (f *forest) turns() (turns []func()) {
	for _, l := range f.ranks {
		turns = append(turns, f.turnsOf(l)...)
	}
	for i, fire := range f.timers {
		turns = append(turns, func() { f.timers = slices.Delete(f.timers, i, i+1); fire() })
	}
	return turns
}

// turnsOf are those of a rank and its connection.
func (f *forest) turnsOf(l *leaf) (turns []func()) {
	if l.dead {
		if l.link != nil && !l.cut {
			turns = append(turns, func() { f.ascend(l) })
		}
		return turns
	}
	if l.rank > 0 && l.link == nil {
		return f.joining(l)
	}
	if f.ready(l) {
		turns = append(turns, func() { f.act(l) })
	}
	if l.own != nil && (len(l.own.out.queue) > 0 || l.own.out.closed) && !over(l) {
		turns = append(turns, func() {
			if q := pop(l.own.out); q != nil {
				l.g.s.receive(q)
			} else {
				l.g.s.end()
			}
		})
	}
	if l.rank == 0 {
		return turns
	}
	if !l.cut && len(l.rising()) > 0 {
		turns = append(turns, func() { f.ascend(l) })
	}
	if parent := f.ranks[f.t.parent(l.rank)]; !l.fallen && (len(l.link.out.queue) > 0 || l.link.out.closed || parent.dead) {
		turns = append(turns, func() { f.descend(l) })
	}
	return turns
}

// over reports whether nothing more comes to a rank.
func over(l *leaf) bool {
	select {
	case <-l.g.s.ended:
		return true
	default:
		return false
	}
}

func pop(o *outbox) *message {
	if len(o.queue) == 0 {
		return nil
	}
	m := o.queue[0]
	o.queue = o.queue[1:]
	return m
}

// rising is what a rank's process has said and its parent not heard.
func (l *leaf) rising() []*message {
	if l.relay != nil {
		return l.relay.up.queue
	}
	return l.up
}

// ascend hands the next message of a rank's process to its parent, or that it has ended.
func (f *forest) ascend(l *leaf) {
	var n node = f.c
	if p := f.ranks[f.t.parent(l.rank)]; p.rank > 0 {
		n = p.relay
	}
	if q := l.rising(); len(q) > 0 && !(l.dead && f.rng.IntN(3) == 0) {
		if l.relay != nil {
			pop(l.relay.up)
		} else {
			l.up = l.up[1:]
		}
		must(n.receive(l.link, q[0]))
		return
	}
	l.cut = true
	n.end(l.link)
}

// descend hands the next message for a rank's process to it, or that nothing more comes.
func (f *forest) descend(l *leaf) {
	receive, end := l.g.s.receive, l.g.s.end
	if l.relay != nil {
		receive, end = l.relay.down, l.relay.orphan
	}
	gone := f.ranks[f.t.parent(l.rank)].dead && f.rng.IntN(3) == 0
	if m := pop(l.link.out); m != nil && !gone {
		receive(m)
		return
	}
	l.fallen = true
	end()
}

// joining are the ways to go on of a rank that has no session.
func (f *forest) joining(l *leaf) (turns []func()) {
	if f.t.parent(l.rank) == 0 {
		return []func(){func() {
			if !f.enter(l) {
				l.dead = true // it came to a world that had failed
			}
		}}
	}
	if !l.asks {
		return []func(){func() {
			l.asks, l.ask = true, newOutbox()
			f.c.ask(l.h, l.ask)
		}}
	}
	if len(l.said) > 0 {
		turns = append(turns, func() {
			m := l.said[0]
			l.said = l.said[1:]
			f.c.answer(l.rank, l.ask, m)
		})
	}
	if len(l.ask.queue) > 0 {
		turns = append(turns, func() {
			switch m := pop(l.ask); {
			case m.Kind == kindOutcome:
				l.got, l.dead = append(l.got, string(m.Err)), true
				f.c.requesterLost(l.rank, l.ask)
			case m.Kind == kindGone:
				l.dead = true
			case f.enter(l):
				f.c.answer(l.rank, l.ask, &message{Kind: kindReached})
			default:
				l.said = append(l.said, &message{Kind: kindGone})
			}
		})
	}
	return turns
}

// ready reports whether a rank's script can go on.
func (f *forest) ready(l *leaf) bool {
	return len(l.script) > 0 && l.w == nil || l.w != nil && (l.late || len(l.w) > 0 || over(l))
}

// act goes on with a rank's script.
func (f *forest) act(l *leaf) {
	if l.w != nil && l.late {
		l.late = false
		l.g.withdraw(l.p, context.DeadlineExceeded)
		return
	}
	if l.w != nil {
		m, ok := <-l.w
		if l.w = nil; !ok {
			l.got = append(l.got, "over")
			l.script = nil
		} else if l.got = append(l.got, string(m.Err)); m.Err != nil {
			l.script = []byte("L")
		} else {
			for i, d := range m.Parts {
				if f.checked[m] {
					break
				}
				if d.At != i || string(d.Data) != fmt.Sprint(i, len(l.got)) {
					l.got[len(l.got)-1] = fmt.Sprint("wrong data ", m.Parts)
				}
			}
			f.checked[m] = true
			if len(m.Parts) != l.of || m.Facts != nil && len(m.Facts.Values) != l.of {
				l.got[len(l.got)-1] = fmt.Sprint("wrong ", m.Parts, m.Facts)
			}
		}
		return
	}
	what := l.script[0]
	l.script = l.script[1:]
	switch what {
	case 'L':
		l.g.leave()
		return
	case 'C':
		l.g.Cancel(errInjected)
		l.got = append(l.got, "-")
		return
	}
	g := l.g
	if what == 'S' {
		if !slices.Contains(f.sub, l.rank) {
			l.got = append(l.got, "-")
			return
		}
		if l.sub != nil {
			l.sub.leave()
		}
		l.sub = l.g.Sub("sub", f.sub)
		g = l.sub
	}
	l.of = len(g.ranks)
	call := Call{Data: fmt.Append(nil, g.Rank(), len(l.got)+1)}
	if what == 'F' {
		call.Facts = []Fact{{"own", fmt.Sprint(l.rank)}}
	}
	var err error
	if l.p, l.w, err = g.arrive(call); err != nil {
		l.w, l.got, l.script = nil, append(l.got, "over"), nil
	}
	l.late = what == 'T'
	if what == 'G' && err == nil { // cancels: rank 0 does not answer in time
		l.g.withdraw(l.p, context.DeadlineExceeded)
		l.w, l.got = nil, append(l.got, "-")
	}
}

// die ends a rank's process. One that has not said hello would be waited for, until time is
// up.
func (f *forest) die(l *leaf) {
	if l.dead || l.link == nil && !l.asks && l.rank > 0 {
		return
	}
	l.dead = true
	f.dead = append(f.dead, l.rank)
	if l.link == nil && l.asks {
		f.c.requesterLost(l.rank, l.ask)
	}
}

// check looks at a state in which nothing can go on.
func (f *forest) check(clean bool) error {
	for b := 0; ; b++ {
		outcome, came := "", 0
		for _, l := range f.ranks {
			if l.w != nil && !l.dead {
				return fmt.Errorf("rank %d waits for ever at %v; %v", l.rank, l.p, f.keeps(l.p))
			}
			if slices.Contains(f.dead, l.rank) || b >= len(l.got) || l.got[b] == "-" {
				continue
			}
			if came++; l.got[b] == "over" {
				lost, ok := l.g.s.over.(*PeerLostError)
				if !ok || !slices.Contains(f.dead, lost.Peer) {
					return fmt.Errorf("rank %d: %v, and %v have died", l.rank, l.g.s.over, f.dead)
				}
				continue
			}
			if outcome == "" {
				outcome = "=" + l.got[b]
			}
			if outcome != "="+l.got[b] || clean && l.got[b] != "" {
				return fmt.Errorf("barrier %d: rank %d: %q, another %q", b, l.rank, l.got[b], outcome)
			}
			if err := DecodeError([]byte(l.got[b])); l.got[b] != "" && len(f.dead) > 0 {
				var lost *PeerLostError
				if errors.As(err, &lost) && !slices.Contains(f.dead, lost.Peer) && !lost.Left {
					return fmt.Errorf("rank %d: %v, and %v have died", l.rank, err, f.dead)
				}
			}
		}
		if came == 0 {
			return f.empty()
		}
	}
}

// keeps says what the hubs know of a barrier.
func (f *forest) keeps(p point) (s string) {
	for _, l := range f.ranks {
		s += fmt.Sprintf("rank %d: %v %q %q; ", l.rank, l.w != nil, l.script, l.got)
		if l.relay != nil && l.relay.groups[p.group] != nil && l.relay.groups[p.group].open[p.turn] != nil {
			s += fmt.Sprint("relay ", l.rank, ": ", l.relay.groups[p.group].open[p.turn].Who, "; ")
		}
	}
	if g := f.c.groups[p.group]; g != nil && g.open[p.turn] != nil {
		s += fmt.Sprint("rank 0: ", g.open[p.turn], g.next, g.left, g.ranks)
	}
	return s
}

// empty finds what a world keeps that has ended.
func (f *forest) empty() error {
	for _, l := range f.ranks {
		if r := l.relay; r != nil && !l.dead && (len(r.links) > 0 || !r.up.closed || !r.over && (len(r.asks) > 0 || len(r.groups) > 1 || len(r.groups[""].open) > 0)) {
			return fmt.Errorf("relay %d keeps %d links, %d questions, %d groups, %d barriers", l.rank, len(r.links), len(r.asks), len(r.groups), len(r.groups[""].open))
		}
	}
	if len(f.c.links) > 0 && !f.ranks[0].dead {
		return fmt.Errorf("rank 0 keeps %d links", len(f.c.links))
	}
	return nil
}
