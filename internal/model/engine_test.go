package model

import (
	"fmt"
	"testing"
)

// The general form of collectives by copy engines (cuda/coll/engine.go): every rank has three
// streams, copies go from one rank's memory into another's, and kernels of one warp signal
// and wait between them. Process s*n+r is stream s of rank r. An operation of a stream
// begins when the one before has ended, with its stores in place.

// Streams of a rank.
const (
	streamMain = iota // waits for pieces, folds them, gives credit
	streamIn          // copies operands into the peers' staging
	streamOut         // copies folded slices into the peers' results
	engineStreams
)

// Channels, as in cuda/coll/engine.go.
const (
	engineBarrier = iota
	enginePieces
	engineCredit
	engineDone
	engineChannels
)

// Events of a rank, which count.
const (
	eventFork = iota
	eventFolded
	eventIn
	eventOut
	engineEvents
)

type engineFlaw int

const (
	engineSound     engineFlaw = iota
	engineNoBarrier            // copies begin when the own rank has come
	engineNoCredit             // halves of staging are filled without asking
	engineEarly                // credit is given before the fold
	engineNoDone               // a call ends when the own copies have
	engineNoFork               // the other streams do not wait for the main one
)

// engineT is the calls of n ranks, of so many chunks each. gather is an all_reduce, whose
// folded slices go to all; else each rank keeps its own. Without chunks they are
// all_gathers: copies into results and nothing else. Stores of more than two ranks land at
// once; operations of a stream are apart anyway.
type engineT struct {
	n, calls, chunks int
	gather           bool
	flaw             engineFlaw
	programs         [engineStreams][]engineStep
}

// engineStep is an operation of a stream of rank: false when it has to wait.
type engineStep func(s *State, p, rank int) (bool, error)

func (e *engineT) counter(ch, rank, src int) uint8 { return uint8((ch*e.n+rank)*e.n + src) }
func (e *engineT) stage(half, rank, src int) uint8 {
	return uint8((engineChannels*e.n+half*e.n+rank)*e.n + src)
}
func (e *engineT) result(rank, src int) uint8 {
	return uint8(((engineChannels+2)*e.n+rank)*e.n + src)
}
func (e *engineT) event(rank, ev int) uint8 {
	return uint8((engineChannels+3)*e.n*e.n + rank*engineEvents + ev)
}

func (e *engineT) add(stream int, steps ...engineStep) {
	e.programs[stream] = append(e.programs[stream], steps...)
}

func (e *engineT) each(rank int, f func(r int) error) error {
	for k := 1; k < e.n; k++ {
		if err := f((rank + k) % e.n); err != nil {
			return err
		}
	}
	return nil
}

func (e *engineT) signal(ch int) engineStep {
	return func(s *State, p, rank int) (bool, error) {
		return true, e.each(rank, func(r int) error {
			if e.n == 2 {
				s.Add(p, e.counter(ch, r, rank))
			} else {
				s.Mem[e.counter(ch, r, rank)]++
			}
			return nil
		})
	}
}

// wait is for the count-th signal of all peers.
func (e *engineT) wait(ch, count int) engineStep {
	return func(s *State, _, rank int) (bool, error) {
		ok := true
		e.each(rank, func(r int) error { ok = ok && int8(s.Mem[e.counter(ch, rank, r)]-uint8(count)) >= 0; return nil })
		return ok, nil
	}
}

func (e *engineT) record(ev int) engineStep {
	return func(s *State, _, rank int) (bool, error) { s.Mem[e.event(rank, ev)]++; return true, nil }
}

func (e *engineT) after(ev, count int) engineStep {
	return func(s *State, _, rank int) (bool, error) { return int(s.Mem[e.event(rank, ev)]) >= count, nil }
}

const engineFree = 100 // plus the call: its owner has given the result up

// store writes v at every peer or, of this rank's own places, for every peer.
func (e *engineT) store(at func(rank, peer int) uint8, v int) engineStep {
	return func(s *State, p, rank int) (bool, error) {
		return true, e.each(rank, func(r int) error { return e.put(s, p, at(rank, r), uint8(v)) })
	}
}

func (e *engineT) put(s *State, p int, addr, val uint8) error {
	if e.n == 2 {
		s.Put(p, addr, val)
		return nil
	}
	err := e.landed(s, addr, val)
	s.Mem[addr] = val
	return err
}

// landed objects to a store that destroys what another one left.
func (e *engineT) landed(before *State, addr, val uint8) error {
	old := before.Mem[addr]
	switch {
	case addr < e.stage(0, 0, 0) || addr >= e.event(0, 0):
	case addr < e.result(0, 0):
		if val != 0 && old != 0 {
			return fmt.Errorf("%d lands in staging on %d, which nobody has folded", val, old)
		}
	case val < engineFree && old != engineFree+val:
		return fmt.Errorf("a result of call %d lands on %d, which its owner still uses", val, old)
	}
	return nil
}

// expect reads what every peer has written here.
func (e *engineT) expect(what string, at func(rank, peer int) uint8, want int, clear bool) engineStep {
	return func(s *State, p, rank int) (bool, error) {
		return true, e.each(rank, func(r int) error {
			if v := int(s.Mem[at(rank, r)]); v != want {
				return fmt.Errorf("%s of rank %d: %d of rank %d, not %d", what, rank, v, r, want)
			}
			if clear {
				return e.put(s, p, at(rank, r), 0)
			}
			return nil
		})
	}
}

// call appends call c, from 1, to the programs.
func (e *engineT) call(c int) {
	mine := func(rank, r int) uint8 { return e.result(rank, r) }
	theirs := func(rank, r int) uint8 { return e.result(r, rank) }
	half := func(i int) int { return i % 2 }
	e.add(streamMain, e.store(mine, engineFree+c), e.signal(engineBarrier))
	if e.flaw != engineNoBarrier {
		e.add(streamMain, e.wait(engineBarrier, c))
	}
	e.add(streamMain, e.record(eventFork))
	if e.flaw != engineNoFork {
		e.add(streamIn, e.after(eventFork, c))
		e.add(streamOut, e.after(eventFork, c))
	}
	for i := range e.chunks {
		mark := (c-1)*e.chunks + i + 1
		if i >= 2 && e.flaw != engineNoCredit {
			e.add(streamIn, e.wait(engineCredit, (c-1)*max(0, e.chunks-2)+i-1))
		}
		e.add(streamIn, e.store(func(rank, r int) uint8 { return e.stage(half(i), r, rank) }, mark), e.signal(enginePieces))
		e.add(streamMain, e.wait(enginePieces, mark))
		fold := e.expect("staging", func(rank, r int) uint8 { return e.stage(half(i), rank, r) }, mark, true)
		if e.flaw != engineEarly {
			e.add(streamMain, fold)
		}
		if i+2 < e.chunks {
			e.add(streamMain, e.signal(engineCredit))
		}
		if e.flaw == engineEarly {
			e.add(streamMain, fold)
		}
		if e.gather {
			e.add(streamMain, e.record(eventFolded))
			e.add(streamOut, e.after(eventFolded, mark))
			if i == e.chunks-1 { // slices of other chunks lie elsewhere
				e.add(streamOut, e.store(theirs, c))
			}
		}
	}
	last := streamMain
	if e.gather {
		last = streamOut
	}
	if e.chunks == 0 {
		e.add(streamOut, e.store(theirs, c))
	}
	e.add(last, e.signal(engineDone))
	e.add(streamIn, e.record(eventIn))
	e.add(streamOut, e.record(eventOut))
	e.add(streamMain, e.after(eventIn, c), e.after(eventOut, c))
	if e.flaw != engineNoDone {
		e.add(streamMain, e.wait(engineDone, c))
	}
	if e.gather {
		e.add(streamMain, e.expect("result", mine, c, false))
	}
}

func (e *engineT) model() Model {
	for c := range e.calls {
		e.call(c + 1)
	}
	program := func(p int) []engineStep { return e.programs[p/e.n] }
	return Model{
		Procs: engineStreams * e.n,
		Done:  func(s *State, p int) bool { return int(s.PC[p]) == len(program(p)) && s.Flushed(p) },
		Step: func(s *State, p int) (bool, error) {
			if !s.Flushed(p) || int(s.PC[p]) == len(program(p)) {
				return false, nil
			}
			moved, err := program(p)[s.PC[p]](s, p, p%e.n)
			if moved {
				s.PC[p]++
			}
			return moved, err
		},
		Landed: e.landed,
	}
}

func TestEngine(t *testing.T) {
	for _, e := range []engineT{
		{n: 2, calls: 3, chunks: 3, gather: true},
		{n: 2, calls: 3, chunks: 4},
		{n: 2, calls: 3, chunks: 1, gather: true},
		{n: 2, calls: 3, gather: true},
		{n: 3, calls: 3, gather: true},
		{n: 3, calls: 2, chunks: 1, gather: true},
		{n: 3, calls: 1, chunks: 3, gather: true},
		{n: 3, calls: 2, chunks: 3},
	} {
		states, err := e.model().Check(5_000_000)
		if err != nil {
			t.Errorf("%d ranks, %d calls of %d chunks, gather %v: %v", e.n, e.calls, e.chunks, e.gather, err)
		}
		t.Logf("%d ranks, %d calls of %d chunks, gather %v: %d states", e.n, e.calls, e.chunks, e.gather, states)
	}
}

func TestBrokenEngine(t *testing.T) {
	for _, c := range []struct {
		name string
		e    engineT
	}{
		{"no barrier", engineT{n: 2, calls: 2, gather: true, flaw: engineNoBarrier}},
		{"no credits", engineT{n: 2, calls: 1, chunks: 3, gather: true, flaw: engineNoCredit}},
		{"early credits", engineT{n: 2, calls: 1, chunks: 3, flaw: engineEarly}},
		{"no wait for results", engineT{n: 2, calls: 1, chunks: 1, gather: true, flaw: engineNoDone}},
		{"streams that begin by themselves", engineT{n: 2, calls: 2, chunks: 2, gather: true, flaw: engineNoFork}},
		{"no credits among three", engineT{n: 3, calls: 1, chunks: 3, gather: true, flaw: engineNoCredit}},
	} {
		states, err := c.e.model().Check(5_000_000)
		if err == nil {
			t.Errorf("%s: nothing wrong in %d states", c.name, states)
		}
		t.Logf("%s: %v", c.name, err)
	}
}
