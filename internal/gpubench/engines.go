package main

import (
	"fmt"
	"time"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// with runs f while another group of all ranks takes the rig's place.
func (r *rig) with(t kernels.Tuning, f func() error) error {
	g, err := r.w.NewGroup(seq(r.n), cuda.GroupOptions{Timeout: 5 * time.Second, Staging: r.staging, Region: 16 << 20, Flagged: 1 << 20, Tuning: &t})
	if err != nil {
		return err
	}
	old, members := r.g, r.members
	r.g, r.members = g, make([]*cuda.Member, r.n)
	for _, m := range g.Members() {
		r.members[m.Index] = m
	}
	err = f()
	r.g, r.members = old, members
	if cerr := g.Close(); err == nil {
		err = cerr
	}
	return err
}

// engines compares the forms of large all_reduces, out of place and in place, and
// of gathers by copy engines, with different numbers of chunks. Each
// form's result is checked first.
func (b *bench) engines() error {
	type variant struct {
		algo    kernels.Algo
		chunks  int
		inPlace bool
	}
	forms := []variant{{kernels.Push, 0, false}, {kernels.Push, 0, true}}
	for _, chunks := range []int{1, 2, 3, 4, 8, 16} {
		forms = append(forms, variant{kernels.Engine, chunks, false}, variant{kernels.Engine, chunks, true})
	}
	def := kernels.DefaultTuning(b.n)
	forms = append(forms, variant{kernels.Auto, def.EngineChunks, false}, variant{kernels.Auto, def.EngineChunks, true})
	for _, f := range forms {
		place := "out of place"
		if f.inPlace {
			place = "in place"
		}
		if !b.only.MatchString(fmt.Sprintf("%v %s", f.algo, place)) {
			continue
		}
		t := kernels.DefaultTuning(b.n)
		t.EngineChunks = f.chunks
		err := b.with(t, func() error {
			wrong, ran, err := b.verifyOne(kernels.AllReduce, dtype.BF16, f.algo, 3000001, 0, f.inPlace, 31)
			if err == nil && (!ran || wrong != 0) {
				err = fmt.Errorf("%d wrong elements, ran %v", wrong, ran)
			}
			if err != nil {
				return fmt.Errorf("%v with %d chunks: %w", f.algo, f.chunks, err)
			}
			if err := b.fill(dtype.BF16, b.max/2, b.max, 7, 0); err != nil {
				return err
			}
			for full := max(64<<20, b.minSize); full <= b.maxSize; full *= 2 {
				for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather} {
					if kind == kernels.AllGather && (f.algo != kernels.Engine || f.inPlace || f.chunks > 1) {
						continue
					}
					plans, err := b.prepare(func(rank int) cuda.Op {
						o := b.op(kind, dtype.BF16, full, rank, f.inPlace, 0)
						o.Algo, o.Red = f.algo, kernels.Avg // an average in place stays finite
						if kind == kernels.AllGather {
							o.Red = 0
						}
						return o
					})
					if err != nil {
						return err
					}
					us, err := b.timeGraph(5, 7, func(rank int) error { return plans[rank].Enqueue(b.streams[rank]) })
					if err != nil {
						return err
					}
					b.report(figure{Op: kind.String(), Impl: fmt.Sprintf("%v, %d chunks", f.algo, f.chunks), Bytes: full, US: us, Note: place})
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
