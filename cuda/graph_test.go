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

// updateT is an all_reduce of either of two tensors, on two ranks.
type updateT struct {
	*rigT
	src, dst [2]uint64
	in       [2][][]byte // by tensor and rank
}

const updateCount, updateSize = 3000, 4 * 3000

func newUpdateT(t *testing.T) *updateT {
	u := &updateT{rigT: newRigT(t, 2)}
	rng := rand.New(rand.NewPCG(11, 11))
	for i := range u.src {
		u.src[i], u.dst[i] = u.alloc(updateSize), u.alloc(updateSize)
		for rank := range 2 {
			u.in[i] = append(u.in[i], randomBytes(rng, dtype.F32, updateCount, false))
			u.write(rank, u.src[i], u.in[i][rank])
		}
	}
	return u
}

// capture captures a packet kernel and, as the second of the calls, copies with flags in two
// streams.
func (u *updateT) capture(rank, tensor, calls int) driver.Graph {
	u.t.Helper()
	c, s := u.w.Rank(rank).Ctx, u.streams[rank]
	if err := u.drv.CaptureBegin(c, s); err != nil {
		u.t.Fatal(err)
	}
	for i := range calls {
		op := coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: kernels.OneShot,
			Tensors: []coll.Tensor{{Src: u.w.Addr(rank, u.src[tensor]), Dst: u.w.Addr(rank, u.dst[tensor]), Bytes: updateSize}}}
		if i == 1 {
			op.Algo = kernels.Engine
		}
		if err := u.member(rank).Enqueue(s, op); err != nil {
			u.t.Fatal(err)
		}
	}
	g, err := u.drv.CaptureEnd(c, s)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { u.drv.GraphDestroy(c, g) })
	return g
}

// compare clears the results, replays, and compares: of the two only that of tensor is written.
func (u *updateT) compare(execs map[int]driver.Exec, tensor int) {
	u.t.Helper()
	for rank := range execs {
		u.write(rank, u.dst[0], make([]byte, updateSize))
		u.write(rank, u.dst[1], make([]byte, updateSize))
	}
	for rank, x := range execs {
		if err := u.drv.GraphLaunch(u.w.Rank(rank).Ctx, x, u.streams[rank]); err != nil {
			u.t.Fatal(err)
		}
	}
	if err := u.check(); err != nil {
		u.t.Fatal(err)
	}
	ref := want(dtype.F32, kernels.Sum, u.in[tensor])
	for rank := range execs {
		if at := same(dtype.F32, u.read(rank, u.dst[tensor], updateSize), ref); at >= 0 {
			u.t.Errorf("tensor %d rank %d: element %d is wrong", tensor, rank, at)
		}
		if other := u.read(rank, u.dst[1-tensor], updateSize); !bytes.Equal(other, make([]byte, updateSize)) {
			u.t.Errorf("tensor %d rank %d: the other tensor was written", tensor, rank)
		}
	}
}

// TestGraphUpdate captures collectives of one tensor, moves the executable graphs to
// another tensor, and compares what replays before and after it wrote. A graph with one
// call more is refused.
func TestGraphUpdate(t *testing.T) {
	u := newUpdateT(t)
	execs := map[int]driver.Exec{}
	for _, rank := range u.local() {
		var err error
		if execs[rank], err = u.drv.GraphInstantiate(u.w.Rank(rank).Ctx, u.capture(rank, 0, 2)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.drv.ExecDestroy(u.w.Rank(rank).Ctx, execs[rank]) })
	}
	u.compare(execs, 0)
	for rank, x := range execs {
		c := u.w.Rank(rank).Ctx
		if err := u.drv.GraphUpdate(c, x, u.capture(rank, 1, 2)); err != nil {
			t.Fatal(err)
		}
		if err := u.drv.GraphUpload(c, x, u.streams[rank]); err != nil {
			t.Fatal(err)
		}
	}
	u.compare(execs, 1)
	first := u.w.Local()[0]
	if err := u.drv.GraphUpdate(first.Ctx, execs[first.ID], u.capture(first.ID, 1, 3)); !errors.Is(err, driver.ErrGraphChanged) {
		t.Errorf("a graph of another shape: %v", err)
	}
}
