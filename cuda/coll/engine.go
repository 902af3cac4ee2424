package coll

import (
	"fmt"
	"sync/atomic"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// Collectives by copy engines. All bytes between ranks are moved by copies that
// push from the own memory into a peer's; kernels of one warp signal and wait
// (kernels/src/barrier.cu), and for reductions one kernel reduces staged pieces.
// The multiprocessors stay free but for the reduction.
//
// all_reduce has three forms; engine_reduce.go holds the two fast ones, which need
// a result apart from the operand or the push kernel. The general form cuts the
// tensor into chunks and a chunk into one slice per rank. Three streams work at once:
// `in` copies every peer's slice of chunk c into half c%2 of that peer's staging; the
// main stream waits for all pieces of its own slice, reduces them into the result and
// returns a credit for the half; `out` copies the reduced slice to all peers. Halves
// alternate, and the copies of chunk c wait for the credits of chunk c-2. A barrier
// before the first copy makes sure that all ranks' tensors and staging are ready; a
// last signal from every peer's `out` makes sure that the result is complete.
//
// Every channel is signalled and waited for equally often in a call, so calls
// follow each other without resets.
const (
	chanBarrier = iota // Barrier and the start of every engine collective
	chanPieces         // pieces of a chunk have been staged
	chanCredit         // a staging half is free again
	chanDone           // results have been written
	chanEnd
)

var _ [symm.FirstUser - chanEnd]struct{} // Signal and Wait have those behind

// engine is what a member needs for collectives by copy engines.
type engine struct {
	in, out driver.Stream // out alone copies to peers at full speed: several at once get in each other's way
	fork    driver.Event
	joinIn  driver.Event
	joinOut driver.Event
	sent    driver.Event
	copied  []driver.Event // one per chunk, grown when a call is prepared
	reduced []driver.Event
	dealt   []driver.Event
	byFlags atomic.Bool // a collective that waits by flags of streams, without kernels, has been prepared
	watch   flagWatch
}

func (m *Member) openEngine() error {
	e := &engine{}
	m.engine = e
	var err error
	for _, s := range []*driver.Stream{&e.in, &e.out} {
		if *s, err = m.NewStream(true); err != nil {
			return err
		}
	}
	for _, ev := range []*driver.Event{&e.fork, &e.joinIn, &e.joinOut, &e.sent, &e.watch.posted} {
		if *ev, err = m.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

// chunk is a part of a tensor and its cut into slices, offsets in bytes. For
// all_reduce the slices of all ranks are contiguous in the chunk.
type chunk struct {
	t     Tensor
	at    uint64 // of the chunk in the tensor, or in each rank's piece of it
	piece uint64 // of each slice; the last slices may be shorter
	bytes uint64 // of the chunk
}

// slice gives offset and size of rank r's slice of an all_reduce chunk.
func (c chunk) slice(r int) (at, bytes uint64) {
	at = min(uint64(r)*c.piece, c.bytes)
	return c.at + at, min(c.piece, c.bytes-at)
}

func cutChunks(ts []Tensor, perRank uint64, n int, whole bool) []chunk {
	var out []chunk
	for _, t := range ts {
		step := perRank
		if whole {
			step *= uint64(n)
		}
		for at := uint64(0); at < t.Bytes; at += step {
			c := chunk{t: t, at: at, bytes: min(step, t.Bytes-at)}
			c.piece = c.bytes
			if whole {
				c.piece = ((c.bytes+uint64(n)-1)/uint64(n) + 15) &^ 15
			}
			out = append(out, c)
		}
	}
	return out
}

// prepareEngine builds the commands of a collective by copy engines.
func (m *Member) prepareEngine(op Op) (*Prepared, error) {
	if m.engine == nil {
		return nil, &kernels.PlanError{Op: op.Kind, Reason: "the group has no staging memory: set GroupOptions.Staging"}
	}
	if !op.Symmetric {
		return nil, &kernels.PlanError{Op: op.Kind, Reason: "copy engines need tensors in symmetric memory"}
	}
	p := &Prepared{m: m, cmds: &driver.Commands{}}
	b := engineBuilder{m: m, c: p.cmds, op: op, n: m.Group.Size()}
	switch op.Kind {
	case kernels.AllReduce:
		if b.allReduce() {
			return p, b.err
		}
		b.start()
		b.reduce()
	case kernels.ReduceScatter:
		b.start()
		b.reduce()
	case kernels.AllGather, kernels.AllToAll:
		b.start()
		b.move()
	default:
		return nil, &kernels.PlanError{Op: op.Kind, Reason: "no form by copy engines"}
	}
	b.finish()
	return p, b.err
}

// start waits until all ranks have come, and lets the other streams begin.
func (b *engineBuilder) start() {
	b.channel(driver.Main, "barrier", chanBarrier)
	b.fork()
}

// fork makes the other streams wait for what is in the main one.
func (b *engineBuilder) fork() {
	e := b.m.engine
	b.c.Record(driver.Main, e.fork)
	for _, s := range []driver.Stream{e.in, e.out} {
		b.c.Wait(s, e.fork)
	}
}

// finish joins the other streams and waits until all peers have written here.
func (b *engineBuilder) finish() {
	e := b.m.engine
	b.c.Record(e.in, e.joinIn)
	b.c.Record(e.out, e.joinOut)
	b.c.Wait(driver.Main, e.joinIn)
	b.c.Wait(driver.Main, e.joinOut)
	b.channel(driver.Main, "wait", chanDone)
}

type engineBuilder struct {
	m   *Member
	c   *driver.Commands
	op  Op
	n   int
	err error

	root   int
	toRoot bool // reduced slices go to the root alone
}

// kind is what the caller asked for.
func (b *engineBuilder) kind() symm.CallKind {
	if b.toRoot {
		return symm.KindOf(kernels.Reduce)
	}
	return symm.KindOf(b.op.Kind)
}

// channel adds a signal, wait or barrier kernel for all peers.
func (b *engineBuilder) channel(s driver.Stream, kernel string, channel int) {
	b.try(b.m.AddSignal(b.c, s, b.kind(), kernel, channel, b.m.AllPeers()))
}

func (b *engineBuilder) try(err error) {
	if b.err == nil {
		b.err = err
	}
}

// peers calls f for every peer, nearest first, so that at any time the ranks'
// copies form a permutation.
func (b *engineBuilder) peers(f func(group, world int)) {
	for k := 1; k < b.n; k++ {
		r := (b.m.Index + k) % b.n
		f(r, b.m.Group.Ranks()[r])
	}
}

// there turns an address of ours into the same one of a world rank.
func (b *engineBuilder) there(world int, at driver.Ptr) driver.Ptr {
	w := b.m.Rank.World
	return at - w.Addr(b.m.Rank.ID, 0) + w.Addr(world, 0)
}

// stagingHalf is the offset of the staging of a chunk.
func (g *Group) stagingHalf(c int) uint64 {
	return g.sc.Staging + uint64(c%2)*g.stageSlot*uint64(g.Size())
}

func (b *engineBuilder) reduce() {
	m, g, e := b.m, b.m.Group, b.m.engine
	gather := b.op.Kind == kernels.AllReduce
	chunks := cutChunks(b.op.Tensors, g.stageSlot, b.n, gather)
	b.try(m.growEvents(len(chunks)))
	if b.err != nil {
		return
	}
	for i, c := range chunks {
		// The main stream and streams of the engine are filled in turn, as they will run.
		if i >= 2 {
			b.channel(e.in, "wait", chanCredit)
		}
		b.peers(func(r, world int) {
			at, bytes := c.slice(r)
			if !gather {
				at, bytes = uint64(r)*c.t.Bytes+c.at, c.bytes
			}
			to := g.World().Addr(world, g.stagingHalf(i)+uint64(m.Index)*g.stageSlot)
			b.c.Copy(e.in, to, c.t.Src+driver.Ptr(at), bytes)
		})
		b.channel(e.in, "signal", chanPieces)
	}
	for i, c := range chunks {
		b.channel(driver.Main, "wait", chanPieces)
		at, bytes := c.slice(m.Index)
		src, dst := c.t.Src+driver.Ptr(at), c.t.Dst+driver.Ptr(at)
		if !gather {
			src, dst, bytes = c.t.Src+driver.Ptr(uint64(m.Index)*c.t.Bytes+c.at), c.t.Dst+driver.Ptr(c.at), c.bytes
		}
		b.try(m.reduce(b.c, driver.Main, b.op, []kernels.Seg{segment(src, dst, bytes)}, g.stagingHalf(i), g.stageSlot))
		if i+2 < len(chunks) {
			b.channel(driver.Main, "signal", chanCredit)
		}
		if gather {
			b.c.Record(driver.Main, e.reduced[i])
			b.c.Wait(e.out, e.reduced[i])
			b.peers(func(r, world int) { b.c.Copy(e.out, b.there(world, dst), dst, bytes) })
		}
	}
	last := driver.Main // staging may be used by the next call when all ranks have reduced
	if gather {
		last = e.out
	}
	b.channel(last, "signal", chanDone)
}

// move serves all_gather and all_to_all: nothing but copies into the peers' results.
func (b *engineBuilder) move() {
	m, e := b.m, b.m.engine
	piece := func(t Tensor, r int) driver.Ptr {
		if b.op.Kind == kernels.AllGather {
			return t.Src
		}
		return t.Src + driver.Ptr(uint64(r)*t.Bytes)
	}
	for _, t := range b.op.Tensors {
		into := t.Dst + driver.Ptr(uint64(m.Index)*t.Bytes)
		if own := piece(t, m.Index); own != into {
			b.c.Copy(e.in, into, own, t.Bytes)
		}
		b.peers(func(r, world int) { b.c.Copy(e.out, b.there(world, into), piece(t, r), t.Bytes) })
	}
	b.channel(e.out, "signal", chanDone)
}

func (m *Member) growEvents(n int) error {
	for _, list := range []*[]driver.Event{&m.engine.copied, &m.engine.reduced, &m.engine.dealt} {
		for len(*list) < n {
			ev, err := m.NewEvent()
			if err != nil {
				return err
			}
			*list = append(*list, ev)
		}
	}
	return nil
}

// reduce adds the kernel that reduces own pieces with those of the peers, which are slot
// bytes apart from scratch on, those of a rank one after the other (kernels.PlanStaged).
func (m *Member) reduce(c *driver.Commands, s driver.Stream, op Op, segs []kernels.Seg, scratch, slot uint64) error {
	call := kernels.Call{Op: op.Kind, Red: op.Red, DType: op.DType, N: m.Group.Size(), Blocks: op.Blocks, Segs: segs}
	l, err := kernels.PlanStaged(call)
	if err != nil || l.Args.Units == 0 {
		return err
	}
	f, err := m.Rank.Func(l.Image, l.Kernel)
	if err != nil {
		return fmt.Errorf("%v: %w", op.Kind, err)
	}
	a := m.Args(symm.KindOf(op.Kind), 0)
	a.Units, a.Op, a.DType, a.Segs = l.Args.Units, l.Args.Op, l.Args.DType, l.Args.Segs
	a.Scratch, a.Slot = scratch, slot
	c.Launch(s, f, l.Grid, l.Block, 0, a.Pack(nil, l.Segs))
	return nil
}

// segment is what a reduction makes of bytes at src.
func segment(src, dst driver.Ptr, bytes uint64) kernels.Seg {
	return kernels.Seg{Src: uint64(src), Dst: uint64(dst), Bytes: bytes}
}
