package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// Shapes of the overlap: a square bf16 matmul, whose matrices lie behind the
// tensors of the largest collective.
const (
	productSide = 8192
	movedBytes  = 512 << 20
	matrix      = 2 * productSide * productSide // bytes of one matrix
)

// form is a collective to be timed overlapped with matmuls.
type form struct {
	kind    kernels.Collective
	algo    kernels.Algo
	beside  bool // by copies and flags where the planner finds them worth it
	inPlace bool
	blocks  int  // grid, 0 for the planner's
	spare   bool // the matmul leaves as many multiprocessors free as the collective has blocks
	short   bool // eight matmuls of an eighth of the rows for one
}

func (f form) String() string {
	s := f.algo.String()
	if f.beside {
		s += ", beside"
	}
	if f.inPlace {
		s += ", in place"
	}
	if f.blocks > 0 {
		s += fmt.Sprintf(", %d blocks", f.blocks)
	}
	if f.spare {
		s += " left free"
	}
	if f.short {
		s += ", short matmuls"
	}
	return s
}

// forms lists what may serve overlapped with compute: copies, the planner's kernels, and
// kernels of few blocks with multiprocessors set aside for them.
func forms(bytes uint64) []form {
	out := []form{
		{kind: kernels.AllGather, beside: true, inPlace: true}, {kind: kernels.AllGather, beside: true}, {kind: kernels.ReduceScatter, beside: true},
		{kind: kernels.AllReduce, beside: true, inPlace: true}, {kind: kernels.AllToAll, beside: true},
		{kind: kernels.AllGather, algo: kernels.Direct}, {kind: kernels.ReduceScatter}}
	if bytes >= 64<<20 {
		out = append(out, form{kind: kernels.AllReduce, inPlace: true}, form{kind: kernels.AllToAll, algo: kernels.Direct},
			form{kind: kernels.AllGather, algo: kernels.Direct, blocks: 16, spare: true},
			form{kind: kernels.ReduceScatter, algo: kernels.Direct, blocks: 16, spare: true},
			form{kind: kernels.AllGather, beside: true, short: true}, form{kind: kernels.ReduceScatter, beside: true, short: true},
			form{kind: kernels.AllGather, algo: kernels.Direct, short: true}, form{kind: kernels.ReduceScatter, short: true})
	}
	return out
}

// compute is the stream beside the collectives of one rank.
type compute struct {
	stream driver.Stream
	blas   *lt.Handle
	sms    int // that matmuls shall make do with, 0 for all
	events [2]driver.Event
}

// overlap times collectives and matmuls of cuBLASLt, each alone and both at
// once. Beside the other one, each is measured while the other lasts longer. The
// four measurements of a form take turns, so that clocks are alike.
func (b *bench) overlap() error {
	if b.max < movedBytes+3*matrix {
		return fmt.Errorf("a collective and a matmul need buffers of %d bytes: raise -max", movedBytes+3*matrix)
	}
	if err := b.fill(b.max/2, b.max, 7); err != nil {
		return err
	}
	side := make([]compute, b.n)
	defer b.closeSide(side)
	if err := b.openSide(side); err != nil {
		return err
	}
	for _, bytes := range []uint64{256 << 20, 64 << 20, 16 << 20, 4 << 20, 1 << 20} {
		if bytes < b.minSize {
			continue
		}
		for _, f := range forms(bytes) {
			if !b.only.MatchString(f.kind.String() + " " + f.String()) {
				continue
			}
			if _, err := b.beside(side, f, bytes); err != nil {
				if plan := (*kernels.PlanError)(nil); errors.As(err, &plan) {
					continue
				}
				return fmt.Errorf("%v by %v: %w", f.kind, f, err)
			}
		}
	}
	return nil
}

func (b *bench) openSide(side []compute) error {
	blas, err := lt.Open(b.drv, b.blas)
	if err != nil {
		return err
	}
	for _, k := range b.w.Local() {
		s := &side[k.ID]
		if s.stream, err = b.drv.StreamCreate(k.Ctx); err != nil {
			return err
		}
		for i := range s.events {
			if s.events[i], err = b.drv.EventCreate(k.Ctx, true); err != nil {
				return err
			}
		}
		if s.blas, err = blas.NewHandle(k.Ctx, lt.Options{}); err != nil {
			return err
		}
		if err := s.blas.Reserve(s.stream); err != nil {
			return err
		}
		if err := b.drv.Copy(k.Ctx, s.stream, b.w.Addr(k.ID, b.dst), b.w.Addr(k.ID, b.src), movedBytes); err != nil {
			return err
		}
		// The first matmul loads code, which must not happen beside a collective.
		if err := errors.Join(b.matmul(side, k.ID, false), b.matmul(side, k.ID, true)); err != nil {
			return err
		}
		if err := b.drv.StreamSync(k.Ctx, s.stream); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) closeSide(side []compute) {
	for _, k := range b.w.Local() {
		s := side[k.ID]
		if s.blas != nil {
			s.blas.Close()
		}
		for _, e := range s.events {
			if e != 0 {
				b.drv.EventDestroy(k.Ctx, e)
			}
		}
		if s.stream != 0 {
			b.drv.StreamDestroy(k.Ctx, s.stream)
		}
	}
}

// leave makes later matmuls use all multiprocessors but spare ones.
func (b *bench) leave(side []compute, spare int) error {
	infos, err := b.drv.Devices()
	if err != nil {
		return err
	}
	for _, k := range b.w.Local() {
		side[k.ID].sms = 0
		if spare > 0 {
			side[k.ID].sms = infos[0].SMs - spare
		}
		// The first matmul of a plan loads code, which must not happen beside a collective.
		if err := b.matmul(side, k.ID, false); err != nil {
			return err
		}
		if err := b.drv.StreamSync(k.Ctx, side[k.ID].stream); err != nil {
			return err
		}
	}
	return nil
}

// overlappedTimes is a collective overlapped with matmuls: its time, and what they lose to it.
type overlappedTimes struct{ call, lost float64 }

func (b *bench) beside(side []compute, f form, bytes uint64) (overlappedTimes, error) {
	plans, err := b.prepare(func(rank int) coll.Op {
		o := b.op(f.kind, bytes, rank, f.inPlace && f.kind == kernels.AllReduce)
		o.Algo, o.Overlapped, o.Blocks = f.algo, f.beside, f.blocks
		if f.kind == kernels.AllReduce {
			o.Red = kernels.Avg // stays finite in place
		}
		if f.kind == kernels.AllGather && f.inPlace {
			o.Tensors[0].Src = o.Tensors[0].Dst + driver.Ptr(uint64(rank)*o.Tensors[0].Bytes)
		}
		return o
	})
	if err != nil {
		return overlappedTimes{}, err
	}
	whole, err := b.graphs(side, f, nil, 8, 0) // matmuls alone have all multiprocessors
	if err != nil {
		return overlappedTimes{}, err
	}
	defer whole.close()
	if f.spare {
		if err := b.leave(side, f.blocks); err != nil {
			return overlappedTimes{}, err
		}
		defer b.leave(side, 0)
	}
	// How long a call lasts overlapped with matmuls decides how many outlast eight of them.
	one, err := b.graphs(side, f, plans, 0, 4)
	if err != nil {
		return overlappedTimes{}, err
	}
	defer one.close()
	if _, _, err := one.run(); err != nil {
		return overlappedTimes{}, err
	}
	_, us, err := one.run()
	if err != nil {
		return overlappedTimes{}, err
	}
	us = max(us, 20)
	calls := max(4, min(40, int(4000/us)))
	alone, err := b.graphs(side, f, plans, 0, calls)
	if err != nil {
		return overlappedTimes{}, err
	}
	defer alone.close()
	during, err := b.graphs(side, f, plans, 8, int(8*2400/us)+4)
	if err != nil {
		return overlappedTimes{}, err
	}
	defer during.close()
	slowed, err := b.graphs(side, f, plans, min(24, 10+int(float64(calls)*us/700)), calls)
	if err != nil {
		return overlappedTimes{}, err
	}
	defer slowed.close()
	var pa, pb, ca, cb []float64
	for rep := 0; rep < 7; rep++ {
		p0, _, err0 := whole.run()
		_, c0, err1 := alone.run()
		p1, _, err2 := during.run()
		_, c1, err3 := slowed.run()
		if err := errors.Join(err0, err1, err2, err3); err != nil {
			return overlappedTimes{}, err
		}
		if rep >= 2 {
			pa, ca, pb, cb = append(pa, p0), append(ca, c0), append(pb, p1), append(cb, c1)
		}
	}
	p0, p1, c0, c1 := median(pa), median(pb), median(ca), median(cb)
	b.report(figure{Op: f.kind.String(), Impl: f.String() + ", alone", Bytes: bytes, US: c0})
	b.report(figure{Op: f.kind.String(), Impl: f.String() + ", beside", Bytes: bytes, US: c1, Note: fmt.Sprintf("%+.1f%%", 100*(c1/c0-1))})
	b.report(figure{Op: "product", Impl: "beside " + f.String(), Bytes: bytes, US: p1, Note: fmt.Sprintf("%+.1f%%, alone %.1f, %.1f us lost for a call", 100*(p1/p0-1), p0, (p1-p0)*c1/p1)})
	return overlappedTimes{call: c1, lost: (p1 - p0) * c1 / p1}, nil
}

// matmul multiplies once, or in eight parts of the rows.
func (b *bench) matmul(side []compute, rank int, short bool) error {
	at := func(off uint64) driver.Ptr { return driver.Ptr(b.addr(rank, off)) }
	parts := 1
	if short {
		parts = 8
	}
	for i := range parts {
		rows, skip := int64(productSide/parts), uint64(matrix/parts*i)
		view := func(rows int64) lt.Operand {
			return lt.Operand{Type: dtype.BF16, Shape: []int64{rows, productSide}, Strides: []int64{productSide, 1}, Align: 256}
		}
		problem, err := lt.ProblemOf(view(rows), view(productSide), view(rows), lt.Config{SMs: side[rank].sms})
		if err != nil {
			return err
		}
		plan, err := side[rank].blas.Plan(problem)
		if err != nil {
			return err
		}
		if err := plan.Enqueue(side[rank].stream, at(b.src+movedBytes+skip), at(b.src+movedBytes+matrix), at(b.dst+movedBytes+skip)); err != nil {
			return err
		}
	}
	return nil
}

// pair is a graph of matmuls and one of collectives for every rank.
type pair struct {
	b                *bench
	side             []compute
	matmuls, calls   int
	multiply, gather []driver.Exec
}

// graphs captures matmuls and calls of plans.
func (b *bench) graphs(side []compute, f form, plans []*coll.Prepared, matmuls, calls int) (*pair, error) {
	p := &pair{b: b, side: side, matmuls: matmuls, calls: calls, multiply: make([]driver.Exec, b.n), gather: make([]driver.Exec, b.n)}
	for _, k := range b.w.Local() {
		rank := k.ID
		var err error
		if p.multiply[rank], err = b.graph(k, side[rank].stream, matmuls, func() error { return b.matmul(side, rank, f.short) }); err != nil {
			p.close()
			return nil, err
		}
		if p.gather[rank], err = b.graph(k, b.streams[rank], calls, func() error { return plans[rank].Enqueue(b.streams[rank]) }); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *pair) close() {
	for _, k := range p.b.w.Local() {
		for _, x := range []driver.Exec{p.multiply[k.ID], p.gather[k.ID]} {
			if x != 0 {
				p.b.drv.ExecDestroy(k.Ctx, x)
			}
		}
	}
}

// run replays both graphs at once on every rank and gives the time of one matmul and
// one call on the slowest rank of this process, in microseconds.
func (p *pair) run() (matmul, call float64, err error) {
	b := p.b
	times := make([][2]float64, b.n)
	var gate barrier
	gate.n = len(b.w.Local())
	err = b.each(func(rank int) error {
		k, c, s, ev := b.w.Rank(rank), p.side[rank], b.streams[rank], b.events[rank]
		gate.wait()
		if err := b.w.Barrier(context.Background()); err != nil {
			return err
		}
		err := errors.Join(
			b.launch(rank, "bench", "delay", 1, 1, 0, u64s(nil, 400_000)),
			b.members[rank].Enqueue(s, coll.Op{Kind: kernels.Barrier}),
			b.drv.EventRecord(k.Ctx, ev[0], s),
			b.drv.StreamWait(k.Ctx, c.stream, ev[0]),
			b.drv.EventRecord(k.Ctx, c.events[0], c.stream),
			b.drv.GraphLaunch(k.Ctx, p.multiply[rank], c.stream),
			b.drv.EventRecord(k.Ctx, c.events[1], c.stream),
			b.drv.GraphLaunch(k.Ctx, p.gather[rank], s),
			b.drv.EventRecord(k.Ctx, ev[1], s),
			b.drv.StreamSync(k.Ctx, c.stream),
			b.members[rank].Check(context.Background(), s))
		if err != nil {
			return err
		}
		for i, e := range [2][2]driver.Event{{c.events[0], c.events[1]}, {ev[0], ev[1]}} {
			ms, err := b.drv.EventElapsed(k.Ctx, e[0], e[1])
			if err != nil {
				return err
			}
			times[rank][i] = float64(ms) * 1e3 / float64(max(1, []int{p.matmuls, p.calls}[i]))
		}
		return nil
	})
	for _, t := range times {
		matmul, call = max(matmul, t[0]), max(call, t[1])
	}
	return matmul, call, err
}

// graph captures count calls of f on s; none give an empty graph.
func (b *bench) graph(k *symm.Rank, s driver.Stream, count int, f func() error) (driver.Exec, error) {
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
