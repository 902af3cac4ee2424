package rendezvous

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// kind says what a message is.
type kind uint8

const (
	kindHello   kind = iota + 1 // up: who it is, the first message of a session, and of those behind a relay; down: the answer to the first
	kindArrive                  // up: ranks have come to the group's next barrier
	kindCancel                  // up: a rank cancels a barrier that it has come to, or the next one in place of coming
	kindOutcome                 // down: what became of a barrier
	kindNotice                  // up, and down to all others of the group
	kindBreak                   // as well: it is broken for the rank
	kindLeave                   // up: ranks leave a group in order; their sessions, if that is the job
	kindGone                    // down: ranks have left a group, or their sessions have ended; in answer to hello: the world has formed; up: a relay has lost a rank, and who is behind it
	kindAsk                     // down, to relays: who has come to a barrier?
	kindAnswer                  // up: what there was to say to that has been said
	kindOver                    // down: there is no way to rank 0 any more, because of a rank
	kindReached                 // up, of who has asked for its parent: it has a session there
)

// message is all that sessions say: up, towards rank 0, and down.
type message struct {
	Kind    kind            `json:"k"`
	Hello   *hello          `json:"hello,omitempty"`
	Address string          `json:"address,omitempty"` // with the answer to a question: of the parent
	Group   string          `json:"group,omitempty"`   // key; empty for the job
	Ranks   []int           `json:"ranks,omitempty"`   // of the group, unless it is the job
	Turn    int             `json:"turn,omitempty"`    // which barrier of the group, from 0; with break: which part of it
	Rank    int             `json:"rank,omitempty"`    // who says so; with gone and over: because of whom; 0 with gone: of themselves
	Who     []int           `json:"who,omitempty"`     // with leave and gone: the ranks
	Data    []byte          `json:"data,omitempty"`    // of a notice; the world's nonce, with the answer to hello
	Arrival *arrival        `json:"came,omitempty"`    // with arrive
	Parts   []rankData      `json:"parts,omitempty"`   // with the outcome of a barrier that was released
	Facts   *disputed       `json:"facts,omitempty"`   // as well: on which they disagree
	Come    bool            `json:"come,omitempty"`    // with cancel: behind this rank's arrive
	Late    bool            `json:"late,omitempty"`    // with cancel: because time was up
	Own     bool            `json:"own,omitempty"`     // with outcome: Err is the coordinator's, not the reason of a rank that canceled
	Lost    bool            `json:"lost,omitempty"`    // with gone: without a word
	Err     json.RawMessage `json:"err,omitempty"`     // with break, cancel, and the outcome of a barrier that was canceled

	passed chan struct{} // not a message: closed when the outbox comes to it
	coded  *coded        // of what goes to many: the frame that all get
}

// coded is the frame of a message, made by the first that sends it.
type coded struct {
	once sync.Once
	b    []byte
	err  error
}

// disputed is what ranks say of the first fact that they disagree on.
type disputed struct {
	Fact   int         `json:"fact"` // its number
	Values []rankValue `json:"said"` // each value once, by the first rank of the group that says so
}

type rankValue struct {
	At int `json:"at"` // index in the group
	Fact
}

// arrival is who has come to a barrier, and what they bring together: of one rank, or put
// together by a relay.
type arrival struct {
	Who   []int       `json:"who"` // by index in the group, each once
	Facts []rankFacts `json:"said"`
	Data  []rankData  `json:"data,omitempty"`
}

// rankFacts is what ranks say must be the same, by the first of the group that says so.
type rankFacts struct {
	At    int    `json:"at"` // index in the group
	Facts []Fact `json:"facts,omitempty"`
}

// rankData is what a rank brings for all others.
type rankData struct {
	At    int    `json:"at"` // index in the group
	Data  []byte `json:"data,omitempty"`
	value any    // in one process only
}

// hello is what a rank says of itself. Version, Name and World must be the same.
type hello struct {
	Version int    `json:"version"`
	Name    string `json:"name"` // of the world
	World   int    `json:"world"`
	Rank    int    `json:"rank"`
	Address string `json:"address,omitempty"` // where a relay listens
	Process string `json:"process"`
}

// Limits of what a session may ask of the coordinator.
const (
	MaxData   = 1 << 20 // bytes that a rank brings to a barrier, or of a notice
	maxWaits  = 64      // undecided barriers of a group that a rank waits at
	maxAhead  = 1 << 16 // barriers by which a rank may be ahead of the last of its group
	maxGroups = 1 << 14
	maxReason = 1 << 16 // bytes of an encoded error
	maxWorld  = 1 << 16
)

// add puts together what ranks bring.
func (c *arrival) add(more *arrival) {
	c.Who = append(c.Who, more.Who...)
	c.Data = append(c.Data, more.Data...)
	for _, s := range more.Facts {
		i := slices.IndexFunc(c.Facts, func(o rankFacts) bool { return slices.Equal(o.Facts, s.Facts) })
		if i < 0 {
			c.Facts = append(c.Facts, s)
		} else {
			c.Facts[i].At = min(c.Facts[i].At, s.At)
		}
	}
}

// check says what is wrong with what came over a link.
func (c *arrival) check(l *link, g *membership) error {
	who := slices.Sorted(slices.Values(c.Who))
	if len(who) == 0 || who[0] < 0 || who[len(who)-1] >= len(g.ranks) || len(slices.Compact(who)) != len(c.Who) || len(c.Facts) > len(who) || len(c.Data) > len(who) {
		return fmt.Errorf("members %v of %d come", c.Who, len(g.ranks))
	}
	for _, i := range who {
		if !l.has(g.ranks[i]) {
			return fmt.Errorf("rank %d comes for rank %d", l.from, g.ranks[i])
		}
	}
	for _, s := range c.Facts {
		if _, ok := slices.BinarySearch(who, s.At); !ok {
			return fmt.Errorf("facts of member %d, who does not come", s.At)
		}
	}
	for i, d := range c.Data {
		if _, ok := slices.BinarySearch(who, d.At); !ok || i > 0 && c.Data[i-1].At == d.At || len(d.Data) > MaxData {
			return fmt.Errorf("%d bytes of member %d", len(d.Data), d.At)
		}
	}
	return nil
}

// released is the outcome of a barrier to which all have come: what they bring, and whether
// they agree.
func released(c *arrival) *message {
	slices.SortFunc(c.Facts, func(a, b rankFacts) int { return cmp.Compare(a.At, b.At) })
	slices.SortFunc(c.Data, func(a, b rankData) int { return cmp.Compare(a.At, b.At) })
	m := &message{Kind: kindOutcome, Parts: c.Data}
	most := 0
	for _, s := range c.Facts {
		most = max(most, len(s.Facts))
	}
	for k := range most {
		seen := map[Fact]bool{}
		var says []rankValue
		for _, s := range c.Facts {
			if f := fact(s.Facts, k); !seen[f] {
				seen[f] = true
				says = append(says, rankValue{s.At, f})
			}
		}
		if len(says) > 1 {
			m.Facts = &disputed{k, says}
			break
		}
	}
	return m
}

// fact is the kth, or none.
func fact(of []Fact, k int) Fact {
	if k < len(of) {
		return of[k]
	}
	return Fact{}
}
