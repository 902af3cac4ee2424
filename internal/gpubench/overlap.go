package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// Shapes of the overlap: a square bf16 product and a gather of a transformer layer's size.
const (
	productSide = 8192
	gatherBytes = 256 << 20
	quarter     = 2 * productSide * productSide // bytes of one matrix
)

// compute is the stream beside the collectives of one rank.
type compute struct {
	stream cuda.Stream
	blas   *cuda.BLAS
	events [2]cuda.Event
}

// overlap times gathers and matrix products of cuBLAS, each alone and both at once.
// Beside the other one, each is measured while the other lasts longer.
func (b *bench) overlap() error {
	if b.max < gatherBytes+3*quarter {
		return fmt.Errorf("a gather and a product need buffers of %d bytes: raise -max", gatherBytes+3*quarter)
	}
	if err := b.fill(dtype.BF16, b.max/2, b.max, 7, 0); err != nil {
		return err
	}
	side := make([]compute, b.n)
	defer func() {
		for _, k := range b.w.Local() {
			s := side[k.ID]
			if s.blas != nil {
				s.blas.Close()
			}
			for _, e := range s.events {
				b.drv.EventDestroy(k.Ctx, e)
			}
			b.drv.StreamDestroy(k.Ctx, s.stream)
		}
	}()
	for _, k := range b.w.Local() {
		s := &side[k.ID]
		var err error
		if s.stream, err = b.drv.StreamCreate(k.Ctx); err != nil {
			return err
		}
		for i := range s.events {
			if s.events[i], err = b.drv.EventCreate(k.Ctx, true); err != nil {
				return err
			}
		}
		if s.blas, err = cuda.OpenBLAS(b.drv, b.blas, k.Ctx, s.stream); err != nil {
			return err
		}
		if err := b.drv.Copy(k.Ctx, s.stream, b.w.Addr(k.ID, b.dst), b.w.Addr(k.ID, b.src), gatherBytes); err != nil {
			return err
		}
		// The first product loads code, which must not happen beside a collective.
		if err := b.product(side, k.ID); err != nil {
			return err
		}
		if err := b.drv.StreamSync(k.Ctx, s.stream); err != nil {
			return err
		}
	}
	products, _, err := b.both(side, nil, 8, 0) // as many as beside the gathers: the clock falls in long runs
	if err != nil {
		return err
	}
	b.report(figure{Op: "product", Impl: "alone", US: products, Note: fmt.Sprintf("%.0f TFLOP/s", 2*float64(productSide)*productSide*productSide/products/1e6)})
	for _, f := range []struct {
		algo  kernels.Algo
		quiet bool
	}{{kernels.Engine, true}, {kernels.Engine, false}, {kernels.Direct, false}} {
		if err := b.beside(side, f.algo, f.quiet, products); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) beside(side []compute, algo kernels.Algo, quiet bool, products float64) error {
	plans, err := b.prepare(func(rank int) cuda.Op {
		o := b.op(kernels.AllGather, dtype.BF16, gatherBytes, rank, false, 0)
		o.Algo, o.Quiet = algo, quiet
		// In place: a copy within a device would run on the multiprocessors.
		o.Tensors[0].Src = o.Tensors[0].Dst + cuda.Ptr(uint64(rank)*o.Tensors[0].Bytes)
		return o
	})
	if err != nil {
		return err
	}
	_, alone, err := b.both(side, plans, 0, 12)
	if err != nil {
		return err
	}
	during, _, err := b.both(side, plans, 8, 60)
	if err != nil {
		return err
	}
	_, slowed, err := b.both(side, plans, 24, 12)
	if err != nil {
		return err
	}
	name := algo.String()
	if quiet {
		name += ", quiet"
	}
	b.report(figure{Op: "gather", Impl: name + ", alone", Bytes: gatherBytes, US: alone})
	b.report(figure{Op: "gather", Impl: name + ", beside", Bytes: gatherBytes, US: slowed, Note: fmt.Sprintf("%+.1f%%", 100*(slowed/alone-1))})
	b.report(figure{Op: "product", Impl: "beside " + name, US: during, Note: fmt.Sprintf("%+.1f%%", 100*(during/products-1))})
	return nil
}

func (b *bench) product(side []compute, rank int) error {
	at := func(off uint64) cuda.Ptr { return cuda.Ptr(b.addr(rank, off)) }
	return side[rank].blas.MatMul(productSide, productSide, productSide, at(b.src+gatherBytes), at(b.src+gatherBytes+quarter), at(b.dst+gatherBytes))
}

// both replays a graph of products and one of gathers at once and gives the median
// time of one of each on the slowest rank, 0 for what there is none of.
func (b *bench) both(side []compute, plans []*cuda.Prepared, products, gathers int) (product, gather float64, err error) {
	worst := [2][]float64{make([]float64, b.n), make([]float64, b.n)}
	var gate barrier
	gate.n = len(b.w.Local())
	err = b.each(func(rank int) error {
		k, c, s, ev := b.w.Rank(rank), side[rank], b.streams[rank], b.events[rank]
		mm, err := b.graph(k, c.stream, products, func() error { return b.product(side, rank) })
		if err != nil {
			return err
		}
		defer b.drv.ExecDestroy(k.Ctx, mm)
		gg, err := b.graph(k, s, gathers, func() error { return plans[rank].Enqueue(s) })
		if err != nil {
			return err
		}
		defer b.drv.ExecDestroy(k.Ctx, gg)
		var times [2][]float64
		for rep := 0; rep < 9; rep++ {
			gate.wait()
			if err := b.w.Meet(); err != nil {
				return err
			}
			err := errors.Join(
				b.launch(rank, "bench", "delay", 1, 1, 0, u64s(nil, 400_000)),
				b.members[rank].Enqueue(s, cuda.Op{Kind: kernels.Barrier}),
				b.drv.EventRecord(k.Ctx, ev[0], s),
				b.drv.StreamWait(k.Ctx, c.stream, ev[0]),
				b.drv.EventRecord(k.Ctx, c.events[0], c.stream),
				b.drv.GraphLaunch(k.Ctx, mm, c.stream),
				b.drv.EventRecord(k.Ctx, c.events[1], c.stream),
				b.drv.GraphLaunch(k.Ctx, gg, s),
				b.drv.EventRecord(k.Ctx, ev[1], s),
				b.drv.StreamSync(k.Ctx, c.stream),
				b.members[rank].Check(s))
			if err != nil {
				return err
			}
			for i, e := range [2][2]cuda.Event{{c.events[0], c.events[1]}, {ev[0], ev[1]}} {
				ms, err := b.drv.EventElapsed(k.Ctx, e[0], e[1])
				if err != nil {
					return err
				}
				if rep >= 2 {
					times[i] = append(times[i], float64(ms)*1e3/float64(max(1, []int{products, gathers}[i])))
				}
			}
		}
		worst[0][rank], worst[1][rank] = median(times[0]), median(times[1])
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	return slices.Max(worst[0]), slices.Max(worst[1]), nil
}

// graph captures count calls of f on s; none give an empty graph.
func (b *bench) graph(k *cuda.Rank, s cuda.Stream, count int, f func() error) (cuda.Exec, error) {
	if err := b.drv.CaptureBegin(k.Ctx, s); err != nil {
		return 0, err
	}
	for i := 0; i < count; i++ {
		if err := f(); err != nil {
			return 0, err
		}
	}
	g, err := b.drv.CaptureEnd(k.Ctx, s)
	if err != nil {
		return 0, err
	}
	x, err := b.drv.GraphInstantiate(k.Ctx, g)
	if err := errors.Join(err, b.drv.GraphDestroy(k.Ctx, g)); err != nil {
		return 0, err
	}
	return x, errors.Join(b.drv.GraphUpload(k.Ctx, x, s), b.drv.StreamSync(k.Ctx, s))
}
