package decompose_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// igamma is both functions for a natural number a, as parts of the series of exp(x).
func igamma(a int, x float64) (lower, upper float64) {
	number := func(v float64) *big.Float { return new(big.Float).SetPrec(4000).SetFloat64(v) }
	low, high, term, at := number(0), number(0), number(1), number(x)
	for k := 0; k < a+int(4*x)+400; k++ {
		if k < a {
			high.Add(high, term)
		} else {
			low.Add(low, term)
		}
		term.Quo(term.Mul(term, at), number(float64(k+1)))
	}
	all := number(0).Add(low, high)
	lower, _ = low.Quo(low, all).Float64()
	upper, _ = high.Quo(high, all).Float64()
	return lower, upper
}

func TestIgamma(t *testing.T) {
	var as, xs, lower, upper []float64
	add := func(a, x, p, q float64) {
		as, xs, lower, upper = append(as, a), append(xs, x), append(lower, p), append(upper, q)
	}
	for _, a := range []int{1, 2, 5, 13, 20, 21, 25, 40, 100, 199, 201, 700} {
		for _, part := range []float64{1e-3, 0.1, 0.4, 0.54, 0.56, 0.8, 0.95, 0.999, 1, 1.001, 1.1, 1.3, 1.6, 1.7, 2.5, 6} {
			x := part * float64(a)
			p, q := igamma(a, x)
			add(float64(a), x, p, q)
		}
	}
	for _, x := range []float64{1e-10, 0.01, 0.5, 2, 3.9, 4.1, 9, 30} {
		add(0.5, x, math.Erf(math.Sqrt(x)), math.Erfc(math.Sqrt(x)))
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range [][3]float64{{0, 1, 1}, {0, 0, nan}, {3, 0, 0}, {3, inf, 1}, {inf, 3, 0}, {inf, inf, nan}, {-1, 2, nan}, {2, -1, nan}, {nan, 1, nan}, {1, nan, nan}} {
		add(c[0], c[1], c[2], 1-c[2])
	}
	got := run(t, []interp.Tensor{of(t, as...), of(t, xs...)}, func(b *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
		return []*ir.Value{decompose.Igamma(false)(b, in[0], in[1]), decompose.Igamma(true)(b, in[0], in[1])}, nil
	})
	for i := range as {
		for k, want := range []float64{lower[i], upper[i]} {
			// What is small has the error of exp of a large number, or of what it is taken from 1.
			if y := got[k].Float64s()[i]; !near(y, want, 2e-13) && math.Abs(y-want) > 1e-15 {
				t.Errorf("function %d of %v and %v is %v, want %v", k, as[i], xs[i], y, want)
			}
		}
	}
}
