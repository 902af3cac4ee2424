package progen

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// FakeCUDA runs programs on GPUs that are this machine's memory, call by call or, with
// graph, captured and replayed. It is nil where there are none.
func FakeCUDA(graph bool) Device {
	images, err := kernels.NewSet() // read once for all programs
	return func(ctx context.Context, c *Compiled) ([][][]interp.Tensor, error) {
		if err != nil {
			return nil, err
		}
		world := c.Program.World
		drv := fake.New(world)
		outs, err := c.onDevices(ctx, drv, smallOptions(world, images), graph)
		if closed := drv.Close(); err == nil {
			err = closed
		}
		if leaks := drv.Leaks(); err == nil && len(leaks) > 0 {
			err = fmt.Errorf("not released: %v", leaks)
		}
		return outs, err
	}
}

// GPUs is FakeCUDA on the GPUs of this machine, and how many there are.
func GPUs() (func(graph bool) Device, int, error) {
	drv, err := driver.Open("")
	if err != nil {
		return nil, 0, err
	}
	infos, err := drv.Devices()
	if err != nil {
		return nil, 0, err
	}
	images, err := kernels.NewSet()
	return func(graph bool) Device {
		return func(ctx context.Context, c *Compiled) ([][][]interp.Tensor, error) {
			o := smallOptions(c.Program.World, images)
			o.Workspace = 32 << 20
			return c.onDevices(ctx, drv, o, graph)
		}
	}, len(infos), err
}

// onDevices runs a program on the first devices of a driver.
func (c *Compiled) onDevices(ctx context.Context, drv driver.Driver, o device.Options, graph bool) ([][][]interp.Tensor, error) {
	s, err := hostrun.OfProgram(c.Program)
	if err != nil {
		return nil, err
	}
	devs := make([]int, c.Program.World)
	for i := range devs {
		devs[i] = i
	}
	outs := results(len(c.Symbols), c.Program.World)
	cfg := rt.Config{Timeout: 20 * time.Second, Funcs: Funcs()}
	err = device.Local(ctx, drv, devs, cfg, o, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		if graph {
			return c.replay(ctx, r, s, outs)
		}
		return c.onRank(ctx, r, s, outs)
	})
	return outs, err
}

// replay captures the step anew for every assignment and runs it twice: the second run
// gives the results.
func (c *Compiled) replay(ctx context.Context, r *rt.Rank, s hostrun.Step, outs [][][]interp.Tensor) error {
	rank := r.Info().Rank
	if len(c.Func.SizeReads()) > 0 { // which the host asks for
		return c.onRank(ctx, r, s, outs)
	}
	for k, syms := range c.Symbols {
		st, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{Symbols: syms[rank], Seed: c.Seed}, true)
		if err != nil {
			return err
		}
		for range 2 {
			in, err := hostrun.Inputs(ctx, r, s.Module, c.Inputs[k][rank])
			if err != nil {
				return err
			}
			vs, err := st.Run(ctx, in)
			if err != nil {
				return err
			}
			if outs[k][rank], err = hostrun.Tensors(ctx, r, vs); err != nil {
				return err
			}
		}
		if err := st.Close(); err != nil {
			return err
		}
	}
	return nil
}

// smallOptions are options with little memory, which the fake driver clears.
func smallOptions(ranks int, images *kernels.Set) device.Options {
	tune := kernels.DefaultTuning(max(ranks, 2))
	tune.Blocks, tune.PushBlocks = 4, 4
	return device.Options{Scratch: 1 << 20, Staging: 1 << 20, Cache: "none", Workspace: 1 << 20, Images: images, Libraries: device.Standard(device.Paths{}),
		Group: coll.GroupOptions{Region: 256 << 10, Flagged: 512 << 10, Tuning: &tune}}
}
