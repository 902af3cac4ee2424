//go:build linux

package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/kernels"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

var errGivenUp = errors.New("the caller has given up")

// soon cancels a context in a moment, with errGivenUp.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	timer := time.AfterFunc(50*time.Millisecond, func() { cancel(errGivenUp) })
	t.Cleanup(func() { timer.Stop(); cancel(nil) })
	return ctx
}

// promptly fails the test when f does not return errGivenUp, or only after the deadline.
func promptly(t testing.TB, what string, f func() error) {
	t.Helper()
	start := time.Now()
	if err := f(); !errors.Is(err, errGivenUp) {
		t.Errorf("%s: got %v", what, err)
	}
	if d := time.Since(start); d > plenty {
		t.Errorf("%s took %v", what, d)
	}
}

// lives copies bytes to the rank's device and back.
func (r *rigT) lives(rank int, off uint64) {
	r.t.Helper()
	in := bytes.Repeat([]byte{5, 3}, 512)
	r.write(rank, off, in)
	if !bytes.Equal(r.read(rank, off, 1024), in) {
		r.t.Errorf("rank %d: a copy came back wrong", rank)
	}
}

// TestCheckEnds leaves rank 1 out of a collective and cancels rank 0's wait for it.
func TestCheckEnds(t *testing.T) {
	for name, beside := range map[string]bool{"kernel": false, "flags": true} {
		t.Run(name, func(t *testing.T) {
			r := newRigT(t, 2)
			a := r.alloc(64 << 10)
			op := func(rank int) coll.Op {
				at := r.w.Addr(rank, a)
				return coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Overlapped: beside, Tensors: []coll.Tensor{{Src: at, Dst: at, Bytes: 64 << 10}}}
			}
			m := r.g.Members()[0]
			if err := m.Enqueue(r.streams[0], op(0)); err != nil {
				t.Fatal(err)
			}
			promptly(t, "Check", func() error { return m.Check(soon(t), r.streams[0]) })
			if err := m.Err(); !errors.Is(err, symm.ErrCanceled) {
				t.Errorf("the group is not broken: %v", err)
			}
			var gave *symm.CanceledError
			if err := r.g.Members()[1].Err(); !errors.As(err, &gave) || gave.Origin != 0 || gave.Rank != 1 {
				t.Errorf("rank 1 has heard %v", err)
			}
			for i := range 2 {
				r.lives(i, a)
			}
			if err := r.g.Rejoin(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.run(op); err != nil {
				t.Errorf("after Rejoin: %v", err)
			}
			// What has ended is reported, whatever has become of the context.
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := m.Check(ctx, r.streams[0]); err != nil {
				t.Errorf("an idle stream: %v", err)
			}
		})
	}
}

// TestCloseEnds cancels a Close that waits for a kernel which waits for a peer.
func TestCloseEnds(t *testing.T) {
	for name, beside := range map[string]bool{"kernel": false, "flags": true} {
		t.Run(name, func(t *testing.T) {
			drv, devs, share := newDriver(t, 2) // counts what is left
			w, err := symm.NewLocalWorld(drv, devs, symm.WorldOptions{Bytes: 32 << 20, ShareDevice: share, Images: images(t)})
			if err != nil {
				t.Fatal(err)
			}
			g, err := coll.NewGroup(t.Context(), w, []int{0, 1}, smallGroup(share, 2))
			if err != nil {
				t.Fatal(err)
			}
			off, err := w.Alloc(64<<10, 256)
			if err != nil {
				t.Fatal(err)
			}
			m := g.Members()[0]
			s, err := drv.StreamCreate(m.Rank.Ctx)
			if err != nil {
				t.Fatal(err)
			}
			at := w.Addr(0, off)
			err = m.Enqueue(s, coll.Op{Kind: kernels.AllGather, DType: dtype.F32, Symmetric: true, Overlapped: beside, Tensors: []coll.Tensor{{Src: at, Dst: at, Bytes: 16 << 10}}})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := w.CloseContext(soon(t)); err != nil {
				t.Errorf("CloseContext: %v", err)
			}
			if d := time.Since(start); d > plenty {
				t.Errorf("it took %v", d)
			}
			if err := errors.Join(drv.StreamDestroy(m.Rank.Ctx, s), g.Close(), w.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A group whose host waits for its device delays neither checks nor the end of another.
func TestCloseEndsAlone(t *testing.T) {
	fakeOnly(t)
	r := newRigT(t, 2)
	gate := r.alloc(256)
	other := got(coll.NewGroup(t.Context(), r.w, []int{0, 1}, smallGroup(r.w.Shares(), 2)))(t)
	m := r.g.Members()[0]
	r.must(r.drv.StreamWait32(m.Rank.Ctx, m.HostStream(), r.w.Addr(0, gate), 1))
	for _, o := range other.Members() {
		r.must(o.Check(t.Context(), r.streams[o.Rank.ID]))
	}
	r.must(other.Close())
	r.must(r.drv.StreamWrite32(m.Rank.Ctx, m.Rank.Setup(), r.w.Addr(0, gate), 1))
}

// TestCloseLater cancels a Close that waits for work which no abort ends: nothing may be
// taken away from under it.
func TestCloseLater(t *testing.T) {
	if *onGPU {
		t.Skip("the fake driver has work that lasts as long as the test wants")
	}
	f := fake.New(1)
	w, err := symm.NewLocalWorld(f, []int{0}, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)})
	if err != nil {
		t.Fatal(err)
	}
	c := w.Rank(0).Ctx
	s, err := f.StreamCreate(c)
	if err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	var cmds driver.Commands
	cmds.Call(driver.Main, f.RegisterCall(func([]uint64) error { <-hold; return nil }))
	cmds.Memset32(driver.Main, w.Addr(0, 0), 7, 4)
	if err := f.Run(c, cmds.On(s)); err != nil {
		t.Fatal(err)
	}
	promptly(t, "CloseContext", func() error { return w.CloseContext(soon(t)) })
	close(hold)
	if err := f.StreamSync(c, s); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.StreamDestroy(c, s), w.CloseContext(t.Context()), w.Close()); err != nil {
		t.Error(err)
	}
	if l := f.Leaks().String(); l != "" {
		t.Errorf("not released: %s", l)
	}
}

// pairOf joins two ranks of worlds that communicate as those of two processes do, each with a
// driver of its own.
func pairOf(t *testing.T) (ws [2]*symm.World, close func()) {
	t.Helper()
	if *onGPU {
		t.Skip("two ranks of one process, each as if it were a process, are for the fake driver; TestProcesses has real ones")
	}
	before := leak.Now()
	m := newJob(plenty)
	drvs := [2]*fake.Driver{fake.New(2), fake.New(2)}
	err := both(func(i int) (err error) {
		ws[i], err = processWorld(t.Context(), drvs[i], m, i, 2, i, symm.WorldOptions{Bytes: 8 << 20, Images: images(t)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ws, func() {
		t.Helper()
		if err := both(func(i int) error { return ws[i].Close() }); err != nil {
			t.Error(err)
		}
		for i, f := range drvs {
			if l := f.Leaks().String(); l != "" {
				t.Errorf("rank %d did not release %s", i, l)
			}
		}
		if l := before.More(); l != "" {
			t.Error(l)
		}
	}
}

// both calls f for both ranks at once.
func both(f func(i int) error) error {
	errs := make(chan error)
	for i := range 2 {
		go func() {
			err := f(i)
			if err != nil {
				err = fmt.Errorf("rank %d: %w", i, err)
			}
			errs <- err
		}()
	}
	return errors.Join(<-errs, <-errs)
}

// TestJoinEnds cancels a rank that waits for the other to join.
func TestJoinEnds(t *testing.T) {
	if *onGPU {
		t.Skip("the fake driver shows what is left; the barriers are the same")
	}
	before := leak.Now()
	for rank := range 2 {
		m := newJob(0)
		f := fake.New(2)
		promptly(t, "NewProcessWorld", func() error {
			_, err := processWorld(soon(t), f, m, rank, 2, rank, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)})
			return err
		})
		if l := f.Leaks().String(); l != "" {
			t.Errorf("rank %d did not release %s", rank, l)
		}
	}
	if l := before.More(); l != "" {
		t.Error(l)
	}
}

// TestBarriersCanceled cancels either rank in a barrier, or another exchange, that the other has
// not arrived at. The other is told that it was canceled, and both go on to the next.
func TestBarriersCanceled(t *testing.T) {
	ws, done := pairOf(t)
	defer done()
	o := smallGroup(false, 2)
	groups := [2]*coll.Group{}
	make := func(ctx context.Context, i int) (err error) {
		groups[i], err = coll.NewGroup(ctx, ws[i], []int{0, 1}, o)
		return err
	}
	for early := range 2 {
		late := 1 - early
		for what, f := range map[string]func(ctx context.Context, i int) error{
			"Barrier":  func(ctx context.Context, i int) error { return ws[i].Barrier(ctx) },
			"Compare":  func(ctx context.Context, i int) error { _, err := ws[i].Compare(ctx, "x"); return err },
			"NewGroup": make,
		} {
			promptly(t, what, func() error { return f(soon(t), early) })
			var given *symm.CanceledError
			if err := f(t.Context(), late); !errors.As(err, &given) || given.Origin != early {
				t.Errorf("%s of rank %d: got %v", what, late, err)
			}
			err := both(func(i int) error {
				said, err := ws[i].Compare(t.Context(), fmt.Sprint(what, i))
				if err == nil && (said[0] != what+"0" || said[1] != what+"1") {
					err = fmt.Errorf("heard %q", said)
				}
				return err
			})
			if err != nil {
				t.Fatalf("after %s: %v", what, err)
			}
		}
		if err := both(func(i int) error { return make(t.Context(), i) }); err != nil {
			t.Fatal(err)
		}
		promptly(t, "Rejoin", func() error { return groups[early].Rejoin(soon(t)) })
		var given *symm.CanceledError
		if err := groups[late].Rejoin(t.Context()); !errors.As(err, &given) || given.Origin != early {
			t.Errorf("Rejoin of rank %d: got %v", late, err)
		}
		if groups[0].Members()[0].Err() == nil || groups[1].Members()[0].Err() == nil {
			t.Error("a group works that only one rank has rejoined")
		}
		if err := both(func(i int) error { return groups[i].Rejoin(t.Context()) }); err != nil {
			t.Fatal(err)
		}
		if err := both(func(i int) error { return errors.Join(groups[i].Members()[0].Err(), groups[i].Close()) }); err != nil {
			t.Error(err)
		}
	}
}

// TestNewGroupFails lets a driver call fail on one rank that makes a group: the other must
// not wait for it.
func TestNewGroupFails(t *testing.T) {
	ws, done := pairOf(t)
	defer done()
	for bad := range 2 {
		ws[bad].Driver().(*fake.Driver).FailCall(1, nil)
		err := both(func(i int) error {
			_, err := coll.NewGroup(t.Context(), ws[i], []int{0, 1}, smallGroup(false, 2))
			var given *symm.CanceledError
			switch {
			case i == bad && !errors.Is(err, driver.ErrOutOfMemory), i != bad && (!errors.As(err, &given) || given.Origin != bad):
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		ws[bad].Driver().(*fake.Driver).FailCall(0, nil)
	}
	err := both(func(i int) error {
		g, err := coll.NewGroup(t.Context(), ws[i], []int{0, 1}, smallGroup(false, 2))
		return errors.Join(err, g.Close())
	})
	if err != nil {
		t.Error(err)
	}
}

// TestBarrierTimeout: who does not arrive in time is named, as a timeout.
func TestBarrierTimeout(t *testing.T) {
	ws, done := pairOf(t)
	defer done()
	for early := range 2 {
		var late *rendezvous.TimeoutError
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := ws[early].Barrier(ctx)
		if !errors.As(err, &late) || !errors.Is(err, rendezvous.ErrTimeout) || late.Rank != early {
			t.Errorf("rank %d: %v", early, err)
		}
		if late == nil || len(late.Missing) != 1 || late.Missing[0] != 1-early || late.Elapsed <= 0 {
			t.Errorf("rank %d misses %v", early, err)
		}
		if err := ws[1-early].Barrier(t.Context()); !errors.As(err, &late) || late.Rank != 1-early || !strings.Contains(err.Error(), "came too late") {
			t.Errorf("rank %d: %v", 1-early, err)
		}
	}
}

// TestBarrierLeft: who waits for a rank that leaves in order learns it at once.
func TestBarrierLeft(t *testing.T) {
	for stays := range 2 {
		ws, done := pairOf(t)
		left := make(chan error, 1)
		time.AfterFunc(20*time.Millisecond, func() { left <- ws[1-stays].Close() })
		var given *symm.PeerLostError
		if err := ws[stays].Barrier(t.Context()); !errors.As(err, &given) || given.Peer != 1-stays || !given.Left {
			t.Errorf("rank %d: %v", stays, err)
		}
		if err := <-left; err != nil {
			t.Error(err)
		}
		done()
	}
}
