//go:build linux

package device_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Ranks whose sizes make a collective of other sizes learn so before it runs, call by call as captured,
// with sizes that the step has had before as with new ones.
func TestSizesOfCollectivesDiffer(t *testing.T) {
	const n = 2
	for op, text := range map[string]string{
		"all_reduce": "func @f(%x: f32[s,64]) -> (f32[s,64]) {\n  %a = all_reduce.sum %x on @g : async f32[s,64]\n  %y = wait_tensor %a : f32[s,64]\n  return %y\n}\n",
		"all_gather": "func @f(%x: f32[s,64]) -> (f32[2*s,64]) {\n  %a = all_gather %x on @g {dim=0} : async f32[2*s,64]\n  %y = wait_tensor %a : f32[2*s,64]\n  return %y\n}\n",
	} {
		m, err := ir.Parse(op, "world 2\ngroup @g = [[0, 1]]\nsym s hint 16 min 1 max 4096\n"+text)
		if err == nil {
			err = m.Verify()
		}
		if err != nil {
			t.Fatal(err)
		}
		s := lowered(t, m.Func("f"), lower.Options{Kernels: true})
		for _, rows := range [][n]int64{{8, 12}, {1000, 1001}, {4000, 300}} {
			for _, over := range []topo.Transport{"", topo.NCCL} {
				t.Run(fmt.Sprintf("%s of %v %s", op, rows, over), func(t *testing.T) {
					drv, devs, o := target(t, n)
					if o.ShareDevice && over == topo.NCCL {
						t.Skip("NCCL wants a GPU for each rank")
					}
					o.Transport = over
					var errs [n]error
					all := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
						me := r.Info().Rank
						run := func(rows int64) error {
							in := []rt.Value{{DType: rt.F32, Shape: rt.Dims{rows, 64}, Data: make([]byte, 256*rows)}}
							_, err := rt.RunModule(ctx, r, s.Module, s.Run, in, rt.Options{})
							return err
						}
						if err := errors.Join(run(300), run(rows[1])); err != nil {
							return err
						}
						errs[me] = run(rows[me])
						return errs[me]
					})
					for me, err := range errs {
						if !errors.Is(err, rt.ErrMismatch) {
							t.Errorf("rank %d: %v, want that sizes differ (all: %v)", me, err, all)
						}
					}
				})
			}
		}
	}
}
