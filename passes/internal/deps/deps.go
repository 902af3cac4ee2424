// Package deps has the dependence view of a function that code-motion passes share, and queries about
// its values.
package deps

import (
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/sim"
)

// Func is a function as the passes that move nodes see it: the simulator's model
// of its order at the time of analysis, so that time, memory and effects have one
// definition. Node i is Nodes[i]. The model's edges are data and what effects
// ask for; the order of collectives among each other is not part of it: each pass
// decides what it keeps.
type Func struct {
	*sim.Model
	Nodes  []*ir.Node
	Pos    []int32 // NodeID -> node of the model, -1 for none
	Inputs int32   // how many nodes are inputs; they come first
}

// Analyze builds the model of f with the costs of ctx. Linear in nodes, edges and uses.
func Analyze(ctx *passes.Context, f *ir.Func) (*Func, error) {
	return AnalyzeWith(f, sim.FuncOptions{Ms: ctx.Cost})
}

// AnalyzeWith is analyze for who decides more than order.
func AnalyzeWith(f *ir.Func, opts sim.FuncOptions) (*Func, error) {
	m, err := sim.FromFunc(f, opts)
	if err != nil {
		return nil, err
	}
	d := &Func{Model: m, Nodes: f.Order(), Pos: make([]int32, f.NumNodeIDs()), Inputs: int32(len(f.Inputs()))}
	for i := range d.Pos {
		d.Pos[i] = -1
	}
	for i, n := range d.Nodes {
		d.Pos[n.ID()] = int32(i)
	}
	return d, nil
}

// Limit says what kind of reason makes b come after a, which is an edge of the model.
func (d *Func) Limit(a, b int32) passes.Limit {
	const few = 8
	if args := d.Nodes[b].Args(); len(args) <= few {
		for _, v := range args {
			if v.Def() == d.Nodes[a] {
				return passes.LimitData
			}
		}
		return passes.LimitEffect
	}
	for _, r := range d.Nodes[a].Results() { // a return may have thousands of operands
		for _, u := range r.Uses() {
			if u.Node == d.Nodes[b] {
				return passes.LimitData
			}
		}
	}
	return passes.LimitEffect
}

// Permuted is the order of nodes that an order of the model's nodes stands for.
func (d *Func) Permuted(order []int32) []*ir.Node {
	out := make([]*ir.Node, len(order))
	for p, v := range order {
		out[p] = d.Nodes[v]
	}
	return out
}

// WaitOf returns the node that waits for start s, or -1 if it leaves in flight.
func (d *Func) WaitOf(s int32) int32 {
	for _, w := range d.Succ.At(s) {
		if d.StartOf[w] == s {
			return w
		}
	}
	return -1
}

// Exposed is the time for which the compute stream blocks at the wait of start
// s, in milliseconds.
func (d *Func) Exposed(t *sim.Timeline, s int32) float64 {
	if w := d.WaitOf(s); w >= 0 {
		return max(0, t.End[w]-t.Issue[w])
	}
	return 0
}

// Light reports whether a pass that moves a collective may take n along: n is
// pure and bound by memory traffic at most, and n is not opaque.
func Light(n *ir.Node) bool {
	c := n.Op().Class()
	return n.Pure() && n.Op() != ir.OpCall && (c == ir.ClassMemory || c == ir.ClassView)
}

// Launches reports whether n occupies the compute stream.
func Launches(n *ir.Node) bool {
	c := n.Op().Class()
	return c == ir.ClassMemory || c == ir.ClassCompute
}
