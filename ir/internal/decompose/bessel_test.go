package decompose_test

import (
	"math"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// Go's Bessel functions are those of FreeBSD, by other approximations.
func TestBessel(t *testing.T) {
	at := []float64{1e-12, 0.3, 1, 2, 3.5, 4.999, 5.001, 8, 25, 99.5, 1e4, 1e8}
	for order, of := range [][2]func(float64) float64{{math.J0, math.Y0}, {math.J1, math.Y1}} {
		unary(t, "bessel_j", 1e-12, append(at, 0, -0.5, -7, math.NaN()), decompose.BesselJ(order), of[0])
		unary(t, "bessel_y", 1e-12, append(at, 0, -0.5, math.NaN()), decompose.BesselY(order), of[1])
	}
}

// TestSpecialValues compares with values of mpmath, computed with 25 digits.
func TestSpecialValues(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	scaled := func(values map[float64]float64) map[float64]float64 {
		out := map[float64]float64{}
		for x, y := range values {
			out[x] = y * math.Exp(x)
		}
		return out
	}
	k0 := map[float64]float64{1e-30: 69.193484305479783, 0.1: 2.4270690247020166, 1.5: 0.21380556264752574, 2: 0.11389387274953344, 2.5: 0.062347553200366186, 30: 2.1324774964630564e-14, 600: 1.3558285309948524e-262, 0: inf, -1: nan}
	k1 := map[float64]float64{1e-30: 1e30, 0.1: 9.8538447808706056, 1.5: 0.27738780045684382, 2: 0.13986588181652243, 2.5: 0.073890816347747064, 30: 2.1677320018915494e-14, 600: 1.3569579181128061e-262, 0: inf, -1: nan}
	for _, c := range []struct {
		name   string
		f      func(to decompose.Emitter, x *ir.Value) *ir.Value
		values map[float64]float64
	}{
		{"k0", decompose.BesselK(0, false), k0}, {"k1", decompose.BesselK(1, false), k1},
		{"k0e", decompose.BesselK(0, true), scaled(k0)}, {"k1e", decompose.BesselK(1, true), scaled(k1)},
		{"airy", decompose.Airy, map[float64]float64{-50: -0.16188142361232092, -5: 0.35076100902411432, -2.1: 0.16348451299929268, -1: 0.53556088329235212, 0: 0.35502805388781724,
			1: 0.13529241631288142, 2: 0.034924130423274379, 2.1: 0.029952602115866522, 5: 0.00010834442813607442, 30: 3.2082175915504956e-49, 100: 2.6344821520881845e-291}},
		{"erfcx", decompose.Erfcx, map[float64]float64{-30: inf, -20: 1.0442939379528288e+174, -2: 108.94090438997797, 0: 1, 0.5: 0.61569034419292587, 3: 0.17900115118138995,
			10: 0.056140992743822586, 19.9: 0.028315573983185767, 20.1: 0.028034523526966877, 1000: 0.00056418930145338765, 1e10: 5.6418958354775629e-11}},
		{"ndtri", decompose.Ndtri, map[float64]float64{1e-300: -37.047096299361199, 1e-40: -13.310921371425171, 1e-14: -7.6506280929352688, 0.001: -3.0902323061678135, 0.2: -0.84162123357291417,
			0.5: 0, 0.6: 0.25334710313579974, 0.999: 3.0902323061678135, 0: -inf, 1: inf, 1.5: nan, -1: nan}},
		{"spherical_j0", decompose.SphericalBesselJ, map[float64]float64{0: 1, 1e-200: 1, 2: math.Sin(2) / 2, inf: 0}},
	} {
		xs := []float64{nan}
		for x := range c.values {
			xs = append(xs, x)
		}
		slices.Sort(xs)
		unary(t, c.name, 2e-13, xs, c.f, func(x float64) float64 {
			if x != x {
				return x
			}
			return c.values[x]
		})
	}
}
