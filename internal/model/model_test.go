package model

import (
	"fmt"
	"testing"
)

const n = 3 // ranks

func peer(rank, k int) int { return (rank + k) % n }

// firstCall lets so many processes begin with call 1, which A counts.
func firstCall(procs int) func(s *State) {
	return func(s *State) {
		for p := range procs {
			s.A[p] = 1
		}
	}
}

// nextCall ends a process's call once its stores have landed.
func nextCall(s *State, p int) (bool, error) {
	if !s.Flushed(p) {
		return false, nil
	}
	s.A[p]++
	s.PC[p] = 0
	return true, nil
}

// packets models the one-hop packet protocols: push to all peers, then receive from
// all. poison: packets are their own flags and the reader puts the mark (0) back;
// else a packet holds the call's number. halves is the number of scratch halves.
//
// Program of a call: 0 push; 1, 2 receive from peer k (poison: and put back);
// 3 the kernel ends. A is the call, from 1.
func packets(calls, halves int, poison bool) Model {
	at := func(rank, call, src int) uint8 { return uint8((rank*halves+call%halves)*n + src) }
	return Model{
		Procs: n,
		Init:  firstCall(n),
		Done:  func(s *State, p int) bool { return int(s.A[p]) > calls },
		Step: func(s *State, p int) (bool, error) {
			call := int(s.A[p])
			switch pc := s.PC[p]; pc {
			case 0:
				for k := 1; k < n; k++ {
					s.Put(p, at(peer(p, k), call, p), uint8(call))
				}
			case 1, 2:
				src := peer(p, int(pc))
				v := s.Mem[at(p, call, src)]
				if poison && v == 0 || !poison && int(v) != call {
					if int(v) > call {
						return false, fmt.Errorf("rank %d in call %d finds call %d of rank %d: its packet was overwritten", p, call, v, src)
					}
					return false, nil
				}
				if int(v) != call {
					return false, fmt.Errorf("rank %d in call %d takes call %d of rank %d", p, call, v, src)
				}
				if poison {
					s.Put(p, at(p, call, src), 0)
				}
			case 3:
				return nextCall(s, p)
			}
			s.PC[p]++
			return true, nil
		},
		Landed: func(before *State, addr, val uint8) error {
			if poison && val != 0 && before.Mem[addr] != 0 {
				return fmt.Errorf("a packet of call %d lands on one of call %d", val, before.Mem[addr])
			}
			return nil
		},
	}
}

// twoshot models two hops of packets that are their own flags: slices to their
// owners, sums to all.
//
// 0 push slices; 1, 2 receive for the own slice; 3 push the sum; 4, 5 receive sums;
// 6 the kernel ends.
func twoshot(calls, halves int) Model {
	at := func(rank, call, region, src int) uint8 { return uint8(((rank*halves+call%halves)*2+region)*n + src) }
	m := packets(calls, halves, true)
	m.Step = func(s *State, p int) (bool, error) {
		call := int(s.A[p])
		switch pc := int(s.PC[p]); pc {
		case 0, 3:
			for k := 1; k < n; k++ {
				s.Put(p, at(peer(p, k), call, pc/3, p), uint8(call))
			}
		case 1, 2, 4, 5:
			src := peer(p, pc-pc/3*3)
			a := at(p, call, pc/3, src)
			v := s.Mem[a]
			if v == 0 {
				return false, nil
			}
			if int(v) != call {
				return false, fmt.Errorf("rank %d in call %d takes call %d of rank %d", p, call, v, src)
			}
			s.Put(p, a, 0)
		case 6:
			return nextCall(s, p)
		}
		s.PC[p]++
		return true, nil
	}
	return m
}

// barriers models data of earlier kernels behind channel barriers: a kernel writes
// the round, a barrier, a kernel reads the peers' data, a barrier. flush says
// whether the end of a kernel waits for its stores.
//
// 0 write; 1 kernel end; 2 add; 3, 4 wait; 5, 6 read; 7 add; 8, 9 wait; then the next round.
func barriers(rounds int, flush bool) Model {
	data := func(rank int) uint8 { return uint8(rank) }
	counter := func(rank, src int) uint8 { return uint8(n + rank*n + src) }
	return Model{
		Procs: n,
		Init:  firstCall(n),
		Done:  func(s *State, p int) bool { return int(s.A[p]) > rounds },
		Step: func(s *State, p int) (bool, error) {
			round := int(s.A[p])
			switch pc := int(s.PC[p]); pc {
			case 0:
				s.Put(p, data(p), uint8(round))
			case 1:
				if flush && !s.Flushed(p) {
					return false, nil
				}
			case 2, 7:
				for k := 1; k < n; k++ {
					s.Add(p, counter(peer(p, k), p))
				}
			case 3, 4, 8, 9:
				k, want := (pc-2)%5, 2*round-1+pc/8
				if int8(s.Mem[counter(p, peer(p, k))]-uint8(want)) < 0 {
					return false, nil
				}
				if pc == 9 {
					s.A[p]++
					s.PC[p] = 0
					return true, nil
				}
			case 5, 6:
				if v := s.Mem[data(peer(p, pc-4))]; int(v) != round {
					return false, fmt.Errorf("rank %d in round %d reads round %d of rank %d", p, round, v, peer(p, pc-4))
				}
			}
			s.PC[p]++
			return true, nil
		},
	}
}

// direct models a collective that writes the peers' results between the barriers of
// kernels/src/direct.h, and the kernel before and after it, which write the source and read
// the result. One block a rank; release reports whether the exit message waits for the
// block's stores, entry whether there is an entry barrier.
//
// 0 the result is given up (by the kernel before); 1 kernel end; 2 enter: add;
// 3, 4 wait; 5 write results; 6 exit message; 7, 8 wait; 9 kernel end; 10, 11 read.
func direct(calls int, entry, release bool) Model {
	result := func(rank, src int) uint8 { return uint8(rank*n + src) }
	enter := func(rank, src int) uint8 { return uint8(n*n + rank*n + src) }
	exit := func(rank, src int) uint8 { return uint8(2*n*n + rank*n + src) }
	const free = 100 // plus the call: the rank has given its result up for this call
	return Model{
		Procs: n,
		Init:  firstCall(n),
		Done:  func(s *State, p int) bool { return int(s.A[p]) > calls },
		Step: func(s *State, p int) (bool, error) {
			call := int(s.A[p])
			switch pc := int(s.PC[p]); pc {
			case 0:
				for k := 1; k < n; k++ {
					s.Put(p, result(p, peer(p, k)), uint8(free+call))
				}
			case 1:
				if !s.Flushed(p) {
					return false, nil
				}
			case 2:
				for k := 1; k < n; k++ {
					s.Add(p, enter(peer(p, k), p))
				}
			case 3, 4:
				if entry && int8(s.Mem[enter(p, peer(p, pc-2))]-uint8(call)) < 0 {
					return false, nil
				}
			case 5:
				for k := 1; k < n; k++ {
					s.Put(p, result(peer(p, k), p), uint8(call))
				}
			case 6:
				if release && !s.Flushed(p) {
					return false, nil
				}
				for k := 1; k < n; k++ {
					s.Put(p, exit(peer(p, k), p), uint8(call))
				}
			case 7, 8:
				if int8(s.Mem[exit(p, peer(p, pc-6))]-uint8(call)) < 0 {
					return false, nil
				}
			case 9:
				if !s.Flushed(p) {
					return false, nil
				}
			case 10, 11:
				if v := s.Mem[result(p, peer(p, pc-9))]; int(v) != call {
					return false, fmt.Errorf("rank %d after call %d reads %d of rank %d", p, call, v, peer(p, pc-9))
				}
				if pc == 11 {
					s.A[p]++
					s.PC[p] = 0
					return true, nil
				}
			}
			s.PC[p]++
			return true, nil
		},
		Landed: func(before *State, addr, val uint8) error {
			if val < free && addr < n*n && before.Mem[addr] != free+val {
				return fmt.Errorf("a result of call %d lands on %d, which its owner still uses", val, before.Mem[addr])
			}
			return nil
		},
	}
}

func TestProtocols(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Model
	}{
		{"oneshot", packets(3, 2, true)},
		{"flagged", packets(3, 2, false)},
		{"twoshot", twoshot(3, 2)},
		{"barrier", barriers(3, true)},
		{"direct", direct(3, true, true)},
		{"push", push(2, 3, 2, 1, sound)},
		{"push of few chunks", push(3, 2, 2, 1, sound)},
		{"push of three calls", push(3, 3, 2, 1, sound)},
		{"push by windows", push(2, 5, 4, 2, sound)},
		{"push by two teams", teams(3, 2, 1, 1, sound)},
		{"push by two teams, a window", teams(3, 2, 2, 2, sound)},
	} {
		t.Run(c.name, func(t *testing.T) {
			holds(t, c.m, 1000)
		})
	}
}

// holds says that nothing is wrong in any of m's states, of which there are so many at least.
func holds(t *testing.T, m Model, least int) {
	t.Helper()
	states, err := m.Check(20_000_000)
	if err != nil {
		t.Error(err)
	}
	if t.Logf("%d states", states); states < least {
		t.Errorf("only %d states: the model does not move", states)
	}
}

// breaks says that the checker objects to m.
func breaks(t *testing.T, m Model) {
	t.Helper()
	states, err := m.Check(20_000_000)
	if err == nil {
		t.Errorf("nothing wrong in %d states", states)
	}
	t.Log(err)
}

// TestBrokenProtocols leaves out one ingredient each; the checker must object.
func TestBrokenProtocols(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Model
	}{
		{"oneshot with one half", packets(3, 1, true)},
		{"flagged with one half", packets(3, 1, false)},
		{"twoshot with one half", twoshot(3, 1)},
		{"barrier after a kernel that does not flush", barriers(3, false)},
		{"direct without entry", direct(3, false, true)},
		{"direct without release", direct(3, true, false)},
		{"push without credits", push(3, 3, 2, 1, noCredit)},
		{"push without release", push(3, 2, 2, 1, noRelease)},
		{"push without an exit barrier", push(3, 2, 2, 1, noLeave)},
		{"push by windows without credits", push(2, 5, 4, 2, noCredit)},
		{"push by two teams without credits", teams(2, 4, 2, 1, noCredit)},
		{"push by two teams without release", teams(2, 2, 2, 1, noRelease)},
		{"push by two teams without an exit barrier", teams(3, 2, 2, 2, noLeave)},
		{"push by two teams whose block leaves when one has ended", teams(3, 2, 2, 1, noJoin)},
	} {
		t.Run(c.name, func(t *testing.T) {
			breaks(t, c.m)
		})
	}
}
