package cuda

import "github.com/seed-ee968945/concert/kernels"

// Collectives beside compute. Kernels of compute fill all multiprocessors, and those
// that stay until the kernel ends leave no room for a second one: a collective by a
// kernel then starts when that one ends, and each further kernel it needs waits anew.
// Measured beside matrix products of 1.4 ms, a gather of 0.37 ms by copies and flags
// takes as long as alone, one by a kernel 1.3 to 1.5 ms. Multiprocessors left free by
// all products help too, but cost the products 12% for 16 of them whether or not a
// collective runs.
//
// So bytes between ranks move by copy engines, and streams order them by flags
// (engine_quiet.go). What needs multiprocessors runs in a second stream and waits
// there, without holding up the copies:
//
//   - all_gather and all_to_all: the copy of the own piece, when it is not in place.
//     The driver does copies within a device by a kernel.
//   - reduce_scatter: pieces go into staging in rounds of one half of it; one kernel a
//     round folds them. Round c+2 waits for the fold of round c on all ranks.
//   - all_reduce: the same for a slice of the tensor for each rank, and copies of the
//     folded slice to all peers while the next round's pieces come in. A rank's slice
//     in a peer's result is overwritten only after that peer's part of it has come
//     here, so results may lie over operands.
//   - tensors too small to be worth a copy for each peer: one packet kernel for all.
//
// A call that staged ends with a meeting, because the next one may stage by kernels
// that ask nobody.

// prepareBeside plans op beside compute. It gives nil where op is better served as
// if nothing ran beside it, unless op asks for copy engines: then that is an error.
func (m *Member) prepareBeside(op Op) (*Prepared, error) {
	must := op.Algo == kernels.Engine
	why := ""
	switch {
	case m.engine == nil:
		why = "the group has no copy engines: set GroupOptions.Staging"
	case !op.Symmetric:
		why = "copy engines need tensors in symmetric memory"
	case op.Kind > kernels.AllToAll:
		why = "no form beside compute"
	}
	if why != "" {
		if must {
			return nil, &kernels.PlanError{Op: op.Kind, Reason: why}
		}
		return nil, nil
	}
	var large, small []Tensor
	if must {
		for _, t := range op.Tensors {
			if t.Bytes > 0 {
				large = append(large, t)
			}
		}
		if len(large) == 0 {
			return &Prepared{m: m}, nil
		}
	} else if large, small = m.worthCopies(op); len(large) == 0 {
		return nil, nil
	}
	m.engine.quiet.Store(true)
	p := &Prepared{m: m, cmds: &Commands{}}
	b := engineBuilder{m: m, c: p.cmds, op: op, n: len(m.Group.ranks)}
	b.c.Record(Main, m.engine.fork)
	b.c.Wait(m.engine.in, m.engine.fork)
	b.packets(small)
	if op.Kind == kernels.AllGather || op.Kind == kernels.AllToAll {
		b.moveBeside(large)
	} else {
		b.reduceBeside(large)
	}
	b.c.Record(m.engine.in, m.engine.joinIn)
	b.c.Wait(Main, m.engine.joinIn)
	if op.Kind == kernels.AllReduce || op.Kind == kernels.ReduceScatter {
		b.meet(quietLeft)
	}
	return p, b.err
}

// worthCopies parts the tensors into those worth a copy for each peer and others, or
// gives none of the former when all of them together are too small.
func (m *Member) worthCopies(op Op) (large, small []Tensor) {
	t, n, total := m.Group.tuning, uint64(len(m.Group.ranks)), uint64(0)
	for _, x := range op.Tensors {
		piece := x.Bytes
		if op.Kind == kernels.AllReduce {
			piece /= n
		}
		if piece == 0 || piece < t.BesidePiece {
			small = append(small, x)
			continue
		}
		large = append(large, x)
		total += piece * n
	}
	limit := t.BesideMove
	if op.Kind == kernels.AllReduce || op.Kind == kernels.ReduceScatter {
		limit = t.BesideReduce
	}
	if limit == 0 || total < limit {
		return nil, op.Tensors
	}
	return large, small
}

// packets adds kernels for small tensors to the second stream.
func (b *engineBuilder) packets(ts []Tensor) {
	call := kernels.Call{Op: b.op.Kind, Red: b.op.Red, DType: b.op.DType, N: b.n, Symmetric: true, Blocks: b.op.Blocks}
	for len(ts) > 0 {
		k := min(len(ts), kernels.MaxSegs)
		call.Segs = nil
		for _, t := range ts[:k] {
			call.Segs = append(call.Segs, kernels.Seg{Src: uint64(t.Src), Dst: uint64(t.Dst), Bytes: t.Bytes})
		}
		b.kernel(b.m.engine.in, call)
		ts = ts[k:]
	}
}

// moveBeside serves all_gather and all_to_all.
func (b *engineBuilder) moveBeside(ts []Tensor) {
	m := b.m
	from := func(t Tensor, r int) Ptr {
		if b.op.Kind == kernels.AllGather {
			return t.Src
		}
		return t.Src + Ptr(uint64(r)*t.Bytes)
	}
	into := func(t Tensor) Ptr { return t.Dst + Ptr(uint64(m.Index)*t.Bytes) }
	for _, t := range ts {
		if own := from(t, m.Index); own != into(t) {
			b.c.Copy(m.engine.in, into(t), own, t.Bytes)
		}
	}
	b.meet(quietReady)
	b.peers(func(r, world int) {
		for _, t := range ts {
			b.c.Copy(Main, b.there(world, into(t)), from(t, r), t.Bytes)
		}
	})
	b.meet(quietDone)
}

// staged is a part of a tensor that goes through staging, off bytes into each slot.
type staged struct {
	chunk
	off uint64
}

// stagingAlign keeps the parts of a round apart in a slot.
const stagingAlign = 256

// cutRounds deals the tensors out to rounds that each fill a slot of staging per
// rank: tensors are cut where a slot ends, and small ones share it.
func cutRounds(ts []Tensor, slot uint64, n int, whole bool) [][]staged {
	var rounds [][]staged
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
			*last = append(*last, staged{chunk: c, off: slot - room})
			room -= min(room, (c.piece+stagingAlign-1)&^(stagingAlign-1))
			at += c.bytes
		}
	}
	return rounds
}

// ownSlot is the place in staging that nobody sends to: that of this rank's own piece.
func (b *engineBuilder) ownSlot(round int, c staged) Ptr {
	g := b.m.Group
	return g.world.Addr(b.m.Rank.ID, g.stagingHalf(round)+uint64(b.m.Index)*g.stageSlot+c.off)
}

// reduceBeside serves reduce_scatter and all_reduce, and reduce to a root.
func (b *engineBuilder) reduceBeside(ts []Tensor) {
	m, g, e := b.m, b.m.Group, b.m.engine
	gather := b.op.Kind == kernels.AllReduce
	rounds := cutRounds(ts, g.stageSlot, b.n, gather)
	b.try(m.growEvents(len(rounds)))
	if b.err != nil {
		return
	}
	finish := func(i int) { // when round i is folded: its staging is free, its slices can go out
		b.c.Wait(Main, e.folded[i])
		if !gather {
			return
		}
		b.peers(func(r, world int) {
			for _, c := range rounds[i] {
				at, bytes := c.slice(m.Index)
				own := c.t.Dst + Ptr(at)
				switch {
				case !b.toRoot:
					b.c.Copy(Main, b.there(world, own), own, bytes)
				case r == b.root:
					b.c.Copy(Main, b.there(world, own), b.ownSlot(i, c), bytes)
				}
			}
		})
	}
	for i, parts := range rounds {
		if i >= 2 {
			finish(i - 2)
		}
		b.meet(quietReady)
		b.peers(func(r, world int) {
			for _, c := range parts {
				at, bytes := c.slice(r)
				if !gather {
					at, bytes = uint64(r)*c.t.Bytes+c.at, c.bytes
				}
				to := g.world.Addr(world, g.stagingHalf(i)+uint64(m.Index)*g.stageSlot+c.off)
				b.c.Copy(Main, to, c.t.Src+Ptr(at), bytes)
			}
		})
		b.meet(quietDone)
		b.c.Record(Main, e.copied[i])
		b.c.Wait(e.in, e.copied[i])
		for _, c := range parts {
			at, bytes := c.slice(m.Index)
			src, dst := c.t.Src+Ptr(at), c.t.Dst+Ptr(at)
			if !gather {
				src, dst, bytes = c.t.Src+Ptr(uint64(m.Index)*c.t.Bytes+c.at), c.t.Dst+Ptr(c.at), c.bytes
			}
			if b.toRoot && m.Index != b.root {
				dst = b.ownSlot(i, c)
			}
			b.try(m.fold(b.c, e.in, b.op, src, dst, bytes, g.stagingHalf(i)+c.off, g.stageSlot))
		}
		b.c.Record(e.in, e.folded[i])
	}
	for i := max(0, len(rounds)-2); i < len(rounds); i++ {
		finish(i)
	}
}
