package model

import (
	"fmt"
	"testing"
)

// gatherFlaw is what a model of a matmul that gathers leaves out.
type gatherFlaw int

const (
	gatherSound      gatherFlaw = iota
	gatherNoEntry               // pieces are sent to who has not begun
	gatherNoCount               // a flag goes up with the first piece that a block has sent
	gatherNoRelease             // a flag does not wait for the pieces
	gatherNoTake                // rows are multiplied whether they have come or not
	gatherEarlyReset            // the ticket is put back by the first block that finds no piece left
	gatherOwnPieces             // blocks have pieces of their own, and some find no room until others end
)

// gathering models matmuls that gather their left operand (kernels/src/gather.h), one after
// the other, with a kernel between that reads what was gathered and gives it up.
//
// Of a rank's processes the last multiplies, with the first block; the others are the senders of
// blocks. There is a piece of a rank's rows for each block. With room for fewer blocks than there are,
// the last begin when others have ended.
type gathering struct {
	ranks, blocks, calls int
	room                 int // blocks of a rank that run at once
	flaw                 gatherFlaw
}

// Memory: pieces gathered, by rank, source and piece; then words by rank.
func (g gathering) row(rank, src, piece int) uint8 {
	return uint8((rank*g.ranks+src)*g.blocks + piece)
}
func (g gathering) word(table, rank, of int) uint8 {
	return g.row(g.ranks, 0, 0) + uint8((table*g.ranks+rank)*max(g.ranks, g.blocks+1)+of)
}
func (g gathering) came(rank, src int) uint8 { return g.word(0, rank, src) }
func (g gathering) flag(rank, src int) uint8 { return g.word(1, rank, src) }
func (g gathering) sent(rank, k int) uint8   { return g.word(2, rank, k) }
func (g gathering) ended(rank, of int) uint8 { return g.word(3, rank, of) } // calls that a process has ended
func (g gathering) ticket(rank int) uint8    { return g.word(4, rank, 0) }
func (g gathering) senders(rank int) uint8   { return g.word(4, rank, 1) }

const gatherFree = 100 // plus the call: what lies there has been given up for it

func (g gathering) model() Model {
	procs := g.blocks + 1
	return Model{
		Procs: g.ranks * procs,
		Init: func(s *State) {
			for r := range g.ranks {
				g.free(s, r, 1)
			}
		},
		Done: func(s *State, p int) bool { return int(s.A[p]) == g.calls },
		Step: func(s *State, p int) (bool, error) {
			rank, block := p/procs, p%procs
			if s.PC[p] == 0 && !g.begins(s, rank, block%g.blocks, int(s.A[p])) {
				return false, nil
			}
			if block < g.blocks {
				return g.send(s, p, rank, block), nil
			}
			return g.multiply(s, p, rank)
		},
		Landed: func(before *State, addr, val uint8) error {
			if old := before.Mem[addr]; addr < g.row(g.ranks, 0, 0) && val < gatherFree && old != gatherFree+val {
				return fmt.Errorf("a piece of call %d lands on %d, which its owner still uses", val, old)
			}
			return nil
		},
	}
}

func (g gathering) free(s *State, rank, call int) {
	for i := range g.ranks * g.blocks {
		s.Mem[g.row(rank, 0, i)] = uint8(gatherFree + call)
	}
}

// begins reports whether a block of the call that follows so many runs: those before have ended, and
// there is room for it.
func (g gathering) begins(s *State, rank, block, calls int) bool {
	over := 0
	for b := range g.blocks + 1 {
		if int(s.Mem[g.ended(rank, b)]) < calls {
			return false
		}
		if b > 0 && int(s.Mem[g.ended(rank, b)]) > calls && (b < g.blocks || int(s.Mem[g.ended(rank, 0)]) > calls) {
			over++
		}
	}
	return block < g.room+over
}

// send is the senders of a block: 0 enter; 1 take a ticket; 2 wait for the peer's entry, and send; 3 count, and the
// flag; 4 no piece is left; 5 the kernel ends. B is the ticket.
func (g gathering) send(s *State, p, rank, block int) bool {
	call, ticket := s.A[p]+1, int(s.B[p])
	k, piece, all := 1+ticket/g.blocks, ticket%g.blocks, (g.ranks-1)*g.blocks
	to := (rank + g.ranks - k%g.ranks) % g.ranks
	switch s.PC[p] {
	case 0:
		for j := 1; j < g.ranks && block == 0; j++ {
			s.Add(p, g.came((rank+j)%g.ranks, rank))
		}
		if g.flaw == gatherOwnPieces { // block b has the pieces b
			s.B[p], s.PC[p] = uint8(block), 2
			return true
		}
	case 1:
		s.B[p] = s.Mem[g.ticket(rank)]
		s.Mem[g.ticket(rank)]++
		if g.flaw == gatherOwnPieces {
			s.B[p] = uint8(ticket + g.blocks)
		}
		if int(s.B[p]) >= all {
			s.PC[p] = 4
			return true
		}
	case 2:
		if g.flaw != gatherNoEntry && before(s, g.came(rank, to), int(call)) {
			return false
		}
		s.Put(p, g.row(to, rank, piece), call)
	case 3: // an addition that releases
		if g.flaw != gatherNoRelease && !s.Flushed(p) {
			return false
		}
		at := g.sent(rank, k)
		if s.Mem[at]++; int(s.Mem[at]) == g.blocks || g.flaw == gatherNoCount {
			s.Put(p, g.flag(to, rank), call)
		}
		s.Mem[at] %= uint8(g.blocks)
		s.PC[p] = 1
		return true
	case 4:
		at := g.senders(rank)
		if s.Mem[at]++; int(s.Mem[at]) == g.blocks || g.flaw == gatherEarlyReset {
			s.Mem[g.ticket(rank)] = 0
		}
		s.Mem[at] %= uint8(g.blocks)
	case 5:
		if !s.Flushed(p) {
			return false
		}
		s.Mem[g.ended(rank, block)]++
		s.PC[p], s.B[p] = 0, 0
		s.A[p]++
		return true
	}
	s.PC[p]++
	return true
}

// multiply takes the rows of one rank after the other: 0 take; 1 multiply; 2 the kernel ends, and the
// next one frees what was gathered. B is how many it has multiplied.
func (g gathering) multiply(s *State, p, rank int) (bool, error) {
	call, src := int(s.A[p])+1, (rank+int(s.B[p])+1)%g.ranks
	switch s.PC[p] {
	case 0:
		if g.flaw != gatherNoTake && before(s, g.flag(rank, src), call) {
			return false, nil
		}
	case 1:
		for i := range g.blocks {
			if v := int(s.Mem[g.row(rank, src, i)]); v != call {
				return false, fmt.Errorf("rank %d in call %d multiplies %d of rank %d", rank, call, v, src)
			}
		}
		if s.B[p]++; int(s.B[p]) < g.ranks-1 {
			s.PC[p] = 0
			return true, nil
		}
	case 2:
		g.free(s, rank, call+1)
		s.Mem[g.ended(rank, g.blocks)]++
		s.PC[p], s.B[p] = 0, 0
		s.A[p]++
		return true, nil
	}
	s.PC[p]++
	return true, nil
}

func TestGathering(t *testing.T) {
	for _, g := range []gathering{
		{2, 2, 1, 2, gatherSound}, {2, 2, 2, 1, gatherSound}, {2, 1, 4, 1, gatherSound}, {3, 1, 1, 1, gatherSound},
	} {
		t.Run(fmt.Sprintf("%+v", g), func(t *testing.T) { holds(t, g.model(), 500) })
	}
}

func TestBrokenGathering(t *testing.T) {
	for _, c := range []struct {
		name string
		g    gathering
	}{
		{"no entry", gathering{2, 1, 2, 1, gatherNoEntry}},
		{"a flag for the first piece", gathering{2, 2, 1, 2, gatherNoCount}},
		{"no release", gathering{2, 1, 2, 1, gatherNoRelease}},
		{"no take", gathering{2, 1, 1, 1, gatherNoTake}},
		{"a ticket that is put back too early", gathering{2, 2, 2, 2, gatherEarlyReset}},
		{"pieces of blocks that find no room", gathering{2, 2, 1, 1, gatherOwnPieces}},
	} {
		t.Run(c.name, func(t *testing.T) { breaks(t, c.g.model()) })
	}
}
