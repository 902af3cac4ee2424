package coll

import (
	"errors"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// Collectives of tensors that are not in symmetric memory go by packets through the
// group's scratch. What does not fit goes in several launches: a bucket is halved until
// each half fits or is one tensor, and a tensor is cut.
//
//   - all_reduce works element by element: a tensor is halved as a bucket is.
//   - the parts of an all_gather or all_to_all are not contiguous in the peers'
//     results: they are exchanged by the uneven all_to_all, which has an address for each.
//   - the parts of a reduce_scatter are not contiguous in the operand: they are
//     copied into a buffer of the rank's own, Member.bounce, and scattered from there.
//   - reduce is an all_reduce whose results the others throw away, into their bounce.
//
// Where it is cut depends on sizes, element type, reduction and group only, so that all
// ranks cut alike.

// inParts plans op, which is too large for one launch.
func (m *Member) inParts(op Op) (*Prepared, error) {
	p := &Prepared{m: m, cmds: &driver.Commands{}}
	b := engineBuilder{m: m, c: p.cmds, op: op, n: m.Group.Size()}
	b.halves(op.Tensors)
	return p, b.err
}

// plan plans a kernel for tensors of the operation's kind.
func (b *engineBuilder) plan(ts []Tensor) (*kernels.Launch, error) {
	call := kernels.Call{Op: b.op.Kind, Red: b.op.Red, DType: b.op.DType, N: b.n, Algo: b.op.Algo, Blocks: b.op.Blocks, Threads: b.op.Threads}
	for _, t := range ts {
		call.Segs = append(call.Segs, segment(t.Src, t.Dst, t.Bytes))
	}
	return kernels.Plan(call, b.m.Group.sc, b.m.Group.tuning)
}

// halves adds the launches for a bucket, in halves where it does not fit.
func (b *engineBuilder) halves(ts []Tensor) {
	l, err := b.plan(ts)
	var room *kernels.ScratchError
	if !errors.As(err, &room) || b.err != nil {
		b.add(driver.Main, l, err)
		return
	}
	if k := len(ts) / 2; k > 0 {
		b.halves(ts[:k])
		b.halves(ts[k:])
		return
	}
	switch t := ts[0]; b.op.Kind {
	case kernels.AllReduce:
		half := (t.Bytes/2 + 15) &^ 15
		if half >= t.Bytes { // scratch for not even that
			b.try(err)
			return
		}
		b.halves([]Tensor{{t.Src, t.Dst, half}})
		b.halves([]Tensor{{t.Src + driver.Ptr(half), t.Dst + driver.Ptr(half), t.Bytes - half}})
	case kernels.ReduceScatter:
		b.packed(t)
	default:
		b.exchange(t)
	}
}

// exchange moves a tensor of an all_gather or all_to_all by pieces. In place, a thread or a
// block sends what is at a place of every piece before it takes anything into it.
func (b *engineBuilder) exchange(t Tensor) {
	b.inSlots(t.Bytes, func(at, bytes uint64) {
		send, recv := make([]Piece, b.n), make([]Piece, b.n)
		for r := range b.n {
			from, to := t.Src+driver.Ptr(at), t.Dst+driver.Ptr(uint64(r)*t.Bytes+at)
			if b.op.Kind == kernels.AllToAll {
				from += driver.Ptr(uint64(r) * t.Bytes)
			}
			if r != b.m.Index || from != to {
				send[r], recv[r] = Piece{from, bytes}, Piece{to, bytes}
			}
		}
		b.uneven(send, recv)
	})
}

// inSlots cuts bytes into parts that one uneven all_to_all serves; all of them, unless slots
// are too small for chunks.
func (b *engineBuilder) inSlots(bytes uint64, part func(at, bytes uint64)) {
	most := kernels.MaxAllToAllV(b.n, b.m.Group.sc)
	for at := uint64(0); at < bytes && b.err == nil; at += most {
		part(at, min(most, bytes-at))
	}
}

// uneven adds one launch of the uneven all_to_all.
func (b *engineBuilder) uneven(send, recv []Piece) {
	u, err := b.m.uneven(b.kind(), send, recv)
	if err != nil {
		b.try(err)
		return
	}
	u.AddTo(b.c)
}

// packed scatters a tensor in parts of every rank's slice that are copied together first.
func (b *engineBuilder) packed(t Tensor) {
	n := uint64(b.n)
	for at, step := uint64(0), b.m.bounceBytes/n&^15; at < t.Bytes && b.err == nil; {
		bytes := min(step, t.Bytes-at)
		l, err := b.plan([]Tensor{{b.m.bounce, t.Dst + driver.Ptr(at), bytes}})
		var room *kernels.ScratchError
		if errors.As(err, &room) && step >= 32 {
			step = step / 2 &^ 15
			continue
		}
		segs := make([]kernels.Seg, n)
		for r := range n {
			segs[r] = segment(t.Src+driver.Ptr(r*t.Bytes+at), b.m.bounce+driver.Ptr(r*bytes), bytes)
		}
		b.coresidentCopy(driver.Main, segs)
		b.add(driver.Main, l, err)
		at += bytes
	}
}

// reducePackets is an all_reduce by packets. Who is not the root puts the result into its
// bounce, so no part is larger than that.
func (m *Member) reducePackets(op Op) (*Prepared, error) {
	p := &Prepared{m: m, cmds: &driver.Commands{}}
	b := engineBuilder{m: m, c: p.cmds, op: op, n: m.Group.Size(), toRoot: true}
	b.op.Kind = kernels.AllReduce
	var ts []Tensor
	used := uint64(0)
	flush := func() {
		if len(ts) > 0 {
			b.halves(ts)
		}
		ts, used = nil, 0
	}
	for _, t := range op.Tensors {
		for at := uint64(0); at < t.Bytes; {
			if len(ts) == kernels.MaxSegs || m.bounceBytes-used < min(t.Bytes-at, 4096) {
				flush()
			}
			bytes := min(t.Bytes-at, m.bounceBytes-used)
			dst := t.Dst + driver.Ptr(at)
			if m.Index != op.Root {
				dst = m.bounce + driver.Ptr(used)
			}
			ts = append(ts, Tensor{t.Src + driver.Ptr(at), dst, bytes})
			at += bytes
			used += (bytes + 15) &^ 15
		}
	}
	flush()
	return p, b.err
}
