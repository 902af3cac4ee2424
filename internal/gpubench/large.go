package main

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/kernels"
)

// way is one form of a large collective.
type way struct {
	kind    kernels.Collective
	algo    kernels.Algo
	blocks  int
	inPlace bool
	chunks  int // of the form by copy engines, 0 for the default
}

func (f way) String() string {
	s := f.algo.String()
	if f.chunks > 0 {
		s += fmt.Sprintf(" in %d", f.chunks)
	}
	if f.blocks > 0 {
		s += fmt.Sprintf(", %d blocks", f.blocks)
	}
	if f.inPlace {
		s += ", in place"
	}
	return s
}

// tuning is the default with what the form asks for.
func (f way) tuning(n int) kernels.Tuning {
	t := kernels.DefaultTuning(n)
	if f.chunks > 0 {
		t.EngineChunks = f.chunks
	}
	return t
}

func ways() []way {
	var out []way
	for _, inPlace := range []bool{false, true} {
		out = append(out, way{kind: kernels.AllReduce, inPlace: inPlace}) // the planner's
		for _, blocks := range []int{128, 256} {
			out = append(out, way{kind: kernels.AllReduce, algo: kernels.Push, blocks: blocks, inPlace: inPlace})
		}
	}
	out = append(out, way{kind: kernels.AllReduce, algo: kernels.TwoShot})
	for _, chunks := range []int{1, 2, 3, 4, 8, 16} {
		out = append(out, way{kind: kernels.AllReduce, algo: kernels.Engine, chunks: chunks},
			way{kind: kernels.AllReduce, algo: kernels.Engine, chunks: chunks, inPlace: true})
	}
	for _, blocks := range []int{128, 256} {
		out = append(out, way{kind: kernels.ReduceScatter, algo: kernels.Push, blocks: blocks})
	}
	out = append(out, way{kind: kernels.ReduceScatter, algo: kernels.OneShot}, way{kind: kernels.ReduceScatter, algo: kernels.Engine})
	for _, kind := range []kernels.Collective{kernels.ReduceScatter, kernels.AllGather, kernels.AllToAll} {
		for _, blocks := range []int{96, 128} {
			out = append(out, way{kind: kind, algo: kernels.Direct, blocks: blocks})
		}
	}
	return append(out, way{kind: kernels.AllGather, algo: kernels.Engine}, way{kind: kernels.AllToAll, algo: kernels.Engine})
}

// large times every form of the large collectives, each of which is checked first.
func (b *bench) large() error {
	for _, f := range ways() {
		if !b.only.MatchString(fmt.Sprintf("%v %v", f.kind, f)) {
			continue
		}
		if err := b.with(f.tuning(b.n), func() error { return b.oneWay(f) }); err != nil {
			return fmt.Errorf("%v %v: %w", f.kind, f, err)
		}
	}
	return nil
}

func (b *bench) oneWay(f way) error {
	var plan *kernels.PlanError
	per := uint64(3000001)
	if f.algo == kernels.OneShot || f.algo == kernels.TwoShot {
		per = 300001 // their scratch holds no more
	}
	wrong, ran, err := b.check(f, per)
	if err == nil && !ran {
		return nil // not on this many ranks
	}
	if err == nil && wrong != 0 {
		err = fmt.Errorf("%d wrong elements", wrong)
	}
	if err != nil {
		return err
	}
	if err := b.fill(b.max/2, b.max, 7); err != nil {
		return err
	}
	for full := max(16<<20, b.minSize); full <= b.maxSize; full *= 2 {
		plans, err := b.prepare(func(rank int) coll.Op {
			o := b.op(f.kind, full, rank, f.inPlace)
			o.Algo, o.Blocks = f.algo, f.blocks
			if f.kind == kernels.AllReduce {
				o.Red = kernels.Avg // an average in place stays finite
			}
			return o
		})
		if errors.As(err, &plan) {
			return nil // larger than its scratch
		}
		if err != nil {
			return err
		}
		us, err := b.timeGraph(inner(full), 7, func(rank int) error { return plans[rank].Enqueue(b.streams[rank]) })
		if err != nil {
			return err
		}
		b.report(figure{Op: f.kind.String(), Impl: f.String(), Bytes: full, US: us})
	}
	return nil
}
