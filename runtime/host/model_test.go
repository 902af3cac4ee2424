package host

import (
	"fmt"
	"testing"
)

// This file checks the protocol of protocol.go by exhausting all interleavings of
// a few ranks and calls. A rank is a straight line of atomic steps; every word
// has one writer, so what a word holds follows from how far its writer has come,
// and a state is the ranks' positions. Epochs start just before they wrap.

const modelEpoch = 1<<32 - 2

// step is one atomic action of a rank.
type step struct {
	kind string // below
	peer int
	call int
	want uint32 // put, wait: the epoch
}

// variant is a protocol: the real one, or one with something left out.
type variant struct {
	name                        string
	noEntryWait, noExit, oneBuf bool
}

// script is what rank does in a sequence of calls; barrier[k] says that call k is
// a barrier and not an all_reduce in place.
func (v variant) script(rank, n int, barrier []bool) []step {
	var s []step
	epoch := uint32(modelEpoch)
	signal := func(call int, wait bool) {
		epoch++
		for i := 1; i < n; i++ {
			s = append(s, step{"put", (rank + i) % n, call, epoch})
		}
		for p := range n {
			if p != rank && wait {
				s = append(s, step{"wait", p, call, epoch})
			}
		}
	}
	for call := range barrier {
		s = append(s, step{"write operand", rank, call, 0}, step{"publish", rank, call, 0})
		signal(call, !v.noEntryWait)
		for p := range n {
			s = append(s, step{"compare", p, call, 0})
		}
		if barrier[call] {
			continue
		}
		for p := range n {
			s = append(s, step{"read operand", p, call, 0})
		}
		for p := range n {
			s = append(s, step{"write result", p, call, 0})
		}
		if !v.noExit {
			signal(call, true)
		}
		for p := range n { // the share that p wrote
			s = append(s, step{"read result", p, call, 0})
		}
	}
	return s
}

// model is one exploration.
type model struct {
	v       variant
	scripts [][]step
	seen    map[[3]int]bool
}

// latest returns the call of the last step of this kind and peer that the rank
// has taken, -1 if none, among those that keep selects.
func (m *model) latest(rank, pos int, kind string, peer int, keep func(step) bool) int {
	for i := pos - 1; i >= 0; i-- {
		if s := m.scripts[rank][i]; s.kind == kind && s.peer == peer && (keep == nil || keep(s)) {
			return s.call
		}
	}
	return -1
}

// inbox is the word of rank that src writes.
func (m *model) inbox(rank, src int, at [3]int) uint32 {
	for i := at[src] - 1; i >= 0; i-- {
		if s := m.scripts[src][i]; s.kind == "put" && s.peer == rank {
			return s.want
		}
	}
	return modelEpoch
}

// check returns what is wrong with taking step s of rank now.
func (m *model) check(rank int, s step, at [3]int) error {
	got := s.call
	switch s.kind {
	case "compare":
		got = m.latest(s.peer, at[s.peer], "publish", s.peer, func(p step) bool { return m.v.oneBuf || p.call%2 == s.call%2 })
	case "read operand":
		got = m.latest(s.peer, at[s.peer], "write operand", s.peer, nil)
	case "read result":
		got = m.latest(s.peer, at[s.peer], "write result", rank, nil)
	}
	if got != s.call {
		return fmt.Errorf("rank %d in call %d: %s of rank %d finds that of call %d", rank, s.call, s.kind, s.peer, got)
	}
	return nil
}

// explore visits every state that can be reached from at.
func (m *model) explore(at [3]int) error {
	if m.seen[at] {
		return nil
	}
	m.seen[at] = true
	moved, ended := false, true
	for rank, script := range m.scripts {
		if at[rank] == len(script) {
			continue
		}
		ended = false
		s := script[at[rank]]
		if s.kind == "wait" && !reached(m.inbox(rank, s.peer, at), s.want) {
			continue
		}
		if err := m.check(rank, s, at); err != nil {
			return err
		}
		next := at
		next[rank]++
		moved = true
		if err := m.explore(next); err != nil {
			return err
		}
	}
	if !moved && !ended {
		return fmt.Errorf("deadlock at %v", at)
	}
	return nil
}

func exploreAll(v variant, n, calls int) (states int, err error) {
	for mask := range 1 << calls {
		barrier := make([]bool, calls)
		for k := range barrier {
			barrier[k] = mask>>k&1 == 1
		}
		m := &model{v: v, seen: map[[3]int]bool{}}
		for r := range n {
			m.scripts = append(m.scripts, v.script(r, n, barrier))
		}
		if err := m.explore([3]int{}); err != nil {
			return states, fmt.Errorf("barriers %v: %w", barrier, err)
		}
		states += len(m.seen)
	}
	return states, nil
}

func TestProtocolModel(t *testing.T) {
	for _, c := range [][2]int{{2, 5}, {3, 3}} {
		states, err := exploreAll(variant{}, c[0], c[1])
		if err != nil {
			t.Error(err)
		}
		t.Logf("%d ranks, %d calls: %d states", c[0], c[1], states)
	}
	// The model must notice what each part of the protocol is for.
	for _, v := range []variant{{name: "no entry wait", noEntryWait: true}, {name: "no exit", noExit: true}, {name: "one descriptor buffer", oneBuf: true}} {
		if _, err := exploreAll(v, 2, 3); err == nil {
			t.Errorf("%s: nothing is wrong", v.name)
		} else {
			t.Logf("%s: %v", v.name, err)
		}
	}
}
