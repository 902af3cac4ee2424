package rendezvous

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// status of a rank, as a hub sees it.
type status uint8

const (
	absent status = iota // has not said hello
	asked                // has asked rank 0 for its parent; of the coordinator only
	joined
	left // in order
	lost // its session ended without a word
)

// hub is where sessions come together: those of all ranks in the process of rank 0, those of
// a rank and of the ranks behind it in that of a relay. Its methods never wait: what it says
// goes into outboxes.
type hub struct {
	tree
	rank int // the first of those that come together here

	mu     sync.Mutex
	status []status // by rank, from the first
	links  []*link  // by rank
	groups map[string]*membership
}

// node is a hub with what it does.
type node interface {
	// join admits a rank whose messages go to out; nil if it does not.
	join(h hello, out *outbox) *link
	// receive takes a message that came over a link. An error is a message that no session
	// sends; the caller ends the session.
	receive(l *link, m *message) error
	// end is called when nothing more comes over a link.
	end(l *link)
	// linger waits until the process may end: for limit, or for as long as others need it.
	linger(limit time.Duration)
}

// link is a hub's end of a session: of a rank, and of those behind it.
type link struct {
	from, to int // ranks from..to-1
	out      *outbox
}

func (l *link) has(rank int) bool { return rank >= l.from && rank < l.to }

// relay reports whether other ranks are behind the one at the other end.
func (l *link) relay() bool { return l.to > l.from+1 }

// membership is what a hub knows of a group.
type membership struct {
	key   string
	ranks []int
	next  []int             // by member: the barrier that it comes to next
	left  []bool            // by member: comes to no more
	open  map[int]*arrivals // barriers that not all have come to; of a relay, what it has not handed on
	first int               // of the coordinator: how many barriers all have come to
}

// arrivals is who has come to a barrier.
type arrivals struct {
	arrival
	decided bool           // the outcome was told to all
	late    *message       // cancels it as soon as the relays have said who has come
	asked   map[*link]bool // relays that have not
}

func newHub(t tree, rank int) *hub {
	h := &hub{tree: t, rank: rank, status: make([]status, t.past(rank)-rank), groups: map[string]*membership{}}
	all := make([]int, t.world)
	for i := range all {
		all[i] = i
	}
	h.groups[""] = newMembership("", all)
	return h
}

func newMembership(key string, ranks []int) *membership {
	return &membership{key: key, ranks: ranks, next: make([]int, len(ranks)), left: make([]bool, len(ranks)), open: map[int]*arrivals{}}
}

// here reports whether a rank's sessions come together here.
func (h *hub) here(rank int) bool { return rank >= h.rank && rank < h.rank+len(h.status) }

// is is the status of a rank that is here.
func (h *hub) is(rank int) status { return h.status[rank-h.rank] }

// find is the place of the link of a child, or of this rank.
func (h *hub) find(rank int) (int, bool) {
	return slices.BinarySearchFunc(h.links, rank, func(l *link, r int) int { return cmp.Compare(l.from, r) })
}

// link is the way to a rank that is here; nil for none.
func (h *hub) link(rank int) *link {
	for rank != h.rank && h.parent(rank) != h.rank {
		rank = h.parent(rank)
	}
	if i, ok := h.find(rank); ok {
		return h.links[i]
	}
	return nil
}

// add makes the link of a rank.
func (h *hub) add(rank int, out *outbox) *link {
	l := &link{rank, h.past(rank), out}
	if rank == h.rank {
		l.to = rank + 1
	}
	i, _ := h.find(rank)
	h.links = slices.Insert(h.links, i, l)
	h.status[rank-h.rank] = joined
	return l
}

// drop ends the links without remaining descendants.
func (h *hub) drop() {
	h.links = slices.DeleteFunc(h.links, func(l *link) bool {
		if slices.Contains(h.status[l.from-h.rank:l.to-h.rank], joined) {
			return false
		}
		l.out.close()
		return true
	})
}

// depart notes what has become of those of some ranks that are joined, and returns them.
func (h *hub) depart(ranks []int, how status) (who []int) {
	for _, r := range ranks {
		if h.here(r) && h.is(r) == joined {
			h.status[r-h.rank] = how
			who = append(who, r)
		}
	}
	return who
}

// tell sends m to all members of its group that are here, but not what a rank says to
// itself.
func (h *hub) tell(m *message) {
	if m.coded == nil {
		m.coded = &coded{}
	}
	own := m.Kind == kindNotice || m.Kind == kindBreak
	to := h.links
	if m.Group != "" {
		to = h.members(m)
	}
	for _, l := range to {
		if !own || l.relay() || l.from != m.Rank {
			l.out.put(m)
		}
	}
}

// members are the links to those ranks of a message's group that have not left it.
func (h *hub) members(m *message) (to []*link) {
	g := h.groups[m.Group]
	for i, r := range m.Ranks {
		if !h.here(r) || h.is(r) != joined || g != nil && g.left[i] {
			continue
		}
		if l := h.link(r); l != nil {
			to = append(to, l)
		}
	}
	slices.SortFunc(to, func(a, b *link) int { return cmp.Compare(a.from, b.from) })
	return slices.Compact(to)
}

// membership finds the group of a message, which its first message makes.
func (h *hub) membership(m *message) (*membership, error) {
	g := h.groups[m.Group]
	if g == nil {
		in := slices.Sorted(slices.Values(m.Ranks))
		if len(h.groups) >= maxGroups || len(m.Group) > 1024 || len(in) == 0 || in[0] < 0 || in[len(in)-1] >= h.world || len(slices.Compact(in)) != len(m.Ranks) {
			return nil, fmt.Errorf("a group of ranks %v, or more than %d groups", m.Ranks, maxGroups)
		}
		g = newMembership(m.Group, m.Ranks)
		for i, r := range g.ranks {
			g.left[i] = h.here(r) && h.is(r) > joined
		}
		h.groups[m.Group] = g
	}
	if m.Group != "" && !slices.Equal(m.Ranks, g.ranks) {
		return nil, fmt.Errorf("group %q is of ranks %v, not %v", m.Group, g.ranks, m.Ranks)
	}
	return g, nil
}

// member is the membership for what one rank says, and its index there.
func (h *hub) member(l *link, m *message) (g *membership, at int, err error) {
	if !l.has(m.Rank) {
		return nil, 0, fmt.Errorf("rank %d sent a message of rank %d", l.from, m.Rank)
	}
	if g, err = h.membership(m); err != nil {
		return nil, 0, err
	}
	if at = slices.Index(g.ranks, m.Rank); at < 0 {
		return nil, 0, fmt.Errorf("rank %d is in no group %q of ranks %v", m.Rank, m.Group, g.ranks)
	}
	return g, at, nil
}

// arrive notes who has come to a barrier.
func (h *hub) arrive(l *link, m *message) (*membership, *arrivals, error) {
	g, err := h.membership(m)
	if err != nil {
		return nil, nil, err
	}
	if m.Arrival == nil {
		return nil, nil, fmt.Errorf("nobody comes")
	}
	if err := m.Arrival.check(l, g); err != nil {
		return nil, nil, err
	}
	come := slices.DeleteFunc(slices.Clone(m.Arrival.Who), func(i int) bool { return h.is(g.ranks[i]) == lost }) // meanwhile
	if len(come) == 0 {
		return g, &arrivals{decided: true}, nil
	}
	for _, i := range come {
		if m.Turn != g.next[i] || g.left[i] {
			return nil, nil, fmt.Errorf("rank %d comes to barrier %d of group %q after %d", g.ranks[i], m.Turn, g.key, g.next[i])
		}
	}
	for _, i := range come {
		g.next[i]++
	}
	a := g.at(m.Turn)
	if !a.decided {
		a.add(m.Arrival)
	}
	return g, a, nil
}

// skip notes that a member comes to no barrier of this turn, because it cancels it. It
// reports false if it has come.
func (g *membership) skip(at int, m *message) (bool, error) {
	switch {
	case m.Come && m.Turn < g.next[at]:
		return false, nil
	case m.Come:
		return false, fmt.Errorf("rank %d cancels barrier %d of group %q, to which it has not come", g.ranks[at], m.Turn, g.key)
	case m.Turn != g.next[at] || g.left[at]:
		return false, fmt.Errorf("rank %d cancels barrier %d of group %q after %d", g.ranks[at], m.Turn, g.key, g.next[at])
	}
	return true, nil
}

func (g *membership) at(turn int) *arrivals {
	a := g.open[turn]
	if a == nil {
		a = &arrivals{}
		g.open[turn] = a
	}
	return a
}
