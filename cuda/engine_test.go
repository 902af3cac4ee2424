//go:build linux

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// quietOp is an all_gather of one word a rank without kernels.
func quietOp(r *rigT, rank int, src, dst uint64) coll.Op {
	return coll.Op{Kind: kernels.AllGather, DType: dtype.I32, Symmetric: true, Algo: kernels.Engine, Overlapped: true,
		Tensors: []coll.Tensor{{Src: r.w.Addr(rank, src), Dst: r.w.Addr(rank, dst), Bytes: 4}}}
}

// TestQuiet replays a graph of quiet gathers of words that change from call to call.
func TestQuiet(t *testing.T) {
	const calls, rounds = 3, 20
	n := ranksOf(4)
	r := newRigT(t, n)
	src, dst := r.alloc(64), r.alloc(256)
	execs := r.quietGraphs(calls, src, dst)
	for round := 0; round < rounds; round++ {
		for _, i := range r.local() {
			k := r.w.Rank(i)
			if err := r.drv.Memset32(k.Ctx, r.streams[i], r.w.Addr(i, src), uint32(100*round+i), 1); err != nil {
				t.Fatal(err)
			}
			if err := r.drv.GraphLaunch(k.Ctx, execs[i], r.streams[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		for _, i := range r.local() {
			got := r.read(i, dst, uint64(4*n))
			for j := 0; j < n; j++ {
				want := uint32(100*round + j)
				if v := uint32(got[4*j]) | uint32(got[4*j+1])<<8; v != want {
					t.Fatalf("round %d rank %d piece %d: %d, want %d", round, i, j, v, want)
				}
			}
		}
	}
}

// quietGraphs are graphs of so many quiet gathers, by rank.
func (r *rigT) quietGraphs(calls int, src, dst uint64) []driver.Exec {
	r.t.Helper()
	execs := make([]driver.Exec, r.w.Size())
	for _, m := range r.g.Members() {
		i, c := m.Index, m.Rank.Ctx
		r.must(r.drv.CaptureBegin(c, r.streams[i]))
		for range calls {
			r.must(m.Enqueue(r.streams[i], quietOp(r, i, src, dst)))
		}
		g := got(r.drv.CaptureEnd(c, r.streams[i]))(r.t)
		execs[i] = got(r.drv.GraphInstantiate(c, g))(r.t)
		r.t.Cleanup(func() { r.must(r.drv.ExecDestroy(c, execs[i]), r.drv.GraphDestroy(c, g)) })
	}
	return execs
}

// BenchmarkQuiet is a quiet gather of two ranks, of many in a graph.
func BenchmarkQuiet(b *testing.B) {
	const calls = 100
	r := newRigT(b, 2)
	execs := r.quietGraphs(calls, r.alloc(64), r.alloc(256))
	for b.Loop() {
		for i, x := range execs {
			r.must(r.drv.GraphLaunch(r.w.Rank(i).Ctx, x, r.streams[i]))
		}
		r.must(r.check())
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/calls, "us/gather")
}

// TestQuietTimeout leaves a rank out of a quiet gather; all join anew afterwards.
func TestQuietTimeout(t *testing.T) {
	n := ranksOf(3)
	absent := n - 1
	r := newRigT(t, n)
	g, err := coll.NewGroup(t.Context(), r.w, seqInts(n), smallGroup(false, n))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	src, dst := r.alloc(64), r.alloc(256)
	for _, m := range g.Members() {
		for j := 0; j < 2 && m.Index != absent; j++ {
			if err := m.Enqueue(r.streams[m.Index], quietOp(r, m.Index, src, dst)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.barrier()                     // all have come that will
	for _, m := range g.Members() { // and their streams as well
		for i := 0; i < n && m.Index != absent; i++ {
			if i != absent && i != m.Index {
				until(t, func() bool { return r.flagOf(m, i) != 0 })
			}
		}
	}
	g.SetTimeout(200 * time.Millisecond)
	start, timeouts := time.Now(), 0
	for _, m := range g.Members() {
		i := m.Index
		if i == absent {
			continue
		}
		err := m.Check(t.Context(), r.streams[i])
		var te *symm.TimeoutError
		if errors.As(err, &te) && te.Rank == i {
			timeouts++
			if te.Peer != absent {
				t.Errorf("rank %d: %+v", i, *te)
			}
		} else if !errors.Is(err, symm.ErrCanceled) {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	if d := time.Since(start); timeouts == 0 && process == nil || d > plenty {
		t.Errorf("%d timeouts after %v", timeouts, d)
	}
	g.SetTimeout(plenty)
	if err := g.Rejoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range g.Members() {
		if err := m.Enqueue(r.streams[m.Index], quietOp(r, m.Index, src, dst)); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range g.Members() {
		if err := m.Check(t.Context(), r.streams[m.Index]); err != nil {
			t.Errorf("rank %d after rejoining: %v", m.Index, err)
		}
	}
}

// flagOf is what a peer has written to a member first.
func (r *rigT) flagOf(m *coll.Member, peer int) uint32 {
	b := make([]byte, 4)
	at := ctl(m) + kernels.CtlStreamFlags + 4*driver.Ptr(peer)
	r.must(r.drv.CopyOut(m.Rank.Ctx, m.Rank.Setup(), b, at), r.drv.StreamSync(m.Rank.Ctx, m.Rank.Setup()))
	return binary.LittleEndian.Uint32(b)
}

// TestQuietGivenUp gives up a group in which a peer waits without a kernel: when that
// wait has been ended the peer must not take what came for results.
func TestQuietGivenUp(t *testing.T) {
	r := newRigT(t, 2)
	src, dst := r.alloc(64), r.alloc(256)
	ms := r.g.Members()
	if err := ms[1].Enqueue(r.streams[1], quietOp(r, 1, src, dst)); err != nil {
		t.Fatal(err)
	}
	if ms[1].Aborted() {
		t.Fatal("given up before the abort")
	}
	ms[0].Abort(errors.New("enough"))
	// As the streams of a rank whose waits have been ended would.
	var b driver.Commands
	for _, row := range []driver.Ptr{0, 1} { // rank 0 has come, and has written
		b.Flags(driver.Main, driver.Flag{At: ctl(ms[1]) + kernels.CtlStreamFlags + row*4*kernels.MaxRanks, V: 1})
	}
	if err := r.drv.Run(ms[0].Rank.Ctx, b.On(r.streams[0])); err != nil {
		t.Fatal(err)
	}
	if err := r.drv.StreamSync(ms[1].Rank.Ctx, r.streams[1]); err != nil {
		t.Fatal(err)
	}
	if !ms[1].Aborted() {
		t.Error("the gather ended without its peer's piece, and nobody says so")
	}
	if err := r.g.Rejoin(t.Context()); err != nil || ms[1].Aborted() {
		t.Errorf("rejoined, given up %v: %v", ms[1].Aborted(), err)
	}
}

// TestHearing breaks a group of several processes: the waits of its streams end only
// when the others have had time to hear of it, each time anew.
func TestHearing(t *testing.T) {
	const hearing = 50 * time.Millisecond
	ws, done := pairOf(t)
	defer done()
	var gs [2]*coll.Group
	var streams [2]driver.Stream
	var src, dst [2]uint64
	each := func(f func(i int, m *coll.Member) error) {
		t.Helper()
		if err := both(func(i int) error { return f(i, gs[i].Members()[0]) }); err != nil {
			t.Fatal(err)
		}
	}
	err := both(func(i int) (err error) {
		if gs[i], err = coll.NewGroup(t.Context(), ws[i], []int{0, 1}, smallGroup(false, 2)); err != nil {
			return err
		}
		if src[i], err = ws[i].Alloc(64, 16); err != nil {
			return err
		}
		if dst[i], err = ws[i].Alloc(256, 16); err != nil {
			return err
		}
		streams[i], err = ws[i].Driver().StreamCreate(ws[i].Rank(i).Ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m, d := gs[0].Members()[0], ws[0].Driver()
	for range 2 {
		op := coll.Op{Kind: kernels.AllGather, DType: dtype.I32, Symmetric: true, Algo: kernels.Engine, Overlapped: true,
			Tensors: []coll.Tensor{{Src: ws[0].Addr(0, src[0]), Dst: ws[0].Addr(0, dst[0]), Bytes: 4}}}
		if err := m.Enqueue(streams[0], op); err != nil {
			t.Fatal(err)
		}
		start, early := time.Now(), 0
		m.Abort(errors.New("enough"))
		for {
			if err := m.Poll(0); !errors.Is(err, symm.ErrCanceled) {
				t.Fatal(err)
			}
			if done, err := d.StreamQuery(m.Rank.Ctx, streams[0]); err != nil {
				t.Fatal(err)
			} else if done {
				break
			}
			early++
			time.Sleep(time.Millisecond)
		}
		if waited := time.Since(start); waited < hearing {
			t.Errorf("the stream went on after %v, %d looks", waited, early)
		}
		each(func(_ int, m *coll.Member) error { return m.Group.Rejoin(t.Context()) })
	}
	each(func(i int, m *coll.Member) error {
		return errors.Join(ws[i].Driver().StreamDestroy(m.Rank.Ctx, streams[i]), gs[i].Close())
	})
}

// TestRejoinAfter lets a group go on while other work of its devices does, which Rejoin
// would wait for.
func TestRejoinAfter(t *testing.T) {
	const n, absent = 2, 1
	r := newRigT(t, n)
	g, err := coll.NewGroup(t.Context(), r.w, []int{0, 1}, smallGroup(false, n))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	src, dst, gate := r.alloc(64), r.alloc(256), r.alloc(256)
	for i, k := range r.w.Local() { // work that ends when the test says so
		other, err := r.drv.StreamCreate(k.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer r.drv.StreamDestroy(k.Ctx, other)
		r.write(i, gate, make([]byte, 4))
		if err := r.drv.StreamWait32(k.Ctx, other, r.w.Addr(i, gate), 1); err != nil {
			t.Fatal(err)
		}
		defer func() {
			r.write(i, gate, []byte{1, 0, 0, 0})
			if err := r.drv.StreamSync(k.Ctx, other); err != nil {
				t.Error(err)
			}
		}()
	}
	enqueue := func(i int) {
		t.Helper()
		if err := g.Members()[i].Enqueue(r.streams[i], quietOp(r, i, src, dst)); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(0)
	g.SetTimeout(100 * time.Millisecond)
	var te *symm.TimeoutError
	if err := g.Members()[0].Check(t.Context(), r.streams[0]); !errors.As(err, &te) || te.Peer != absent {
		t.Fatal(err)
	}
	if err := g.RejoinAfter(t.Context(), [][]driver.Stream{{r.streams[0]}}); err == nil {
		t.Error("streams of one member of two")
	}
	if err := g.RejoinAfter(t.Context(), [][]driver.Stream{{r.streams[0]}, {r.streams[1]}}); err != nil {
		t.Fatal(err)
	}
	g.SetTimeout(plenty)
	for i := range n {
		enqueue(i)
	}
	for i, m := range g.Members() {
		if err := m.Check(t.Context(), r.streams[i]); err != nil {
			t.Errorf("rank %d after rejoining: %v", i, err)
		}
	}
}

// TestEngineRest reduces tensors whose bytes leave a rest beside whole slices, several
// in one call, in both fast forms.
func TestEngineRest(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRigT(t, n)
			rng := rand.New(rand.NewPCG(3, 3))
			for _, inPlace := range []bool{false, true} {
				for _, counts := range [][]int{{1024}, {20001}, {16 * n, 4099, 30000}} {
					c := caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: kernels.Engine, counts: counts, inPlace: inPlace}
					if err := r.runCase(c, rng); err != nil {
						t.Errorf("%v: %v", c, err)
					}
				}
			}
		})
	}
}
