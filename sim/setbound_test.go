package sim

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A collective that only the first job feeds and the last one reads: neither the
// path (7) nor a stream alone (6) shows what the set of both late jobs does.
func TestSetBoundByHand(t *testing.T) {
	b := NewBuilder(8)
	x := b.Input(true, 8)
	first := b.Compute(2, []int32{x}, 8)
	start := b.Start(1, Key{Op: "all_reduce", Group: "g", GroupSize: 2}, false, 8, []int32{first}, 8)
	got := b.Wait(start)
	late1 := b.Compute(3, []int32{got}, 8)
	late2 := b.Compute(3, []int32{got}, 8)
	b.Output(late1, late2)
	m, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if got := SetBound(m); got != 9 { // 2 + 1 before either, 3 + 3 of them
		t.Errorf("bound %v, want 9", got)
	}
}

// Jackson's schedule is the maximum over all sets, which small cases can try, and
// no order beats it.
func TestSetBoundAgainstAllSets(t *testing.T) {
	for seed := range uint64(300) {
		m := randomModel(t, rand.New(rand.NewPCG(seed, 3)), 9)
		head, tail := pathLengths(m)
		want := 0.0
		for s := -1; s < m.Streams; s++ {
			var jobs []int32
			for v := range int32(m.Len()) {
				if s < 0 && m.Kind[v] == Compute || s >= 0 && m.Stream[v] == int32(s) {
					jobs = append(jobs, v)
				}
			}
			for set := 1; set < 1<<len(jobs); set++ {
				h, q, sum := math.Inf(1), math.Inf(1), 0.0
				for k, j := range jobs {
					if set>>k&1 == 1 {
						h, q, sum = min(h, head[j]), min(q, tail[j]), sum+m.Dur[j]
					}
				}
				want = max(want, h+sum+q)
			}
		}
		got := SetBound(m)
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("seed %d: bound %v, over all sets %v", seed, got, want)
		}
		tl, err := Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if tl.Makespan < got-1e-9 {
			t.Fatalf("seed %d: the input takes %v, the bound is %v", seed, tl.Makespan, got)
		}
	}
}

// randomModel has about n launches and collectives on two groups.
func randomModel(t *testing.T, r *rand.Rand, n int) *Model {
	t.Helper()
	b := NewBuilder(3 * n)
	tensors := []int32{b.Input(true, 8)}
	pick := func() int32 { return tensors[r.IntN(len(tensors))] }
	var used []int32
	for range n {
		if r.IntN(3) > 0 {
			v := b.Compute(float64(1+r.IntN(5)), []int32{pick()}, 8)
			tensors, used = append(tensors, v), append(used, v)
			continue
		}
		g := []string{"a", "b"}[r.IntN(2)]
		w := b.Wait(b.Start(float64(1+r.IntN(5)), Key{Op: "all_reduce", Group: g, GroupSize: 2}, false, 8, []int32{pick()}, 8))
		tensors, used = append(tensors, w), append(used, w)
	}
	b.Output(used...)
	m, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return m
}
