package model

import (
	"fmt"
	"testing"
)

// scatterFlaw is what a model of a matmul that scatters leaves out.
type scatterFlaw int

const (
	scatterSound     scatterFlaw = iota
	scatterOneSlot               // every call sends to the same slots
	scatterNoCount               // a flag goes up with the first tile that a block has sent
	scatterNoRelease             // a flag does not wait for the tiles
	scatterNoTake                // tiles are added whether they have come or not
	scatterWaits                 // the matmul itself adds up, in a block that finds room before others have sent
)

// scattering models matmuls that send their tiles to the ranks that own them, one after the other,
// each with a kernel behind it that adds up what came: the form of a matmul and a
// reduce_scatter. No kernel has it yet.
//
// A block sends a tile to every peer, in one of two slots, which calls take in turns, and waits for
// nobody: that a peer has added what lay in the slot follows from the call between, whose tiles this rank has
// added, and which the peer sent behind that. The last block that has sent to a peer raises the flag there. With
// room for fewer blocks than there are, the last begin when others have ended.
type scattering struct {
	ranks, blocks, calls int
	room                 int // blocks of a rank that run at once
	flaw                 scatterFlaw
}

// Memory: tiles by owner, slot, source and block; then words by rank.
func (g scattering) tile(owner, call, src, block int) uint8 {
	slot := call % 2
	if g.flaw == scatterOneSlot {
		slot = 0
	}
	return uint8(((owner*2+slot)*g.ranks+src)*g.blocks + block)
}
func (g scattering) word(table, rank, of int) uint8 {
	return uint8(2*g.ranks*g.ranks*g.blocks + (table*g.ranks+rank)*max(g.ranks, g.blocks+1) + of)
}
func (g scattering) flag(rank, src int) uint8 { return g.word(0, rank, src) }
func (g scattering) sent(rank, to int) uint8  { return g.word(1, rank, to) }
func (g scattering) ended(rank, of int) uint8 { return g.word(2, rank, of) } // calls that a process has ended

const scatterFree = 100 // what lies there has been added

func (g scattering) model() Model {
	procs := g.blocks + 1
	return Model{
		Procs: g.ranks * procs,
		Init: func(s *State) {
			for i := range g.word(0, 0, 0) {
				s.Mem[i] = scatterFree
			}
		},
		Done: func(s *State, p int) bool { return int(s.A[p]) == g.calls },
		Step: func(s *State, p int) (bool, error) {
			rank, of := p/procs, p%procs
			if s.PC[p] == 0 && !g.begins(s, rank, of, int(s.A[p])) {
				return false, nil
			}
			if of < g.blocks {
				return g.send(s, p, rank, of), nil
			}
			return g.add(s, p, rank)
		},
		Landed: func(before *State, addr, val uint8) error {
			if old := before.Mem[addr]; addr < g.word(0, 0, 0) && old != scatterFree {
				return fmt.Errorf("a tile of call %d lands on %d, which its owner still uses", val, old)
			}
			return nil
		},
	}
}

// begins says whether a block, or what adds up, of the call that follows so many runs.
func (g scattering) begins(s *State, rank, of, calls int) bool {
	over, behind := 0, calls // of the blocks; what adds up ends behind them
	if of == g.blocks && g.flaw != scatterWaits {
		behind++
	}
	for b := range g.blocks {
		n := int(s.Mem[g.ended(rank, b)])
		if n < behind {
			return false
		}
		if n > calls {
			over++
		}
	}
	switch {
	case int(s.Mem[g.ended(rank, g.blocks)]) < calls:
		return false
	case g.flaw == scatterWaits: // what adds up is the first block's end, which holds its place
		return of == g.blocks || of == 0 || of < g.room
	}
	return of == g.blocks || of < g.room+over
}

// send is a block: 0 the tile of a peer; 1 the count, and the flag, and the next peer; 2 the kernel ends. B is how
// many peers it has sent to.
func (g scattering) send(s *State, p, rank, block int) bool {
	call, to := int(s.A[p])+1, (rank+1+int(s.B[p]))%g.ranks
	switch s.PC[p] {
	case 0:
		s.Put(p, g.tile(to, call, rank, block), uint8(call))
	case 1: // an addition that releases
		if g.flaw != scatterNoRelease && !s.Flushed(p) {
			return false
		}
		at := g.sent(rank, to)
		if s.Mem[at]++; int(s.Mem[at]) == g.blocks || g.flaw == scatterNoCount {
			s.Put(p, g.flag(to, rank), uint8(call))
		}
		s.Mem[at] %= uint8(g.blocks)
		if s.B[p]++; int(s.B[p]) < g.ranks-1 {
			s.PC[p] = 0
			return true
		}
	case 2:
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

// add takes the tiles of one peer after the other: 0 the flag; 1 the tiles, whose slots are free then; 2 the
// kernel ends. B is how many peers' it has added.
func (g scattering) add(s *State, p, rank int) (bool, error) {
	call, src := int(s.A[p])+1, (rank+1+int(s.B[p]))%g.ranks
	switch s.PC[p] {
	case 0:
		if g.flaw != scatterNoTake && before(s, g.flag(rank, src), call) {
			return false, nil
		}
	case 1:
		for b := range g.blocks {
			at := g.tile(rank, call, src, b)
			if v := int(s.Mem[at]); v != call {
				return false, fmt.Errorf("rank %d in call %d adds %d of rank %d", rank, call, v, src)
			}
			s.Mem[at] = scatterFree
		}
		if s.B[p]++; int(s.B[p]) < g.ranks-1 {
			s.PC[p] = 0
			return true, nil
		}
	case 2:
		s.Mem[g.ended(rank, g.blocks)]++
		s.PC[p], s.B[p] = 0, 0
		s.A[p]++
		return true, nil
	}
	s.PC[p]++
	return true, nil
}

func TestScattering(t *testing.T) {
	for _, g := range []scattering{
		{2, 2, 3, 2, scatterSound}, {2, 2, 3, 1, scatterSound}, {2, 1, 5, 1, scatterSound}, {3, 1, 2, 1, scatterSound},
	} {
		t.Run(fmt.Sprintf("%+v", g), func(t *testing.T) { holds(t, g.model(), 200) })
	}
}

func TestBrokenScattering(t *testing.T) {
	for _, c := range []struct {
		name string
		g    scattering
	}{
		{"one slot", scattering{2, 1, 3, 1, scatterOneSlot}},
		{"a flag for the first tile", scattering{2, 2, 1, 2, scatterNoCount}},
		{"no release", scattering{2, 1, 2, 1, scatterNoRelease}},
		{"no take", scattering{2, 1, 1, 1, scatterNoTake}},
		{"sums in the matmul", scattering{2, 2, 1, 1, scatterWaits}},
	} {
		t.Run(c.name, func(t *testing.T) { breaks(t, c.g.model()) })
	}
}
