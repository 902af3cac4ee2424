//go:build linux

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// rootedT is a broadcast, permute or reduce with known inputs.
type rootedT struct {
	kind    kernels.Collective
	t       dtype.DType
	red     kernels.Reduction
	algo    kernels.Algo
	counts  []int
	root    int
	pairs   [][2]int
	inPlace bool // broadcast and reduce
	apart   bool // permute: each rank has its results elsewhere
	shift   uint64
}

func (c rootedT) String() string {
	return fmt.Sprintf("%v/%v/%v/%v/%v+%d/root %d/%v/in place %v/apart %v", c.kind, c.algo, c.t, c.red, c.counts, c.shift, c.root, c.pairs, c.inPlace, c.apart)
}

// want is what rank's result must be, given all operands and what was there before.
func (c rootedT) want(rank int, in [][]byte, before []byte) []byte {
	switch c.kind {
	case kernels.Broadcast:
		return in[c.root]
	case kernels.Reduce:
		if rank == c.root {
			return want(c.t, c.red, in)
		}
	default:
		for _, p := range c.pairs {
			if p[1] == rank {
				return in[p[0]]
			}
		}
	}
	return before
}

// dst is where a rank has the result that begins at at on rank 0.
func (c rootedT) dst(at uint64, rank int) uint64 {
	if c.apart {
		at += 16 * uint64(rank)
	}
	return at
}

func (r *rigT) runRooted(c rootedT, rng *rand.Rand) error {
	n := r.w.Size()
	type area struct{ src, dst, bytes uint64 }
	var areas []area
	ins := make([][][]byte, len(c.counts))
	for i, count := range c.counts {
		a := area{bytes: uint64(count * c.t.Size())}
		a.src = r.alloc(a.bytes+2*guard+16) + guard + c.shift
		defer r.w.Free(a.src - guard - c.shift)
		if a.dst = a.src; !c.inPlace {
			a.dst = r.alloc(a.bytes+2*guard+16*uint64(n+1)) + guard + c.shift
			defer r.w.Free(a.dst - guard - c.shift)
		}
		areas = append(areas, a)
		for rank := range n {
			r.write(rank, c.dst(a.dst, rank)-guard, bytes.Repeat([]byte{0xa5}, int(a.bytes)+2*guard))
			ins[i] = append(ins[i], randomBytes(rng, c.t, count, false))
			r.write(rank, a.src, ins[i][rank])
		}
	}
	err := r.run(func(rank int) coll.Op {
		op := coll.Op{Kind: c.kind, Red: c.red, DType: c.t, Symmetric: !c.apart, Algo: c.algo, Root: c.root, Pairs: c.pairs}
		for _, a := range areas {
			op.Tensors = append(op.Tensors, coll.Tensor{Src: r.w.Addr(rank, a.src), Dst: r.w.Addr(rank, c.dst(a.dst, rank)), Bytes: a.bytes})
			var all []driver.Ptr
			for q := range n {
				all = append(all, r.w.Addr(rank, c.dst(a.dst, q)))
			}
			if c.apart {
				op.Dsts = append(op.Dsts, all)
			}
		}
		return op
	})
	if err != nil {
		return err
	}
	for i, a := range areas {
		for _, rank := range r.local() {
			got, err := r.guarded(rank, c.dst(a.dst, rank), a.bytes)
			if err != nil {
				return fmt.Errorf("tensor %d rank %d: %w", i, rank, err)
			}
			before := bytes.Repeat([]byte{0xa5}, int(a.bytes))
			if c.inPlace {
				before = ins[i][rank]
			}
			if at := same(c.t, got, c.want(rank, ins[i], before)); at >= 0 {
				return fmt.Errorf("tensor %d rank %d: element %d is wrong", i, rank, at)
			}
		}
	}
	return nil
}

// TestRooted runs broadcasts, permutes and reduces by packets and by copies, one after
// the other and mixed with kernels that use the same staging.
func TestRooted(t *testing.T) {
	numbersOnly(t)
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRigT(t, n)
			rng := rand.New(rand.NewPCG(7, uint64(n)))
			ring, pair := [][2]int{}, [][2]int{{n - 1, 0}}
			for i := range n {
				ring = append(ring, [2]int{i, (i + 1) % n})
			}
			fan := [][2]int{{0, 0}, {0, n - 1}} // one rank to itself and to another
			for i, algo := range []kernels.Algo{kernels.Auto, kernels.LL, kernels.Engine} {
				for j, counts := range [][]int{{1}, {333}, {5, 2000, 17}, {0, volume(70001)}} {
					root, shift := (i+j)%n, uint64(4*(j%2))
					cases := []rootedT{
						{kind: kernels.Broadcast, t: dtype.BF16, counts: counts, root: root, shift: shift},
						{kind: kernels.Broadcast, t: dtype.I64, counts: counts, root: root, inPlace: true},
						{kind: kernels.Permute, t: dtype.F32, counts: counts, pairs: ring, shift: shift, apart: j >= 2},
						{kind: kernels.Permute, t: dtype.U8, counts: counts, pairs: pair},
						{kind: kernels.Permute, t: dtype.F16, counts: counts, pairs: fan},
						{kind: kernels.Permute, t: dtype.F16, counts: counts},
						{kind: kernels.Reduce, t: dtype.BF16, counts: counts, root: root, shift: shift},
						{kind: kernels.Reduce, t: dtype.F32, red: kernels.Avg, counts: counts, root: root, inPlace: true},
						{kind: kernels.Reduce, t: dtype.I32, red: kernels.Max, counts: counts, root: root},
					}
					for _, c := range cases {
						c.algo = algo
						if err := r.runRooted(c, rng); err != nil {
							var plan *kernels.PlanError
							if errors.As(err, &plan) && algo == kernels.LL && c.kind == kernels.Reduce {
								continue // larger than its scratch
							}
							t.Fatalf("%v: %v", c, err)
						}
					}
					// What stages by kernels comes next, while peers may still be at it.
					push := caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: kernels.Push, counts: []int{volume(40000)}}
					if err := r.runCase(push, rng); n != 3 && err != nil {
						t.Fatalf("push after the others: %v", err)
					}
				}
			}
			// Without waiting for the host in between.
			if err := r.runQueue(40, rng); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// runQueue enqueues many reduces to changing roots, each followed by an all_reduce that
// stages, and then compares the last results.
func (r *rigT) runQueue(rounds int, rng *rand.Rand) error {
	n, count := r.w.Size(), volume(6000)
	size := uint64(count * 4)
	src, dst, sum := r.alloc(size), r.alloc(size), r.alloc(size)
	var in [][]byte
	for rank := range n {
		in = append(in, randomBytes(rng, dtype.F32, count, false))
		r.write(rank, src, in[rank])
	}
	staged := kernels.Push
	if n == 3 {
		staged = kernels.Engine
	}
	for i := range rounds {
		root := i % n
		algo := []kernels.Algo{kernels.Auto, kernels.Engine}[i/n%2]
		for _, m := range r.g.Members() {
			rank := m.Index
			at := func(off uint64) driver.Ptr { return r.w.Addr(rank, off) }
			for _, op := range []coll.Op{
				{Kind: kernels.Reduce, DType: dtype.F32, Symmetric: true, Root: root, Algo: algo, Tensors: []coll.Tensor{{Src: at(src), Dst: at(dst), Bytes: size}}},
				{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: staged, Tensors: []coll.Tensor{{Src: at(src), Dst: at(sum), Bytes: size}}},
			} {
				if err := m.Enqueue(r.streams[rank], op); err != nil {
					return err
				}
			}
		}
	}
	if err := r.check(); err != nil {
		return err
	}
	ref := want(dtype.F32, kernels.Sum, in)
	for _, rank := range r.local() {
		if at := same(dtype.F32, r.read(rank, sum, size), ref); at >= 0 {
			return fmt.Errorf("all_reduce, rank %d: element %d is wrong", rank, at)
		}
		if at := same(dtype.F32, r.read(rank, dst, size), ref); rounds >= n && at >= 0 {
			return fmt.Errorf("reduce, rank %d: element %d is wrong", rank, at)
		}
	}
	return nil
}

func TestRootedErrors(t *testing.T) {
	r := newRigT(t, 3)
	m := r.g.Members()[0]
	at := r.w.Addr(0, r.alloc(64))
	for _, op := range []coll.Op{
		{Kind: kernels.Broadcast, Root: 3},
		{Kind: kernels.Reduce, Root: -1},
		{Kind: kernels.Reduce, DType: dtype.F32, Symmetric: true, Algo: kernels.Engine, Part: -1},
		{Kind: kernels.AllGather, Symmetric: true, Algo: kernels.Engine, Overlapped: true, Part: coll.StagingParts},
		{Kind: kernels.Permute, Pairs: [][2]int{{0, 3}}},
		{Kind: kernels.Permute, Pairs: [][2]int{{0, 2}, {1, 2}}},
		{Kind: kernels.Permute, Dsts: [][]driver.Ptr{{at, at}}},
		{Kind: kernels.Broadcast, Dsts: [][]driver.Ptr{{at, at, at}}},
		{Kind: kernels.Broadcast, Algo: kernels.Push},
		{Kind: kernels.Broadcast, Algo: kernels.Engine}, // not symmetric
		{Kind: kernels.Reduce, DType: dtype.Bool},
	} {
		op.Tensors = []coll.Tensor{{Src: at, Dst: at, Bytes: 16}}
		var plan *kernels.PlanError
		if _, err := m.Prepare(op); !errors.As(err, &plan) {
			t.Errorf("%+v: %v", op, err)
		}
	}
}
