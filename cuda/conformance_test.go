//go:build linux

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

const guard = 64

var guardBytes = bytes.Repeat([]byte{0xa5}, guard)

// caseT is one collective with known inputs.
type caseT struct {
	kind    kernels.Collective
	red     kernels.Reduction
	t       dtype.DType
	algo    kernels.Algo
	counts  []int // elements of one rank's piece, one entry per tensor
	shift   uint64
	inPlace bool
	special bool
	beside  bool
	blocks  int // 0 for the planner's
}

func (c caseT) String() string {
	return fmt.Sprintf("%v/%v/%v/%v/%v+%d/in place %v/beside %v", c.kind, c.algo, c.t, c.red, c.counts, c.shift, c.inPlace, c.beside)
}

// sizes gives the elements of operand and result of a collective of n ranks, count of
// which one rank contributes or receives.
func sizes(kind kernels.Collective, n, count int) (in, out int) {
	switch kind {
	case kernels.AllGather:
		return count, n * count
	case kernels.ReduceScatter:
		return n * count, count
	case kernels.AllToAll:
		return n * count, n * count
	}
	return count, count
}

// areaT is one tensor of a case: offsets and bytes of its operand and its result.
type areaT struct{ src, dst, in, out uint64 }

// areasOf allocates the tensors of c.
func (r *rigT) areasOf(c caseT) (areas []areaT, free func()) {
	n, size := r.w.Size(), c.t.Size()
	var offs []uint64
	alloc := func(bytes uint64) uint64 {
		off := r.alloc(bytes + 2*guard + 16)
		offs = append(offs, off)
		return off + guard + c.shift
	}
	for _, count := range c.counts {
		in, out := sizes(c.kind, n, count)
		a := areaT{in: uint64(in * size), out: uint64(out * size)}
		a.src = alloc(a.in)
		if a.dst = a.src; !c.inPlace {
			a.dst = alloc(a.out)
		}
		areas = append(areas, a)
	}
	return areas, func() {
		for _, off := range offs {
			if err := r.w.Free(off); err != nil {
				r.t.Error(err)
			}
		}
	}
}

// place allocates the tensors of c and writes the operands, which input makes, and 0xa5
// around them and wherever results go. inputs is by tensor and by rank.
func (r *rigT) place(c caseT, input func(rank, count int) []byte) (areas []areaT, inputs [][][]byte, free func()) {
	areas, free = r.areasOf(c)
	for i, a := range areas {
		count, _ := sizes(c.kind, r.w.Size(), c.counts[i])
		var ins [][]byte
		for rank := range r.w.Size() {
			if !c.inPlace {
				r.write(rank, a.dst-guard, bytes.Repeat([]byte{0xa5}, int(a.out)+2*guard))
			}
			b := input(rank, count)
			ins = append(ins, b)
			r.write(rank, a.src-guard, slices.Concat(guardBytes, b, guardBytes))
		}
		inputs = append(inputs, ins)
	}
	return areas, inputs, free
}

// op is c of a rank.
func (r *rigT) op(c caseT, areas []areaT, rank int) coll.Op {
	op := coll.Op{Kind: c.kind, Red: c.red, DType: c.t, Symmetric: true, Algo: c.algo, Overlapped: c.beside, Blocks: c.blocks}
	for i, a := range areas {
		op.Tensors = append(op.Tensors, coll.Tensor{Src: r.w.Addr(rank, a.src), Dst: r.w.Addr(rank, a.dst), Bytes: uint64(c.counts[i] * c.t.Size())})
	}
	return op
}

// guarded reads n bytes at off, before and behind which nothing may have been written.
func (r *rigT) guarded(rank int, off, n uint64) ([]byte, error) {
	b := r.read(rank, off-guard, n+2*guard)
	if !bytes.Equal(b[:guard], guardBytes) || !bytes.Equal(b[guard+n:], guardBytes) {
		return nil, fmt.Errorf("bytes outside the result were written")
	}
	return b[guard : guard+n], nil
}

// runCase runs c on fresh random data and compares every byte, guards included.
func (r *rigT) runCase(c caseT, rng *rand.Rand) error {
	areas, inputs, free := r.place(c, func(_, count int) []byte { return randomBytes(rng, c.t, count, c.special) })
	defer free()
	if err := r.run(func(rank int) coll.Op { return r.op(c, areas, rank) }); err != nil {
		return err
	}
	for i, a := range areas {
		for _, rank := range r.local() {
			got, err := r.guarded(rank, a.dst, a.out)
			if err != nil {
				return fmt.Errorf("tensor %d rank %d: %w", i, rank, err)
			}
			if at := same(c.t, got, expect(c, inputs[i], rank)); at >= 0 {
				return fmt.Errorf("tensor %d rank %d: element %d is wrong", i, rank, at)
			}
		}
	}
	return nil
}

func expect(c caseT, in [][]byte, rank int) []byte {
	n := len(in)
	switch c.kind {
	case kernels.AllReduce:
		return want(c.t, c.red, in)
	case kernels.AllGather:
		return bytes.Join(in, nil)
	}
	piece := len(in[0]) / n
	var parts [][]byte
	for _, b := range in {
		parts = append(parts, b[rank*piece:(rank+1)*piece])
	}
	if c.kind == kernels.AllToAll {
		return bytes.Join(parts, nil)
	}
	return want(c.t, c.red, parts)
}

// moved are the element types without the floats of a byte, which kernels take for u8.
func moved() []dtype.DType {
	return slices.DeleteFunc(dtype.All(), dtype.DType.IsFloat8)
}

// allCases lists what every protocol must serve for a group of n.
func allCases(n int) []caseT {
	var out []caseT
	counts := []int{1, 2, 5, 64, 333, 4097}
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll} {
		reduces := kind == kernels.AllReduce || kind == kernels.ReduceScatter
		for _, t := range moved() {
			reds := []kernels.Reduction{kernels.Sum, kernels.Avg, kernels.Prod, kernels.Min, kernels.Max}
			if !reduces {
				reds = reds[:1]
			}
			for _, red := range reds {
				if reduces && !kernels.Reduces(red, t) {
					continue
				}
				for _, algo := range []kernels.Algo{kernels.Auto, kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
					count := counts[len(out)%len(counts)]
					shift := uint64(len(out)%4*t.Size()) % 16
					c := caseT{kind: kind, red: red, t: t, algo: algo, counts: []int{count}, shift: shift, special: true}
					out = append(out, c)
					c.counts, c.shift = []int{3, 1000, 17, 64}, 0
					out = append(out, c)
					if kind == kernels.AllReduce {
						c.inPlace, c.counts = true, []int{count}
						out = append(out, c)
					}
					if algo == kernels.Engine {
						c.beside = true
						out = append(out, c)
						c.counts, c.inPlace = []int{3, 1000, 17, 64}, false
						out = append(out, c)
					}
				}
			}
		}
	}
	for _, t := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16} { // two shots need a slice for every rank
		for i, red := range []kernels.Reduction{kernels.Sum, kernels.Avg} {
			c := caseT{kind: kernels.AllReduce, red: red, t: t, algo: kernels.TwoShot, special: true}
			for j, counts := range [][]int{{4097}, {20000}, {7, 1000, 3001, 64}} {
				c.counts, c.shift, c.inPlace = counts, uint64((i+j)%2*t.Size()), (i+j)%2 == 0
				out = append(out, c)
			}
		}
	}
	return append(out,
		caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: kernels.Push, counts: []int{200003}},
		caseT{kind: kernels.AllReduce, t: dtype.F32, algo: kernels.Push, counts: []int{90000, 7, 50001}, inPlace: true},
		caseT{kind: kernels.ReduceScatter, t: dtype.BF16, algo: kernels.Push, counts: []int{70000}},
		caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: kernels.Engine, counts: []int{300007}, inPlace: true},
		caseT{kind: kernels.ReduceScatter, t: dtype.F32, algo: kernels.Engine, counts: []int{150000}},
		caseT{kind: kernels.AllGather, t: dtype.I8, algo: kernels.Direct, counts: []int{100001}},
		// Several rounds of staging, small and large tensors in one bucket, push after beside.
		caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: kernels.Engine, counts: []int{300007, 5, 70000}, inPlace: true, beside: true},
		caseT{kind: kernels.AllReduce, t: dtype.F32, counts: []int{400001, 3, 20000}, beside: true},
		caseT{kind: kernels.ReduceScatter, t: dtype.BF16, counts: []int{200000, 16, 3}, beside: true},
		caseT{kind: kernels.ReduceScatter, t: dtype.BF16, algo: kernels.Push, counts: []int{70000}},
		caseT{kind: kernels.ReduceScatter, t: dtype.F32, algo: kernels.Engine, counts: []int{300000, 9, 40000}, beside: true},
		caseT{kind: kernels.AllGather, t: dtype.I8, counts: []int{100001, 7, 33}, beside: true},
		caseT{kind: kernels.AllToAll, t: dtype.F16, counts: []int{1, 30001}, beside: true},
	)
}

// servedCases is how many of allCases each protocol serves of each kind in a group of n.
func servedCases(n int) map[string]int {
	served := map[string]int{
		"all_reduce/auto": 109, "all_reduce/ll": 108, "all_reduce/direct": 108, "all_reduce/engine": 182,
		"all_gather/auto": 27, "all_gather/ll": 26, "all_gather/direct": 27, "all_gather/engine": 52,
		"reduce_scatter/auto": 73, "reduce_scatter/ll": 72, "reduce_scatter/direct": 72, "reduce_scatter/engine": 146,
		"all_to_all/auto": 27, "all_to_all/ll": 26, "all_to_all/direct": 26, "all_to_all/engine": 52,
	}
	if n == 2 || n == 4 || n == 8 { // for which they have kernels
		served["all_reduce/oneshot"], served["all_reduce/twoshot"], served["all_reduce/push"] = 18, 26, 20
		served["reduce_scatter/oneshot"], served["reduce_scatter/push"] = 12, 14
	}
	return served
}

// runs reports whether to run a case, or only to plan it. The fake driver runs all of them on
// 2 to 4 ranks of one process and samples where ranks are many, or processes, which run the
// same code. 16 ranks are many streams for few GPUs, too, where those of the copy engines would
// share the hardware's queues and wait for each other.
func runs(t *testing.T, n int, c caseT, rng *rand.Rand) bool {
	if *onGPU {
		return n <= 4*len(gpus(t, 1)) || n < 16 || c.algo != kernels.Engine && !c.beside
	}
	one := 1 // of so many
	switch {
	case sampled(), inProcesses() && n > 2:
		one = 8
	case n == 8:
		one = 5
	case n == 16:
		one = 30
	}
	return rng.IntN(one) == 0
}

// inProcesses says that this is a rank of several processes on fake devices.
func inProcesses() bool { return process != nil && !*onGPU }

// volume is a number of elements or rounds that is for the volume of data, a third of it under
// the race detector: the accesses of goroutines are the same ones again.
func volume(n int) int {
	if raced {
		return n / 3
	}
	return n
}

// sampled reports whether sweeps take a sample of their cases: those of the race detector do.
func sampled() bool { return testing.Short() && process == nil && !*onGPU }

// numbersOnly skips a test of what kernels compute in short runs. These are for the race
// detector, which sees nothing of the threads of kernels.
func numbersOnly(t *testing.T) {
	if sampled() {
		t.Skip("threads of kernels are no goroutines")
	}
}

func TestCollectives(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if n > 4 && sampled() || n == 16 && testing.Short() {
				t.Skip("as with fewer ranks")
			}
			r := newRigT(t, n)
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			served := map[string]int{}
			for _, c := range allCases(n) {
				run := r.runCase
				if !runs(t, n, c, rng) {
					run = r.planCase
				}
				err := run(c, rng)
				var plan *kernels.PlanError
				if errors.As(err, &plan) && c.algo != kernels.Auto {
					continue // the protocol does not serve this combination
				}
				if err != nil {
					t.Fatalf("%v: %v", c, err)
				}
				served[fmt.Sprintf("%v/%v", c.kind, c.algo)]++
			}
			if want := servedCases(n); !maps.Equal(served, want) {
				t.Errorf("cases served: %v, want %v", served, want)
			}
		})
	}
}

// planCase plans c without running it.
func (r *rigT) planCase(c caseT, _ *rand.Rand) error {
	areas, free := r.areasOf(c)
	defer free()
	for _, m := range r.g.Members() {
		if _, err := m.Prepare(r.op(c, areas, m.Rank.ID)); err != nil {
			return err
		}
	}
	return nil
}

// TestRankOrder places 2^24, 1 and -2^24 on three consecutive ranks: any other
// order of the sum, or a narrower accumulator, gives another result.
func TestRankOrder(t *testing.T) {
	const n, count = 4, 512
	r := newRigT(t, n)
	for _, dt := range []dtype.DType{dtype.F32, dtype.BF16} {
		in := make([][]byte, n)
		for rank := range in {
			for i := 0; i < count; i++ {
				v := float32(0)
				switch (rank - i%n + n) % n {
				case 0:
					v = 1 << 24
				case 1:
					v = 1
				case 2:
					v = -(1 << 24)
				}
				var b [4]byte
				storeSum(dt, b[:], v)
				in[rank] = append(in[rank], b[:dt.Size()]...)
			}
		}
		// In rank order 1 is lost in 2^24 + 1 where 2^24 is on rank 0 or 1, and kept in 1 - 2^24.
		var ref []byte
		for i := range count {
			var b [4]byte
			storeSum(dt, b[:], [n]float32{0, 0, 1, 1}[i%n])
			ref = append(ref, b[:dt.Size()]...)
		}
		src, dst := r.alloc(4096), r.alloc(4096)
		ran := 0
		for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.ReduceScatter} {
			for _, algo := range []kernels.Algo{kernels.Auto, kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
				for rank := range in {
					r.write(rank, src, in[rank])
					r.write(rank, dst, bytes.Repeat([]byte{0xa5}, 4096))
				}
				piece := uint64(len(ref))
				if kind == kernels.ReduceScatter {
					piece /= n
				}
				err := r.run(func(rank int) coll.Op {
					return coll.Op{Kind: kind, DType: dt, Symmetric: true, Algo: algo, Overlapped: algo == kernels.Engine && kind == kernels.ReduceScatter,
						Tensors: []coll.Tensor{{Src: r.w.Addr(rank, src), Dst: r.w.Addr(rank, dst), Bytes: piece}}}
				})
				var plan *kernels.PlanError
				if errors.As(err, &plan) && algo == kernels.TwoShot && kind == kernels.ReduceScatter {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				ran++
				for _, rank := range r.local() {
					part := ref
					if kind == kernels.ReduceScatter {
						part = ref[uint64(rank)*piece:][:piece]
					}
					if got := r.read(rank, dst, piece); !bytes.Equal(got, part) {
						t.Errorf("%v by %v, %v rank %d: not the sum in rank order", kind, algo, dt, rank)
					}
				}
			}
		}
		if ran != 13 {
			t.Errorf("%d protocols ran", ran)
		}
	}
}
