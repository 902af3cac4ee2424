//go:build linux

package device_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// TestStepWall tells how much longer than on the device a replay takes until the host
// has seen its end, and what of a core that costs it, for steps of several lengths. With
// -gpu only; the times of the fake driver are its own.
func TestStepWall(t *testing.T) {
	if !*onGPU {
		t.Skip("times of the fake driver say nothing")
	}
	const rounds = 300
	ctx := t.Context()
	for _, blocks := range []int{1, 4, 16, 64, 256, 1024} {
		l := openLaunches(t, blocks)
		if _, err := rt.RunModule(ctx, l.rank, l.mod, l.step, l.inputs(), rt.Options{}); err != nil {
			t.Fatal(err)
		}
		st, err := rt.Prepare(ctx, l.rank, l.mod, l.step, rt.Options{}, true)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := st.Time(ctx, 41)
		if err != nil {
			t.Fatal(err)
		}
		us, busy, err := walls(ctx, st, rounds)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(ms)
		t.Logf("%4d blocks: device %8.1f us; until the host knows median %+7.1f us, 90%% %+7.1f, most %+8.1f; host %.2f cores",
			blocks, ms[20]*1e3, us[rounds/2]-ms[20]*1e3, us[rounds*9/10]-ms[20]*1e3, us[rounds-1]-ms[20]*1e3, busy)
	}
}

// TestStepWallOfTwo is TestStepWall for two ranks that communicate, on two GPUs.
func TestStepWallOfTwo(t *testing.T) {
	if !*onGPU {
		t.Skip("times of the fake driver say nothing")
	}
	const rounds = 300
	m, err := ir.Parse("wall.ir", `world 2
group @g = [[0, 1]]

func @f(%x: f32[65536]) -> (f32[65536]) {
  %a = all_reduce.sum %x on @g : async f32[65536]
  %b = wait_tensor %a : f32[65536]
  %c = relu %b : f32[65536]
  return %c
}
`)
	if err != nil {
		t.Fatal(err)
	}
	s := lowered(t, m.Funcs()[0], lower.Options{Kernels: true})
	drv, devs, o := target(t, 2)
	if o.ShareDevice {
		t.Skip("needs two GPUs")
	}
	err = device.Local(t.Context(), drv, devs, rt.Config{}, o, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		in := []rt.Value{{DType: rt.F32, Shape: []int64{65536}, Data: make([]byte, 4*65536)}}
		if _, err := rt.RunModule(ctx, r, s.Module, s.Run, in, rt.Options{}); err != nil {
			return err
		}
		st, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, true)
		if err != nil {
			return err
		}
		ms, err := st.Time(ctx, 41)
		if err != nil {
			return err
		}
		us, busy, err := walls(ctx, st, rounds)
		if err != nil {
			return err
		}
		slices.Sort(ms)
		t.Logf("rank %d: device %.1f us; until the host knows median %+.1f us, 90%% %+.1f, most %+.1f; hosts %.2f cores",
			r.Info().Rank, ms[20]*1e3, us[rounds/2]-ms[20]*1e3, us[rounds*9/10]-ms[20]*1e3, us[rounds-1]-ms[20]*1e3, busy)
		return st.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// walls gives the microseconds that replays took the host, sorted, and how many cores
// this process kept busy meanwhile.
func walls(ctx context.Context, st *rt.Step, rounds int) (us []float64, busy float64, err error) {
	for range 20 {
		if err := st.Replay(ctx); err != nil {
			return nil, 0, err
		}
	}
	used := func() time.Duration {
		var u unix.Rusage
		if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
			return 0
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	cpu, from := used(), time.Now()
	for range rounds {
		start := time.Now()
		if err := st.Replay(ctx); err != nil {
			return nil, 0, err
		}
		us = append(us, float64(time.Since(start).Nanoseconds())/1e3)
	}
	busy = float64(used()-cpu) / float64(time.Since(from))
	slices.Sort(us)
	return us, busy, nil
}
