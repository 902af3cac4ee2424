//go:build linux

package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/eager"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/kernels"
)

// usesT is a group of two ranks, or one of them, that is used in every way there is.
type usesT struct {
	drv      driver.Driver
	w        *symm.World
	g        *coll.Group
	src, dst uint64
	streams  []driver.Stream // by rank
	leave    bool            // without joining anew after a failure
}

const usesBytes = 4096

// leastGroup gives a group the least region that has room for that: it writes all of it, and
// tests that make each driver call fail in turn make hundreds of groups.
func leastGroup(o coll.GroupOptions) coll.GroupOptions {
	o.Region = 64 << 10
	return o
}

// openUses makes the group and the tensors.
func openUses(ctx context.Context, drv driver.Driver, w *symm.World) (_ *usesT, err error) {
	u := &usesT{drv: drv, w: w, streams: make([]driver.Stream, w.Size())}
	if u.g, err = coll.NewGroup(ctx, w, seqInts(w.Size()), leastGroup(smallGroup(false, w.Size()))); err != nil {
		return nil, err
	}
	for _, at := range []*uint64{&u.src, &u.dst} {
		if *at, err = w.Alloc(4*usesBytes, 256); err != nil {
			return nil, errors.Join(err, u.g.Close())
		}
	}
	return u, nil
}

func (u *usesT) op(m *coll.Member, kind kernels.Collective, algo kernels.Algo, beside bool) coll.Op {
	id := m.Rank.ID
	return coll.Op{Kind: kind, DType: dtype.F32, Symmetric: true, Algo: algo, Overlapped: beside, Pairs: [][2]int{{0, 1}, {1, 0}},
		Tensors: []coll.Tensor{{Src: u.w.Addr(id, u.src), Dst: u.w.Addr(id, u.dst), Bytes: usesBytes}}}
}

// each calls f for the members here.
func (u *usesT) each(f func(m *coll.Member, s driver.Stream) error) error {
	for _, m := range u.g.Members() {
		if err := f(m, u.streams[m.Rank.ID]); err != nil {
			return err
		}
	}
	return nil
}

func (u *usesT) check(ctx context.Context) error {
	return u.each(func(m *coll.Member, s driver.Stream) error { return m.Check(ctx, s) })
}

// sum reduces known numbers and compares: the group works.
func (u *usesT) sum(ctx context.Context, v float32) error {
	var one, got [4]byte
	storeSum(dtype.F32, one[:], v)
	err := u.each(func(m *coll.Member, s driver.Stream) error {
		if err := u.drv.CopyIn(m.Rank.Ctx, s, u.w.Addr(m.Rank.ID, u.src), one[:]); err != nil {
			return err
		}
		return m.Enqueue(s, u.op(m, kernels.AllReduce, kernels.Auto, false))
	})
	if err = errors.Join(err); err == nil {
		err = u.check(ctx)
	}
	if err != nil {
		return err
	}
	return u.each(func(m *coll.Member, s driver.Stream) error {
		if err := u.drv.CopyOut(m.Rank.Ctx, s, got[:], u.w.Addr(m.Rank.ID, u.dst)); err != nil {
			return err
		}
		if sum := float32(dtype.LoadFloat(dtype.F32, got[:])); sum != 2*v {
			return fmt.Errorf("the sum of two times %v is %v", v, sum)
		}
		return nil
	})
}

// withStreams runs f with a stream for every member. If it fails the group is given up, so
// that nobody waits, and all work has ended before the streams go.
func (u *usesT) withStreams(f func() error) (err error) {
	defer func() {
		if err != nil {
			for _, m := range u.g.Members() {
				m.Abort(err)
			}
		}
		u.each(func(m *coll.Member, s driver.Stream) error {
			if s != 0 {
				if cerr := m.Check(context.Background(), s); err == nil {
					err = cerr
				}
				err = errors.Join(err, u.drv.StreamDestroy(m.Rank.Ctx, s))
			}
			u.streams[m.Rank.ID] = 0
			return nil
		})
	}()
	for _, m := range u.g.Members() {
		if u.streams[m.Rank.ID], err = u.drv.StreamCreate(m.Rank.Ctx); err != nil {
			return err
		}
	}
	return f()
}

// enqueue launches every kind of collective and signal.
func (u *usesT) enqueue(ctx context.Context) error {
	err := u.each(func(m *coll.Member, s driver.Stream) error {
		for _, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
			if err := m.Enqueue(s, u.op(m, kernels.AllReduce, algo, false)); err != nil {
				return err
			}
		}
		for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.ReduceScatter, kernels.AllGather, kernels.Broadcast, kernels.Permute, kernels.Reduce} {
			if err := m.Enqueue(s, u.op(m, kind, kernels.Engine, true)); err != nil {
				return err
			}
		}
		if err := m.Enqueue(s, coll.Op{Kind: kernels.Barrier}); err != nil {
			return err
		}
		at := u.w.Addr(m.Rank.ID, u.src)
		pieces := []coll.Piece{{At: at, Bytes: 40}, {At: at + 64, Bytes: 40}}
		p, err := m.PrepareAllToAllV(pieces, []coll.Piece{{At: at + 128, Bytes: 40}, {At: at + 192, Bytes: 40}})
		if err != nil {
			return err
		}
		if err := p.Enqueue(s); err != nil {
			return err
		}
		if err := m.Signal(s, 3, 1-m.Index); err != nil {
			return err
		}
		return m.Wait(s, 3, 1-m.Index)
	})
	if err != nil {
		return err
	}
	return u.check(ctx)
}

// capture makes a graph of two collectives, one with several streams, on every member.
func (u *usesT) capture(m *coll.Member, s driver.Stream) (g driver.Graph, err error) {
	c := m.Rank.Ctx
	if err := u.drv.CaptureBegin(c, s); err != nil {
		return 0, err
	}
	for _, algo := range []kernels.Algo{kernels.LL, kernels.Engine} {
		if err = m.Enqueue(s, u.op(m, kernels.AllReduce, algo, false)); err != nil {
			break
		}
	}
	g, end := u.drv.CaptureEnd(c, s)
	if end != nil && errors.Is(end, errInjected) { // it goes on
		g, _ = u.drv.CaptureEnd(c, s)
	}
	if err = errors.Join(err, end); err != nil && g != 0 {
		err = errors.Join(err, u.drv.GraphDestroy(c, g))
	}
	return g, err
}

// replay captures, instantiates, launches and updates graphs.
func (u *usesT) replay(ctx context.Context) (err error) {
	execs := map[*coll.Member]driver.Exec{}
	defer func() {
		if err != nil { // what was launched has to end
			for _, m := range u.g.Members() {
				m.Abort(err)
			}
			u.each(func(m *coll.Member, s driver.Stream) error { m.Check(context.Background(), s); return nil })
		}
		for m, x := range execs {
			err = errors.Join(err, u.drv.ExecDestroy(m.Rank.Ctx, x))
		}
	}()
	err = u.each(func(m *coll.Member, s driver.Stream) (err error) {
		g, err := u.capture(m, s)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, u.drv.GraphDestroy(m.Rank.Ctx, g)) }()
		x, err := u.drv.GraphInstantiate(m.Rank.Ctx, g)
		if err != nil {
			return err
		}
		execs[m] = x
		return u.drv.GraphUpload(m.Rank.Ctx, x, s)
	})
	for range 2 {
		if err == nil {
			err = u.each(func(m *coll.Member, s driver.Stream) error { return u.drv.GraphLaunch(m.Rank.Ctx, execs[m], s) })
		}
	}
	if err != nil {
		return err
	}
	return u.check(ctx)
}

// works starts collectives with handles, waits on a stream and on the host.
func (u *usesT) works(ctx context.Context) (err error) {
	var all []eager.Work
	defer func() {
		for _, w := range all {
			err = errors.Join(err, w.Close())
		}
	}()
	err = u.each(func(m *coll.Member, s driver.Stream) error {
		src, err := m.Rank.Buffer(u.src, symm.F32, usesBytes/4)
		if err != nil {
			return err
		}
		dst, err := m.Rank.Buffer(u.dst, symm.F32, uint64(u.w.Size())*usesBytes/4)
		if err != nil {
			return err
		}
		w, err := eager.New(m).AllGather(ctx, s, src.Into(dst))
		if err != nil {
			return err
		}
		all = append(all, w)
		return w.WaitOn(s)
	})
	for _, w := range all {
		if err == nil {
			err = w.Wait(ctx)
		}
		if err == nil {
			_, err = w.Done()
		}
	}
	return err
}

var errInjected = errors.New("injected")

// agreed compares with the other process and reports whether a rank has failed.
func (u *usesT) agreed(ctx context.Context, err error) (bool, error) {
	text := "well"
	if err != nil {
		text = "failed"
	}
	said, cerr := u.w.Compare(ctx, text)
	for _, s := range said {
		if s == "failed" {
			return true, cerr
		}
	}
	return false, cerr
}

// use does it all. failed is the error of a step, after which the group has been rejoined
// and summed; err is one of that.
func (u *usesT) use(ctx context.Context) (failed, err error) {
	failed = u.withStreams(func() error {
		for _, step := range []func(context.Context) error{u.enqueue, u.replay, u.works} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return u.sum(ctx, 3)
	})
	some, err := u.agreed(ctx, failed)
	if err != nil {
		return failed, err
	}
	again := func() error {
		if err := u.g.Rejoin(ctx); err != nil {
			return err
		}
		return u.withStreams(func() error { return u.sum(ctx, 5) })
	}
	if !some { // what is whole may be rejoined, too
		u.g.Members()[0].Abort(errors.New("enough"))
		failed = again()
		if some, err = u.agreed(ctx, failed); err != nil {
			return failed, err
		}
	}
	if some && !u.leave {
		err = again()
	}
	return failed, err
}

// TestEveryCallFailsInUse lets each driver call of an open group fail in turn: launches,
// captures, graphs, handles, joining anew. Each comes back as that error, the group works
// when it has been rejoined, or is closed as it is, and nothing is left behind.
func TestEveryCallFailsInUse(t *testing.T) {
	if *onGPU {
		t.Skip("the fake driver can fail")
	}
	n := 1
	for ; ; n += stride() {
		f := fake.New(2)
		if !inUse(t, f, n) {
			break
		}
	}
	if n < 300 {
		t.Errorf("only %d calls", n)
	}
	t.Logf("%d calls", n)
}

// stride is how many calls to go on by: not all fail where time is short.
func stride() int {
	if testing.Short() {
		return 13
	}
	return 1
}

// inUse uses a group whose nth call fails, and reports whether there is such a call.
func inUse(t *testing.T, f *fake.Driver, n int) bool {
	t.Helper()
	before := leak.Now()
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	w, err := symm.NewLocalWorld(f, []int{0, 1}, symm.WorldOptions{Bytes: 8 << 20, Images: images(t)})
	if err != nil {
		t.Fatal(err)
	}
	u, err := openUses(ctx, f, w)
	if err != nil {
		t.Fatal(err)
	}
	f.FailCall(n, errInjected)
	u.leave = n%3 == 0
	failed, err := u.use(ctx)
	hit := f.Calls() >= n
	f.FailCall(0, nil)
	if hit != errors.Is(failed, errInjected) {
		t.Errorf("call %d failed: %v, the result is %v", n, hit, failed)
	}
	if err = errors.Join(err, u.g.Close(), w.Close()); err != nil {
		t.Errorf("after call %d failed (%v): %v", n, failed, err)
	}
	if l := f.Leaks().String(); l != "" {
		t.Errorf("after call %d failed (%v): not released: %s", n, failed, l)
	}
	cancel()
	if l := before.More(); l != "" {
		t.Errorf("after call %d failed (%v): %s", n, failed, l)
	}
	return hit
}

// TestEveryCallFailsInProcess is the same with a rank of its own for each of two worlds, as
// in two processes, one of whose drivers fails; from the first call on.
func TestEveryCallFailsInProcess(t *testing.T) {
	if *onGPU {
		t.Skip("the fake driver can fail")
	}
	for victim := range 2 {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			n := 1
			for ; ; n += 3 * stride() {
				if !inProcess(t, victim, n) {
					break
				}
			}
			if n < 200 {
				t.Errorf("only %d calls", n)
			}
			t.Logf("%d calls", n)
		})
	}
}

func inProcess(t *testing.T, victim, n int) bool {
	t.Helper()
	before := leak.Now()
	m := newJob(plenty)
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	type result struct{ failed, err error }
	var fakes [2]*fake.Driver
	var results [2]result
	var wg sync.WaitGroup
	for rank := range fakes {
		f := fake.New(2)
		if fakes[rank] = f; rank == victim {
			f.FailCall(n, errInjected)
		}
		wg.Go(func() {
			x := &results[rank]
			w, err := processWorld(ctx, f, m, rank, 2, rank, symm.WorldOptions{Bytes: 8 << 20, Images: images(t)})
			if err != nil {
				x.failed = err
				cancel() // as who has started the processes would end the other
				return
			}
			defer func() { x.err = errors.Join(x.err, w.Close()) }()
			u, err := openUses(ctx, f, w)
			if err != nil {
				x.failed = err
				return
			}
			defer func() { x.err = errors.Join(x.err, u.g.Close()) }()
			x.failed, x.err = u.use(ctx)
			_, err = u.w.Compare(ctx, "end")
			x.err = errors.Join(x.err, err)
		})
	}
	wg.Wait()
	hit := fakes[victim].Calls() >= n
	for rank, x := range results {
		what := fmt.Sprintf("call %d of rank %d, on rank %d", n, victim, rank)
		all := errors.Join(x.failed, x.err)
		if hit && rank == victim && !errors.Is(all, errInjected) {
			t.Errorf("%s: it failed, the result is %v", what, all)
		}
		if !hit && all != nil {
			t.Errorf("%s: %v", what, all)
		}
		if rank != victim && errors.Is(all, context.DeadlineExceeded) {
			t.Errorf("%s: it hung: %v", what, all)
		}
		if l := fakes[rank].Leaks().String(); l != "" {
			t.Errorf("%s: not released: %s (%v)", what, l, all)
		}
	}
	cancel()
	if l := before.More(); l != "" {
		t.Errorf("call %d of rank %d: %s", n, victim, l)
	}
	return hit
}
