package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/graph/network"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/internal/maxflow"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

func mustRead(t testing.TB, f *ir.Func) *jointFunc {
	t.Helper()
	p := Pass()
	j, err := readJoint(passes.NewContext(&p, nil, f), f)
	if err != nil || j == nil {
		t.Fatalf("%s is not joint: %v", f.Name, err)
	}
	return j
}

// The cuts of the tiny joint graphs at many prices against gonum's Dinic. gonum
// computes in floating point, so that the prices are small.
func TestPartitionCutAgainstGonum(t *testing.T) {
	for _, name := range []string{"tiny_fsdp2", "tiny_tp2", "tiny_tpsp2", "tiny_ddp2", "tiny_moe2"} {
		f, _, err := joint.Load("../../testdata/graphs", name)
		if err != nil {
			t.Fatal(err)
		}
		c := newCutter(mustRead(t, f))
		for k := range c.time { // coarser, for exact sums in floating point
			c.time[k].amount = 1 + c.time[k].amount>>20
		}
		for _, price := range [][2]int64{{1, 0}, {1, 1}, {1, 50}, {3, 1000}, {1, 5000}, {0, 1}} {
			_, got, err := c.solve(price[0], price[1])
			if err != nil {
				t.Fatal(err)
			}
			o := simple.NewWeightedDirectedGraph(0, 0)
			caps := map[[2]int32]float64{}
			for a := range c.g.NumArcs() {
				u, v := c.arc(a)
				caps[[2]int32{u, v}] += float64(min(c.g.Capacity(maxflow.Arc(a)), 1<<50))
			}
			for v := range c.g.Len() {
				o.AddNode(simple.Node(v))
			}
			for k, w := range caps {
				o.SetWeightedEdge(o.NewWeightedEdge(simple.Node(k[0]), simple.Node(k[1]), w))
			}
			if want := network.MaxFlowDinic(o, simple.Node(source), simple.Node(sink), 0.5); float64(got) != want {
				t.Errorf("%s at %v: cut %d, gonum says %g", name, price, got, want)
			}
		}
	}
}

// randomStep is a step of n forward operations with random sizes, times and
// readers in backward.
func randomStep(r *rand.Rand, n int) (*ir.Func, error) {
	b := ir.NewBuilder(1)
	f := b.Func("f")
	x, tan := f.Input("x", ir.Tensor(ir.F32, 4)), f.InputRole("t", ir.Tensor(ir.F32, 4), ir.RoleTangent)
	vals := []*ir.Value{x}
	for range n {
		args := []*ir.Value{vals[max(0, len(vals)-1-r.IntN(3))]}
		if r.IntN(2) == 0 {
			args = append(args, vals[r.IntN(len(vals))])
		}
		op := f.Cost(float64(1 + r.IntN(9)))
		var effects []string
		if r.IntN(6) == 0 {
			effects = []string{"random"}
		}
		types := []ir.Type{ir.Tensor(ir.F32, int64(1+r.IntN(12)))}
		if r.IntN(5) == 0 {
			types = append(types, ir.Tensor(ir.F32, int64(1+r.IntN(12))))
		}
		vals = append(vals, op.Call("op", "compute", effects, args, types...)...)
	}
	outs := []*ir.Value{vals[len(vals)-1]}
	for _, v := range vals[1:] {
		if r.IntN(2) == 0 {
			outs = append(outs, f.Cost(1).Call("grad", "compute", nil, []*ir.Value{tan, v}, ir.Tensor(ir.F32, 4))...)
		}
	}
	outs = append(outs, tan)
	f.Return(outs...)
	m, err := b.Finish()
	if err != nil {
		return nil, err
	}
	return m.Funcs()[0], nil
}

// Every choice of saved values of small steps, against the plan: least bytes at
// budget 0 and least time at those, no time at budget 1 and least bytes at that,
// corners in between that no choice is below, and plans that are near the best
// within their limit.
func TestPartitionAgainstEveryChoice(t *testing.T) {
	plans, best, worst := 0, 0, 1.0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		f, err := randomStep(r, 4+r.IntN(6))
		if err != nil {
			t.Fatal(err)
		}
		j := mustRead(t, f)
		var choices []*savePlan
		var open []int
		for k := range j.roots {
			if u := j.roots[k].unit; u >= 0 && j.units[u].side != sideBackward {
				open = append(open, k)
			}
		}
		for set := range 1 << len(open) {
			offered := make([]bool, len(j.roots))
			for k, root := range open {
				offered[root] = set>>k&1 == 1
			}
			choices = append(choices, j.evaluate(offered))
		}
		c := newCutter(j)
		for _, budget := range []float64{0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1} {
			p, err := c.plan(budget)
			if err != nil {
				t.Fatal(err)
			}
			least := choices[0]
			for _, q := range choices {
				switch {
				case budget == 0 && (q.bytes < p.bytes || q.bytes == p.bytes && q.ms < p.ms-1e-9):
					t.Fatalf("seed %d: budget 0 saves %d bytes in %g ms, %d in %g are possible\n%s", seed, p.bytes, p.ms, q.bytes, q.ms, f.Module())
				case budget == 1 && (p.ms > 0 || q.ms == 0 && q.bytes < p.bytes):
					t.Fatalf("seed %d: budget 1 saves %d bytes in %g ms, %d are possible\n%s", seed, p.bytes, p.ms, q.bytes, f.Module())
				}
				if q.bytes <= p.limit && (least.bytes > p.limit || q.ms < least.ms) {
					least = q
				}
			}
			if p.bytes > p.limit {
				t.Fatalf("seed %d: %d bytes at a limit of %d", seed, p.bytes, p.limit)
			}
			plans++
			if p.ms <= least.ms+1e-9 {
				best++
			} else {
				worst = max(worst, p.ms/max(least.ms, 1))
			}
		}
		for k := 0; k+1 < len(c.corners); k++ {
			a, b := c.corners[k], c.corners[k+1]
			if a.m >= b.m || a.t <= b.t {
				t.Fatalf("seed %d: corners %d,%d and %d,%d are out of order", seed, a.m, a.t, b.m, b.t)
			}
			for v := range a.keep {
				if a.keep[v] && !b.keep[v] {
					t.Fatalf("seed %d: the choices are not nested", seed)
				}
			}
		}
	}
	t.Logf("%d of %d plans are the best possible, the worst takes %.2f times the best", best, plans, worst)
	if best < plans*9/10 {
		t.Errorf("%d of %d plans are the best possible", best, plans)
	}
}

// The knapsack against every subset.
func TestKnapsack(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 9))
		parts := make([]part, r.IntN(10))
		for k := range parts {
			parts[k] = part{int64(r.IntN(40)), int64(r.IntN(40))}
		}
		room := int64(r.IntN(150))
		sum := func(take func(k int) bool) (bytes, gain int64) {
			for k, p := range parts {
				if take(k) {
					bytes, gain = bytes+p.bytes, gain+p.gain
				}
			}
			return bytes, gain
		}
		take := knapsack(parts, room)
		bytes, gain := sum(func(k int) bool { return take[k] })
		if bytes > room {
			t.Fatalf("seed %d: %d bytes in a room of %d", seed, bytes, room)
		}
		for set := range 1 << len(parts) {
			if b, g := sum(func(k int) bool { return set>>k&1 == 1 }); b <= room && g > gain {
				t.Fatalf("seed %d: gain %d, %d is possible", seed, gain, g)
			}
		}
	}
	// Alike parts: the last ones are taken.
	if got := fmt.Sprint(knapsack([]part{{5, 5}, {5, 5}, {5, 5}}, 11)); got != "[false true true]" {
		t.Error(got)
	}
}

// Sizes near the largest that types allow, and many of them: the prices must not
// overflow, and the plans stay right.
func TestPartitionHugeSizes(t *testing.T) {
	b := ir.NewBuilder(1)
	f := b.Func("f")
	typ := ir.Tensor(ir.F64, 1<<49)
	x, tan := f.Input("x", typ), f.InputRole("t", typ, ir.RoleTangent)
	v, g := x, tan
	var vs []*ir.Value
	for i := range 1000 {
		v = f.Cost([]float64{1e-9, 1e9}[i%2]).Unary(ir.OpSin, v)
		vs = append(vs, v)
	}
	for _, v := range vs {
		g = f.Cost(1).Mul(g, v)
	}
	f.Return(f.Cost(1).Reduce(ir.OpSum, v, false), g)
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	c := newCutter(mustRead(t, m.Funcs()[0]))
	for budget, want := range map[float64]float64{0: 500e9, 0.25: 250e9, 0.5: 500e-9, 1: 0} {
		p, err := c.plan(budget)
		if err != nil {
			t.Fatal(err)
		}
		if p.ms < want || p.ms > want+1e-6*(want+1) {
			t.Errorf("budget %g: %g ms, want %g", budget, p.ms, want)
		}
	}
}

func TestPartitionErrors(t *testing.T) {
	var pe *Error
	m, err := ir.Parse("t.ir", `world 1
func @f(%x: f32[4] !{role="data"}, %t: f32[4] !{role="tangent"}) -> (f32[4]) {
  %g = mul %t, %x : f32[4]
  return %g !{forward=7}
}
`)
	if err != nil {
		t.Fatal(err)
	}
	p := Pass()
	if _, err := readJoint(passes.NewContext(&p, nil, m.Funcs()[0]), m.Funcs()[0]); !errors.As(err, &pe) {
		t.Errorf("got %v", err)
	}
}
