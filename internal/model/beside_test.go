package model

import (
	"fmt"
	"testing"
)

// The protocol of collectives overlapped with compute (cuda/coll/engine_flags.go, cuda/coll/overlapped.go):
// copies between ranks that streams order by flags, which peers set and owners clear.
// Each rank has two processes, its main stream and the stream that folds.

// Calls that a sequence is made of.
const (
	callGather = iota // all_gather
	callAhead         // reduce_scatter whose fold the main stream does not wait for
	callReduce        // all_reduce of two rounds with the result over the operand
	callPush          // a kernel that stages without asking, and leaves together with its peers
	callLeave         // one that leaves when it has folded, whatever its peers do
)

// flaws leaves out one ingredient each.
type flaws struct {
	noCredit   bool // parts of staging are filled without asking
	early      bool // credit is given before the fold
	noReady    bool // copies begin without a barrier
	noDone     bool // folds and results begin without one
	noLeft     bool // an all_reduce ends without one
	noSettle   bool // a join waits for the own folds only
	loose      bool // a join's wait for credits does not hold the main stream
	noStart    bool // credits are not set in the beginning
	turnOnly   bool // a kernel that stages follows the own folds alone, without a join
	noReadyRed bool // as noReady, of reductions alone
}

// Rows of flags, by rank and peer.
const (
	rowReady = iota
	rowDone
	rowLeft
	rowCredit // and one more
	rowPushed = rowCredit + 2
	rows      = rowPushed + 1
)

// beside is the layout and the program of both processes of a rank.
type beside struct {
	n     int
	flaws flaws
	// strong says that stores land at once. A process that does not move yet takes the
	// place of stores that land late, and three ranks have few enough states.
	strong bool
	main   []besideStep
	fold   []besideStep
	part   int
	sent   int // rounds that the main stream has handed to the fold stream
	joins  int
	ahead  bool // a fold is pending
}

func (b *beside) flag(rank, row, src int) uint8 { return uint8((row*b.n+rank)*b.n + src) }
func (b *beside) stage(rank, part, src int) uint8 {
	return uint8(rows*b.n*b.n + (part*b.n+rank)*b.n + src)
}
func (b *beside) result(rank, src int) uint8 { return uint8((rows+2)*b.n*b.n + rank*b.n + src) }

// Local events of a rank, which count.
const (
	evCopied = iota
	evFolded
	evJoined
	events
)

func (b *beside) event(rank, ev int) uint8 { return uint8((rows+3)*b.n*b.n + rank*events + ev) }

// besideStep is a step of process p of a rank: false when it has to wait.
type besideStep func(s *State, p, rank int) (bool, error)

func (b *beside) each(rank int, f func(peer int) error) error {
	for k := 1; k < b.n; k++ {
		if err := f((rank + k) % b.n); err != nil {
			return err
		}
	}
	return nil
}

// put is a store of process p.
func (b *beside) put(s *State, p int, addr, val uint8) error {
	if !b.strong {
		s.Put(p, addr, val)
		return nil
	}
	err := b.landed(s, addr, val)
	s.Mem[addr] = val
	return err
}

// landed objects to a store that destroys what another one left.
func (b *beside) landed(before *State, addr, val uint8) error {
	old := before.Mem[addr]
	switch {
	case addr < b.stage(0, 0, 0):
		if val != 0 && old != 0 {
			return fmt.Errorf("flag %d of row %d is set twice", int(addr)%(b.n*b.n), int(addr)/(b.n*b.n))
		}
	case addr < b.result(0, 0):
		if val != 0 && old != 0 {
			return fmt.Errorf("%d lands in staging on %d, which nobody has folded", val, old)
		}
	case val < besideFree && old != besideFree+val:
		return fmt.Errorf("a result of %d lands on %d, which its owner still uses", val, old)
	}
	return nil
}

// tell sets a flag on every peer when everything before it is visible.
func (b *beside) tell(row int) besideStep {
	return func(s *State, p, rank int) (bool, error) {
		if !s.Flushed(p) {
			return false, nil
		}
		return true, b.each(rank, func(r int) error { return b.put(s, p, b.flag(r, row, rank), 1) })
	}
}

// await waits for the flags of all peers and clears them. Nobody else clears them, so
// all may be looked at in one step.
func (b *beside) await(row int, clear bool) besideStep {
	return func(s *State, p, rank int) (bool, error) {
		for r := range b.n {
			if r != rank && s.Mem[b.flag(rank, row, r)] == 0 {
				return false, nil
			}
		}
		if !clear {
			return true, nil
		}
		return true, b.each(rank, func(r int) error { return b.put(s, p, b.flag(rank, row, r), 0) })
	}
}

func (b *beside) barrier(row int) { b.main = append(b.main, b.tell(row), b.await(row, true)) }

// record counts an event when what is before it in the stream has ended.
func (b *beside) record(ev int) besideStep {
	return func(s *State, p, rank int) (bool, error) {
		if !s.Flushed(p) {
			return false, nil
		}
		s.Mem[b.event(rank, ev)]++
		return true, nil
	}
}

func (b *beside) wait(ev, count int) besideStep {
	return func(s *State, _, rank int) (bool, error) { return int(s.Mem[b.event(rank, ev)]) >= count, nil }
}

const besideFree = 100 // plus the call: the place may be written by that call

// free gives the own results up for call.
func (b *beside) free(call int) besideStep {
	return func(s *State, p, rank int) (bool, error) {
		return true, b.each(rank, func(r int) error { return b.put(s, p, b.result(rank, r), uint8(besideFree+call)) })
	}
}

// send writes into the peers' results.
func (b *beside) send(call int) besideStep {
	return func(s *State, p, rank int) (bool, error) {
		return true, b.each(rank, func(r int) error { return b.put(s, p, b.result(r, rank), uint8(call)) })
	}
}

// read takes the results.
func (b *beside) read(call int) besideStep {
	return func(s *State, _, rank int) (bool, error) {
		return true, b.each(rank, func(r int) error {
			if v := s.Mem[b.result(rank, r)]; int(v) != call {
				return fmt.Errorf("rank %d after call %d reads %d of rank %d", rank, call, v, r)
			}
			return nil
		})
	}
}

// fill writes into the peers' staging.
func (b *beside) fill(mark, part int) besideStep {
	return func(s *State, p, rank int) (bool, error) {
		return true, b.each(rank, func(r int) error { return b.put(s, p, b.stage(r, part, rank), uint8(mark)) })
	}
}

// take folds what came in.
func (b *beside) take(mark, part int) besideStep {
	return func(s *State, p, rank int) (bool, error) {
		return true, b.each(rank, func(r int) error {
			if v := s.Mem[b.stage(rank, part, r)]; int(v) != mark {
				return fmt.Errorf("rank %d folds %d and finds %d of rank %d", rank, mark, v, r)
			}
			return b.put(s, p, b.stage(rank, part, r), 0)
		})
	}
}

// round stages into the next part and folds it in the other stream.
func (b *beside) round(mark int, sent besideStep) {
	credit := rowCredit + b.part
	if !b.flaws.noCredit {
		b.main = append(b.main, b.await(credit, true))
	}
	if !b.flaws.noReady && !b.flaws.noReadyRed {
		b.barrier(rowReady)
	}
	b.main = append(b.main, b.fill(mark, b.part))
	if sent != nil {
		b.main = append(b.main, sent)
	}
	if !b.flaws.noDone {
		b.barrier(rowDone)
	}
	b.main = append(b.main, b.record(evCopied))
	b.sent++
	b.fold = append(b.fold, b.wait(evCopied, b.sent))
	if b.flaws.early {
		b.fold = append(b.fold, b.tell(credit), b.take(mark, b.part))
	} else {
		b.fold = append(b.fold, b.take(mark, b.part), b.tell(credit))
	}
	b.fold = append(b.fold, b.record(evFolded))
	b.part = 1 - b.part
}

// join waits for the folds of this rank and of what it sent.
func (b *beside) join() {
	if !b.flaws.noSettle {
		b.fold = append(b.fold, b.await(rowCredit, false), b.await(rowCredit+1, false))
	}
	b.fold = append(b.fold, b.record(evJoined))
	if b.joins++; !b.flaws.loose {
		b.main = append(b.main, b.wait(evJoined, b.joins))
	}
	b.ahead = false
}

// push is a kernel: counters instead of flags, which the model clears to keep states
// few, and which nobody raises twice because such calls stand apart.
func (b *beside) push(mark int, together bool) {
	b.main = append(b.main, b.fill(mark, 0), b.tell(rowPushed), b.await(rowPushed, true), b.take(mark, 0))
	if together {
		b.main = append(b.main, b.tell(rowLeft), b.await(rowLeft, true))
	}
	b.main = append(b.main, func(s *State, p, _ int) (bool, error) { return s.Flushed(p), nil })
}

// add appends a call to the programs.
func (b *beside) add(kind, call int) {
	if b.ahead && kind != callAhead {
		if b.flaws.turnOnly {
			b.main = append(b.main, b.wait(evFolded, b.sent))
		} else {
			b.join()
		}
	}
	mark := 2 * call
	switch kind {
	case callGather:
		b.main = append(b.main, b.free(mark))
		if !b.flaws.noReady {
			b.barrier(rowReady)
		}
		b.main = append(b.main, b.send(mark))
		if !b.flaws.noDone {
			b.barrier(rowDone)
		}
		b.main = append(b.main, b.read(mark))
	case callAhead:
		b.round(mark, nil)
		b.ahead = true
	case callReduce:
		// The slices that the first round sent are overwritten; those of the second lie
		// elsewhere and only keep staging busy.
		b.round(mark, b.free(mark))
		first := b.sent
		b.round(mark+1, nil)
		b.main = append(b.main, b.wait(evFolded, first), b.send(mark), b.wait(evFolded, b.sent))
		if !b.flaws.noLeft {
			b.barrier(rowLeft)
		}
		b.main = append(b.main, b.read(mark))
	default:
		b.push(mark, kind == callPush)
	}
}

// flagged is the model of n ranks that make these calls.
func flagged(n int, f flaws, calls ...int) Model {
	b := &beside{n: n, flaws: f, strong: n > 2}
	for i, kind := range calls {
		b.add(kind, i+1)
	}
	if b.ahead {
		b.join()
	}
	program := func(p int) []besideStep { return [][]besideStep{b.main, b.fold}[p/n] }
	return Model{
		Procs: 2 * n,
		Init: func(s *State) {
			for rank := range n {
				for k := range 2 * n {
					if !f.noStart {
						s.Mem[b.flag(rank, rowCredit+k/n, k%n)] = 1
					}
				}
			}
		},
		Done: func(s *State, p int) bool { return int(s.PC[p]) == len(program(p)) },
		Step: func(s *State, p int) (bool, error) {
			moved, err := program(p)[s.PC[p]](s, p, p%n)
			if moved {
				s.PC[p]++
			}
			return moved, err
		},
		Landed: b.landed,
	}
}

// TestFlags checks all sequences of three calls, by two ranks whose stores land late
// and by three ranks.
func TestFlags(t *testing.T) {
	total := 0
	check := func(n int, calls ...int) {
		t.Helper()
		states, err := flagged(n, flaws{}, calls...).Check(2_000_000)
		if err != nil {
			t.Errorf("%d ranks, calls %v: %v", n, calls, err)
		}
		if total += states; states < 100 {
			t.Errorf("%d ranks, calls %v: only %d states: the model does not move", n, calls, states)
		}
	}
	kinds := callLeave + 1
	for i := range kinds * kinds * kinds {
		a, b, c := i/kinds/kinds, i/kinds%kinds, i%kinds
		if a == callLeave && b >= callPush || b == callLeave && c >= callPush {
			continue // kernels give each other credits of their own
		}
		check(2, a, b, c)
		check(3, a, b, c)
	}
	check(2, callAhead, callAhead, callAhead, callReduce, callAhead, callPush)
	check(3, callAhead, callAhead, callAhead, callAhead, callGather)
	t.Logf("%d states", total)
}

// TestBrokenFlags leaves out one ingredient each; the checker must object.
func TestBrokenFlags(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     flaws
		calls []int
	}{
		{"staging without credit", flaws{noCredit: true}, []int{callAhead, callAhead, callAhead}},
		{"credit before the fold", flaws{early: true}, []int{callAhead, callAhead, callAhead}},
		{"credits that are not set", flaws{noStart: true}, []int{callAhead}},
		{"gather without ready", flaws{noReady: true}, []int{callGather, callGather}},
		{"gather without done", flaws{noDone: true}, []int{callGather}},
		{"folds without done", flaws{noDone: true}, []int{callAhead}},
		{"all_reduce without left", flaws{noLeft: true}, []int{callReduce}},
		{"reduction without ready behind a kernel that stages", flaws{noReadyRed: true}, []int{callLeave, callReduce}},
		{"kernel that stages without waiting for credits", flaws{noSettle: true}, []int{callAhead, callPush}},
		{"kernel that stages in a stream that took its turn without a join", flaws{turnOnly: true}, []int{callAhead, callPush}},
		{"waiting for credits while another stream takes them", flaws{loose: true}, []int{callAhead, callGather, callAhead}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for n := 2; n <= 3; n++ {
				states, err := flagged(n, c.f, c.calls...).Check(2_000_000)
				if err == nil {
					t.Errorf("%d ranks: nothing wrong in %d states", n, states)
				}
				t.Log(err)
			}
		})
	}
}
