package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// skew measures how far apart the ranks' launches arrive on their devices after the
// hosts have joined: each rank launches a barrier of all ranks, between two events, and
// who came early waits in it. The rank that came last waits least, so the difference
// between longest and shortest wait is the skew; devices' clocks are not compared.
// Launches are eager, or of a graph that holds the barrier.
func (b *bench) skew() error {
	plans, err := b.prepare(func(int) coll.Op { return coll.Op{Kind: kernels.Barrier} })
	if err != nil {
		return err
	}
	execs := make([]driver.Exec, b.n)
	for _, k := range b.w.Local() {
		if execs[k.ID], err = b.graph(k, b.streams[k.ID], 1, func() error { return plans[k.ID].Enqueue(b.streams[k.ID]) }); err != nil {
			return err
		}
		defer b.drv.ExecDestroy(k.Ctx, execs[k.ID])
	}
	for _, eager := range []bool{true, false} {
		const rounds = 500
		waits := make([][]float64, b.n) // of this process's ranks
		var gate barrier
		gate.n = len(b.w.Local())
		err := b.each(func(rank int) error {
			k, s, ev := b.w.Rank(rank), b.streams[rank], b.events[rank]
			for range rounds {
				gate.wait()
				if err := b.w.Barrier(context.Background()); err != nil {
					return err
				}
				launch := func() error { return b.drv.GraphLaunch(k.Ctx, execs[rank], s) }
				if eager {
					launch = func() error { return plans[rank].Enqueue(s) }
				}
				err := errors.Join(b.drv.EventRecord(k.Ctx, ev[0], s), launch(), b.drv.EventRecord(k.Ctx, ev[1], s), b.members[rank].Check(context.Background(), s))
				if err != nil {
					return err
				}
				ms, err := b.drv.EventElapsed(k.Ctx, ev[0], ev[1])
				if err != nil {
					return err
				}
				waits[rank] = append(waits[rank], float64(ms)*1e3)
			}
			return nil
		})
		if err != nil {
			return err
		}
		all, err := b.share64(waits)
		if err != nil {
			return err
		}
		skews := make([]float64, rounds)
		for i := range skews {
			least, most := all[0][i], all[0][i]
			for _, w := range all {
				least, most = min(least, w[i]), max(most, w[i])
			}
			skews[i] = most - least
		}
		skews = skews[rounds/10:] // the first ones wake the devices up
		sort.Float64s(skews)
		how := "graph launches"
		if eager {
			how = "eager launches"
		}
		model := "one process"
		if len(b.w.Local()) < b.n {
			model = "a process per GPU"
		}
		at := func(q float64) float64 { return skews[int(q*float64(len(skews)-1))] }
		b.report(figure{Op: "skew", Impl: how + ", " + model, US: at(0.5), Note: fmt.Sprintf("99%%: %.1f us, most %.1f", at(0.99), at(1))})
	}
	return nil
}

// share64 gives every process the series of all ranks, through the group's own memory:
// each rank writes its series and all gather them.
func (b *bench) share64(mine [][]float64) ([][]float64, error) {
	count := len(mine[b.w.Local()[0].ID])
	bytes := uint64(4 * count)
	for _, k := range b.w.Local() {
		var raw []byte
		for _, v := range mine[k.ID] {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(v*1000))
		}
		if err := b.drv.CopyIn(k.Ctx, b.streams[k.ID], b.w.Addr(k.ID, b.src), raw); err != nil {
			return nil, err
		}
	}
	plans, err := b.prepare(func(rank int) coll.Op {
		return coll.Op{Kind: kernels.AllGather, DType: dtype.U8, Symmetric: true,
			Tensors: []coll.Tensor{{Src: b.w.Addr(rank, b.src), Dst: b.w.Addr(rank, b.dst), Bytes: bytes}}}
	})
	if err != nil {
		return nil, err
	}
	for _, k := range b.w.Local() {
		if err := plans[k.ID].Enqueue(b.streams[k.ID]); err != nil {
			return nil, err
		}
	}
	out := make([][]float64, b.n)
	for _, k := range b.w.Local() {
		if err := b.members[k.ID].Check(context.Background(), b.streams[k.ID]); err != nil {
			return nil, err
		}
		raw := make([]byte, bytes*uint64(b.n))
		if err := b.drv.CopyOut(k.Ctx, b.streams[k.ID], raw, b.w.Addr(k.ID, b.dst)); err != nil {
			return nil, err
		}
		for r := range out {
			out[r] = nil
			for i := range count {
				out[r] = append(out[r], float64(binary.LittleEndian.Uint32(raw[uint64(r)*bytes+uint64(4*i):]))/1000)
			}
		}
	}
	return out, nil
}
