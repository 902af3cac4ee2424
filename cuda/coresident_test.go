//go:build linux

package cuda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// coresidentT runs co-resident kernels on one rank; which rank of how many they reduce for is made up.
type coresidentT struct {
	*rigT
	rng *rand.Rand
}

func newCoresidentT(t *testing.T) *coresidentT {
	drv, devs, share := newDriver(t, 2)
	r := newRigOn(t, drv, devs, symm.WorldOptions{Bytes: 64 << 20, ShareDevice: share, Images: images(t)})
	return &coresidentT{r, rand.New(rand.NewPCG(1, 2))}
}

func (g *coresidentT) launch(l *kernels.Launch) error {
	k := g.w.Rank(0)
	f, err := k.Func(l.Image, l.Kernel)
	if err != nil {
		return err
	}
	a := l.Args
	a.Peer[0], a.Ctl = uint64(g.w.Addr(0, 0)), uint64(ctl(g.g.Members()[0]))
	if err := g.drv.Launch(k.Ctx, g.streams[0], f, l.Grid, l.Block, 0, a.Pack(nil, l.Segs)); err != nil {
		return err
	}
	return g.drv.StreamSync(k.Ctx, g.streams[0])
}

// area gives memory with a guard before and after it that holds 0xa5.
func (g *coresidentT) area(bytes, shift uint64) (at uint64) {
	at = g.alloc(bytes+shift+2*guard) + guard + shift
	g.fill(at, bytes)
	return at
}

func (g *coresidentT) fill(at, n uint64) {
	g.write(0, at-guard, bytes.Repeat([]byte{0xa5}, int(n)+2*guard))
}

// TestCoresidentCopy copies pieces of many sizes at all alignments, alone and as one launch.
func TestCoresidentCopy(t *testing.T) {
	numbersOnly(t)
	g := newCoresidentT(t)
	sizes := []uint64{1, 3, 4, 15, 16, 17, 31, 100, 511, 512, 513, 4096, 9000, 70001, 1<<20 + 5}
	if *onGPU {
		sizes = append(sizes, 5<<20+1)
	}
	type piece struct {
		seg  kernels.Seg
		at   uint64
		want []byte
	}
	for round := 0; round < 40; round++ {
		var ps []piece
		var segs []kernels.Seg
		var offs []uint64
		for i := 0; i < []int{1, 2, 5, kernels.MaxSegs}[round%4]; i++ {
			n := sizes[(round+i*7)%len(sizes)]
			shift, turn := uint64(g.rng.IntN(16)), uint64(g.rng.IntN(16))
			if round/4%2 == 0 { // all of the launch go by whole units
				turn = shift
			}
			src, dst := g.area(n, shift), g.area(n, turn)
			offs = append(offs, src-shift-guard, dst-turn-guard)
			want := make([]byte, n)
			for j := range want {
				want[j] = byte(g.rng.Uint32())
			}
			g.write(0, src, want)
			s := kernels.Seg{Src: uint64(g.w.Addr(0, src)), Dst: uint64(g.w.Addr(0, dst)), Bytes: n}
			ps, segs = append(ps, piece{s, dst, want}), append(segs, s)
		}
		l, err := kernels.PlanCoresidentCopy(segs)
		if err != nil {
			t.Fatal(err)
		}
		if round%3 == 0 {
			l.Grid = 1 + round%7
		}
		if err := g.launch(l); err != nil {
			t.Fatal(err)
		}
		for i, p := range ps {
			got, err := g.guarded(0, p.at, p.seg.Bytes)
			if err != nil || !bytes.Equal(got, p.want) {
				t.Fatalf("round %d piece %d of %d: %d bytes from %#x to %#x, grid %d: wrong bytes (%v)", round, i, len(ps), p.seg.Bytes, p.seg.Src, p.seg.Dst, l.Grid, err)
			}
		}
		for _, o := range offs {
			if err := g.w.Free(o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCoresidentReduce compares folds with the ones that kernels/src/staged.cu does of the same bytes,
// bit by bit but for NaNs, and both with the sums of the host.
func TestCoresidentReduce(t *testing.T) {
	numbersOnly(t)
	g := newCoresidentT(t)
	counts := []int{1, 5, 7, 64, 333, 4097, 20001}
	if *onGPU {
		counts = append(counts, 60007)
	}
	cases := 0
	for _, dt := range dtype.All() {
		for red := kernels.Sum; red <= kernels.Max; red++ {
			if !kernels.Reduces(red, dt) {
				continue
			}
			for _, n := range []int{2, 3, 4, 8, 16} {
				rank := g.rng.IntN(n)
				shift := []uint64{0, 0, uint64(dt.Size()), 8}[cases%4]
				if err := g.fold(dt, red, n, rank, counts[cases%len(counts)], shift, cases%3 == 0); err != nil {
					t.Fatalf("%v of %v, rank %d of %d, %d elements at +%d: %v", red, dt, rank, n, counts[cases%len(counts)], shift, err)
				}
				cases++
			}
		}
	}
}

func (g *coresidentT) fold(dt dtype.DType, red kernels.Reduction, n, rank, count int, shift uint64, inPlace bool) error {
	size := uint64(count * dt.Size())
	slot := (size + 15) &^ 15
	staging := g.alloc(slot * uint64(n))
	defer g.w.Free(staging)
	src := g.area(size, shift)
	defer g.w.Free(src - shift - guard)
	dst := src
	if !inPlace {
		dst = g.area(size, shift)
		defer g.w.Free(dst - shift - guard)
	}
	var in [][]byte
	for r := 0; r < n; r++ {
		in = append(in, randomBytes(g.rng, dt, count, true))
		if r != rank {
			g.write(0, staging+uint64(r)*slot, in[r])
		}
	}
	call := kernels.Call{Op: kernels.AllReduce, Red: red, DType: dt, N: n,
		Segs: []kernels.Seg{{Src: uint64(g.w.Addr(0, src)), Dst: uint64(g.w.Addr(0, dst)), Bytes: size}}}
	var results [2][]byte
	for i, plan := range []func(kernels.Call) (*kernels.Launch, error){kernels.PlanCoresidentReduce, kernels.PlanStaged} {
		g.fill(dst, size)
		g.write(0, src, in[rank])
		l, err := plan(call)
		if err != nil {
			return err
		}
		l.Args.Rank, l.Args.Scratch, l.Args.Slot = uint32(rank), staging, slot
		if err := g.launch(l); err != nil {
			return fmt.Errorf("%s: %w", l.Kernel, err)
		}
		if results[i], err = g.guarded(0, dst, size); err != nil {
			return fmt.Errorf("%s: %w", l.Kernel, err)
		}
		if at := same(dt, results[i], want(dt, red, in)); at >= 0 {
			return fmt.Errorf("%s: element %d is wrong", l.Kernel, at)
		}
	}
	if at := same(dt, results[0], results[1]); at >= 0 {
		return fmt.Errorf("element %d of the co-resident kernel differs from that of staged.cu", at)
	}
	return nil
}

// TestStagedSegments compares the fold of several tensors, one after the other in
// staging, with the sums of the host, at sizes that fill no unit, and with nothing at all.
func TestStagedSegments(t *testing.T) {
	numbersOnly(t)
	g := newCoresidentT(t)
	cases := 0
	for _, dt := range []dtype.DType{dtype.BF16, dtype.F32, dtype.F16, dtype.I8, dtype.F64, dtype.I32} {
		for _, red := range []kernels.Reduction{kernels.Sum, kernels.Max} {
			for _, n := range []int{2, 3, 4, 8} {
				rank := g.rng.IntN(n)
				counts := []int{1 + g.rng.IntN(40000), 7, 4096, 1 + g.rng.IntN(3000), 0, 33}[:2+cases%5]
				if err := g.segments(dt, red, n, rank, counts); err != nil {
					t.Fatalf("%v of %v, rank %d of %d, %v elements: %v", red, dt, rank, n, counts, err)
				}
				cases++
			}
		}
	}
}

func (g *coresidentT) segments(dt dtype.DType, red kernels.Reduction, n, rank int, counts []int) error {
	call := kernels.Call{Op: kernels.ReduceScatter, Red: red, DType: dt, N: n}
	unit := kernels.StagedUnit(call)
	slot := uint64(0)
	var at []uint64
	for _, count := range counts {
		at = append(at, slot)
		slot += (uint64(count*dt.Size()) + unit - 1) / unit * unit
	}
	slot = (slot + 15) &^ 15
	staging := g.alloc(slot * uint64(n))
	defer g.w.Free(staging)
	var dsts []uint64
	var wants [][]byte
	for i, count := range counts {
		size := uint64(count * dt.Size())
		src, dst := g.area(size, 0), g.area(size, 0)
		defer g.w.Free(src - guard)
		defer g.w.Free(dst - guard)
		var in [][]byte
		for r := range n {
			in = append(in, randomBytes(g.rng, dt, count, true))
			if r == rank {
				g.write(0, src, in[r])
			} else {
				g.write(0, staging+uint64(r)*slot+at[i], in[r])
			}
		}
		call.Segs = append(call.Segs, kernels.Seg{Src: uint64(g.w.Addr(0, src)), Dst: uint64(g.w.Addr(0, dst)), Bytes: size})
		dsts, wants = append(dsts, dst), append(wants, want(dt, red, in))
	}
	l, err := kernels.PlanStaged(call)
	if err != nil {
		return err
	}
	l.Args.Rank, l.Args.Scratch, l.Args.Slot = uint32(rank), staging, slot
	if err := g.launch(l); err != nil {
		return fmt.Errorf("%s: %w", l.Kernel, err)
	}
	for i, dst := range dsts {
		got, err := g.guarded(0, dst, call.Segs[i].Bytes)
		if err != nil {
			return fmt.Errorf("%s, tensor %d: %w", l.Kernel, i, err)
		}
		if k := same(dt, got, wants[i]); k >= 0 {
			return fmt.Errorf("%s: element %d of tensor %d is wrong", l.Kernel, k, i)
		}
	}
	return nil
}
