package passes

import (
	"github.com/seed-ee968945/concert/ir"
)

// deps is what a legal order of a function has to respect, in dense form: nodes
// are numbered by their position in the order at the time of analysis. Besides
// the data edges it holds those that effects ask for:
//
//   - an operation that writes its operands' storages keeps its place among all
//     that read or write them through any alias; a wait reads the operands of its
//     collective, since they are in flight until then;
//   - operations that write keep their order among each other;
//   - operations that draw random numbers keep their order;
//   - an opaque call that communicates keeps its place among all communication.
//
// The order of collectives among each other is not part of it: each pass decides
// what it keeps.
type deps struct {
	nodes []*ir.Node
	pos   []int32 // NodeID -> number, -1 for none
	pred  lists   // node -> nodes that must come before it, each once, data first
	data  []int32 // node -> how many of pred are data edges
	succ  lists   // node -> nodes that must come after it, ascending
	sdata []bool  // parallel to succ.val: a data edge
	st    *storages
}

// lists is a dense table of int32 lists.
type lists struct {
	off []int32
	val []int32
}

func (l *lists) at(i int32) []int32 { return l.val[l.off[i]:l.off[i+1]] }

// analyze builds the dependences of f in time linear in nodes, edges and uses.
func analyze(f *ir.Func) *deps {
	order := f.Order()
	n := len(order)
	d := &deps{nodes: order, pos: make([]int32, f.NumNodeIDs()), data: make([]int32, n)}
	for i := range d.pos {
		d.pos[i] = -1
	}
	for i, m := range order {
		d.pos[m.ID()] = int32(i)
	}
	d.st = newStorages(f, d.pos)
	e := newEffects(d)
	d.pred.off = make([]int32, 1, n+1)
	stamp := make([]int32, n)
	for i := range stamp {
		stamp[i] = -1
	}
	for i, m := range order {
		add := func(p int32) {
			if p >= 0 && int(p) != i && stamp[p] != int32(i) {
				stamp[p] = int32(i)
				d.pred.val = append(d.pred.val, p)
			}
		}
		for _, a := range m.Args() {
			add(d.pos[a.Def().ID()])
		}
		d.data[i] = int32(len(d.pred.val)) - d.pred.off[i]
		e.visit(int32(i), m, add)
		d.pred.off = append(d.pred.off, int32(len(d.pred.val)))
	}
	d.successors()
	return d
}

// predLimit names the reason that edge k of node i's predecessors stands for.
func (d *deps) predLimit(i int32, k int) Limit {
	if int32(k) < d.data[i] {
		return LimitData
	}
	return LimitEffect
}

// succLimit names the reason that edge k of node i's successors stands for.
func (d *deps) succLimit(i int32, k int) Limit {
	if d.sdata[d.succ.off[i]+int32(k)] {
		return LimitData
	}
	return LimitEffect
}

// successors turns the edges around.
func (d *deps) successors() {
	n := len(d.nodes)
	off := make([]int32, n+1)
	for _, v := range d.pred.val {
		off[v+1]++
	}
	for i := range n {
		off[i+1] += off[i]
	}
	d.succ = lists{off, make([]int32, len(d.pred.val))}
	d.sdata = make([]bool, len(d.pred.val))
	next := append([]int32(nil), off[:n]...)
	for i := range int32(n) {
		for k, v := range d.pred.at(i) {
			d.succ.val[next[v]] = i
			d.sdata[next[v]] = int32(k) < d.data[i]
			next[v]++
		}
	}
}

// effects walks a program in order and finds the edges that effects ask for.
type effects struct {
	d       *deps
	any     bool      // some node writes: storages have to be followed
	writer  []int32   // storage -> last node that writes it, -1 for none
	readers [][]int32 // storage -> nodes that read it since
	lastAny int32     // last node that writes anything
	random  int32     // last node that draws
	fence   int32     // last opaque call that communicates
	comms   []int32   // collectives since the fence
}

func newEffects(d *deps) *effects {
	e := &effects{d: d, lastAny: -1, random: -1, fence: -1}
	for _, n := range d.nodes {
		e.any = e.any || n.Effects()&ir.EffectWrites != 0
	}
	if e.any {
		e.writer = make([]int32, len(d.st.size))
		e.readers = make([][]int32, len(d.st.size))
		for i := range e.writer {
			e.writer[i] = -1
		}
	}
	return e
}

func (e *effects) visit(i int32, n *ir.Node, add func(int32)) {
	eff := n.Effects()
	if eff&ir.EffectRandom != 0 {
		add(e.random)
		e.random = i
	}
	if eff&ir.EffectCommunicates != 0 {
		add(e.fence)
		if n.Op().IsCollective() {
			e.comms = append(e.comms, i)
		} else {
			for _, c := range e.comms {
				add(c)
			}
			e.comms, e.fence = e.comms[:0], i
		}
	}
	if !e.any || n.Op().IsView() || n.Op() == ir.OpInput {
		return
	}
	if eff&ir.EffectWrites != 0 {
		add(e.lastAny)
		e.lastAny = i
		for _, s := range e.d.st.use.at(i) {
			add(e.writer[s])
			for _, r := range e.readers[s] {
				add(r)
			}
			e.writer[s], e.readers[s] = i, e.readers[s][:0]
		}
		return
	}
	for _, s := range e.d.st.use.at(i) {
		add(e.writer[s])
		e.readers[s] = append(e.readers[s], i)
	}
}

// light reports whether a pass that moves a collective may take n along: n is
// pure and bound by memory traffic at most, and n is not opaque.
func light(n *ir.Node) bool {
	c := n.Op().Class()
	return n.Pure() && n.Op() != ir.OpCall && (c == ir.ClassMemory || c == ir.ClassView)
}

// launches reports whether n occupies the compute stream.
func launches(n *ir.Node) bool {
	c := n.Op().Class()
	return c == ir.ClassMemory || c == ir.ClassCompute
}
