//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestSoak enqueues collectives of random kinds, types, protocols, sizes and alignments one
// behind the other, each of tensors of its own, and compares all of them when the last has
// ended. gpubench -mode soak does the same 100,000 times.
func TestSoak(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRigT(t, n)
			batches := 8
			if f, ok := r.drv.(*fake.Driver); ok {
				f.Jitter(20 * time.Microsecond)
			} else {
				batches = 40
			}
			rng, ran := rand.New(rand.NewPCG(17, uint64(n))), map[kernels.Algo]int{}
			for i := range batches {
				if err := r.soak(rng, 24, ran); err != nil {
					t.Fatalf("batch %d: %v", i, err)
				}
			}
			algos := []kernels.Algo{kernels.Auto, kernels.LL, kernels.Direct, kernels.Engine}
			if n != 3 {
				algos = append(algos, kernels.OneShot, kernels.TwoShot, kernels.Push)
			}
			for _, algo := range algos {
				if ran[algo] < batches/4 {
					t.Errorf("%d calls of %v in %d batches", ran[algo], algo, batches)
				}
			}
		})
	}
}

// randomCase is a call that a protocol may serve or not.
func randomCase(rng *rand.Rand) caseT {
	types := moved()
	c := caseT{
		kind: []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll}[rng.IntN(4)],
		t:    types[rng.IntN(len(types))],
		algo: []kernels.Algo{kernels.Auto, kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine}[rng.IntN(7)],
	}
	if rng.IntN(2) == 0 { // which the fast protocols serve
		c.t = []dtype.DType{dtype.BF16, dtype.F16, dtype.F32}[rng.IntN(3)]
	} else if c.kind == kernels.AllReduce || c.kind == kernels.ReduceScatter {
		c.red = kernels.Reduction(rng.IntN(5))
	}
	for range 1 + rng.IntN(2)*rng.IntN(4) {
		c.counts = append(c.counts, 1+rng.IntN(1<<(1+rng.IntN(12))))
	}
	c.shift = uint64(rng.IntN(2)*rng.IntN(16/c.t.Size())) * uint64(c.t.Size())
	c.inPlace = c.kind == kernels.AllReduce && rng.IntN(2) == 0
	c.beside = rng.IntN(3) == 0
	c.special = rng.IntN(4) == 0
	return c
}

// soak runs so many random calls that are served and counts them by protocol.
func (r *rigT) soak(rng *rand.Rand, calls int, ran map[kernels.Algo]int) error {
	type callT struct {
		c      caseT
		areas  []areaT
		inputs [][][]byte
		plans  []*coll.Prepared // by member
	}
	var all []callT
	for len(all) < calls {
		x := callT{c: randomCase(rng)}
		var free func()
		x.areas, x.inputs, free = r.place(x.c, func(_, count int) []byte { return randomBytes(rng, x.c.t, count, x.c.special) })
		defer free()
		for _, m := range r.g.Members() {
			p, err := m.Prepare(r.op(x.c, x.areas, m.Rank.ID))
			var plan *kernels.PlanError
			if errors.As(err, &plan) {
				break
			}
			if err != nil {
				return fmt.Errorf("%v: %w", x.c, err)
			}
			x.plans = append(x.plans, p)
		}
		if len(x.plans) == 0 {
			continue
		}
		ran[x.c.algo]++
		all = append(all, x)
	}
	for i, m := range r.g.Members() {
		for _, x := range all {
			if err := x.plans[i].Enqueue(r.streams[m.Rank.ID]); err != nil {
				return fmt.Errorf("%v: %w", x.c, err)
			}
		}
	}
	if err := r.check(); err != nil {
		return err
	}
	for k, x := range all {
		for i, a := range x.areas {
			for _, m := range r.g.Members() {
				rank := m.Rank.ID
				got, err := r.guarded(rank, a.dst, a.out)
				if err == nil {
					if at := same(x.c.t, got, expect(x.c, x.inputs[i], rank)); at >= 0 {
						err = fmt.Errorf("element %d is wrong", at)
					}
				}
				if err != nil {
					return fmt.Errorf("call %d, %v, tensor %d rank %d: %w", k, x.c, i, rank, err)
				}
			}
		}
	}
	return nil
}
