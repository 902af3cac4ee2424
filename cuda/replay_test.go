//go:build linux

package cuda

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestReplay captures several collectives into a graph and replays it.
func TestReplay(t *testing.T) {
	const count, replays = 2000, 6
	n := ranksOf(4)
	r := newRigT(t, n)
	a, b := r.alloc(count*4), r.alloc(count*4)
	execs := make([]driver.Exec, n)
	for _, m := range r.g.Members() {
		i, k := m.Index, m.Rank
		if err := r.drv.CaptureBegin(k.Ctx, r.streams[i]); err != nil {
			t.Fatal(err)
		}
		const beside = 100 // an engine collective overlapped with compute
		for j, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, beside, kernels.Direct, kernels.Engine, beside, kernels.Push, kernels.LL} {
			src, dst := a, b
			if j%2 == 1 {
				src, dst = b, a
			}
			op := coll.Op{Kind: kernels.AllReduce, Red: kernels.Avg, DType: dtype.F32, Symmetric: true, Algo: algo,
				Tensors: []coll.Tensor{{Src: r.w.Addr(i, src), Dst: r.w.Addr(i, dst), Bytes: count * 4}}}
			switch algo {
			case kernels.LL:
				op.Red = kernels.Sum
			case beside:
				op.Algo, op.Overlapped = kernels.Engine, true
			}
			if err := m.Enqueue(r.streams[i], op); err != nil {
				t.Fatalf("%v: %v", algo, err)
			}
		}
		g, err := r.drv.CaptureEnd(k.Ctx, r.streams[i])
		if err != nil {
			t.Fatal(err)
		}
		if execs[i], err = r.drv.GraphInstantiate(k.Ctx, g); err != nil {
			t.Fatal(err)
		}
		if err := r.drv.GraphDestroy(k.Ctx, g); err != nil {
			t.Fatal(err)
		}
	}
	in := make([]byte, count*4)
	for i := 0; i < count; i++ {
		binary.LittleEndian.PutUint32(in[4*i:], math.Float32bits(float32(i%97)))
	}
	for rank := 0; rank < n; rank++ {
		r.write(rank, a, in)
	}
	for j := 0; j < replays; j++ {
		for _, k := range r.w.Local() {
			if err := r.drv.GraphLaunch(k.Ctx, execs[k.ID], r.streams[k.ID]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	for _, rank := range r.local() {
		got := r.read(rank, a, count*4)
		for i := 0; i < count; i++ {
			v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:]))
			if exp := float32(i%97) * float32(math.Pow(float64(n), replays)); v != exp {
				t.Fatalf("rank %d element %d: %v after %d replays, want %v", rank, i, v, replays, exp)
			}
		}
	}
	for _, k := range r.w.Local() {
		if err := r.drv.ExecDestroy(k.Ctx, execs[k.ID]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPushSizes pushes small and large tensors by turns, on grids of different sizes, without
// waiting for the host in between: blocks keep their counts and slots from call to call.
func TestPushSizes(t *testing.T) {
	numbersOnly(t)
	const small, large, rounds = 100 << 10, 1 << 20, 30
	n := ranksOf(4)
	if n == 3 {
		n = 2 // for three there is no push
	}
	r := newRigT(t, n)
	rng := rand.New(rand.NewPCG(8, 8))
	type tensor struct {
		src, dst uint64
		in       [][]byte
	}
	make := func(bytes int) (x tensor) {
		x.src, x.dst = r.alloc(uint64(bytes)), r.alloc(uint64(bytes))
		for rank := range n {
			x.in = append(x.in, randomBytes(rng, dtype.BF16, bytes/2, false))
			r.write(rank, x.src, x.in[rank])
		}
		return x
	}
	xs := [2]tensor{make(small), make(large)}
	for i := range rounds {
		for _, m := range r.g.Members() {
			rank := m.Index
			for j, bytes := range []uint64{small, large} {
				x := xs[j]
				p, err := m.Prepare(coll.Op{Kind: kernels.AllReduce, DType: dtype.BF16, Symmetric: true, Algo: kernels.Push, Blocks: 1 + (i+j)%4,
					Tensors: []coll.Tensor{{Src: r.w.Addr(rank, x.src), Dst: r.w.Addr(rank, x.dst), Bytes: bytes}}})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Enqueue(r.streams[rank]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	for _, x := range xs {
		ref := want(dtype.BF16, kernels.Sum, x.in)
		for _, rank := range r.local() {
			if at := same(dtype.BF16, r.read(rank, x.dst, uint64(len(ref))), ref); at >= 0 {
				t.Errorf("%d bytes, rank %d: element %d is wrong", len(ref), rank, at)
			}
		}
	}
}
