//go:build linux

package cuda

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestThreads lets several goroutines at once do, for every rank, what a world and its
// groups offer besides launches. It is for the race detector.
func TestThreads(t *testing.T) {
	if *onGPU {
		t.Skip("the race detector watches the fake driver")
	}
	r := newRigT(t, 2)
	other := r.groupOn(false)
	a := r.alloc(4 << 20)
	var wg sync.WaitGroup
	work := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, g := range []*coll.Group{r.g, other} {
		for _, m := range g.Members() {
			at := r.w.Addr(m.Rank.ID, a)
			for range 2 {
				work(func() error {
					for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.Broadcast} {
						for _, algo := range []kernels.Algo{kernels.Auto, kernels.LL, kernels.OneShot, kernels.TwoShot, kernels.Direct, kernels.Engine} {
							for _, bytes := range []uint64{4096, 512 << 10} {
								_, err := m.Prepare(coll.Op{Kind: kind, DType: dtype.F32, Symmetric: true, Algo: algo, Tensors: []coll.Tensor{{Src: at, Dst: at, Bytes: bytes}}})
								var plan *kernels.PlanError
								if err != nil && !errors.As(err, &plan) {
									return err
								}
							}
						}
					}
					return nil
				})
			}
		}
	}
	for i := range 2 {
		work(func() error {
			for range 20 {
				off, err := r.w.Alloc(1000, 64)
				if err := errors.Join(err, r.w.Free(off)); err != nil {
					return err
				}
			}
			return nil
		})
		work(func() error {
			for range 3 {
				o := smallGroup(false, 2)
				o.Staging = 0
				g, err := coll.NewGroup(t.Context(), r.w, []int{i, 1 - i}, o)
				if err != nil {
					return err
				}
				if err := g.Close(); err != nil {
					return err
				}
			}
			return nil
		})
		work(func() error {
			for range 20 {
				if err := errors.Join(r.w.Barrier(t.Context()), r.g.Members()[i].Poll(time.Millisecond), other.Members()[i].Err()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	// A break while others look.
	work(func() error { other.Members()[0].Check(t.Context(), r.streams[0]); return nil })
	wg.Wait()
	work(func() error { other.Members()[0].Abort(errors.New("enough")); return nil })
	work(func() error { other.Members()[1].Poll(0); other.Members()[1].Aborted(); return nil })
	work(func() error { other.Members()[1].Signal(r.streams[1], 1, 0); return nil })
	wg.Wait()
}

// TestCloseWhileCalling closes groups while other goroutines make calls, whose kernels go
// nowhere. Each of them ends with ErrClosed and with nothing else.
func TestCloseWhileCalling(t *testing.T) {
	if *onGPU || process != nil {
		t.Skip("it has a driver of its own")
	}
	r := newRigT(t, 2)
	off := r.alloc(1 << 18)
	ss := r.extra()
	r.sw.Driver = idle{r.drv}
	defer func() { r.sw.Driver = r.drv }()
	for range 4 {
		g := got(coll.NewGroup(t.Context(), r.w, []int{0, 1}, smallGroup(r.w.Shares(), 2)))(t)
		var wg, under sync.WaitGroup
		for _, m := range g.Members() {
			s, x := ss[m.Rank.ID], got(m.Rank.Buffer(off, symm.I32, 1<<16))(t)
			for name, call := range map[string]func(i uint64) error{
				"broadcast": func(i uint64) error {
					w, err := r.comm(m).Broadcast(t.Context(), s, 0, symm.Buffer{At: x.At, Count: 1 + i%60000, DType: symm.I32}.InPlace())
					return errors.Join(err, w.Close())
				},
				"all_gather": func(i uint64) error {
					w, err := r.comm(m).AllGather(t.Context(), s, symm.Buffer{At: x.At, Count: 2 + i%1000*2, DType: symm.I32}.InPlace())
					return errors.Join(err, w.Close())
				},
				"wait for a value": func(uint64) error { return m.WaitValue(s, 1-m.Index, 0, 0) },
				"state":            func(uint64) error { m.Aborted(); return m.Err() },
			} {
				under.Add(1)
				wg.Go(func() {
					err := call(0)
					under.Done()
					for i := uint64(1); err == nil; i++ {
						err = call(i)
					}
					if !errors.Is(err, symm.ErrClosed) {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
		}
		under.Wait()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}
