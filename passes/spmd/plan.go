package spmd

import (
	"container/heap"
	"encoding/binary"
	"slices"
)

// This file finds the cheapest sequence of moves from one layout of a tensor to another:
// Dijkstra's search over layouts, of which few lie between two. Prices are picoseconds of a
// machine whose links carry 200 GB/s and whose memory 3 TB/s; what counts is their order.

const (
	latency     = 4_000_000 // of a collective
	perByte     = 5         // that arrives
	perMemory   = 3         // bytes of memory traffic
	launch      = 500_000   // of what runs on a device
	dear        = 8         // times as much as it costs to move a parameter, where these are to stay
	mostLayouts = 4000      // that a search looks at
)

// kind is what a move does.
type kind uint8

const (
	gathers   kind = iota // atoms leave the end of a dimension
	cuts                  // atoms join the end of a dimension: each rank takes its piece
	exchanges             // atoms go from the end of a dimension to that of another
	permutes              // pieces go to other ranks
	reduces               // atoms of a sum are reduced
	scatters              // and join the end of a dimension
)

// move is a step from a layout to another.
type move struct {
	kind     kind
	d, other int
	atoms    []int8
	to       layout
	cost     int64
}

// tensor is what a plan is for.
type tensor struct {
	shape []int64
	bytes int64 // of an element
}

func (g *grid) bytes(t tensor, l layout) int64 {
	n := t.bytes
	for _, k := range g.local(l) {
		n *= k
	}
	return n
}

// state is a layout that the search has reached.
type state struct {
	layout
	cost int64
	from *state
	by   move
	at   int // order of reaching it, so that ties have one winner
}

type queue []*state

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].cost < q[j].cost || q[i].cost == q[j].cost && q[i].at < q[j].at
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*state)) }
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// planned is a plan that was found.
type planned struct {
	moves []move
	cost  int64
}

// plan is the cheapest sequence of moves and what it costs. Each is searched for once.
func (g *grid) plan(t tensor, from, to layout) ([]move, int64) {
	if from.equal(to) {
		return nil, 0
	}
	key := binary.AppendVarint(nil, t.bytes)
	for _, n := range t.shape {
		key = binary.AppendVarint(key, n)
	}
	key = to.appendKey(from.appendKey(key))
	p, ok := g.plans[string(key)]
	if !ok {
		p.moves, p.cost = g.search(t, from, to)
		g.plans[string(key)] = p
	}
	return p.moves, p.cost
}

func (g *grid) search(t tensor, from, to layout) ([]move, int64) {
	if from.inParts() || to.inParts() {
		cost := int64(0)
		for _, h := range g.hops(t, from, to) {
			_, k := g.plan(h.tensor, h.from, h.to)
			cost += k
		}
		return nil, cost
	}
	q := &queue{{layout: from}}
	done := map[string]bool{} // look-up only
	reached := 0
	for n := 0; q.Len() > 0 && n < mostLayouts; n++ {
		s := heap.Pop(q).(*state)
		if s.equal(to) {
			var out []move
			for x := s; x.from != nil; x = x.from {
				out = append(out, x.by)
			}
			slices.Reverse(out)
			return out, s.cost
		}
		k := string(s.appendKey(nil))
		if done[k] {
			continue
		}
		done[k] = true
		for _, m := range g.moves(t, s.layout, to) {
			reached++
			heap.Push(q, &state{layout: m.to, cost: s.cost + m.cost, from: s, by: m, at: reached})
		}
	}
	return g.plain(t, from, to)
}

// plain reduces, gathers everything and takes pieces.
func (g *grid) plain(t tensor, from, to layout) ([]move, int64) {
	var out []move
	cost := int64(0)
	l := from
	add := func(m move) {
		out, cost, l = append(out, m), cost+m.cost, m.to
	}
	if s := l.sum &^ to.sum; s != 0 {
		add(g.reduce(t, l, s))
	}
	for d := range l.dims {
		if len(l.dims[d]) > 0 {
			add(g.gather(t, l, d, len(l.dims[d])))
		}
	}
	for d := range l.dims {
		if len(to.dims[d]) > 0 {
			add(g.slice(t, l, to, d, to.dims[d]))
		}
	}
	return out, cost
}

// moves are the steps that may lead to a layout.
func (g *grid) moves(t tensor, l, to layout) []move {
	var out []move
	if s := l.sum &^ to.sum; s != 0 {
		out = append(out, g.reduce(t, l, s))
	}
	for d := range l.dims {
		if !slices.Equal(l.dims[d], to.dims[d]) || l.pad[d] != to.pad[d] {
			for k := range l.dims[d] {
				out = append(out, g.gather(t, l, d, k+1))
			}
		}
		next := g.next(l, to, d)
		if run := while(next, func(a int8) bool { return l.used()&(1<<a) == 0 }); len(run) > 0 {
			out = append(out, g.slice(t, l, to, d, run))
		}
		run := while(next, func(a int8) bool { return l.sum&^to.sum&(1<<a) != 0 })
		for k := range run {
			out = append(out, g.scatter(t, l, to, d, run[:k+1]))
		}
		for o := range l.dims {
			for k := range l.dims[o] {
				s := l.dims[o][k:]
				if o != d && len(s) <= len(next) && slices.Equal(s, next[:len(s)]) {
					out = append(out, g.exchange(t, l, to, o, d, s))
				}
			}
		}
	}
	if p, ok := g.permuted(l, to); ok {
		out = append(out, move{kind: permutes, to: p, cost: latency + g.bytes(t, l)*perByte})
	}
	return out
}

func while(l []int8, ok func(a int8) bool) []int8 {
	for i, a := range l {
		if !ok(a) {
			return l[:i]
		}
	}
	return l
}

// next are the atoms that a dimension lacks at its end.
func (g *grid) next(l, to layout, d int) []int8 {
	n := len(l.dims[d])
	if n > len(to.dims[d]) || !slices.Equal(l.dims[d], to.dims[d][:n]) || n > 0 && l.pad[d] != to.pad[d] {
		return nil
	}
	return to.dims[d][n:]
}

func (g *grid) reduce(t tensor, l layout, s set) move {
	m := move{kind: reduces, atoms: s.list(), to: l.clone()}
	if m.to.sum &^= s; m.to.sum == 0 {
		m.to.reduce = ""
	}
	k := g.size(m.atoms)
	m.cost = latency + 2*g.bytes(t, l)/k*(k-1)*perByte
	return m
}

func (g *grid) gather(t tensor, l layout, d, k int) move {
	at := len(l.dims[d]) - k
	m := move{kind: gathers, d: d, atoms: l.dims[d][at:], to: l.clone()}
	m.to.dims[d] = slices.Clone(l.dims[d][:at])
	if at == 0 {
		m.to.dims[d], m.to.pad[d] = nil, t.shape[d]
	}
	m.cost = latency + g.bytes(t, l)*(g.size(m.atoms)-1)*perByte
	return m
}

// append is the layout with atoms behind those of a dimension.
func (g *grid) append(l, to layout, d int, atoms []int8) layout {
	out := l.clone()
	out.dims[d], out.pad[d] = slices.Concat(l.dims[d], atoms), to.pad[d]
	return out
}

func (g *grid) slice(t tensor, l, to layout, d int, atoms []int8) move {
	m := move{kind: cuts, d: d, atoms: atoms, to: g.append(l, to, d, atoms)}
	m.cost = launch + 2*g.bytes(t, m.to)/perMemory
	return m
}

func (g *grid) scatter(t tensor, l, to layout, d int, atoms []int8) move {
	m := move{kind: scatters, d: d, atoms: atoms, to: g.append(l, to, d, atoms)}
	if m.to.sum &^= setOf(atoms); m.to.sum == 0 {
		m.to.reduce = ""
	}
	m.cost = latency + g.bytes(t, m.to)*(g.size(atoms)-1)*perByte
	return m
}

func (g *grid) exchange(t tensor, l, to layout, from, d int, atoms []int8) move {
	m := move{kind: exchanges, d: from, other: d, atoms: atoms, to: g.append(l, to, d, atoms)}
	at := len(l.dims[from]) - len(atoms)
	m.to.dims[from] = slices.Clone(l.dims[from][:at])
	if at == 0 {
		m.to.dims[from], m.to.pad[from] = nil, t.shape[from]
	}
	k := g.size(atoms)
	m.cost = latency + g.bytes(t, m.to)/k*(k-1)*perByte
	return m
}

// permuted is the layout with as many pieces of each dimension that is nearest to another
// one: with the atoms of its pieces in front, or those that the first of its atoms make.
func (g *grid) permuted(l, to layout) (layout, bool) {
	out := l.clone()
	taken := l.sum
	type gap struct {
		d    int
		size int64
	}
	var gaps []gap
	for d := range l.dims {
		left, n := g.size(l.dims[d]), 0
		for n < len(to.dims[d]) && left%g.atoms[to.dims[d][n]].size == 0 {
			left /= g.atoms[to.dims[d][n]].size
			n++
		}
		if n < len(to.dims[d]) && left > 1 {
			return out, false
		}
		out.dims[d] = slices.Clone(to.dims[d][:n])
		if taken&setOf(out.dims[d]) != 0 {
			return out, false
		}
		taken |= setOf(out.dims[d])
		if left > 1 {
			gaps = append(gaps, gap{d, left})
		}
	}
	for _, x := range gaps {
		for _, a := range slices.Concat(l.dims...) {
			if k := g.atoms[a].size; taken&(1<<a) == 0 && x.size%k == 0 {
				out.dims[x.d], taken, x.size = append(out.dims[x.d], a), taken|1<<a, x.size/k
			}
		}
		if x.size > 1 {
			return out, false
		}
	}
	return out, !out.equal(l)
}
