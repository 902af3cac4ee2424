package bench

import (
	"math"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
)

func TestWaiting(t *testing.T) {
	c := func(from, to float64) rt.Span { return rt.Span{Stream: "compute", Start: from, End: to} }
	m := func(from, to float64) rt.Span { return rt.Span{Stream: "comm.g", Start: from, End: to} }
	for _, x := range []struct {
		name  string
		spans []rt.Span
		ms    float64
	}{
		{"nothing", nil, 0},
		{"no collectives", []rt.Span{c(0, 10), c(50, 60)}, 0},
		{"hidden", []rt.Span{c(0, 10), c(13, 30), m(5, 25)}, 0},
		{"before the first call", []rt.Span{m(0, 40), c(42, 50), c(53, 60)}, 40},
		{"after the last call", []rt.Span{c(0, 10), c(12, 20), m(15, 55)}, 35},
		{"between, less what is usual", []rt.Span{c(0, 10), c(12, 20), c(22, 30), c(132, 140), m(5, 130)}, 100},
		{"two collectives at once count once", []rt.Span{c(0, 10), c(11, 20), c(21, 30), c(131, 140), m(25, 100), m(60, 131)}, 100},
		{"idle without a collective", []rt.Span{c(0, 10), c(12, 20), c(22, 30), c(132, 140), m(0, 60)}, 30},
		{"calls out of order", []rt.Span{c(132, 140), c(12, 20), c(0, 10), c(22, 30), m(5, 130)}, 100},
	} {
		if got := waiting(x.spans, "compute"); math.Abs(got-x.ms) > 1e-9 {
			t.Errorf("%s: %v, want %v", x.name, got, x.ms)
		}
	}
}
