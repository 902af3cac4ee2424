//go:build linux

package cuda

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestCutInPlace cuts random buckets and checks that the parts of every rank cover all
// slices of every tensor once, and that a rank's sum lies where its own piece was.
func TestCutInPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	several := 0
	for range 1000 {
		n := []int{2, 4, 8}[rng.IntN(3)]
		b := engineBuilder{m: &Member{Index: rng.IntN(n)}, n: n}
		total, at := uint64(0), uint64(1<<20)
		next := map[uint64]uint64{} // by end of a tensor's slices: where the next part begins
		var ends []uint64
		for range 1 + rng.IntN(4) {
			x := Tensor{Src: Ptr(at), Dst: Ptr(at), Bytes: uint64(16*n + rng.IntN(200000))}
			b.op.Tensors = append(b.op.Tensors, x)
			whole := b.sliceOf(x) * uint64(n)
			ends, next[at+whole], total = append(ends, at+whole), at, total+whole
			at += (x.Bytes + 31) &^ 15
		}
		parts := b.cutInPlace(1 + rng.IntN(6))
		if len(parts) > 1 {
			several++
		}
		for _, segs := range parts {
			for _, s := range segs {
				end := ends[0]
				for _, e := range ends {
					if s.Src < e {
						end = e
						break
					}
				}
				if s.Src != next[end] || s.Bytes == 0 || s.Bytes%16 != 0 || s.Dst != s.Src+uint64(b.m.Index)*s.Bytes {
					t.Fatalf("part %+v, expected at %#x", s, next[end])
				}
				next[end] += s.Bytes * uint64(n)
				total -= s.Bytes * uint64(n)
			}
		}
		for _, e := range ends {
			if next[e] != e {
				t.Fatalf("parts end at %#x instead of %#x", next[e], e)
			}
		}
		if total != 0 {
			t.Fatalf("%d bytes are not covered", total)
		}
	}
	if several < 500 {
		t.Errorf("only %d buckets have several parts", several)
	}
}

// TestInPlaceReplay replays sums in place of whole numbers, several calls in a graph
// and no wait in between: each must see all of the one before.
func TestInPlaceReplay(t *testing.T) {
	const n, count, calls, replays = 4, 50000, 2, 3
	r := newRigT(t, n)
	a := r.alloc(count * 4)
	in := make([]byte, count*4)
	for i := range count {
		binary.LittleEndian.PutUint32(in[4*i:], math.Float32bits(float32(i%97)))
	}
	execs := make([]Exec, n)
	for rank, m := range r.g.Members() {
		r.write(rank, a, in)
		c, s := r.w.Rank(rank).Ctx, r.streams[rank]
		if err := r.drv.CaptureBegin(c, s); err != nil {
			t.Fatal(err)
		}
		for range calls {
			op := Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: kernels.Engine,
				Tensors: []Tensor{{Src: r.w.Addr(rank, a), Dst: r.w.Addr(rank, a), Bytes: count * 4}}}
			if err := m.Enqueue(s, op); err != nil {
				t.Fatal(err)
			}
		}
		g, err := r.drv.CaptureEnd(c, s)
		if err != nil {
			t.Fatal(err)
		}
		if execs[rank], err = r.drv.GraphInstantiate(c, g); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.drv.ExecDestroy(c, execs[rank]) })
		if err := r.drv.GraphDestroy(c, g); err != nil {
			t.Fatal(err)
		}
	}
	for range replays {
		for rank, x := range execs {
			if err := r.drv.GraphLaunch(r.w.Rank(rank).Ctx, x, r.streams[rank]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	factor := float32(math.Pow(n, calls*replays))
	for rank := range n {
		got := r.read(rank, a, count*4)
		for i := range count {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != float32(i%97)*factor {
				t.Fatalf("rank %d element %d: %v, want %v", rank, i, v, float32(i%97)*factor)
			}
		}
	}
}
