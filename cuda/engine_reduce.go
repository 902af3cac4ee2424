package cuda

import "github.com/seed-ee968945/concert/kernels"

// The fast forms of all_reduce by copy engines. A tensor is cut into one slice per
// rank, of a multiple of 16 bytes; what is left over, less than 16 bytes a rank, goes
// by packets at the end.
//
// Through the result, when it lies apart from the operand: every rank copies its part
// of slice r into the place of its *own* slice in rank r's result. So rank r finds all
// parts of its slice side by side in its result, needs no staging, and one kernel
// folds them into slice r of it. The slices are cut into a few chunks and all copies
// of the scatter are issued before those of the gather, so the links carry the
// scatter of a chunk while the one before it is folded, and the gather of the first
// chunk while the last is folded. The gather of a chunk overwrites parts that the
// peer must have folded: it gives a credit for each chunk.
//
// By push, in place: the reduce_scatter kernel of push.cu leaves each slice's sum in
// its place, and copies gather the slices. The exit barrier of that kernel says that
// all peers have sent what the gather overwrites.

// allReduce adds the fastest form that fits all tensors and says whether there is one.
func (b *engineBuilder) allReduce() bool {
	apart, same := true, true
	for _, t := range b.op.Tensors {
		apart = apart && (t.Src+Ptr(t.Bytes) <= t.Dst || t.Dst+Ptr(t.Bytes) <= t.Src)
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
		if !b.byPush() {
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
	m, e := b.m, b.m.engine
	type part struct {
		t         Tensor
		piece     uint64 // bytes of a slice
		at, bytes uint64 // of the part within a slice
		own       Ptr    // our slice in the result
	}
	var parts []part
	for _, t := range b.op.Tensors {
		piece := b.sliceOf(t)
		cut := cutSlice(piece, max(1, m.Group.tuning.EngineChunks))
		for i, at := range cut[:len(cut)-1] {
			parts = append(parts, part{t, piece, at, cut[i+1] - at, t.Dst + Ptr(uint64(m.Index)*piece)})
		}
	}
	b.try(m.growEvents(len(parts)))
	if b.err != nil {
		return
	}
	b.start()
	for _, p := range parts {
		b.push(p.own+Ptr(p.at), p.bytes, func(r int) Ptr { return p.t.Src + Ptr(uint64(r)*p.piece+p.at) })
		b.eachLane(func(s Stream, mask uint32) { b.try(m.channel(b.c, s, "signal", chanPieces, mask)) })
	}
	for i, p := range parts {
		b.try(m.channel(b.c, Main, "wait", chanPieces, m.allPeers()))
		scratch := uint64(p.t.Dst-m.Group.world.Addr(m.Rank.ID, 0)) + p.at
		src := p.t.Src + Ptr(uint64(m.Index)*p.piece+p.at)
		b.try(m.fold(b.c, b.op, src, p.own+Ptr(p.at), p.bytes, scratch, p.piece))
		b.try(m.channel(b.c, Main, "signal", chanCredit, m.allPeers()))
		b.c.Record(Main, e.folded[i])
		b.eachLane(func(s Stream, mask uint32) {
			b.c.Wait(s, e.folded[i])
			b.try(m.channel(b.c, s, "wait", chanCredit, mask))
		})
		b.push(p.own+Ptr(p.at), p.bytes, func(int) Ptr { return p.own + Ptr(p.at) })
	}
	b.eachLane(func(s Stream, mask uint32) { b.try(m.channel(b.c, s, "signal", chanDone, mask)) })
}

// byPush reports false, with nothing added, where the push kernel does not serve.
func (b *engineBuilder) byPush() bool {
	m := b.m
	call := kernels.Call{Op: kernels.ReduceScatter, Red: b.op.Red, DType: b.op.DType, N: b.n, Symmetric: true, Algo: kernels.Push,
		Blocks: b.op.Blocks}
	for _, t := range b.op.Tensors {
		piece := b.sliceOf(t)
		call.Segs = append(call.Segs, kernels.Seg{Src: uint64(t.Src), Dst: uint64(t.Dst) + uint64(m.Index)*piece, Bytes: piece})
	}
	if !b.launch(call) {
		return false
	}
	b.fork()
	for i, t := range b.op.Tensors {
		own := Ptr(call.Segs[i].Dst)
		b.push(own, b.sliceOf(t), func(int) Ptr { return own })
	}
	b.eachLane(func(s Stream, mask uint32) { b.try(m.channel(b.c, s, "signal", chanDone, mask)) })
	return true
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
func (b *engineBuilder) must(call kernels.Call) {
	l, err := kernels.Plan(call, b.m.Group.sc, b.m.Group.tuning)
	if err != nil || l == nil {
		b.try(err)
		return
	}
	p, err := b.m.finish(l)
	if err != nil {
		b.try(err)
		return
	}
	b.c.Launch(Main, p.f, l.Grid, l.Block, 0, p.buf)
}

// launch is must for a call that may not be served, which it reports.
func (b *engineBuilder) launch(call kernels.Call) bool {
	if _, err := kernels.Plan(call, b.m.Group.sc, b.m.Group.tuning); err != nil {
		return false
	}
	b.must(call)
	return true
}
