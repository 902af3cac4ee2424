package lower_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Rounds on four ranks, with a collective in each, a branch that does not run on all of them, a
// loop in it, carried values that change places, one that is donated, and what is the same in
// every iteration, of which one view is where no kernel could read it.
const rounds = `world 4
group @all = [[0, 1, 2, 3]]
group @two = [[0, 1], [2, 3]]
func @f(%n: i64[] {uniform=true}, %k: i64[1], %x: f32[4], %w: f32[5]) -> (i64[], f32[4], f32[4], i64[1]) {
  %v = slice %w {dim=0, end=5, start=1} : f32[4]
  %w0 = neg %x : f32[4]
  %r:4 = while %n, %x, %w0, %k, %v {body="round", cond="more"} : i64[], f32[4], f32[4], i64[1]
  return %r#0, %r#1, %r#2, %r#3
}

func @more(%n: i64[], %x: f32[4], %y: f32[4], %k: i64[1], %v: f32[4]) -> (bool[]) {
  %c = gt %n {scalar=0.0} : bool[]
  return %c
}

func @round(%n: i64[] {donate=0}, %x: f32[4], %y: f32[4], %k: i64[1], %v: f32[4]) -> (i64[], f32[4], f32[4], i64[1]) {
  %m = sub %n {scalar=1.0} : i64[]
  %a = all_reduce.max %x on @two : async f32[4]
  %b = wait_tensor %a : f32[4]
  %c = sub %b, %v : f32[4]
  %one = view %k : i64[]
  %odd = bitwise_and %one {scalar=1} : i64[]
  %d = case %odd, %c, %k {branches=["keep", "double"]} : f32[4]
  %l = add %k {scalar=1.0} : i64[1]
  return %m, %y, %d, %l
}

func @keep(%x: f32[4], %k: i64[1]) -> (f32[4]) {
  return %x
}

func @double(%x: f32[4], %k: i64[1]) -> (f32[4]) {
  %r:2 = while %x, %k {body="twice", cond="low"} : f32[4], i64[1]
  return %r#0
}

func @low(%x: f32[4], %k: i64[1]) -> (bool[]) {
  %v = view %k : i64[]
  %c = lt %v {scalar=6.0} : bool[]
  return %c
}

func @twice(%x: f32[4], %k: i64[1]) -> (f32[4], i64[1]) {
  %y = add %x, %x : f32[4]
  %l = add %k {scalar=2.0} : i64[1]
  return %y, %l
}
`

// Interpreter and host agree on loops and branches, before and after all passes, with kernels
// and without, and no iteration at all is a loop, too.
func TestRounds(t *testing.T) {
	m := parsed(t, rounds)
	for _, pipeline := range []string{"", "default", "cuda"} {
		p, err := standard.Table().Parse(pipeline)
		if err != nil {
			t.Fatal(err)
		}
		after := m.Clone()
		manager := passes.Manager{Hooks: []passes.Hook{lower.CheckHook()}}
		if _, err := manager.Run(after, p); err != nil {
			t.Fatal(err)
		}
		for _, kernels := range []bool{false, true} {
			prog, err := lower.FuncWith(after.Func("f"), lower.Options{Kernels: kernels})
			if err != nil {
				t.Fatal(err)
			}
			s, err := hostrun.OfProgram(prog)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []float64{0, 1, 4} {
				in := make([][]interp.Tensor, 4)
				for r := range in {
					f := float64(r)
					in[r] = []interp.Tensor{floats(t, ir.I64, []float64{n}), floats(t, ir.I64, []float64{f}, 1), floats(t, ir.F32, []float64{f, 1, 2 - f, 3}, 4), floats(t, ir.F32, []float64{9, .5, .25, f, 1}, 5)}
				}
				want, err := interp.Run(t.Context(), m.Func("f"), in, interp.Options{})
				if err != nil {
					t.Fatal(err)
				}
				got, err := hostrun.RunLocal(t.Context(), rt.Config{Timeout: time.Minute}, 4, s, in)
				if err != nil {
					t.Fatal(err)
				}
				for r := range want {
					for i := range want[r] {
						if !interp.Equal(got[r][i], want[r][i]) {
							t.Errorf("passes %q, kernels %v, n=%g, rank %d, result %d: %v, want %v", pipeline, kernels, n, r, i, got[r][i], want[r][i])
						}
					}
				}
			}
		}
	}
}

// A loop without an end ends with its context.
func TestEndless(t *testing.T) {
	m := parsed(t, `world 2
func @f(%n: i64[]) -> (i64[]) {
  %r = while %n {body="next", cond="yes"} : i64[]
  return %r
}

func @yes(%n: i64[]) -> (bool[]) {
  %c = eq %n, %n : bool[]
  return %c
}

func @next(%n: i64[]) -> (i64[]) {
  %m = add %n {scalar=1.0} : i64[]
  return %m
}
`)
	p, err := lower.Func(m.Func("f"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := hostrun.OfProgram(p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	in := [][]interp.Tensor{{floats(t, ir.I64, []float64{0})}, {floats(t, ir.I64, []float64{0})}}
	if _, err := hostrun.RunLocal(ctx, rt.Config{Timeout: time.Minute}, 2, s, in); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func parsed(t *testing.T, text string) *ir.Module {
	t.Helper()
	m, err := ir.Parse("t.ir", text)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func floats(t *testing.T, dt ir.DType, vals []float64, shape ...int64) interp.Tensor {
	t.Helper()
	x, err := interp.FromFloats(dt, vals, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
