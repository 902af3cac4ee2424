package dim

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// Code gives what Eval does, with symbols that are numbers of their own and with such that are
// values.
func TestCode(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	deep := 0
	for range 2000 {
		d := random(rng.IntN, 4)
		names := d.Symbols(nil)
		values := map[string]int64{}
		var list []int64
		for _, s := range names {
			values[s] = rng.Int64N(40)
			list = append(list, values[s])
		}
		code, err := d.AppendCode(nil, func(s string) (int, int64) {
			for i, name := range names {
				if name == s && i%2 == 0 {
					return i, 0
				}
			}
			return -1, values[s]
		})
		if errors.Is(err, ErrDeep) {
			deep++
			continue
		}
		want, ok := d.Eval(func(s string) (int64, bool) { return values[s], true })
		if got := RunCode(code, list); ok && got != want {
			t.Fatalf("%v at %v is %d by code, %d by Eval", d, values, got, want)
		}
	}
	if deep > 100 {
		t.Errorf("%d of 2000 expressions are too deep", deep)
	}
}
