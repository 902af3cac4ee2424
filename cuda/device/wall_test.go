//go:build linux

package device_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// BenchmarkStepWall tells how much longer than on the device a replay takes until the host
// has seen its end, and what of a core that costs it, for steps of several lengths. With
// -gpu only; the times of the fake driver are its own.
func BenchmarkStepWall(b *testing.B) {
	if !*onGPU {
		b.Skip("times of the fake driver say nothing")
	}
	for _, blocks := range []int{1, 4, 16, 64, 256, 1024} {
		b.Run(fmt.Sprint(blocks), func(b *testing.B) {
			l := openLaunches(b, blocks)
			if err := wall(b.Context(), b, l.rank, l.mod, l.step, l.inputs()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkStepWallOfTwo is BenchmarkStepWall for two ranks that communicate, on two GPUs.
func BenchmarkStepWallOfTwo(b *testing.B) {
	if !*onGPU {
		b.Skip("times of the fake driver say nothing")
	}
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
		b.Fatal(err)
	}
	s := lowered(b, m.Funcs()[0], lower.Options{Kernels: true})
	drv, devs, o := target(b, 2)
	if o.ShareDevice {
		b.Skip("needs two GPUs")
	}
	err = device.Local(b.Context(), drv, devs, rt.Config{}, o, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		in := []rt.Value{{DType: rt.F32, Shape: []int64{65536}, Data: make([]byte, 4*65536)}}
		return wall(ctx, b, r, s.Module, s.Run, in)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// wall reports for a step on this rank what a replay takes the device, how much later the host knows, and cores.
func wall(ctx context.Context, b *testing.B, r *rt.Rank, m *rt.Module, step func(*rt.Exec), in []rt.Value) error {
	const rounds = 300
	if _, err := rt.RunModule(ctx, r, m, step, in, rt.Options{}); err != nil {
		return err
	}
	st, err := rt.Prepare(ctx, r, m, step, rt.Options{}, true)
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
	on := median(ms) * 1e3
	b.Logf("rank %d: device %8.1f us; until the host knows median %+7.1f us, 90%% %+7.1f, most %+8.1f; hosts %.2f cores",
		r.Info().Rank, on, us[rounds/2]-on, us[rounds*9/10]-on, us[rounds-1]-on, busy)
	return st.Close()
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
