package model

import (
	"fmt"
	"testing"
)

// scatterFlaw is what a model of a matmul that scatters leaves out.
type scatterFlaw int

const (
	scatterSound   scatterFlaw = iota
	scatterEarly               // a rank announces that its matmul has ended before it has
	scatterNoEnd               // the end of a kernel does not wait for its tiles
	scatterNoEntry             // tiles are added whether they have come or not
	scatterNoLeave             // a rank goes on when it has added what came
	scatterAhead               // the next matmul does not wait for the sums
)

// scattering models matmuls that send their tiles to the ranks that own them, one after the other,
// each with a kernel behind it that adds up what came (kernels/src/matmul.h, kernels/src/reducescatter_sent.cu).
//
// A block sends a tile to every peer and waits for nobody. What adds up tells all peers that it has begun, that
// is that the matmul before it has ended; adds a peer's tiles when that one has; tells all that it is done with
// what they sent, and waits until all have said so: the next matmul sends to the same place. With room for fewer blocks
// than there are, the last begin when others have ended.
type scattering struct {
	ranks, blocks, calls int
	room                 int // blocks of a rank that run at once
	flaw                 scatterFlaw
}

// Memory: tiles by owner, source and block; then words by rank.
func (g scattering) tile(owner, src, block int) uint8 {
	return uint8((owner*g.ranks+src)*g.blocks + block)
}
func (g scattering) word(table, rank, of int) uint8 {
	return g.tile(g.ranks, 0, 0) + uint8((table*g.ranks+rank)*max(g.ranks, g.blocks+1)+of)
}
func (g scattering) came(rank, src int) uint8 { return g.word(0, rank, src) }
func (g scattering) left(rank, src int) uint8 { return g.word(1, rank, src) }
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
			if s.PC[p] == 0 && s.B[p] == 0 && !g.begins(s, rank, of, int(s.A[p])) {
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

// begins reports whether a block, or what adds up, of the call that follows so many runs.
func (g scattering) begins(s *State, rank, of, calls int) bool {
	over, behind := 0, calls // of the blocks; what adds up ends behind them
	if of == g.blocks && g.flaw != scatterEarly {
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
	if int(s.Mem[g.ended(rank, g.blocks)]) < calls && (g.flaw != scatterAhead || of == g.blocks) {
		return false
	}
	return of == g.blocks || of < g.room+over
}

// send is a block: 0 the tile of a peer, and the next peer; 1 the kernel ends. B is how many peers it has sent to.
func (g scattering) send(s *State, p, rank, block int) bool {
	switch s.PC[p] {
	case 0:
		s.Put(p, g.tile((rank+1+int(s.B[p]))%g.ranks, rank, block), s.A[p]+1)
		if s.B[p]++; int(s.B[p]) == g.ranks-1 {
			s.PC[p]++
		}
	case 1:
		if g.flaw != scatterNoEnd && !s.Flushed(p) {
			return false
		}
		s.Mem[g.ended(rank, block)]++
		s.PC[p], s.B[p] = 0, 0
		s.A[p]++
	}
	return true
}

// add is what adds up: 0 entry; 1 the entry of a peer; 2 its tiles, and the next peer; 3 exit; 4 the exit of a peer, and of the
// next; 5 the kernel ends. B is how many peers it has added, or waited for.
func (g scattering) add(s *State, p, rank int) (bool, error) {
	call, src := int(s.A[p])+1, (rank+1+int(s.B[p]))%g.ranks
	last := int(s.B[p]) == g.ranks-2
	switch s.PC[p] {
	case 0:
		for k := range g.ranks - 1 {
			s.Add(p, g.came((rank+1+k)%g.ranks, rank))
		}
	case 1:
		if g.flaw != scatterNoEntry && before(s, g.came(rank, src), call) {
			return false, nil
		}
	case 2:
		for b := range g.blocks {
			at := g.tile(rank, src, b)
			if v := int(s.Mem[at]); v != call {
				return false, fmt.Errorf("rank %d in call %d adds %d of rank %d", rank, call, v, src)
			}
			s.Mem[at] = scatterFree
		}
		s.B[p]++
		if !last {
			s.PC[p] = 1
			return true, nil
		}
		s.B[p] = 0
	case 3:
		for k := range g.ranks - 1 {
			s.Put(p, g.left((rank+1+k)%g.ranks, rank), uint8(call))
		}
	case 4:
		if g.flaw != scatterNoLeave && before(s, g.left(rank, src), call) {
			return false, nil
		}
		if s.B[p]++; !last {
			return true, nil
		}
	case 5:
		if !s.Flushed(p) {
			return false, nil
		}
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
		{"an early entry", scattering{2, 1, 1, 1, scatterEarly}},
		{"tiles under way behind a kernel's end", scattering{2, 1, 1, 1, scatterNoEnd}},
		{"no entry", scattering{2, 1, 1, 1, scatterNoEntry}},
		{"no exit", scattering{2, 1, 2, 1, scatterNoLeave}},
		{"a matmul ahead of the sums", scattering{2, 1, 2, 1, scatterAhead}},
	} {
		t.Run(c.name, func(t *testing.T) { breaks(t, c.g.model()) })
	}
}
