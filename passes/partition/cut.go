package partition

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/seed-ee968945/concert/internal/maxflow"
)

// This file turns the choice of what to save into minimum cuts.
//
// Every unit that could be repeated in backward has a vertex in(u), every root a
// vertex out(r). The sink side of a cut is what backward has: in(u) there means
// that u runs again, out(r) that r is available. The arcs:
//
//	source -> in(u)    price of u's time: running it again costs time
//	in(u) -> out(r)    price of r's bytes: r at hand, u not repeated: r is saved
//	out(r) -> in(v)    infinite, for each r that v reads: repeating v needs r
//	out(r) -> sink     infinite, for each r that a backward unit reads
//
// A unit that must not be repeated has no in(u); its out(r) hang on the source.
// Views have no vertices, parameters are available for nothing. An inner value of a
// checkpointed region has an infinite arc in(u) -> out(r): it cannot be saved. A
// result of a region has a second vertex for its readers outside, which only
// saving serves. So
//
//	cut = price of bytes * bytes saved + price of time * time repeated,
//
// and a minimum cut is the best choice for that exchange rate: one corner of the
// convex hull of all choices. The prices are integers, so corners are exact.
type cutter struct {
	j    *jointFunc
	g    *maxflow.Graph
	in   []int32 // unit -> vertex, -1 for none
	out  []int32 // root -> vertex
	edge []int32 // root -> vertex for readers outside of its region
	pos  []int32 // vertex -> unit that it stands for or whose result it is

	memory []priced // arcs whose price is bytes
	time   []priced // arcs whose price is time

	shift  int     // bytes are counted in units of 1 << shift
	quanta float64 // quanta of time in a millisecond
	sumM   int64   // of memory, in units
	sumT   int64   // of time, in quanta
	solves int

	corners []corner // found so far, by ascending bytes
}

// priced is an arc and how much of the resource it stands for.
type priced struct {
	arc    maxflow.Arc
	amount int64
}

// corner is a point of the convex hull: the best choice at some exchange rate.
type corner struct {
	m, t int64 // units of bytes saved, quanta of time repeated
	keep []bool
}

const source, sink = 0, 1

// newCutter builds the network. Linear in the forward part of the function.
func newCutter(j *jointFunc) *cutter {
	c := &cutter{j: j, in: minusOnes(len(j.units)), out: minusOnes(len(j.roots)), edge: minusOnes(len(j.roots)), pos: []int32{-1, -1}}
	c.scale()
	b := &netBuilder{cutter: c}
	eachBackwardRoot(j, func(r int32) { b.need(r, -1, sink) })
	for i := range j.units {
		if j.units[i].rerun {
			b.infinite(b.enter(int32(i)), sink)
		}
	}
	for len(b.stack) > 0 {
		v := b.stack[len(b.stack)-1]
		b.stack = b.stack[:len(b.stack)-1]
		b.provide(v)
	}
	c.g = maxflow.New(len(c.pos))
	for _, a := range b.arcs {
		id := c.g.Add(a.from, a.to, maxflow.Inf)
		switch a.kind {
		case arcBytes:
			c.memory = append(c.memory, priced{id, a.amount})
			c.sumM += a.amount
		case arcTime:
			c.time = append(c.time, priced{id, a.amount})
			c.sumT += a.amount
		}
	}
	return c
}

// scale chooses the units of bytes and of time. Prices are as large as the sum of
// the other resource, so that the two sums, multiplied and doubled, have to stay
// below maxflow.Inf/2: bytes may count twice, for readers in and outside of a
// region, and every unit's time is at least one quantum. Bytes get up to 40 bits,
// exact up to a tebibyte; time what is left.
func (c *cutter) scale() {
	total, ms, units := int64(0), 0.0, 0
	for i := range c.j.roots {
		total = min(total+c.j.roots[i].bytes, 1<<60)
	}
	for i := range c.j.units {
		if u := &c.j.units[i]; u.side == sideForward && !u.keep {
			ms += u.ms
			units++
		}
	}
	have := bits.Len64(uint64(total))
	most := min(40, 56-bits.Len(uint(units)))
	c.shift = max(0, have-most)
	if ms > 0 {
		c.quanta = float64(int64(1)<<min(30, 57-min(have, most))) / ms
	}
}

// netBuilder collects the arcs while vertices are still being found, from what
// backward reads towards the inputs.
type netBuilder struct {
	*cutter
	arcs  []netArc
	stack []neededRoot // whose providers are still to be added
}

// The kinds of arcs.
const (
	arcInfinite = iota
	arcBytes
	arcTime
)

type netArc struct {
	from, to int32
	kind     int
	amount   int64
}

// neededRoot is a root that some vertex needs; edge says for readers outside of its region.
type neededRoot struct {
	root int32
	edge bool
}

func (b *netBuilder) infinite(from, to int32) {
	b.arcs = append(b.arcs, netArc{from, to, arcInfinite, 0})
}

func (b *netBuilder) vertex(table []int32, i, unit int32) int32 {
	table[i] = int32(len(b.pos))
	b.pos = append(b.pos, unit)
	return table[i]
}

// need says that root r must be at hand for vertex to, that of unit reader, or of
// backward for -1.
func (b *netBuilder) need(r, reader, to int32) {
	j := b.j
	root := &j.roots[r]
	if root.free || root.tangent || root.duplicate >= 0 || root.unit >= 0 && j.units[root.unit].side == sideBackward {
		return
	}
	table := b.out
	outside := root.edge && (reader < 0 || !j.inRegion(reader) || j.units[reader].region != j.units[root.unit].region)
	if outside {
		table = b.edge
	}
	if table[r] < 0 {
		b.vertex(table, r, root.unit)
		b.stack = append(b.stack, neededRoot{r, outside})
	}
	b.infinite(table[r], to)
}

// enter returns the vertex of a unit that backward could repeat.
func (b *netBuilder) enter(u int32) int32 {
	if b.in[u] < 0 {
		v := b.vertex(b.in, u, u)
		if q := b.quantaOf(&b.j.units[u]); q > 0 {
			b.arcs = append(b.arcs, netArc{source, v, arcTime, q})
		}
		for _, r := range b.j.units[u].args {
			b.need(r, u, v)
		}
	}
	return b.in[u]
}

// provide adds the ways in which backward can have a root.
func (b *netBuilder) provide(v neededRoot) {
	root := &b.j.roots[v.root]
	size := (root.bytes + 1<<b.shift - 1) >> b.shift
	switch {
	case v.edge:
		b.arcs = append(b.arcs, netArc{source, b.edge[v.root], arcBytes, size})
	case root.unit < 0 || b.j.units[root.unit].keep:
		b.arcs = append(b.arcs, netArc{source, b.out[v.root], arcBytes, size})
	case root.inside || root.edge || root.async:
		b.infinite(b.enter(root.unit), b.out[v.root])
	default:
		b.arcs = append(b.arcs, netArc{b.enter(root.unit), b.out[v.root], arcBytes, size})
	}
}

func minusOnes(n int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = -1
	}
	return s
}

// quantaOf is the price of repeating a unit. What runs once wherever it runs
// costs nothing more in backward.
func (c *cutter) quantaOf(u *planUnit) int64 {
	if u.side == sideFree || u.ms <= 0 {
		return 0
	}
	return max(1, int64(math.Round(u.ms*c.quanta)))
}

// eachBackwardRoot calls visit for every root that backward units and outputs read.
func eachBackwardRoot(j *jointFunc, visit func(root int32)) {
	for i := range j.units {
		if u := &j.units[i]; u.wanted && u.side == sideBackward {
			for _, r := range u.args {
				visit(r)
			}
		}
	}
	for _, k := range j.bwOuts {
		visit(j.rootOf[j.f.Return().Arg(k).ID()])
	}
}

// solve finds the best choice at the given prices of a unit of bytes and a
// quantum of time. Of equal cuts it takes the one with the fewest repeated units,
// which makes the choices nested: a higher price of time repeats no unit more.
func (c *cutter) solve(perByte, perQuantum int64) (corner, int64, error) {
	c.j.ctx.Tick()
	for _, a := range c.memory {
		c.g.SetCapacity(a.arc, a.amount*perByte)
	}
	for _, a := range c.time {
		c.g.SetCapacity(a.arc, a.amount*perQuantum)
	}
	c.solves++
	value, err := c.g.Solve(source, sink)
	if err != nil {
		return corner{}, 0, fmt.Errorf("partition: %w", err) // no legal input leads here
	}
	p := corner{keep: c.g.LargestSourceSide()}
	for _, a := range c.memory {
		if u, v := c.g.Ends(a.arc); p.keep[u] && !p.keep[v] {
			p.m += a.amount
		}
	}
	for _, a := range c.time {
		if u, v := c.g.Ends(a.arc); p.keep[u] && !p.keep[v] {
			p.t += a.amount
		}
	}
	return p, value, nil
}

// extremes finds the two ends of the hull: least bytes and, at those, least time; and
// no time at all and, without any, least bytes.
func (c *cutter) extremes() error {
	if c.corners != nil {
		return nil
	}
	least, _, err := c.solve(c.sumT+1, 1)
	if err != nil {
		return err
	}
	fast, _, err := c.solve(1, c.sumM+1)
	if err != nil {
		return err
	}
	c.corners = []corner{least}
	if fast.m > least.m {
		c.corners = append(c.corners, fast)
	}
	return nil
}

// neighbours returns the neighbouring corners between which a limit of bytes lies:
// lo within it, hi beyond it, nil if lo is the fastest of all. It asks for the
// corner farthest below the line through the two that it knows, until there is
// none; known corners serve later calls.
func (c *cutter) neighbours(limit int64) (lo, hi *corner, err error) {
	if err := c.extremes(); err != nil {
		return nil, nil, err
	}
	k := 0
	for k+1 < len(c.corners) && c.corners[k+1].m <= limit {
		k++
	}
	for k+1 < len(c.corners) {
		a, b := &c.corners[k], &c.corners[k+1]
		perByte, perQuantum := a.t-b.t, b.m-a.m
		p, value, err := c.solve(perByte, perQuantum)
		if err != nil {
			return nil, nil, err
		}
		if value >= perByte*a.m+perQuantum*a.t || p.m <= a.m || p.m >= b.m {
			return a, b, nil
		}
		c.corners = append(c.corners, corner{})
		copy(c.corners[k+2:], c.corners[k+1:])
		c.corners[k+1] = p
		if p.m <= limit {
			k++
		}
	}
	return &c.corners[k], nil, nil
}

// saved lists, by root, what the choice saves.
func (c *cutter) saved(keep []bool) []bool {
	out := make([]bool, len(c.j.roots))
	for r := range out {
		if e := c.edge[r]; e >= 0 && !keep[e] {
			out[r] = true
		}
		if v := c.out[r]; v >= 0 && !keep[v] {
			u := c.j.roots[r].unit
			out[r] = out[r] || u < 0 || c.j.units[u].keep || c.in[u] >= 0 && keep[c.in[u]]
		}
	}
	return out
}
