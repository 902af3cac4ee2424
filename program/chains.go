package program

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Chain is launches and copies that follow each other in a stream: nothing stands
// between them that the stream waits for. Devices may do several of them by one
// launch, or begin one before the one before it has ended, so that a chain takes
// less time than its instructions one by one.
type Chain struct {
	Stream int
	Instrs []int // ascending
}

// Chains lists the chains of a program in the order of their first instructions.
// Every launch and copy is in one of them.
func (p *Program) Chains() []Chain {
	var out []Chain
	open := make([]int, len(p.Streams)) // by stream: the chain that goes on, or -1
	for i := range open {
		open[i] = -1
	}
	for i := range p.Instrs {
		in := &p.Instrs[i]
		switch in.Kind {
		case Wait, Collective:
			open[in.Stream] = -1
		case Loop, Test, Case, Branch, End:
			for s := range open {
				open[s] = -1
			}
		case Launch, Copy:
			if open[in.Stream] < 0 {
				open[in.Stream] = len(out)
				out = append(out, Chain{Stream: in.Stream})
			}
			c := &out[open[in.Stream]]
			c.Instrs = append(c.Instrs, i)
		}
	}
	return out
}

// ChainKey names what a chain costs, as CostKey does for an instruction: chains of one
// key have instructions of the same keys in the same order. A chain of one instruction
// has a key of its own, too.
//
//	chain of 3 matmul...fused 41cf0b4be26a1f03
func (p *Program) ChainKey(c Chain) string {
	h := sha256.New()
	var ends []string
	for n, i := range c.Instrs {
		key := p.CostKey(&p.Instrs[i])
		fmt.Fprintln(h, key)
		if n == 0 || n == len(c.Instrs)-1 {
			op, _, _ := strings.Cut(key, " ")
			op, _, _ = strings.Cut(op, "(")
			ends = append(ends, op)
		}
	}
	return fmt.Sprintf("chain of %d %s %s", len(c.Instrs), strings.Join(ends, "..."), hex.EncodeToString(h.Sum(nil)[:8]))
}

// residency bounds how many collectives may be in flight at once: for each one,
// the streams that hold another that is neither before nor after it. No set of
// collectives in flight together is larger than that number plus one. Where that is too
// many, chains decide, exactly.
func (c *checker) residency() {
	by := make([][]int32, len(c.p.Streams)) // by stream: its comms
	for k := range c.comms {
		by[c.comms[k].stream] = append(by[c.comms[k].stream], int32(k))
	}
	worst, at := 0, 0
	var with []int
	for k := range c.comms {
		a := &c.comms[k]
		n := 1
		var others []int
		for t, list := range by {
			if t == int(a.stream) || len(list) == 0 {
				continue
			}
			// The first on t that is not before a; if that one is after a, all
			// later ones are, too.
			j, _ := slices.BinarySearchFunc(list, a.clock[t], func(k, done int32) int { return int(c.comms[k].instr - done) })
			if j < len(list) && c.comms[list[j]].clock[a.stream] <= a.instr {
				n++
				others = append(others, int(c.comms[list[j]].instr))
			}
		}
		if n > worst {
			worst, at, with = n, int(a.instr), others
		}
	}
	c.r.Stats.InFlight = worst
	if c.o.InFlight > 0 && worst > c.o.InFlight && chained(c.comms, c.o.InFlight) {
		c.r.Stats.InFlight = c.o.InFlight
	} else if c.o.InFlight > 0 && worst > c.o.InFlight {
		slices.Sort(with)
		f := Finding{Kind: InFlight, First: c.site(at), Second: c.site(with[0]), Count: worst, Limit: c.o.InFlight}
		if f.Second.Index < f.First.Index {
			f.First, f.Second = f.Second, f.First
		}
		c.add(f)
	}
}
