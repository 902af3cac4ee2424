package interp

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

const symbolic = `world 2
group @g = [[0, 1]]
sym s hint 3 max 9

func @f(%x: f32[s,2]) -> (f32[2*s], f32[1,2]) {
  %d = add %x, %x : f32[s,2]
  %v = view %d : f32[2*s]
  %t = slice %d {dim=0, end=2, start=1} : f32[1,2]
  return %v, %t
}
`

// Symbols come from the caller, from the inputs' shapes or from the hint.
func TestSymbols(t *testing.T) {
	f := parse(t, symbolic)
	in := each(tensor(t, ir.F32, seq(0, 4), 2, 2), tensor(t, ir.F32, seq(0, 6), 3, 2))
	out := run(t, f, in, Options{})
	want(t, out, 0, 0, 0, 2, 4, 6)
	want(t, out, 1, 0, 0, 2, 4, 6, 8, 10)
	want(t, out, 0, 1, 4, 6)
	if _, err := Run(context.Background(), f, in, Options{Symbols: []map[string]int64{{"s": 2}, {"s": 4}}}); err == nil || !strings.Contains(err.Error(), "got f32[3,2], want f32[4 2]") {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), f, in, Options{Symbols: []map[string]int64{{"s": 10}, nil}}); err == nil || !strings.Contains(err.Error(), "outside 0..9") {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), f, in, Options{Symbols: []map[string]int64{{"q": 1}, nil}}); err == nil || !strings.Contains(err.Error(), "symbol q") {
		t.Fatal(err)
	}
	short := each(tensor(t, ir.F32, seq(0, 2), 1, 2), tensor(t, ir.F32, seq(0, 6), 3, 2))
	if _, err := Run(context.Background(), f, short, Options{}); err == nil || !strings.Contains(err.Error(), "slice 1..2 is outside dimension 0 of size 1") {
		t.Fatal(err)
	}
	rand, err := RandomInputs(f, 7, RandomOptions{Symbols: []map[string]int64{{"s": 5}, nil}})
	if err != nil || rand[0][0].Shape[0] != 5 || rand[1][0].Shape[0] != 3 {
		t.Fatal(rand, err)
	}
}

// Sizes that no input has alone follow from those that it has.
func TestSolvedSymbols(t *testing.T) {
	f := parse(t, `world 2
sym a hint 1 max 9
sym b hint 1 min 1 max 9
func @f(%y: f32[a*b], %x: f32[2*b+1]) -> (f32[a,b]) {
  %v = view %y : f32[a,b]
  return %v
}
`)
	on := func(n int64) [][]Tensor {
		one := []Tensor{tensor(t, ir.F32, seq(0, 6), 6), tensor(t, ir.F32, seq(0, int(n)), n)}
		return [][]Tensor{one, one}
	}
	if out := run(t, f, on(7), Options{}); !slices.Equal(out[0][0].Shape, []int64{2, 3}) {
		t.Fatal(out[0][0].Shape)
	}
	for want, n := range map[string]int64{"symbol b is 0 on rank 0, outside 1..9": 1, "got f32[6], want": 6} {
		if _, err := Run(context.Background(), f, on(n), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %s", n, err, want)
		}
	}
}
