package coll

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/stall"
	"github.com/seed-ee968945/concert/kernels"
)

// The peer that is named is the first one whose flag would let the stream go on.
func TestMissing(t *testing.T) {
	const n, self = 4, 1
	up := []int{0, 2, 3}
	const credits = flagCredit
	for _, c := range []struct {
		name  string
		which uint32
		flags [rows][]int // peers whose flags are up, by row
		want  int
	}{
		{"nobody has come", rowOf(flagReady), [rows][]int{}, 0},
		{"one has not come", rowOf(flagReady), [rows][]int{{0, 3}}, 2},
		{"one has not written, all have come again", rowOf(flagDone), [rows][]int{up, {0, 2}}, 3},
		{"one has not left", rowOf(flagLeft), [rows][]int{nil, nil, {2, 3}}, 0},
		{"one has reduced the other part only", rowOf(credits), [rows][]int{nil, nil, nil, {0, 3}, up}, 2},
		{"either part is waited for", rowOf(credits) | rowOf(credits+flagRow), [rows][]int{up, up, up, up, {0, 2}}, 3},
		{"all have", rowOf(flagReady), [rows][]int{up}, self},
	} {
		var words [rows * kernels.MaxRanks]uint32
		for row, peers := range c.flags {
			for _, r := range peers {
				words[row*kernels.MaxRanks+r] = 1
			}
		}
		if got := missing(func(i int) uint32 { return words[i] }, c.which, n, self); got != c.want {
			t.Errorf("%s: rank %d, want %d", c.name, got, c.want)
		}
	}
}

// TestCutInPlace cuts random buckets and checks that the pieces cover all slices of
// every tensor once, none with more for a rank than its place holds.
func TestCutInPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	several := 0
	for range 1000 {
		n := 2 + rng.IntN(7)
		b := engineBuilder{m: &Member{Member: &symm.Member{Index: rng.IntN(n)}}, n: n}
		at := uint64(1 << 20)
		for range 1 + rng.IntN(4) {
			x := Tensor{Src: driver.Ptr(at), Dst: driver.Ptr(at), Bytes: uint64(16*n + rng.IntN(200000))}
			b.op.Tensors = append(b.op.Tensors, x)
			at += (x.Bytes + 31) &^ 15
		}
		most := uint64(16 * (1 + rng.IntN(2000)))
		pieces := b.cutInPlace(most)
		if len(pieces) > len(b.op.Tensors) {
			several++
		}
		for _, x := range b.op.Tensors {
			next, end := x.Src, x.Src+driver.Ptr(b.sliceOf(x)*uint64(n))
			for next < end {
				p := pieces[0]
				if p.Src != next || p.Dst != next || p.Bytes == 0 || p.Bytes%uint64(16*n) != 0 || b.sliceOf(p) > most {
					t.Fatalf("piece %+v of a tensor at %#x, expected at %#x", p, x.Src, next)
				}
				next, pieces = next+driver.Ptr(p.Bytes), pieces[1:]
			}
			if next != end {
				t.Fatalf("pieces end at %#x instead of %#x", next, end)
			}
		}
		if len(pieces) != 0 {
			t.Fatalf("%d pieces too many", len(pieces))
		}
	}
	if several < 500 {
		t.Errorf("only %d buckets have several pieces", several)
	}
}

// The host sets the flags of a broken group while a stream waits for them, and puts nothing more
// into its own stream then: who ends the group waits for that one as well.
func TestBrokenRunsDry(t *testing.T) {
	f := fake.New(2)
	w, err := symm.NewLocalWorld(f, []int{0, 1}, symm.WorldOptions{Bytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	g, err := NewGroup(t.Context(), w, []int{0, 1}, GroupOptions{Region: 256 << 10, Flagged: 256 << 10, Staging: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	m := g.Members()[0]
	m.engine.byFlags.Store(true)
	m.Abort(nil)
	c, s := m.Rank.Ctx, m.engine.in
	for _, says := range []uint32{0, 1<<rows | rowOf(flagDone)} {
		err := errors.Join(f.StreamWrite32(c, s, m.OwnWords()+4*laneIn, says), f.StreamSync(c, s), extension{m}.Tend(0))
		if sets := m.engine.watch.letting.Len() > 0; err != nil || sets != (says != 0) {
			t.Errorf("a stream says %#x, the host sets flags: %v, %v", says, sets, err)
		}
	}
	if err := f.StreamWrite32(c, s, m.OwnWords()+4*laneIn, 0); err != nil {
		t.Error(err)
	}
}

// What the host had put into its stream earlier may still be there when a wait is late: its end
// does not say that the flags have been copied, and nobody is named by what was copied before. Nor
// does a stall of the host leave the device less time to tell.
func TestLateNamesByNewFlags(t *testing.T) {
	const n = 4
	f := fake.New(n)
	w, err := symm.NewLocalWorld(f, []int{0, 1, 2, 3}, symm.WorldOptions{Bytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	g, err := NewGroup(t.Context(), w, []int{0, 1, 2, 3}, GroupOptions{Region: 256 << 10, Flagged: 256 << 10, Staging: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	m := g.Members()[0]
	c, setup, watch := m.Rank.Ctx, m.HostStream(), &m.engine.watch
	s, err := f.StreamCreate(c)
	if err != nil {
		t.Fatal(err)
	}
	gate, err := m.NewMemory(4)
	for _, word := range []driver.Flag{{At: gate}, {At: m.flag(0, 1, flagReady), V: 1}, {At: m.flag(0, 3, flagReady), V: 1}, {At: m.OwnWords(), V: 1<<rows | rowOf(flagReady)}} {
		err = errors.Join(err, f.StreamWrite32(c, s, word.At, word.V))
	}
	err = errors.Join(err, f.StreamSync(c, s), f.StreamWait32(c, setup, gate, 1), watch.post(m, func() error { return nil }))
	g.SetTimeout(1)
	for err == nil && !watch.asks {
		err = m.late(time.Hour)
	}
	watch.since = stall.Clock{} // the process has stalled since the year 1
	if err = errors.Join(err, m.late(time.Hour)); m.Failure() != nil {
		t.Errorf("behind a stall: %v", m.Failure())
	}
	err = errors.Join(err, f.StreamWrite32(c, s, gate, 1), f.StreamSync(c, setup), f.StreamDestroy(c, s))
	for err == nil && m.Failure() == nil {
		watch.since = stall.Start() // the device has time to tell
		err = m.late(time.Hour)
	}
	var late *symm.TimeoutError
	if err != nil || !errors.As(m.Failure(), &late) || late.Peer != 2 {
		t.Errorf("%v, %v", err, m.Failure())
	}
}

// Which form serves an all_reduce in place that staging has no room for: the general one
// would give the same results.
func TestPushInPlaceServes(t *testing.T) {
	const n, count = 4, 600000
	drv := fake.New(n)
	set, err := kernels.NewSet()
	if err != nil {
		t.Fatal(err)
	}
	w, err := symm.NewLocalWorld(drv, []int{0, 1, 2, 3}, symm.WorldOptions{Bytes: 32 << 20, Images: set})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	tune := kernels.DefaultTuning(n)
	tune.EngineInPlace = 1 << 30
	g, err := NewGroup(t.Context(), w, []int{0, 1, 2, 3}, GroupOptions{Region: 512 << 10, Flagged: 1 << 20, Staging: n * 4 * kernels.PushDepth * 32768, Tuning: &tune})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	at, err := w.Alloc(4*count, 256)
	if err != nil {
		t.Fatal(err)
	}
	m := g.Members()[0]
	b := engineBuilder{m: m, c: &driver.Commands{}, n: n, op: Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: kernels.Engine,
		Tensors: []Tensor{{Src: w.Addr(0, at), Dst: w.Addr(0, at), Bytes: 4 * count}}}}
	if !b.inPlace() || b.err != nil || len(b.cutInPlace(StagingParts*g.stageSlot)) == 1 {
		t.Fatalf("in place: %v", b.err)
	}
	before := b.c.Len()
	if !b.pushInPlace() || b.err != nil || before == b.c.Len() {
		t.Errorf("push does not serve: %v", b.err)
	}
}

// Copies serve what is large enough, and nothing where the threshold is 0: either way a
// collective would give the same results.
func TestWorthCopies(t *testing.T) {
	const n = 4
	w, err := symm.NewLocalWorld(fake.New(n), []int{0, 1, 2, 3}, symm.WorldOptions{Bytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	at, err := w.Alloc(1<<20, 256)
	if err != nil {
		t.Fatal(err)
	}
	for _, move := range []uint64{0, 64 << 10} {
		tune := kernels.DefaultTuning(n)
		tune.OverlappedMove, tune.OverlappedReduce = move, 2*move
		g, err := NewGroup(t.Context(), w, []int{0, 1, 2, 3}, GroupOptions{Region: 256 << 10, Flagged: 256 << 10, Staging: 1 << 20, Tuning: &tune})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			kind  kernels.Collective
			bytes uint64 // the least of which all ranks together have enough
		}{{kernels.AllGather, 16 << 10}, {kernels.AllToAll, 16 << 10}, {kernels.ReduceScatter, 32 << 10}, {kernels.AllReduce, 128 << 10}} {
			for _, less := range []uint64{0, 256} {
				op := Op{Kind: c.kind, DType: dtype.F32, Symmetric: true, Overlapped: true,
					Tensors: []Tensor{{Src: w.Addr(0, at), Dst: w.Addr(0, at+1<<19), Bytes: c.bytes - less}}}
				p, err := g.Members()[0].prepareOverlapped(op)
				if err != nil || (p != nil) != (move > 0 && less == 0) {
					t.Errorf("threshold %d, %v of %d bytes: by copies: %v, %v", move, c.kind, c.bytes-less, p != nil, err)
				}
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}
