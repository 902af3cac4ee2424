//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestRecycledGroup makes and closes groups of the same ranks where others were, whole
// ones and broken ones, with packets and counters of the ones before still in memory.
func TestRecycledGroup(t *testing.T) {
	n := ranksOf(3)
	r := newRigT(t, n)
	rng := rand.New(rand.NewPCG(4, 4))
	first := r.g
	defer func() { r.g = first }()
	place := uint64(0)
	for i := range 8 {
		g, err := coll.NewGroup(t.Context(), r.w, seqInts(n), smallGroup(r.w.Shares(), n))
		if err != nil {
			t.Fatal(err)
		}
		if place != 0 && g.Scratch().Ctl != place {
			t.Fatalf("group %d is at %d, the one before was at %d", i, g.Scratch().Ctl, place)
		}
		place, r.g = g.Scratch().Ctl, g
		for k := range 1 + i%3 {
			for _, algo := range []kernels.Algo{kernels.LL, kernels.Direct, kernels.Engine} {
				c := caseT{kind: kernels.AllReduce, t: dtype.F32, algo: algo, counts: []int{100 + 700*(k+i)%3000}}
				if err := r.runCase(c, rng); err != nil {
					t.Fatalf("group %d: %v: %v", i, c, err)
				}
			}
		}
		if err := r.w.Barrier(t.Context()); err != nil { // all have ended the calls
			t.Fatal(err)
		}
		if i%2 == 1 { // leave it broken, with a call under way on one rank
			for _, m := range g.Members() {
				if m.Index == 0 {
					if err := m.Enqueue(r.streams[m.Rank.ID], coll.Op{Kind: kernels.Barrier}); err != nil {
						t.Fatal(err)
					}
					m.Abort(errors.New("enough"))
				}
			}
			for _, m := range g.Members() {
				if err := m.Check(t.Context(), r.streams[m.Rank.ID]); m.Index == 0 && !errors.Is(err, symm.ErrCanceled) {
					t.Fatalf("rank %d: %v", m.Index, err)
				}
			}
		}
		if err := r.w.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.g = first
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadAfterAbort reads peers' memory, directly and by copies, when a group has been
// aborted: it belongs to the world.
func TestReadAfterAbort(t *testing.T) {
	n := ranksOf(3)
	r := newRigT(t, n)
	a, b := r.alloc(4096), r.alloc(4096)
	mark := func(rank int) []byte { return bytes.Repeat([]byte{byte(0x40 + rank), 7}, 2048) }
	for rank := range n {
		r.write(rank, a, mark(rank))
	}
	if err := r.w.Barrier(t.Context()); err != nil { // all is written
		t.Fatal(err)
	}
	for _, m := range r.g.Members() {
		if m.Index == n-1 {
			m.Abort(errors.New("enough"))
		}
	}
	for _, m := range r.g.Members() {
		id, c, s := m.Rank.ID, m.Rank.Ctx, r.streams[m.Rank.ID]
		until(t, func() bool { return m.Err() != nil })
		if err := m.Err(); !errors.Is(err, symm.ErrCanceled) {
			t.Fatalf("rank %d: %v", id, err)
		}
		for peer := range n {
			if err := r.drv.Copy(c, s, r.w.Addr(id, b), r.w.Addr(peer, a), 4096); err != nil {
				t.Fatal(err)
			}
			if got := r.read(id, b, 4096); !bytes.Equal(got, mark(peer)) {
				t.Errorf("rank %d reads wrong bytes of rank %d", id, peer)
			}
		}
	}
	if err := r.g.Rejoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.runCase(caseT{kind: kernels.AllReduce, t: dtype.F32, counts: []int{1000}}, rand.New(rand.NewPCG(1, 1))); err != nil {
		t.Error(err)
	}
}

// TestCapturedOnly captures collectives that are never replayed, and others that are: the
// first change nothing, neither before nor between eager calls of the same group.
func TestCapturedOnly(t *testing.T) {
	n := ranksOf(4)
	r := newRigT(t, n)
	rng := rand.New(rand.NewPCG(6, 6))
	a := r.alloc(4096)
	for i := range 3 {
		for _, m := range r.g.Members() {
			c, s := m.Rank.Ctx, r.streams[m.Rank.ID]
			at := r.w.Addr(m.Rank.ID, a)
			if err := r.drv.CaptureBegin(c, s); err != nil {
				t.Fatal(err)
			}
			for _, algo := range []kernels.Algo{kernels.LL, kernels.Direct, kernels.Engine} {
				for _, beside := range []bool{false, true} {
					op := coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: algo, Overlapped: beside, Tensors: []coll.Tensor{{Src: at, Dst: at, Bytes: 4096}}}
					if err := m.Enqueue(s, op); err != nil {
						t.Fatal(err)
					}
				}
			}
			g, err := r.drv.CaptureEnd(c, s)
			if err != nil {
				t.Fatal(err)
			}
			x, err := r.drv.GraphInstantiate(c, g)
			if err := errors.Join(err, r.drv.GraphDestroy(c, g)); err != nil {
				t.Fatal(err)
			}
			if err := r.drv.ExecDestroy(c, x); err != nil {
				t.Fatal(err)
			}
		}
		for _, algo := range []kernels.Algo{kernels.LL, kernels.Direct, kernels.Engine, kernels.Auto} {
			c := caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: algo, counts: []int{3000 + i}}
			if err := r.runCase(c, rng); err != nil {
				t.Fatalf("round %d: %v: %v", i, c, err)
			}
		}
	}
}

// TestSkewedReplays replays gathers by copy engines, of one element and of 64 times 64,
// while one rank after the other comes late to the host and to the device.
func TestSkewedReplays(t *testing.T) {
	n := ranksOf(4)
	r := newRigT(t, n)
	const replays = 4
	for _, count := range []int{1, 64 * 64} {
		for _, beside := range []bool{false, true} {
			size := uint64(4 * count)
			src, dst := r.alloc(size), r.alloc(uint64(n)*size)
			execs := map[int]driver.Exec{}
			for _, m := range r.g.Members() {
				id, c, s := m.Rank.ID, m.Rank.Ctx, r.streams[m.Rank.ID]
				if err := r.drv.CaptureBegin(c, s); err != nil {
					t.Fatal(err)
				}
				if err := m.Enqueue(s, coll.Op{Kind: kernels.AllGather, DType: dtype.I32, Symmetric: true, Algo: kernels.Engine, Overlapped: beside,
					Tensors: []coll.Tensor{{Src: r.w.Addr(id, src), Dst: r.w.Addr(id, dst), Bytes: size}}}); err != nil {
					t.Fatal(err)
				}
				g, err := r.drv.CaptureEnd(c, s)
				if err != nil {
					t.Fatal(err)
				}
				if execs[id], err = r.drv.GraphInstantiate(c, g); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { r.drv.ExecDestroy(c, execs[id]) })
				if err := r.drv.GraphDestroy(c, g); err != nil {
					t.Fatal(err)
				}
			}
			for k := range replays {
				late := (k + count) % n
				for _, m := range r.g.Members() { // the late rank comes last, and its device later
					id, c, s := m.Rank.ID, m.Rank.Ctx, r.streams[m.Rank.ID]
					if id == late && process != nil {
						time.Sleep(20 * time.Millisecond)
					}
					if id == late {
						r.delay(id, s, 20*time.Millisecond)
					}
					if err := r.drv.Memset32(c, s, r.w.Addr(id, src), uint32(1000*k+id), uint64(count)); err != nil {
						t.Fatal(err)
					}
					if err := r.drv.GraphLaunch(c, execs[id], s); err != nil {
						t.Fatal(err)
					}
				}
				for _, m := range r.g.Members() { // whoever has ended has everything, whether or not others have
					id := m.Rank.ID
					if err := m.Check(t.Context(), r.streams[id]); err != nil {
						t.Fatal(err)
					}
					got := r.read(id, dst, uint64(n)*size)
					for j := range n * count {
						if v, want := binary.LittleEndian.Uint32(got[4*j:]), uint32(1000*k+j/count); v != want {
							t.Fatalf("%d elements, replay %d, rank %d: element %d is %d, want %d", count, k, id, j, v, want)
						}
					}
				}
			}
		}
	}
}

// TestExpertAllToAll sends rows to experts, several on each rank, in the layout that grouped
// products want: by expert, each expert's rows one after the other by the rank they come from,
// and every expert's beginning aligned. Nobody's rows leave an expert's bin empty, which
// takes one unit all the same. It is an uneven all_to_all for each of a rank's experts.
func TestExpertAllToAll(t *testing.T) {
	n := ranksOf(4)
	r := newRigT(t, n)
	const experts, row = 3, 24 // of each rank; bytes of a row
	for _, align := range []int{1, 8, 16} {
		rng := rand.New(rand.NewPCG(9, uint64(align)))
		src, dst := r.alloc(1<<16), r.alloc(1<<16)
		rows := make([][]int, n) // of rank s for expert e of all
		data := make([][]byte, n)
		for s := range rows {
			for e := range n * experts {
				k := rng.IntN(9)
				if e%4 == 1 { // an expert without rows
					k = 0
				}
				rows[s] = append(rows[s], k)
			}
			data[s] = randomBytes(rng, dtype.U8, row*sum(rows[s]), false)
			r.write(s, src, data[s])
			r.write(s, dst, bytes.Repeat([]byte{0xa5}, 1<<16))
		}
		from := func(s, e int) int { return row * sum(rows[s][:e]) } // where rank s has its rows for e
		ref := make([][]byte, n)
		begin := make([][]int, n) // of rank d's experts, in rows
		for d := range ref {
			for e := range experts {
				begin[d] = append(begin[d], len(ref[d])/row)
				all := d*experts + e
				for s := range n {
					ref[d] = append(ref[d], data[s][from(s, all):from(s, all+1)]...)
				}
				have := len(ref[d])/row - begin[d][e]
				for pad := max(1, (have+align-1)/align)*align - have; pad > 0; pad-- {
					ref[d] = append(ref[d], bytes.Repeat([]byte{0xa5}, row)...)
				}
				if begin[d][e]%align != 0 {
					t.Fatalf("expert %d begins at row %d", e, begin[d][e])
				}
			}
		}
		for _, m := range r.g.Members() {
			me := m.Index
			for e := range experts {
				send, recv := make([]coll.Piece, n), make([]coll.Piece, n)
				at := row * begin[me][e]
				for k := range n {
					there, here := k*experts+e, me*experts+e
					send[k] = coll.Piece{At: r.w.Addr(me, src+uint64(from(me, there))), Bytes: uint64(row * rows[me][there])}
					recv[k] = coll.Piece{At: r.w.Addr(me, dst+uint64(at)), Bytes: uint64(row * rows[k][here])}
					at += row * rows[k][here]
				}
				p, err := m.PrepareAllToAllV(send, recv)
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Enqueue(r.streams[m.Rank.ID]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		for _, d := range r.local() {
			got := r.read(d, dst, uint64(len(ref[d])+64))
			if !bytes.Equal(got[:len(ref[d])], ref[d]) {
				t.Errorf("aligned to %d, rank %d: wrong bytes", align, d)
			}
			if !bytes.Equal(got[len(ref[d]):], bytes.Repeat([]byte{0xa5}, 64)) {
				t.Errorf("aligned to %d, rank %d: bytes after the last bin were written", align, d)
			}
		}
	}
}

func sum(v []int) (s int) {
	for _, x := range v {
		s += x
	}
	return s
}

// TestOneShotCopies runs all_reduce in one shot on tensors anywhere, which it copies into
// packets, and on symmetric ones, at two offsets; all ranks get the same bits.
func TestOneShotCopies(t *testing.T) {
	n := ranksOf(4)
	if n == 3 {
		n = 2
	}
	r := newRigT(t, n)
	rng := rand.New(rand.NewPCG(10, 10))
	const room = 32 << 10
	private := map[int]driver.Ptr{}
	for _, k := range r.w.Local() {
		p, err := r.drv.MemAlloc(k.Ctx, room)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.drv.MemFree(k.Ctx, p) })
		private[k.ID] = p
	}
	off := r.alloc(room)
	for _, dt := range []dtype.DType{dtype.F32, dtype.BF16} {
		for _, size := range []int{4, 8192, 8196} {
			for _, shift := range []int{0, 16} {
				for _, copied := range []bool{false, true} {
					name := fmt.Sprintf("%v, %d bytes at +%d, copied %v", dt, size, shift, copied)
					var in [][]byte
					for range n {
						in = append(in, randomBytes(rng, dt, size/dt.Size(), false))
					}
					at := func(rank int) driver.Ptr {
						if copied {
							return private[rank] + driver.Ptr(shift)
						}
						return r.w.Addr(rank, off) + driver.Ptr(shift)
					}
					clean := bytes.Repeat([]byte{0xa5}, 2*16384-shift)
					for _, rank := range r.local() {
						c, s := r.w.Rank(rank).Ctx, r.streams[rank]
						if err := r.drv.CopyIn(c, s, at(rank), slices.Concat(in[rank], clean[size:])); err != nil {
							t.Fatal(err)
						}
					}
					err := r.run(func(rank int) coll.Op {
						return coll.Op{Kind: kernels.AllReduce, DType: dt, Symmetric: !copied, Algo: kernels.OneShot,
							Tensors: []coll.Tensor{{Src: at(rank), Dst: at(rank) + 16384, Bytes: uint64(size)}}}
					})
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					ref := want(dt, kernels.Sum, in)
					for _, rank := range r.local() {
						got := make([]byte, len(clean))
						if err := r.drv.CopyOut(r.w.Rank(rank).Ctx, r.streams[rank], got, at(rank)); err != nil {
							t.Fatal(err)
						}
						expected := slices.Concat(in[rank], clean[size:16384], ref, clean[16384+size:])
						if !bytes.Equal(got, expected) {
							t.Fatalf("%s, rank %d: wrong bytes", name, rank)
						}
					}
				}
			}
		}
	}
}
