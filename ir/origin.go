package ir

import "slices"

// This file keeps track of where nodes come from. Passes copy nodes, put one in the
// place of another, and join several to a bucket; what they make names the nodes
// that it was made from (NodeSpec.From, Func.Derive). Neither links nor origins have
// a text form: they live as long as the graph in memory.

// Sources are the ids of the nodes that n was made from, by way of whatever was
// between: the original of a copy, the members of a bucket, what a rewrite replaced.
// They may have been removed. Nil for a node that was not made from others. Ids are
// those of n's function, and outlive Module.Clone: two clones of a module, of which
// one went through passes, can be compared. The caller must not change the list.
func (n *Node) Sources() []NodeID { return n.sources }

// Origins are the caller's own objects that n stands for, in the order in which they
// were joined: what NodeSpec.Origin or SetOrigin attached to n, and the origins of the
// nodes that it was made from. Empty if none has any. No pass reads them.
func (n *Node) Origins() []any {
	out := make([]any, len(n.origins))
	for i, o := range n.origins {
		out[i] = o.object
	}
	return out
}

// Member is a collective that is in a bucket.
type Member struct {
	Name    string
	Sources []NodeID // the nodes that it was made from, or its own id if it was made from none
	Origins []any
}

// Members says, for each operand of a collective, which collective it was of before
// buckets were formed: entries of one collective are the same pointer. Those of a
// collective that is no bucket are itself. A bucket that was read from text has none.
func (n *Node) Members() []*Member {
	if n.members != nil || !n.op.IsCollective() || n.meta.Has("members") {
		return n.members
	}
	m := &Member{Name: n.name, Sources: n.sources, Origins: n.Origins()}
	if m.Sources == nil {
		m.Sources = []NodeID{n.id}
	}
	return slices.Repeat([]*Member{m}, len(n.args))
}

// origin holds an object of the caller's, which need not be comparable.
type origin struct{ object any }

// SetOrigin attaches the caller's own object to n.
func (f *Func) SetOrigin(n *Node, o any) { n.origins = []*origin{{o}} }

// Derive records that n was made from other nodes, in addition to those that it is
// known to be made from. Nodes of other functions pass on their origins only.
func (f *Func) Derive(n *Node, from ...*Node) { f.derive(n, from, true) }

func (f *Func) derive(n *Node, from []*Node, replaces bool) {
	for _, s := range from {
		if s == n {
			continue
		}
		if s.fn == f {
			ids := s.sources
			if ids == nil {
				ids = []NodeID{s.id}
			}
			n.sources = joined(n.sources, ids)
			if replaces {
				f.inheritOrder(n, s)
			}
		}
		n.origins = joined(n.origins, s.origins)
	}
}

// joined is a with what b has beyond it. Neither is changed: clones share them.
func joined[T comparable](a, b []T) []T {
	a = a[:len(a):len(a)]
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}
