//go:build linux

package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/eager"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// operandT is one tensor of an eager call: count elements are one rank's piece.
type operandT struct {
	t       symm.DType
	count   int
	private bool // in memory of the rank's own
	inPlace bool
	shift   uint64
	skew    bool // more of shift on every rank; for private ones
}

// at is where an operand begins behind its guard.
func (o operandT) at(rank int) driver.Ptr {
	if o.skew {
		return guard + driver.Ptr(o.shift*uint64(rank))
	}
	return guard + driver.Ptr(o.shift)
}

type eagerT struct {
	kind  kernels.Collective
	red   kernels.Reduction
	root  int
	pairs [][2]int
	ops   []operandT
}

func (c eagerT) String() string {
	return fmt.Sprintf("%v/%v/root %d/%v/%+v", c.kind, c.red, c.root, c.pairs, c.ops)
}

func (c eagerT) start(ctx context.Context, m *eager.Comm, s driver.Stream, ops []symm.Operand) (eager.Work, error) {
	switch c.kind {
	case kernels.AllReduce:
		return m.AllReduce(ctx, s, c.red, ops...)
	case kernels.AllGather:
		return m.AllGather(ctx, s, ops...)
	case kernels.ReduceScatter:
		return m.ReduceScatter(ctx, s, c.red, ops...)
	case kernels.AllToAll:
		return m.AllToAll(ctx, s, ops...)
	case kernels.Broadcast:
		return m.Broadcast(ctx, s, c.root, ops...)
	case kernels.Reduce:
		return m.Reduce(ctx, s, c.red, c.root, ops...)
	case kernels.Permute:
		return m.Permute(ctx, s, c.pairs, ops...)
	}
	return m.Barrier(ctx, s)
}

// want is a rank's result, given the operands of all and what was in its place before.
func (c eagerT) want(o operandT, rank int, in [][]byte, before []byte) []byte {
	switch c.kind {
	case kernels.Broadcast, kernels.Reduce, kernels.Permute:
		return rootedT{kind: c.kind, t: o.t, red: c.red, root: c.root, pairs: c.pairs}.want(rank, in, before)
	}
	out := expect(caseT{kind: c.kind, red: c.red, t: o.t}, in, rank)
	if c.kind == kernels.ReduceScatter && o.inPlace {
		full := bytes.Clone(before)
		copy(full[rank*len(out):], out)
		return full
	}
	return out
}

// put and get are for memory of either kind.
func (r *rigT) put(rank int, at driver.Ptr, b []byte) {
	r.t.Helper()
	if err := r.drv.CopyIn(r.w.Rank(rank).Ctx, r.streams[rank], at, b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rigT) get(rank int, at driver.Ptr, n uint64) []byte {
	r.t.Helper()
	b := make([]byte, n)
	if err := r.drv.CopyOut(r.w.Rank(rank).Ctx, r.streams[rank], b, at); err != nil {
		r.t.Fatal(err)
	}
	return b
}

// places allocates bytes on every rank of this process, symmetric or not, with room for
// guards around them.
func (r *rigT) places(o operandT, bytes uint64) (at map[int]driver.Ptr, free func()) {
	at = map[int]driver.Ptr{}
	room := bytes + 2*guard + 16 + 16*o.shift
	if !o.private {
		off := r.alloc(room)
		for _, rank := range r.local() {
			at[rank] = r.w.Addr(rank, off) + o.at(rank)
		}
		return at, func() { r.w.Free(off) }
	}
	for _, rank := range r.local() {
		p, err := r.drv.MemAlloc(r.w.Rank(rank).Ctx, room)
		if err != nil {
			r.t.Fatal(err)
		}
		at[rank] = p + o.at(rank)
	}
	return at, func() {
		for rank, p := range at {
			if err := r.drv.MemFree(r.w.Rank(rank).Ctx, p-o.at(rank)); err != nil {
				r.t.Error(err)
			}
		}
	}
}

// placedT is an operand of a call in memory, with guards around it.
type placedT struct {
	src, dst map[int]driver.Ptr // by rank; equal if it is in place
	in, out  int                // elements
	bytes    uint64             // of the result
	data     [][]byte           // by rank
	before   []byte             // what the result overwrites; nil where that is the operand
	free     []func()
}

// placeOperand fills memory for an operand of a call of that kind, on all ranks here.
func (r *rigT) placeOperand(kind kernels.Collective, o operandT, rng *rand.Rand) *placedT {
	n := r.w.Size()
	p := &placedT{}
	p.in, p.out = sizes(kind, n, o.count)
	if o.inPlace {
		p.in, p.out = max(p.in, p.out), max(p.in, p.out)
	}
	size := uint64(o.t.Size())
	take := func(bytes uint64) map[int]driver.Ptr {
		at, free := r.places(o, bytes)
		p.free = append(p.free, free)
		return at
	}
	p.src, p.bytes = take(uint64(p.in)*size), uint64(p.out)*size
	if p.dst = p.src; !o.inPlace {
		p.dst = take(p.bytes)
		p.before = bytes.Repeat([]byte{0x3c}, int(p.bytes))
	}
	for range n {
		p.data = append(p.data, randomBytes(rng, o.t, p.in, false))
	}
	for _, rank := range r.local() {
		r.put(rank, p.dst[rank]-guard, bytes.Join([][]byte{guardBytes, p.before, guardBytes}, nil)[:uint64(2*guard)+uint64(len(p.before))])
		r.put(rank, p.src[rank]-guard, guardBytes)
		r.put(rank, p.src[rank], append(bytes.Clone(p.data[rank]), guardBytes...))
	}
	if kind == kernels.AllGather && o.inPlace { // each rank's piece is in its place
		for rank, b := range p.data {
			k := len(b) / n
			p.data[rank] = b[rank*k : (rank+1)*k]
		}
	}
	return p
}

func (p *placedT) operand(o operandT, rank int) symm.Operand {
	src := symm.Buffer{At: p.src[rank], Count: uint64(p.in), DType: o.t}
	if o.inPlace {
		return src.InPlace()
	}
	return src.Into(symm.Buffer{At: p.dst[rank], Count: uint64(p.out), DType: o.t})
}

// compare compares a rank's result of operand i of c, and its guards.
func (p *placedT) compare(r *rigT, c eagerT, i, rank int) error {
	got := r.get(rank, p.dst[rank]-guard, p.bytes+2*guard)
	if !bytes.Equal(got[:guard], guardBytes) || !bytes.Equal(got[guard+p.bytes:], guardBytes) {
		return fmt.Errorf("operand %d rank %d: bytes outside the result were written", i, rank)
	}
	before := p.before
	if before == nil {
		before = p.data[rank]
	}
	if at := same(c.ops[i].t, got[guard:guard+p.bytes], c.want(c.ops[i], rank, p.data, before)); at >= 0 {
		return fmt.Errorf("operand %d rank %d: element %d is wrong", i, rank, at)
	}
	return nil
}

// runEager runs c, times times, on fresh data and compares all bytes, guards included.
func (r *rigT) runEager(c eagerT, rng *rand.Rand, times int) error {
	ops := map[int][]symm.Operand{}
	var all []*placedT
	for _, o := range c.ops {
		p := r.placeOperand(c.kind, o, rng)
		for _, free := range p.free {
			defer free()
		}
		for _, rank := range r.local() {
			ops[rank] = append(ops[rank], p.operand(o, rank))
		}
		all = append(all, p)
	}
	works := map[int]eager.Work{}
	for _, m := range r.g.Members() {
		rank := m.Rank.ID
		for i := range times {
			w, err := c.start(r.t.Context(), r.comm(m), r.streams[rank], ops[rank])
			if err != nil {
				return err
			}
			if i < times-1 {
				if err := w.Close(); err != nil {
					return err
				}
			}
			works[rank] = w
		}
	}
	for _, m := range r.g.Members() {
		rank := m.Rank.ID
		if err := errors.Join(works[rank].Wait(r.t.Context()), works[rank].Close()); err != nil {
			return err
		}
		for i, p := range all {
			if err := p.compare(r, c, i, rank); err != nil {
				return err
			}
		}
	}
	return nil
}

// eagerCases are calls of every kind with operands of every kind for a group of n.
func eagerCases(n int) []eagerT {
	var out []eagerT
	kinds := []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll, kernels.Broadcast, kernels.Reduce, kernels.Permute}
	for i, kind := range kinds {
		c := eagerT{kind: kind, root: i % n, red: []kernels.Reduction{kernels.Sum, kernels.Max}[i%2]}
		if kind == kernels.Permute {
			for k := range n {
				c.pairs = append(c.pairs, [2]int{k, (k + 1) % n})
			}
		}
		add := func(ops ...operandT) {
			c.ops = ops
			out = append(out, c)
		}
		for _, private := range []bool{false, true} {
			for _, t := range []symm.DType{symm.F32, symm.BF16, symm.F64, symm.U8} {
				add(operandT{t: t, count: 1001, private: private})
				add(operandT{t: t, count: 333, private: private, shift: uint64(t.Size())})
				if kind != kernels.Permute {
					add(operandT{t: t, count: 640, private: private, inPlace: true})
				}
			}
			add(operandT{t: symm.F32, count: 0, private: private})
		}
		// More than fits in the scratch of the test: the region holds 512 KiB, a slot of flagged
		// packets 1 MiB/n.
		large := 300_001 / n
		if kind == kernels.AllReduce || kind == kernels.Broadcast || kind == kernels.Reduce || kind == kernels.Permute {
			large = 300_001
		}
		inPlace := kind != kernels.Permute
		add(operandT{t: symm.BF16, count: large, private: true})
		add(operandT{t: symm.F32, count: large, private: true, inPlace: inPlace, shift: 4})
		add(operandT{t: symm.I32, count: large, private: true}, operandT{t: symm.I32, count: 5, private: true}, operandT{t: symm.I32, count: large / 2, private: true, inPlace: inPlace})
		// Private tensors need not have equal offsets on all ranks.
		for _, t := range []symm.DType{symm.F32, symm.BF16, symm.U8} {
			add(operandT{t: t, count: 777, private: true, shift: uint64(t.Size()), skew: true})
			add(operandT{t: t, count: large / 4, private: true, shift: uint64(t.Size()), skew: true, inPlace: inPlace})
		}
		// A bucket of all types and places, and of more than a launch takes.
		add(operandT{t: symm.F32, count: 100}, operandT{t: symm.F16, count: 7, private: true}, operandT{t: symm.F32, count: 100, private: true, inPlace: inPlace},
			operandT{t: symm.U8, count: 0}, operandT{t: symm.F32, count: 1, inPlace: inPlace}, operandT{t: symm.F16, count: 64, shift: 2}, operandT{t: symm.I64, count: 33, private: true})
		var many []operandT
		for k := range kernels.MaxSegs + 5 {
			many = append(many, operandT{t: []symm.DType{symm.F32, symm.BF16}[k%7/6], count: 16 + k, private: k%2 == 1})
		}
		add(many...)
	}
	return out
}

func TestEager(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			needsQueues(t, n, 3) // each has several calls under way
			r := newRigT(t, n)
			rng := rand.New(rand.NewPCG(31, uint64(n)))
			for _, c := range eagerCases(n) {
				if (sampled() || inProcesses() && n > 2) && (rng.IntN(8) != 0 || c.ops[0].count > 100_000) {
					continue
				}
				times := 1
				if !(c.kind == kernels.AllToAll || c.kind == kernels.AllReduce || c.kind == kernels.ReduceScatter || c.kind == kernels.Reduce) {
					times = 3 // what it does, it does again
				}
				if err := r.runEager(c, rng, times); err != nil {
					t.Fatalf("%v: %v", c, err)
				}
			}
		})
	}
}

// TestEagerUneven has a size for every pair of ranks, zero among them.
func TestEagerUneven(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRigT(t, n)
			rng := rand.New(rand.NewPCG(32, uint64(n)))
			for round := range 6 {
				o := operandT{t: symm.I32, private: round%2 == 1}
				counts := make([][]int, n)
				data := make([][][]byte, n)
				for s := range n {
					for range n {
						k := rng.IntN(3) * rng.IntN(3000)
						counts[s], data[s] = append(counts[s], k), append(data[s], randomBytes(rng, o.t, k, false))
					}
				}
				const room = 6000
				src, freeSrc := r.places(o, room*4*uint64(n))
				dst, freeDst := r.places(o, room*4*uint64(n))
				works := map[int]eager.Work{}
				for _, m := range r.g.Members() {
					rank := m.Rank.ID
					pieces := make([]symm.Operand, n)
					for p := range n {
						at := driver.Ptr(p * room * 4)
						r.put(rank, src[rank]+at, data[rank][p])
						pieces[p] = symm.Buffer{At: src[rank] + at, Count: uint64(counts[rank][p]), DType: o.t}.Into(symm.Buffer{At: dst[rank] + at, Count: uint64(counts[p][rank]), DType: o.t})
					}
					w, err := r.comm(m).AllToAllV(t.Context(), r.streams[rank], pieces...)
					if err != nil {
						t.Fatal(err)
					}
					works[rank] = w
				}
				for rank, w := range works {
					if err := errors.Join(w.Wait(t.Context()), w.Close()); err != nil {
						t.Fatal(err)
					}
					for p := range n {
						if !bytes.Equal(r.get(rank, dst[rank]+driver.Ptr(p*room*4), uint64(4*counts[p][rank])), data[p][rank]) {
							t.Fatalf("round %d: piece of rank %d on rank %d is wrong", round, p, rank)
						}
					}
				}
				freeSrc()
				freeDst()
			}
		})
	}
}

// TestEagerRefuses sees wrong arguments before anything is enqueued.
func TestEagerRefuses(t *testing.T) {
	r := newRigT(t, 2)
	m, s := r.member(r.local()[0]), r.streams[r.local()[0]]
	x, err := m.Rank.Buffer(r.alloc(4096), symm.F32, 1024)
	if err != nil {
		t.Fatal(err)
	}
	part := func(at, n uint64) symm.Buffer {
		b, err := x.Slice(at, n)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	half, err := part(0, 512).As(symm.BF16)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	does := func(_ eager.Work, err error) error { return err }
	for _, c := range []struct {
		err  error
		text string
	}{
		{does(r.comm(m).AllReduce(ctx, s, kernels.Sum, part(0, 4).Into(part(8, 5)))), "all_reduce: operand 0: 4 elements into 5"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Sum, x.Into(half))), "a source of f32 and a result of bf16"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Sum, part(0, 8).Into(part(4, 8)))), "source 0 (f32[8] at"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Sum, part(0, 8).Into(part(32, 8)), part(64, 8).Into(part(36, 8)))), "result 0 (f32[8] at"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Sum, part(0, 8).Into(part(32, 8)), part(32, 8).Into(part(64, 8)))), "overlaps"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Avg, symm.Buffer{At: x.At, Count: 4, DType: symm.I32}.InPlace())), "only floats can be averaged"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Sum, symm.Buffer{At: 0, Count: 4, DType: symm.F32}.InPlace())), "4 elements of f32 without an address"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Sum, symm.Buffer{At: x.At + 2, Count: 4, DType: symm.F32}.InPlace())), "is not aligned to an element of f32"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Sum, symm.Buffer{At: x.At, Count: 1 << 62, DType: symm.F32}.InPlace())), "do not fit in memory"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Sum, symm.Buffer{At: x.At, Count: 4, DType: 0}.InPlace())), "element type invalid"},
		{does(r.comm(m).AllReduce(ctx, s, kernels.Reduction(9), part(0, 4).InPlace())), "unknown reduction"},
		{does(r.comm(m).AllGather(ctx, s, part(0, 4).Into(part(8, 9)))), "4 elements of 2 ranks do not make the result's 9"},
		{does(r.comm(m).AllGather(ctx, s, part(0, 3).InPlace())), "equal multiples of the 2 ranks"},
		{does(r.comm(m).AllGather(ctx, s, part(2, 4).Into(part(0, 8)))), "overlaps"},
		{does(r.comm(m).ReduceScatter(ctx, s, kernels.Sum, part(0, 9).Into(part(16, 4)))), "the 9 elements are no 4 for each of 2 ranks"},
		{does(r.comm(m).AllToAll(ctx, s, part(0, 9).Into(part(16, 9)))), "equal multiples of the 2 ranks"},
		{does(r.comm(m).AllToAllV(ctx, s, part(0, 9).Into(part(16, 9)))), "all_to_all_uneven: 1 pieces in a group of 2"},
		{does(r.comm(m).Broadcast(ctx, s, 2, part(0, 9).InPlace())), "root must be in [0, 2), got 2"},
		{does(r.comm(m).Reduce(ctx, s, kernels.Sum, -1, part(0, 9).InPlace())), "root must be in [0, 2), got -1"},
		{does(r.comm(m).Permute(ctx, s, [][2]int{{0, 2}}, part(0, 9).Into(part(16, 9)))), "ranks must be in [0, 2)"},
		{does(r.comm(m).Permute(ctx, s, [][2]int{{0, 1}}, part(0, 9).InPlace())), "overlaps"},
	} {
		var plan *kernels.PlanError
		if !errors.As(c.err, &plan) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("got %v, want %q", c.err, c.text)
		}
	}
	over := func(_ symm.Buffer, err error) error { return err }
	for i, err := range []error{
		over(x.Slice(1024, 1)), over(x.Slice(1, 1024)), over(x.Slice(1<<63, 2)), over(x.As(0)), over(part(1, 3).As(symm.F64)),
		over(m.Rank.Buffer(32<<20, symm.F32, 1)), over(m.Rank.Buffer(0, symm.F32, 1<<40)), over(m.Rank.Buffer(0, symm.F32, 1<<63)), over(m.Rank.Buffer(2, symm.F32, 1)),
	} {
		var bad *symm.ArgumentError
		if !errors.As(err, &bad) {
			t.Errorf("%d: got %v", i, err)
		}
	}
	private, err := r.drv.MemAlloc(m.Rank.Ctx, 64)
	if err != nil {
		t.Fatal(err)
	}
	defer r.drv.MemFree(m.Rank.Ctx, private)
	if !m.Rank.Symmetric(x) || m.Rank.Symmetric(symm.Buffer{At: private, Count: 16, DType: symm.F32}) || m.Rank.Symmetric(symm.Buffer{At: x.At, Count: 1 << 30, DType: symm.F32}) || m.Rank.Symmetric(symm.Buffer{At: x.At - 1<<40, Count: 4, DType: symm.F32}) {
		t.Error("the range check is wrong")
	}
	done, cancel := context.WithCancelCause(ctx)
	why := errors.New("enough")
	cancel(why)
	if _, err := r.comm(m).AllReduce(done, s, kernels.Sum, x.InPlace()); !errors.Is(err, why) || m.Err() != nil {
		t.Errorf("a cancelled call: %v, group %v", err, m.Err())
	}
	m.Abort(why)
	if _, err := r.comm(m).AllReduce(ctx, s, kernels.Sum, x.InPlace()); !errors.Is(err, symm.ErrCanceled) {
		t.Errorf("a call of a broken group: %v", err)
	}
}
