package pack

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// What the sweep places is right with pins, alignments, empty lives and without them.
func TestSweep(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for k := range 4000 {
		p := randomProblem(r, kind{n: 1 + r.IntN(30), clock: 1 + r.IntN(40), size: 40, aligned: k&1 > 0, pinned: k&2 > 0})
		if at := sweep(&p); !naiveCheck(&p, at, p.Height(at)) {
			t.Fatalf("%v is no placement of %+v", at, p)
		}
	}
}

// many is a problem whose buffers live for any while, a third of them at once, which is
// the worst for greedy placement.
func many(n int) Problem {
	r := rand.New(rand.NewPCG(1, 2))
	var p Problem
	for range n {
		x, y := r.Int64N(int64(n)), r.Int64N(int64(n))
		p.Buffers = append(p.Buffers, Buffer{Lower: min(x, y), Upper: max(x, y) + 1, Size: 512 * (1 + r.Int64N(1000)), Align: 512})
	}
	return p
}

// Where greedy placement takes too long, the sweep answers: 50,000 buffers cost no more
// than the work of one order.
func TestBestFitMany(t *testing.T) {
	p := many(50_000)
	bound := newBound(&p).height
	g := newGreedy(t.Context(), &p, bound)
	if g.try(bySize, true) || g.f.complete {
		t.Fatal("the first order was not given up")
	}
	if g.f.work > orderWork+orderWork/8 {
		t.Errorf("the first order took %d visits and may take %d", g.f.work, orderWork)
	}
	at := sweep(&p)
	h := p.Height(at)
	if err := Verify(p, at, h); err != nil {
		t.Fatal(err)
	}
	if h > bound+bound/40 {
		t.Errorf("height %d, %.4f of the bound", h, float64(h)/float64(bound))
	}
}

// BenchmarkGrowth is BestFit on problems that are the worst for greedy placement.
func BenchmarkGrowth(b *testing.B) {
	for _, n := range []int{25_000, 50_000, 100_000, 200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := many(n)
			bound := newBound(&p).height
			var h int64
			for b.Loop() {
				var err error
				if _, h, err = BestFit(p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(h)/float64(bound), "of-bound")
		})
	}
}
