package fx_test

import (
	"math"
	"slices"
	"testing"
)

// Draws of other kinds have the moments, or the quartiles, that their parameters say. Integers of a wide range reach
// through it, down to their last bits.
func TestMoreDraws(t *testing.T) {
	const n = 4096
	zeros := of("float32", []int64{n}, make([]float64, n)...)
	draw := func(target, args, out string, in ...recordedTensor) []float64 {
		r := recorded{Target: target, Args: args, In: in, Out: []recordedTensor{of(out, []int64{n})}}
		got, msg := r.run(t)
		if msg != "" {
			t.Fatalf("%s: %s", target, msg)
		}
		return got[0].Float64s()
	}
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 8/math.Sqrt(n) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	mean := func(v []float64, f func(float64) float64) (sum float64) {
		for _, x := range v {
			sum += f(x) / float64(len(v))
		}
		return sum
	}
	square := func(x float64) float64 { return x * x }
	v := draw("aten.log_normal.default", "(x0, 1.0, 0.5)", "float32", zeros)
	near("mean of logarithms", mean(v, math.Log), 1)
	near("their deviation", mean(v, func(x float64) float64 { return square(math.Log(x) - 1) }), 0.25)
	v = draw("aten.geometric.default", "(x0, 0.8)", "float32", zeros)
	near("tries", mean(v, func(x float64) float64 { return x }), 1.25)
	near("their variance", mean(v, func(x float64) float64 { return square(x - 1.25) }), 0.3125)
	if slices.Min(v) != 1 {
		t.Errorf("%v tries", slices.Min(v))
	}
	v = draw("aten.cauchy.default", "(x0, 3.0, 2.0)", "float32", zeros)
	near("a quarter", mean(v, func(x float64) float64 { return float64(min(1, max(0, math.Ceil(1-x)))) }), 0.25)
	near("half", mean(v, func(x float64) float64 { return float64(min(1, max(0, math.Ceil(3-x)))) }), 0.5)
	v = draw("aten.randint.low", "(-2305843009213693952, 2305843009213693952, [4096])", "int64")
	near("the middle", mean(v, func(x float64) float64 { return x / 0x1p61 }), 0)
	near("the width", mean(v, func(x float64) float64 { return square(x / 0x1p61) }), 1.0/3)
	v = draw("aten.randint.default", "(33554433, [4096])", "int64")
	near("half of 2^25", mean(v, func(x float64) float64 { return x / (1 << 25) }), 0.5)
	near("odd ones", mean(v, func(x float64) float64 { return math.Mod(x, 2) }), 0.5)
}
