package model

import (
	"fmt"
	"testing"
)

// Counters that begin anew, with few numbers so that they do so within some calls.

// ageT is packets with flags (kernels/src/flagged.h) whose epochs are 1 to lastEpoch, then 2 to
// lastEpoch again, and so on. Calls have packets at one place of a slot or at two.
type ageT struct {
	ranks int
	from  int   // epoch of the first call
	sizes []int // by call
	wipes int   // first epoch whose calls wipe
	late  bool  // they wipe after all packets have come, not before
	flaw  wipeFlaw
}

type wipeFlaw int

const (
	wipeRest  wipeFlaw = iota // what gets no packets in this call: sound
	wipeAll                   // also places of packets that are under way
	wipeOther                 // the half of the next call
)

const (
	lastEpoch = 7
	wipeLast4 = lastEpoch - 3
	places    = 2
)

// epoch is that of a call, counted from 1.
func (a ageT) epoch(call int) int {
	e := a.from
	for range call - 1 {
		if e++; e > lastEpoch {
			e = 2
		}
	}
	return e
}

// at is the address of a place of src's slot on a rank.
func (a ageT) at(rank, half, src, place int) uint8 {
	return uint8(((rank*2+half)*a.ranks+src)*places + place)
}

// reset clears what a call with an epoch from a.wipes on has to clear.
func (a ageT) reset(s *State, p, call int) {
	e, half := a.epoch(call), a.epoch(call)%2
	if e < a.wipes {
		return
	}
	from := a.sizes[call-1]
	switch a.flaw {
	case wipeAll:
		from = 0
	case wipeOther:
		half = 1 - half
	}
	for k := 1; k < a.ranks; k++ {
		for place := from; place < places; place++ {
			s.Put(p, a.at(p, half, (p+k)%a.ranks, place), 0)
		}
	}
}

// model gives packets the number of their call, of which only its epoch is compared.
func (a ageT) model() Model {
	return Model{
		Procs: a.ranks,
		Init:  firstCall(a.ranks),
		Done:  func(s *State, p int) bool { return int(s.A[p]) > len(a.sizes) },
		Step:  a.step,
	}
}

// step of a call: 0 push; 1 reset; then receive, place by place, peer by peer; 2 + receives:
// reset; end.
func (a ageT) step(s *State, p int) (bool, error) {
	call := int(s.A[p])
	e, size := a.epoch(call), a.sizes[call-1]
	receives := size * (a.ranks - 1)
	switch pc := int(s.PC[p]); {
	case pc == 0:
		for k := 1; k < a.ranks; k++ {
			for place := range size {
				s.Put(p, a.at((p+k)%a.ranks, e%2, p, place), uint8(call))
			}
		}
	case pc == 1:
		if !a.late {
			a.reset(s, p, call)
		}
	case pc < 2+receives:
		src := (p + 1 + (pc-2)/size) % a.ranks
		v := int(s.Mem[a.at(p, e%2, src, (pc-2)%size)])
		if v == 0 || a.epoch(v) != e {
			if v > call {
				return false, fmt.Errorf("rank %d in call %d finds call %d of rank %d: its packet was overwritten", p, call, v, src)
			}
			return false, nil
		}
		if v != call {
			return false, fmt.Errorf("rank %d in call %d takes what call %d of rank %d left", p, call, v, src)
		}
	case pc == 2+receives:
		if a.late {
			a.reset(s, p, call)
		}
	default:
		return nextCall(s, p)
	}
	s.PC[p]++
	return true, nil
}

func (a ageT) String() string {
	return fmt.Sprintf("%d ranks, epoch %d, sizes %v, late %v", a.ranks, a.from, a.sizes, a.late)
}

// TestAges lets two ranks make calls of all sizes, and three ranks the worst ones, through
// the end of the epochs up to where they began.
func TestAges(t *testing.T) {
	total := 0
	check := func(a ageT) {
		t.Helper()
		states, err := a.model().Check(5_000_000)
		if err != nil {
			t.Errorf("%v: %v", a, err)
		}
		if total += states; states < 100 {
			t.Errorf("%v: only %d states", a, states)
		}
	}
	for _, from := range []int{2, 6} {
		for set := range 1 << 8 {
			if set&1 == 0 { // only what the first call leaves matters
				continue
			}
			sizes := make([]int, 8)
			for i := range sizes {
				sizes[i] = 1 + set>>i&1
			}
			check(ageT{ranks: 2, from: from, sizes: sizes, wipes: wipeLast4, late: set&2 == 0})
		}
	}
	for _, sizes := range [][]int{{2, 2, 1, 1, 1, 1, 2, 2}, {2, 1, 2, 1, 1, 2, 2}, {2, 2, 2, 2, 1, 1, 2}} {
		for _, from := range []int{2, 6} {
			check(ageT{ranks: 3, from: from, sizes: sizes, wipes: wipeLast4, late: sizes[1] == 1})
		}
	}
	t.Logf("%d states", total)
}

func TestBrokenAges(t *testing.T) {
	small := []int{2, 2, 1, 1, 1, 1, 2, 2}
	for _, c := range []struct {
		name string
		a    ageT
	}{
		{"no call wipes", ageT{from: 2, sizes: small, wipes: lastEpoch + 1}},
		{"each half is wiped once", ageT{from: 6, sizes: small, wipes: lastEpoch - 1}},
		{"packets under way are wiped", ageT{from: 2, sizes: small, wipes: wipeLast4, flaw: wipeAll}},
		{"the next call's half is wiped", ageT{from: 2, sizes: small, wipes: wipeLast4, flaw: wipeOther}},
	} {
		for ranks := 2; ranks <= 3; ranks++ {
			c.a.ranks = ranks
			states, err := c.a.model().Check(5_000_000)
			if err == nil {
				t.Errorf("%s, %v: nothing wrong in %d states", c.name, c.a, states)
			}
			t.Logf("%s: %v", c.name, err)
		}
	}
}

// exitT is direct calls (kernels/src/direct.h) of one block or two, whose numbers are of few bits:
// exit counters of the second block get old. Process b*ranks+r is block b of rank r.
type exitT struct {
	ranks   int
	grids   []int // by call
	refresh int   // after how many calls counters of other blocks are set
}

// ahead compares numbers of three bits as the device compares those of 32.
func ahead(v, want uint8) bool { return (v-want)&7 < 4 }

// exitFree plus a call's number marks a result that its owner has given up.
const exitFree = 100

func (x exitT) row(table, block, rank, src int) uint8 {
	return uint8(((table*2+block)*x.ranks+rank)*x.ranks + src)
}
func (x exitT) result(block, rank, src int) uint8 { return x.row(0, block, rank, src) }
func (x exitT) exit(block, rank, src int) uint8   { return x.row(1, block, rank, src) }
func (x exitT) enter(rank, src int) uint8         { return x.row(2, 0, rank, src) }
func (x exitT) ended(block, rank int) uint8       { return x.row(2, 1, rank, block) } // two ranks at least

// peers calls f for the other ranks.
func (x exitT) peers(rank int, f func(r int)) {
	for k := 1; k < x.ranks; k++ {
		f((rank + k) % x.ranks)
	}
}

// all reports whether all other ranks are ready.
func (x exitT) all(rank int, ready func(r int) bool) bool {
	ok := true
	x.peers(rank, func(r int) { ok = ok && ready(r) })
	return ok
}

func (x exitT) model() Model {
	return Model{
		Procs:  2 * x.ranks,
		Init:   firstCall(2 * x.ranks),
		Done:   func(s *State, p int) bool { return int(s.A[p]) > len(x.grids) },
		Step:   x.step,
		Landed: x.landed,
	}
}

// landed refuses results that reach a rank before it has given up those of the call before.
func (x exitT) landed(before *State, addr, val uint8) error {
	if val > 0 && val < exitFree && addr < uint8(2*x.ranks*x.ranks) && before.Mem[addr] != exitFree+val {
		return fmt.Errorf("a result of call %d lands on %d, which its owner still uses", val, before.Mem[addr])
	}
	return nil
}

// step: 0 the kernel begins when the one before has ended, and results are given up; 1
// they are; 2 enter; 3 wait for all; 4 write results; 5 set other blocks' counters; 6 exit
// message; 7 wait for all; 8 end; 9 both blocks have ended: read results.
func (x exitT) step(s *State, p int) (bool, error) {
	n := x.ranks
	block, rank, call := p/n, p%n, int(s.A[p])
	in := block < x.grids[call-1]
	switch pc := s.PC[p]; {
	case !in && pc > 0 && pc < 8:
		s.PC[p] = 8
		return true, nil
	case pc == 0:
		if int(s.Mem[x.ended(1-block, rank)]) < call-1 {
			return false, nil
		}
		if in {
			x.peers(rank, func(r int) { s.Put(p, x.result(block, rank, r), uint8(exitFree+call)) })
		}
	case pc == 1 || pc == 8:
		if !s.Flushed(p) {
			return false, nil
		}
		if pc == 8 {
			s.Mem[x.ended(block, rank)] = uint8(call)
		}
	case pc == 2:
		if block == 0 {
			// Results of the other block are given up before, too.
			if x.grids[call-1] == 2 && (int(s.A[n+rank]) < call || s.PC[n+rank] < 2) {
				return false, nil
			}
			x.peers(rank, func(r int) { s.Add(p, x.enter(r, rank)) })
		}
	case pc == 3:
		if !x.all(rank, func(r int) bool { return ahead(s.Mem[x.enter(rank, r)], uint8(call)) }) {
			return false, nil
		}
	case pc == 4:
		x.peers(rank, func(r int) { s.Put(p, x.result(block, r, rank), uint8(call)) })
	case pc == 5:
		for k := 1; k < n && block == 0 && call%x.refresh == 0 && x.grids[call-1] < 2; k++ {
			s.Put(p, x.exit(1, rank, (rank+k)%n), uint8(call))
		}
	case pc == 6:
		if !s.Flushed(p) {
			return false, nil
		}
		x.peers(rank, func(r int) { s.Put(p, x.exit(block, r, rank), uint8(call)) })
	case pc == 7:
		if !x.all(rank, func(r int) bool { return ahead(s.Mem[x.exit(block, rank, r)], uint8(call)) }) {
			return false, nil
		}
	default:
		if int(s.Mem[x.ended(1-block, rank)]) < call {
			return false, nil
		}
		var err error
		if in {
			x.peers(rank, func(r int) {
				if v := int(s.Mem[x.result(block, rank, r)]); v != call {
					err = fmt.Errorf("rank %d, block %d after call %d reads %d of rank %d", rank, block, call, v, r)
				}
			})
		}
		s.A[p]++
		s.PC[p] = 0
		return true, err
	}
	s.PC[p]++
	return true, nil
}

func TestExits(t *testing.T) {
	for _, c := range []struct {
		x      exitT
		broken bool
	}{
		{exitT{ranks: 2, grids: []int{2, 1, 1, 1, 1, 1, 2, 2}, refresh: 2}, false},
		{exitT{ranks: 2, grids: []int{1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 1, 2}, refresh: 2}, false},
		{exitT{ranks: 2, grids: []int{2, 1, 1, 1, 1, 1, 2, 2}, refresh: 100}, true},
		{exitT{ranks: 3, grids: []int{2, 1, 1, 1, 1, 1, 2}, refresh: 100}, true},
		{exitT{ranks: 2, grids: []int{2, 1, 1, 1, 1, 1, 1, 2, 2}, refresh: 100}, true},
	} {
		states, err := c.x.model().Check(5_000_000)
		if (err != nil) != c.broken {
			t.Errorf("%+v: %v in %d states", c.x, err, states)
		}
		t.Logf("%d states, %v", states, err)
	}
}
