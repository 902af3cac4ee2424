//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// prefilledT runs collectives on one rank of a group whose peers launch nothing: what
// they would send is in this rank's memory before its kernel starts. So one kernel runs
// at a time and never waits, under tools that slow it down a hundred times or that look
// at one process only, such as compute-sanitizer's racecheck and synccheck.
//
// Every word that a peer sends holds the same element, so that nothing here depends on
// where a protocol places its packets and chunks.
type prefilledT struct {
	*rigT
	rank int
	rng  *rand.Rand
}

const allChannels, firstOfUser = 64, 64 - symm.UserChannels

// element is what peers send: 2.
func element(t dtype.DType) []byte {
	b := make([]byte, t.Size())
	if t.IsFloat() && t != dtype.F64 {
		storeSum(t, b, 2)
	} else {
		dtype.StoreInt(t, b, 2)
	}
	return b
}

func (r *prefilledT) word(off uint64) uint32 {
	return binary.LittleEndian.Uint32(r.read(r.rank, off, 4))
}

// prefill writes what all peers send in the next collective, and all that they announce.
func (r *prefilledT) prefill(t dtype.DType) error {
	sc, n := r.g.Scratch(), r.g.Size()
	value := binary.LittleEndian.Uint32(bytes.Repeat(element(t), 4/min(4, t.Size())))
	s, c := r.streams[r.rank], r.w.Rank(r.rank).Ctx
	for _, a := range []struct{ off, bytes uint64 }{{sc.Poisoned, 4 * sc.Region}, {sc.Staging, sc.StagingSize}} {
		if err := r.drv.Memset32(c, s, r.w.Addr(r.rank, a.off), value, a.bytes/4); err != nil {
			return err
		}
	}
	epoch := r.word(sc.Ctl+kernels.CtlFlagged) + 1
	packet := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, value), epoch)
	r.write(r.rank, sc.Flagged, bytes.Repeat(packet, int(2*sc.FlaggedHalf/8)))
	// Counters of the peers; those of the rank itself are its kernels' own.
	direct := r.word(sc.Ctl+kernels.CtlDirect) + 1
	chunks := r.read(r.rank, sc.Ctl+kernels.CtlChunks, 4*kernels.MaxBlocks)
	rows := func(off uint64, v func(block int) uint32) {
		all := r.read(r.rank, sc.Ctl+off, 4*kernels.MaxBlocks*kernels.MaxRanks)
		for b := range kernels.MaxBlocks {
			for k := range n {
				if k != r.rank {
					binary.LittleEndian.PutUint32(all[4*(b*kernels.MaxRanks+k):], v(b))
				}
			}
		}
		r.write(r.rank, sc.Ctl+off, all)
	}
	rows(kernels.CtlExit, func(int) uint32 { return direct })
	ahead := func(b int) uint32 { return binary.LittleEndian.Uint32(chunks[4*b:]) + 1<<16 }
	rows(kernels.CtlPushed, ahead)
	rows(kernels.CtlCredit, ahead)
	entries := r.read(r.rank, sc.Ctl+kernels.CtlEntry, 4*kernels.MaxRanks)
	signals := r.read(r.rank, sc.Ctl+kernels.CtlChannel, 128*allChannels)
	for k := range n {
		if k == r.rank {
			continue
		}
		binary.LittleEndian.PutUint32(entries[4*k:], direct)
		for at := 4 * k; at < len(signals); at += 128 {
			binary.LittleEndian.PutUint32(signals[at:], binary.LittleEndian.Uint32(signals[at+64:])+1)
		}
	}
	r.write(r.rank, sc.Ctl+kernels.CtlEntry, entries)
	r.write(r.rank, sc.Ctl+kernels.CtlChannel, signals)
	return nil
}

// sized is where the peers say that they send what recv has.
func (r *prefilledT) sized(recv []coll.Piece) {
	sc, n := r.g.Scratch(), r.g.Size()
	epoch := r.word(sc.Ctl+kernels.CtlFlagged) + 1
	slot := sc.FlaggedHalf / uint64(n) &^ 15
	for k, p := range recv {
		size := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(p.Bytes)), epoch)
		size = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(size, uint32(p.Bytes>>32)), epoch)
		r.write(r.rank, sc.Flagged+uint64(epoch&1)*sc.FlaggedHalf+uint64(k+1)*slot-16, size)
	}
}

// one enqueues something on the rank alone and waits for it.
func (r *prefilledT) one(enqueue func(m *coll.Member, s driver.Stream) error) error {
	m, s := r.g.Members()[r.rank], r.streams[r.rank]
	if err := enqueue(m, s); err != nil {
		return err
	}
	return m.Check(r.t.Context(), s)
}

// runCase runs c on the rank. Parts of a result that a peer would write stay untouched,
// or hold a peer's element where its packets bring them; everything else must be right,
// on this rank and on the peers.
func (r *prefilledT) runCase(c caseT) error {
	n, size := r.g.Size(), c.t.Size()
	if err := r.prefill(c.t); err != nil {
		return err
	}
	areas, inputs, free := r.place(c, func(rank, count int) []byte {
		if rank == r.rank {
			return randomBytes(r.rng, c.t, count, false)
		}
		return bytes.Repeat(element(c.t), count)
	})
	defer free()
	if err := r.one(func(m *coll.Member, s driver.Stream) error { return m.Enqueue(s, r.op(c, areas, r.rank)) }); err != nil {
		return err
	}
	ours, written, all := 0, 0, 0
	for i, a := range areas {
		for rank := range n {
			before := bytes.Repeat([]byte{0xa5}, int(a.out))
			if c.inPlace {
				before = inputs[i][rank]
			}
			got, err := r.guarded(rank, a.dst, a.out)
			if err != nil {
				return fmt.Errorf("tensor %d rank %d: %w", i, rank, err)
			}
			right, err := c.partly(got, expect(c, inputs[i], rank), before)
			if err != nil {
				return fmt.Errorf("tensor %d rank %d: %w", i, rank, err)
			}
			if rank == r.rank {
				ours, all = ours+right, all+int(a.out)/size
			} else {
				written += right
			}
		}
	}
	return c.enough(n, ours, written, all)
}

// partly counts the elements of got that are as wanted; the others must be as before.
func (c caseT) partly(got, want, before []byte) (right int, err error) {
	size, sent := c.t.Size(), element(c.t)
	for at := 0; at < len(got); at += size {
		g := got[at : at+size]
		switch {
		case bytes.Equal(g, want[at:at+size]):
			right++
		case bytes.Equal(g, before[at:at+size]):
		case c.algo == kernels.TwoShot && bytes.Equal(g, sent):
		default:
			return 0, fmt.Errorf("element %d is wrong: % x, want % x", at/size, g, want[at:at+size])
		}
	}
	return right, nil
}

// enough reports whether a rank wrote what is its part: all of its result by packets of one
// hop, its slice by two, and its slice or piece of every rank's result where it writes
// into peers' memory.
func (c caseT) enough(n, ours, written, all int) error {
	least := all
	switch c.algo {
	case kernels.TwoShot, kernels.Direct, kernels.Push:
		if c.kind != kernels.ReduceScatter {
			least = all / n
		}
	}
	others := 0
	if c.kind != kernels.ReduceScatter && (c.algo == kernels.Direct || c.algo == kernels.Push) {
		others = (n - 1) * (all / n)
	}
	if c.rest() { // slices are of whole units: the last may be short, or none
		least, others = min(least, 1), 0
	}
	if ours < least || written < others {
		return fmt.Errorf("%d of %d elements are right here and %d on the peers, want %d and %d", ours, all, written, least, others)
	}
	return nil
}

// rest reports whether the units of an all_reduce cannot be dealt out evenly.
func (c caseT) rest() bool {
	return c.kind == kernels.AllReduce && (len(c.counts) > 1 || c.counts[0]*c.t.Size()%(16*8) != 0)
}

// TestPrefilled runs every kernel of collectives on one rank alone, on messages of its
// peers that are there already.
func TestPrefilled(t *testing.T) {
	numbersOnly(t)
	for _, n := range []int{2, 4} {
		for _, rank := range []int{0, n - 1} {
			t.Run(fmt.Sprintf("rank %d of %d", rank, n), func(t *testing.T) {
				r := &prefilledT{rigT: newRigT(t, n), rank: rank, rng: rand.New(rand.NewPCG(5, uint64(n)))}
				r.all(t)
			})
		}
	}
}

func (r *prefilledT) all(t *testing.T) {
	ran := map[kernels.Algo]int{}
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll} {
		for _, dt := range []dtype.DType{dtype.BF16, dtype.F32, dtype.I32} {
			for _, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push} {
				for i, counts := range [][]int{{64 * r.g.Size()}, {8192}, {3, 1000, 64}} {
					c := caseT{kind: kind, t: dt, algo: algo, counts: counts, shift: uint64(i/2) * 4, inPlace: i == 1 && kind == kernels.AllReduce}
					if algo == kernels.Push && i == 1 { // one block, more chunks than it has slots
						c.counts, c.blocks = []int{6 * 16 * kernels.PushUnits / dt.Size()}, 1
						if kind == kernels.AllReduce {
							c.counts[0] *= r.g.Size()
						}
					}
					err := r.runCase(c)
					var plan *kernels.PlanError
					if errors.As(err, &plan) {
						continue // the protocol does not serve this combination
					}
					if err != nil {
						t.Fatalf("%v: %v", c, err)
					}
					ran[algo]++
				}
			}
		}
	}
	for algo, least := range map[kernels.Algo]int{kernels.OneShot: 12, kernels.TwoShot: 6, kernels.LL: 24, kernels.Direct: 30, kernels.Push: 12} {
		if ran[algo] < least {
			t.Errorf("%d cases of %v ran, want at least %d", ran[algo], algo, least)
		}
	}
	r.signals(t)
	r.uneven(t)
	r.chunks(t)
}

// signals runs the barrier, a signal and a wait.
func (r *prefilledT) signals(t *testing.T) {
	peer := (r.rank + 1) % r.g.Size()
	heard := func(channel uint64) uint32 {
		at := r.g.Scratch().Ctl + kernels.CtlChannel + 128*channel + 4*uint64(r.rank)
		return binary.LittleEndian.Uint32(r.read(peer, at, 4))
	}
	if err := r.prefill(dtype.F32); err != nil {
		t.Fatal(err)
	}
	before := [2]uint32{heard(0), heard(firstOfUser + 3)}
	err := r.one(func(m *coll.Member, s driver.Stream) error {
		return errors.Join(m.Enqueue(s, coll.Op{Kind: kernels.Barrier}), m.Signal(s, 3, peer), m.Wait(s, 3, peer))
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := [2]uint32{heard(0), heard(firstOfUser + 3)}; after != [2]uint32{before[0] + 1, before[1] + 1} {
		t.Errorf("the peer has heard %v, before the barrier and the signal %v", after, before)
	}
}

// uneven runs an all_to_all of different pieces, one of them empty.
func (r *prefilledT) uneven(t *testing.T) {
	n := r.g.Size()
	if err := r.prefill(dtype.U8); err != nil {
		t.Fatal(err)
	}
	src, dst := r.alloc(1<<14), r.alloc(1<<14)
	r.write(r.rank, dst, bytes.Repeat([]byte{0xa5}, 1<<14))
	own := bytes.Repeat([]byte{7}, 1<<14)
	r.write(r.rank, src, own)
	send, recv := make([]coll.Piece, n), make([]coll.Piece, n)
	var want []byte
	for k := range n {
		bytesOf := uint64(33 * (k + n - r.rank) % n * 40) // some are empty
		if k == r.rank {
			bytesOf = 100
		}
		send[k] = coll.Piece{At: r.w.Addr(r.rank, src), Bytes: bytesOf}
		recv[k] = coll.Piece{At: r.w.Addr(r.rank, dst+uint64(len(want))), Bytes: bytesOf}
		part := bytes.Repeat(element(dtype.U8), int(bytesOf))
		if k == r.rank {
			part = own[:bytesOf]
		}
		want = append(want, part...)
	}
	r.sized(recv)
	err := r.one(func(m *coll.Member, s driver.Stream) error {
		p, err := m.PrepareAllToAllV(send, recv)
		if err != nil {
			return err
		}
		return p.Enqueue(s)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.read(r.rank, dst, uint64(len(want))+8); !bytes.Equal(got[:len(want)], want) || got[len(want)] != 0xa5 {
		t.Errorf("uneven all_to_all: wrong bytes")
	}
}

// chunks runs an all_to_all of one piece that is too large for packets, each way. What
// is in staging are packets: an element and the epoch.
func (r *prefilledT) chunks(t *testing.T) {
	n := r.g.Size()
	peer := (r.rank + 1) % n
	packets, chunk := r.g.Scratch().AllToAllV(n)
	size := packets + 5*uint64(chunk) + 7 // a round more than there are places would wait for the peer
	if err := r.prefill(dtype.U8); err != nil {
		t.Fatal(err)
	}
	epoch := r.word(r.g.Scratch().Ctl+kernels.CtlFlagged) + 1
	packet := binary.LittleEndian.AppendUint32(bytes.Repeat(element(dtype.U8), 4), epoch)
	src, dst := r.alloc(size), r.alloc(size+8)
	defer func() {
		if err := errors.Join(r.w.Free(src), r.w.Free(dst)); err != nil {
			t.Error(err)
		}
	}()
	own := randomBytes(r.rng, dtype.U8, int(size), false)
	r.write(r.rank, src, own)
	r.write(r.rank, dst, bytes.Repeat([]byte{0xa5}, int(size)+8))
	send, recv := make([]coll.Piece, n), make([]coll.Piece, n)
	send[peer] = coll.Piece{At: r.w.Addr(r.rank, src), Bytes: size}
	recv[peer] = coll.Piece{At: r.w.Addr(r.rank, dst), Bytes: size}
	r.sized(recv)
	err := r.one(func(m *coll.Member, s driver.Stream) error {
		p, err := m.PrepareAllToAllV(send, recv)
		if err != nil {
			return err
		}
		return p.Enqueue(s)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat(packet, int(size/8)+1)[:size]
	if got := r.read(r.rank, dst, size+8); !bytes.Equal(got[:size], want) || got[size] != 0xa5 {
		t.Errorf("uneven all_to_all of %d bytes: wrong bytes", size)
	}
	half := r.g.Scratch().Flagged + uint64(epoch&1)*r.g.Scratch().FlaggedHalf
	slot := r.g.Scratch().FlaggedHalf / uint64(n) &^ 15
	if got := r.read(peer, half+uint64(r.rank)*slot, uint64(chunk)); !bytes.Equal(got, own[:chunk]) {
		t.Error("the peer has not got the first chunk")
	}
	if got := r.read(r.rank, half+uint64(peer)*slot, uint64(chunk)); !bytes.Equal(got, make([]byte, chunk)) {
		t.Error("what was taken has not been cleared")
	}
}
