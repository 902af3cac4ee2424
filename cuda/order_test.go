//go:build linux

package cuda

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// streamsOf makes more streams for a rank, which end with the test.
func (r *rigT) streamsOf(rank, n int) []driver.Stream {
	r.t.Helper()
	out := make([]driver.Stream, n)
	for i := range out {
		s, err := r.drv.StreamCreate(r.w.Rank(rank).Ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		out[i] = s
		r.t.Cleanup(func() { r.drv.StreamDestroy(r.w.Rank(rank).Ctx, s) })
	}
	return out
}

// delay keeps a rank's stream busy.
func (r *rigT) delay(rank int, s driver.Stream, d time.Duration) {
	r.t.Helper()
	k := r.w.Rank(rank)
	f, err := k.Func("bench", "delay")
	if err == nil {
		err = r.drv.Launch(k.Ctx, s, f, 1, 1, 0, binary.LittleEndian.AppendUint64(nil, uint64(d)))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// groupOn makes another group of all ranks.
func (r *rigT) groupOn(many bool) *coll.Group {
	r.t.Helper()
	o := smallGroup(r.w.Shares(), r.w.Size())
	o.ManyStreams = many
	return r.groupOf(o)
}

// groupOf makes a group of all ranks, which is closed behind the test.
func (r *rigT) groupOf(o coll.GroupOptions) *coll.Group {
	r.t.Helper()
	g, err := coll.NewGroup(r.t.Context(), r.w, seqInts(r.w.Size()), o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := g.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return g
}

// sync waits for streams of a rank.
func (r *rigT) sync(rank int, ss ...driver.Stream) {
	r.t.Helper()
	for _, s := range ss {
		if err := r.drv.StreamSync(r.w.Rank(rank).Ctx, s); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestTwoStreams issues a group's calls in two streams of each rank by turns. Rank 0 is
// late in one of them.
func TestTwoStreams(t *testing.T) {
	for name, many := range map[string]bool{"changing": false, "many": true} {
		t.Run(name, func(t *testing.T) {
			n := ranksOf(2)
			r := newRigT(t, n)
			g := r.groupOn(many)
			if f, ok := r.drv.(*fake.Driver); ok {
				f.Jitter(200 * time.Microsecond)
			}
			const bytes, calls = 4096, 12
			a := r.alloc(2 * calls * bytes)
			ss := map[int][]driver.Stream{}
			for _, m := range g.Members() {
				id := m.Rank.ID
				ss[id] = r.streamsOf(id, 2)
				if id == 0 {
					r.delay(id, ss[id][0], 100*time.Millisecond)
				}
				for i := range calls {
					// Each sums up the result of the one before: no order but the right one does.
					src, dst := r.w.Addr(id, a+uint64(i)*bytes), r.w.Addr(id, a+uint64(i+1)*bytes)
					if i == 0 {
						if err := r.drv.Memset32(m.Rank.Ctx, ss[id][0], src, 1, bytes/4); err != nil {
							t.Fatal(err)
						}
					}
					op := coll.Op{Kind: kernels.AllReduce, DType: dtype.I32, Symmetric: true, Algo: []kernels.Algo{kernels.LL, kernels.Direct, kernels.Engine}[i%3], Tensors: []coll.Tensor{{Src: src, Dst: dst, Bytes: bytes}}}
					if err := m.Enqueue(ss[id][i%2], op); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, m := range g.Members() {
				id := m.Rank.ID
				for _, s := range ss[id] {
					if err := m.Check(t.Context(), s); err != nil {
						t.Fatal(err)
					}
				}
				want := uint32(1)
				for i := range calls {
					want *= uint32(n)
					if got := binary.LittleEndian.Uint32(r.read(id, a+uint64(i+1)*bytes+bytes-4, 4)); got != want {
						t.Fatalf("rank %d, call %d: %d, want %d", id, i, got, want)
					}
				}
			}
		})
	}
}

// TestWaitsForCallOnly: what the caller enqueues behind a call is not waited for.
func TestWaitsForCallOnly(t *testing.T) {
	for name, many := range map[string]bool{"changing": false, "many": true} {
		t.Run(name, func(t *testing.T) {
			r := newRigT(t, 2)
			g := r.groupOn(many)
			ss := [2][]driver.Stream{r.streamsOf(0, 2), r.streamsOf(1, 2)}
			call := func(i int) {
				for _, m := range g.Members() {
					if err := m.Enqueue(ss[m.Index][i], coll.Op{Kind: kernels.Barrier}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !many { // it learns that there are two streams
				call(0)
				call(1)
			}
			call(0)
			gate := r.alloc(256)
			for i := range 2 { // what follows goes on when we say so
				c, at := r.w.Rank(i).Ctx, r.w.Addr(i, gate)
				r.must(r.drv.Memset32(c, ss[i][0], at, 0, 1), r.drv.StreamSync(c, ss[i][0]), r.drv.StreamWait32(c, ss[i][0], at, 1))
			}
			call(1) // which would never end
			for _, m := range g.Members() {
				if err := m.Check(t.Context(), ss[m.Index][1]); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 2 {
				r.must(r.drv.StreamWrite32(r.w.Rank(i).Ctx, ss[i][1], r.w.Addr(i, gate), 1))
				r.sync(i, ss[i][0])
			}
		})
	}
}

// TestTwoThreads enqueues from two goroutines for each rank, each with streams of its own.
func TestTwoThreads(t *testing.T) {
	r := newRigT(t, 2)
	g := r.groupOn(false)
	a := r.alloc(1 << 16)
	errs := make(chan error, 4)
	var wg sync.WaitGroup
	var all [2][]driver.Stream
	for _, m := range g.Members() {
		all[m.Index] = r.streamsOf(m.Rank.ID, 2)
		for k, s := range all[m.Index] {
			wg.Add(1)
			go func() {
				defer wg.Done()
				at := r.w.Addr(m.Rank.ID, a)
				for i := range 20 { // alike in both, because who comes first differs between the ranks
					op := coll.Op{Kind: kernels.AllReduce, DType: dtype.I32, Red: kernels.Max, Symmetric: true, Algo: kernels.LL, Tensors: []coll.Tensor{{Src: at, Dst: at, Bytes: 4096}}}
					if err := m.Enqueue(s, op); err != nil {
						errs <- err
						return
					}
					if err := m.Signal(s, k, 1-m.Index); err != nil {
						errs <- err
						return
					}
					if i%7 == 0 && m.Err() != nil {
						errs <- m.Err()
						return
					}
				}
			}()
		}
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	for _, m := range g.Members() {
		for k, s := range all[m.Index] {
			for range 20 {
				if err := m.Wait(s, k, 1-m.Index); err != nil {
					t.Error(err)
				}
			}
		}
		for _, s := range all[m.Index] {
			if err := m.Check(t.Context(), s); err != nil {
				t.Error(err)
			}
		}
	}
}

// forked captures f with a second stream that is joined in the end.
func (r *rigT) forked(rank int, ss []driver.Stream, f func()) (driver.Graph, driver.Exec) {
	r.t.Helper()
	c := r.w.Rank(rank).Ctx
	var ev [2]driver.Event
	var err error
	for i := range ev {
		if ev[i], err = r.drv.EventCreate(c, false); err != nil {
			r.t.Fatal(err)
		}
		defer r.drv.EventDestroy(c, ev[i])
	}
	err = errors.Join(r.drv.CaptureBegin(c, ss[0]), r.drv.EventRecord(c, ev[0], ss[0]), r.drv.StreamWait(c, ss[1], ev[0]))
	if err != nil {
		r.t.Fatal(err)
	}
	f()
	err = errors.Join(r.drv.EventRecord(c, ev[1], ss[1]), r.drv.StreamWait(c, ss[0], ev[1]))
	g, end := r.drv.CaptureEnd(c, ss[0])
	if err := errors.Join(err, end); err != nil {
		r.t.Fatal(err)
	}
	x, err := r.drv.GraphInstantiate(c, g)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { r.drv.ExecDestroy(c, x); r.drv.GraphDestroy(c, g) })
	return g, x
}

// TestCapturedStreams captures calls of one group in two streams, replays them, and uses
// the group outside as well.
func TestCapturedStreams(t *testing.T) {
	for name, many := range map[string]bool{"changing": false, "many": true} {
		t.Run(name, func(t *testing.T) {
			n := ranksOf(2)
			r := newRigT(t, n)
			g := r.groupOn(many)
			if f, ok := r.drv.(*fake.Driver); ok {
				f.Jitter(100 * time.Microsecond)
			}
			const bytes, calls, replays = 2048, 4, 4
			a := r.alloc((calls + 1) * bytes)
			op := func(id, i int, algo kernels.Algo) coll.Op {
				return coll.Op{Kind: kernels.AllReduce, DType: dtype.I32, Symmetric: true, Algo: algo,
					Tensors: []coll.Tensor{{Src: r.w.Addr(id, a+uint64(i)*bytes), Dst: r.w.Addr(id, a+uint64(i+1)*bytes), Bytes: bytes}}}
			}
			ss, execs := map[int][]driver.Stream{}, map[int]driver.Exec{}
			for _, m := range g.Members() {
				id := m.Rank.ID
				ss[id] = r.streamsOf(id, 3)
				if err := r.drv.Memset32(m.Rank.Ctx, ss[id][2], r.w.Addr(id, a), 1, bytes/4); err != nil {
					t.Fatal(err)
				}
				// A call outside, and one in a capture that is thrown away.
				if err := m.Enqueue(ss[id][2], op(id, 0, kernels.LL)); err != nil {
					t.Fatal(err)
				}
				r.forked(id, ss[id][:2], func() {
					if err := m.Enqueue(ss[id][1], op(id, 0, kernels.LL)); err != nil {
						t.Fatal(err)
					}
				})
				_, execs[id] = r.forked(id, ss[id][:2], func() {
					for i := range calls {
						if err := m.Enqueue(ss[id][i%2], op(id, i, []kernels.Algo{kernels.LL, kernels.Direct}[i/2])); err != nil {
							t.Fatal(err)
						}
					}
				})
				// Outside again, in another stream than before the captures.
				if err := m.Enqueue(ss[id][0], op(id, 0, kernels.LL)); err != nil {
					t.Fatal(err)
				}
			}
			for range replays {
				for _, m := range g.Members() {
					id := m.Rank.ID
					if err := r.drv.GraphLaunch(m.Rank.Ctx, execs[id], ss[id][0]); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, m := range g.Members() {
				id := m.Rank.ID
				if err := m.Check(t.Context(), ss[id][0]); err != nil {
					t.Fatal(err)
				}
				want := uint32(1)
				for i := range calls {
					want *= uint32(n)
					if got := binary.LittleEndian.Uint32(r.read(id, a+uint64(i+1)*bytes, 4)); got != want {
						t.Fatalf("rank %d, call %d: %d, want %d", id, i, got, want)
					}
				}
			}
		})
	}
}

// TestCapturedGroups: a capture orders the calls of one group, and leaves those of two
// alone.
func TestCapturedGroups(t *testing.T) {
	if *onGPU {
		t.Skip("the fake driver shows what a graph holds")
	}
	r := newRigT(t, 2)
	gs := [2]*coll.Group{r.groupOn(false), r.groupOn(false)}
	ss := r.streamsOf(0, 2)
	waits := func(second *coll.Group) int {
		g, _ := r.forked(0, ss, func() {
			if err := gs[0].Members()[0].Enqueue(ss[0], coll.Op{Kind: kernels.Barrier}); err != nil {
				t.Fatal(err)
			}
			if err := second.Members()[0].Enqueue(ss[1], coll.Op{Kind: kernels.Barrier}); err != nil {
				t.Fatal(err)
			}
		})
		return got(r.drv.(*fake.Driver).GraphWaits(g))(t)
	}
	if one, two := waits(gs[0]), waits(gs[1]); one != two+1 {
		t.Errorf("%d waits in the capture of one group, %d in that of two", one, two)
	}
}

// TestStreamOrderError: there is nothing to wait for in a stream that is being captured.
func TestStreamOrderError(t *testing.T) {
	r := newRigT(t, 2)
	for _, many := range []bool{false, true} {
		g := r.groupOn(many)
		m, ss := g.Members()[0], r.streamsOf(0, 2)
		c := m.Rank.Ctx
		call := func(s driver.Stream) error { return m.Signal(s, 7, 1) } // which waits for no peer
		if err := call(ss[0]); err != nil {
			t.Fatal(err)
		}
		if err := r.drv.CaptureBegin(c, ss[0]); err != nil {
			t.Fatal(err)
		}
		err := call(ss[1])
		var order *symm.StreamOrderError
		if many && err != nil || !many && (!errors.As(err, &order) || order.Last != ss[0] || order.Next != ss[1]) {
			t.Errorf("many %v: %v", many, err)
		}
		if err := call(ss[0]); err != nil { // in the capture
			t.Error(err)
		}
		graph, err := r.drv.CaptureEnd(c, ss[0])
		if err := errors.Join(err, r.drv.GraphDestroy(c, graph)); err != nil {
			t.Fatal(err)
		}
		if err := call(ss[1]); err != nil {
			t.Errorf("many %v, after the capture: %v", many, err)
		}
		r.sync(0, ss...)
	}
}

// TestStreamsComeAndGo gives every call a stream of its own, which is destroyed while the
// call is under way.
func TestStreamsComeAndGo(t *testing.T) {
	n := ranksOf(2)
	r := newRigT(t, n)
	g := r.groupOn(false)
	const bytes, calls = 1024, 10
	a := r.alloc((calls + 1) * bytes)
	for i := range calls {
		for _, m := range g.Members() {
			id, c := m.Rank.ID, m.Rank.Ctx
			s, err := r.drv.StreamCreate(c)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				if err := r.drv.Memset32(c, s, r.w.Addr(id, a), 1, bytes/4); err != nil {
					t.Fatal(err)
				}
				r.delay(id, s, 20*time.Millisecond)
			}
			op := coll.Op{Kind: kernels.AllReduce, DType: dtype.I32, Symmetric: true, Algo: kernels.LL,
				Tensors: []coll.Tensor{{Src: r.w.Addr(id, a+uint64(i)*bytes), Dst: r.w.Addr(id, a+uint64(i+1)*bytes), Bytes: bytes}}}
			if err := errors.Join(m.Enqueue(s, op), r.drv.StreamDestroy(c, s)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range g.Members() {
		id := m.Rank.ID
		p := got(m.Prepare(coll.Op{Kind: kernels.Barrier}))(t)
		d := &records{Driver: r.drv}
		r.sw.Driver = d
		err := p.Enqueue(r.streams[id])
		r.sw.Driver = r.drv
		if err != nil {
			t.Fatal(err)
		}
		if d.n > 0 {
			t.Errorf("rank %d marks every call, though its streams replaced each other", id)
		}
	}
	for _, m := range g.Members() {
		if err := m.Check(t.Context(), r.streams[m.Rank.ID]); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range g.Members() {
		want := uint32(1)
		for range calls {
			want *= uint32(n)
		}
		if got := binary.LittleEndian.Uint32(r.read(m.Rank.ID, a+calls*bytes, 4)); got != want {
			t.Errorf("rank %d: %d, want %d", m.Rank.ID, got, want)
		}
	}
}

// records counts recordings of events.
type records struct {
	driver.Driver
	n int
}

func (d *records) EventRecord(c driver.Ctx, e driver.Event, s driver.Stream) error {
	d.n++
	return d.Driver.EventRecord(c, e, s)
}

// TestOrderCostsNothing counts the driver calls of a group that stays in one stream.
func TestOrderCostsNothing(t *testing.T) {
	if *onGPU {
		t.Skip("the fake driver counts calls")
	}
	r := newRigT(t, 2)
	f := r.drv.(*fake.Driver)
	plans, a := [2]*coll.Prepared{}, r.alloc(1024)
	for i, m := range r.g.Members() {
		at := r.w.Addr(i, a)
		var err error
		if plans[i], err = m.Prepare(coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Algo: kernels.LL, Tensors: []coll.Tensor{{Src: at, Dst: at, Bytes: 1024}}}); err != nil {
			t.Fatal(err)
		}
	}
	f.FailCall(0, nil)
	const calls = 10
	for range calls {
		for i, p := range plans {
			if err := p.Enqueue(r.streams[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := f.Calls(); got != 2*calls {
		t.Errorf("%d driver calls for %d launches", got, 2*calls)
	}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
}
