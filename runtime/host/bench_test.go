package host_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// benchmark runs one collective b.N times on goroutine ranks, each call waiting
// for the one before it.
func benchmark(b *testing.B, world int, bytes int64, c func() *rt.Collective) {
	b.SetBytes(bytes)
	err := host.Local(b.Context(), world, rt.Config{UserBytes: 4*bytes + 4096, Timeout: time.Minute}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		d := r.Device()
		s, err := d.NewStream("bench")
		if err != nil {
			return err
		}
		if r.Info().Rank == 0 {
			b.ResetTimer()
		}
		call := c()
		for range b.N {
			if err := d.Collective(s, call); err != nil {
				return err
			}
		}
		return d.Sync(ctx)
	})
	if err != nil {
		b.Fatal(err)
	}
}

func BenchmarkBarrier(b *testing.B) {
	for _, world := range []int{2, 4, 8} {
		b.Run(fmt.Sprint(world), func(b *testing.B) {
			benchmark(b, world, 0, func() *rt.Collective { return &rt.Collective{Op: rt.Barrier, Group: "world"} })
		})
	}
}

func BenchmarkCollectives(b *testing.B) {
	for _, bytes := range []int64{1 << 10, 64 << 10, 4 << 20} {
		n := bytes / 4
		full, part, far := rt.C(0, rt.F32, n), rt.C(0, rt.F32, n/4), rt.C(2*bytes, rt.F32, n)
		for _, c := range []rt.Collective{
			{Op: rt.AllReduce, Reduce: "sum", Ins: rt.Ts{full}, Outs: rt.Ts{full}},
			{Op: rt.AllGather, Ins: rt.Ts{part}, Outs: rt.Ts{far}},
			{Op: rt.ReduceScatter, Reduce: "sum", Ins: rt.Ts{far}, Outs: rt.Ts{part}},
			{Op: rt.AllToAll, Ins: rt.Ts{full}, Outs: rt.Ts{far}},
		} {
			b.Run(fmt.Sprintf("%v/%d", c.Op, bytes), func(b *testing.B) {
				benchmark(b, 4, bytes, func() *rt.Collective { c := c; c.Group = "world"; return &c })
			})
		}
	}
}

// BenchmarkAddDrop adds a program to a living world and drops it.
func BenchmarkAddDrop(b *testing.B) {
	for _, world := range []int{2, 4, 8} {
		b.Run(fmt.Sprint(world), func(b *testing.B) {
			err := host.Local(b.Context(), world, rt.Config{Timeout: time.Minute}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
				t, err := newTurn(1, r.Info().Rank, world)
				if err != nil {
					return err
				}
				for range b.N {
					if err := r.Add(ctx, t.m, nil); err != nil {
						return err
					}
					if err := r.Drop(ctx, t.m); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
