//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

const guard = 64

// caseT is one collective with known inputs.
type caseT struct {
	kind    kernels.Collective
	red     kernels.Reduction
	t       dtype.DType
	algo    kernels.Algo
	counts  []int // elements of one rank's piece, one entry per tensor
	shift   uint64
	inPlace bool
	special bool
	beside  bool
	blocks  int // 0 for the planner's
}

func (c caseT) String() string {
	return fmt.Sprintf("%v/%v/%v/%v/%v+%d/in place %v/beside %v", c.kind, c.algo, c.t, c.red, c.counts, c.shift, c.inPlace, c.beside)
}

// runCase runs c on fresh random data and compares every byte, guards included.
func (r *rigT) runCase(c caseT, rng *rand.Rand) error {
	n, size := r.w.Size(), c.t.Size()
	type area struct{ src, dst, in, out uint64 }
	var areas []area
	inputs := make([][][]byte, len(c.counts)) // by tensor, by rank
	for i, count := range c.counts {
		in, out := count, count
		switch c.kind {
		case kernels.AllGather:
			out *= n
		case kernels.ReduceScatter:
			in *= n
		case kernels.AllToAll:
			in, out = in*n, out*n
		}
		a := area{in: uint64(in * size), out: uint64(out * size)}
		a.src = r.alloc(a.in+2*guard+16) + guard + c.shift
		defer r.w.Free(a.src - guard - c.shift)
		a.dst = a.src
		if !c.inPlace {
			a.dst = r.alloc(a.out+2*guard+16) + guard + c.shift
			defer r.w.Free(a.dst - guard - c.shift)
		}
		areas = append(areas, a)
		for rank := 0; rank < n; rank++ {
			if !c.inPlace {
				r.write(rank, a.dst-guard, bytes.Repeat([]byte{0xa5}, int(a.out)+2*guard))
			}
			b := randomBytes(rng, c.t, in, c.special)
			inputs[i] = append(inputs[i], b)
			r.write(rank, a.src-guard, append(append(bytes.Repeat([]byte{0xa5}, guard), b...), bytes.Repeat([]byte{0xa5}, guard)...))
		}
	}
	err := r.run(func(rank int) Op {
		op := Op{Kind: c.kind, Red: c.red, DType: c.t, Symmetric: true, Algo: c.algo, Beside: c.beside}
		for i, a := range areas {
			op.Tensors = append(op.Tensors, Tensor{Src: r.w.Addr(rank, a.src), Dst: r.w.Addr(rank, a.dst), Bytes: uint64(c.counts[i] * size)})
		}
		return op
	})
	if err != nil {
		return err
	}
	for i, a := range areas {
		for rank := 0; rank < n; rank++ {
			got := r.read(rank, a.dst-guard, a.out+2*guard)
			for j := 0; j < guard; j++ {
				if got[j] != 0xa5 || got[len(got)-1-j] != 0xa5 {
					return fmt.Errorf("tensor %d rank %d: bytes outside the result were written", i, rank)
				}
			}
			if at := same(c.t, got[guard:len(got)-guard], expect(c, inputs[i], rank)); at >= 0 {
				return fmt.Errorf("tensor %d rank %d: element %d is wrong", i, rank, at)
			}
		}
	}
	return nil
}

func expect(c caseT, in [][]byte, rank int) []byte {
	n := len(in)
	switch c.kind {
	case kernels.AllReduce:
		return want(c.t, c.red, in)
	case kernels.AllGather:
		return bytes.Join(in, nil)
	}
	piece := len(in[0]) / n
	var parts [][]byte
	for _, b := range in {
		parts = append(parts, b[rank*piece:(rank+1)*piece])
	}
	if c.kind == kernels.AllToAll {
		return bytes.Join(parts, nil)
	}
	return want(c.t, c.red, parts)
}

// allCases lists what every protocol must serve for a group of n.
func allCases(n int) []caseT {
	var out []caseT
	counts := []int{1, 2, 5, 64, 333, 4097}
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll} {
		reduces := kind == kernels.AllReduce || kind == kernels.ReduceScatter
		for _, t := range dtype.All() {
			if reduces && t == dtype.Bool {
				continue
			}
			reds := []kernels.Reduction{kernels.Sum, kernels.Avg, kernels.Prod, kernels.Min, kernels.Max}
			if !reduces {
				reds = reds[:1]
			}
			for _, red := range reds {
				if red == kernels.Avg && !t.IsFloat() {
					continue
				}
				for _, algo := range []kernels.Algo{kernels.Auto, kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
					count := counts[len(out)%len(counts)]
					shift := uint64(len(out)%4*t.Size()) % 16
					c := caseT{kind: kind, red: red, t: t, algo: algo, counts: []int{count}, shift: shift, special: true}
					out = append(out, c)
					c.counts, c.shift = []int{3, 1000, 17, 64}, 0
					out = append(out, c)
					if kind == kernels.AllReduce {
						c.inPlace, c.counts = true, []int{count}
						out = append(out, c)
					}
					if algo == kernels.Engine {
						c.beside = true
						out = append(out, c)
						c.counts, c.inPlace = []int{3, 1000, 17, 64}, false
						out = append(out, c)
					}
				}
			}
		}
	}
	return append(out,
		caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: kernels.Push, counts: []int{200003}},
		caseT{kind: kernels.AllReduce, t: dtype.F32, algo: kernels.Push, counts: []int{90000, 7, 50001}, inPlace: true},
		caseT{kind: kernels.ReduceScatter, t: dtype.BF16, algo: kernels.Push, counts: []int{70000}},
		caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: kernels.Engine, counts: []int{300007}, inPlace: true},
		caseT{kind: kernels.ReduceScatter, t: dtype.F32, algo: kernels.Engine, counts: []int{150000}},
		caseT{kind: kernels.AllGather, t: dtype.I8, algo: kernels.Direct, counts: []int{100001}},
		// Several rounds of staging, small and large tensors in one bucket, push after beside.
		caseT{kind: kernels.AllReduce, t: dtype.BF16, algo: kernels.Engine, counts: []int{300007, 5, 70000}, inPlace: true, beside: true},
		caseT{kind: kernels.AllReduce, t: dtype.F32, counts: []int{400001, 3, 20000}, beside: true},
		caseT{kind: kernels.ReduceScatter, t: dtype.BF16, counts: []int{200000, 16, 3}, beside: true},
		caseT{kind: kernels.ReduceScatter, t: dtype.BF16, algo: kernels.Push, counts: []int{70000}},
		caseT{kind: kernels.ReduceScatter, t: dtype.F32, algo: kernels.Engine, counts: []int{300000, 9, 40000}, beside: true},
		caseT{kind: kernels.AllGather, t: dtype.I8, counts: []int{100001, 7, 33}, beside: true},
		caseT{kind: kernels.AllToAll, t: dtype.F16, counts: []int{1, 30001}, beside: true},
	)
}

func TestCollectives(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRigT(t, n)
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			ran := 0
			for _, c := range allCases(n) {
				err := r.runCase(c, rng)
				var plan *kernels.PlanError
				if errors.As(err, &plan) && c.algo != kernels.Auto {
					continue // the protocol does not serve this combination
				}
				if err != nil {
					t.Fatalf("%v: %v", c, err)
				}
				ran++
			}
			if ran < 200 {
				t.Errorf("only %d cases ran", ran)
			}
		})
	}
}

// TestRankOrder places 2^24, 1 and -2^24 on three consecutive ranks: any other
// order of the sum, or a narrower accumulator, gives another result.
func TestRankOrder(t *testing.T) {
	const n, count = 4, 512
	r := newRigT(t, n)
	for _, dt := range []dtype.DType{dtype.F32, dtype.BF16} {
		in := make([][]byte, n)
		for rank := range in {
			for i := 0; i < count; i++ {
				v := float32(0)
				switch (rank - i%n + n) % n {
				case 0:
					v = 1 << 24
				case 1:
					v = 1
				case 2:
					v = -(1 << 24)
				}
				var b [4]byte
				putFloat(dt, b[:], v)
				in[rank] = append(in[rank], b[:dt.Size()]...)
			}
		}
		ref := want(dt, kernels.Sum, in)
		if bytes.Count(ref, []byte{0}) == len(ref) {
			t.Fatal("the probe does not tell orders apart")
		}
		src, dst := r.alloc(4096), r.alloc(4096)
		for _, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
			for rank := range in {
				r.write(rank, src, in[rank])
			}
			err := r.run(func(rank int) Op {
				return Op{Kind: kernels.AllReduce, DType: dt, Symmetric: true, Algo: algo,
					Tensors: []Tensor{{Src: r.w.Addr(rank, src), Dst: r.w.Addr(rank, dst), Bytes: uint64(len(ref))}}}
			})
			if err != nil {
				t.Fatal(err)
			}
			for rank := range in {
				if got := r.read(rank, dst, uint64(len(ref))); !bytes.Equal(got, ref) {
					t.Errorf("%v %v rank %d: not the sum in rank order", algo, dt, rank)
				}
			}
		}
	}
}

func TestUnevenAllToAll(t *testing.T) {
	const n = 4
	r := newRigT(t, n)
	rng := rand.New(rand.NewPCG(3, 3))
	src, dst := r.alloc(1<<16), r.alloc(1<<16)
	for round := 0; round < 20; round++ {
		var sizes [n][n]uint64
		var data, ref [n][]byte
		for i := range sizes {
			for j := range sizes[i] {
				if rng.IntN(3) > 0 {
					sizes[i][j] = uint64(rng.IntN(700))
				}
				b := randomBytes(rng, dtype.U8, int(sizes[i][j]), false)
				data[i] = append(data[i], b...)
			}
		}
		for j := 0; j < n; j++ {
			for i := 0; i < n; i++ {
				at := uint64(0)
				for k := 0; k < j; k++ {
					at += sizes[i][k]
				}
				ref[j] = append(ref[j], data[i][at:at+sizes[i][j]]...)
			}
		}
		for i, m := range r.g.Members() {
			r.write(i, src, data[i])
			send, recv := make([]Piece, n), make([]Piece, n)
			var a, b uint64
			for j := 0; j < n; j++ {
				send[j] = Piece{At: r.w.Addr(i, src+a), Bytes: sizes[i][j]}
				recv[j] = Piece{At: r.w.Addr(i, dst+b), Bytes: sizes[j][i]}
				a, b = a+sizes[i][j], b+sizes[j][i]
			}
			p, err := m.PrepareUneven(send, recv)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Enqueue(r.streams[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		for j := range ref {
			if got := r.read(j, dst, uint64(len(ref[j]))); !bytes.Equal(got, ref[j]) {
				t.Fatalf("round %d rank %d: wrong bytes", round, j)
			}
		}
	}
}

// TestReplay captures several collectives into a graph and replays it.
func TestReplay(t *testing.T) {
	const n, count, replays = 4, 2000, 6
	r := newRigT(t, n)
	a, b := r.alloc(count*4), r.alloc(count*4)
	execs := make([]Exec, n)
	for i, k := range r.w.Local() {
		if err := r.drv.CaptureBegin(k.Ctx, r.streams[i]); err != nil {
			t.Fatal(err)
		}
		const beside = 100 // an engine collective beside compute
		for j, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, beside, kernels.Direct, kernels.Engine, beside, kernels.Push, kernels.LL} {
			src, dst := a, b
			if j%2 == 1 {
				src, dst = b, a
			}
			op := Op{Kind: kernels.AllReduce, Red: kernels.Avg, DType: dtype.F32, Symmetric: true, Algo: algo,
				Tensors: []Tensor{{Src: r.w.Addr(i, src), Dst: r.w.Addr(i, dst), Bytes: count * 4}}}
			switch algo {
			case kernels.LL:
				op.Red = kernels.Sum
			case beside:
				op.Algo, op.Beside = kernels.Engine, true
			}
			if err := r.g.Members()[i].Enqueue(r.streams[i], op); err != nil {
				t.Fatalf("%v: %v", algo, err)
			}
		}
		g, err := r.drv.CaptureEnd(k.Ctx, r.streams[i])
		if err != nil {
			t.Fatal(err)
		}
		if execs[i], err = r.drv.GraphInstantiate(k.Ctx, g); err != nil {
			t.Fatal(err)
		}
		if err := r.drv.GraphDestroy(k.Ctx, g); err != nil {
			t.Fatal(err)
		}
	}
	in := make([]byte, count*4)
	for i := 0; i < count; i++ {
		binary.LittleEndian.PutUint32(in[4*i:], math.Float32bits(float32(i%97)))
	}
	for rank := 0; rank < n; rank++ {
		r.write(rank, a, in)
	}
	for j := 0; j < replays; j++ {
		for i, k := range r.w.Local() {
			if err := r.drv.GraphLaunch(k.Ctx, execs[i], r.streams[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	for rank := 0; rank < n; rank++ {
		got := r.read(rank, a, count*4)
		for i := 0; i < count; i++ {
			v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:]))
			if exp := float32(i%97) * float32(math.Pow(n, replays)); v != exp {
				t.Fatalf("rank %d element %d: %v after %d replays, want %v", rank, i, v, replays, exp)
			}
		}
	}
	for i, k := range r.w.Local() {
		if err := r.drv.ExecDestroy(k.Ctx, execs[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEpochWrap starts shortly before the counters wrap.
func TestEpochWrap(t *testing.T) {
	const n, count = 3, 500
	r := newRigT(t, n)
	near := bytes.Repeat([]byte{0xfc, 0xff, 0xff, 0xff}, kernels.MaxBlocks)
	for rank := 0; rank < n; rank++ {
		ctl := r.g.sc.Ctl
		r.write(rank, ctl+kernels.CtlEpoch, near)
		r.write(rank, ctl+kernels.CtlDirect, near)
		r.write(rank, ctl+kernels.CtlChunks, near)
		r.write(rank, ctl+kernels.CtlEntry, near[:4*kernels.MaxRanks])
		r.write(rank, ctl+kernels.CtlPushed, bytes.Repeat(near, kernels.MaxRanks))
		r.write(rank, ctl+kernels.CtlCredit, bytes.Repeat(near, kernels.MaxRanks))
		r.write(rank, ctl+kernels.CtlExit, bytes.Repeat(near, kernels.MaxRanks))
		r.write(rank, ctl+kernels.CtlChannel, bytes.Repeat(near[:128], 64))
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for i := 0; i < 12; i++ {
		for _, c := range []caseT{
			{kind: kernels.AllReduce, t: dtype.F32, algo: kernels.LL, counts: []int{count}},
			{kind: kernels.AllGather, t: dtype.I32, algo: kernels.LL, counts: []int{count}},
			{kind: kernels.AllReduce, t: dtype.F32, algo: kernels.Direct, counts: []int{count}},
			{kind: kernels.AllReduce, t: dtype.F32, algo: kernels.Engine, counts: []int{count}},
		} {
			if err := r.runCase(c, rng); err != nil {
				t.Fatalf("round %d %v: %v", i, c, err)
			}
		}
		if err := r.run(func(int) Op { return Op{Kind: kernels.Barrier} }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPushSizes pushes small and large tensors by turns, on grids of different sizes, without
// waiting for the host in between: blocks keep their counts and slots from call to call.
func TestPushSizes(t *testing.T) {
	const n, small, large, rounds = 4, 100 << 10, 1 << 20, 30
	r := newRigT(t, n)
	rng := rand.New(rand.NewPCG(8, 8))
	type tensor struct {
		src, dst uint64
		in       [][]byte
	}
	make := func(bytes int) (x tensor) {
		x.src, x.dst = r.alloc(uint64(bytes)), r.alloc(uint64(bytes))
		for rank := range n {
			x.in = append(x.in, randomBytes(rng, dtype.BF16, bytes/2, false))
			r.write(rank, x.src, x.in[rank])
		}
		return x
	}
	xs := [2]tensor{make(small), make(large)}
	for i := range rounds {
		for rank, m := range r.g.Members() {
			for j, bytes := range []uint64{small, large} {
				x := xs[j]
				p, err := m.Prepare(Op{Kind: kernels.AllReduce, DType: dtype.BF16, Symmetric: true, Algo: kernels.Push, Blocks: 1 + (i+j)%4,
					Tensors: []Tensor{{Src: r.w.Addr(rank, x.src), Dst: r.w.Addr(rank, x.dst), Bytes: bytes}}})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Enqueue(r.streams[rank]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	for _, x := range xs {
		ref := want(dtype.BF16, kernels.Sum, x.in)
		for rank := range n {
			if at := same(dtype.BF16, r.read(rank, x.dst, uint64(len(ref))), ref); at >= 0 {
				t.Errorf("%d bytes, rank %d: element %d is wrong", len(ref), rank, at)
			}
		}
	}
}

// TestSignals passes a word around a ring of ranks.
func TestSignals(t *testing.T) {
	const n = 4
	r := newRigT(t, n)
	a := r.alloc(256)
	for round := uint32(1); round < 5; round++ {
		for i, m := range r.g.Members() {
			s, next, prev := r.streams[i], (i+1)%n, (i+n-1)%n
			if i == 0 {
				if err := r.drv.Memset32(r.w.Rank(i).Ctx, s, r.w.Addr(1, a), round, 1); err != nil {
					t.Fatal(err)
				}
				if err := m.Signal(s, 3, next); err != nil {
					t.Fatal(err)
				}
				if err := m.Wait(s, 3, prev); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := m.Wait(s, 3, prev); err != nil {
				t.Fatal(err)
			}
			if err := r.drv.Copy(r.w.Rank(i).Ctx, s, r.w.Addr(next, a), r.w.Addr(i, a), 4); err != nil {
				t.Fatal(err)
			}
			if err := m.Signal(s, 3, next); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(r.read(0, a, 4)); got != round {
			t.Fatalf("round %d: %d came back", round, got)
		}
	}
	m := r.g.Members()[0]
	for _, c := range []struct {
		err  error
		text string
	}{
		{m.Signal(r.streams[0], UserChannels, 1), "channel must be in [0, 60), got 60"},
		{m.Signal(r.streams[0], -1, 1), "channel must be in"},
		{m.Wait(r.streams[0], 0, n), "rank must be in [0, 4), got 4"},
		{m.Wait(r.streams[0], 0, -1), "rank must be in"},
		{m.Wait(r.streams[0], 0, 0), "rank 0 cannot wait itself"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("got %v, want %q", c.err, c.text)
		}
	}
}

// TestGroups uses overlapping groups and a strict subgroup beside the world.
func TestGroups(t *testing.T) {
	const n = 4
	r := newRigT(t, n)
	a := r.alloc(4096)
	for _, ranks := range [][]int{{0, 1}, {1, 2}, {3, 1, 0}, {0, 1, 2, 3}} {
		g, err := r.w.NewGroup(ranks, smallGroup(false, len(ranks)))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ranks {
			r.write(id, a, []byte{byte(10 + id), 0, 0, 0})
		}
		for i, m := range g.Members() {
			id := ranks[i]
			op := Op{Kind: kernels.AllGather, DType: dtype.I32, Symmetric: true, Tensors: []Tensor{{Src: r.w.Addr(id, a), Dst: r.w.Addr(id, a+64), Bytes: 4}}}
			if err := m.Enqueue(r.streams[id], op); err != nil {
				t.Fatal(err)
			}
		}
		for i, m := range g.Members() {
			if err := m.Check(r.streams[ranks[i]]); err != nil {
				t.Fatal(err)
			}
			got := r.read(ranks[i], a+64, uint64(4*len(ranks)))
			for j, id := range ranks {
				if int(got[4*j]) != 10+id {
					t.Errorf("group %v rank %d: piece %d is %d", ranks, i, j, got[4*j])
				}
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range [][]int{{0}, {0, 0}, {0, 4}, {-1, 0}} {
		if _, err := r.w.NewGroup(bad, GroupOptions{}); err == nil {
			t.Errorf("group %v was accepted", bad)
		}
	}
}
