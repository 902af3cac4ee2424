// Package model is a small model checker for the protocols of the collective
// kernels. A model is a handful of processes (blocks of kernels, rank by rank) that
// share bytes of memory; the checker visits every interleaving of their steps and of
// the delivery of their stores, and reports a step that finds wrong data, or a deadlock:
// a state without a successor in which not everybody has finished.
//
// Stores are weak: a process's stores are delivered in any order, except that two
// stores of one process to one byte keep theirs. A release is a store that may be
// issued only when all earlier stores of the process have been delivered, and a
// kernel ends only then. Loads see memory at once. That is at least as weak as the
// order that the device code relies on.
package model

import "fmt"

// Sizes of a model's state.
const (
	Bytes   = 96
	Procs   = 9
	Pending = 8
)

// store is a store in flight: its address, whether it adds, and its value.
type store uint16

func storeOf(addr, val uint8, add bool) store {
	st := store(addr)<<9 | store(val)
	if add {
		st |= 1 << 8
	}
	return st
}

func (st store) addr() uint8 { return uint8(st >> 9) }
func (st store) val() uint8  { return uint8(st) }
func (st store) adds() bool  { return st>>8&1 != 0 }

// State is one state of a model: shared memory, a program counter and two registers
// for each process, and its stores in flight.
type State struct {
	Mem  [Bytes]uint8
	PC   [Procs]uint8
	A, B [Procs]uint8
	np   [Procs]uint8
	pend [Procs][Pending]store // zero from np on
}

// Put issues a store of process p.
func (s *State) Put(p int, addr, val uint8) { s.issue(p, storeOf(addr, val, false)) }

// Add issues an atomic addition of one.
func (s *State) Add(p int, addr uint8) { s.issue(p, storeOf(addr, 1, true)) }

// Flushed reports whether all stores of p have been delivered.
func (s *State) Flushed(p int) bool { return s.np[p] == 0 }

// issue keeps the pending stores ordered by address, so that equal sets of stores
// are equal states; stores to one address stay in order of issue.
func (s *State) issue(p int, st store) {
	n := int(s.np[p])
	if n == Pending {
		panic("model: too many stores in flight")
	}
	i := n
	for i > 0 && s.pend[p][i-1].addr() > st.addr() {
		s.pend[p][i] = s.pend[p][i-1]
		i--
	}
	s.pend[p][i] = st
	s.np[p]++
}

// deliver lands store i of process p.
func (s *State) deliver(p, i int) {
	st := s.pend[p][i]
	copy(s.pend[p][i:], s.pend[p][i+1:])
	s.pend[p][Pending-1] = 0
	s.np[p]--
	if st.adds() {
		s.Mem[st.addr()] += st.val()
	} else {
		s.Mem[st.addr()] = st.val()
	}
}

// first reports whether no earlier store of process p to the same place is before store i.
func (s *State) first(p, i int) bool {
	return i == 0 || s.pend[p][i-1].addr() != s.pend[p][i].addr()
}

// encode appends bytes that no other state has.
func (s *State) encode(b []byte) []byte {
	b = append(b, s.Mem[:]...)
	b = append(b, s.PC[:]...)
	b = append(b, s.A[:]...)
	b = append(b, s.B[:]...)
	b = append(b, s.np[:]...)
	for p, n := range s.np {
		for _, st := range s.pend[p][:n] {
			b = append(b, byte(st>>8), byte(st))
		}
	}
	return b
}

// Model is a protocol. Step advances process p in s, in place, by one step that
// looks at shared memory at most once; it reports whether the process could move,
// and an error for wrong data. Done reports whether p has finished. Landed, if set,
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
	x := explorer{Model: m, seen: newSet()}
	x.stack = append(x.stack, State{})
	if m.Init != nil {
		m.Init(&x.stack[0])
	}
	x.keep(0)
	for len(x.stack) > 0 {
		if err := x.expand(); err != nil {
			return x.seen.n, err
		}
		if x.seen.n > limit {
			return x.seen.n, fmt.Errorf("more than %d states", limit)
		}
	}
	return x.seen.n, nil
}

type explorer struct {
	Model
	seen   *set
	stack  []State // states to expand
	state  State   // the one that is expanded
	buf    []byte
	hashes []hash
}

// expand replaces the top of the stack by those of its successors that are new.
func (x *explorer) expand() error {
	base := len(x.stack) - 1
	x.state = x.stack[base]
	x.stack = x.stack[:base]
	s, finished := &x.state, true
	for p := 0; p < x.Procs; p++ {
		if x.Done(s, p) {
			continue
		}
		finished = false
		x.stack = append(x.stack, *s)
		moved, err := x.Step(&x.stack[len(x.stack)-1], p)
		if err != nil {
			return err
		}
		if !moved {
			x.stack = x.stack[:len(x.stack)-1]
		}
	}
	var wrong error
	for p := range s.np {
		for i := range int(s.np[p]) {
			if !s.first(p, i) {
				continue // the earlier store lands first
			}
			if st := s.pend[p][i]; x.Landed != nil && !st.adds() && wrong == nil {
				wrong = x.Landed(s, st.addr(), st.val())
			}
			x.stack = append(x.stack, *s)
			x.stack[len(x.stack)-1].deliver(p, i)
		}
	}
	if len(x.stack) == base && !finished {
		return fmt.Errorf("nothing can move: program counters %v, memory %v", s.PC[:x.Procs], s.Mem)
	}
	x.keep(base)
	return wrong
}

// keep drops the states from base on that have been seen. It looks for all at once, so that
// the processor waits for their places in memory together.
func (x *explorer) keep(base int) {
	x.hashes = x.hashes[:0]
	for i := base; i < len(x.stack); i++ {
		x.buf = x.stack[i].encode(x.buf[:0])
		x.hashes = append(x.hashes, x.seen.hash(x.buf))
	}
	x.seen.touch(x.hashes)
	kept := base
	for i, h := range x.hashes {
		if x.seen.add(h) {
			if kept != base+i {
				x.stack[kept] = x.stack[base+i]
			}
			kept++
		}
	}
	x.stack = x.stack[:kept]
}
