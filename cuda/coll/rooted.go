package coll

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// Broadcast, collective_permute and reduce to a root.
//
// Small ones are packets: broadcast and permute by the uneven all_to_all, reduce by
// an all_reduce whose results the others throw away. Large ones in symmetric memory
// are copies ordered by flags, as for those overlapped with compute (overlapped.go):
//
//   - broadcast: the root deals the tensor out in slices, and every rank passes its
//     own slice on. The root sends each byte once, and not once for every peer.
//   - permute: one copy for each pair.
//   - reduce: the rounds of reduce_scatter, whose reduced slices go to the root.

// checkRooted checks what the three have beyond other collectives.
func (m *Member) checkRooted(op Op) error {
	n := m.Group.Size()
	if op.Dsts != nil && (op.Kind != kernels.Permute || len(op.Dsts) != len(op.Tensors) || slices.ContainsFunc(op.Dsts, func(l []driver.Ptr) bool { return len(l) != n })) {
		return &kernels.PlanError{Op: op.Kind, Reason: fmt.Sprintf("results of %d tensors at places of their own: want a permute of as many, and %d places of each", len(op.Dsts), n)}
	}
	if op.Kind != kernels.Permute {
		if op.Root < 0 || op.Root >= n {
			return &kernels.PlanError{Op: op.Kind, Reason: fmt.Sprintf("root must be in [0, %d), got %d", n, op.Root)}
		}
		return nil
	}
	from := map[int]bool{}
	for _, p := range op.Pairs {
		if p[0] < 0 || p[0] >= n || p[1] < 0 || p[1] >= n {
			return &kernels.PlanError{Op: op.Kind, Reason: fmt.Sprintf("pair %v: ranks must be in [0, %d)", p, n)}
		}
		if from[p[1]] {
			return &kernels.PlanError{Op: op.Kind, Reason: fmt.Sprintf("rank %d receives from two ranks", p[1])}
		}
		from[p[1]] = true
	}
	return nil
}

// prepareRooted plans a broadcast, permute or reduce.
func (m *Member) prepareRooted(op Op) (*Prepared, error) {
	if err := m.checkRooted(op); err != nil {
		return nil, err
	}
	ts, total := filled(op.Tensors)
	if op.Dsts != nil && len(ts) < len(op.Tensors) {
		dsts := op.Dsts
		op.Dsts = nil
		for i, t := range op.Tensors {
			if t.Bytes > 0 {
				op.Dsts = append(op.Dsts, dsts[i])
			}
		}
	}
	if op.Tensors = ts; total == 0 || op.Kind == kernels.Permute && len(op.Pairs) == 0 {
		return &Prepared{m: m}, nil
	}
	can := m.engine != nil && (op.Symmetric || op.Dsts != nil)
	limit := m.Group.tuning.OverlappedMove
	switch {
	case op.Algo == kernels.Engine && !can:
		return nil, &kernels.PlanError{Op: op.Kind, Reason: "copy engines need tensors in symmetric memory and GroupOptions.Staging"}
	case op.Algo == kernels.Engine, op.Algo == kernels.Auto && can && !op.Kernels && limit > 0 && total >= limit:
		return m.rootedCopies(op)
	case op.Algo != kernels.Auto && op.Algo != kernels.LL:
		return nil, &kernels.PlanError{Op: op.Kind, Reason: fmt.Sprintf("no form by %v", op.Algo)}
	}
	if op.Kind != kernels.Reduce {
		return m.spread(op)
	}
	return m.reducePackets(op)
}

// route returns the rank that this one receives from, -1 for none, and those that it sends
// to. Either may be this rank itself.
func (m *Member) route(op Op) (source int, targets []int) {
	if op.Kind == kernels.Broadcast {
		if m.Index == op.Root {
			for r := range m.Group.Ranks() {
				targets = append(targets, r)
			}
		}
		return op.Root, targets
	}
	source = -1
	for _, p := range op.Pairs {
		if p[0] == m.Index {
			targets = append(targets, p[1])
		}
		if p[1] == m.Index {
			source = p[0]
		}
	}
	return source, targets
}

// spread serves broadcast and permute by packets and chunks, in parts where slots are too
// small for chunks.
func (m *Member) spread(op Op) (*Prepared, error) {
	p := &Prepared{m: m, cmds: &driver.Commands{}}
	b := engineBuilder{m: m, c: p.cmds, op: op, n: m.Group.Size()}
	source, targets := m.route(op)
	for _, t := range op.Tensors {
		b.inSlots(t.Bytes, func(at, bytes uint64) {
			send, recv := make([]Piece, b.n), make([]Piece, b.n)
			for _, r := range targets {
				if r != m.Index || t.Src != t.Dst {
					send[r] = Piece{At: t.Src + driver.Ptr(at), Bytes: bytes}
				}
			}
			if source >= 0 && (source != m.Index || t.Src != t.Dst) {
				recv[source] = Piece{At: t.Dst + driver.Ptr(at), Bytes: bytes}
			}
			b.uneven(send, recv)
		})
	}
	return p, b.err
}

// rootedCopies serves all three by copies and flags.
func (m *Member) rootedCopies(op Op) (*Prepared, error) {
	m.engine.byFlags.Store(true)
	p := &Prepared{m: m, cmds: &driver.Commands{}, num: m.Number(symm.KindOf(op.Kind), 0)}
	b := engineBuilder{m: m, c: p.cmds, op: op, n: m.Group.Size(), root: op.Root, toRoot: op.Kind == kernels.Reduce}
	b.c.Record(driver.Main, m.engine.fork)
	b.c.Wait(m.engine.in, m.engine.fork)
	switch op.Kind {
	case kernels.Reduce:
		b.op.Kind = kernels.AllReduce
		p.parts = b.reduceOverlapped(op.Tensors)
		b.flagBarrier(flagLeft)
	case kernels.Broadcast:
		b.broadcast()
	default:
		b.flagBarrier(flagReady)
		_, targets := m.route(op)
		for i, t := range op.Tensors {
			for _, r := range targets {
				to := t.Dst
				if op.Dsts != nil {
					to = op.Dsts[i][r]
				}
				if !m.Rank.Holds(to, t.Bytes) {
					b.try(fmt.Errorf("%v: the result of tensor %d on rank %d is not in symmetric memory", op.Kind, i, r))
				} else if r != m.Index || t.Src != to {
					b.c.Copy(driver.Main, b.there(m.Group.Ranks()[r], to), t.Src, t.Bytes)
				}
			}
		}
		b.flagBarrier(flagDone)
	}
	b.join()
	return p, b.err
}

func (b *engineBuilder) broadcast() {
	m := b.m
	isRoot := m.Index == b.root
	// Tensors too small for slices, and those of two ranks, go to each peer as a whole.
	whole := func(t Tensor) bool {
		return b.n == 2 || t.Bytes < uint64(b.n)*max(m.Group.tuning.OverlappedPiece, 16)
	}
	slice := func(t Tensor, r int) (at, bytes uint64) {
		piece := ((t.Bytes+uint64(b.n)-1)/uint64(b.n) + 15) &^ 15
		return chunk{t: t, piece: piece, bytes: t.Bytes}.slice(r)
	}
	b.flagBarrier(flagReady)
	if isRoot {
		for _, t := range b.op.Tensors {
			if t.Src != t.Dst {
				b.c.Copy(m.engine.in, t.Dst, t.Src, t.Bytes)
			}
		}
		b.peers(func(r, world int) {
			for _, t := range b.op.Tensors {
				at, bytes := uint64(0), t.Bytes
				if !whole(t) {
					at, bytes = slice(t, r)
				}
				b.c.Copy(driver.Main, b.there(world, t.Dst+driver.Ptr(at)), t.Src+driver.Ptr(at), bytes)
			}
		})
	}
	b.flagBarrier(flagDone)
	b.peers(func(r, world int) {
		for _, t := range b.op.Tensors {
			if r == b.root || whole(t) {
				continue
			}
			at, bytes := slice(t, m.Index)
			from := t.Dst
			if isRoot {
				from = t.Src
			}
			b.c.Copy(driver.Main, b.there(world, t.Dst+driver.Ptr(at)), from+driver.Ptr(at), bytes)
		}
	})
	b.flagBarrier(flagLeft)
}
