package program

import (
	"fmt"
	"math/bits"
	"testing"
)

// flights makes a program of collectives on streams of their own, with random events.
func flights(g *rng, streams, n int) *Program {
	p := &Program{Name: "flights", World: 1, Streams: []Stream{{"compute", -1}}, Events: n}
	for i := range streams {
		p.Groups = append(p.Groups, Group{fmt.Sprint("g", i), [][]int{{0}}})
		p.Streams = append(p.Streams, Stream{fmt.Sprint("s", i), i})
	}
	recorded := 0
	for range n {
		s := g.pick(streams + 1)
		in := Instr{Kind: Collective, Op: "barrier", Stream: s, Group: s - 1, Event: -1}
		switch k := g.pick(4); {
		case k == 0 && recorded > 0:
			in = Instr{Kind: Wait, Stream: s, Event: g.pick(recorded), Group: -1}
		case k < 2:
			in = Instr{Kind: Record, Stream: s, Event: recorded, Group: -1}
			recorded++
		case s == 0:
			continue
		}
		p.Instrs = append(p.Instrs, in)
	}
	return p
}

// width is the greatest number of collectives that are pairwise unordered, by trying
// all sets.
func width(comms []comm) int {
	beside := make([]uint32, len(comms)) // by collective: those that are not ordered with it
	for i := range comms {
		for j := range comms[:i] {
			if !comms[j].before(&comms[i]) {
				beside[i] |= 1 << j
				beside[j] |= 1 << i
			}
		}
	}
	most := 0
	for set := range uint32(1) << len(comms) {
		ok := bits.OnesCount32(set) > most
		for i := range comms {
			ok = ok && (set>>i&1 == 0 || set&^(1<<i)&^beside[i] == 0)
		}
		if ok {
			most = bits.OnesCount32(set)
		}
	}
	return most
}

// Chains are as many as collectives can be in flight at once, and a limit on them is kept
// by waits that only programs beyond it get.
func TestLimitInFlight(t *testing.T) {
	g := rng(3)
	beyond := 0
	for range 400 {
		p := flights(&g, 2+g.pick(5), 16+g.pick(8))
		comms := p.collectives()
		if len(comms) > 14 {
			continue
		}
		w := width(comms)
		if w > 0 && chained(comms, w-1) || !chained(comms, w) {
			t.Fatalf("width %d: %v %v\n%s", w, chained(comms, w-1), chained(comms, w), p)
		}
		for n := 1; n <= w+1; n++ {
			q := *p
			q.LimitInFlight(n)
			if now := width(q.collectives()); now > n || n >= w && q.String() != p.String() {
				t.Fatalf("width %d limited to %d is %d\n%s\n%s", w, n, now, p, &q)
			}
			if n < w {
				beyond++
			}
		}
	}
	if beyond < 100 {
		t.Errorf("%d programs beyond their limit", beyond)
	}
}

// Thousands of collectives on many streams are limited in little time.
func TestLimitInFlightOfMany(t *testing.T) {
	p := &Program{Name: "many", World: 1, Streams: []Stream{{"compute", -1}}}
	for i := range 3000 {
		p.Groups = append(p.Groups, Group{fmt.Sprint("g", i), [][]int{{0}}})
		p.Streams = append(p.Streams, Stream{fmt.Sprint("s", i), i})
		p.Instrs = append(p.Instrs, Instr{Kind: Collective, Op: "barrier", Stream: i + 1, Group: i, Event: -1})
	}
	p.LimitInFlight(8)
	if n := p.Events; n != 2992 {
		t.Errorf("%d waits, want 2992", n)
	}
	if !chained(p.collectives(), 8) {
		t.Error("not limited")
	}
}
