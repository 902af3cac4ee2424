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

// A scan sees the smallest numbers in order, those that are gone never again.
func TestQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var q Queue
	have, gone := []int32{}, map[int32]bool{}
	for n := range int32(4_000) {
		if r.IntN(100) < 60 {
			x := n&7*20_000 + r.Int32N(200)*100 + n%100
			have = append(have, x)
			q.Push(x)
			continue
		}
		have = slices.DeleteFunc(have, func(x int32) bool { return gone[x] })
		slices.Sort(have)
		most, pick := 1+r.IntN(40), r.IntN(30)
		var seen []int32
		got := q.Scan(most, func(x int32) bool { return gone[x] }, func(x int32) bool {
			seen = append(seen, x)
			return len(seen) > pick
		})
		want := have[:min(len(have), most, pick+1)]
		if !slices.Equal(seen, want) || (got >= 0) != (len(want) == pick+1) || got >= 0 && got != want[pick] {
			t.Fatalf("%d of %v, want the %d first of %v", got, seen, pick+1, want)
		}
		for range r.IntN(3) {
			if len(have) > 0 {
				gone[have[r.IntN(min(len(have), 20))]] = true
			}
		}
	}
}
