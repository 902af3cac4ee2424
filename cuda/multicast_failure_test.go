//go:build linux

package cuda

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestMulticastEveryCallFails makes each driver call fail in turn, from opening a world
// with the switch on to closing it. What concerns multicast alone costs the group its
// multicast and no more; all else comes back as that error; nothing is left behind.
func TestMulticastEveryCallFails(t *testing.T) {
	fakeOnly(t)
	injected := errors.New("injected")
	work := func(f *fake.Driver) (without bool, err error) {
		w, err := symm.NewLocalWorld(f, []int{0, 1}, symm.WorldOptions{Bytes: 8 << 20, Images: images(t), PTX: true, Multicast: true})
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		g, err := coll.NewGroup(t.Context(), w, []int{0, 1}, leastGroup(always(2)))
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, g.Close()) }()
		if err := g.Multicast(); err != nil && !errors.Is(err, injected) {
			return false, err
		}
		return !g.HasMulticast(), nil
	}
	have := func() *fake.Driver {
		f := fake.New(2)
		f.HaveMulticast()
		return f
	}
	f := have()
	if without, err := work(f); err != nil || without {
		t.Fatal(without, err)
	}
	total, off := f.Calls(), 0
	for n := 1; n <= total; n++ {
		f := have()
		f.FailCall(n, injected)
		without, err := work(f)
		if without == (err != nil) || err != nil && !errors.Is(err, injected) {
			t.Errorf("call %d of %d failed, the group has multicast: %v, the result is %v", n, total, !without, err)
		}
		if without {
			off++
		}
		if l := f.Leaks().String(); l != "" {
			t.Errorf("call %d of %d: not released: %s", n, total, l)
		}
	}
	// Two ranks: attribute, granularity, device and memory each, one object, one mapping,
	// and the kernels.
	if off < 14 {
		t.Errorf("%d of %d calls cost the group its multicast", off, total)
	}
}

// TestMulticastTimeout: a rank that does not come is named, as with other protocols.
func TestMulticastTimeout(t *testing.T) {
	const n = 3
	_, w := multicastWorld(t, n, nil)
	r := newRigIn(t, w.Driver(), w)
	o := always(n)
	o.Timeout = 50e6
	g, err := coll.NewGroup(t.Context(), w, seqInts(n), o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	at := r.alloc(4096)
	for _, m := range g.Members()[1:] {
		err := m.Enqueue(r.streams[m.Rank.ID], coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true,
			Tensors: []coll.Tensor{{Src: w.Addr(m.Rank.ID, at), Dst: w.Addr(m.Rank.ID, at), Bytes: 4096}}})
		if err != nil && !gaveUp(err) { // where this takes its time
			t.Fatal(err)
		}
	}
	named := false
	for _, m := range g.Members()[1:] {
		err := m.Check(t.Context(), r.streams[m.Rank.ID])
		var te *symm.TimeoutError
		if named = named || errors.As(err, &te) && te.Peer == 0; err == nil {
			t.Errorf("rank %d has not noticed", m.Rank.ID)
		}
	}
	if !named {
		t.Error("nobody named rank 0")
	}
}

// TestMulticastClosesWorld: a world that is closed before its groups lets go of their
// memory before it releases it.
func TestMulticastClosesWorld(t *testing.T) {
	f, w := multicastWorld(t, 2, nil)
	g, err := coll.NewGroup(t.Context(), w, seqInts(2), always(2))
	if err != nil || !g.HasMulticast() {
		t.Fatal(g.Multicast(), err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if n := f.Leaks()["multicast mapping"] + f.Leaks()["memory"]; n != 0 {
		t.Errorf("not released: %s", f.Leaks().String())
	}
	g.Close()
}

// TestMulticastProcesses runs these tests with a process for every rank.
func TestMulticastProcesses(t *testing.T) {
	fakeOnly(t)
	if process != nil {
		t.Skip("this is one of the processes")
	}
	tests := []string{"TestMulticastCollectives", "TestMulticastRefused", "TestMulticastGroups"}
	for _, o := range spawn(t, scenarioTests, 3, "-test.run=^("+strings.Join(tests, "|")+")$", "-test.v", "-test.timeout=9m") {
		passed, _, problems := results(o.lines)
		for _, name := range tests {
			if !passed[name] {
				problems = append(problems, name+" has not passed")
			}
		}
		if o.err != nil || len(problems) > 0 {
			t.Errorf("rank %d: %v: %s\n%s", o.rank, o.err, strings.Join(problems, "; "), strings.Join(tail(o.lines, 60), "\n"))
		}
	}
}

// twoProcesses opens a world of two ranks as two processes would, with f called for each.
func twoProcesses(t *testing.T, options func(rank int, o *symm.WorldOptions), f func(rank int, w *symm.World, err error)) {
	t.Helper()
	fakeOnly(t)
	if process != nil {
		t.Skip("has processes of its own")
	}
	m := newJob(0)
	var wg sync.WaitGroup
	for rank := range 2 {
		d := newDriverOf(t, 2).(*fake.Driver)
		d.HaveMulticast()
		o := symm.WorldOptions{Bytes: 8 << 20, Images: images(t), PTX: true, Multicast: true}
		options(rank, &o)
		wg.Go(func() {
			w, err := processWorld(t.Context(), d, m, rank, 2, rank, o)
			f(rank, w, err)
			if err := w.Close(); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
}

// TestMulticastMismatch: processes that differ in the switch do not join.
func TestMulticastMismatch(t *testing.T) {
	twoProcesses(t, func(rank int, o *symm.WorldOptions) { o.Multicast = rank == 0 }, func(rank int, w *symm.World, err error) {
		if err == nil || !strings.Contains(err.Error(), "uses of multicast differ: ") {
			t.Errorf("rank %d: %v", rank, err)
		}
	})
}

// TestMulticastGivenUp: a process gives up at each of the steps, while the other goes on. It
// gets an error, and the next group has multicast: what was handed over for one that came
// to nothing is forgotten.
func TestMulticastGivenUp(t *testing.T) {
	const steps = 3 // then the ranks exchange the object
	twoProcesses(t, func(int, *symm.WorldOptions) {}, func(rank int, w *symm.World, err error) {
		if err != nil {
			t.Error(err)
			return
		}
		for round := range steps {
			if rank == 1 { // comes to that many steps, then leaves them
				for range round {
					if _, err := w.Compare(t.Context(), ""); err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				}
				o := always(2)
				o.Pad = w.Bytes() // which has no room beside the control page
				if _, err := coll.NewGroup(t.Context(), w, []int{0, 1}, o); !errors.Is(err, symm.ErrSymmetricFull) {
					t.Errorf("round %d: rank 1 got %v", round, err)
				}
				continue
			}
			g, err := coll.NewGroup(t.Context(), w, []int{0, 1}, always(2))
			if me := (*symm.CanceledError)(nil); !errors.As(err, &me) || me.Origin != 1 {
				t.Errorf("round %d: %v, %v", round, g, err)
			}
		}
		for _, ranks := range [][]int{{0, 1}, {1, 0}} {
			g, err := coll.NewGroup(t.Context(), w, ranks, always(2))
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			if !g.HasMulticast() {
				t.Errorf("rank %d: %v", rank, g.Multicast())
			}
			if err := w.Barrier(t.Context()); err != nil {
				t.Error(err)
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestMulticastReplay captures calls through multicast into a graph and replays it.
func TestMulticastReplay(t *testing.T) {
	const n, count, replays = 4, 4096, 3
	f, r := multicastRig(t, n, nil)
	at, all := r.alloc(4*count), r.alloc(4*count*n)
	execs := make([]driver.Exec, n)
	for _, m := range r.g.Members() {
		i, c := m.Rank.ID, m.Rank.Ctx
		if err := f.CaptureBegin(c, r.streams[i]); err != nil {
			t.Fatal(err)
		}
		own := r.w.Addr(i, at)
		for _, op := range []coll.Op{{Kind: kernels.AllReduce, Tensors: []coll.Tensor{{Src: own, Dst: own, Bytes: 4 * count}}},
			{Kind: kernels.AllGather, Tensors: []coll.Tensor{{Src: own, Dst: r.w.Addr(i, all), Bytes: 4 * count}}}} {
			op.DType, op.Symmetric, op.Algo = dtype.F32, true, kernels.Multicast
			if err := m.Enqueue(r.streams[i], op); err != nil {
				t.Fatal(err)
			}
		}
		g, err := f.CaptureEnd(c, r.streams[i])
		if err != nil {
			t.Fatal(err)
		}
		if execs[i], err = f.GraphInstantiate(c, g); err != nil {
			t.Fatal(err)
		}
		if err := f.GraphDestroy(c, g); err != nil {
			t.Fatal(err)
		}
		r.write(i, at, bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, count)) // 1
	}
	for range replays {
		for i, x := range execs {
			if err := f.GraphLaunch(r.w.Rank(i).Ctx, x, r.streams[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	ref := bytes.Repeat([]byte{0, 0, 0x80, 0x42}, count*n) // 4^3
	for i, x := range execs {
		if got := r.read(i, all, 4*count*n); !bytes.Equal(got, ref) {
			t.Errorf("rank %d: wrong after %d replays", i, replays)
		}
		if err := f.ExecDestroy(r.w.Rank(i).Ctx, x); err != nil {
			t.Error(err)
		}
	}
}

// TestMulticastBeforeEngines: where the tuning asks for both, multicast goes before copy
// engines, but not overlapped with compute, from which it would take multiprocessors.
func TestMulticastBeforeEngines(t *testing.T) {
	_, w := multicastWorld(t, 2, nil)
	r := newRigIn(t, w.Driver(), w)
	o := always(2)
	o.Tuning.EngineMove, o.Tuning.EngineReduce, o.Tuning.EngineInPlace, o.Tuning.MulticastGather = 1, 1, 1, 1<<20
	g, err := coll.NewGroup(t.Context(), w, seqInts(2), o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	m, at := g.Members()[0], r.alloc(1<<21)
	for _, c := range []struct {
		kind   kernels.Collective
		bytes  uint64
		beside bool
		want   bool
	}{
		{kernels.AllReduce, 1 << 16, false, true},
		{kernels.AllReduce, 1 << 16, true, false},
		{kernels.AllGather, 1 << 18, false, false}, // 512 KiB of result
		{kernels.AllGather, 1 << 19, false, true},
	} {
		p, err := m.Prepare(coll.Op{Kind: c.kind, DType: dtype.F32, Symmetric: true, Overlapped: c.beside, Tensors: []coll.Tensor{{Src: w.Addr(0, at), Dst: w.Addr(0, at+1<<20), Bytes: c.bytes}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Launch() != nil && p.Launch().Algo == kernels.Multicast; got != c.want {
			t.Errorf("%+v: through multicast %v", c, got)
		}
	}
}
