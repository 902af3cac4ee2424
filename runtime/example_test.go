package runtime_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// Two ranks, goroutines of this process, run a module whose code is written by
// hand the way the emitter prints it: each doubles its numbers while the sum of
// what it started with is on its way.
func Example() {
	m := &rt.Module{
		Name: "double", Arena: 2048, Streams: []string{"compute", "comm.all"}, Events: 2,
		Groups:  []rt.Group{{Name: "all", Ranks: [][]int{{0, 1}}}},
		Inputs:  []rt.Param{{Name: "x", Tensors: rt.Ts{rt.C(0, rt.I64, 3)}}},
		Outputs: []rt.Param{{Name: "sum", Tensors: rt.Ts{rt.C(512, rt.I64, 3)}}, {Name: "twice", Tensors: rt.Ts{rt.C(1024, rt.I64, 3)}}},
	}
	step := func(x *rt.Exec) {
		x.Record("compute", 0)
		x.Wait("comm.all", 0)
		x.At("sum").AllReduce("comm.all", "all", "sum", rt.Ts{rt.C(512, rt.I64, 3)}, rt.Ts{rt.C(0, rt.I64, 3)})
		x.Record("comm.all", 1)
		x.At("twice").Launch("compute", "mul", rt.A("scalar", 2), rt.Ts{rt.C(1024, rt.I64, 3)}, rt.Ts{rt.C(0, rt.I64, 3)})
		x.Wait("compute", 1)
	}
	err := host.Local(context.Background(), 2, rt.Config{}, host.Options{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		var data []byte
		for i := range 3 {
			data = binary.LittleEndian.AppendUint64(data, uint64(10*r.Info().Rank+i))
		}
		out, err := rt.RunModule(ctx, r, m, step, []rt.Value{{DType: rt.I64, Shape: rt.Dims{3}, Data: data}}, rt.Options{})
		if err == nil && r.Info().Rank == 1 {
			for i, o := range m.Outputs {
				fmt.Print(o.Name)
				for b := out[i].Data; len(b) > 0; b = b[8:] {
					fmt.Print(" ", binary.LittleEndian.Uint64(b))
				}
				fmt.Println()
			}
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// sum 10 12 14
	// twice 20 22 24
}

// A world that is opened once: a buffer holds a parameter, and two programs come and go
// that update it where it is.
func ExampleRank_Add() {
	const text = `program @%[1]s world 2
stream @compute
events 0
arena 1024
buffer %%w at 0 size 16
buffer %%new at 0 size 16
input w {parameter} donate 0 = %%w: f32[4]
output new = %%new: f32[4]
body
@compute launch add (%%w: f32[4]) -> (%%new: f32[4]) {scalar=%[2]s} from %%new
`
	err := host.Local(context.Background(), 2, rt.Config{}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		w, err := r.NewBuffer(ctx, "w", 16) // zeros
		if err != nil {
			return err
		}
		for _, part := range [][]any{{"warmup", "1.0"}, {"train", "0.5"}} {
			p, err := program.Parse("step", fmt.Sprintf(text, part...))
			if err != nil {
				return err
			}
			m, err := rt.ModuleOf(p)
			if err != nil {
				return err
			}
			if err := r.Add(ctx, m, rt.Bindings{"w": w}); err != nil {
				return err
			}
			for range 3 {
				if _, err := rt.Run(ctx, r, p, make([]rt.Value, 1), rt.Options{}); err != nil {
					return err
				}
			}
			if err := r.Drop(ctx, m); err != nil {
				return err
			}
		}
		view, err := w.View(0, rt.F32, 4)
		if err != nil {
			return err
		}
		data, err := r.Download(view)
		if err == nil && r.Info().Rank == 1 {
			fmt.Println(math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 4.5
}
