package decompose_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// near reports whether got is want up to a relative error.
func near(got, want, by float64) bool {
	return got == want || got != got && want != want || math.Abs(got-want) <= by*math.Abs(want)
}

func unary(t *testing.T, name string, by float64, xs []float64, f func(e decompose.Emitter, x *ir.Value) *ir.Value, want func(x float64) float64) {
	t.Helper()
	got := run(t, []interp.Tensor{of(t, xs...)}, func(b *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
		return []*ir.Value{f(b, in[0])}, nil
	})[0].Float64s()
	for i, x := range xs {
		if w := want(x); !near(got[i], w, by) {
			t.Errorf("%s(%v) = %v, want %v", name, x, got[i], w)
		}
	}
}

func TestLgamma(t *testing.T) {
	unary(t, "lgamma", 1e-12, []float64{0, 1e-10, 0.1, 0.5, 0.7, 1.5, 3, 10.25, 171, 1e5, 1e300, -0.25, -0.5, -1, -2.5, -10.1, -100.75, math.Inf(1), math.Inf(-1), math.NaN()}, decompose.Lgamma,
		func(x float64) float64 {
			if math.IsInf(x, -1) {
				return math.Inf(1) // Go's is -Inf
			}
			y, _ := math.Lgamma(x)
			return y
		})
}

// digamma by its recurrence up to large arguments, where Stirling's series holds.
func digamma(x float64) float64 {
	if x <= 0 && x == math.Floor(x) {
		if x == 0 {
			return math.Inf(-1)
		}
		return math.NaN()
	}
	sum := 0.0
	for ; x < 40; x++ {
		sum -= 1 / x
	}
	q := 1 / (x * x)
	return sum + math.Log(x) - 1/(2*x) - q*(1.0/12-q*(1.0/120-q*(1.0/252-q*(1.0/240-q/132))))
}

func TestDigamma(t *testing.T) {
	unary(t, "digamma", 1e-11, []float64{0, 0.01, 0.25, 0.5, 0.9, 1, 2.5, 10, 1000, 1e10, -0.3, -0.5, -1, -1.5, -7.25, -30, math.NaN()}, decompose.Digamma, digamma)
}

func TestErfInv(t *testing.T) {
	unary(t, "erf_inv", 1e-14, []float64{0, 1e-300, 1e-8, 0.1, 0.3, 0.49, 0.5, 0.75, 0.99, 0.999999, 1 - 1e-12, 1 - 0x1p-53, 1, 1.5, -0.2, -0.95, -1, -2, math.NaN()}, decompose.ErfInv, math.Erfinv)
}

// Bessel's integral by the trapezoid rule, which is exact for periodic functions.
func besselI(order int, x, scale float64) float64 {
	const n = 4096
	sum := 0.0
	for k := range n {
		c := math.Cos(2 * math.Pi * (float64(k) + 0.5) / n)
		sum += math.Exp(x*c-scale) * math.Pow(c, float64(order))
	}
	if order == 1 && math.Abs(x) < 1e-3 {
		return x / 2 * (1 + x*x/8) * math.Exp(-scale) // the sum cancels
	}
	return sum / n
}

func TestBesselI(t *testing.T) {
	at := []float64{0, 1e-6, 0.5, 1, 3.75, 8, 20, 29.9, 30.1, 77, 700, -2, -50, math.NaN()}
	for order := range 2 {
		unary(t, fmt.Sprintf("bessel_i%de", order), 1e-13, at, decompose.BesselI(order, true), func(x float64) float64 { return besselI(order, x, math.Abs(x)) })
		unary(t, fmt.Sprintf("bessel_i%d", order), 1e-12, append(at, 709, -712), decompose.BesselI(order, false), func(x float64) float64 { return besselI(order, x, 0) })
	}
}

// zeta by its terms and the integral of the rest.
func zeta(x, q float64) float64 {
	sum := 0.0
	const n = 20000
	for k := range n {
		sum += math.Pow(q+float64(k), -x)
	}
	a := q + n
	return sum + math.Pow(a, 1-x)/(x-1) + math.Pow(a, -x)/2 + x*math.Pow(a, -x-1)/12
}

func TestZeta(t *testing.T) {
	var xs, qs, want []float64
	for _, x := range []float64{1.1, 2, 3.5, 7, 30} {
		for _, q := range []float64{0.1, 0.5, 1, 4.25, 40} {
			xs, qs, want = append(xs, x), append(qs, q), append(want, zeta(x, q))
		}
	}
	for _, c := range [][3]float64{{1, 3, math.Inf(1)}, {0.5, 2, math.NaN()}, {2, -1, math.Inf(1)}, {3, -2, math.NaN()}, {2.5, -0.5, math.NaN()}, {2, -0.5, zeta(2, -0.5)},
		{2, -9.5, zeta(2, -9.5)}, {2, -20.25, zeta(2, -20.25)}, {3, -20.25, zeta(3, -20.25)}, {3, -123.5, zeta(3, -123.5)}, {4, -1000.75, zeta(4, -1000.75)}, {3, -1e-9, zeta(3, -1e-9)}, {3, 0, math.NaN()}} {
		xs, qs, want = append(xs, c[0]), append(qs, c[1]), append(want, c[2])
	}
	got := run(t, []interp.Tensor{of(t, xs...), of(t, qs...)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
		return []*ir.Value{decompose.Zeta(math.NaN())(f, in[0], in[1])}, nil
	})[0].Float64s()
	for i, w := range want {
		if !near(got[i], w, 1e-11) {
			t.Errorf("zeta(%v, %v) = %v, want %v", xs[i], qs[i], got[i], w)
		}
	}
}

// Derivatives of digamma are differences of it, and zeta times a factorial.
func TestPolygamma(t *testing.T) {
	n := []float64{0, 1, 1, 2, 3, 1.5, -1, 1, 2, 1, 2}
	x := []float64{2.5, 1, 2.5, 0.75, 3, 1, 1, -20.5, -30.25, 0, -2}
	want := []float64{digamma(2.5), math.Pi * math.Pi / 6, zeta(2, 2.5), -2 * zeta(3, 0.75), 6 * zeta(4, 3), math.NaN(), math.NaN(), zeta(2, -20.5), -2 * zeta(3, -30.25), math.Inf(1), math.Inf(-1)}
	got := run(t, []interp.Tensor{of(t, n...), of(t, x...)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
		return []*ir.Value{decompose.Polygamma(math.Inf(1))(f, in[0], in[1])}, nil
	})[0].Float64s()
	for i, w := range want {
		if !near(got[i], w, 1e-11) {
			t.Errorf("polygamma(%v, %v) = %v, want %v", n[i], x[i], got[i], w)
		}
	}
}
