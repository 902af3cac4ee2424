package hostops

import (
	"math"
	"testing"
)

// The error function is that of package math to three units in the last place of float64, for numbers in
// all of its pieces and at their ends, and the float32 that it rounds to.
func TestErf(t *testing.T) {
	check := func(x float32) {
		t.Helper()
		got, want := erfSeries().erf(float64(x)), math.Erf(float64(x))
		if math.IsNaN(want) {
			if !math.IsNaN(got) {
				t.Errorf("erf(%v) is %v", x, got)
			}
			return
		}
		if math.Abs(got-want) > 3*(math.Nextafter(math.Abs(want), 2)-math.Abs(want)) || math.Signbit(got) != math.Signbit(want) {
			t.Errorf("erf(%v) is %v, want %v: off by %.2g", x, got, want, got-want)
		}
	}
	for _, x := range []float64{0, math.Copysign(0, -1), 1e-45, 1e-38, 1e-20, 1e-5, 3.9, 5.99999, 6, 6.5, 1e38, math.Inf(1), math.NaN()} {
		check(float32(x))
		check(float32(-x))
	}
	for k := range 16 * 100 { // sixteenths of pieces
		x := float32(k) / 256
		for _, y := range []float32{x, math.Nextafter32(x, 9), math.Nextafter32(x, -9)} {
			check(y)
			check(-y)
		}
	}
	for bits := uint32(1); bits < math.Float32bits(7); bits += 104729 {
		check(math.Float32frombits(bits))
	}
}
