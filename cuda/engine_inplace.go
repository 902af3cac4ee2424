package cuda

import "github.com/seed-ee968945/concert/kernels"

// all_reduce in place by push and copies. The reduce_scatter kernel of push.cu leaves
// each slice's sum in its place, and copies bring the slices to all peers. The exit
// barrier of that kernel says that all peers have sent what the copies overwrite.
//
// A kernel that pushes keeps the links less busy than copies do, because its blocks
// wait for each other's chunks in between. So the tensors are cut into parts, each with
// slices of its own: while the kernel of a part pushes, the copies of the part before it
// use what the kernel leaves of the links. The parts touch different memory, so kernels
// wait for no copies, and copies for their own kernel alone.

// inPlace reports false, with nothing added, where the push kernel does not serve.
func (b *engineBuilder) inPlace() bool {
	m, e := b.m, b.m.engine
	parts := b.cutInPlace(max(1, m.Group.tuning.EngineInPlaceParts))
	b.try(m.growEvents(len(parts)))
	for i, segs := range parts {
		call := kernels.Call{Op: kernels.ReduceScatter, Red: b.op.Red, DType: b.op.DType, N: b.n, Symmetric: true, Algo: kernels.Push,
			Blocks: b.op.Blocks, Segs: segs}
		if i > 0 {
			b.must(call)
		} else if !b.launch(call) {
			return false
		}
		if b.err != nil {
			return true
		}
		if i == 0 {
			b.fork()
		}
		b.c.Record(Main, e.folded[i])
		b.c.Wait(e.out, e.folded[i])
		for _, s := range segs {
			own := Ptr(s.Dst)
			b.peers(func(_, world int) { b.c.Copy(e.out, b.there(world, own), own, s.Bytes) })
		}
	}
	b.try(m.channel(b.c, e.out, "signal", chanDone, m.allPeers()))
	return true
}

// cutInPlace cuts the slices of every tensor into n parts or fewer and gives, for each
// part, the segments of a reduce_scatter: the pieces of all ranks side by side, and the
// sum in the place of the own one.
func (b *engineBuilder) cutInPlace(n int) [][]kernels.Seg {
	var parts [][]kernels.Seg
	for _, t := range b.op.Tensors {
		cut := cutSlice(b.sliceOf(t), n)
		for i, from := range cut[:len(cut)-1] {
			if i == len(parts) {
				parts = append(parts, nil)
			}
			bytes, src := cut[i+1]-from, uint64(t.Src)+from*uint64(b.n)
			parts[i] = append(parts[i], kernels.Seg{Src: src, Dst: src + uint64(b.m.Index)*bytes, Bytes: bytes})
		}
	}
	return parts
}
