package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/eager"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
	"golang.org/x/sys/unix"
)

// hostPair is two ways of enqueueing so many collectives of a rank on its stream.
type hostPair struct {
	op           string // of the figures
	fromGo, inC  string
	calls        int
	goes, driver func() error
}

// host compares what an eager collective costs the host from Go, one cgo call each, with
// the same driver calls in a loop in C: a prepared all_reduce of 4 KiB, and the same by
// Member.AllReduce, whose handle is an event that is recorded behind it. Every rank has a
// thread of its own, bound to a processor. Rounds of the two kinds alternate; a repetition
// compares the medians of its rounds, and the least difference of the repetitions is the
// cost, since disturbances only add.
func (b *bench) host() error {
	const full, calls = 4 << 10, 100
	if err := b.fill(full/2, full, 7); err != nil {
		return err
	}
	plans, err := b.prepare(func(rank int) coll.Op { return b.op(kernels.AllReduce, full, rank, false) })
	if err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if err := b.hostPair(func(rank int) (hostPair, error) {
		k, s := b.w.Rank(rank), b.streams[rank]
		var c driver.Commands
		for range calls {
			plans[rank].AddTo(&c)
		}
		return hostPair{op: "host_launch", fromGo: "Go, one cgo call each", inC: "C loop, one cgo call", calls: calls,
			goes: func() error {
				for range calls {
					if err := plans[rank].Enqueue(s); err != nil {
						return err
					}
				}
				return nil
			},
			driver: func() error { return b.drv.Run(k.Ctx, c.On(s)) }}, nil
	}); err != nil {
		return err
	}
	events := make([]driver.Event, b.n)
	defer func() {
		for rank, ev := range events {
			if ev != 0 {
				b.drv.EventDestroy(b.w.Rank(rank).Ctx, ev) // what it measured is done
			}
		}
	}()
	return b.hostPair(func(rank int) (p hostPair, err error) {
		k, s, m, ctx := b.w.Rank(rank), b.streams[rank], eager.New(b.members[rank]), context.Background()
		if events[rank], err = b.drv.EventCreate(k.Ctx, false); err != nil {
			return p, err
		}
		var c driver.Commands
		for range calls {
			plans[rank].AddTo(&c)
			c.Record(driver.Main, events[rank])
		}
		t := b.op(kernels.AllReduce, full, rank, false).Tensors[0]
		src := symm.Buffer{At: t.Src, Count: full / 2, DType: dtype.BF16}
		dst := symm.Buffer{At: t.Dst, Count: full / 2, DType: dtype.BF16}
		return hostPair{op: "host_eager", fromGo: "Go, one cgo call each", inC: "C loop, one cgo call", calls: calls,
			goes: func() error {
				for range calls {
					w, err := m.AllReduce(ctx, s, kernels.Sum, src.Into(dst))
					if err != nil {
						return err
					}
					w.Close()
				}
				return nil
			},
			driver: func() error { return b.drv.Run(k.Ctx, c.On(s)) }}, nil
	})
}

// hostPair times a pair on every rank and reports it.
func (b *bench) hostPair(pair func(rank int) (hostPair, error)) error {
	const rounds, reps = 151, 7
	type result struct {
		hostPair
		times [2][]float64 // of repetitions
		diff  []float64
	}
	out := make([]result, b.n)
	var gate barrier
	gate.n = len(b.w.Local())
	err := b.each(func(rank int) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		release, err := bind(2 * rank)
		if err != nil {
			return err
		}
		defer release()
		r := &out[rank]
		if r.hostPair, err = pair(rank); err != nil {
			return err
		}
		kinds := [2]func() error{r.goes, r.driver}
		for range reps {
			var times [2][]float64
			for i := 0; i < 2*rounds; i++ {
				gate.wait()
				if err := b.w.Barrier(context.Background()); err != nil {
					return err
				}
				start := time.Now()
				if err := kinds[i%2](); err != nil {
					return err
				}
				times[i%2] = append(times[i%2], float64(time.Since(start).Nanoseconds())/1e3/float64(r.calls))
				if err := b.members[rank].Check(context.Background(), b.streams[rank]); err != nil {
					return err
				}
			}
			g, c := median(times[0]), median(times[1])
			r.times[0], r.times[1] = append(r.times[0], g), append(r.times[1], c)
			r.diff = append(r.diff, g-c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range b.w.Local() {
		r := out[k.ID]
		note := fmt.Sprintf("rank %d, differences %.3f", k.ID, r.diff)
		b.report(figure{Op: r.op, Impl: r.fromGo, US: slices.Min(r.times[0]), Note: note})
		b.report(figure{Op: r.op, Impl: r.inC, US: slices.Min(r.times[1]), Note: note})
		b.report(figure{Op: r.op, Impl: "least difference", US: slices.Min(r.diff), Note: note})
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
