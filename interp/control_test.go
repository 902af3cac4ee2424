package interp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/ir"
)

const euclid = `
func @more(%a: i64[1], %b: i64[1]) -> (bool[]) {
  %c = ne %b {scalar=0.0} : bool[1]
  %r = view %c : bool[]
  return %r
}

func @euclid(%a: i64[1], %b: i64[1]) -> (i64[1], i64[1]) {
  %r = remainder %a, %b : i64[1]
  return %b, %r
}
`

// The greatest common divisor, where ranks iterate as often as their own numbers ask for, and
// some not at all.
func TestLoopByRank(t *testing.T) {
	f := parse(t, `world 3
func @gcd(%a: i64[1], %b: i64[1]) -> (i64[1]) {
  %r:2 = while %a, %b {body="euclid", cond="more"} : i64[1], i64[1]
  return %r#0
}
`+euclid)
	var in [][]Tensor
	for _, p := range [][2]float64{{1071, 462}, {7, 0}, {610, 377}} {
		in = append(in, []Tensor{tensor(t, ir.I64, []float64{p[0]}, 1), tensor(t, ir.I64, []float64{p[1]}, 1)})
	}
	out := run(t, f, in, Options{Poison: true})
	for r, gcd := range []float64{21, 7, 1} {
		want(t, out, r, 0, gcd)
	}
}

// A loop in a branch of a case in a loop, which reads what is the same in every iteration.
func TestNestedControl(t *testing.T) {
	f := parse(t, `world 2
func @f(%n: i64[], %x: f32[3], %w: f32[3]) -> (i64[], f32[3]) {
  %r:2 = while %n, %x, %w {body="outer", cond="positive"} : i64[], f32[3]
  return %r#0, %r#1
}

func @positive(%n: i64[], %x: f32[3], %w: f32[3]) -> (bool[]) {
  %c = gt %n {scalar=0.0} : bool[]
  return %c
}

func @outer(%n: i64[], %x: f32[3], %w: f32[3]) -> (i64[], f32[3]) {
  %odd = bitwise_and %n {scalar=1} : i64[]
  %y = case %odd, %n, %x, %w {branches=["even", "odd"]} : f32[3]
  %m = sub %n {scalar=1.0} : i64[]
  return %m, %y
}

func @even(%n: i64[], %x: f32[3], %w: f32[3]) -> (f32[3]) {
  return %w
}

func @odd(%n: i64[], %x: f32[3], %w: f32[3]) -> (f32[3]) {
  %r:2 = while %n, %x, %w {body="inner", cond="positive"} : i64[], f32[3]
  return %r#1
}

func @inner(%n: i64[], %x: f32[3], %w: f32[3]) -> (i64[], f32[3]) {
  %m = sub %n {scalar=1.0} : i64[]
  %y = add %x, %w : f32[3]
  return %m, %y
}
`)
	var in [][]Tensor
	for _, n := range []float64{3, 4} {
		in = append(in, []Tensor{tensor(t, ir.I64, []float64{n}), tensor(t, ir.F32, []float64{1, 2, 3}, 3), tensor(t, ir.F32, []float64{10, 20, 30}, 3)})
	}
	out := run(t, f, in, Options{})
	// From 3: x+3w, then w, then w+w. From 4: w, then w+3w, then w, then 2w.
	for r := range out {
		want(t, out, r, 1, 20, 40, 60)
		want(t, out, r, 0, 0)
	}
}

const rounds = `world 2
group @all = [[0, 1]]
func @f(%n: i64[], %x: f32[2]) -> (f32[2]) {
  %r:2 = while %n, %x {body="step", cond="more", uniform=true} : i64[], f32[2]
  return %r#1
}

func @more(%n: i64[], %x: f32[2]) -> (bool[]) {
  %c = gt %n {scalar=0.0} : bool[]
  return %c
}

func @step(%n: i64[], %x: f32[2]) -> (i64[], f32[2]) {
  %m = sub %n {scalar=1.0} : i64[]
  %s = all_reduce.sum %x on @all : async f32[2]
  %y = wait_tensor %s : f32[2]
  return %m, %y
}
`

// A collective in a loop; ranks that do not go the same way are an error and no hang.
func TestLoopWithCollective(t *testing.T) {
	f := parse(t, rounds)
	in := func(n0, n1 float64) [][]Tensor {
		return [][]Tensor{{tensor(t, ir.I64, []float64{n0}), tensor(t, ir.F32, []float64{1, 2}, 2)}, {tensor(t, ir.I64, []float64{n1}), tensor(t, ir.F32, []float64{3, 4}, 2)}}
	}
	out := run(t, f, in(3, 3), Options{Poison: true})
	want(t, out, 1, 0, 16, 24)
	_, err := Run(context.Background(), f, in(3, 2), Options{})
	if err == nil || !strings.Contains(err.Error(), "while %r on rank 1: it communicates, and this rank leaves it while others go on") {
		t.Errorf("got %v", err)
	}
}

// A loop without an end ends with its context.
func TestEndlessLoop(t *testing.T) {
	f := parse(t, `world 1
func @f(%n: i64[]) -> (i64[]) {
  %r = while %n {body="same", cond="yes"} : i64[]
  return %r
}

func @yes(%n: i64[]) -> (bool[]) {
  %c = eq %n, %n : bool[]
  return %c
}

func @same(%n: i64[]) -> (i64[]) {
  return %n
}
`)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, f, [][]Tensor{{tensor(t, ir.I64, []float64{1})}}, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
