//go:build linux

package device_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Ranks that capture different steps learn so at once, and which ranks they are.
func TestStepsDiffer(t *testing.T) {
	fakeOnly(t)
	for _, over := range []topo.Transport{"", topo.NCCL} {
		for _, graph := range []bool{false, true} {
			noGoroutines(t)
			m, f := besideModule()
			drv, devs, o := target(t, 2)
			o.Transport = over
			errs := make([]error, 2)
			start := time.Now()
			err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: time.Minute}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
				me := r.Info().Rank
				s, err := rt.Prepare(ctx, r, m, otherOn(1, me, f), rt.Options{}, graph)
				if errs[me] = err; err == nil {
					return s.Close()
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			for me, err := range errs {
				if err := differing(err, me, time.Since(start)); err != nil {
					t.Errorf("%q, graph %v: %v", over, graph, err)
				}
			}
		}
	}
}

// Other subgroups of a group may do something else, and sizes of rows may differ.
func TestStepsOfSubgroups(t *testing.T) {
	x, y := rt.C(0, rt.F32, 64), rt.C(4096, rt.F32, 128)
	m := &rt.Module{Name: "m", World: 4, Arena: 8192, Streams: []string{"compute", "comm.g"}, Groups: []rt.Group{{Name: "g", Ranks: [][]int{{0, 1}, {2, 3}}}}}
	world(t, 4, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		s, err := rt.Prepare(ctx, r, m, func(e *rt.Exec) {
			for range 1 + r.Info().Rank/2 {
				e.AllGather("comm.g", "g", 0, rt.Ts{y}, rt.Ts{x})
			}
		}, rt.Options{}, false)
		if err != nil {
			return err
		}
		for range 3 {
			if err := s.Replay(ctx); err != nil {
				return err
			}
		}
		return s.Close()
	})
}
