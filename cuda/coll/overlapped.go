package coll

import (
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// Collectives overlapped with compute. Kernels of compute fill all multiprocessors, and those
// that stay until the kernel ends leave no room for a second one: a collective by a
// kernel then starts when that one ends, and each further kernel it needs waits anew.
// Measured while matmuls of 1.4 ms ran, a gather of 0.37 ms by copies and flags
// takes as long as alone, one by a kernel 1.3 to 1.5 ms. Multiprocessors left free by
// all matmuls help too, but cost the matmuls 12% for 16 of them whether or not a
// collective runs.
//
// So bytes between ranks move by copy engines, and streams order them by flags
// (engine_flags.go). What no engine does goes by co-resident kernels, of one warp a block
// with so few registers that they are co-resident with a matmul (kernels.PlanCoresidentCopy,
// PlanCoresidentReduce). Those are copies within the device, which the driver does by kernels
// of its own, pieces too small to be worth a copy for each peer, and reductions.
//
//   - all_gather and all_to_all: when all have come, copies to the peers go out, with
//     the own and the small pieces by a co-resident kernel in a second stream; a barrier ends it.
//   - reduce_scatter: pieces go into the parts of the peers' staging in turn. A part is
//     filled again when its owner has given credit for it. The second stream reduces what
//     has come into a part, all tensors by one kernel, and gives the credits; it may still
//     be at it when the next call's copies go out. All ranks pass a barrier before and after the
//     copies of a part: ranks that are out of step send to one receiver at a time, which halves
//     what the links carry.
//   - all_reduce: the same for a slice of the tensor for each rank, and copies of the
//     reduced slice to all peers while the next rounds' pieces go out. A rank's slice
//     in a peer's result is overwritten only after that peer's part of it has come
//     here, so results may overlap operands.

// StagingParts is how many parts of staging reductions overlapped with compute fill in turn.
const StagingParts = 2

// prepareOverlapped plans op overlapped with compute. It gives nil where op is better served as
// if it were exposed, unless op asks for copy engines: then that is an error.
func (m *Member) prepareOverlapped(op Op) (*Prepared, error) {
	must := op.Algo == kernels.Engine
	why := ""
	switch {
	case m.engine == nil:
		why = "the group has no copy engines: set GroupOptions.Staging"
	case !op.Symmetric:
		why = "copy engines need tensors in symmetric memory"
	case op.Kind > kernels.AllToAll:
		why = "no form overlapped with compute"
	}
	if why != "" {
		if must {
			return nil, &kernels.PlanError{Op: op.Kind, Reason: why}
		}
		return nil, nil
	}
	ts, total := filled(op.Tensors)
	if !must && !m.worthCopies(op.Kind, total) {
		return nil, nil
	}
	if len(ts) == 0 {
		return &Prepared{m: m}, nil
	}
	m.engine.byFlags.Store(true)
	p := &Prepared{m: m, cmds: &driver.Commands{}, num: m.Number(symm.KindOf(op.Kind), 0)}
	b := engineBuilder{m: m, c: p.cmds, op: op, n: m.Group.Size()}
	b.c.Record(driver.Main, m.engine.fork)
	b.c.Wait(m.engine.in, m.engine.fork)
	switch op.Kind {
	case kernels.AllGather, kernels.AllToAll:
		b.moveOverlapped(ts)
	case kernels.ReduceScatter:
		p.parts = b.reduceOverlapped(ts)
		p.ahead.Append(p.cmds)
		m.Join(p.cmds, driver.Main)
	default:
		p.parts = b.reduceOverlapped(ts)
		b.flagBarrier(flagLeft)
		b.join()
	}
	return p, b.err
}

// Join makes s wait for what was added by AddAhead, and until the peers have reduced
// what it sent. No other stream may have calls of the group until s has gone on: a call
// that took credits meanwhile would wait for ranks that wait here for these credits.
// In a group without GroupOptions.Staging there is nothing to wait for.
func (m *Member) Join(c *driver.Commands, s driver.Stream) {
	if m.Usable() != nil || m.engine == nil {
		return
	}
	m.settle(c, m.engine.in)
	c.Record(m.engine.in, m.engine.joinIn)
	c.Wait(s, m.engine.joinIn)
}

// join makes the main stream wait for the second one.
func (b *engineBuilder) join() {
	b.c.Record(b.m.engine.in, b.m.engine.joinIn)
	b.c.Wait(driver.Main, b.m.engine.joinIn)
}

// filled gives the tensors that are not empty, and their bytes together.
func filled(ts []Tensor) (out []Tensor, total uint64) {
	for _, t := range ts {
		if t.Bytes > 0 {
			out, total = append(out, t), total+t.Bytes
		}
	}
	return out, total
}

// worthCopies reports whether tensors of total bytes are large enough together.
func (m *Member) worthCopies(kind kernels.Collective, total uint64) bool {
	t := m.Group.tuning
	if kind != kernels.AllReduce {
		total *= uint64(m.Group.Size())
	}
	limit := t.OverlappedMove
	if kind == kernels.AllReduce || kind == kernels.ReduceScatter {
		limit = t.OverlappedReduce
	}
	return limit > 0 && total >= limit
}

// small says that a piece goes by a co-resident kernel and not by a copy for each peer.
func (b *engineBuilder) small(bytes uint64) bool { return bytes < b.m.Group.tuning.OverlappedPiece }

// coresidentCopy adds kernels that copy segments and are co-resident with others.
func (b *engineBuilder) coresidentCopy(s driver.Stream, segs []kernels.Seg) {
	for len(segs) > 0 {
		k := min(len(segs), kernels.MaxSegs)
		l, err := kernels.PlanCoresidentCopy(segs[:k])
		b.add(s, l, err)
		segs = segs[k:]
	}
}

// moveOverlapped serves all_gather and all_to_all.
func (b *engineBuilder) moveOverlapped(ts []Tensor) {
	m, e := b.m, b.m.engine
	from := func(t Tensor, r int) driver.Ptr {
		if b.op.Kind == kernels.AllGather {
			return t.Src
		}
		return t.Src + driver.Ptr(uint64(r)*t.Bytes)
	}
	into := func(t Tensor) driver.Ptr { return t.Dst + driver.Ptr(uint64(m.Index)*t.Bytes) }
	var own, small []kernels.Seg
	for _, t := range ts {
		if at := from(t, m.Index); at != into(t) {
			own = append(own, kernels.Seg{Src: uint64(at), Dst: uint64(into(t)), Bytes: t.Bytes})
		}
	}
	b.flagBarrier(flagReady)
	b.peers(func(r, world int) {
		for _, t := range ts {
			if b.small(t.Bytes) {
				small = append(small, kernels.Seg{Src: uint64(from(t, r)), Dst: uint64(b.there(world, into(t))), Bytes: t.Bytes})
			}
		}
	})
	if len(small) > 0 { // they write to the peers
		b.c.Record(driver.Main, e.sent)
		b.c.Wait(e.in, e.sent)
	}
	b.coresidentCopy(e.in, append(small, own...))
	b.peers(func(r, world int) {
		for _, t := range ts {
			if !b.small(t.Bytes) {
				b.c.Copy(driver.Main, b.there(world, into(t)), from(t, r), t.Bytes)
			}
		}
	})
	b.join()
	b.flagBarrier(flagDone)
}

// round is what fills a part of staging: parts of tensors.
type round []chunk

// cutRounds deals the tensors out to rounds that each fill a slot of staging per
// rank: tensors are cut where a slot ends, and small ones share it.
func cutRounds(ts []Tensor, slot uint64, n int, whole bool) []round {
	var rounds []round
	room := uint64(0)
	for _, t := range ts {
		for at := uint64(0); at < t.Bytes; {
			if room == 0 {
				rounds, room = append(rounds, nil), slot
			}
			most := room
			if whole {
				most *= uint64(n)
			}
			c := chunk{t: t, at: at, bytes: min(most, t.Bytes-at)}
			c.piece = c.bytes
			if whole {
				c.piece = ((c.bytes+uint64(n)-1)/uint64(n) + 15) &^ 15
			}
			last := &rounds[len(rounds)-1]
			*last = append(*last, c)
			room -= min(room, (c.piece+15)&^15)
			at += c.bytes
		}
	}
	return rounds
}

// pieceOf is what rank r reduces of a chunk: where it is in the tensor, and its size.
func (b *engineBuilder) pieceOf(c chunk, r int) (at, bytes uint64) {
	if b.op.Kind == kernels.AllReduce {
		return c.slice(r)
	}
	return uint64(r)*c.t.Bytes + c.at, c.bytes
}

// offsets are where the pieces that rank r reduces begin in each slot of its staging:
// one after the other, as the kernel that reduces them all expects it.
func (b *engineBuilder) offsets(parts round, r int) []uint64 {
	unit := kernels.StagedUnit(kernels.Call{Op: b.op.Kind, Red: b.op.Red, DType: b.op.DType, N: b.n})
	at, off := make([]uint64, len(parts)), uint64(0)
	for i, c := range parts {
		at[i] = off
		_, bytes := b.pieceOf(c, r)
		off += (bytes + unit - 1) / unit * unit
	}
	return at
}

// part is the offset of the staging that round i uses.
func (b *engineBuilder) part(i int) uint64 {
	return b.m.Group.stagingHalf((b.op.Part + i) % StagingParts)
}

// credit is the row of flags for the part of round i.
func (b *engineBuilder) credit(i int) uint64 {
	return flagCredit + uint64((b.op.Part+i)%StagingParts)*flagRow
}

// ownSlot is the slot in staging of this rank's own piece, which no peer writes.
func (b *engineBuilder) ownSlot(round int, off uint64) driver.Ptr {
	g := b.m.Group
	return g.World().Addr(b.m.Rank.ID, b.part(round)+uint64(b.m.Index)*g.stageSlot+off)
}

// lag is how many rounds go out before the reduced slices of the first one do.
const lag = StagingParts - 1

// reduceOverlapped serves reduce_scatter and all_reduce, and reduce to a root. It returns
// the number of rounds.
func (b *engineBuilder) reduceOverlapped(ts []Tensor) int {
	g := b.m.Group
	gather := b.op.Kind == kernels.AllReduce
	rounds := cutRounds(ts, g.stageSlot, b.n, gather)
	if b.try(b.m.growEvents(len(rounds))); b.err != nil {
		return 0
	}
	for i, parts := range rounds {
		b.stage(i, parts)
		b.reduceRound(i, parts)
		if gather && i >= lag {
			b.deal(i-lag, rounds[i-lag])
		}
	}
	for i := max(0, len(rounds)-lag); gather && i < len(rounds); i++ {
		b.deal(i, rounds[i])
	}
	return len(rounds)
}

// stage sends the pieces of a round.
func (b *engineBuilder) stage(i int, parts round) {
	m, g, e := b.m, b.m.Group, b.m.engine
	b.awaitFlags(driver.Main, b.credit(i))
	b.flagBarrier(flagReady)
	var small []kernels.Seg
	move := func(copies bool) {
		b.peers(func(r, world int) {
			offs := b.offsets(parts, r)
			for j, c := range parts {
				at, bytes := b.pieceOf(c, r)
				to, from := g.World().Addr(world, b.part(i)+uint64(m.Index)*g.stageSlot+offs[j]), c.t.Src+driver.Ptr(at)
				switch {
				case b.small(bytes) && !copies:
					small = append(small, kernels.Seg{Src: uint64(from), Dst: uint64(to), Bytes: bytes})
				case !b.small(bytes) && copies:
					b.c.Copy(driver.Main, to, from, bytes)
				}
			}
		})
	}
	if move(false); len(small) > 0 { // beside the copies
		b.c.Record(driver.Main, e.sent)
		b.c.Wait(e.out, e.sent)
		b.coresidentCopy(e.out, small)
		b.c.Record(e.out, e.joinOut)
	}
	if move(true); len(small) > 0 {
		b.c.Wait(driver.Main, e.joinOut)
	}
	b.flagBarrier(flagDone)
	b.c.Record(driver.Main, e.copied[i])
}

// reduceRound reduces what came in for a round, and gives its part of staging back.
func (b *engineBuilder) reduceRound(i int, parts round) {
	m, e := b.m, b.m.engine
	b.c.Wait(e.in, e.copied[i])
	if b.toRoot && i >= StagingParts { // our own slot has been sent
		b.c.Wait(e.in, e.dealt[i-StagingParts])
	}
	offs, total := b.offsets(parts, m.Index), uint64(0)
	var segs []kernels.Seg
	for j, c := range parts {
		at, bytes := b.pieceOf(c, m.Index)
		src, dst := c.t.Src+driver.Ptr(at), c.t.Dst+driver.Ptr(c.at)
		if b.op.Kind == kernels.AllReduce {
			dst = c.t.Dst + driver.Ptr(at)
		}
		if b.toRoot && m.Index != b.root {
			dst = b.ownSlot(i, offs[j])
		}
		segs = append(segs, segment(src, dst, bytes))
		total += bytes
	}
	if total <= m.Group.tuning.CoresidentReduce && len(segs) <= mostCoresident {
		for j, s := range segs {
			b.coresidentReduce(s, b.part(i)+offs[j])
		}
	} else {
		for at := 0; at < len(segs); at += kernels.MaxSegs {
			b.try(m.reduce(b.c, e.in, b.op, segs[at:min(at+kernels.MaxSegs, len(segs))], b.part(i)+offs[at], m.Group.stageSlot))
		}
	}
	b.setFlags(e.in, b.credit(i))
	b.c.Record(e.in, e.reduced[i])
}

// mostCoresident is how many tensors co-resident kernels reduce one after the other. One begins at once
// but reduces one tensor, and takes several times as long as a kernel that has the
// multiprocessors to itself. That one takes all tensors of a round, and waits for the
// end of what holds them.
const mostCoresident = 4

// coresidentReduce adds a co-resident kernel that reduces an own piece with those of the peers.
func (b *engineBuilder) coresidentReduce(s kernels.Seg, scratch uint64) {
	l, err := kernels.PlanCoresidentReduce(kernels.Call{Op: b.op.Kind, Red: b.op.Red, DType: b.op.DType, N: b.n, Segs: []kernels.Seg{s}})
	if err == nil && l != nil {
		l.Args.Scratch, l.Args.Slot = scratch, b.m.Group.stageSlot
	}
	b.add(b.m.engine.in, l, err)
}

// deal sends the reduced slices of a round to whoever gets them.
func (b *engineBuilder) deal(i int, parts round) {
	e, offs := b.m.engine, b.offsets(parts, b.m.Index)
	b.c.Wait(driver.Main, e.reduced[i])
	b.peers(func(r, world int) {
		for j, c := range parts {
			at, bytes := c.slice(b.m.Index)
			own := c.t.Dst + driver.Ptr(at)
			switch {
			case !b.toRoot:
				b.c.Copy(driver.Main, b.there(world, own), own, bytes)
			case r == b.root:
				b.c.Copy(driver.Main, b.there(world, own), b.ownSlot(i, offs[j]), bytes)
			}
		}
	})
	b.c.Record(driver.Main, e.dealt[i])
}
