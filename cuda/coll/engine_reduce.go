package coll

import (
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// The fast forms of all_reduce by copy engines. A tensor is cut into one slice per
// rank, of a multiple of 16 bytes; what is left over, less than 16 bytes a rank, goes
// by packets at the end.
//
// Through the result, when it is apart from the operand: every rank copies its part
// of slice r into the place of its *own* slice in rank r's result. So rank r finds all
// parts of its slice side by side in its result, needs no staging, and reduces them into
// slice r of it; then copies bring that slice to all peers. Copies of a rank run one
// after the other, and at any time the ranks' copies form a permutation, which gives
// the links' full speed: a chunk for every peer in turn loses it, because the ranks
// drift apart. To hide the reduction nevertheless, the last copy of the scatter and the
// first of the gather, which go to the same peer, are cut into chunks: a chunk is
// reduced while the next is under way. No kernel runs between the copies; signals and
// waits are in the other streams. The gather of a chunk overwrites parts that the
// peers must have reduced: every rank gives a credit for each chunk.
//
// In place: engine_inplace.go.

// allReduce adds the fastest form that fits all tensors and says whether there is one.
func (b *engineBuilder) allReduce() bool {
	apart, same := true, true
	for _, t := range b.op.Tensors {
		apart = apart && (t.Src+driver.Ptr(t.Bytes) <= t.Dst || t.Dst+driver.Ptr(t.Bytes) <= t.Src)
		same = same && t.Src == t.Dst
		if (t.Src|t.Dst)%16 != 0 || t.Bytes < uint64(16*b.n) {
			return false
		}
	}
	switch {
	case len(b.op.Tensors) == 0:
		return false
	case apart:
		b.throughResult()
	case same:
		if !b.inPlace() {
			return false
		}
	default:
		return false
	}
	b.finish()
	b.rest()
	return true
}

// sliceOf is the size of each rank's slice of t.
func (b *engineBuilder) sliceOf(t Tensor) uint64 { return t.Bytes / uint64(16*b.n) * 16 }

// cutSlice cuts a slice into n parts or fewer of multiples of 16 bytes: offsets, the
// end included.
func cutSlice(bytes uint64, n int) []uint64 {
	step := max((bytes/16+uint64(n)-1)/uint64(n)*16, 1<<10)
	var at []uint64
	for o := uint64(0); o < bytes; o += step {
		at = append(at, o)
	}
	return append(at, bytes)
}

func (b *engineBuilder) throughResult() {
	b.start()
	for _, t := range b.op.Tensors {
		b.through(t, uint64(t.Dst-b.m.Rank.World.Addr(b.m.Rank.ID, 0)))
	}
	b.signalDone()
}

// signalDone tells all peers that their results have been written.
func (b *engineBuilder) signalDone() {
	b.channel(b.m.engine.out, "signal", chanDone)
}

// through reduces t through an area of symmetric memory at offset area, which has a place
// of a slice's size for every rank: the peers' parts of a rank's slice go there.
func (b *engineBuilder) through(t Tensor, area uint64) {
	m, e, g := b.m, b.m.engine, b.m.Group
	piece := b.sliceOf(t)
	cut := cutSlice(piece, max(1, g.tuning.EngineChunks))
	chunks, last := len(cut)-1, b.n-1
	b.try(m.growEvents(chunks))
	if b.err != nil {
		return
	}
	own := t.Dst + driver.Ptr(uint64(m.Index)*piece)
	scatter := func(k int, from, to uint64) {
		r := (m.Index + k) % b.n
		b.c.Copy(e.out, g.World().Addr(g.Ranks()[r], area+uint64(m.Index)*piece+from), t.Src+driver.Ptr(uint64(r)*piece+from), to-from)
	}
	gather := func(k int, from, to uint64) {
		b.c.Copy(e.out, b.there(g.Ranks()[(m.Index+k)%b.n], own+driver.Ptr(from)), own+driver.Ptr(from), to-from)
	}
	for k := 1; k < last; k++ {
		scatter(k, 0, piece)
	}
	for i := 0; i < chunks; i++ {
		scatter(last, cut[i], cut[i+1])
		b.c.Record(e.out, e.copied[i])
		b.c.Wait(e.in, e.copied[i])
		b.channel(e.in, "signal", chanPieces)
	}
	for i := 0; i < chunks; i++ {
		b.channel(driver.Main, "wait", chanPieces)
		at, bytes := driver.Ptr(cut[i]), cut[i+1]-cut[i]
		b.try(m.reduce(b.c, driver.Main, b.op, []kernels.Seg{segment(t.Src+driver.Ptr(uint64(m.Index)*piece)+at, own+at, bytes)}, area+cut[i], piece))
		b.channel(driver.Main, "signal", chanCredit)
		b.channel(driver.Main, "wait", chanCredit)
		b.c.Record(driver.Main, e.reduced[i])
		b.c.Wait(e.out, e.reduced[i])
		gather(last, cut[i], cut[i+1])
	}
	for k := 1; k < last; k++ {
		gather(k, 0, piece)
	}
}

// rest reduces what the slices leave over, as few launches as segments allow.
func (b *engineBuilder) rest() {
	call := kernels.Call{Op: kernels.AllReduce, Red: b.op.Red, DType: b.op.DType, N: b.n, Symmetric: true}
	flush := func() {
		if len(call.Segs) > 0 {
			b.must(call)
		}
		call.Segs = nil
	}
	for _, t := range b.op.Tensors {
		if whole := b.sliceOf(t) * uint64(b.n); whole < t.Bytes {
			call.Segs = append(call.Segs, kernels.Seg{Src: uint64(t.Src) + whole, Dst: uint64(t.Dst) + whole, Bytes: t.Bytes - whole})
		}
		if len(call.Segs) == kernels.MaxSegs {
			flush()
		}
	}
	flush()
}

// must adds a planned kernel to the main stream and keeps the error.
func (b *engineBuilder) must(call kernels.Call) { b.kernel(driver.Main, call) }

// kernel is must for any stream.
func (b *engineBuilder) kernel(s driver.Stream, call kernels.Call) {
	l, err := kernels.Plan(call, b.m.Group.sc, b.m.Group.tuning)
	b.add(s, l, err)
}

// add adds a planned kernel, if there is one, and keeps the error.
func (b *engineBuilder) add(s driver.Stream, l *kernels.Launch, err error) {
	if err != nil || l == nil {
		b.try(err)
		return
	}
	p, err := b.m.finish(l, b.kind())
	if err != nil {
		b.try(err)
		return
	}
	b.c.Launch(s, p.f, l.Grid, l.Block, 0, p.buf)
}

// launch is must for a call that may not be served, which it reports.
func (b *engineBuilder) launch(call kernels.Call) bool {
	if _, err := kernels.Plan(call, b.m.Group.sc, b.m.Group.tuning); err != nil {
		return false
	}
	b.must(call)
	return true
}
