package host_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// TestOrderOfReduction places 2^24, 1, -2^24 on three ranks: only the order 0, 1,
// 2 in float32 gives 0, and every rank must have the same bits.
func TestOrderOfReduction(t *testing.T) {
	local(t, 4, rt.Config{UserBytes: 4096}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		in, out := rt.C(0, rt.F32, 7), rt.C(1024, rt.F32, 7)
		v := []float64{1 << 24, 1, -(1 << 24), 0}[me]
		if err := r.Upload(in, bytesOf(rt.F32, v, v, v, v, v, v, v)); err != nil {
			return err
		}
		w, err := r.Start(ctx, "", &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "sum", Ins: rt.Ts{in}, Outs: rt.Ts{out}})
		if err != nil {
			return err
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
		b, err := r.Download(out)
		if err != nil {
			return err
		}
		if got := numbersOf(rt.F32, b); !slices.Equal(got, make([]float64, 7)) {
			return fmt.Errorf("got %v, want zeros", got)
		}
		return nil
	})
}

// TestOverlap asks for results that are across operands: they go through scratch.
func TestOverlap(t *testing.T) {
	local(t, 2, rt.Config{UserBytes: 4096}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		for _, c := range []*rt.Collective{
			{Op: rt.AllReduce, Reduce: "sum", Ins: rt.Ts{rt.C(0, rt.F32, 4)}, Outs: rt.Ts{rt.C(8, rt.F32, 4)}},
			{Op: rt.AllGather, Ins: rt.Ts{rt.C(0, rt.F32, 4)}, Outs: rt.Ts{rt.C(0, rt.F32, 8)}},
			{Op: rt.ReduceScatter, Reduce: "sum", Ins: rt.Ts{rt.C(0, rt.F32, 4)}, Outs: rt.Ts{rt.C(0, rt.F32, 2)}},
			{Op: rt.AllToAll, Ins: rt.Ts{rt.C(0, rt.F32, 4)}, Outs: rt.Ts{rt.C(0, rt.F32, 4)}},
			{Op: rt.CollectivePermute, Pairs: []int64{0, 1, 1, 0}, Ins: rt.Ts{rt.C(0, rt.F32, 4)}, Outs: rt.Ts{rt.C(0, rt.F32, 4)}},
		} {
			c.Group = "world"
			ins := []array{{rt.Dims{4}, []float64{1, 2, 3, 4}}, {rt.Dims{4}, []float64{10, 20, 30, 40}}}
			if err := r.Upload(c.Ins[0], bytesOf(rt.F32, ins[me].v...)); err != nil {
				return err
			}
			w, err := r.Start(ctx, "", c)
			if err != nil {
				return err
			}
			if err := w.Wait(ctx); err != nil {
				return err
			}
			b, err := r.Download(c.Outs[0])
			if err != nil {
				return err
			}
			if got, want := numbersOf(rt.F32, b), reference(c, 0, me, ins).v; !slices.Equal(got, want) {
				return fmt.Errorf("rank %d: %v: got %v, want %v", me, c.Op, got, want)
			}
		}
		_, err := r.Start(ctx, "", &rt.Collective{Op: rt.AllReduce, Reduce: "sum", Group: "world",
			Ins: rt.Ts{rt.C(0, rt.F32, 4), rt.C(64, rt.F32, 4)}, Outs: rt.Ts{rt.C(128, rt.F32, 4), rt.C(136, rt.F32, 4)}})
		if err == nil || !strings.Contains(err.Error(), "overlap") {
			return fmt.Errorf("overlapping results: %v", err)
		}
		return nil
	})
}

// TestDelayedRank runs a chain of dependent in-place collectives while random
// ranks are slow, so that every barrier of the protocol is needed.
func TestDelayedRank(t *testing.T) {
	opts := host.Options{WaitHook: func(*rt.Collective) {
		if rand.IntN(8) == 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		}
	}}
	local(t, 3, rt.Config{UserBytes: 1 << 14}, opts, nil, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		x := rt.C(0, rt.I64, 100)
		v := make([]float64, 100)
		for i := range v {
			v[i] = float64(me + 1)
		}
		if err := r.Upload(x, bytesOf(rt.I64, v...)); err != nil {
			return err
		}
		var last *rt.Work
		for range 30 {
			for _, reduce := range []string{"max", "sum", "min"} {
				var err error
				if last, err = r.Start(ctx, "", &rt.Collective{Op: rt.AllReduce, Reduce: reduce, Group: "world", Ins: rt.Ts{x}, Outs: rt.Ts{x}}); err != nil {
					return err
				}
			}
			// Wraps at 2^63 in the end; max and min keep all ranks equal.
		}
		if err := last.Wait(ctx); err != nil {
			return err
		}
		b, err := r.Download(x)
		if err != nil {
			return err
		}
		want := int64(3)
		for range 30 {
			want *= 3
		}
		for i := range 100 {
			if got := int64(binary.LittleEndian.Uint64(b[8*i:])); got != want {
				return fmt.Errorf("rank %d element %d is %d, want %d", me, i, got, want)
			}
		}
		return nil
	})
}

// TestSharedGroup uses one group from two streams: the calls take turns.
func TestSharedGroup(t *testing.T) {
	local(t, 2, rt.Config{UserBytes: 4096}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		a, b := rt.C(0, rt.F32, 4), rt.C(512, rt.F32, 4)
		if err := r.Upload(a, bytesOf(rt.F32, 1, 2, 3, 4)); err != nil {
			return err
		}
		if err := r.Upload(b, bytesOf(rt.F32, 5, 6, 7, 8)); err != nil {
			return err
		}
		var works []*rt.Work
		for i := range 40 {
			x := []rt.Tensor{a, b}[i%2]
			w, err := r.Start(ctx, []string{"one", "two"}[i%2], &rt.Collective{Op: rt.AllReduce, Reduce: "max", Group: "world", Ins: rt.Ts{x}, Outs: rt.Ts{x}})
			if err != nil {
				return err
			}
			works = append(works, w)
		}
		for _, w := range works {
			if err := w.Wait(ctx); err != nil {
				return err
			}
			if !w.Done() {
				return errors.New("awaited but not done")
			}
		}
		return nil
	})
}

// TestSignals passes a token around a ring, across the wrap of the counters.
func TestSignals(t *testing.T) {
	const n = 3
	local(t, n, rt.Config{UserBytes: 4096}, host.Options{FirstEpoch: 1<<32 - 5}, nil, func(ctx context.Context, r *rt.Rank) error {
		d, me := r.Device(), r.Info().Rank
		s, err := d.NewStream("ring")
		if err != nil {
			return err
		}
		for round := range 20 {
			if me != 0 || round > 0 {
				if err := d.WaitSignal(s, (me+n-1)%n, 3); err != nil {
					return err
				}
			}
			if err := d.Signal(s, (me+1)%n, 3); err != nil {
				return err
			}
		}
		if me == 0 {
			if err := d.WaitSignal(s, n-1, 3); err != nil {
				return err
			}
		}
		if err := d.Sync(ctx); err != nil {
			return err
		}
		for _, bad := range [][2]int{{-1, 0}, {n, 0}, {0, -1}, {0, r.Info().Signals}} {
			if d.Signal(s, bad[0], bad[1]) == nil || d.WaitSignal(s, bad[0], bad[1]) == nil {
				return fmt.Errorf("rank %d, slot %d was accepted", bad[0], bad[1])
			}
		}
		return nil
	})
}
