//go:build linux

package cuda

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// words reads a pad, or another buffer of words, as the rank itself sees it.
func (r *rigT) words(m *coll.Member, b symm.Buffer) []uint32 {
	r.t.Helper()
	raw := r.get(m.Rank.ID, b.At, b.Bytes())
	out := make([]uint32, len(raw)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return out
}

func (r *rigT) must(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

// got is must with a value.
func got[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestPadSizes(t *testing.T) {
	r := newRigT(t, 2)
	for _, c := range []struct{ asked, want uint64 }{{0, 16 << 10}, {32 << 10, 32 << 10}, {100, 128}, {1, 128}} {
		o := smallGroup(r.w.Shares(), 2)
		o.Pad = c.asked
		g := got(coll.NewGroup(t.Context(), r.w, []int{0, 1}, o))(t)
		if g.PadBytes() != c.want {
			t.Errorf("asked for %d bytes: got %d", c.asked, g.PadBytes())
		}
		for _, m := range g.Members() {
			for rank := range 2 {
				p := got(m.Pad(rank))(t)
				if off := uint64(p.At - r.w.Addr(rank, 0)); off%128 != 0 || off+p.Bytes() > r.w.Bytes() || p.Count != c.want/4 || p.DType != symm.I32 {
					t.Errorf("pad of rank %d is %v", rank, p)
				}
				if v := got(p.As(symm.I64))(t); v.Count != c.want/8 || v.At != p.At {
					t.Errorf("as words of 64 bits: %v", v)
				}
				if v := got(p.Slice(8, 24))(t); v.Count != 24 || v.At != p.At+32 {
					t.Errorf("a part: %v", v)
				}
				if w := got(m.Peer(rank, got(m.Pad(m.Index))(t)))(t); w != p {
					t.Errorf("the peer of the own pad is %v, not %v", w, p)
				}
			}
			s := r.streams[m.Rank.ID]
			last := int(c.want/4) - 1
			r.must(m.WriteValue(s, m.Index, last, 7)) // all of it is writable
			if v := r.words(m, got(m.Pad(m.Index))(t)); v[last] != 7 || slices.Max(v[:last]) != 0 {
				t.Errorf("the last word of %d is %d", last, v[last])
			}
		}
		r.must(r.w.Barrier(t.Context()), g.Close())
	}
	for _, bytes := range []uint64{1 << 31, 1 << 62, 1<<64 - 1} {
		o := smallGroup(r.w.Shares(), 2)
		o.Pad = bytes
		var wrong *symm.ArgumentError
		if _, err := coll.NewGroup(t.Context(), r.w, []int{0, 1}, o); !errors.As(err, &wrong) {
			t.Errorf("a pad of %d bytes: %v", bytes, err)
		}
	}
	a, b := coll.GroupOptions{}, coll.GroupOptions{Pad: 4096}
	if a.Digest() == b.Digest() {
		t.Error("pads of different sizes have one digest")
	}
}

// A pad is filled with 42 and a buffer with 0: neither disturbs the other, nor do words
// that are set again.
func TestPadWords(t *testing.T) {
	n := ranksOf(3)
	r := newRigT(t, n)
	off := r.alloc(64 << 10)
	for _, m := range r.g.Members() {
		rank, s := m.Rank.ID, r.streams[m.Rank.ID]
		pad := got(m.Pad(m.Index))(t)
		r.must(m.Memset32(s, m.Index, 0, int(pad.Count), 42), r.drv.Memset32(m.Rank.Ctx, s, r.w.Addr(rank, off), 0, 16<<10))
		if v := r.words(m, pad); slices.Min(v) != 42 || slices.Max(v) != 42 {
			t.Fatal("the pad is not 42 throughout")
		}
		r.must(m.Memset32(s, m.Index, 0, int(pad.Count), 0), m.Memset32(s, m.Index, 32, 16, 1<<31+5))
		for i, v := range r.words(m, pad) {
			if want := uint32(0); i >= 32 && i < 48 {
				want = 1<<31 + 5
				if v != want {
					t.Fatalf("word %d is %#x", i, v)
				}
			} else if v != want {
				t.Fatalf("word %d is %#x", i, v)
			}
		}
	}
	r.must(r.w.Barrier(t.Context()))
	for _, m := range r.g.Members() { // every rank sets a word of every pad
		for p := range n {
			r.must(m.Memset32(r.streams[m.Rank.ID], p, 100+m.Index, 1, uint32(10*m.Index+p)))
		}
		r.must(m.BarrierOn(r.streams[m.Rank.ID], symm.UserChannels-1))
	}
	r.must(r.check())
	for _, m := range r.g.Members() {
		v := r.words(m, got(m.Pad(m.Index))(t))
		for p := range n {
			if v[100+p] != uint32(10*p+m.Index) {
				t.Errorf("rank %d: the word of rank %d is %d", m.Index, p, v[100+p])
			}
		}
	}
}

// Words that a stream writes appear one after the other: row i of what is copied in
// between has i+1 of them.
func TestWriteValueOrder(t *testing.T) {
	const n = 8
	r := newRigT(t, 2)
	off := r.alloc(4 * n * n)
	for _, m := range r.g.Members() {
		s := r.streams[m.Rank.ID]
		pad := got(m.Pad(m.Index))(t)
		for i := range n {
			r.must(m.WriteValue(s, m.Index, i, 1), r.drv.Copy(m.Rank.Ctx, s, r.w.Addr(m.Rank.ID, off)+driver.Ptr(4*n*i), pad.At, 4*n))
		}
		all := r.words(m, symm.Buffer{At: r.w.Addr(m.Rank.ID, off), Count: n * n, DType: symm.I32})
		for i := range n {
			for j := range n {
				if want := uint32(0); j <= i && all[n*i+j] != 1 || j > i && all[n*i+j] != want {
					t.Fatalf("row %d is %v", i, all[n*i:n*i+n])
				}
			}
		}
	}
}

func TestPadRefuses(t *testing.T) {
	r := newRigT(t, 2)
	m := r.g.Members()[0]
	s := r.streams[m.Rank.ID]
	words := int(r.g.PadBytes() / 4)
	x := got(m.Rank.Buffer(r.alloc(4096), symm.I32, 1024))(t)
	private := got(r.drv.MemAlloc(m.Rank.Ctx, 4096))(t)
	defer r.drv.MemFree(m.Rank.Ctx, private)
	p := symm.Buffer{At: private, Count: 1024, DType: symm.I32}
	short := got(x.Slice(0, 8))(t)
	does := func(_ symm.Buffer, err error) error { return err }
	for _, c := range []struct {
		err  error
		text string
	}{
		{m.WriteValue(s, 0, -1, 1), "word: [-1, +1) exceeds the pad's 4096 words"},
		{m.WriteValue(s, 0, words, 1), "exceeds"},
		{m.WriteValue(s, 0, 1<<32, 1), "exceeds"},
		{m.WriteValue(s, -1, 0, 1), "rank: must be in [0, 2), got -1"},
		{m.WriteValue(s, 2, 0, 1), "rank: must be in [0, 2), got 2"},
		{m.WaitValue(s, 0, -1, 1), "exceeds"},
		{m.WaitValue(s, 0, words, 1), "exceeds"},
		{m.WaitValue(s, 0, 1<<32, 1), "exceeds"},
		{m.WaitValue(s, -1, 0, 1), "rank: must be in"},
		{m.WaitValue(s, 2, 0, 1), "rank: must be in"},
		{m.Memset32(s, 0, -1, 4, 1), "exceeds"},
		{m.Memset32(s, 0, words-3, 4, 1), "exceeds"},
		{m.Memset32(s, 0, 1, 1<<62, 1), "exceeds"},
		{m.Memset32(s, 0, 0, 0, 1), "at least one"},
		{m.Memset32(s, 0, 0, -4, 1), "at least one"},
		{m.Memset32(s, 2, 0, 1, 1), "rank: must be in"},
		{does(m.Pad(-1)), "rank: must be in"},
		{does(m.Pad(2)), "rank: must be in"},
		{does(m.Peer(2, x)), "rank: must be in"},
		{does(m.Peer(1, p)), "is not in the symmetric memory of rank"},
		{does(m.Peer(1, symm.Buffer{At: x.At, Count: 1 << 40, DType: symm.I32})), "is not in the symmetric memory"},
		{does(m.Peer(1, symm.Buffer{At: x.At + 1, Count: 4, DType: symm.I32})), "not aligned"},
		{m.Get(s, 1, x, short), "1024 elements exceed the 8 of i32[8]"},
		{m.Get(s, 1, p, x), "is not in the symmetric memory"},
		{m.Get(s, -1, x, p), "rank: must be in"},
		{m.Get(s, 2, x, p), "rank: must be in"},
		{m.Get(s, 1, x, symm.Buffer{At: private, Count: 1024, DType: symm.F32}), "their types differ"},
		{m.Get(s, 1, x, symm.Buffer{At: 0, Count: 1024, DType: symm.I32}), "without an address"},
		{m.Get(s, m.Index, short, symm.Buffer{At: x.At + 16, Count: 8, DType: symm.I32}), "overlaps"},
		{m.Put(s, 1, x, short), "exceed"},
		{m.Put(s, 1, x, p), "is not in the symmetric memory"},
		{m.Put(s, 2, x, x), "rank: must be in"},
	} {
		var wrong *symm.ArgumentError
		if !errors.As(c.err, &wrong) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("got %v, want %q", c.err, c.text)
		}
	}
	for _, c := range []struct {
		err  error
		text string
	}{
		{m.BarrierOn(s, symm.UserChannels), "channel must be in [0, 60), got 60"},
		{m.BarrierOn(s, -1), "channel must be in"},
		{m.BarrierOn(s, 0, -1), "rank must be in"},
		{m.BarrierOn(s, 0, 2), "rank must be in"},
		{m.BarrierOn(s, 0, m.Index), "cannot barrier itself"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("got %v, want %q", c.err, c.text)
		}
	}
}

// Every rank reads from and writes to the others: all, a part with an offset, and less
// than there is room for.
func TestGetPut(t *testing.T) {
	n := ranksOf(3)
	r := newRigT(t, n)
	const count = 1000
	off, room := r.alloc(4*count), r.alloc(uint64(4*count*n))
	fill := func(rank int) []byte {
		b := make([]byte, 4*count)
		for i := range count {
			binary.LittleEndian.PutUint32(b[4*i:], uint32(rank<<16|i))
		}
		return b
	}
	for _, m := range r.g.Members() {
		r.put(m.Rank.ID, r.w.Addr(m.Rank.ID, off), fill(m.Index))
		r.must(m.BarrierOn(r.streams[m.Rank.ID], 5))
	}
	for _, m := range r.g.Members() {
		s, rank := r.streams[m.Rank.ID], m.Rank.ID
		x := got(m.Rank.Buffer(off, symm.I32, count))(t)
		private := got(r.drv.MemAlloc(m.Rank.Ctx, 4*count))(t)
		defer r.drv.MemFree(m.Rank.Ctx, private)
		to := symm.Buffer{At: private, Count: count, DType: symm.I32}
		for p := range n {
			r.must(r.drv.Memset32(m.Rank.Ctx, s, private, 1<<32-1, count), m.Get(s, p, x, to))
			if !bytes.Equal(r.get(rank, private, 4*count), fill(p)) {
				t.Errorf("rank %d got something else from rank %d", rank, p)
			}
			r.must(r.drv.Memset32(m.Rank.Ctx, s, private, 1<<32-1, count), m.Get(s, p, got(x.Slice(300, 200))(t), to))
			b := r.get(rank, private, 4*count)
			if !bytes.Equal(b[:800], fill(p)[1200:2000]) || !bytes.Equal(b[800:], bytes.Repeat([]byte{255}, 4*count-800)) {
				t.Errorf("rank %d: a part of rank %d, or what is behind it, is wrong", rank, p)
			}
			r.must(m.Put(s, p, x, symm.Buffer{At: r.w.Addr(rank, room) + driver.Ptr(4*count*m.Index), Count: count, DType: symm.I32}))
		}
		r.must(m.Get(s, 0, got(x.Slice(0, 0))(t), to), m.BarrierOn(s, 5))
	}
	r.must(r.check())
	for _, rank := range r.local() {
		for p := range n {
			if !bytes.Equal(r.read(rank, room+uint64(4*count*p), 4*count), fill(p)) {
				t.Errorf("rank %d has something else of rank %d", rank, p)
			}
		}
	}
	// What peers have can be had while the group is broken, too.
	r.must(r.w.Barrier(t.Context()))
	for _, m := range r.g.Members() {
		m.Abort(errors.New("enough"))
		p := (m.Index + 1) % n
		to := got(m.Rank.Buffer(room, symm.I32, count))(t)
		r.must(m.Get(r.streams[m.Rank.ID], p, got(m.Rank.Buffer(off, symm.I32, count))(t), to))
		if !bytes.Equal(r.read(m.Rank.ID, room, 4*count), fill(p)) {
			t.Errorf("rank %d got something else from rank %d of a broken group", m.Index, p)
		}
	}
	r.must(r.w.Barrier(t.Context()))
}

// A group of some of the ranks, in an order of its own: its ranks are not the world's.
func TestPadsOfSomeRanks(t *testing.T) {
	if process != nil {
		t.Skip("one rank in one process")
	}
	r := newRigT(t, 3)
	ranks := []int{2, 0}
	g := got(coll.NewGroup(t.Context(), r.w, ranks, smallGroup(r.w.Shares(), 2)))(t)
	off := r.alloc(256)
	for _, m := range g.Members() {
		x := got(m.Rank.Buffer(off, symm.I32, 64))(t)
		for k, rank := range ranks {
			pad, peer := got(m.Pad(k))(t), got(m.Peer(k, x))(t)
			if lo := r.w.Addr(rank, 0); pad.At < lo || pad.At >= lo+driver.Ptr(r.w.Bytes()) || peer.At != r.w.Addr(rank, off) {
				t.Errorf("rank %d of the group: pad %v, buffer %v", k, pad, peer)
			}
			r.must(m.WriteValue(r.streams[m.Rank.ID], k, 10+m.Index, uint32(100+m.Index)), m.Memset32(r.streams[m.Rank.ID], k, 20+m.Index, 1, uint32(200+m.Index)))
		}
	}
	for _, m := range g.Members() {
		r.must(m.Check(t.Context(), r.streams[m.Rank.ID]))
	}
	for _, m := range g.Members() {
		v := r.words(m, got(m.Pad(m.Index))(t))
		if !slices.Equal(v[10:12], []uint32{100, 101}) || !slices.Equal(v[20:22], []uint32{200, 201}) {
			t.Errorf("rank %d of the group: %v and %v", m.Index, v[10:12], v[20:22])
		}
	}
	r.must(g.Close())
}

// extra makes a second stream for every rank.
func (r *rigT) extra() map[int]driver.Stream {
	out := map[int]driver.Stream{}
	for _, m := range r.g.Members() {
		s := got(r.drv.StreamCreate(m.Rank.Ctx))(r.t)
		out[m.Rank.ID] = s
		r.t.Cleanup(func() { r.must(r.drv.StreamDestroy(m.Rank.Ctx, s)) })
	}
	return out
}

// Barriers of two channels run in two streams. Rank 0 comes late to the second, and only
// behind it do its peers see what it wrote last.
func TestTwoStreamBarrier(t *testing.T) {
	n := ranksOf(3)
	r := newRigT(t, n)
	second := r.extra()
	a, b := r.alloc(4096), r.alloc(4096)
	for round := range uint32(3) {
		members := slices.Clone(r.g.Members())
		slices.Reverse(members) // rank 0 last
		for _, m := range members {
			rank := m.Rank.ID
			if m.Index == 0 {
				r.must(r.drv.Memset32(m.Rank.Ctx, r.streams[rank], r.w.Addr(rank, a), 2*round+1, 1024))
			}
			r.must(m.BarrierOn(r.streams[rank], 0))
			if m.Index == 0 {
				r.must(r.drv.StreamSync(m.Rank.Ctx, r.streams[rank])) // the first fill is over
				time.Sleep(100 * time.Millisecond)
				r.must(r.drv.Memset32(m.Rank.Ctx, second[rank], r.w.Addr(rank, a), 2*round+2, 1024))
			}
			r.must(m.BarrierOn(second[rank], 1))
			if m.Index != 0 {
				x := got(m.Rank.Buffer(a, symm.I32, 1024))(t)
				r.must(m.Get(second[rank], 0, x, got(m.Rank.Buffer(b, symm.I32, 1024))(t)))
			}
			r.must(m.BarrierOn(second[rank], 1))
		}
		for _, m := range r.g.Members() {
			r.must(m.Check(t.Context(), r.streams[m.Rank.ID]), m.Check(t.Context(), second[m.Rank.ID]))
			if m.Index == 0 {
				continue
			}
			if v := r.words(m, got(m.Rank.Buffer(b, symm.I32, 1024))(t)); slices.Min(v) != 2*round+2 || slices.Max(v) != 2*round+2 {
				t.Errorf("round %d: rank %d has %d to %d", round, m.Index, slices.Min(v), slices.Max(v))
			}
		}
	}
}

// A token goes around the ring by words of pads, and by channels of which one stream
// signals and another waits.
func TestRings(t *testing.T) {
	n := ranksOf(4)
	r := newRigT(t, n)
	second := r.extra()
	const rounds = 20
	token := r.alloc(256)
	for _, m := range r.g.Members() {
		s, next, prev := r.streams[m.Rank.ID], (m.Index+1)%n, (m.Index+n-1)%n
		own := got(m.Rank.Buffer(token, symm.I32, 1))(t)
		r.must(r.drv.Memset32(m.Rank.Ctx, s, own.At, 0, 1), m.BarrierOn(s, 9))
		for round := range uint32(rounds) {
			// One lap: rank 0 puts the round into its peer, which passes it on.
			if m.Index == 0 {
				r.must(r.drv.Memset32(m.Rank.Ctx, s, own.At, round+1, 1))
			} else {
				r.must(m.WaitValue(s, prev, 3, round+1))
			}
			r.must(m.Put(s, next, own, own), m.WriteValue(s, next, 3, round+1))
			if m.Index == 0 {
				r.must(m.WaitValue(s, prev, 3, round+1))
			}
			r.must(m.Signal(second[m.Rank.ID], 2, next), m.Wait(s, 2, prev))
		}
	}
	for _, m := range r.g.Members() {
		r.must(m.Check(t.Context(), r.streams[m.Rank.ID]), m.Check(t.Context(), second[m.Rank.ID]))
		if v := r.words(m, got(m.Rank.Buffer(token, symm.I32, 1))(t)); v[0] != rounds {
			t.Errorf("rank %d has token %d", m.Index, v[0])
		}
	}
}

// What a group offers to callers without a program is refused on the default stream, without
// a context, and when the group is closed.
func TestEagerUnusable(t *testing.T) {
	r := newRigT(t, 2)
	g := r.shortGroup(time.Second)
	m := g.Members()[0]
	s := r.streams[m.Rank.ID]
	peer := (m.Index + 1) % 2
	x := got(m.Rank.Buffer(r.alloc(256), symm.I32, 64))(t)
	does := func(_ any, err error) error { return err }
	calls := func(ctx context.Context, s driver.Stream) []error {
		return []error{
			does(r.comm(m).AllReduce(ctx, s, kernels.Sum, x.InPlace())), does(r.comm(m).AllGather(ctx, s, x.InPlace())), does(r.comm(m).ReduceScatter(ctx, s, kernels.Sum, x.InPlace())),
			does(r.comm(m).AllToAll(ctx, s, x.InPlace())), does(r.comm(m).AllToAllV(ctx, s, x.InPlace(), x.InPlace())), does(r.comm(m).Broadcast(ctx, s, 0, x.InPlace())),
			does(r.comm(m).Reduce(ctx, s, kernels.Sum, 0, x.InPlace())), does(r.comm(m).Permute(ctx, s, nil)), does(r.comm(m).Barrier(ctx, s)),
		}
	}
	words := func(s driver.Stream) []error {
		return []error{m.WriteValue(s, 0, 0, 1), m.WaitValue(s, peer, 0, 1), m.Memset32(s, 0, 0, 1, 1), m.Get(s, peer, x, x), m.Put(s, peer, x, x),
			m.Signal(s, 0, peer), m.Wait(s, 0, peer), m.BarrierOn(s, 0)}
	}
	var wrong *symm.ArgumentError
	var none context.Context
	for i, err := range append(calls(none, s), append(calls(t.Context(), 0), words(0)...)...) {
		if !errors.As(err, &wrong) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	r.must(r.w.Barrier(t.Context()), g.Close())
	for i, err := range append(calls(t.Context(), s), append(words(s), does(m.Pad(0)), does(m.Peer(0, x)))...) {
		if !errors.Is(err, symm.ErrClosed) {
			t.Errorf("call %d of a closed group: %v", i, err)
		}
	}
}
