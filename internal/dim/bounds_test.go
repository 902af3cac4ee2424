package dim

import (
	"fmt"
	"math"
	"testing"
)

// under gives every symbol the range from 0 to what the map says.
func under(most map[string]int64) func(string) (Range, bool) {
	return func(s string) (Range, bool) { n, ok := most[s]; return Range{0, n}, ok }
}

func TestBounds(t *testing.T) {
	most := map[string]int64{"s": 4, "t": 4, "n": 8192, "m": 1 << 40, "h": 1 << 33}
	for _, c := range []struct {
		in       string
		min, max int64
	}{
		{"7", 7, 7},
		{"s", 0, 4},
		{"4-s", 0, 4},
		{"8-2*s", 0, 8},
		{"64*(8-2*s)", 0, 512},
		{"s+t-3", -3, 5},
		{"s-t", -4, 4},
		{"s*(4-s)", 0, 4},
		{"(4-s)*(4-t)", 0, 16},
		{"(4-s)*(4-s)", 0, 16},
		{"s*t-s", -4, 12},
		{"n*(8192-n)", 0, 4096 * 4096},
		{"n*n-8192*n", -4096 * 4096, 0},
		{"(n-4096)*(s-2)", -8192, 8192},
		{"(n+1)//2", 0, 4096},
		{"(8192-n)//3*4", 0, 2730 * 4},
		{"n-n//2*2", 0, 1},             // n mod 2
		{"n-n//512*512", 0, 511},       // n mod 512
		{"(n+511)//512*512-n", 0, 511}, // padding
		{"(n//16)//16-n//256", 0, 0},   // two ways to say it
		{"16*((s-1)//2)*((t-1)//2)*n+16*((s-1)//2)*n+16*((t-1)//2)*n+16*n", 0, 16 * 2 * 2 * 8192},
		{"(s-4)//3", -2, 0},
		{"s*((t-4)//2)", -8, 0},
		{"n*(s+1)-n", 0, 4 * 8192},
		{"m*s", 0, 4 << 40},
		{"s*s*s-6*s*s+9*s", 0, 4},
	} {
		d, err := Parse(c.in)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := d.Bounds(under(most))
		if !ok || r.Min != c.min || r.Max != c.max {
			t.Errorf("%s in %v, %v, want %d..%d", c.in, r, ok, c.min, c.max)
		}
	}
	for _, in := range []string{"u", "h*h", "m*m*m", "h*h-h*h+h*h*h"} {
		d, err := Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := d.Bounds(under(most)); ok {
			t.Errorf("%s in %v", in, r)
		}
	}
	if _, ok := New(math.MaxInt64).Bounds(under(nil)); ok {
		t.Error("a number that leaves no room has bounds")
	}
}

// random makes an expression of a few operators over symbols a, b and c.
func random(pick func(n int) int, depth int) Dim {
	if depth == 0 || pick(4) == 0 {
		if pick(3) == 0 {
			return New(int64(pick(9)))
		}
		return Sym(string(rune('a' + pick(3))))
	}
	x, y := random(pick, depth-1), random(pick, depth-1)
	switch pick(4) {
	case 0:
		return x.Mul(y)
	case 1:
		return x.Sub(y)
	case 2:
		return x.Div(int64(1 + pick(4)))
	}
	return x.Add(y)
}

// Bounds agree with all values, where the search ends, and contain them always.
func TestBoundsOfRandomExpressions(t *testing.T) {
	state := uint64(1)
	pick := func(n int) int {
		state = state*6364136223846793005 + 1442695040888963407
		return int(state >> 33 % uint64(n))
	}
	wide := 0
	for range 20000 {
		d := random(pick, 4)
		most := map[string]int64{"a": int64(pick(6)), "b": int64(pick(4)), "c": int64(pick(5))}
		want := Range{math.MaxInt64, math.MinInt64}
		for a := range most["a"] + 1 {
			for b := range most["b"] + 1 {
				for c := range most["c"] + 1 {
					n, ok := d.Eval(func(s string) (int64, bool) { return map[string]int64{"a": a, "b": b, "c": c}[s], true })
					if !ok {
						t.Fatal(d)
					}
					want = Range{min(want.Min, n), max(want.Max, n)}
				}
			}
		}
		got, ok := d.Bounds(under(most))
		if !ok || got.Min > want.Min || got.Max < want.Max {
			t.Fatalf("%s with %v in %v, %v, want %v", d, most, got, ok, want)
		}
		if got != want {
			wide++
		}
	}
	if wide > 20 {
		t.Errorf("%d of 20000 ranges are too wide", wide)
	}
}

// Sums of very many symbols have bounds in time near linear.
func TestBoundsOfManySymbols(t *testing.T) {
	var ds []Dim
	for i := range 20000 {
		ds = append(ds, Sym(fmt.Sprint("s", i)).Mul(New(int64(i%3-1))), Sym(fmt.Sprint("s", i/2)))
	}
	d := Sum(ds...)
	r, ok := d.Bounds(func(string) (Range, bool) { return Range{0, 10}, true })
	if !ok || r.Min > 0 || r.Max < 100000 {
		t.Errorf("%v, %v", r, ok)
	}
}

func BenchmarkBounds(b *testing.B) {
	for _, in := range []string{"64*(8-2*s)", "n*(8192-n)", "(n+511)//512*512-n"} {
		d, err := Parse(in)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(in, func(b *testing.B) {
			for b.Loop() {
				d.Bounds(under(map[string]int64{"s": 4, "n": 8192}))
			}
		})
	}
}
