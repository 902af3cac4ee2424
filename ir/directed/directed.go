// Package directed has a function's dependence graph as a directed graph of gonum, on which its
// algorithms and its DOT encoder run.
package directed

import (
	"github.com/seed-ee968945/concert/ir"
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/iterator"
)

// Graph is a function's dependence graph as a gonum directed graph: node ids
// are NodeIDs, an edge runs from a node to each user of its results, once. It is
// a snapshot of the function at the time of the call and costs O(nodes + uses)
// to make; every algorithm of gonum runs on it. Nodes are iterated in program
// order, neighbours in ascending program order, so results are reproducible.
type Graph struct {
	order    []graph.Node
	nodes    []graph.Node // by NodeID, as are the following; nil for none
	from, to [][]graph.Node
}

// Node is a node of a Graph; it prints its name in DOT.
type Node struct{ *ir.Node }

// ID is the NodeID.
func (n Node) ID() int64 { return int64(n.Node.ID()) }

// DOTID is the node's name.
func (n Node) DOTID() string { return n.Name() }

var _ graph.Directed = (*Graph)(nil)

// Of returns the dependence graph of f.
func Of(f *ir.Func) *Graph {
	ids := f.NumNodeIDs()
	d := &Graph{nodes: make([]graph.Node, ids), from: make([][]graph.Node, ids), to: make([][]graph.Node, ids)}
	for _, n := range f.Order() {
		d.nodes[n.ID()] = Node{n}
	}
	lastUser := make([]ir.NodeID, ids) // id+1 of the latest user that has an edge from the node
	for _, n := range f.Order() {
		id := n.ID()
		d.order = append(d.order, d.nodes[id])
		for _, a := range n.Args() {
			if def := a.Def().ID(); lastUser[def] != id+1 {
				lastUser[def] = id + 1
				d.from[def] = append(d.from[def], d.nodes[id])
				d.to[id] = append(d.to[id], d.nodes[def])
			}
		}
	}
	return d
}

// Node returns the node of that id, or nil.
func (d *Graph) Node(id int64) graph.Node {
	if id < 0 || id >= int64(len(d.nodes)) {
		return nil
	}
	return d.nodes[id]
}

// Nodes iterates in program order.
func (d *Graph) Nodes() graph.Nodes { return list(d.order) }

// From iterates over the users of a node's results.
func (d *Graph) From(id int64) graph.Nodes { return d.neighbours(d.from, id) }

// To iterates over the nodes that define a node's operands.
func (d *Graph) To(id int64) graph.Nodes { return d.neighbours(d.to, id) }

func (d *Graph) neighbours(lists [][]graph.Node, id int64) graph.Nodes {
	if id < 0 || id >= int64(len(lists)) {
		return graph.Empty
	}
	return list(lists[id])
}

func list(ns []graph.Node) graph.Nodes {
	if len(ns) == 0 {
		return graph.Empty
	}
	return iterator.NewOrderedNodes(ns)
}

// HasEdgeBetween reports whether either node uses a result of the other.
func (d *Graph) HasEdgeBetween(x, y int64) bool {
	return d.HasEdgeFromTo(x, y) || d.HasEdgeFromTo(y, x)
}

// HasEdgeFromTo reports whether v uses a result of u.
func (d *Graph) HasEdgeFromTo(u, v int64) bool { return d.Edge(u, v) != nil }

// Edge returns the edge from u to v, or nil.
func (d *Graph) Edge(u, v int64) graph.Edge {
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
