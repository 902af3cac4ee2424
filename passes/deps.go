package passes

import (
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sim"
)

// deps is a function as the passes that move nodes see it: the simulator's model
// of its order at the time of analysis, so that time, memory and effects have one
// definition. Node i is nodes[i]. The model's edges are data and what effects
// ask for; the order of collectives among each other is not part of it: each pass
// decides what it keeps.
type deps struct {
	*sim.Model
	nodes  []*ir.Node
	pos    []int32 // NodeID -> node of the model, -1 for none
	inputs int32   // how many nodes are inputs; they come first
}

// analyze builds the model of f with the costs of ctx. Linear in nodes, edges and uses.
func analyze(ctx *Context, f *ir.Func) (*deps, error) {
	return analyzeWith(f, sim.FuncOptions{Ms: ctx.Cost})
}

// analyzeWith is analyze for who decides more than order.
func analyzeWith(f *ir.Func, opts sim.FuncOptions) (*deps, error) {
	m, err := sim.FromFunc(f, opts)
	if err != nil {
		return nil, err
	}
	d := &deps{Model: m, nodes: f.Order(), pos: make([]int32, f.NumNodeIDs()), inputs: int32(len(f.Inputs()))}
	for i := range d.pos {
		d.pos[i] = -1
	}
	for i, n := range d.nodes {
		d.pos[n.ID()] = int32(i)
	}
	return d, nil
}

// limit says what kind of reason makes b stand behind a, which is an edge of the model.
func (d *deps) limit(a, b int32) Limit {
	const few = 8
	if args := d.nodes[b].Args(); len(args) <= few {
		for _, v := range args {
			if v.Def() == d.nodes[a] {
				return LimitData
			}
		}
		return LimitEffect
	}
	for _, r := range d.nodes[a].Results() { // a return may have thousands of operands
		for _, u := range r.Uses() {
			if u.Node == d.nodes[b] {
				return LimitData
			}
		}
	}
	return LimitEffect
}

// permuted is the order of nodes that an order of the model's nodes stands for.
func (d *deps) permuted(order []int32) []*ir.Node {
	out := make([]*ir.Node, len(order))
	for p, v := range order {
		out[p] = d.nodes[v]
	}
	return out
}

// waitOf returns the node that waits for start s, or -1 if it leaves in flight.
func (d *deps) waitOf(s int32) int32 {
	for _, w := range d.Succ.At(s) {
		if d.StartOf[w] == s {
			return w
		}
	}
	return -1
}

// exposed is the time for which the compute stream blocks at the wait of start
// s, in milliseconds.
func (d *deps) exposed(t *sim.Timeline, s int32) float64 {
	if w := d.waitOf(s); w >= 0 {
		return max(0, t.End[w]-t.Issue[w])
	}
	return 0
}

// lists is a dense table of int32 lists.
type lists struct {
	off []int32
	val []int32
}

func (l *lists) at(i int32) []int32 { return l.val[l.off[i]:l.off[i+1]] }

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
