package host

import (
	"fmt"
	"testing"
)

// This file checks the protocol between two hosts, a rank on each, as model_test.go does
// within one. What a rank says goes into its link, which delivers one message after the other
// at any later time; a state is how far ranks and links have come.

// farScript is what rank does; the messages among its steps are publish, put and send.
func (v variant) farScript(rank int, barrier []bool) []step {
	var s []step
	epoch, peer := uint32(modelEpoch), 1-rank
	signal := func(call int, wait bool) {
		epoch++
		s = append(s, step{"put", peer, call, epoch})
		if wait {
			s = append(s, step{"wait", peer, call, epoch})
		}
	}
	for call := range barrier {
		if !barrier[call] {
			s = append(s, step{"make room", rank, call, 0})
		}
		s = append(s, step{"publish", rank, call, 0})
		signal(call, !v.noEntryWait)
		s = append(s, step{"compare", peer, call, 0})
		if barrier[call] {
			continue
		}
		s = append(s, step{"send operand", peer, call, 0})
		signal(call, true)
		s = append(s, step{"take operand", peer, call, 0}, step{"send share", peer, call, 0})
		signal(call, !v.noExit)
		s = append(s, step{"take share", peer, call, 0})
	}
	return s
}

// farModel is one exploration: positions of ranks 0 and 1, and of what has been delivered of
// their scripts.
type farModel struct {
	v       variant
	scripts [2][]step
	seen    map[[4]int]bool
}

// before is the call of the last step of this kind among the first pos of a script, -1 for none.
func (m *farModel) before(rank, pos int, kind string, keep func(step) bool) int {
	for i := pos - 1; i >= 0; i-- {
		if s := m.scripts[rank][i]; s.kind == kind && (keep == nil || keep(s)) {
			return s.call
		}
	}
	return -1
}

// enabled reports whether a rank's next step can be taken, and what is wrong with it.
func (m *farModel) enabled(rank int, at [4]int) (bool, error) {
	s, peer, told := m.scripts[rank][at[rank]], 1-rank, at[2+1-rank]
	got := s.call
	switch s.kind {
	case "wait":
		word := uint32(modelEpoch)
		for _, p := range m.scripts[peer][:told] {
			if p.kind == "put" {
				word = p.want
			}
		}
		return reached(word, s.want), nil
	case "compare":
		got = m.before(peer, told, "publish", func(p step) bool { return m.v.oneBuf || p.call%2 == s.call%2 })
	case "take operand":
		got = m.before(peer, told, "send operand", nil)
	case "take share":
		got = m.before(peer, told, "send share", nil)
	}
	if got != s.call {
		return false, fmt.Errorf("rank %d in call %d: %s finds that of call %d", rank, s.call, s.kind, got)
	}
	return true, nil
}

// arrives is what is wrong with what a link delivers now: what is sent has room in the peer.
func (m *farModel) arrives(from int, at [4]int) error {
	s, to := m.scripts[from][at[2+from]], 1-from
	take, ok := map[string]string{"send operand": "take operand", "send share": "take share"}[s.kind]
	if ok && (m.before(to, at[to], "make room", nil) != s.call || m.before(to, at[to], take, nil) >= s.call) {
		return fmt.Errorf("rank %d has no room for what is sent in call %d", to, s.call)
	}
	return nil
}

func (m *farModel) explore(at [4]int) error {
	if m.seen[at] {
		return nil
	}
	m.seen[at] = true
	moved := false
	for who := range at {
		rank := who % 2
		if who < 2 {
			if at[who] == len(m.scripts[rank]) {
				continue
			}
			if ok, err := m.enabled(rank, at); err != nil {
				return err
			} else if !ok {
				continue
			}
		} else {
			if at[who] == at[rank] { // all is delivered
				continue
			}
			if err := m.arrives(rank, at); err != nil {
				return err
			}
		}
		next := at
		next[who]++
		moved = true
		if err := m.explore(next); err != nil {
			return err
		}
	}
	if !moved && (at[0] < len(m.scripts[0]) || at[1] < len(m.scripts[1])) {
		return fmt.Errorf("deadlock at %v", at)
	}
	return nil
}

func exploreFar(v variant, calls int) (states int, err error) {
	for mask := range 1 << calls {
		barrier := make([]bool, calls)
		for k := range barrier {
			barrier[k] = mask>>k&1 == 1
		}
		m := &farModel{v: v, seen: map[[4]int]bool{}, scripts: [2][]step{v.farScript(0, barrier), v.farScript(1, barrier)}}
		if err := m.explore([4]int{}); err != nil {
			return states, fmt.Errorf("barriers %v: %w", barrier, err)
		}
		states += len(m.seen)
	}
	return states, nil
}

func TestLinkModel(t *testing.T) {
	states, err := exploreFar(variant{}, 4)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d states", states)
	// The model must notice what each part of the protocol is for.
	for _, v := range []variant{{name: "no entry wait", noEntryWait: true}, {name: "no exit", noExit: true}, {name: "one descriptor buffer", oneBuf: true}} {
		if _, err := exploreFar(v, 3); err == nil {
			t.Errorf("%s: nothing is wrong", v.name)
		} else {
			t.Logf("%s: %v", v.name, err)
		}
	}
}
