//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// words is v, so many times.
func words(v uint32, times int) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint32(nil, v), times)
}

// barrier keeps processes from beginning while another still writes, or reads.
func (r *rigT) barrier() {
	r.t.Helper()
	if err := r.w.Barrier(r.t.(*testing.T).Context()); err != nil {
		r.t.Fatal(err)
	}
}

// set gives words of all control pages the same value, as equally many calls would.
func (r *rigT) set(v uint32, at map[uint64]int) {
	r.t.Helper()
	r.barrier()
	for rank := range r.w.Size() {
		for off, times := range at {
			r.write(rank, r.g.Scratch().Ctl+off, words(v, times))
		}
	}
	r.barrier()
}

// counters are all words of a control page that count, and how many of each there are.
var counters = map[uint64]int{
	kernels.CtlEntry: kernels.MaxRanks, kernels.CtlEpoch: kernels.MaxBlocks, kernels.CtlFlagged: kernels.MaxBlocks,
	kernels.CtlDirect: kernels.MaxBlocks, kernels.CtlChunks: kernels.MaxBlocks, kernels.CtlChannel: 64 * 32,
	kernels.CtlExit: kernels.MaxBlocks * kernels.MaxRanks, kernels.CtlPushed: kernels.MaxBlocks * kernels.MaxRanks,
	kernels.CtlCredit: kernels.MaxBlocks * kernels.MaxRanks,
}

// counter reads a counter of a member.
func (r *rigT) counter(m *coll.Member, off uint64) uint32 {
	return binary.LittleEndian.Uint32(r.read(m.Rank.ID, r.g.Scratch().Ctl+off, 4))
}

// TestEpochWrap runs every protocol while its counters wrap, and while they change sign.
func TestEpochWrap(t *testing.T) {
	n := ranksOf(4)
	for _, start := range []uint32{math.MaxUint32 - 4, 1<<31 - 5} {
		t.Run(fmt.Sprintf("%#x", start), func(t *testing.T) {
			r := newRigT(t, n)
			rng := rand.New(rand.NewPCG(9, uint64(start)))
			r.set(start, counters)
			ran := map[kernels.Algo]int{}
			for round := range 8 {
				r.allProtocols(rng, round, ran)
			}
			for _, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
				if (n&(n-1) == 0 || algo == kernels.LL || algo == kernels.Direct || algo == kernels.Engine) && ran[algo] < 8 {
					t.Errorf("%d calls by %v ran", ran[algo], algo)
				}
			}
			for _, m := range r.g.Members() {
				for _, off := range []uint64{kernels.CtlEpoch, kernels.CtlFlagged, kernels.CtlDirect, kernels.CtlChunks, kernels.CtlChannel + 4*uint64((m.Index+1)%n)} {
					if no := off == kernels.CtlEpoch || off == kernels.CtlChunks; no && n == 3 {
						continue // nothing has counted: there is no such kernel for three
					}
					if v := r.counter(m, off); v-start > 1<<20 || v-start < 6 {
						t.Errorf("rank %d: the counter at %d went from %#x to %#x", m.Index, off, start, v)
					}
				}
			}
		})
	}
}

// allProtocols runs a call of each kind by each protocol.
func (r *rigT) allProtocols(rng *rand.Rand, round int, ran map[kernels.Algo]int) {
	r.t.Helper()
	small := 1 + rng.IntN(300)
	for _, c := range []caseT{
		{kind: kernels.AllReduce, algo: kernels.OneShot, counts: []int{small}},
		{kind: kernels.ReduceScatter, algo: kernels.OneShot, counts: []int{small}},
		{kind: kernels.AllReduce, algo: kernels.TwoShot, counts: []int{5000 + small}},
		{kind: kernels.AllReduce, algo: kernels.LL, counts: []int{small}},
		{kind: kernels.AllGather, algo: kernels.LL, counts: []int{20 * small}},
		{kind: kernels.ReduceScatter, algo: kernels.LL, counts: []int{small}},
		{kind: kernels.AllToAll, algo: kernels.LL, counts: []int{small}},
		{kind: kernels.AllReduce, algo: kernels.Direct, counts: []int{40 * small}},
		{kind: kernels.AllGather, algo: kernels.Direct, counts: []int{small}},
		{kind: kernels.ReduceScatter, algo: kernels.Direct, counts: []int{20 * small}},
		{kind: kernels.AllToAll, algo: kernels.Direct, counts: []int{small}},
		{kind: kernels.AllReduce, algo: kernels.Push, counts: []int{volume(50000 + 90*small)}},
		{kind: kernels.ReduceScatter, algo: kernels.Push, counts: []int{volume(20000 + 30*small)}},
		{kind: kernels.AllReduce, algo: kernels.Engine, counts: []int{30 * small}},
		{kind: kernels.ReduceScatter, algo: kernels.Engine, counts: []int{small}, beside: true},
		{kind: kernels.AllToAll, algo: kernels.Engine, counts: []int{small}},
	} {
		c.t = dtype.F32
		err := r.runCase(c, rng)
		var plan *kernels.PlanError
		if errors.As(err, &plan) && r.w.Size() == 3 {
			continue
		}
		if err != nil {
			r.t.Fatalf("round %d %v: %v", round, c, err)
		}
		ran[c.algo]++
	}
	if err := r.runUneven(randomSizes(rng, r.w.Size(), 2000), rng, 1); err != nil {
		r.t.Fatalf("round %d: %v", round, err)
	}
	if err := r.run(func(int) coll.Op { return coll.Op{Kind: kernels.Barrier} }); err != nil {
		r.t.Fatal(err)
	}
	for _, m := range r.g.Members() { // signals pile up
		n, s := r.w.Size(), r.streams[m.Rank.ID]
		for range 3 {
			if err := m.Signal(s, 5, (m.Index+1)%n); err != nil {
				r.t.Fatal(err)
			}
		}
		for range 3 {
			if err := m.Wait(s, 5, (m.Index+n-1)%n); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if err := r.check(); err != nil {
		r.t.Fatal(err)
	}
}

// stale fills the scratch of packets with flags with what an age of calls may have left
// there: packets of all early epochs, with other data, and of the last two epochs of the
// age before.
func (r *rigT) stale(rng *rand.Rand, early uint32) {
	sc := r.g.Scratch()
	r.barrier()
	for rank := range r.w.Size() {
		b := make([]byte, 0, 2*sc.FlaggedHalf)
		for half := range uint32(2) {
			for range sc.FlaggedHalf / 16 {
				e := 2 + half + 2*rng.Uint32N(early/2)
				if rng.IntN(8) == 0 {
					e = math.MaxUint32 - 1 + half
				}
				for range 2 {
					b = binary.LittleEndian.AppendUint32(b, rng.Uint32())
					b = binary.LittleEndian.AppendUint32(b, e)
				}
			}
		}
		r.write(rank, sc.Flagged, b)
	}
	r.barrier()
}

// TestStaleWrap has packets of an earlier age in all places when epochs begin anew: small
// calls wrap, and large calls come to the epochs of the old packets.
func TestStaleWrap(t *testing.T) {
	numbersOnly(t)
	const early = 12
	n := ranksOf(4)
	r := newRigT(t, n)
	ll := func(kind kernels.Collective, count int) func(*rand.Rand) error {
		return func(rng *rand.Rand) error {
			return r.runCase(caseT{kind: kind, t: dtype.F32, algo: kernels.LL, counts: []int{count}}, rng)
		}
	}
	uneven := func(most uint64) func(*rand.Rand) error {
		return func(rng *rand.Rand) error { return r.runUneven(randomSizes(rng, n, most), rng, 1) }
	}
	packets, _ := r.g.Scratch().AllToAllV(n)
	// Which calls reset their slots: those have small counts, fill a slot or have chunks in some.
	for i, wiping := range [][]func(*rand.Rand) error{
		{ll(kernels.AllReduce, 3)},
		{ll(kernels.AllGather, 9), ll(kernels.AllToAll, 5), ll(kernels.ReduceScatter, 700)},
		{uneven(60)},
		{uneven(3 * packets)},
		{ll(kernels.AllReduce, 20000), ll(kernels.AllReduce, 3), uneven(60), uneven(5 * packets), uneven(packets)},
	} {
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		r.stale(rng, early)
		for age := range 2 {
			r.set(math.MaxUint32-8, map[uint64]int{kernels.CtlFlagged: kernels.MaxBlocks})
			resets := 0
			for call := 0; ; call++ {
				e := r.counter(r.g.Members()[0], kernels.CtlFlagged)
				if e > 1 && e < 1<<20 {
					break
				}
				if e+1 >= kernels.FirstResetEpoch {
					resets++
				}
				if err := wiping[(call+age)%len(wiping)](rng); err != nil {
					t.Fatalf("calls %d, age %d, after epoch %#x: %v", i, age, e, err)
				}
			}
			if resets < 4 {
				t.Errorf("%d calls reset their slots", resets)
			}
			for call := range early + 4 {
				large := []func(*rand.Rand) error{ll(kernels.AllReduce, 24000), uneven(4 * packets), ll(kernels.AllToAll, 24000), uneven(packets)}
				if err := large[(call/2)%len(large)](rng); err != nil {
					t.Fatalf("calls %d, age %d, large call %d: %v", i, age, call, err)
				}
			}
		}
	}
}

// TestExitCounters has direct calls of one block for more than half of all numbers: the
// exit counters of other blocks must not look ahead then.
func TestExitCounters(t *testing.T) {
	n := ranksOf(4)
	r := newRigT(t, n)
	rng := rand.New(rand.NewPCG(1, 30))
	small := caseT{kind: kernels.AllGather, t: dtype.F32, algo: kernels.Direct, counts: []int{100}, blocks: 1}
	large := caseT{kind: kernels.AllReduce, t: dtype.F32, algo: kernels.Direct, counts: []int{50000}}
	at := map[uint64]int{kernels.CtlDirect: kernels.MaxBlocks, kernels.CtlEntry: kernels.MaxRanks, kernels.CtlExit: kernels.MaxRanks}
	for quarter := uint32(1); quarter <= 6; quarter++ { // all blocks were in use at 0
		r.set(quarter*kernels.Refresh-3, at)
		for range 5 {
			if err := r.runCase(small, rng); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range r.g.Members() {
			e := r.counter(m, kernels.CtlDirect)
			if e != quarter*kernels.Refresh+2 {
				t.Fatalf("rank %d: call %#x", m.Index, e)
			}
			for b := range uint64(kernels.MaxBlocks) {
				for src := range uint64(n) {
					v := r.counter(m, kernels.CtlExit+4*(b*kernels.MaxRanks+src))
					if behind := e - v; behind > kernels.Refresh {
						t.Fatalf("rank %d, call %#x: rank %d has left block %d in call %#x", m.Index, e, src, b, v)
					}
				}
			}
		}
	}
	if err := r.runCase(large, rng); err != nil {
		t.Fatal(err)
	}
}
