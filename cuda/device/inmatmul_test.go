//go:build linux

package device_test

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/wgmma"
	"github.com/seed-ee968945/concert/internal/dtype"
	rt "github.com/seed-ee968945/concert/runtime"
)

// gathered is a step of some ranks: rows are gathered, and multiplied by w to y. Of the other tensors,
// v is another right operand, z its product, s a sum.
type gathered struct {
	x, all, w, v, y, z, s rt.Tensor
	off                   bool // gathers are not marked
}

func newGathered(ranks, y int64) gathered {
	const rows, k, n = 16, 64, 24
	return gathered{x: rt.C(0, rt.BF16, rows, k), all: rt.C(4096, rt.BF16, ranks*rows, k), w: rt.C(16384, rt.BF16, k, n), v: rt.C(20480, rt.BF16, k, n),
		y: rt.C(y, rt.BF16, ranks*rows, n), z: rt.C(28672, rt.BF16, ranks*rows, n), s: rt.C(32768, rt.BF16, rows, k)}
}

// add is compute that is no matmul. Only the fake driver launches it as it is.
func (g gathered) add(e *rt.Exec) {
	if !*onGPU {
		e.Launch("compute", "add", nil, rt.Ts{g.s}, rt.Ts{g.s, g.s})
		return
	}
	e.Launch("compute", "matmul", nil, rt.Ts{rt.C(g.s.Off, rt.BF16, 16, 24)}, rt.Ts{g.x, g.w})
}

func (g gathered) gather(e *rt.Exec) {
	e.Record("compute", 0)
	g.gatherBehind(e)
}

// gatherBehind is gather behind event 0.
func (g gathered) gatherBehind(e *rt.Exec) {
	e.Wait("comm.tp", 0)
	e.At("gather").Collective("comm.tp", &rt.Collective{Op: rt.AllGather, Group: "tp", InMatmul: !g.off, Outs: rt.Ts{g.all}, Ins: rt.Ts{g.x}})
	e.Record("comm.tp", 1)
}

func (g gathered) multiply(e *rt.Exec, y, w rt.Tensor) {
	e.At("matmul").Launch("compute", "matmul", nil, rt.Ts{y}, rt.Ts{g.all, w})
}

// plain is the gather, and then the matmul.
func (g gathered) plain(e *rt.Exec) {
	g.gather(e)
	e.Wait("compute", 1)
	g.multiply(e, g.y, g.w)
}

// sum is a collective in a stream of its own, whose end is event 3.
func (g gathered) sum(e *rt.Exec) {
	e.Record("compute", 2)
	g.sumBehind(e, 2)
}

// sumBehind is sum behind an event.
func (g gathered) sumBehind(e *rt.Exec, event int) {
	e.Wait("comm.other", event)
	e.At("sum").AllReduce("comm.other", "other", "sum", rt.Ts{g.s}, rt.Ts{g.s})
	e.Record("comm.other", 3)
}

// gatheredStep is a step with gathers that a matmul waits for, or something else does.
type gatheredStep struct {
	name string
	step func(gathered, *rt.Exec)
	onX  bool // the result is on the own rows
	off  bool
	lack int // the rank that has no such library, from 1
	want int // gathers within matmuls
}

func gatheredSteps() []gatheredStep {
	return []gatheredStep{
		{name: "plain", step: gathered.plain, want: 1},
		{name: "not marked", step: gathered.plain, off: true},
		{name: "a rank that cannot", step: gathered.plain, lack: 2},
		{name: "the result on the own rows", step: gathered.plain, onX: true, want: 1},
		{name: "a second matmul", step: func(g gathered, e *rt.Exec) {
			g.plain(e)
			g.multiply(e, g.z, g.v)
		}, want: 1},
		{name: "twice", step: func(g gathered, e *rt.Exec) {
			g.plain(e)
			g.gather(e)
			e.Wait("compute", 1)
			g.multiply(e, g.z, g.v)
		}, want: 2},
		{name: "something else first", step: func(g gathered, e *rt.Exec) {
			g.gather(e)
			e.Wait("compute", 1)
			g.add(e)
			g.multiply(e, g.y, g.w)
		}},
		{name: "compute beside", step: func(g gathered, e *rt.Exec) {
			g.gather(e)
			g.add(e)
			e.Wait("compute", 1)
			g.multiply(e, g.y, g.w)
		}},
		{name: "compute beside, enqueued before", step: func(g gathered, e *rt.Exec) {
			e.Record("compute", 0)
			g.add(e)
			g.gatherBehind(e)
			e.Wait("compute", 1)
			g.multiply(e, g.y, g.w)
		}},
		{name: "the right operand", step: func(g gathered, e *rt.Exec) {
			g.gather(e)
			e.Wait("compute", 1)
			rows := g.all.Shape[0]
			across := rt.S(g.all.Off, rt.BF16, rt.Dims{64, rows}, rt.Dims{1, 64})
			e.Launch("compute", "matmul", nil, rt.Ts{rt.C(g.y.Off, rt.BF16, 16, rows)}, rt.Ts{g.x, across})
		}},
		{name: "both operands, of which the right one begins behind", step: func(g gathered, e *rt.Exec) {
			g.gather(e)
			e.Wait("compute", 1)
			g.multiply(e, g.y, rt.S(g.all.Off+2*64, rt.BF16, rt.Dims{64, 24}, rt.Dims{1, 64}))
		}},
	}
}

// stepsOfTwo are steps in which another group has collectives, too.
func stepsOfTwo() []gatheredStep {
	return []gatheredStep{
		{name: "a collective beside", step: func(g gathered, e *rt.Exec) {
			g.sum(e)
			g.plain(e)
			e.Wait("compute", 3)
		}},
		{name: "a collective beside, enqueued behind", step: func(g gathered, e *rt.Exec) {
			e.Record("compute", 2)
			g.plain(e)
			g.sumBehind(e, 2)
			e.Wait("compute", 3)
		}},
		{name: "a collective before and one behind", step: func(g gathered, e *rt.Exec) {
			g.sum(e)
			e.Wait("compute", 3)
			g.plain(e)
			g.sum(e)
			e.Wait("compute", 3)
		}, want: 1},
		{name: "a collective behind the gather", step: func(g gathered, e *rt.Exec) {
			g.plain(e)
			g.sumBehind(e, 1)
			e.Wait("compute", 3)
		}},
		{name: "another stream waits first", step: func(g gathered, e *rt.Exec) {
			g.gather(e)
			g.sumBehind(e, 1)
			e.Wait("compute", 1)
			g.multiply(e, g.y, g.w)
			e.Wait("compute", 3)
		}},
	}
}

// TestGatherInMatmul captures steps with gathers that a matmul waits for. They take place within it where
// nothing is beside them, on all ranks or on none, and results have the bits of the step without it.
func TestGatherInMatmul(t *testing.T) {
	symmetricOnly(t)
	const plainY = 24576
	ranks := 3
	if *onGPU {
		ranks = 2
	}
	two := stepsOfTwo()
	for i, c := range append(two, gatheredSteps()...) {
		sums := i < len(two)
		t.Run(c.name, func(t *testing.T) {
			g := newGathered(int64(ranks), plainY)
			if c.onX {
				g = newGathered(int64(ranks), 0)
			}
			g.off = c.off
			m := &rt.Module{Name: "gathered", World: ranks, Arena: 40960, Streams: []string{"compute", "comm.tp", "comm.other"}, Events: 4,
				Groups: []rt.Group{{Name: "tp", Ranks: [][]int{devices(ranks)}}}}
			if sums {
				m.Groups = append(m.Groups, rt.Group{Name: "other", Ranks: [][]int{devices(ranks)}})
			}
			for _, p := range []struct {
				name string
				t    rt.Tensor
			}{{"x", g.x}, {"w", g.w}, {"v", g.v}, {"s", g.s}} {
				m.Inputs = append(m.Inputs, rt.Param{Name: p.name, Tensors: rt.Ts{p.t}})
			}
			for _, p := range []struct {
				name string
				t    rt.Tensor
			}{{"all", g.all}, {"y", g.y}, {"z", g.z}, {"s", g.s}} {
				m.Outputs = append(m.Outputs, rt.Param{Name: p.name + "out", Tensors: rt.Ts{p.t}})
			}
			if n := inMatmuls(t, m, c.lack, func(form string) bool { return strings.HasSuffix(form, "_gather") }, func(e *rt.Exec) { c.step(g, e) }); n != 2*c.want { // in two captures
				t.Errorf("%d gathers within matmuls, want %d", n, 2*c.want)
			}
		})
	}
}

// inMatmuls captures steps of a module whose rank lack, from 1, cannot, and counts the collectives of a form.
func inMatmuls(t *testing.T, m *rt.Module, lack int, is func(form string) bool, step func(*rt.Exec)) (n int) {
	t.Helper()
	var log collected
	drv, devs, o := target(t, m.World)
	if o.ShareDevice && len(m.Groups) > 1 {
		t.Skip("two groups have more streams than a GPU that ranks share has hardware queues: those that share one wait for each other")
	}
	o.Log = slog.New(&log)
	o.Libraries = []device.OpenLibrary{func(e device.LibraryEnv) (library.Library, error) {
		if e.Rank.ID == lack-1 {
			return nil, library.ErrUnavailable
		}
		return openWgmma(e)
	}}
	runGathered(t, drv, devs, hosted(drv, o), m, step)
	for _, d := range log.list {
		if is(d.form) {
			n++
		}
	}
	return n
}

// openWgmma opens our matmuls for Hopper, which the fake driver's devices are taken for.
func openWgmma(e device.LibraryEnv) (library.Library, error) {
	info := e.Rank.Info
	if !*onGPU {
		info = driver.DeviceInfo{Major: 9, SMs: 4}
	}
	return wgmma.Open(e.Driver, e.Rank.Ctx, info, imageSet())
}

// runGathered holds replays of a step against the step as its calls come.
func runGathered(t *testing.T, drv driver.Driver, devs []int, o device.Options, m *rt.Module, step func(*rt.Exec)) {
	err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		rng := rand.New(rand.NewPCG(1, uint64(r.Info().Rank)))
		var in []rt.Value
		for _, p := range m.Inputs {
			x := p.Tensors[0]
			v := rt.Value{DType: x.DType, Shape: x.Shape, Data: make([]byte, x.Bytes())}
			for i := 0; i < len(v.Data); i += 2 {
				dtype.StoreFloat(dtype.BF16, v.Data[i:], rng.NormFloat64())
			}
			in = append(in, v)
		}
		want, err := rt.RunModule(ctx, r, m, step, in, rt.Options{})
		if err != nil {
			return err
		}
		want = slices.Clone(want)
		for _, graph := range []bool{false, true} {
			s, err := rt.Prepare(ctx, r, m, step, rt.Options{}, graph)
			if err != nil {
				return err
			}
			for range 2 {
				got, err := s.Run(ctx, in)
				if err != nil {
					return err
				}
				for i := range got {
					if !bytes.Equal(got[i].Data, want[i].Data) {
						t.Errorf("rank %d, graph %v: output %s differs from the run without a capture", r.Info().Rank, graph, m.Outputs[i].Name)
					}
				}
			}
			if err := s.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
