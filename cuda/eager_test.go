//go:build linux

package cuda

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/eager"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

func TestWork(t *testing.T) {
	const count = 1000
	n := ranksOf(3)
	r := newRigT(t, n)
	a, b := r.alloc(count*4), r.alloc(count*4)
	works := map[int]eager.Work{} // by rank
	for _, m := range r.g.Members() {
		i := m.Index
		in := make([]byte, count*4)
		for j := 0; j < count; j++ {
			storeSum(dtype.F32, in[4*j:], float32(j+i))
		}
		r.write(i, a, in)
		src, dst := got(m.Rank.Buffer(a, symm.F32, count))(t), got(m.Rank.Buffer(b, symm.F32, count))(t)
		w, err := r.comm(m).AllReduce(t.Context(), r.streams[i], kernels.Sum, src.Into(dst))
		if err != nil {
			t.Fatal(err)
		}
		works[i] = w
	}
	for _, i := range r.local() {
		w := works[i]
		// The other half: a second stream waits and copies the result on.
		k := r.w.Rank(i)
		s, err := r.drv.StreamCreate(k.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WaitOn(s); err != nil {
			t.Fatal(err)
		}
		if err := r.drv.Copy(k.Ctx, s, r.w.Addr(i, a), r.w.Addr(i, b), count*4); err != nil {
			t.Fatal(err)
		}
		if err := w.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		if ok, err := w.Done(); !ok || err != nil {
			t.Error("waited for, but not done", err)
		}
		if err := r.drv.StreamSync(k.Ctx, s); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), w.Close(), r.drv.StreamDestroy(k.Ctx, s)); err != nil {
			t.Fatal(err)
		}
		got := r.read(i, a, count*4)
		for j := 0; j < count; j++ {
			if v, want := float32(dtype.LoadFloat(dtype.F32, got[4*j:])), float32(n*j+n*(n-1)/2); v != want || math.IsNaN(float64(v)) {
				t.Fatalf("rank %d element %d: %v, want %v", i, j, v, want)
			}
		}
	}
}

// TestWorkCancelled waits for a collective that a peer never joins.
func TestWorkCancelled(t *testing.T) {
	r := newRigT(t, 2)
	w, err := r.comm(r.g.Members()[0]).Barrier(t.Context(), r.streams[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := w.Wait(ctx); !errors.Is(err, symm.ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.comm(r.g.Members()[0]).Barrier(t.Context(), r.streams[0]); !errors.Is(err, symm.ErrCanceled) {
		t.Errorf("a broken group started %v", err)
	}
}

// launches counts kernels in command buffers.
type launches struct {
	driver.Driver
	n int
}

func (d *launches) Run(c driver.Ctx, words []uint64) error {
	for i := 0; i < len(words); i += int(words[i] >> 8) {
		if words[i]&255 == driver.OpLaunch {
			d.n++
		}
	}
	return d.Driver.Run(c, words)
}

// TestWorkQuietTimeout waits for a large broadcast, which goes by copies without a kernel
// that could time out, that a peer never joins.
func TestWorkQuietTimeout(t *testing.T) {
	if process != nil {
		t.Skip("one rank of two in one process")
	}
	const timeout = 100 * time.Millisecond
	r := newRigT(t, 2)
	m := r.shortGroup(timeout).Members()[0]
	d := &launches{Driver: r.drv}
	r.sw.Driver = d
	defer func() { r.sw.Driver = r.drv }()
	w := got(r.comm(m).Broadcast(t.Context(), r.streams[0], 0, got(m.Rank.Buffer(r.alloc(1<<20), symm.F32, 1<<18))(t).InPlace()))(t)
	if d.n > 0 {
		t.Fatal("it has a kernel")
	}
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	start := time.Now()
	err := w.Wait(ctx)
	var te *symm.TimeoutError
	if !errors.As(err, &te) || te.Op != "broadcast" || te.Peer != 1 {
		t.Errorf("got %v", err)
	}
	if d := time.Since(start); d < timeout || d > plenty {
		t.Errorf("it took %v", d)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestWorkCancelledBehind waits for a collective behind other work, which goes on when the
// wait is given up.
func TestWorkCancelledBehind(t *testing.T) {
	if process != nil {
		t.Skip("one rank of two in one process")
	}
	r := newRigT(t, 2)
	other := r.shortGroup(-1)
	r.must(other.Members()[0].Wait(r.streams[0], 0, 1))
	w := got(r.comm(r.g.Members()[0]).Barrier(t.Context(), r.streams[0]))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Wait(ctx) }()
	select {
	case err := <-done:
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(r.g.Members()[0].Err(), symm.ErrCanceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(plenty / 2):
		t.Error("it does not end with its context")
	}
	r.must(other.Members()[1].Signal(r.streams[1], 0, 0), w.Close())
	r.sync(0, r.streams[0])
}
