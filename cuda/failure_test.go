//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/dl"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestEveryCallFails builds, uses and closes a world with each driver call failing
// in turn. Each must come back as that error, with nothing left behind.
func TestEveryCallFails(t *testing.T) {
	injected := errors.New("injected")
	work := func(f *fake.Driver) (err error) {
		w, err := symm.NewLocalWorld(f, []int{0, 1}, symm.WorldOptions{Bytes: 8 << 20, Images: images(t)})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		g, err := coll.NewGroup(t.Context(), w, []int{0, 1}, leastGroup(smallGroup(false, 2)))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.Close()) }()
		a, err := w.Alloc(4096, 256)
		if err != nil {
			return err
		}
		var prepared []*coll.Prepared
		for _, m := range g.Members() {
			p, err := m.Prepare(coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: kernels.Engine,
				Tensors: []coll.Tensor{{Src: w.Addr(m.Rank.ID, a), Dst: w.Addr(m.Rank.ID, a), Bytes: 4096}}})
			if err != nil {
				return err
			}
			prepared = append(prepared, p)
		}
		_ = prepared // launching half of a collective would have to time out
		return nil
	}
	f := fake.New(2)
	if err := work(f); err != nil {
		t.Fatal(err)
	}
	total := f.Calls()
	if total < 100 {
		t.Fatalf("only %d calls", total)
	}
	for n := 1; n <= total; n++ {
		f := fake.New(2)
		f.FailCall(n, injected)
		if err := work(f); !errors.Is(err, injected) {
			t.Errorf("call %d of %d failed, the result is %v", n, total, err)
		}
		if l := f.Leaks().String(); l != "" {
			t.Errorf("call %d of %d: not released: %s", n, total, l)
		}
	}
}

func TestOpenWithoutDriver(t *testing.T) {
	if *onGPU {
		t.Skip("this machine has a driver")
	}
	_, err := driver.Open("/nonexistent/libcuda.so.1")
	var le *dl.LoadError
	if !errors.Is(err, driver.ErrNoDriver) || !errors.As(err, &le) || le.Path == "" {
		t.Errorf("got %v", err)
	}
}

func TestBadCalls(t *testing.T) {
	r := newRigT(t, 2)
	m, rank := r.g.Members()[0], r.w.Rank(0)
	a := r.w.Addr(0, r.alloc(4096))
	other := r.w.Addr(1, 0)
	for _, c := range []struct {
		op   coll.Op
		text string
	}{
		{coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 6}}}, "tensor 0 has 6 bytes, no multiple of an element of f32"},
		{coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Tensors: []coll.Tensor{{Src: a + 2, Dst: a, Bytes: 8}}}, "not aligned to an element of f32"},
		{coll.Op{Kind: kernels.AllReduce, DType: dtype.Bool, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 8}}}, "bool cannot be reduced"},
		{coll.Op{Kind: kernels.AllReduce, DType: dtype.U64, Red: kernels.Max, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 8}}}, "no kernel computes it"},
		{coll.Op{Kind: kernels.AllReduce, Red: kernels.Avg, DType: dtype.I32, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 8}}}, "avg of i32: only floats"},
		{coll.Op{Kind: kernels.AllReduce, DType: dtype.F32}, "0 tensors in one launch"},
		{coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Algo: kernels.Direct, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 8}}}, "needs tensors in symmetric memory"},
		{coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Tensors: []coll.Tensor{{Src: other, Dst: a, Bytes: 8}}}, "are not in rank 0's symmetric memory"},
		{coll.Op{Kind: kernels.AllReduce, Red: kernels.Max, DType: dtype.F32, Algo: kernels.OneShot, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 8}}}, "the oneshot protocol does not serve max f32"},
		{coll.Op{Kind: kernels.AllGather, DType: dtype.F32, Algo: kernels.LL, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 4 << 20}}}, "do not fit in the scratch"},
		{coll.Op{Kind: kernels.AllReduce, DType: dtype.Invalid, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 8}}}, "element type invalid"},
	} {
		err := m.Enqueue(r.streams[0], c.op)
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("got %v, want %q", err, c.text)
		}
	}
	if err := m.Enqueue(r.streams[0], coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 0}}}); err != nil {
		t.Errorf("zero bytes: %v", err)
	}
	if err := r.drv.Run(rank.Ctx, []uint64{2<<8 | driver.OpLaunch, 0}); err == nil {
		t.Error("a malformed command buffer was accepted")
	}
	if _, err := r.drv.CanAccessPeer(0, 99); err == nil {
		t.Error("device 99 is in range")
	}
	if _, err := symm.NewLocalWorld(r.drv, []int{0, 0}, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)}); !errors.Is(err, symm.ErrSharedDevice) {
		t.Errorf("two ranks on one device: %v", err)
	}
}

// TestJitter runs collectives one after the other with random delays in every
// poll and copy, so that ranks overtake each other.
func TestJitter(t *testing.T) {
	if *onGPU {
		t.Skip("the fake driver has the delays")
	}
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRigT(t, n)
			r.drv.(*fake.Driver).Jitter(200_000)
			rng := rand.New(rand.NewPCG(2, 2))
			ran := 0
			for i := 0; i < 40; i++ {
				for _, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
					err := r.runCase(caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: algo, counts: []int{64 + 8*(i%5)}}, rng)
					var plan *kernels.PlanError
					if err != nil && !errors.As(err, &plan) {
						t.Fatalf("round %d %v: %v", i, algo, err)
					}
					if err == nil {
						ran++
					}
				}
			}
			if ran < 3*40 { // a group of three has fewer protocols
				t.Errorf("only %d collectives ran", ran)
			}
		})
	}
}
