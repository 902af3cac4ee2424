package rendezvous

import (
	"encoding/json"
	"sync"
)

// kind says what a message is.
type kind uint8

const (
	kindHello   kind = iota + 1 // rank: who it is; the first message of a session, and the coordinator's answer
	kindArrive                  // rank: has come to the group's next barrier
	kindCancel                  // rank: cancels a barrier that it has come to, or the next one in place of coming
	kindOutcome                 // coordinator: what became of a barrier
	kindNotice                  // rank, and coordinator to all others of the group
	kindBreak                   // as well: it is broken for the rank
	kindLeave                   // rank: leaves a group in order; its session, if that is the job
	kindGone                    // coordinator: a rank has left a group, or its session has ended; in answer to hello: the world has formed
)

// message is all that sessions say.
type message struct {
	Kind  kind            `json:"k"`
	Hello *hello          `json:"hello,omitempty"`
	Group string          `json:"group,omitempty"` // key; empty for the job
	Ranks []int           `json:"ranks,omitempty"` // of the group, unless it is the job
	Turn  int             `json:"turn,omitempty"`  // which barrier of the group, from 0; with break: which part of it
	Rank  int             `json:"rank,omitempty"`  // of whom the coordinator tells
	Data  []byte          `json:"data,omitempty"`  // of a notice; the world's nonce, with the coordinator's hello
	Part  *part           `json:"part,omitempty"`  // with arrive
	Parts []*part         `json:"parts,omitempty"` // with the outcome of a barrier that was released, by rank of the group; none if they bring nothing
	Facts *disputed       `json:"facts,omitempty"` // as well: on which they disagree
	Come  bool            `json:"come,omitempty"`  // with cancel: behind this rank's arrive
	Late  bool            `json:"late,omitempty"`  // with cancel: because time was up
	Own   bool            `json:"own,omitempty"`   // with outcome: Err is the coordinator's, not the reason of a rank that canceled
	Lost  bool            `json:"lost,omitempty"`  // with gone: without a word
	Err   json.RawMessage `json:"err,omitempty"`   // with break, cancel, and the outcome of a barrier that was canceled

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
	Fact int      `json:"fact"` // its number
	Said []saying `json:"said"` // each value once, by the first rank of the group that says so
}

type saying struct {
	At int `json:"at"` // index in the group
	Fact
}

// part is what one rank brings to a barrier.
type part struct {
	Data  []byte `json:"data,omitempty"`
	Facts []Fact `json:"facts,omitempty"`
	value any    // in one process only
}

// hello is what a rank says of itself. All but Rank and Process must be the same.
type hello struct {
	Version int    `json:"version"`
	Name    string `json:"name"` // of the world
	World   int    `json:"world"`
	Rank    int    `json:"rank"`
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

// released is the outcome of a barrier to which all have come: what they bring, and whether
// they agree.
func released(parts []*part) *message {
	m := &message{Kind: kindOutcome}
	most := 0
	for _, p := range parts {
		most = max(most, len(p.Facts))
		if p.Data != nil || p.value != nil {
			m.Parts = parts
		}
	}
	for k := range most {
		seen := map[Fact]bool{}
		var said []saying
		for i, p := range parts {
			if f := p.fact(k); !seen[f] {
				seen[f] = true
				said = append(said, saying{i, f})
			}
		}
		if len(said) > 1 {
			m.Facts = &disputed{k, said}
			break
		}
	}
	if m.Parts != nil {
		m.Parts = make([]*part, len(parts))
		for i, p := range parts {
			m.Parts[i] = &part{Data: p.Data, value: p.value}
		}
	}
	return m
}

// fact is a part's kth, or none.
func (p *part) fact(k int) Fact {
	if k < len(p.Facts) {
		return p.Facts[k]
	}
	return Fact{}
}
