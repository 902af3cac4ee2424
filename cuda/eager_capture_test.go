//go:build linux

package cuda

import (
	"errors"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/eager"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// TestEagerCaptured captures calls with handles, of which another stream of the capture
// waits for one, and replays the graph.
func TestEagerCaptured(t *testing.T) {
	const count, replays = 3000, 3
	r := newRigT(t, 2)
	second := r.extra()
	a, b := r.alloc(4*count), r.alloc(4*count)
	var graphs []driver.Graph
	execs := map[int]driver.Exec{}
	for _, m := range r.g.Members() {
		rank, c := m.Rank.ID, m.Rank.Ctx
		x, y := got(m.Rank.Buffer(a, symm.I32, count))(t), got(m.Rank.Buffer(b, symm.I32, count))(t)
		private := got(r.drv.MemAlloc(c, 4*count))(t)
		defer r.drv.MemFree(c, private)
		z := symm.Buffer{At: private, Count: count, DType: symm.I32}
		s, other := r.streams[rank], second[rank]
		r.must(r.drv.Memset32(c, s, x.At, 1, count), r.drv.StreamSync(c, s), r.drv.CaptureBegin(c, s))
		w := got(r.comm(m).AllReduce(t.Context(), s, kernels.Sum, x.Into(y)))(t) // y = 2 x
		r.must(w.WaitOn(other), w.Close())
		r.must(r.drv.Copy(c, other, x.At, y.At, 4*count)) // x = y, seen by the next replay only behind the join
		join := got(r.drv.EventCreate(c, false))(t)
		defer r.drv.EventDestroy(c, join)
		r.must(r.drv.EventRecord(c, join, other), r.drv.StreamWait(c, s, join))
		w = got(r.comm(m).Broadcast(t.Context(), s, 1, y.Into(z)))(t) // private on all ranks: by packets
		if !*onGPU {                                                  // the driver would end the capture
			if _, err := w.Done(); err == nil {
				t.Error("a captured call has a state")
			}
		}
		r.must(w.Close())
		w = got(r.comm(m).AllReduce(t.Context(), s, kernels.Max, z.InPlace()))(t)
		r.must(w.Close())
		g := got(r.drv.CaptureEnd(c, s))(t)
		graphs = append(graphs, g)
		execs[rank] = got(r.drv.GraphInstantiate(c, g))(t)
		defer func() {
			if v := r.words(m, z); v[0] != 1<<replays || v[count-1] != 1<<replays {
				t.Errorf("rank %d: %d and %d, not %d", m.Index, v[0], v[count-1], 1<<replays)
			}
		}()
	}
	r.must(r.w.Barrier(t.Context()))
	for range replays {
		for _, m := range r.g.Members() {
			r.must(r.drv.GraphLaunch(m.Rank.Ctx, execs[m.Rank.ID], r.streams[m.Rank.ID]))
		}
	}
	r.must(r.check())
	for i, m := range r.g.Members() {
		r.must(r.drv.ExecDestroy(m.Rank.Ctx, execs[m.Rank.ID]), r.drv.GraphDestroy(m.Rank.Ctx, graphs[i]))
	}
	// What comes after the capture is as before.
	var works []eager.Work
	for _, m := range r.g.Members() {
		works = append(works, got(r.comm(m).Barrier(t.Context(), r.streams[m.Rank.ID]))(t))
	}
	for _, w := range works {
		r.must(w.Wait(t.Context()), w.Close())
	}
}

// TestEagerThreads makes calls of a member from several threads, in a stream each. All are
// alike, so that their order does not matter.
func TestEagerThreads(t *testing.T) {
	const threads, calls = 3, 30
	r := newRigT(t, 2)
	off := r.alloc(4096)
	errs := make([]error, r.w.Size()*threads)
	var wg sync.WaitGroup
	for _, m := range r.g.Members() {
		x := got(m.Rank.Buffer(off, symm.I32, 1024))(t)
		r.must(r.drv.Memset32(m.Rank.Ctx, r.streams[m.Rank.ID], x.At, 1, 1024), r.drv.StreamSync(m.Rank.Ctx, r.streams[m.Rank.ID]))
		for k := range threads {
			s := got(r.drv.StreamCreate(m.Rank.Ctx))(t)
			wg.Go(func() {
				err := error(nil)
				for range calls {
					var w eager.Work
					if w, err = r.comm(m).AllReduce(t.Context(), s, kernels.Max, x.InPlace()); err != nil {
						break
					}
					if err = errors.Join(w.Wait(t.Context()), w.Close()); err != nil {
						break
					}
				}
				errs[m.Rank.ID*threads+k] = errors.Join(err, r.drv.StreamDestroy(m.Rank.Ctx, s))
			})
		}
	}
	wg.Wait()
	r.must(errs...)
	for _, m := range r.g.Members() {
		if v := r.words(m, got(m.Rank.Buffer(off, symm.I32, 1024))(t)); v[0] != 1 || v[1023] != 1 {
			t.Errorf("rank %d has %d and %d", m.Index, v[0], v[1023])
		}
	}
}
