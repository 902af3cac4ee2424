package sched

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Few jobs are sorted as many are, also where tails are equal.
func TestSortedFewAndMany(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 130 {
		e := &engine{p: &problem{node: make([]int32, n+1)}, cert: &certificate{}}
		tail := make([]float64, n+1)
		for j, at := range rng.Perm(n + 1) {
			e.cert.ref, tail[j] = append(e.cert.ref, int32(at)), float64(rng.IntN(n+1)-n/4)/3
		}
		few := slices.Clone(e.sorted(tail))
		if many := e.byDigits(tail); !slices.Equal(few, many) {
			t.Fatalf("%d jobs: %v, by digits %v", n+1, few, many)
		}
		for i := 1; i <= n; i++ {
			a, b := few[i-1].job, few[i].job
			if tail[a] < tail[b] || tail[a] == tail[b] && slices.Index(e.cert.ref, a) > slices.Index(e.cert.ref, b) {
				t.Fatalf("%d jobs: %d before %d", n+1, a, b)
			}
		}
	}
}
