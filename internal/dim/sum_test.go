package dim

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Sum is what adding one by one gives.
func TestSum(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		ds := make([]Dim, r.IntN(6))
		want := New(0)
		for i := range ds {
			ds[i] = New(r.Int64N(7) - 3)
			if r.IntN(3) > 0 {
				ds[i] = ds[i].Mul(Sym(fmt.Sprintf("s%d", r.IntN(3)))).Add(New(r.Int64N(3) - 1))
			}
			want = want.Add(ds[i])
		}
		if got := Sum(ds...); !got.Equal(want) {
			t.Fatalf("the sum of %v is %s, want %s", ds, got, want)
		}
	}
}
