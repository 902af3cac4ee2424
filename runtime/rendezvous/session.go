package rendezvous

import (
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Event is what a rank hears of the others of a group without asking.
type Event struct {
	Kind EventKind
	Rank int    // in the job: whom it is about, or who says it
	Via  int    // of one that is cut off: who has left, through whom it was reached
	Data []byte // of a notice
	Err  error  // why it is broken
	Part int    // of the group, that is broken

	group string // key
	turn  int    // of a canceled barrier
}

// EventKind tells events apart.
type EventKind uint8

// The kinds of events.
const (
	Notice   EventKind = iota // another rank called Notify
	Left                      // a rank has left the group, or the job, in order
	Lost                      // a rank's session ended without a word
	Broken                    // another rank called Break
	Cut                       // a rank that goes on has no session any more, because another has left
	canceled                  // of a barrier that this rank has not come to
)

// session is one rank's side of its way to the coordinator.
type session struct {
	rank, world int
	timeout     time.Duration
	send        func(*message)          // never waits
	hangUp      func()                  // ends the session behind what was sent
	ended       chan struct{}           // closed when nothing comes any more
	wrap        func(net.Conn) net.Conn // of tests
	hosts       node                    // of rank 0 of a job with connections, and of relays
	parent      int                     // through whom rank 0 is reached
	silence     time.Duration           // of connections
	address     string                  // by which other processes reach this one; empty for goroutines
	anywhere    bool                    // the address is none of this machine's own

	mu       sync.Mutex
	nonce    string
	turns    map[string]int          // by group: the barrier that this rank comes to next
	waits    map[point]chan *message // calls in progress
	canceled map[point]*message      // outcomes of barriers that this rank has not come to
	gone     []Event                 // that concern the job, in order
	watchers map[int]func(Event)
	watched  int // watchers there have been
	names    map[string]int
	closed   bool
	because  int   // who is the cause if nothing comes any more
	over     error // why nothing comes any more
}

// point is one barrier of one group.
type point struct {
	group string
	turn  int
}

func newSession(p Place) *session {
	return &session{rank: p.Rank, world: p.World, timeout: p.Timeout, ended: make(chan struct{}), turns: map[string]int{}, waits: map[point]chan *message{},
		canceled: map[point]*message{}, watchers: map[int]func(Event){}, names: map[string]int{}}
}

// receive takes a message that comes down. One goroutine calls it.
func (s *session) receive(m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := Event{Rank: m.Rank, Data: m.Data, group: m.Group, turn: m.Turn}
	switch m.Kind {
	case kindHello:
		s.nonce = string(m.Data)
		return
	case kindOutcome:
		p := point{m.Group, m.Turn}
		if w := s.waits[p]; w != nil {
			delete(s.waits, p)
			w <- m // has room for one
			return
		}
		if m.Err == nil || s.closed || m.Turn < s.turns[m.Group] { // or it has canceled it, or waits no more
			return
		}
		s.canceled[p] = m
		e.Kind = canceled
	case kindBreak:
		e.Kind, e.Part, e.Err = Broken, m.Turn, DecodeError(m.Err)
	case kindOver:
		s.because = m.Rank
		return
	case kindGone:
		if s.closed { // there is no reader, and a large world leaves all at once
			return
		}
		switch e.Kind = Left; {
		case m.Lost:
			e.Kind = Lost
		case m.Rank > 0:
			e.Kind, e.Via = Cut, m.Rank
		}
		for _, e.Rank = range m.Who {
			if m.Group == "" {
				s.gone = append(s.gone, e)
			}
			s.tell(e)
		}
		return
	}
	s.tell(e)
}

// tell calls the watchers in order, with s.mu held and given up for the calls.
func (s *session) tell(e Event) {
	for _, i := range slices.Sorted(maps.Keys(s.watchers)) {
		if f := s.watchers[i]; f != nil { // one before may have stopped it
			s.mu.Unlock()
			f(e)
			s.mu.Lock()
		}
	}
}

// end is called when nothing comes any more: rank 0 is gone, or one through whom it is
// reached, unless this rank has left.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		lost := &PeerLostError{Peer: s.because}
		for _, e := range s.gone {
			if e.Rank == lost.Peer && e.Kind == Left {
				lost.Left = true
			}
		}
		s.over = lost
		s.release("")
		if e := (Event{Kind: Lost, Rank: lost.Peer}); !lost.Left {
			s.gone = append(s.gone, e)
			s.tell(e)
		}
	}
	close(s.ended)
}

// release ends the calls in progress of a group, or of all. s.mu is held.
func (s *session) release(group string) {
	for p, w := range s.waits {
		if group == "" || p.group == group {
			delete(s.waits, p)
			close(w)
		}
	}
}
