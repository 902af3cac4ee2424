package runtime_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
)

const sizedText = `program @f world 1
sym s hint 2 max 4
stream @compute
events 0
arena 1024
buffer %a at 0 size 512
buffer %c at 512 size 512
input a = %a: f32[s,2]
output c = %c: f32[s,2]
kernel k0 {sizes=1}
step neg (p0: f32[n0,2]) -> (t0: f32[n0,2]) from %n
step mul (t0: f32[n0,2], p0: f32[n0,2]) -> (p1: f32[n0,2]) from %m
body
@compute launch fused (%a: f32[s,2]) -> (%c: f32[s,2]) {kernel="k0", sizes=["s"]} from %m
`

// A kernel that takes sizes runs on as many elements as there are in each run, of a
// program or of emitted code.
func TestFusedSizes(t *testing.T) {
	p, m := parse(t, sizedText)
	call := func(x *rt.Exec) {
		s := x.Sym("s")
		x.Fused("compute", "k0", rt.Ts{rt.C(512, rt.F32, s, 2)}, rt.Ts{rt.C(0, rt.F32, s, 2)}, s)
	}
	err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		for _, s := range []int64{2, 0, 4, 1, 4} {
			var data, want []float32
			for i := range 2 * s {
				data, want = append(data, float32(i)), append(want, -float32(i*i))
			}
			in := []rt.Value{f32(rt.Dims{s, 2}, data...)}
			for _, run := range []func() ([]rt.Value, error){
				func() ([]rt.Value, error) { return rt.Run(ctx, r, p, in, rt.Options{}) },
				func() ([]rt.Value, error) { return rt.RunModule(ctx, r, m, call, in, rt.Options{}) },
			} {
				outs, err := run()
				if err != nil {
					return err
				}
				if got := numbers(outs[0].Data); !slices.Equal(got, want) {
					t.Errorf("for %d rows %v, want %v", s, got, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Sizes that do not fit the kernel or its operands are refused before the device sees
// them.
func TestFusedSizesMisuse(t *testing.T) {
	for _, c := range []struct {
		sizes []int64
		want  string
	}{
		{nil, "kernel k0 takes 1 sizes, not 0"},
		{[]int64{2, 2}, "kernel k0 takes 1 sizes, not 2"},
		{[]int64{3}, "parameter 0 is f32[2 2]"},
		{[]int64{-1}, "size parameter 0 of 1"},
	} {
		_, m := parse(t, sizedText)
		err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			_, err := rt.RunModule(ctx, r, m, func(x *rt.Exec) {
				x.Fused("compute", "k0", rt.Ts{rt.C(512, rt.F32, 2, 2)}, rt.Ts{rt.C(0, rt.F32, 2, 2)}, c.sizes...)
			}, []rt.Value{f32(rt.Dims{2, 2}, 1, 2, 3, 4)}, rt.Options{})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.sizes, err, c.want)
		}
	}
}
