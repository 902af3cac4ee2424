package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

const (
	soakBatch   = 64   // calls between two looks of the host; each has a word for its wrong elements
	soakReplays = 25   // of a graph of so many calls
	soakPlans   = 2000 // different calls
	soakGuard   = 32   // elements before and behind a result that are watched
)

// overlappedEngine stands for copies and flags in the forms overlapped with compute.
const overlappedEngine = kernels.Algo(100)

// soakCall is a collective of one to three tensors of random sizes and alignments.
type soakCall struct {
	kind    kernels.Collective
	t       dtype.DType
	algo    kernels.Algo // overlappedEngine for copies overlapped with compute
	tensors []soakTensor
	plans   []*coll.Prepared // by rank
}

// soakTensor is offsets of operand and result, which are one in place, and elements.
type soakTensor struct{ src, dst, per, in, out uint64 }

// soak makes -calls calls of all protocols in random order, the larger part of them eager,
// the others in graphs that are replayed. Before each call the device writes new inputs,
// which depend on the number of the call, and other bytes over the result and around it;
// after it the device compares the result and what lies around it. Nothing but the
// protocols keeps the ranks apart within 64 calls.
func (b *bench) soak() error {
	if b.max < 16<<20 {
		return fmt.Errorf("the calls need buffers of %d bytes: raise -max", 16<<20)
	}
	rng := rand.New(rand.NewPCG(1, 100_000)) // alike on all ranks
	all, err := b.soakPlans(rng)
	if err != nil {
		return err
	}
	count := map[string]int{}
	pick := func(replays int) []*soakCall {
		out := make([]*soakCall, soakBatch)
		for i := range out {
			out[i] = all[rng.IntN(len(all))]
			count[fmt.Sprintf("%v %v", out[i].kind, out[i].name())] += replays
		}
		return out
	}
	start, done := time.Now(), 0
	for ; done < b.calls*6/10; done += soakBatch {
		calls := pick(1)
		err := b.each(func(rank int) error {
			if err := b.soakBatch(rank, calls, done); err != nil {
				return err
			}
			return b.soakLook(rank, calls, done)
		})
		if err != nil {
			return err
		}
	}
	eager := done
	for ; done < b.calls; done += soakReplays * soakBatch {
		if err := b.soakGraph(pick(soakReplays), done); err != nil {
			return err
		}
	}
	took := time.Since(start)
	names := slices.Sorted(maps.Keys(count))
	for _, name := range names {
		fmt.Printf("soak: %6d calls of %s\n", count[name], name)
	}
	us := float64(took.Microseconds()) / float64(done)
	fmt.Printf("soak: %d calls a rank, %d of them in graphs, none wrong, %v, %.1f us each with all checks\n", done, done-eager, took.Round(time.Millisecond), us)
	return nil
}

func (c *soakCall) name() string {
	if c.algo == overlappedEngine {
		return "engine, beside"
	}
	return c.algo.String()
}

// String says what is called, with the elements of each tensor.
func (c *soakCall) String() string {
	s := fmt.Sprintf("%v %v by %v of", c.t, c.kind, c.name())
	for _, x := range c.tensors {
		s += fmt.Sprintf(" %d", x.per)
	}
	if c.tensors[0].src == c.tensors[0].dst {
		s += " in place"
	}
	return s
}

// soakPlans plans random calls on every rank.
func (b *bench) soakPlans(rng *rand.Rand) ([]*soakCall, error) {
	var out []*soakCall
	for len(out) < soakPlans {
		c := &soakCall{
			kind: []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll}[rng.IntN(4)],
			t:    []dtype.DType{dtype.BF16, dtype.F16, dtype.F32}[rng.IntN(3)],
			algo: []kernels.Algo{kernels.Auto, kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine, overlappedEngine}[rng.IntN(8)],
		}
		size, n := uint64(c.t.Size()), uint64(b.n)
		inPlace, blocks := c.kind == kernels.AllReduce && rng.IntN(2) == 0, rng.IntN(9)
		shift := size * uint64(rng.IntN(2)*rng.IntN(int(16/size)))
		at := uint64(4096)
		for range 1 + rng.IntN(2)*rng.IntN(3) {
			x := soakTensor{per: uint64(math.Exp(rng.Float64() * math.Log(30000)))}
			x.in, x.out = x.per, x.per
			if c.kind != kernels.AllReduce && c.kind != kernels.AllGather {
				x.in *= n
			}
			if c.kind == kernels.AllGather || c.kind == kernels.AllToAll {
				x.out *= n
			}
			x.src = b.src + at + shift
			if x.dst = b.dst + at + shift; inPlace {
				x.dst = x.src
			}
			c.tensors = append(c.tensors, x)
			at += (max(x.in, x.out)*size + 2*soakGuard*size + 4095) &^ 4095
		}
		plans, err := b.prepare(func(rank int) coll.Op { return b.soakOp(c, rank, blocks) })
		var plan *kernels.PlanError
		if errors.As(err, &plan) && c.algo != kernels.Auto {
			continue // no such form of this collective, or too small or large for it
		}
		if err != nil {
			return nil, err
		}
		c.plans = plans
		out = append(out, c)
	}
	return out, nil
}

func (b *bench) soakOp(c *soakCall, rank, blocks int) coll.Op {
	o := coll.Op{Kind: c.kind, DType: c.t, Symmetric: true, Algo: c.algo, Blocks: blocks}
	if c.algo == overlappedEngine {
		o.Algo, o.Overlapped = kernels.Engine, true
	}
	for _, x := range c.tensors {
		o.Tensors = append(o.Tensors, coll.Tensor{Src: b.w.Addr(rank, x.src), Dst: b.w.Addr(rank, x.dst), Bytes: x.per * uint64(c.t.Size())})
	}
	return o
}

// soakSeed is that of a tensor's inputs in a call, and soakOther that of what lies in the
// result before, and around it. fill and check use 16 bits.
func soakSeed(call, tensor int) uint32  { return uint32(call*3+tensor) % 32749 }
func soakOther(call, tensor int) uint32 { return 1<<15 + soakSeed(call, tensor) }

// soakBatch enqueues calls on a rank, the first of which has a number.
func (b *bench) soakBatch(rank int, calls []*soakCall, first int) error {
	k, s := b.w.Rank(rank), b.streams[rank]
	if err := b.drv.Memset32(k.Ctx, s, b.w.Addr(rank, b.wrong), 0, soakBatch); err != nil {
		return err
	}
	for i, c := range calls {
		if err := b.soakOne(rank, c, first+i, b.addr(rank, b.wrong+4*uint64(i))); err != nil {
			return fmt.Errorf("call %d, %v: %w", first+i, c, err)
		}
	}
	return nil
}

// soakOne enqueues a call between what writes its inputs and what checks its results.
func (b *bench) soakOne(rank int, c *soakCall, call int, wrong uint64) error {
	size := uint64(c.t.Size())
	fill := func(at, count uint64, seed uint32, as int) error {
		buf := u32s(u64s(nil, at, count), uint32(c.t), seed, uint32(as))
		return b.launch(rank, "bench", "fill", soakGrid(count), 256, 0, buf)
	}
	check := func(at, count uint64, seed uint32, kind kernels.Collective, shard uint64) error {
		buf := u32s(u64s(nil, at, count), uint32(c.t), seed, uint32(rank), uint32(b.n), kinds[kind], 0)
		return b.launch(rank, "bench", "check", soakGrid(count), 256, 0, u64s(buf, shard, wrong))
	}
	for i, x := range c.tensors {
		dst, other := b.addr(rank, x.dst), soakOther(call, i)
		err := errors.Join(fill(dst-soakGuard*size, soakGuard+x.out, other, 0), fill(dst+x.out*size, soakGuard, other, 0),
			fill(b.addr(rank, x.src), x.in, soakSeed(call, i), rank))
		if err != nil {
			return err
		}
	}
	if err := c.plans[rank].Enqueue(b.streams[rank]); err != nil {
		return err
	}
	for i, x := range c.tensors {
		dst, other := b.addr(rank, x.dst), soakOther(call, i)
		// Around it lies what a gather of one rank's inputs would give.
		err := errors.Join(check(dst, x.out, soakSeed(call, i), c.kind, x.per),
			check(dst-soakGuard*size, soakGuard, other, kernels.AllGather, soakGuard),
			check(dst+x.out*size, soakGuard, other, kernels.AllGather, soakGuard))
		if err != nil {
			return err
		}
	}
	return nil
}

// soakGrid is the blocks of 256 threads that fill and check count elements.
func soakGrid(count uint64) int { return int(min(64, count/1024+1)) }

// soakLook waits for a rank and fails for wrong elements.
func (b *bench) soakLook(rank int, calls []*soakCall, first int) error {
	if err := b.members[rank].Check(context.Background(), b.streams[rank]); err != nil {
		return fmt.Errorf("calls from %d on: %w", first, err)
	}
	var v [4 * soakBatch]byte
	k := b.w.Rank(rank)
	if err := b.drv.CopyOut(k.Ctx, b.streams[rank], v[:], b.w.Addr(rank, b.wrong)); err != nil {
		return err
	}
	for i, c := range calls {
		if wrong := binary.LittleEndian.Uint32(v[4*i:]); wrong != 0 {
			return fmt.Errorf("call %d, %v: %d elements are wrong", first+i, c, wrong)
		}
	}
	return nil
}

// soakGraph captures calls on every rank and replays them.
func (b *bench) soakGraph(calls []*soakCall, first int) error {
	execs := make([]driver.Exec, b.n)
	for _, k := range b.w.Local() {
		var err error
		if execs[k.ID], err = b.graph(k, b.streams[k.ID], 1, func() error { return b.soakBatch(k.ID, calls, first) }); err != nil {
			return err
		}
		defer b.drv.ExecDestroy(k.Ctx, execs[k.ID])
	}
	return b.each(func(rank int) error {
		for i := range soakReplays {
			if err := b.drv.GraphLaunch(b.w.Rank(rank).Ctx, execs[rank], b.streams[rank]); err != nil {
				return err
			}
			if err := b.soakLook(rank, calls, first); err != nil {
				return fmt.Errorf("replay %d: %w", i, err)
			}
		}
		return nil
	})
}
