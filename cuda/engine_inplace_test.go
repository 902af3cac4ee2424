//go:build linux

package cuda

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestInPlaceReplay replays sums in place of whole numbers, several calls in a graph
// and no wait in between: each must see all of the one before. Through staging in one
// piece and in several, and by push.
func TestInPlaceReplay(t *testing.T) {
	numbersOnly(t)
	for _, c := range []struct {
		name    string
		staging uint64 // beyond what the push kernel asks for
		least   uint64 // Tuning.EngineInPlace
	}{{"staging", 1 << 20, 0}, {"pieces", 0, 0}, {"push", 0, 1 << 30}} {
		t.Run(c.name, func(t *testing.T) { replayInPlace(t, c.staging, c.least) })
	}
}

func replayInPlace(t *testing.T, staging, least uint64) {
	const count, calls, replays = 600000, 2, 3
	n := ranksOf(4)
	r := newRigT(t, n)
	o := smallGroup(r.w.Shares(), n)
	o.Staging += staging
	o.Tuning.EngineInPlace = least
	g, err := coll.NewGroup(t.Context(), r.w, seqInts(n), o)
	if err != nil {
		t.Fatal(err)
	}
	first := r.g
	r.g = g
	defer func() {
		r.g = first
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	a := r.alloc(count * 4)
	in := make([]byte, count*4)
	for i := range count {
		binary.LittleEndian.PutUint32(in[4*i:], math.Float32bits(float32(i%97)))
	}
	execs := map[int]driver.Exec{}
	for _, m := range r.g.Members() {
		rank := m.Index
		r.write(rank, a, in)
		c, s := r.w.Rank(rank).Ctx, r.streams[rank]
		if err := r.drv.CaptureBegin(c, s); err != nil {
			t.Fatal(err)
		}
		for range calls {
			op := coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: kernels.Engine,
				Tensors: []coll.Tensor{{Src: r.w.Addr(rank, a), Dst: r.w.Addr(rank, a), Bytes: count * 4}}}
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
	factor := float32(math.Pow(float64(n), calls*replays))
	for _, rank := range r.local() {
		got := r.read(rank, a, count*4)
		for i := range count {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != float32(i%97)*factor {
				t.Fatalf("rank %d element %d: %v, want %v", rank, i, v, float32(i%97)*factor)
			}
		}
	}
}
