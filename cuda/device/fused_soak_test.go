//go:build linux

package device_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/internal/dtype"
	rt "github.com/seed-ee968945/concert/runtime"
)

// fusedSoak is a step whose result is its next input: rows of x are gathered within a matmul by w, and a
// matmul by v reduces and scatters them to x. Both operands permute columns, and each rank's v counts for a
// part of 1, so that every replay moves the columns of x by shift, exactly. What one replay reads too
// early, or of the one before, is in x to the end.
type fusedSoak struct {
	x, all, w, y, v, z rt.Tensor
}

const (
	soakRows, soakCols = 16, 64
	shiftW, shiftV     = 1, 4 // columns that the operands move x by
)

func newFusedSoak(ranks int64) (g fusedSoak, m *rt.Module) {
	at := int64(0)
	place := func(rows int64) rt.Tensor {
		x := rt.C(at, rt.BF16, rows, soakCols)
		at += (x.Bytes() + 255) &^ 255
		return x
	}
	g = fusedSoak{x: place(soakRows), all: place(ranks * soakRows), w: place(soakCols), y: place(ranks * soakRows), v: place(soakCols), z: place(ranks * soakRows)}
	m = &rt.Module{Name: "fused", World: int(ranks), Arena: at, Streams: []string{"compute", "comm.tp"}, Events: 4, Groups: []rt.Group{{Name: "tp", Ranks: [][]int{devices(int(ranks))}}}}
	m.Inputs = []rt.Param{{Name: "x", Tensors: rt.Ts{g.x}}, {Name: "w", Tensors: rt.Ts{g.w}}, {Name: "v", Tensors: rt.Ts{g.v}}}
	m.Outputs = []rt.Param{{Name: "xout", Tensors: rt.Ts{g.x}}}
	return g, m
}

func (g fusedSoak) step(e *rt.Exec) {
	e.Record("compute", 0)
	e.Wait("comm.tp", 0)
	e.At("gather").Collective("comm.tp", &rt.Collective{Op: rt.AllGather, Group: "tp", InMatmul: true, Outs: rt.Ts{g.all}, Ins: rt.Ts{g.x}})
	e.Record("comm.tp", 1)
	e.Wait("compute", 1)
	e.At("spread").Launch("compute", "matmul", nil, rt.Ts{g.y}, rt.Ts{g.all, g.w})
	e.At("join").Launch("compute", "matmul", nil, rt.Ts{g.z}, rt.Ts{g.y, g.v})
	e.Record("compute", 2)
	e.Wait("comm.tp", 2)
	e.At("scatter").Collective("comm.tp", &rt.Collective{Op: rt.ReduceScatter, Group: "tp", Reduce: "sum", InMatmul: true, Outs: rt.Ts{g.x}, Ins: rt.Ts{g.z}})
	e.Record("comm.tp", 3)
	e.Wait("compute", 3)
}

// part is what a rank's v counts for: 1/4 and 3/4 of two, halves of what is left of more.
func part(rank, ranks int) float64 {
	switch {
	case ranks == 2:
		return [...]float64{0.25, 0.75}[rank]
	case rank == ranks-1:
		return 1 / float64(int(1)<<(ranks-1))
	}
	return 1 / float64(int(2)<<rank)
}

// soakValue is element i of x on a rank after so many replays: integers that have no digit to lose.
func soakValue(rank, i, replays int) float64 {
	row, col := i/soakCols, i%soakCols
	from := (col - replays*(shiftW+shiftV)) % soakCols
	return float64((7*row + 5*((from+soakCols)%soakCols) + 13*rank) % 61)
}

// TestFusedSoak replays a captured step with a gather and a reduce_scatter within matmuls, while ranks come late
// by random times: 20,000 times on GPUs.
func TestFusedSoak(t *testing.T) {
	symmetricOnly(t)
	replays := 48
	if *onGPU {
		replays = 20000
	}
	for _, ranks := range []int{2, 4} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			var log collected
			drv, devs, o := target(t, ranks)
			if o.ShareDevice && ranks > 2 {
				t.Skipf("%d ranks want a GPU each: their matmuls wait for each other", ranks)
			}
			o.Log = slog.New(&log)
			o.Libraries = []device.OpenLibrary{openWgmma}
			g, m := newFusedSoak(int64(ranks))
			err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
				return g.soak(ctx, r, m, replays)
			})
			if err != nil {
				t.Fatal(err)
			}
			within := 0
			for _, d := range log.list {
				if strings.HasSuffix(d.form, "_gather") || strings.HasPrefix(d.form, "reduce_scatter_sent_") {
					within++
				}
			}
			if within != 2 {
				t.Errorf("%d collectives within matmuls, want 2", within)
			}
		})
	}
}

func (g fusedSoak) soak(ctx context.Context, r *rt.Rank, m *rt.Module, replays int) error {
	rank := r.Info().Rank
	var in []rt.Value
	for _, p := range m.Inputs {
		x := p.Tensors[0]
		v := rt.Value{DType: x.DType, Shape: x.Shape, Data: make([]byte, x.Bytes())}
		for i := range len(v.Data) / 2 {
			row, col, n := i/soakCols, i%soakCols, 0.0
			switch {
			case p.Name == "x":
				n = soakValue(rank, i, 0)
			case p.Name == "w" && col == (row+shiftW)%soakCols:
				n = 1
			case p.Name == "v" && col == (row+shiftV)%soakCols:
				n = part(rank, m.World)
			}
			dtype.StoreFloat(dtype.BF16, v.Data[2*i:], n)
		}
		in = append(in, v)
	}
	s, err := rt.Prepare(ctx, r, m, g.step, rt.Options{KeepOutputs: true}, true)
	if err != nil {
		return err
	}
	if err := s.Bind(ctx, in); err != nil {
		return err
	}
	place, err := r.In(m, g.x)
	if err != nil {
		return err
	}
	// What a replay loses is lost to the end, and most easily at first, when memory is touched for the first time.
	together, alone := rand.New(rand.NewPCG(3, 0)), rand.New(rand.NewPCG(4, uint64(rank)))
	for done := 0; done < replays; {
		n := 1
		if together.IntN(16) == 0 { // some one behind the other, with nobody waiting between them
			n = min(1+together.IntN(8), replays-done)
			_, err = s.Time(ctx, n)
		} else {
			err = s.Replay(ctx)
		}
		if err != nil {
			return fmt.Errorf("after %d replays: %w", done, err)
		}
		if done += n; together.IntN(512) == 0 || done == 1 || done == replays {
			data, err := r.Download(place)
			if err != nil {
				return err
			}
			for i := range len(data) / 2 {
				if got, want := dtype.LoadFloat(dtype.BF16, data[2*i:]), soakValue(rank, i, done); got != want {
					return fmt.Errorf("after %d replays: element %d is %v, want %v", done, i, got, want)
				}
			}
		}
		switch alone.IntN(256) {
		case 0:
			time.Sleep(time.Duration(alone.IntN(3000)) * time.Microsecond)
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16:
			time.Sleep(time.Duration(alone.IntN(100)) * time.Microsecond)
		}
	}
	return s.Close()
}
