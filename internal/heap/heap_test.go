package heap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever the order of pushes and pops, what comes is the least of what is there.
func TestHeaps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	negated := Heap[int32]{Less: func(a, b int32) bool { return a > b }}
	var ints Ints
	var have []int32
	for range 20_000 {
		if len(have) == 0 || r.IntN(100) < 51 {
			x := r.Int32N(200)
			have = append(have, x)
			ints.Push(x)
			negated.Push(-x)
			continue
		}
		i := slices.Index(have, slices.Min(have))
		x := have[i]
		have = slices.Delete(have, i, i+1)
		if top := negated.Top(); top != -x || negated.Len() != len(have)+1 {
			t.Fatalf("%d of %d on top, want %d of %d", top, negated.Len(), -x, len(have)+1)
		}
		if a, b := ints.Pop(), negated.Pop(); a != x || b != -x {
			t.Fatalf("%d and %d, want %d and its negation", a, b, x)
		}
	}
	if negated.Clear(); len(ints) != len(have) || negated.Len() != 0 {
		t.Errorf("%d of %d left, %d after Clear", len(ints), len(have), negated.Len())
	}
}
