// Package maxflow computes maximum flows and minimum cuts of directed graphs with
// integer capacities. It serves decisions that are solved again and again on one
// graph under other capacities: arcs are added once, capacities may be set
// between solves, and nothing is allocated after the first solve.
//
// The algorithm is Dinic's (E. A. Dinic, 1970): while the sink can be reached, a
// breadth-first search labels every vertex with its distance to the sink, and a
// depth-first search sends flow along arcs that lead one step closer until every
// shortest path is blocked. The searches are iterative, arcs of a vertex lie next
// to each other, and each keeps its place within a phase. O(V^2 E) at worst; the
// graphs of dependences and split vertices that this package is for take a few
// dozen phases of nearly linear time.
package maxflow

import (
	"errors"
	"fmt"
)

// Inf is the capacity of an arc that no cut may hold. The finite capacities of a
// graph must add up to less than Inf/2.
const Inf = int64(1) << 62

// ErrUnbounded says that a path of infinite arcs leads from source to sink, so
// that no finite cut separates them.
var ErrUnbounded = errors.New("maxflow: source and sink are joined by arcs of infinite capacity")

// Arc names an arc: the k-th that was added is k.
type Arc int32

// Graph is a flow network. The zero Graph has no vertices; use New.
type Graph struct {
	n    int
	ends [][2]int32 // by Arc: from, to
	caps []int64    // by Arc
	err  error      // first misuse, returned by Solve

	// Residual arcs grouped by the vertex that they leave: those of v are
	// first[v] up to first[v+1]. Every Arc has two, its own and its reverse.
	built int     // arcs that the arrays below hold
	first []int32 // by vertex, one more
	head  []int32
	rest  []int64 // residual capacity
	twin  []int32 // the residual arc in the other direction
	at    []int32 // by Arc: its own residual arc

	level []int32 // distance to the sink + 1, 0 where it cannot be reached
	next  []int32 // first arc of each vertex that may still carry flow in this phase
	queue []int32
	path  []int32
	t, s  int32
}

// New returns a network of n vertices, 0 to n-1, without arcs.
func New(n int) *Graph { return &Graph{n: n, built: -1} }

// Len is the number of vertices.
func (g *Graph) Len() int { return g.n }

// NumArcs is the number of arcs.
func (g *Graph) NumArcs() int { return len(g.ends) }

// Add adds an arc. A vertex out of range or a negative capacity makes Solve fail.
func (g *Graph) Add(from, to int32, capacity int64) Arc {
	if from < 0 || to < 0 || int(from) >= g.n || int(to) >= g.n {
		g.fail(fmt.Errorf("maxflow: arc %d -> %d in a graph of %d vertices", from, to, g.n))
		from, to = 0, 0
	}
	g.ends = append(g.ends, [2]int32{from, to})
	g.caps = append(g.caps, 0)
	a := Arc(len(g.caps) - 1)
	if g.n > 0 {
		g.SetCapacity(a, capacity)
	}
	return a
}

// Capacity is the capacity of an arc.
func (g *Graph) Capacity(a Arc) int64 { return g.caps[a] }

// SetCapacity changes the capacity of an arc for the next Solve; what is above
// Inf counts as Inf.
func (g *Graph) SetCapacity(a Arc, capacity int64) {
	if a < 0 || int(a) >= len(g.caps) || capacity < 0 {
		g.fail(fmt.Errorf("maxflow: capacity %d of arc %d", capacity, a))
		return
	}
	g.caps[a] = min(capacity, Inf)
}

// Ends are the vertices that an arc leaves and enters.
func (g *Graph) Ends(a Arc) (from, to int32) { return g.ends[a][0], g.ends[a][1] }

func (g *Graph) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// Solve computes a maximum flow from s to t and returns its value, which is the
// capacity of a minimum cut. Errors: ErrUnbounded, or a misuse of the graph.
func (g *Graph) Solve(s, t int32) (int64, error) {
	if s < 0 || t < 0 || int(s) >= g.n || int(t) >= g.n || s == t {
		g.fail(fmt.Errorf("maxflow: source %d and sink %d in a graph of %d vertices", s, t, g.n))
	}
	finite := int64(0)
	for _, c := range g.caps {
		if c < Inf {
			if finite += c; finite >= Inf/2 {
				g.fail(errors.New("maxflow: the finite capacities add up to too much"))
				break
			}
		}
	}
	if g.err != nil {
		return 0, g.err
	}
	g.s, g.t = s, t
	g.build()
	for a, c := range g.caps {
		p := g.at[a]
		g.rest[p], g.rest[g.twin[p]] = c, 0
	}
	total := int64(0)
	for g.label() {
		copy(g.next, g.first)
		f, ok := g.block()
		if !ok {
			return 0, ErrUnbounded
		}
		total += f
	}
	return total, nil
}

// build groups the residual arcs by vertex. Linear.
func (g *Graph) build() {
	if g.built == len(g.ends) {
		return
	}
	m := len(g.ends)
	g.built = m
	g.first = make([]int32, g.n+1)
	for _, e := range g.ends {
		g.first[e[0]]++
		g.first[e[1]]++
	}
	sum := int32(0)
	for v := range g.first {
		sum, g.first[v] = sum+g.first[v], sum
	}
	g.head, g.rest, g.twin, g.at = make([]int32, 2*m), make([]int64, 2*m), make([]int32, 2*m), make([]int32, m)
	fill := append([]int32(nil), g.first...)
	for a, e := range g.ends {
		p := fill[e[0]]
		fill[e[0]]++
		q := fill[e[1]]
		fill[e[1]]++
		g.head[p], g.head[q] = e[1], e[0]
		g.twin[p], g.twin[q] = q, p
		g.at[a] = p
	}
	g.level, g.next, g.queue = make([]int32, g.n), make([]int32, g.n+1), make([]int32, 0, g.n)
}

// label computes the distances to the sink, as far as the source needs them, and
// reports whether the source has one.
func (g *Graph) label() bool {
	clear(g.level)
	g.queue = append(g.queue[:0], g.t)
	g.level[g.t] = 1
	for i := 0; i < len(g.queue); i++ {
		v := g.queue[i]
		for p := g.first[v]; p < g.first[v+1]; p++ {
			u := g.head[p]
			if g.level[u] == 0 && g.rest[g.twin[p]] > 0 {
				g.level[u] = g.level[v] + 1
				if u == g.s {
					return true
				}
				g.queue = append(g.queue, u)
			}
		}
	}
	return false
}

// block sends flow along shortest paths until none is left, and returns how much;
// false if a path has no bottleneck.
func (g *Graph) block() (int64, bool) {
	total := int64(0)
	g.path = g.path[:0]
	v := g.s
	for {
		if v == g.t {
			f := Inf
			for _, p := range g.path {
				f = min(f, g.rest[p])
			}
			if f >= Inf/2 { // flows over infinite arcs never take half of them away
				return 0, false
			}
			total += f
			cut := -1
			for i, p := range g.path {
				g.rest[p] -= f
				g.rest[g.twin[p]] += f
				if g.rest[p] == 0 && cut < 0 {
					cut = i
				}
			}
			v = g.head[g.twin[g.path[cut]]] // go on from where the first arc is full
			g.path = g.path[:cut]
			continue
		}
		advanced := false
		for ; g.next[v] < g.first[v+1]; g.next[v]++ {
			p := g.next[v]
			if u := g.head[p]; g.rest[p] > 0 && g.level[u]+1 == g.level[v] && g.level[u] > 0 {
				g.path = append(g.path, p)
				v, advanced = u, true
				break
			}
		}
		if advanced {
			continue
		}
		if len(g.path) == 0 {
			return total, true
		}
		last := g.path[len(g.path)-1]
		g.path = g.path[:len(g.path)-1]
		v = g.head[g.twin[last]]
		g.next[v]++
	}
}

// LargestSourceSide marks the largest source side of a minimum cut after Solve:
// the vertices that cannot reach the sink any more. Linear, as SourceSide.
func (g *Graph) LargestSourceSide() []bool {
	side := make([]bool, g.n)
	for v := range side {
		side[v] = true
	}
	side[g.t] = false
	g.queue = append(g.queue[:0], g.t)
	for i := 0; i < len(g.queue); i++ {
		v := g.queue[i]
		for p := g.first[v]; p < g.first[v+1]; p++ {
			if u := g.head[p]; g.rest[g.twin[p]] > 0 && side[u] {
				side[u] = false
				g.queue = append(g.queue, u)
			}
		}
	}
	return side
}
