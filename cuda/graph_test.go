//go:build linux

package cuda

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestGraphUpdate captures collectives of one tensor, moves the executable graphs to
// another tensor, and compares what replays before and after it wrote. A graph with one
// call more is refused.
func TestGraphUpdate(t *testing.T) {
	const n, count = 2, 3000
	const size = 4 * count
	r := newRigT(t, n)
	rng := rand.New(rand.NewPCG(11, 11))
	var src, dst [2]uint64
	var in [2][][]byte
	for i := range src {
		src[i], dst[i] = r.alloc(size), r.alloc(size)
		for rank := range n {
			in[i] = append(in[i], randomBytes(rng, dtype.F32, count, false))
			r.write(rank, src[i], in[i][rank])
		}
	}
	// capture is of a packet kernel and of copies with flags in two streams.
	capture := func(rank, tensor, calls int) driver.Graph {
		t.Helper()
		c, s := r.w.Rank(rank).Ctx, r.streams[rank]
		if err := r.drv.CaptureBegin(c, s); err != nil {
			t.Fatal(err)
		}
		for i := range calls {
			op := coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: kernels.OneShot,
				Tensors: []coll.Tensor{{Src: r.w.Addr(rank, src[tensor]), Dst: r.w.Addr(rank, dst[tensor]), Bytes: size}}}
			if i == 1 {
				op.Algo = kernels.Engine
			}
			if err := r.member(rank).Enqueue(s, op); err != nil {
				t.Fatal(err)
			}
		}
		g, err := r.drv.CaptureEnd(c, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.drv.GraphDestroy(c, g) })
		return g
	}
	execs := map[int]driver.Exec{}
	for _, rank := range r.local() {
		var err error
		if execs[rank], err = r.drv.GraphInstantiate(r.w.Rank(rank).Ctx, capture(rank, 0, 2)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.drv.ExecDestroy(r.w.Rank(rank).Ctx, execs[rank]) })
	}
	for tensor := range src {
		ref := want(dtype.F32, kernels.Sum, in[tensor])
		for rank := range execs {
			r.write(rank, dst[0], make([]byte, size))
			r.write(rank, dst[1], make([]byte, size))
		}
		for rank, x := range execs {
			c := r.w.Rank(rank).Ctx
			if tensor == 1 {
				if err := r.drv.GraphUpdate(c, x, capture(rank, 1, 2)); err != nil {
					t.Fatal(err)
				}
				if err := r.drv.GraphUpload(c, x, r.streams[rank]); err != nil {
					t.Fatal(err)
				}
			}
		}
		for rank, x := range execs {
			if err := r.drv.GraphLaunch(r.w.Rank(rank).Ctx, x, r.streams[rank]); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		for rank := range execs {
			if at := same(dtype.F32, r.read(rank, dst[tensor], size), ref); at >= 0 {
				t.Errorf("tensor %d rank %d: element %d is wrong", tensor, rank, at)
			}
			if other := r.read(rank, dst[1-tensor], size); !bytes.Equal(other, make([]byte, size)) {
				t.Errorf("tensor %d rank %d: the other tensor was written", tensor, rank)
			}
		}
	}
	first := r.w.Local()[0]
	if err := r.drv.GraphUpdate(first.Ctx, execs[first.ID], capture(first.ID, 1, 3)); !errors.Is(err, driver.ErrGraphChanged) {
		t.Errorf("a graph of another shape: %v", err)
	}
}
