package passes

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
// that u runs again, out(r) that r is at hand. The arcs:
//
//	source -> in(u)    price of u's time: running it again costs time
//	in(u) -> out(r)    price of r's bytes: r at hand, u not repeated: r is saved
//	out(r) -> in(v)    infinite, for each r that v reads: repeating v needs r
//	out(r) -> sink     infinite, for each r that a backward unit reads
//
// A unit that must not be repeated has no in(u); its out(r) hang on the source.
// Views have no vertices, parameters are at hand for nothing. An inner value of a
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
	c := &cutter{j: j, in: filled(len(j.units)), out: filled(len(j.roots)), edge: filled(len(j.roots))}
	total := int64(0)
	ms := 0.0
	for i := range j.roots {
		if total += j.roots[i].bytes; total > 1<<60 {
			total = 1 << 60
		}
	}
	for i := range j.units {
		ms += j.units[i].ms
	}
	c.shift = max(0, bits.Len64(uint64(total))-44)
	timeBits := min(30, 58-bits.Len64(uint64(total>>c.shift)))
	if ms > 0 {
		c.quanta = float64(int64(1)<<timeBits) / ms
	}
	n := int32(2)
	arcs := [][3]int64{} // from, to, capacity: infinite ones; the priced are added after the vertices
	c.pos = []int32{-1, -1}
	vertex := func(table []int32, i, unit int32) int32 {
		table[i] = n
		n++
		c.pos = append(c.pos, unit)
		return n - 1
	}
	type visit struct {
		root int32
		edge bool
	}
	var stack []visit
	need := func(r int32, reader int32, to int32) { // to is the vertex that reads r, or the sink
		root := &j.roots[r]
		if root.free || root.tangent || root.twin >= 0 || root.unit >= 0 && j.units[root.unit].side == sideBackward {
			return
		}
		table, outside := c.out, false
		if root.edge && (reader < 0 || !j.inRegion(reader) || j.units[reader].region != j.units[root.unit].region) {
			table, outside = c.edge, true
		}
		if table[r] < 0 {
			vertex(table, r, root.unit)
			stack = append(stack, visit{r, outside})
		}
		arcs = append(arcs, [3]int64{int64(table[r]), int64(to), maxflow.Inf})
	}
	forBackward(j, func(r int32) { need(r, -1, sink) })
	type priceArc struct {
		from, to int32
		amount   int64
		time     bool
	}
	var prices []priceArc
	enter := func(u int32) int32 {
		if c.in[u] < 0 {
			v := vertex(c.in, u, u)
			if q := c.quantaOf(&j.units[u]); q > 0 {
				prices = append(prices, priceArc{source, v, q, true})
			}
			for _, r := range j.units[u].args {
				need(r, u, v)
			}
		}
		return c.in[u]
	}
	for i := range j.units {
		if j.units[i].rerun {
			arcs = append(arcs, [3]int64{int64(enter(int32(i))), sink, maxflow.Inf})
		}
	}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		root := &j.roots[v.root]
		size := (root.bytes + 1<<c.shift - 1) >> c.shift
		switch {
		case v.edge:
			prices = append(prices, priceArc{source, c.edge[v.root], size, false})
		case root.unit < 0 || j.units[root.unit].keep:
			prices = append(prices, priceArc{source, c.out[v.root], size, false})
		case root.inside || root.edge || root.async:
			arcs = append(arcs, [3]int64{int64(enter(root.unit)), int64(c.out[v.root]), maxflow.Inf})
		default:
			prices = append(prices, priceArc{enter(root.unit), c.out[v.root], size, false})
		}
	}
	c.g = maxflow.New(int(n))
	for _, a := range arcs {
		c.g.Add(int32(a[0]), int32(a[1]), a[2])
	}
	for _, p := range prices {
		a := priced{c.g.Add(p.from, p.to, 0), p.amount}
		if p.time {
			c.time = append(c.time, a)
			c.sumT += p.amount
		} else {
			c.memory = append(c.memory, a)
			c.sumM += p.amount
		}
	}
	return c
}

func filled(n int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = -1
	}
	return s
}

// quantaOf is the price of repeating a unit. What runs once wherever it runs
// costs nothing more in backward.
func (c *cutter) quantaOf(u *punit) int64 {
	if u.side == sideFree || u.ms <= 0 {
		return 0
	}
	return max(1, int64(math.Round(u.ms*c.quanta)))
}

// forBackward calls visit for every root that backward units and outputs read.
func forBackward(j *jointFunc, visit func(root int32)) {
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

// ends finds the two ends of the hull: least bytes and, at those, least time; and
// no time at all and, without any, least bytes.
func (c *cutter) ends() error {
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

// around returns the neighbouring corners between which a limit of bytes lies:
// lo within it, hi beyond it, nil if lo is the fastest of all. It asks for the
// corner farthest below the line through the two that it knows, until there is
// none; known corners serve later calls.
func (c *cutter) around(limit int64) (lo, hi *corner, err error) {
	if err := c.ends(); err != nil {
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
