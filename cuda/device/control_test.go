package device_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
)

const rounds = `world 2
group @all = [[0, 1]]
func @f(%n: i64[] {uniform=true}, %x: f32[4], %w: f32[4]) -> (i64[], f32[4]) {
  %r:2 = while %n, %x, %w {body="round", cond="more"} : i64[], f32[4]
  return %r#0, %r#1
}

func @more(%n: i64[], %x: f32[4], %w: f32[4]) -> (bool[]) {
  %c = ne %n {scalar=0.0} : bool[]
  return %c
}

func @round(%n: i64[], %x: f32[4], %w: f32[4]) -> (i64[], f32[4]) {
  %m = sub %n {scalar=1.0} : i64[]
  %a = all_reduce.max %x on @all : async f32[4]
  %b = wait_tensor %a : f32[4]
  %odd = bitwise_and %n {scalar=1} : i64[]
  %d = case %odd, %b, %w {branches=["plus", "less"]} : f32[4]
  return %m, %d
}

func @plus(%x: f32[4], %w: f32[4]) -> (f32[4]) {
  %y = add %x, %w : f32[4]
  return %y
}

func @less(%x: f32[4], %w: f32[4]) -> (f32[4]) {
  %y = sub %x, %w : f32[4]
  %z = mul %y, %y : f32[4]
  return %z
}
`

// endless is a loop that nobody but the host ends, and no collective.
const endless = `world 1
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
`

// Loops with collectives and branches run on GPUs as in the interpreter: the host runs
// them, or captured steps do by themselves, or the host again where the driver has no
// conditional nodes. One without an end ends with its context.
func TestControl(t *testing.T) {
	m, err := ir.Parse("t.ir", rounds)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	in := func(n float64) [][]interp.Tensor {
		var all [][]interp.Tensor
		for r := range 2 {
			var ts []interp.Tensor
			for _, x := range []struct {
				dt    ir.DType
				vals  []float64
				shape []int64
			}{{ir.I64, []float64{n}, nil}, {ir.F32, []float64{1, 2, float64(r), 4}, []int64{4}}, {ir.F32, []float64{.5, float64(r), 1, 3}, []int64{4}}} {
				v, err := interp.FromFloats(x.dt, x.vals, x.shape...)
				if err != nil {
					t.Fatal(err)
				}
				ts = append(ts, v)
			}
			all = append(all, ts)
		}
		return all
	}
	drv, devs, o := target(t, 2)
	for _, h := range []how{eager, packed, graph} {
		for _, n := range []float64{0, 3} {
			want, err := interp.Run(t.Context(), f, in(n), interp.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := runner(drv, devs, o, lower.Options{Kernels: true}, h, 2)(t.Context(), f, in(n))
			if err != nil {
				t.Fatalf("%v: %v", h, err)
			}
			for r := range want {
				for i := range want[r] {
					if !interp.Equal(got[r][i], want[r][i]) {
						t.Errorf("%v: n=%g, rank %d, result %d: %v, want %v", h, n, r, i, got[r][i], want[r][i])
					}
				}
			}
		}
	}
	alone, err := ir.Parse("t.ir", endless)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []how{eager, packed, graph} {
		for _, f := range []*ir.Func{f, alone.Func("f")} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			in := in(-1)
			if f.Module() == alone {
				in = [][]interp.Tensor{in[0][:1]}
			}
			if _, err := runner(drv, devs, o, lower.Options{Kernels: true}, h, 1)(ctx, f, in); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, without an end: %v", h, err)
			}
			cancel()
		}
	}
}
