package ir

import "slices"

// An order-only edge says that a node stands after another though it reads nothing of it:
// the caller knows a reason, such as a library that must be called first, that neither
// operands nor effects show. In the order of a function issue order is time order on every
// stream; of a collective the edge orders the start, of a wait the end. Text has the edges
// behind everything else of a line:
//
//	%y = neg %x : f32[8] after %warmup, %other
//
// Nodes at either end are not pure: no pass removes, copies, fuses or buckets them, and
// what moves nodes asks EffectOrder, which knows the edges. What replaces a node has its
// edges (Func.Derive).

// After lists the nodes that n has to come after without reading them, in the order in
// which the edges were added. The caller must not change the list.
func (n *Node) After() []*Node { return n.after }

// Ordered reports whether n has order-only edges at either end, or is a collective between stages or
// the wait for one, which keep an order, too.
func (n *Node) Ordered() bool { return len(n.after)+len(n.before) > 0 || n.betweenStages() }

// AddAfter adds order-only edges: n has to come after each of the others, which the
// verifier checks. Edges that are there already are not added again.
func (f *Func) AddAfter(n *Node, others ...*Node) {
	for _, o := range others {
		if o.fn != f || n.fn != f {
			panic("ir: an order-only edge between two functions")
		}
		if o != n && !slices.Contains(n.after, o) {
			n.after, o.before = append(n.after, o), append(o.before, n)
			f.version++
		}
	}
}

// unorder drops the order-only edges of a node that is removed.
func (n *Node) unorder() {
	is := func(o *Node) bool { return o == n }
	for _, o := range n.after {
		o.before = slices.DeleteFunc(o.before, is)
	}
	for _, o := range n.before {
		o.after = slices.DeleteFunc(o.after, is)
	}
	n.after, n.before = nil, nil
}

// inheritOrder gives n the order-only edges of what it was made from. A view does not run, and has none.
func (f *Func) inheritOrder(n, from *Node) {
	if n.op.IsView() {
		return
	}
	f.AddAfter(n, from.after...)
	for _, o := range from.before {
		f.AddAfter(o, n)
	}
}

// cloneOrder maps the order-only edges of n to the nodes of a copy of its function.
func (n *Node) cloneOrder(nodes []*Node) (after, before []*Node) {
	for _, o := range n.after {
		after = append(after, nodes[o.id])
	}
	for _, o := range n.before {
		before = append(before, nodes[o.id])
	}
	return after, before
}
