package program

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// One walk finds what a search for each collective finds.
func TestBeside(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	yes, no := 0, 0
	for range 3000 {
		p := &Program{Events: 1 + r.IntN(4), Streams: []Stream{{Group: -1}, {Group: 0}, {Group: 0}}}
		for range 1 + r.IntN(24) {
			in := Instr{Stream: r.IntN(3), Event: r.IntN(p.Events), Kind: []Kind{Record, Wait, Wait, Launch}[r.IntN(4)]}
			if in.Kind == Launch && in.Stream > 0 {
				in.Kind = Collective
			}
			if in.Kind == Launch && r.IntN(2) == 0 {
				in.Op = "matmul"
			}
			p.Instrs = append(p.Instrs, in)
		}
		want, got := besideByScan(p, (*Instr).Holds), p.Overlapped()
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: %v, want %v", p.Instrs, got, want)
		}
		for _, b := range want {
			if b {
				yes++
			} else {
				no++
			}
		}
	}
	if yes < 500 || no < 500 {
		t.Errorf("%d overlapped, %d not: too few", yes, no)
	}
}

// besideByScan reports which collectives run beside instructions that count.
func besideByScan(p *Program, counts func(*Instr) bool) []bool {
	out := make([]bool, len(p.Instrs))
	for k := range p.Instrs {
		in := &p.Instrs[k]
		if in.Kind == Collective && p.Streams[in.Stream].Group >= 0 {
			out[k] = busyByScan(p, sinceByScan(p, k), k, counts)
		}
	}
	return out
}

// sinceByScan is the instruction of the compute stream after which collective k may start.
func sinceByScan(p *Program, k int) int {
	for i := k - 1; i >= 0; i-- {
		w := &p.Instrs[i]
		if w.Kind != Wait || w.Stream != p.Instrs[k].Stream {
			continue
		}
		for j := i - 1; j >= 0; j-- {
			if r := &p.Instrs[j]; r.Kind == Record && r.Event == w.Event {
				if p.Streams[r.Stream].Group < 0 {
					return j
				}
				break
			}
		}
	}
	return 0
}

// busyByScan reports whether the compute stream has an instruction that counts from
// instruction from on before it waits for collective k.
func busyByScan(p *Program, from, k int, counts func(*Instr) bool) bool {
	ours := map[int]bool{} // events that stand for the collective; looked up only
	for i := from; i < len(p.Instrs); i++ {
		in := &p.Instrs[i]
		computes := p.Streams[in.Stream].Group < 0
		switch {
		case i > k && in.Kind == Record:
			ours[in.Event] = in.Stream == p.Instrs[k].Stream
		case i > k && in.Kind == Wait && computes && ours[in.Event]:
			return false
		case computes && counts(in):
			return true
		}
	}
	return false
}
