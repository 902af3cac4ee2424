// Package model is a small model checker for the protocols of the collective
// kernels. A model is a handful of processes (blocks of kernels, rank by rank) that
// share bytes of memory; the checker visits every interleaving of their steps and of
// the delivery of their stores, and reports a step that finds wrong data, or a state
// in which nothing can move although not everybody has finished.
//
// Stores are weak: a process's stores are delivered in any order, except that two
// stores of one process to one byte keep theirs. A release is a store that may be
// issued only when all earlier stores of the process have been delivered, and a
// kernel ends only then. Loads see memory at once. That is at least as weak as the
// order the device code relies on.
package model

import (
	"fmt"
	"hash/maphash"
)

// Sizes of a model's state.
const (
	Bytes   = 96
	Procs   = 9
	Pending = 8
)

type store struct {
	addr, val uint8
	add       bool
}

// State is one state of a model: shared memory, a program counter and two registers
// for each process, and its stores in flight.
type State struct {
	Mem  [Bytes]uint8
	PC   [Procs]uint8
	A, B [Procs]uint8
	pend [Procs][Pending]store
	np   [Procs]uint8
}

// Put issues a store of process p.
func (s *State) Put(p int, addr, val uint8) { s.issue(p, store{addr: addr, val: val}) }

// Add issues an atomic addition of one.
func (s *State) Add(p int, addr uint8) { s.issue(p, store{addr: addr, val: 1, add: true}) }

// Flushed says whether all stores of p have been delivered.
func (s *State) Flushed(p int) bool { return s.np[p] == 0 }

// issue keeps the pending stores ordered by address, so that equal sets of stores
// are equal states; stores to one address stay in order of issue.
func (s *State) issue(p int, st store) {
	n := int(s.np[p])
	if n == Pending {
		panic("model: too many stores in flight")
	}
	i := n
	for i > 0 && s.pend[p][i-1].addr > st.addr {
		s.pend[p][i] = s.pend[p][i-1]
		i--
	}
	s.pend[p][i] = st
	s.np[p]++
}

// deliver gives every state in which one pending store has landed.
func (s *State) deliver(visit func(State, int, store)) {
	for p := range s.np {
		for i := 0; i < int(s.np[p]); i++ {
			st := s.pend[p][i]
			if i > 0 && s.pend[p][i-1].addr == st.addr {
				continue // an earlier store to the same place comes first
			}
			t := *s
			copy(t.pend[p][i:], t.pend[p][i+1:])
			t.pend[p][Pending-1] = store{}
			t.np[p]--
			if st.add {
				t.Mem[st.addr] += st.val
			} else {
				t.Mem[st.addr] = st.val
			}
			visit(t, p, st)
		}
	}
}

// Model is a protocol. Step advances process p in s, in place, by one step that
// looks at shared memory at most once; it reports whether the process could move,
// and an error for wrong data. Done says whether p has finished. Landed, if set,
// may object to a store that has just been delivered.
type Model struct {
	Procs  int
	Init   func(*State)
	Step   func(s *State, p int) (moved bool, err error)
	Done   func(s *State, p int) bool
	Landed func(before *State, addr, val uint8) error
}

// Check visits all states reachable from the start, at most limit of them, and
// gives their number.
func (m Model) Check(limit int) (int, error) {
	var start State
	if m.Init != nil {
		m.Init(&start)
	}
	seed := maphash.MakeSeed()
	seed2 := maphash.MakeSeed()
	key := func(s *State) [2]uint64 {
		return [2]uint64{maphash.Comparable(seed, *s), maphash.Comparable(seed2, *s)}
	}
	seen := map[[2]uint64]struct{}{key(&start): {}}
	stack := []State{start}
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		moved := false
		var wrong error
		push := func(t State) {
			moved = true
			k := key(&t)
			if _, ok := seen[k]; !ok {
				seen[k] = struct{}{}
				stack = append(stack, t)
			}
		}
		finished := true
		for p := 0; p < m.Procs; p++ {
			if m.Done(&s, p) {
				continue
			}
			finished = false
			t := s
			ok, err := m.Step(&t, p)
			if err != nil {
				return len(seen), err
			}
			if ok {
				push(t)
			}
		}
		s.deliver(func(t State, p int, st store) {
			if m.Landed != nil && !st.add {
				if err := m.Landed(&s, st.addr, st.val); err != nil && wrong == nil {
					wrong = err
				}
			}
			push(t)
		})
		if wrong != nil {
			return len(seen), wrong
		}
		if !moved && !finished {
			return len(seen), fmt.Errorf("nothing can move: program counters %v, memory %v", s.PC[:m.Procs], s.Mem)
		}
		if len(seen) > limit {
			return len(seen), fmt.Errorf("more than %d states", limit)
		}
	}
	return len(seen), nil
}
