//go:build linux

package cuda

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/eager"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// TestWorkHandles closes handles, uses them afterwards and lets new ones have their place.
func TestWorkHandles(t *testing.T) {
	r := newRigT(t, 2)
	var zero eager.Work
	if ok, err := zero.Done(); !ok || errors.Join(err, zero.Wait(t.Context()), zero.WaitOn(0), zero.Close()) != nil {
		t.Error("the zero handle is work that has ended")
	}
	events := 0
	if f, ok := r.drv.(*fake.Driver); ok {
		events = f.Leaks()["event"]
	}
	var old []eager.Work
	for range 3 {
		var now []eager.Work
		for _, m := range r.g.Members() {
			w, err := r.comm(m).Barrier(t.Context(), r.streams[m.Rank.ID])
			if err != nil {
				t.Fatal(err)
			}
			now = append(now, w)
		}
		for _, w := range old {
			if _, err := w.Done(); !errors.Is(err, symm.ErrClosed) {
				t.Errorf("a closed handle: %v", err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, w := range now {
			if err := w.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			w.Close()
			if err := w.Wait(t.Context()); !errors.Is(err, symm.ErrClosed) {
				t.Errorf("a closed handle: %v", err)
			}
			if err := w.WaitOn(r.streams[r.local()[0]]); !errors.Is(err, symm.ErrClosed) {
				t.Errorf("a closed handle: %v", err)
			}
		}
		old = now
	}
	if f, ok := r.drv.(*fake.Driver); ok && f.Leaks()["event"] > events+len(r.local()) {
		t.Errorf("%d events before, %d after one handle at a time", events, f.Leaks()["event"])
	}
}

// idle is a driver that forgets launches, to see what the host does for them.
type idle struct{ driver.Driver }

func (idle) Run(driver.Ctx, []uint64) error                                             { return nil }
func (idle) Launch(driver.Ctx, driver.Stream, driver.Func, int, int, int, []byte) error { return nil }

// bucket gives a call of a member that is made again and again: an all_reduce of three
// tensors whose handle is released, and the same prepared.
func (r *rigT) bucket(t testing.TB, m *coll.Member, off uint64) (eager, prepared func() error) {
	t.Helper()
	var bufs [3]symm.Buffer
	op := coll.Op{Kind: kernels.AllReduce, DType: symm.BF16, Symmetric: true}
	for i := range bufs {
		bufs[i] = got(m.Rank.Buffer(off+uint64(i)*4096, symm.BF16, 2048))(t)
		op.Tensors = append(op.Tensors, coll.Tensor{Src: bufs[i].At, Dst: bufs[i].At, Bytes: bufs[i].Bytes()})
	}
	ctx, s, p := t.Context(), r.streams[m.Rank.ID], got(m.Prepare(op))(t)
	return func() error {
		w, err := r.comm(m).AllReduce(ctx, s, kernels.Sum, bufs[0].InPlace(), bufs[1].InPlace(), bufs[2].InPlace())
		if err != nil {
			return err
		}
		return w.Close()
	}, func() error { return p.Enqueue(s) }
}

// TestEagerAllocations counts what a call that was made before allocates: from the method
// to the driver's function on GPUs, else to what the fake driver would do.
func TestEagerAllocations(t *testing.T) {
	if process != nil {
		t.Skip("it counts what one host does")
	}
	r := newRigT(t, 2)
	off := r.alloc(3 * 4096)
	if !*onGPU {
		r.sw.Driver = idle{r.drv}
		defer func() { r.sw.Driver = r.drv }()
	}
	var eager, prepared [2]func() error
	for i, m := range r.g.Members() {
		eager[i], prepared[i] = r.bucket(t, m, off)
	}
	for name, calls := range map[string][2]func() error{"eager": eager, "prepared": prepared} {
		if n := testing.AllocsPerRun(100, func() {
			for _, call := range calls {
				if err := call(); err != nil {
					t.Fatal(err)
				}
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for two calls", name, n)
		}
	}
	if *onGPU {
		r.must(r.check())
	}
}

// BenchmarkEager is what a bucket of three costs the host, besides the driver's own part:
// launches and records go nowhere.
func BenchmarkEager(b *testing.B) {
	r := newRigT(b, 2)
	eager, prepared := r.bucket(b, r.g.Members()[0], r.alloc(3*4096))
	r.sw.Driver = idle{r.drv}
	defer func() { r.sw.Driver = r.drv }()
	for _, k := range []struct {
		name string
		call func() error
	}{{"method", eager}, {"prepared", prepared}} {
		b.Run(k.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := k.call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestEagerPlans plans more calls than a member keeps, and finds the right one each time.
func TestEagerPlans(t *testing.T) {
	r := newRigT(t, 2)
	off := r.alloc(4 * 3 * eager.MaxPlans)
	for round := range 2 {
		for i := range eager.MaxPlans + eager.MaxPlans/4 {
			var works []eager.Work
			for _, m := range r.g.Members() {
				rank := m.Rank.ID
				b := symm.Buffer{At: r.w.Addr(rank, off) + driver.Ptr(4*i), Count: 1, DType: symm.I32}
				r.put(rank, b.At, []byte{byte(m.Index + 1), byte(i), byte(round), 0})
				w, err := r.comm(m).Broadcast(t.Context(), r.streams[rank], i%2, b.InPlace())
				if err != nil {
					t.Fatal(err)
				}
				works = append(works, w)
			}
			for _, w := range works {
				if err := errors.Join(w.Wait(t.Context()), w.Close()); err != nil {
					t.Fatal(err)
				}
			}
			for _, rank := range r.local() {
				if got := r.get(rank, r.w.Addr(rank, off)+driver.Ptr(4*i), 4); !bytes.Equal(got, []byte{byte(i%2 + 1), byte(i), byte(round), 0}) {
					t.Fatalf("round %d, call %d: rank %d has %v", round, i, rank, got)
				}
			}
		}
	}
}

// TestEagerPlansKept makes a quarter of the calls that there is room for, by turns: hardly
// one is planned again.
func TestEagerPlansKept(t *testing.T) {
	if *onGPU || process != nil {
		t.Skip("it counts what the host does")
	}
	const calls = eager.MaxPlans / 4
	r := newRigT(t, 2)
	m, s := r.g.Members()[0], r.streams[0]
	off := r.alloc(256 * calls)
	r.sw.Driver = idle{r.drv}
	defer func() { r.sw.Driver = r.drv }()
	var planned [2]uint32
	for round := range planned {
		_, _, before := symm.Called(m.Number(0, 0))
		for i := range uint64(calls) {
			r.must(got(r.comm(m).AllReduce(t.Context(), s, kernels.Sum, got(m.Rank.Buffer(off+256*i, symm.F32, 64))(t).InPlace()))(t).Close())
		}
		_, _, after := symm.Called(m.Number(0, 0))
		planned[round] = after - before - 1
	}
	if planned[0] != calls || planned[1] > calls/8 {
		t.Errorf("%d calls: planned %v", calls, planned)
	}
}

// TestEagerWaitsElsewhere lets a stream, and not the host, wait for a collective that a
// peer joins late.
func TestEagerWaitsElsewhere(t *testing.T) {
	const late = 50 * time.Millisecond
	r := newRigT(t, 2)
	a, b := r.alloc(1024), r.alloc(1024)
	for _, m := range r.g.Members() {
		rank := m.Rank.ID
		r.put(rank, r.w.Addr(rank, a), bytes.Repeat([]byte{byte(rank + 1), 0, 0, 0}, 256))
		if rank == 1 {
			time.Sleep(late)
		}
		x := symm.Buffer{At: r.w.Addr(rank, a), Count: 256, DType: symm.I32}
		w, err := r.comm(m).AllReduce(t.Context(), r.streams[rank], kernels.Sum, x.InPlace())
		if err != nil {
			t.Fatal(err)
		}
		other, err := r.drv.StreamCreate(m.Rank.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer r.drv.StreamDestroy(m.Rank.Ctx, other)
		if err := errors.Join(w.WaitOn(other), r.drv.Copy(m.Rank.Ctx, other, r.w.Addr(rank, b), x.At, x.Bytes())); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(r.drv.StreamSync(m.Rank.Ctx, other), w.Close()); err != nil {
				t.Error(err)
			}
			if got := r.get(rank, r.w.Addr(rank, b), 1024); !bytes.Equal(got, bytes.Repeat([]byte{3, 0, 0, 0}, 256)) {
				t.Errorf("rank %d copied %v", rank, got[:8])
			}
		}()
	}
}

// TestEagerBroadcastSources broadcasts into symmetric memory, large enough for copies, from
// wherever the root has its operand. What the others give as theirs does not matter.
func TestEagerBroadcastSources(t *testing.T) {
	const count = 30_000
	r := newRigT(t, 2)
	off, other := r.alloc(4*count), r.alloc(4*count)
	for root := range 2 {
		for name, from := range map[string]struct{ root, others int }{ // of dst, own and private
			"private at the root": {2, 0}, "private elsewhere": {1, 2}, "private everywhere": {2, 2}, "in place at the root": {0, 2}, "in place elsewhere": {1, 0},
		} {
			works := map[int]eager.Work{}
			for _, m := range r.g.Members() {
				rank, s := m.Rank.ID, r.streams[m.Rank.ID]
				dst, own := got(m.Rank.Buffer(off, symm.I32, count))(t), got(m.Rank.Buffer(other, symm.I32, count))(t)
				private := symm.Buffer{At: got(r.drv.MemAlloc(m.Rank.Ctx, 4*count))(t), Count: count, DType: symm.I32}
				defer r.drv.MemFree(m.Rank.Ctx, private.At)
				src := []symm.Buffer{dst, own, private}[from.others]
				if m.Index == root {
					src = []symm.Buffer{dst, own, private}[from.root]
				}
				r.must(r.drv.Memset32(m.Rank.Ctx, s, dst.At, 7, count), r.drv.Memset32(m.Rank.Ctx, s, src.At, uint32(40+m.Index), count))
				works[rank] = got(r.comm(m).Broadcast(t.Context(), s, root, src.Into(dst)))(t)
			}
			for _, m := range r.g.Members() {
				w := works[m.Rank.ID]
				if err := errors.Join(w.Wait(t.Context()), w.Close()); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if v := r.words(m, got(m.Rank.Buffer(off, symm.I32, count))(t)); v[0] != uint32(40+root) || v[count-1] != uint32(40+root) {
					t.Errorf("%s: rank %d has %d and %d", name, m.Index, v[0], v[count-1])
				}
			}
			r.must(r.w.Barrier(t.Context()))
		}
	}
}
