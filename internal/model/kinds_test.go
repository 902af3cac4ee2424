package model

import (
	"fmt"
	"testing"
)

// Calls of different kinds, one after the other, that share a group's staging and its
// counters: both pushes (kernels/src/push.h), of different depths, grids and numbers of chunks and
// so with different places in staging, and reductions by copy engines (cuda/coll/engine.go),
// whose staging is laid out in a third way. Counters are of few bits and wrap. A call may
// be aborted at any time and the group made whole again (Group.Rejoin).
//
// Process u*n+r is block u of rank r, or, where blocks is 1 and there are two units, the
// second team of its only block, which folds in calls by teams.

// kindCall is a call of a sequence.
type kindCall struct {
	kind    int
	grid    int // blocks
	chunks  int // of every block that has some
	depth   int
	window  int
	aborted bool // it may end in an abort, and Rejoin follows
}

const (
	kindWindows = iota // all_reduce_push
	kindTeams          // reduce_scatter_push
	kindStaged         // copies into staging between a barrier and a last signal
)

type kindFlaw int

const (
	kindsSound       kindFlaw = iota
	kindsNoCredit             // pushes wait for no credits
	kindsStale                // credits that were not given are not counted at the end of a call
	kindsNoExit               // a push does not wait for the end of its peers'
	kindsNoLast               // a staged call ends without its last signal
	kindsEarlyClear           // Rejoin clears before all ranks have given up
	kindsEarlyRejoin          // a rank goes on before all have cleared
	kindsNoJoin               // the exit message leaves when the team that pushes has ended
)

// kindsBits is how many bits counters have.
const kindsBits = 4

type kindsStep func(s *State, p int) (moved bool, err error)

// kindsT builds the programs of all processes.
type kindsT struct {
	n, units int
	blocks   int
	calls    []kindCall
	flaw     kindFlaw
	programs [Procs][]kindsStep
	done     [2]int // chunks of each block so far
	depth    int    // the largest
	grid     int    // the largest
	channels int    // staged calls so far
	direct   int    // pushes so far, since Rejoin
	phase    int    // Rejoins so far
}

func (k *kindsT) table(table, block, rank, src int) uint8 {
	return uint8(k.n*k.stages() + ((table*k.blocks+block)*k.n+rank)*k.n + src)
}
func (k *kindsT) stages() int                        { return k.depth * k.n * k.grid }
func (k *kindsT) pushed(block, rank, src int) uint8  { return k.table(0, block, rank, src) }
func (k *kindsT) credits(block, rank, src int) uint8 { return k.table(1, block, rank, src) }
func (k *kindsT) exit(block, rank, src int) uint8    { return k.table(2, block, rank, src) }

// channel is the staged calls' barrier, pieces and last signals.
func (k *kindsT) channel(ch, rank, src int) uint8 {
	return k.table(3, 0, 0, 0) + uint8((ch*k.n+rank)*k.n+src)
}

// Words of a rank that no peer writes, but for the abort: units that have ended a call,
// the team that has folded, whether waits may time out, and the barriers of Rejoin.
const (
	ownEnded   = 0
	ownFolded  = 2
	ownAbort   = 3
	ownBarrier = 4
	owns       = 5
)

func (k *kindsT) own(rank, what int) uint8 { return k.channel(3, 0, 0) + uint8(rank*owns+what) }
func (k *kindsT) clock() uint8             { return k.own(k.n, 0) }

// stage is where a call has slot of block for source src, as kernels/src/push.h does it.
func (k *kindsT) stage(c kindCall, rank, slot, src, block int) uint8 {
	return uint8(rank*k.stages() + (slot*k.n+src)*c.grid + block)
}

// mark is what call i puts into staging as chunk j.
func (k *kindsT) mark(i, j int) uint8 { return uint8(1 + i*16 + j%16) }

func (k *kindsT) add(p int, steps ...kindsStep) { k.programs[p] = append(k.programs[p], steps...) }

func (k *kindsT) less(v uint8, want int) bool {
	const mask = 1<<kindsBits - 1
	return (v-uint8(want))&mask >= 1<<(kindsBits-1)
}

// wait holds process p until a counter has got somewhere. In a call that may be aborted
// it gives up when the group is, or when time is up: then it aborts the group.
func (k *kindsT) wait(p int, c kindCall, counter uint8, want int) {
	rank := p % k.n
	k.add(p, func(s *State, p int) (bool, error) {
		if !k.less(s.Mem[counter], want) {
			return true, nil
		}
		if !c.aborted || s.Mem[k.own(rank, ownAbort)] == 0 && s.Mem[k.clock()] == 0 {
			return false, nil
		}
		for r := range k.n {
			s.Put(p, k.own(r, ownAbort), 1)
		}
		s.B[p] = 1 // gives up: skip to the end of the call
		return true, nil
	})
}

func (k *kindsT) peers(rank int, f func(r int)) {
	for j := 1; j < k.n; j++ {
		f((rank + j) % k.n)
	}
}

// flushed is the beginning of a release.
func (k *kindsT) flushed(p int, then func(s *State)) {
	k.add(p, func(s *State, p int) (bool, error) {
		if !s.Flushed(p) {
			return false, nil
		}
		then(s)
		return true, nil
	})
}

func (k *kindsT) raise(p int, at func(r int) uint8, v int) {
	rank := p % k.n
	k.flushed(p, func(s *State) {
		k.peers(rank, func(r int) { s.Put(p, at(r), uint8(v&(1<<kindsBits-1))) })
	})
}

// push sends chunks [w, end) of call i.
func (k *kindsT) push(p, i int, c kindCall, block, done, w, end int) {
	rank := p % k.n
	if end > c.depth && k.flaw != kindsNoCredit {
		k.peers(rank, func(r int) { k.wait(p, c, k.credits(block, rank, r), done+end-c.depth) })
	}
	k.add(p, func(s *State, p int) (bool, error) {
		for j := w; j < end; j++ {
			k.peers(rank, func(r int) { s.Put(p, k.stage(c, r, (done+j)%c.depth, rank, block), k.mark(i, j)) })
		}
		return true, nil
	})
	k.raise(p, func(r int) uint8 { return k.pushed(block, r, rank) }, done+end)
}

// fold takes chunks [from, to) of call i.
func (k *kindsT) fold(p, i int, c kindCall, block, done, from, to int) {
	rank := p % k.n
	k.peers(rank, func(r int) { k.wait(p, c, k.pushed(block, rank, r), done+to) })
	for j := from; j < to; j++ {
		k.take(p, i, func(r int) uint8 { return k.stage(c, rank, (done+j)%c.depth, r, block) }, k.mark(i, j))
	}
	if from+c.depth < c.chunks {
		k.raise(p, func(r int) uint8 { return k.credits(block, r, rank) }, done+to)
	}
}

// take reads what all peers have staged. The place counts as free from then on.
func (k *kindsT) take(p, i int, at func(r int) uint8, want uint8) {
	rank := p % k.n
	k.add(p, func(s *State, p int) (bool, error) {
		var err error
		k.peers(rank, func(r int) {
			if v := s.Mem[at(r)]; v != want {
				err = fmt.Errorf("rank %d in call %d finds %#x of rank %d, not %#x", rank, i, v, r, want)
			}
			s.Mem[at(r)] = 0
		})
		return true, err
	})
}

// leave is Push::leave and that of kernels/src/direct.h.
func (k *kindsT) leave(p int, c kindCall, block, done int) {
	rank := p % k.n
	k.add(p, func(s *State, p int) (bool, error) {
		if k.flaw != kindsStale {
			k.peers(rank, func(r int) { s.Put(p, k.credits(block, rank, r), uint8(done&(1<<kindsBits-1))) })
		}
		return true, nil
	})
	e := k.direct
	k.raise(p, func(r int) uint8 { return k.exit(block, r, rank) }, e)
	if k.flaw != kindsNoExit {
		k.peers(rank, func(r int) { k.wait(p, c, k.exit(block, rank, r), e) })
	}
}

// call adds call i to the program of process p.
func (k *kindsT) call(i, p int) {
	c, unit, rank := k.calls[i], p/k.n, p%k.n
	k.add(p, func(s *State, _ int) (bool, error) { // the call before has ended on this rank
		for u := range k.units {
			if int(s.Mem[k.own(rank, ownEnded+u)]) < i {
				return false, nil
			}
		}
		return true, nil
	})
	first := len(k.programs[p])
	team, block := 0, unit
	if k.blocks < k.units {
		team, block = unit, 0
	}
	done := k.done[block]
	switch {
	case c.kind == kindStaged && unit == 0:
		k.staged(p, i, c)
	case block >= c.grid:
	case c.kind == kindWindows && team == 0:
		for w := 0; w < c.chunks+c.window; w += c.window {
			if w < c.chunks {
				k.push(p, i, c, block, done, w, min(w+c.window, c.chunks))
			}
			if w >= c.window {
				k.fold(p, i, c, block, done, w-c.window, min(w, c.chunks))
			}
		}
		k.leave(p, c, block, done+c.chunks)
	case c.kind == kindTeams && team == 0:
		for w := 0; w < c.chunks; w += c.window {
			k.push(p, i, c, block, done, w, min(w+c.window, c.chunks))
		}
		if k.flaw != kindsNoJoin {
			k.flushed(p, func(*State) {})
			k.add(p, func(s *State, p int) (bool, error) {
				if s.Mem[k.own(rank, ownFolded)] == 255 { // the other team has given up
					s.B[p] = 1
					return true, nil
				}
				return int(s.Mem[k.own(rank, ownFolded)]) > i, nil
			})
		}
		k.leave(p, c, block, done+c.chunks)
	case c.kind == kindTeams:
		for j := range c.chunks {
			k.fold(p, i, c, block, done, j, j+1)
		}
		k.flushed(p, func(s *State) { s.Mem[k.own(rank, ownFolded)] = uint8(i + 1) })
	}
	// A process that gives up skips what is left of the call.
	for j := first; j < len(k.programs[p]); j++ {
		step := k.programs[p][j]
		k.programs[p][j] = func(s *State, p int) (bool, error) {
			if s.B[p] != 0 {
				return true, nil
			}
			moved, err := step(s, p)
			if s.B[p] != 0 && team == 1 {
				s.Mem[k.own(rank, ownFolded)] = 255
			}
			return moved, err
		}
	}
	k.flushed(p, func(s *State) {
		s.Mem[k.own(rank, ownEnded+unit)] = uint8(i + 1)
		s.B[p] = 0
	})
	if c.aborted {
		k.again(i, p)
	}
}

// staged is one round of a reduction by copy engines.
func (k *kindsT) staged(p, i int, c kindCall) {
	rank := p % k.n
	signal := func(ch int) {
		k.flushed(p, func(s *State) { k.peers(rank, func(r int) { s.Add(p, k.channel(ch, r, rank)) }) })
	}
	wait := func(ch int) { k.peers(rank, func(r int) { k.wait(p, c, k.channel(ch, rank, r), k.channels) }) }
	signal(0)
	wait(0)
	at := func(rank, src int) uint8 { return uint8(rank*k.stages() + src) } // a place for every rank
	k.add(p, func(s *State, p int) (bool, error) {
		k.peers(rank, func(r int) { s.Put(p, at(r, rank), k.mark(i, 0)) })
		return true, nil
	})
	signal(1)
	wait(1)
	k.take(p, i, func(r int) uint8 { return at(rank, r) }, k.mark(i, 0))
	signal(2)
	if k.flaw != kindsNoLast {
		wait(2)
	}
}

// again is Rejoin: all work of the rank ends, a barrier, each clears its own, another barrier.
func (k *kindsT) again(i, p int) {
	unit, rank := p/k.n, p%k.n
	barrier := func(which int) {
		want := 2*k.phase + which
		if unit == 0 {
			k.flushed(p, func(s *State) { s.Mem[k.own(rank, ownBarrier)]++ })
		}
		k.add(p, func(s *State, _ int) (bool, error) {
			for r := range k.n {
				if int(s.Mem[k.own(r, ownBarrier)]) < want {
					return false, nil
				}
			}
			return true, nil
		})
	}
	k.add(p, func(s *State, _ int) (bool, error) {
		for u := range k.units {
			if int(s.Mem[k.own(rank, ownEnded+u)]) <= i {
				return false, nil
			}
		}
		return true, nil
	})
	if k.flaw != kindsEarlyClear {
		barrier(1)
	}
	if unit == 0 {
		k.add(p, func(s *State, _ int) (bool, error) {
			for block := range k.blocks {
				for r := range k.n {
					for table := range 3 {
						s.Mem[k.table(table, block, rank, r)] = 0
					}
				}
			}
			for ch := range 3 {
				for r := range k.n {
					s.Mem[k.channel(ch, rank, r)] = 0
				}
			}
			for j := range k.stages() { // not in fact, but what lies there may be written over
				s.Mem[rank*k.stages()+j] = 0
			}
			s.Mem[k.own(rank, ownAbort)], s.Mem[k.own(rank, ownFolded)], s.Mem[k.clock()] = 0, 0, 0
			return true, nil
		})
	}
	switch k.flaw {
	case kindsEarlyRejoin: // counts as if it had come to the barrier
		if unit == 0 {
			k.add(p, func(s *State, _ int) (bool, error) { s.Mem[k.own(rank, ownBarrier)]++; return true, nil })
		}
	case kindsEarlyClear:
		barrier(1)
		barrier(2)
	default:
		barrier(2)
	}
}

// model gives the programs, and a clock that may run out during calls that may be aborted.
func (k *kindsT) model() Model {
	for _, c := range k.calls {
		k.depth, k.grid = max(k.depth, c.depth), max(k.grid, c.grid)
	}
	abortable := false
	for i, c := range k.calls {
		switch c.kind {
		case kindStaged:
			k.channels++
		default:
			k.direct++
		}
		abortable = abortable || c.aborted
		for p := range k.n * k.units {
			k.call(i, p)
		}
		if c.kind != kindStaged {
			for b := range c.grid {
				k.done[b] += c.chunks
			}
		}
		if c.aborted {
			k.phase++
			k.channels, k.direct = 0, 0
			k.done = [2]int{}
		}
	}
	procs := k.n * k.units
	clocks := 0
	if abortable {
		clocks = 1
	}
	staging := uint8(k.n * k.stages())
	return Model{
		Procs: procs + clocks,
		Done: func(s *State, p int) bool {
			return p == procs && int(s.PC[p]) == 1 || p < procs && int(s.PC[p]) == len(k.programs[p])
		},
		Step: func(s *State, p int) (bool, error) {
			if p == procs { // time is up, once: in a call that cannot be aborted nobody looks
				s.Mem[k.clock()] = 1
				s.PC[p] = 1
				return true, nil
			}
			moved, err := k.programs[p][s.PC[p]](s, p)
			if moved {
				s.PC[p]++
			}
			return moved, err
		},
		Landed: func(before *State, addr, val uint8) error {
			if old := before.Mem[addr]; addr < staging && old != 0 {
				return fmt.Errorf("%#x lands in staging on %#x, which nobody has folded", val, old)
			}
			return nil
		},
	}
}

// Calls that sequences are made of.
var (
	oneChunk = kindCall{kind: kindWindows, grid: 1, chunks: 1, depth: 2, window: 1}
	twoAll   = kindCall{kind: kindWindows, grid: 2, chunks: 1, depth: 2, window: 1}
	longAll  = kindCall{kind: kindWindows, grid: 1, chunks: 3, depth: 2, window: 1}
	scatters = kindCall{kind: kindTeams, grid: 1, chunks: 2, depth: 4, window: 2}
	longRS   = kindCall{kind: kindTeams, grid: 1, chunks: 3, depth: 2, window: 1}
	engine   = kindCall{kind: kindStaged}
)

func fails(c kindCall) kindCall { c.aborted = true; return c }

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		n, units, blocks int
		calls            []kindCall
	}{
		{2, 1, 1, []kindCall{longAll, engine, longAll, oneChunk}},
		{2, 1, 1, []kindCall{oneChunk, oneChunk, oneChunk, oneChunk, oneChunk, oneChunk, oneChunk, oneChunk, oneChunk, longAll}},
		{2, 1, 1, []kindCall{longAll, longAll, longAll, longAll, longAll, longAll, longAll}},
		{2, 1, 1, []kindCall{fails(longAll), longAll, engine}},
		{2, 1, 1, []kindCall{engine, fails(engine), longAll, engine}},
		{2, 2, 2, []kindCall{twoAll, oneChunk, twoAll, engine, twoAll}},
		{2, 2, 1, []kindCall{fails(oneChunk), scatters}},
		{2, 2, 1, []kindCall{longAll, scatters, longAll}},
		{2, 2, 1, []kindCall{longRS, engine, scatters, longAll}},
		{2, 2, 1, []kindCall{fails(scatters), longRS}},
		{3, 1, 1, []kindCall{oneChunk, engine, oneChunk}},
		{3, 1, 1, []kindCall{longAll, oneChunk}},
	} {
		k := &kindsT{n: c.n, units: c.units, blocks: c.blocks, calls: c.calls}
		states, err := k.model().Check(10_000_000)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if t.Logf("%d ranks, %d units: %d states", c.n, c.units, states); states < 500 {
			t.Errorf("%+v: only %d states", c, states)
		}
	}
}

func TestBrokenKinds(t *testing.T) {
	short := make([]kindCall, 9)
	for i := range short {
		short[i] = oneChunk
	}
	for _, c := range []struct {
		name             string
		flaw             kindFlaw
		n, units, blocks int
		calls            []kindCall
	}{
		{"no credits", kindsNoCredit, 2, 1, 1, []kindCall{engine, longAll}},
		{"credits that short calls do not give", kindsStale, 2, 1, 1, append(short, longAll)},
		{"no exit barrier before other places", kindsNoExit, 2, 2, 1, []kindCall{scatters, longAll}},
		{"no exit barrier before another grid", kindsNoExit, 2, 2, 2, []kindCall{twoAll, oneChunk, twoAll}},
		{"no last signal before a push", kindsNoLast, 2, 1, 1, []kindCall{engine, oneChunk}},
		{"clearing before all have given up", kindsEarlyClear, 2, 1, 1, []kindCall{fails(longAll), longAll}},
		{"going on before all have cleared", kindsEarlyRejoin, 2, 1, 1, []kindCall{fails(longAll), longAll}},
		{"exit before the fold", kindsNoJoin, 2, 2, 1, []kindCall{longRS, longAll}},
	} {
		k := &kindsT{n: c.n, units: c.units, blocks: c.blocks, calls: c.calls, flaw: c.flaw}
		states, err := k.model().Check(10_000_000)
		if err == nil {
			t.Errorf("%s: nothing wrong in %d states", c.name, states)
		}
		t.Logf("%s: %v", c.name, err)
	}
}
