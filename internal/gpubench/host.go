package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// host compares what an eager collective costs the host from Go (a prepared
// all_reduce of 4 KiB, one crossing each) with the same driver call in a loop in C.
// Every rank has a thread of its own, bound to a processor. Rounds of the two kinds
// alternate; a repetition compares the medians of its rounds, and the least
// difference of the repetitions is the cost, since disturbances only add.
func (b *bench) host() error {
	const full, calls, rounds, reps = 4 << 10, 100, 151, 7
	if err := b.fill(dtype.BF16, full/2, full, 7, 0); err != nil {
		return err
	}
	plans, err := b.prepare(func(rank int) cuda.Op { return b.op(kernels.AllReduce, dtype.BF16, full, rank, false, 0) })
	if err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	type result struct{ fromGo, fromC, diff []float64 }
	out := make([]result, b.n)
	var gate barrier
	gate.n = len(b.w.Local())
	err = b.each(func(rank int) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		release, err := bind(2 * rank)
		if err != nil {
			return err
		}
		defer release()
		k, s := b.w.Rank(rank), b.streams[rank]
		var c cuda.Commands
		for i := 0; i < calls; i++ {
			plans[rank].AddTo(&c)
		}
		words := c.On(s)
		kinds := [2]func() error{
			func() error {
				for i := 0; i < calls; i++ {
					if err := plans[rank].Enqueue(s); err != nil {
						return err
					}
				}
				return nil
			},
			func() error { return b.drv.Run(k.Ctx, words) },
		}
		for rep := 0; rep < reps; rep++ {
			var times [2][]float64
			for i := 0; i < 2*rounds; i++ {
				gate.wait()
				if err := b.w.Meet(context.Background()); err != nil {
					return err
				}
				start := time.Now()
				if err := kinds[i%2](); err != nil {
					return err
				}
				times[i%2] = append(times[i%2], float64(time.Since(start).Nanoseconds())/1e3/calls)
				if err := b.members[rank].Check(context.Background(), s); err != nil {
					return err
				}
			}
			g, c := median(times[0]), median(times[1])
			out[rank].fromGo, out[rank].fromC = append(out[rank].fromGo, g), append(out[rank].fromC, c)
			out[rank].diff = append(out[rank].diff, g-c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range b.w.Local() {
		r := out[k.ID]
		note := fmt.Sprintf("rank %d, differences %.3f", k.ID, r.diff)
		b.report(figure{Op: "host_launch", Impl: "Go, one crossing each", US: slices.Min(r.fromGo), Note: note})
		b.report(figure{Op: "host_launch", Impl: "C loop, one crossing", US: slices.Min(r.fromC), Note: note})
		b.report(figure{Op: "host_launch", Impl: "least difference", US: slices.Min(r.diff), Note: note})
	}
	return nil
}

// bind keeps the calling thread on one processor until release is called. A machine
// with fewer processors leaves it free.
func bind(cpu int) (release func(), err error) {
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, fmt.Errorf("processors of this thread: %w", err)
	}
	if !old.IsSet(cpu) {
		return func() {}, nil
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("binding to processor %d: %w", cpu, err)
	}
	return func() { unix.SchedSetaffinity(0, &old) }, nil
}

// median sorts v.
func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
