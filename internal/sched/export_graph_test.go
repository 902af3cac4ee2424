package sched

import (
	"fmt"

	"github.com/seed-ee968945/concert/sim"
	"github.com/seed-ee968945/concert/sim/simtest"
)

// exported is the graph in the given order. A bucket becomes one collective
// node with the names of its members, a wait, and for each wait of a member a view
// that keeps the member's wait's name.
func exported(g *simtest.Graph, order []int32, buckets []sim.Bucket) *simtest.Graph {
	out := &simtest.Graph{Name: g.Name, World: g.World, Groups: g.Groups}
	id := make(map[string]int32, len(g.Nodes))
	for i := range g.Nodes {
		id[g.Nodes[i].Name] = int32(i)
	}
	bucketOf := map[int32]int{}
	place := map[int32]int{}
	for b := range buckets {
		for k, s := range buckets[b].Members {
			bucketOf[s], place[s] = b, k
		}
	}
	begun, waited := map[int]bool{}, map[int]bool{}
	for _, v := range order {
		x := g.Nodes[v]
		switch x.Kind {
		case "collective":
			if b, ok := bucketOf[v]; ok {
				if !begun[b] {
					begun[b] = true
					out.Nodes = append(out.Nodes, bucketNode(g, b, buckets[b]))
				}
				continue
			}
		case "wait":
			if b, ok := bucketOf[id[x.Inputs[0]]]; ok {
				w := fmt.Sprintf("bucket_%d_wait", b)
				if !waited[b] {
					waited[b] = true
					n := out.Nodes[len(out.Nodes)-1]
					for i := range out.Nodes {
						if out.Nodes[i].Name == fmt.Sprintf("bucket_%d", b) {
							n = out.Nodes[i]
						}
					}
					out.Nodes = append(out.Nodes, simtest.Node{Name: w, Kind: "wait", Target: x.Target, Inputs: []string{n.Name},
						Args: "(" + n.Name + ",)", Out: n.Out})
				}
				x.Kind, x.Inputs = "view", []string{w}
				x.Args = fmt.Sprintf("(%s, %d)", w, place[id[g.Nodes[v].Inputs[0]]])
			}
		}
		out.Nodes = append(out.Nodes, x)
	}
	return out
}

func bucketNode(g *simtest.Graph, b int, bucket sim.Bucket) simtest.Node {
	first := g.Nodes[bucket.Members[0]]
	n := simtest.Node{Name: fmt.Sprintf("bucket_%d", b), Kind: "collective", Target: first.Target, Op: first.Op, Group: first.Group, Reduce: first.Reduce, Ms: bucket.Dur}
	seen := map[string]bool{}
	for _, s := range bucket.Members {
		x := g.Nodes[s]
		n.Members = append(n.Members, x.Name)
		n.Out = append(n.Out, x.Out...)
		for _, in := range x.Inputs {
			if !seen[in] {
				seen[in] = true
				n.Inputs = append(n.Inputs, in)
			}
		}
	}
	return n
}
