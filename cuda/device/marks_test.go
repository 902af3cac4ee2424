//go:build linux

package device_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Marks tell when a replay came past them, in the order in which they were put, of
// packed steps and of graphs, on all streams.
func TestMarks(t *testing.T) {
	fakeOnly(t)
	for _, graph := range []bool{false, true} {
		m, _ := besideModule()
		x, y, z := rt.C(0, rt.F32, 1024), rt.C(4096, rt.F32, 2048), rt.C(12288, rt.F32, 1024)
		marked := func(e *rt.Exec) {
			e.Mark("compute")
			e.Record("compute", 0)
			e.Wait("comm.g", 0)
			e.Mark("comm.g")
			e.AllGather("comm.g", "g", 0, rt.Ts{y}, rt.Ts{x})
			e.Mark("comm.g")
			e.Record("comm.g", 1)
			e.Wait("compute", 1)
			e.Launch("compute", "neg", nil, rt.Ts{z}, rt.Ts{x})
			e.Mark("compute")
		}
		drv, devs, o := target(t, 2)
		err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			if _, err := rt.RunModule(ctx, r, m, marked, []rt.Value{{DType: rt.F32, Shape: []int64{1024}, Data: make([]byte, 4096)}}, rt.Options{}); err == nil {
				return errors.New("marks outside of a prepared step")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		drv, devs, o = target(t, 2)
		err = device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			s, err := rt.Prepare(ctx, r, m, marked, rt.Options{}, graph)
			if err != nil {
				return err
			}
			defer s.Close()
			if _, err := s.Marks(ctx); !errors.Is(err, rt.ErrNotReplayed) {
				return fmt.Errorf("before the first replay: %v", err)
			}
			for range 3 {
				ms, err := s.Time(ctx, 1)
				if err != nil {
					return err
				}
				at, err := s.Marks(ctx)
				if err != nil {
					return err
				}
				if len(at) != 4 || at[0] != 0 || !(at[1] >= 0 && at[2] > at[1] && at[3] > at[2] && at[3] <= ms[0]) {
					return fmt.Errorf("graph %v: marks at %v of %v ms", graph, at, ms)
				}
			}
			if err := s.Close(); err != nil {
				return err
			}
			if _, err := s.Marks(ctx); err == nil {
				return errors.New("a closed step tells times")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
