package coll

import (
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// all_reduce in place by copy engines, in two forms.
//
// Through staging: as through the result (engine_reduce.go), but the parts of a slice
// that come from the peers go to the group's staging, one place a rank, because the
// result holds the operand. A tensor whose slices are larger than a place goes in several
// pieces, one after the other: a piece begins when all peers have reduced the one before,
// for which they give credit.
//
// By push, where staging is so small that pieces would not be worth copies: the
// reduce_scatter kernel that pushes leaves each slice's sum in its place, and copies bring
// the slices to all peers. The exit barrier of that kernel says that all peers have sent
// what the copies overwrite.

// inPlace reports false, with nothing added, where neither serves.
func (b *engineBuilder) inPlace() bool {
	g := b.m.Group
	place := StagingParts * g.stageSlot
	pieces := b.cutInPlace(place)
	if len(pieces) > len(b.op.Tensors) && place*uint64(b.n) < 2*g.tuning.EngineInPlace {
		return b.pushInPlace()
	}
	b.start()
	for _, t := range pieces {
		b.through(t, g.sc.Staging)
	}
	b.signalDone()
	return true
}

// cutInPlace cuts the slices of every tensor into pieces of at most so many bytes a
// rank, and gives them as tensors of their own. What is less than 16 bytes a rank at the
// end of a tensor is not in them.
func (b *engineBuilder) cutInPlace(most uint64) (pieces []Tensor) {
	for _, t := range b.op.Tensors {
		step := most / 16 * 16 * uint64(b.n)
		for at, whole := uint64(0), b.sliceOf(t)*uint64(b.n); at < whole; at += step {
			pieces = append(pieces, Tensor{Src: t.Src + driver.Ptr(at), Dst: t.Dst + driver.Ptr(at), Bytes: min(step, whole-at)})
		}
	}
	return pieces
}

func (b *engineBuilder) pushInPlace() bool {
	m, e := b.m, b.m.engine
	call := kernels.Call{Op: kernels.ReduceScatter, Red: b.op.Red, DType: b.op.DType, N: b.n, Symmetric: true, Algo: kernels.Push, Blocks: b.op.Blocks}
	for _, t := range b.op.Tensors {
		slice := b.sliceOf(t)
		call.Segs = append(call.Segs, kernels.Seg{Src: uint64(t.Src), Dst: uint64(t.Src) + uint64(m.Index)*slice, Bytes: slice})
	}
	if !b.launch(call) {
		return false
	}
	b.fork()
	for _, s := range call.Segs {
		own := driver.Ptr(s.Dst)
		b.peers(func(_, world int) { b.c.Copy(e.out, b.there(world, own), own, s.Bytes) })
	}
	b.signalDone()
	return true
}
