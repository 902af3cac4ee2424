//go:build linux

package device_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Random numbers of every type, and this rank's piece of tensors whose size is known at
// run time, are the interpreter's: eagerly, as a command buffer and as a graph.
func TestRandomAndShard(t *testing.T) {
	m, err := ir.Parse("random.ir", `world 2
group @g = [[0, 1]]
sym s hint 4 max 8

func @f(%x: f32[s,6], %y: bf16[8,4]) -> (f32[1000,3], f16[4096], bf16[4096], f64[7,11], f32[s,3], bf16[4,4]) {
  %a = rand {seed=7} : f32[1000,3]
  %b = rand {seed=7} : f16[4096]
  %c = rand : bf16[4096]
  %d = rand {seed=-1} : f64[7,11]
  %p = shard %x on @g {dim=1} : f32[s,3]
  %q = shard %y on @g {dim=0} : bf16[4,4]
  return %a, %b, %c, %d, %p, %q
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	s := lowered(t, f, lower.Options{Kernels: true})
	drv, devs, o := target(t, 2)
	err = device.Local(t.Context(), drv, devs, rt.Config{}, o, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		for _, size := range []int64{4, 7} {
			sizes := []map[string]int64{{"s": size}, {"s": size}}
			inputs, err := interp.RandomInputs(f, uint64(size), interp.RandomOptions{Symbols: sizes})
			if err != nil {
				return err
			}
			want, err := interp.Run(ctx, f, inputs, interp.Options{Symbols: sizes})
			if err != nil {
				return err
			}
			in, err := hostrun.Inputs(ctx, r, s.Module, inputs[k])
			if err != nil {
				return err
			}
			for _, h := range []how{eager, packed, graph} {
				if h != eager && size != 4 {
					continue // captured for one size, the hint
				}
				got, err := runStep(ctx, r, s, in, h, 2)
				if err != nil {
					return fmt.Errorf("%v: %w", h, err)
				}
				for i := range got {
					if !interp.Equal(got[i], want[k][i]) {
						t.Errorf("rank %d, %v, size %d: output %d differs from the interpreter's", k, h, size, i)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
