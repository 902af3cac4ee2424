package maxflow

import (
	"errors"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/graph/network"
	"gonum.org/v1/gonum/graph/simple"
)

// random is a graph with parallel arcs, loops, cycles and some infinite arcs,
// built for gonum beside ours. gonum adds the flow to a weighted graph without
// parallel arcs, so their capacities are summed.
func random(r *rand.Rand) (*Graph, *simple.WeightedDirectedGraph) {
	n := 2 + r.IntN(30)
	g := New(n)
	o := simple.NewWeightedDirectedGraph(0, 0)
	for v := range n {
		o.AddNode(simple.Node(v))
	}
	caps := map[[2]int]float64{}
	for range r.IntN(4 * n) {
		u, v, c := r.IntN(n), r.IntN(n), int64(r.IntN(50))
		g.Add(int32(u), int32(v), c)
		if u != v {
			caps[[2]int{u, v}] += float64(c)
		}
	}
	for k, c := range caps {
		o.SetWeightedEdge(o.NewWeightedEdge(simple.Node(k[0]), simple.Node(k[1]), c))
	}
	return g, o
}

// cutValue is the capacity that leaves a side.
func cutValue(g *Graph, side []bool) int64 {
	sum := int64(0)
	for a := range g.caps {
		if u, v := g.Ends(Arc(a)); side[u] && !side[v] {
			sum += g.caps[a]
		}
	}
	return sum
}

func check(t *testing.T, g *Graph, s, sink int32, value int64) {
	t.Helper()
	net := make([]int64, g.n)
	for a := range g.caps {
		f := g.Flow(Arc(a))
		if f < 0 || f > g.caps[a] {
			t.Fatalf("flow %d over an arc of capacity %d", f, g.caps[a])
		}
		u, v := g.Ends(Arc(a))
		net[u] -= f
		net[v] += f
	}
	for v, f := range net {
		if want := map[int32]int64{s: -value, sink: value}[int32(v)]; f != want {
			t.Fatalf("vertex %d keeps %d, want %d", v, f, want)
		}
	}
	small, large := g.SourceSide(), g.LargestSourceSide()
	for _, side := range [][]bool{small, large} {
		if !side[s] || side[sink] || cutValue(g, side) != value {
			t.Fatalf("a side whose cut is %d, the flow is %d", cutValue(g, side), value)
		}
	}
	for v := range small {
		if small[v] && !large[v] {
			t.Fatalf("vertex %d is on the smallest source side, not on the largest", v)
		}
	}
}

// Random graphs against gonum's Dinic, each solved again with other capacities.
func TestAgainstGonum(t *testing.T) {
	flows := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		g, o := random(r)
		s, sink := int32(0), int32(g.n-1)
		got, err := g.Solve(s, sink)
		if err != nil {
			t.Fatal(err)
		}
		if want := network.MaxFlowDinic(o, simple.Node(s), simple.Node(sink), 1e-9); float64(got) != want {
			t.Fatalf("seed %d: flow %d, gonum says %g", seed, got, want)
		}
		check(t, g, s, sink, got)
		if got > 0 {
			flows++
		}
		for a := range g.caps {
			g.SetCapacity(Arc(a), 2*g.caps[a])
		}
		twice, err := g.Solve(s, sink)
		if err != nil || twice != 2*got {
			t.Fatalf("seed %d: flow %d with doubled capacities, want %d (%v)", seed, twice, 2*got, err)
		}
		g.Add(s, sink, 5)
		if more, err := g.Solve(s, sink); err != nil || more != twice+5 {
			t.Fatalf("seed %d: flow %d with an arc more, want %d (%v)", seed, more, twice+5, err)
		}
	}
	if flows < 150 {
		t.Errorf("%d of 400 graphs carry a flow", flows)
	}
}

func TestErrors(t *testing.T) {
	g := New(3)
	g.Add(0, 1, Inf)
	g.Add(1, 2, Inf+5)
	if _, err := g.Solve(0, 2); !errors.Is(err, ErrUnbounded) {
		t.Errorf("unbounded: %v", err)
	}
	g.SetCapacity(1, 7)
	if f, err := g.Solve(0, 2); err != nil || f != 7 {
		t.Errorf("%d, %v", f, err)
	}
	for name, broken := range map[string]func(g *Graph){
		"vertex":   func(g *Graph) { g.Add(0, 3, 1) },
		"negative": func(g *Graph) { g.Add(0, 1, -1) },
		"arc":      func(g *Graph) { g.SetCapacity(9, 1) },
		"sum":      func(g *Graph) { g.Add(0, 1, Inf/3); g.Add(0, 1, Inf/3) },
	} {
		g := New(3)
		broken(g)
		if _, err := g.Solve(0, 2); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := New(2).Solve(1, 1); err == nil {
		t.Error("source and sink may not be one vertex")
	}
}

// layers is a deep network like that of a model: blocks of a few vertices, each
// with a way to the sink.
func layers(depth int) *Graph {
	r := rand.New(rand.NewPCG(1, 1))
	g := New(2 + 4*depth)
	for l := range depth {
		v := int32(2 + 4*l)
		g.Add(v, v+1, 1+int64(r.IntN(1000)))
		g.Add(v+1, v+2, Inf)
		g.Add(v+2, v+3, 1+int64(r.IntN(1000)))
		g.Add(0, v, int64(r.IntN(100)))
		if l+1 < depth {
			g.Add(v+3, v+4, Inf)
			g.Add(v+1, v+6, Inf)
		}
		if r.IntN(3) == 0 {
			g.Add(v+3, 1, Inf)
		}
	}
	return g
}

func BenchmarkLayers10k(b *testing.B) {
	g := layers(10_000)
	for b.Loop() {
		if _, err := g.Solve(0, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// Flow is the flow over an arc after Solve.
func (g *Graph) Flow(a Arc) int64 { return g.caps[a] - g.rest[g.at[a]] }

// SourceSide marks the smallest source side of a minimum cut after Solve: the
// vertices that the source still reaches. It does not depend on which maximum
// flow was found. Linear; the result is the caller's.
func (g *Graph) SourceSide() []bool {
	side := make([]bool, g.n)
	side[g.s] = true
	g.queue = append(g.queue[:0], g.s)
	for i := 0; i < len(g.queue); i++ {
		v := g.queue[i]
		for p := g.first[v]; p < g.first[v+1]; p++ {
			if u := g.head[p]; g.rest[p] > 0 && !side[u] {
				side[u] = true
				g.queue = append(g.queue, u)
			}
		}
	}
	return side
}
