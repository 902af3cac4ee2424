package ir

import (
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/iterator"
)

// Directed is a function's dependence graph as a gonum directed graph: node ids
// are NodeIDs, an edge runs from a node to each user of its results, once. It is
// a snapshot of the function at the time of the call and costs O(nodes + uses)
// to make; every algorithm of gonum runs on it. Nodes are iterated in program
// order, neighbours in ascending program order, so results are reproducible.
type Directed struct {
	f        *Func
	order    []graph.Node
	from, to [][]graph.Node // by NodeID
}

// GraphNode is a node of Directed; it prints its name in DOT.
type GraphNode struct{ *Node }

// ID is the NodeID.
func (n GraphNode) ID() int64 { return int64(n.Node.id) }

// DOTID is the node's name.
func (n GraphNode) DOTID() string { return n.Node.name }

var _ graph.Directed = (*Directed)(nil)

// Directed returns the dependence graph of f.
func (f *Func) Directed() *Directed {
	d := &Directed{f: f, from: make([][]graph.Node, len(f.nodes)), to: make([][]graph.Node, len(f.nodes))}
	boxed := make([]graph.Node, len(f.nodes))
	for _, n := range f.Order() {
		boxed[n.id] = GraphNode{n}
		d.order = append(d.order, boxed[n.id])
	}
	lastUser := make([]NodeID, len(f.nodes)) // id+1 of the latest user that has an edge from the node
	for _, n := range f.Order() {
		for _, a := range n.args {
			if def := a.def.id; lastUser[def] != n.id+1 {
				lastUser[def] = n.id + 1
				d.from[def] = append(d.from[def], boxed[n.id])
				d.to[n.id] = append(d.to[n.id], boxed[def])
			}
		}
	}
	return d
}

// Node returns the node of that id, or nil.
func (d *Directed) Node(id int64) graph.Node {
	if id < 0 || id >= int64(len(d.from)) || d.f.nodes[id] == nil {
		return nil
	}
	return GraphNode{d.f.nodes[id]}
}

// Nodes iterates in program order.
func (d *Directed) Nodes() graph.Nodes { return nodes(d.order) }

// From iterates over the users of a node's results.
func (d *Directed) From(id int64) graph.Nodes { return d.neighbours(d.from, id) }

// To iterates over the nodes that define a node's operands.
func (d *Directed) To(id int64) graph.Nodes { return d.neighbours(d.to, id) }

func (d *Directed) neighbours(lists [][]graph.Node, id int64) graph.Nodes {
	if id < 0 || id >= int64(len(lists)) {
		return graph.Empty
	}
	return nodes(lists[id])
}

func nodes(ns []graph.Node) graph.Nodes {
	if len(ns) == 0 {
		return graph.Empty
	}
	return iterator.NewOrderedNodes(ns)
}

// HasEdgeBetween reports whether either node uses a result of the other.
func (d *Directed) HasEdgeBetween(x, y int64) bool {
	return d.HasEdgeFromTo(x, y) || d.HasEdgeFromTo(y, x)
}

// HasEdgeFromTo reports whether v uses a result of u.
func (d *Directed) HasEdgeFromTo(u, v int64) bool { return d.Edge(u, v) != nil }

// Edge returns the edge from u to v, or nil.
func (d *Directed) Edge(u, v int64) graph.Edge {
	if u < 0 || u >= int64(len(d.from)) {
		return nil
	}
	for _, n := range d.from[u] {
		if n.ID() == v {
			return edge{d.Node(u), n}
		}
	}
	return nil
}

type edge struct{ from, to graph.Node }

func (e edge) From() graph.Node         { return e.from }
func (e edge) To() graph.Node           { return e.to }
func (e edge) ReversedEdge() graph.Edge { return edge{e.to, e.from} }
