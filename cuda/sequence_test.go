//go:build linux

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// sequenceT is random collectives of one group that follow each other on one stream of
// each rank. Offsets and counts are words of an area that all of them work in. Reductions
// are averages, which stay in range however often they are repeated; their bits are known.
type sequenceT struct {
	n     int
	calls []sequenceCall
}

type sequenceCall struct {
	op       coll.Op // without tensors
	src, dst int
	count    int
	ahead    bool // the fold may be pending when the next call begins
	uneven   bool
}

const sequenceWords = 1 << 15

// spans are how many words of the operand and of the result the call touches.
func (c sequenceCall) spans(n int) (in, out int) {
	switch c.op.Kind {
	case kernels.AllGather:
		return c.count, n * c.count
	case kernels.ReduceScatter:
		return n * c.count, c.count
	case kernels.AllToAll:
		return n * c.count, n * c.count
	}
	return c.count, c.count
}

func overlap(a, an, b, bn int) bool { return a < b+bn && b < a+an }

func newSequence(rng *rand.Rand, n, calls int, push bool) sequenceT {
	q := sequenceT{n: n}
	most := sequenceWords / 4 / n
	for len(q.calls) < calls {
		c := sequenceCall{count: 4 * (1 + rng.IntN(most/4)), op: coll.Op{Red: kernels.Avg, DType: dtype.F32, Symmetric: true}}
		switch rng.IntN(10) {
		case 0:
			c.op.Kind, c.op.Overlapped, c.op.Algo = kernels.AllGather, true, kernels.Engine
		case 1:
			c.op.Kind, c.op.Overlapped = kernels.AllToAll, true
		case 2, 3, 4:
			c.op.Kind, c.op.Overlapped, c.op.Algo, c.ahead = kernels.ReduceScatter, true, kernels.Engine, rng.IntN(4) > 0
		case 5:
			c.op.Kind, c.op.Overlapped, c.op.Algo = kernels.AllReduce, true, kernels.Engine
			c.count *= n
		case 6:
			c.op.Kind, c.op.Root, c.op.Algo = kernels.Reduce, rng.IntN(n), kernels.Engine
		case 7:
			c.op.Kind, c.op.Root, c.op.Algo = kernels.Broadcast, rng.IntN(n), kernels.Engine
		case 8:
			c.op.Kind, c.op.Algo = kernels.Permute, kernels.Engine
			for r := range n {
				c.op.Pairs = append(c.op.Pairs, [2]int{r, (r + 1) % n})
			}
		default:
			c.op.Kind, c.op.Algo = kernels.AllReduce, kernels.Engine // of halves of staging without credits
			if push {
				c.op.Algo = []kernels.Algo{kernels.Push, kernels.LL}[rng.IntN(2)]
			}
			if c.uneven = rng.IntN(3) == 0; c.uneven {
				c.op.Kind, c.count = kernels.AllToAll, 4*(1+rng.IntN(64))
			}
		}
		c.op.Part = rng.IntN(coll.StagingParts)
		in, out := c.spans(n)
		c.src, c.dst = 4*rng.IntN((sequenceWords-in)/4), 4*rng.IntN((sequenceWords-out)/4)
		if c.op.Kind == kernels.AllReduce && rng.IntN(2) == 0 && c.op.Overlapped {
			c.dst = c.src
		} else if overlap(c.src, in, c.dst, out) {
			continue
		}
		q.calls = append(q.calls, c)
	}
	return q
}

// apply does to the ranks' areas what the calls do.
func (q sequenceT) apply(mem [][]float32) {
	n := q.n
	for _, c := range q.calls {
		in, out := c.spans(n)
		ins := make([][]float32, n)
		for r := range mem {
			ins[r] = append([]float32(nil), mem[r][c.src:c.src+in]...)
		}
		for r := range mem {
			dst := mem[r][c.dst : c.dst+out]
			mean := func(at int) {
				for i := range dst {
					dst[i] = ins[0][at+i]
					for _, x := range ins[1:] {
						dst[i] += x[at+i]
					}
					dst[i] /= float32(n)
				}
			}
			switch c.op.Kind {
			case kernels.AllGather, kernels.AllToAll:
				for s := range mem {
					at := 0
					if c.op.Kind == kernels.AllToAll {
						at = r * c.count
					}
					copy(dst[s*c.count:], ins[s][at:at+c.count])
				}
			case kernels.ReduceScatter:
				mean(r * c.count)
			case kernels.AllReduce:
				mean(0)
			case kernels.Reduce:
				if r == c.op.Root {
					mean(0)
				}
			case kernels.Broadcast:
				copy(dst, ins[c.op.Root])
			case kernels.Permute:
				copy(dst, ins[(r+n-1)%n])
			}
		}
	}
}

// commands are the calls of one rank whose area begins at base. Folds that are pending
// are joined where the next call is not one that may go ahead of them.
func (q sequenceT) commands(m *coll.Member, base driver.Ptr) (*driver.Commands, error) {
	c, pending := &driver.Commands{}, []sequenceCall(nil)
	at := func(words int) driver.Ptr { return base + driver.Ptr(4*words) }
	for _, x := range q.calls {
		var p *coll.Prepared
		var err error
		if x.uneven {
			send, recv := make([]coll.Piece, q.n), make([]coll.Piece, q.n)
			for r := range q.n {
				send[r] = coll.Piece{At: at(x.src + r*x.count), Bytes: uint64(4 * x.count)}
				recv[r] = coll.Piece{At: at(x.dst + r*x.count), Bytes: uint64(4 * x.count)}
			}
			p, err = m.PrepareAllToAllV(send, recv)
		} else {
			x.op.Tensors = []coll.Tensor{{Src: at(x.src), Dst: at(x.dst), Bytes: uint64(4 * x.count)}}
			p, err = m.Prepare(x.op)
		}
		if err != nil {
			return nil, fmt.Errorf("%v by %v: %w", x.op.Kind, x.op.Algo, err)
		}
		free := x.ahead
		in, out := x.spans(q.n)
		for _, y := range pending {
			yin, yout := y.spans(q.n)
			free = free && !overlap(x.src, in, y.dst, yout) && !overlap(x.dst, out, y.dst, yout) && !overlap(x.dst, out, y.src, yin)
		}
		if !free && len(pending) > 0 {
			m.Join(c, driver.Main)
			pending = nil
		}
		if x.ahead && p.AddAhead(c) {
			pending = append(pending, x)
			continue
		}
		p.AddTo(c)
	}
	if len(pending) > 0 {
		m.Join(c, driver.Main)
	}
	return c, nil
}

// TestSequences runs random sequences of collectives with flags, of kernels that share
// their staging and of reductions whose folds are pending, and replays them as graphs:
// nothing but the protocol keeps ranks and calls apart.
func TestSequences(t *testing.T) {
	for _, n := range []int{2, 3, 4, 7, 16} {
		for _, slot := range []uint64{4096, 0} {
			if sampled() && n > 3 {
				continue
			}
			t.Run(fmt.Sprintf("%d ranks, slot %d", n, slot), func(t *testing.T) { testSequences(t, n, slot) })
		}
	}
}

func testSequences(t *testing.T, n int, slot uint64) {
	needsQueues(t, n, 4)
	r := newRigT(t, n)
	if f, ok := r.drv.(*fake.Driver); ok {
		f.Jitter(50 * time.Microsecond)
	}
	g, ranks := r.g, make([]int, n)
	for i := range ranks { // not the order of the world
		ranks[i] = (i + 1) % n
	}
	if slot > 0 { // several rounds each
		o := smallGroup(false, n)
		o.Staging = 2 * uint64(n) * slot
		var err error
		if g, err = coll.NewGroup(t.Context(), r.w, ranks, o); err != nil {
			t.Fatal(err)
		}
		defer g.Close()
	}
	rng := rand.New(rand.NewPCG(uint64(n), slot))
	area := r.alloc(4 * sequenceWords)
	mem := make([][]float32, n) // by group rank
	for i := range mem {
		mem[i] = make([]float32, sequenceWords)
	}
	push := slot == 0 && (n == 2 || n == 4)
	for round := range max(2, 12/n) {
		for i := range mem {
			b := make([]byte, 0, 4*sequenceWords)
			for k := range mem[i] {
				mem[i][k] = float32(rng.NormFloat64())
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(mem[i][k]))
			}
			r.write(g.Ranks()[i], area, b)
		}
		q := newSequence(rng, n, 8, push)
		if err := r.sequence(g, q, area, mem); err != nil {
			t.Fatalf("sequence %d, %+v: %v", round, q.calls, err)
		}
	}
}

// sequence runs q as commands and, twice, as a graph. Graphs are made before anything runs:
// making one may wait for the device, on which another rank may be waiting.
func (r *rigT) sequence(g *coll.Group, q sequenceT, area uint64, mem [][]float32) (err error) {
	execs, words := make([]driver.Exec, len(mem)), make([][]uint64, len(mem))
	for _, m := range g.Members() {
		i, c, s := m.Index, m.Rank.Ctx, r.streams[m.Rank.ID]
		list, err := q.commands(m, r.w.Addr(m.Rank.ID, area))
		if err != nil {
			return err
		}
		if err := r.drv.CaptureBegin(c, s); err != nil {
			return err
		}
		words[i] = list.On(s)
		run := r.drv.Run(c, words[i])
		graph, err := r.drv.CaptureEnd(c, s)
		if err := errors.Join(run, err); err != nil {
			return err
		}
		defer r.drv.GraphDestroy(c, graph)
		if execs[i], err = r.drv.GraphInstantiate(c, graph); err != nil {
			return err
		}
		defer r.drv.ExecDestroy(c, execs[i])
		defer func() { err = errors.Join(err, r.drv.StreamSync(c, s)) }()
	}
	for _, m := range g.Members() {
		if err := r.drv.Run(m.Rank.Ctx, words[m.Index]); err != nil {
			return err
		}
	}
	for range 2 {
		for _, m := range g.Members() {
			if err := r.drv.GraphLaunch(m.Rank.Ctx, execs[m.Index], r.streams[m.Rank.ID]); err != nil {
				return err
			}
		}
	}
	for _, m := range g.Members() {
		if err := m.Check(r.t.Context(), r.streams[m.Rank.ID]); err != nil {
			return err
		}
	}
	for range 3 {
		q.apply(mem)
	}
	for _, m := range g.Members() {
		got := r.read(m.Rank.ID, area, 4*sequenceWords)
		for k, want := range mem[m.Index] {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*k:])); v != want {
				return fmt.Errorf("rank %d word %d: %v, want %v", m.Index, k, v, want)
			}
		}
	}
	return nil
}
