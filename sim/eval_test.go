package sim_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/sim"
)

// small is in -> a (2 ms) -> start (5 ms) -> wait -> b (1 ms) -> out, with c (3 ms)
// independent of the collective.
func small(t testing.TB) *sim.Model {
	t.Helper()
	b := sim.NewBuilder(8)
	in := b.Input(false, 1000)
	a := b.Compute(2, []int32{in}, 1024)
	s := b.Start(5, sim.Key{Op: "all_reduce", Group: "g", GroupSize: 2, Reduce: "sum"}, true, 1024, []int32{a}, 1024)
	w := b.Wait(s)
	c := b.Compute(3, []int32{in}, 512)
	d := b.Compute(1, []int32{w, c}, 512)
	b.Output(d)
	m, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestEvaluateByHand(t *testing.T) {
	m := small(t)
	for _, c := range []struct {
		name              string
		order             []int32
		makespan, exposed float64
		memory            []int64
	}{
		{"as given", []int32{0, 1, 2, 3, 4, 5, 6}, 11, 5, []int64{1024, 2048, 3072, 3072, 2560, 2048, 512}},
		{"overlapped", []int32{0, 1, 2, 4, 3, 5, 6}, 8, 2, []int64{1024, 2048, 3072, 3584, 2560, 2048, 512}},
	} {
		tl, err := sim.Evaluate(m, c.order, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tl.Makespan != c.makespan || tl.Exposed != c.exposed {
			t.Errorf("%s: %g ms, %g exposed; want %g, %g", c.name, tl.Makespan, tl.Exposed, c.makespan, c.exposed)
		}
		for i, want := range c.memory {
			if tl.Memory[i] != want {
				t.Errorf("%s: memory %v, want %v", c.name, tl.Memory, c.memory)
				break
			}
		}
	}
	if b := sim.LowerBound(m); b.Bound != 8 || b.Path != 8 || b.Compute != 6 || b.Stream != 5 || b.Chain != 8 {
		t.Errorf("bounds %+v", b)
	}
}

func TestContentionByHand(t *testing.T) {
	m := small(t)
	order := []int32{0, 1, 2, 4, 3, 5, 6}
	for _, c := range []struct{ stretch, makespan float64 }{
		{1, 8},
		{1.5, 8},                   // c takes 4.5 ms, under the collective's 5
		{2, 2 + 5 + (3 - 2.5) + 1}, // 2.5 of c's 3 ms are done when the collective ends
	} {
		tl, err := sim.EvaluateUnder(m, order, nil, sim.Contention{Stretch: c.stretch})
		if err != nil {
			t.Fatal(err)
		}
		if tl.Makespan != c.makespan || tl.Exposed != c.makespan-6 {
			t.Errorf("stretch %g: %g ms, %g exposed, want %g", c.stretch, tl.Makespan, tl.Exposed, c.makespan)
		}
	}
	for _, bad := range []float64{0.5, -1, math.NaN(), math.Inf(1)} {
		if _, err := sim.EvaluateUnder(m, order, nil, sim.Contention{Stretch: bad}); err == nil {
			t.Errorf("stretch %v is accepted", bad)
		}
	}
}

func TestIllegalOrders(t *testing.T) {
	m := small(t)
	for _, c := range []struct {
		order   []int32
		buckets []sim.Bucket
		want    string
	}{
		{[]int32{0, 1, 2}, nil, "3 nodes, the program has 7"},
		{[]int32{0, 1, 2, 3, 4, 5, 7}, nil, "no such node"},
		{[]int32{0, 1, 2, 3, 4, 4, 6}, nil, "also at position 4"},
		{[]int32{0, 2, 1, 3, 4, 5, 6}, nil, "comes before its operand 1"},
		{[]int32{0, 1, 2, 3, 4, 5, 6}, []sim.Bucket{{}}, "empty"},
		{[]int32{0, 1, 2, 3, 4, 5, 6}, []sim.Bucket{{Members: []int32{1}}}, "not a collective"},
		{[]int32{0, 1, 2, 3, 4, 5, 6}, []sim.Bucket{{Members: []int32{2}, Dur: math.NaN()}}, "NaN"},
		{[]int32{0, 1, 2, 3, 4, 5, 6}, []sim.Bucket{{Members: []int32{2}, Dur: 1}, {Members: []int32{2}, Dur: 1}}, "in two buckets"},
	} {
		_, err := sim.Evaluate(m, c.order, c.buckets)
		var e *sim.OrderError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %v: %v, want %q", c.order, c.buckets, err, c.want)
		}
	}
}

func TestBucketsByHand(t *testing.T) {
	b := sim.NewBuilder(16)
	key := sim.Key{Op: "all_gather", Group: "g", GroupSize: 2}
	x, y := b.Input(true, 512), b.Input(true, 512)
	s0 := b.Start(3, key, true, 1024, []int32{x}, 1024)
	w0 := b.Wait(s0)
	s1 := b.Start(3, key, true, 1024, []int32{y}, 1024)
	w1 := b.Wait(s1)
	other := b.Start(3, sim.Key{Op: "all_reduce", Group: "g", GroupSize: 2}, true, 1024, []int32{y}, 1024)
	wo := b.Wait(other)
	d := b.Compute(1, []int32{w0, w1, wo}, 512)
	b.Output(d)
	m, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	joined := []sim.Bucket{{Members: []int32{s0, s1}, Dur: 4}}
	tl, err := sim.Evaluate(m, []int32{x, y, s0, s1, other, w0, w1, wo, d, d + 1}, joined)
	if err != nil {
		t.Fatal(err)
	}
	if tl.Makespan != 8 || tl.Begin[s1] != 0 || tl.End[s1] != 4 || tl.End[other] != 7 {
		t.Errorf("%+v", tl)
	}
	for _, c := range []struct {
		order   []int32
		buckets []sim.Bucket
		want    string
	}{
		{[]int32{x, y, s0, other, s1, w0, w1, wo, d, d + 1}, joined, "starts of bucket 0 are not adjacent"},
		{[]int32{x, y, s0, s1, other, w0, wo, w1, d, d + 1}, joined, "waits of bucket 0 are not adjacent"},
		{[]int32{x, y, s0, s1, other, w0, w1, wo, d, d + 1}, []sim.Bucket{{Members: []int32{s1, other}, Dur: 4}}, "cannot share a bucket"},
	} {
		if _, err := sim.Evaluate(m, c.order, c.buckets); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.order, err, c.want)
		}
	}
}

func TestBuilderErrors(t *testing.T) {
	for _, c := range []struct {
		build func(b *sim.Builder)
		want  string
	}{
		{func(b *sim.Builder) { b.Compute(-1, nil) }, "duration"},
		{func(b *sim.Builder) { b.Compute(math.NaN(), nil) }, "duration"},
		{func(b *sim.Builder) { b.Compute(1, []int32{0}) }, "operand 0"},
		{func(b *sim.Builder) { b.Compute(1, []int32{-5}) }, "operand -5"},
		{func(b *sim.Builder) { b.Compute(1, nil, -1) }, "-1 bytes"},
		{func(b *sim.Builder) { b.Wait(3) }, "operand 3"},
		{func(b *sim.Builder) { b.Pick(b.Input(true, 1), 1) }, "result 1"},
		{func(b *sim.Builder) { b.Compute(1, []int32{b.Output()}) }, "output"},
		{func(b *sim.Builder) { b.Add(sim.Spec{Kind: sim.Compute, Reads: []int32{2}}) }, "storage 2"},
		{func(b *sim.Builder) { b.Add(sim.Spec{Kind: sim.Wait, StartOf: 4}) }, "not a collective"},
	} {
		b := sim.NewBuilder(0)
		c.build(b)
		_, err := b.Build()
		var e *sim.ModelError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// random builds a program of n nodes with some collectives.
func random(r *rand.Rand, n int) *sim.Model {
	b := sim.NewBuilder(n)
	avail := []int32{b.Input(false, 512)}
	for i := 1; i < n; i++ {
		op := []int32{avail[len(avail)-1-r.IntN(min(len(avail), 5))]}
		ms := r.Float64() * 10
		switch r.IntN(4) {
		case 0:
			avail = append(avail, b.Wait(b.Start(ms, sim.Key{Op: "all_reduce", Group: "g", GroupSize: 2}, true, 1, op, 512)))
		case 1:
			avail = append(avail, b.View(op...))
		default:
			avail = append(avail, b.Compute(ms, append(op, avail[r.IntN(len(avail))]), 512))
		}
	}
	b.Output(avail[len(avail)-1])
	m, err := b.Build()
	if err != nil {
		panic(err)
	}
	return m
}

// The chain bound against its definition, by reachability of all pairs.
func TestChainBoundAgainstDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		m := random(r, 2+r.IntN(150))
		n := m.Len()
		before := make([][]bool, n)
		total := m.ComputeTime()
		best := make([]float64, n)
		want := total
		for v := range n {
			before[v] = make([]bool, n)
			for _, p := range m.Pred.At(int32(v)) {
				before[v][p] = true
				for u := range p {
					before[v][u] = before[v][u] || before[p][u]
				}
			}
		}
		for v := range n {
			for _, p := range m.Pred.At(int32(v)) {
				best[v] = max(best[v], best[p])
			}
			if m.Kind[v] != sim.Start {
				continue
			}
			free := 0.0
			for u := range n {
				if m.Kind[u] == sim.Compute && !before[v][u] && !before[u][v] {
					free += m.Dur[u]
				}
			}
			best[v] += max(0, m.Dur[v]-free)
			want = max(want, total+best[v])
		}
		if b := sim.LowerBound(m); math.Abs(b.Chain-want) > 1e-6 || !b.Exact {
			t.Fatalf("chain bound %g (exact %v), by definition %g", b.Chain, b.Exact, want)
		}
		if tl, err := sim.Evaluate(m, m.InputOrder(), nil); err != nil || tl.Makespan < sim.LowerBound(m).Bound-1e-6 {
			t.Fatalf("makespan %v below the bound: %v", tl, err)
		}
	}
}
