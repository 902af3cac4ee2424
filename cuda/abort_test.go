//go:build linux

package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestTimeout leaves a rank out: the others report whom they waited for, their
// contexts live, and a new group works.
func TestTimeout(t *testing.T) {
	for _, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
		t.Run(algo.String(), func(t *testing.T) {
			const count = 4096
			n := ranksOf(4)
			absent := n / 2
			r := newRigT(t, n)
			o := smallGroup(false, n)
			o.Timeout = 100 * time.Millisecond
			g, err := coll.NewGroup(t.Context(), r.w, seqInts(n), o)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			a := r.alloc(count * 4)
			start := time.Now()
			for _, m := range g.Members() {
				i := m.Index
				if i == absent {
					continue
				}
				for j := 0; j < 3; j++ { // what follows in the stream must give up at once
					op := coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: algo,
						Tensors: []coll.Tensor{{Src: r.w.Addr(i, a), Dst: r.w.Addr(i, a), Bytes: count * 4}}}
					if err := m.Enqueue(r.streams[i], op); err != nil && !gaveUp(err) { // where this takes its time
						t.Fatal(err)
					}
				}
			}
			timeouts := 0
			var gave *symm.CanceledError
			for _, m := range g.Members() {
				i := m.Index
				if i == absent {
					continue
				}
				err := m.Check(t.Context(), r.streams[i])
				var te *symm.TimeoutError
				switch {
				case errors.As(err, &te) && te.Rank == i:
					timeouts++
					if te.Elapsed < o.Timeout || te.Peer == i {
						t.Errorf("rank %d: %+v", i, *te)
					}
				case !errors.As(err, &gave) || gave.Rank != i || gave.Origin == i || gave.Origin == absent || !errors.As(err, &te) || te.Rank != gave.Origin:
					t.Errorf("rank %d was not told why: %v", i, err)
				}
				if err := m.Enqueue(r.streams[i], coll.Op{Kind: kernels.Barrier}); err == nil {
					t.Errorf("rank %d: a broken group took another call", i)
				}
			}
			if timeouts == 0 && process == nil {
				t.Error("nobody reported the timeout")
			}
			if d := time.Since(start); process == nil && d < o.Timeout || d > plenty { // the absent rank of processes waits for nothing
				t.Errorf("it took %v", d)
			}
			if err := r.runCase(caseT{kind: kernels.AllReduce, t: dtype.F32, counts: []int{100}}, rand.New(rand.NewPCG(1, 1))); err != nil {
				t.Errorf("another group of the same ranks: %v", err)
			}
		})
	}
}

// gaveUp reports whether a group is broken because a wait in it took too long.
func gaveUp(err error) bool {
	return errors.Is(err, symm.ErrTimeout) || errors.Is(err, symm.ErrCanceled)
}

func TestAbort(t *testing.T) {
	r := newRigT(t, 3)
	reason := errors.New("enough")
	m := r.g.Members()[0]
	if err := m.Enqueue(r.streams[0], coll.Op{Kind: kernels.Barrier}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { m.Abort(reason) })
	if err := m.Check(t.Context(), r.streams[0]); !errors.Is(err, symm.ErrCanceled) || !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	if !m.Aborted() || r.g.Members()[1].Aborted() {
		t.Error("a kernel of rank 0 alone left early")
	}
	// The other members have learned it without a kernel in flight, and from whom.
	err := r.g.Members()[1].Enqueue(r.streams[1], coll.Op{Kind: kernels.Barrier})
	var gave *symm.CanceledError
	if !errors.Is(err, symm.ErrCanceled) || !errors.As(err, &gave) || gave.Origin != 0 || gave.Rank != 1 || !errors.Is(err, reason) {
		t.Errorf("late peer: %v", err)
	}
	if err := r.g.Members()[1].Check(t.Context(), r.streams[1]); !errors.Is(err, symm.ErrCanceled) {
		t.Errorf("late peer: %v", err)
	}
	if err := r.g.Rejoin(t.Context()); err != nil || m.Aborted() {
		t.Errorf("rejoined, given up %v: %v", m.Aborted(), err)
	}
}

// TestLeftEarly enqueues kernels of all kinds in a group whose abort they alone find out:
// each tells the host, but for a signal, which waits for nobody and is sent.
func TestLeftEarly(t *testing.T) {
	r := newRigT(t, 2)
	m, s, ctx := r.g.Members()[0], r.streams[0], r.w.Rank(0).Ctx
	a := r.w.Addr(0, r.alloc(1<<16))
	ran := 0
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll, kernels.Barrier, kernels.Broadcast} {
		for _, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push} {
			op := coll.Op{Kind: kind, DType: dtype.BF16, Symmetric: true, Algo: algo, Tensors: []coll.Tensor{{Src: a, Dst: a + 1<<15, Bytes: 4096}}}
			p, err := m.Prepare(op)
			var plan *kernels.PlanError
			if errors.As(err, &plan) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := r.drv.Memset32(ctx, s, ctl(m)+kernels.CtlAbort, 1, 1); err != nil {
				t.Fatal(err)
			}
			if err := r.drv.StreamSync(ctx, s); err != nil {
				t.Fatal(err)
			}
			if m.Aborted() {
				t.Fatalf("%v by %v: nothing has run yet", kind, algo)
			}
			if err := p.Enqueue(s); err != nil {
				t.Fatal(err)
			}
			if err := r.drv.StreamSync(ctx, s); err != nil {
				t.Fatal(err)
			}
			if ran++; !m.Aborted() {
				t.Errorf("%v by %v left without a word", kind, algo)
			}
			if err := r.g.Rejoin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ran < 14 {
		t.Errorf("only %d kernels ran", ran)
	}
	if err := r.drv.Memset32(ctx, s, ctl(m)+kernels.CtlAbort, 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := m.Signal(s, 3, 1); err != nil {
		t.Fatal(err)
	}
	if err := r.g.Members()[1].Wait(r.streams[1], 3, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.g.Members()[1].Check(t.Context(), r.streams[1]); err != nil {
		t.Errorf("the peer did not get the signal: %v", err)
	}
	if err := r.drv.StreamSync(ctx, s); err != nil || m.Aborted() {
		t.Errorf("a signal gave up: %v", err)
	}
}
