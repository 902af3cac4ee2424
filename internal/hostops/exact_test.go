package hostops

import (
	"math"
	"testing"
)

// The values are exact ones, rounded once: of large arguments, of ones near
// multiples of π/2 (the last is the nearest that float64 has), of large powers and of subnormals.
func TestExactFunctions(t *testing.T) {
	check := func(name string, got, want, ulps float64) {
		if d := math.Abs(got - want); !(d <= ulps*(math.Nextafter(math.Abs(want), math.Inf(1))-math.Abs(want))) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, c := range [][4]float64{
		{1e+30, 0.009331468931175825, -0.9999564608959665, -0.009331875232662407},
		{100000, 0.03574879797201651, -0.9993608074382124, -0.035771662952898776},
		{math.Pi, 1.2246467991473532e-16, -1, -1.2246467991473532e-16},
		{355, -3.014435335948845e-05, -0.999999999545659, 3.0144353373184265e-05},
		{math.MaxFloat64, 0.004961954789184062, -0.9999876894265599, -0.004962015874444895},
		{0.5, 0.479425538604203, 0.8775825618903728, 0.5463024898437905},
		{-22, 0.008851309290403876, -0.9999608263946371, -0.00885165604168446},
		{1e+22, -0.8522008497671888, 0.523214785395139, -1.6287782256068988},
		{5e-324, 5e-324, 1, 5e-324},
		{0x1.6ac5b262ca1ffp849, 1, -4.687165924254628e-19, -2.133485385753704e+18},
	} {
		check("sine", sine(c[0]), c[1], 1)
		check("cosine", cosine(c[0]), c[2], 1)
		check("tangent", tangent(c[0]), c[3], 2)
	}
	for _, c := range [][3]float64{
		{4.12130321263648, 359.3823897325479, 1.0779352682034096e+221},
		{1.0000001, 1e+09, 2.6881038582144647e+43},
		{9.157895073963592, -152.49427727293462, 2.1461765151149973e-147},
		{0.999, 123456.5, 2.273511582011322e-54},
		{5e-324, 0.25, 1.4908919308538355e-81},
		{3, 0.3, 1.3903891703159093},
		{math.MaxFloat64, 0.999, 8.840174632999172e+307},
		{2, -1074, 5e-324}, {2, -1076, 0}, {-2, 3, -8}, {-3, 1024, math.Inf(1)}, {0.9, -1e300, math.Inf(1)}, {-0.9, 1e300, 0}, {10, 22, 1e22}, {0, -1, math.Inf(1)},
	} {
		if got := power(c[0], c[1]); got != c[2] {
			check("power", got, c[2], 1)
		}
	}
	for _, v := range []float64{sine(math.Inf(1)), cosine(math.Inf(-1)), tangent(math.NaN()), power(-8, 1.0/3)} {
		if v == v {
			t.Errorf("got %v, want NaN", v)
		}
	}
	if z := math.Copysign(0, -1); !math.Signbit(sine(z)) || !math.Signbit(tangent(z)) || !math.Signbit(power(-0.5, 1e15+1)) {
		t.Error("a zero has lost its sign")
	}
}

// Functions of which package math loses digits, or all, in a part of their domain.
func TestWholeDomains(t *testing.T) {
	for name, list := range map[string][][2]float64{
		"exp":   {{709.7, 1.6549840276802644e+308}, {709.43614, 1.271161892020974e+308}, {709.782712893384, 1.7976931348622732e+308}, {709.79, math.Inf(1)}, {-745.1, 5e-324}},
		"silu":  {{-709.7, -709.7 / 1.6549840276802644e+308}, {-800, 0}},
		"log2":  {{1.0000000000000002, 3.203426503814917e-16}, {1.0000004307445594, 6.214329058309724e-07}, {0.9999999999999999, -1.6017132519074588e-16}, {8, 3}, {5e-324, -1074}, {0, math.Inf(-1)}},
		"log10": {{5e-324, -323.3062153431158}, {1e-310, -310}, {1000, 3}, {0, math.Inf(-1)}},
		"asin":  {{0.9999999907755888, 1.5706605003523382}, {-0.9999999999999999, -1.5707963118937354}, {1, math.Pi / 2}, {1e-300, 1e-300}},
	} {
		for _, c := range list {
			got := make([]float64, 1)
			unaryOps[name].f64(got, []float64{c[0]})
			if off := math.Abs(got[0] - c[1]); got[0] != c[1] && !(off <= 3*(math.Nextafter(math.Abs(c[1]), math.Inf(1))-math.Abs(c[1]))) {
				t.Errorf("%s of %v is %v, want %v", name, c[0], got[0], c[1])
			}
		}
		for _, x := range []float64{math.NaN(), -2, 2} {
			got := make([]float64, 1)
			if unaryOps[name].f64(got, []float64{x}); (got[0] != got[0]) != (x != x || name[:2] == "lo" && x < 0 || name == "asin") {
				t.Errorf("%s of %v is %v", name, x, got[0])
			}
		}
	}
}
