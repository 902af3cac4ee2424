//go:build linux

package cuda

import "github.com/seed-ee968945/concert/kernels"

// The Go forms of the kernels that read and write peers' memory: large collectives that
// meet before and after, or push chunks against credits, and folds of what was staged.

func (b *fakeBlock) enter() (uint32, error) {
	e := word(b.a.Ctl+kernels.CtlDirect+4*uint64(b.bid)) + 1
	for k := uint32(0); b.bid == 0 && k < b.a.N; k++ {
		addWord(b.peerCtl(k)+kernels.CtlEntry+4*uint64(b.a.Rank), 1)
	}
	for r := uint32(0); r < b.a.N; r++ {
		if err := b.waitCounter(b.a.Ctl+kernels.CtlEntry+4*uint64(r), e, r); err != nil {
			return e, err
		}
	}
	return e, nil
}

func (b *fakeBlock) leave(e uint32) error {
	at := func(r uint32) uint64 { return kernels.CtlExit + 4*(uint64(b.bid)*kernels.MaxRanks+uint64(r)) }
	for k := uint32(0); k < b.a.N; k++ {
		setWord(b.peerCtl(k)+at(b.a.Rank), e)
	}
	for r := uint32(0); r < b.a.N; r++ {
		if err := b.waitCounter(b.a.Ctl+at(r), e, r); err != nil {
			return err
		}
	}
	b.setEpoch(kernels.CtlDirect, e)
	return nil
}

func (b *fakeBlock) direct(kind kernels.Collective) error {
	a := b.a
	e, err := b.enter()
	if err != nil {
		return err
	}
	lo, hi := uint32(0), a.Units
	if kind == kernels.AllReduce {
		lo, hi = min(a.Rank*a.Per, a.Units), min((a.Rank+1)*a.Per, a.Units)
	}
	for i := lo + b.bid; i < hi; i += b.grid {
		seg, off := a.Find(i, 16)
		s := a.Segs[seg]
		switch kind {
		case kernels.AllReduce, kernels.ReduceScatter:
			v := make([][16]byte, a.N)
			src := s.Src
			if kind == kernels.ReduceScatter {
				src += uint64(a.Rank) * s.Bytes
			}
			for k := uint32(0); k < a.N; k++ {
				v[b.rankAt(k)] = b.load(seg, b.toPeer(k, src), off, 16)
			}
			w := reduce(a, v)
			for k := uint32(0); k < a.N && (k == 0 || kind == kernels.AllReduce); k++ {
				b.store(seg, b.toPeer(k, s.Dst), off, 16, w)
			}
		default:
			for k := uint32(0); k < a.N; k++ {
				src := s.Src
				if kind == kernels.AllToAll {
					src += uint64(b.rankAt(k)) * s.Bytes
				}
				b.store(seg, b.toPeer(k, s.Dst+uint64(a.Rank)*s.Bytes), off, 16, b.load(seg, src, off, 16))
			}
		}
	}
	return b.leave(e)
}

// pushAll is all_reduce_push, or reduce_scatter_push when it does not gather.
func (b *fakeBlock) pushAll(gather bool) error {
	a := b.a
	e := word(a.Ctl+kernels.CtlDirect+4*uint64(b.bid)) + 1
	done := word(a.Ctl + kernels.CtlChunks + 4*uint64(b.bid))
	for k := uint32(0); b.bid == 0 && k < a.N; k++ {
		addWord(b.peerCtl(k)+kernels.CtlEntry+4*uint64(a.Rank), 1)
	}
	all := a.Units
	if gather {
		all = a.Per
	}
	chunks := (all + kernels.PushUnits - 1) / kernels.PushUnits
	mine := uint32(0)
	if b.bid < chunks {
		mine = (chunks - b.bid + b.grid - 1) / b.grid
	}
	for t := uint32(0); t <= mine; t++ {
		if t < mine {
			if t >= kernels.PushDepth {
				if err := b.await(kernels.CtlCredit, done+t-kernels.PushDepth+1); err != nil {
					return err
				}
			}
			b.pushChunk(gather, b.bid+t*b.grid, (done+t)%kernels.PushDepth)
			b.raise(kernels.CtlPushed, done+t+1)
		}
		if t > 0 {
			if err := b.await(kernels.CtlPushed, done+t); err != nil {
				return err
			}
			b.foldChunk(gather, b.bid+(t-1)*b.grid, (done+t-1)%kernels.PushDepth)
			if t-1+kernels.PushDepth < mine {
				b.raise(kernels.CtlCredit, done+t)
			}
		}
	}
	setWord(a.Ctl+kernels.CtlChunks+4*uint64(b.bid), done+mine)
	return b.leave(e)
}

func (b *fakeBlock) raise(which uint64, count uint32) {
	for k := uint32(1); k < b.a.N; k++ {
		setWord(b.peerCtl(k)+which+4*(uint64(b.bid)*kernels.MaxRanks+uint64(b.a.Rank)), count)
	}
}

func (b *fakeBlock) await(which uint64, count uint32) error {
	for k := uint32(1); k < b.a.N; k++ {
		r := b.rankAt(k)
		if err := b.waitCounter(b.a.Ctl+which+4*(uint64(b.bid)*kernels.MaxRanks+uint64(r)), count, r); err != nil {
			return err
		}
	}
	return nil
}

// chunkUnits gives the units of chunk j of rank d's slice and what is added to a
// source address for it.
func (b *fakeBlock) chunkUnits(gather bool, j, d uint32) (from, count uint32, shift func(kernels.Seg) uint64) {
	a := b.a
	from = j * kernels.PushUnits
	if !gather {
		return from, min(kernels.PushUnits, a.Units-from), func(s kernels.Seg) uint64 { return uint64(d) * s.Bytes }
	}
	count = min(kernels.PushUnits, a.Per-from)
	from += d * a.Per
	return from, min(count, a.Units-min(a.Units, from)), func(kernels.Seg) uint64 { return 0 }
}

func (b *fakeBlock) stage(slot, src, i uint32) uint64 {
	at := (uint64(b.bid)*kernels.PushDepth+uint64(slot))*uint64(b.a.N) + uint64(src)
	return b.a.Scratch + (at*kernels.PushUnits+uint64(i))*16
}

func (b *fakeBlock) pushChunk(gather bool, j, slot uint32) {
	for k := uint32(1); k < b.a.N; k++ {
		from, count, shift := b.chunkUnits(gather, j, b.rankAt(k))
		for i := uint32(0); i < count; i++ {
			seg, off := b.a.Find(from+i, 16)
			s := b.a.Segs[seg]
			v := b.load(seg, s.Src+shift(s), off, 16)
			copy(bytesAt(Ptr(b.a.Peer[k]+b.stage(slot, b.a.Rank, i)), 16), v[:])
		}
	}
}

func (b *fakeBlock) foldChunk(gather bool, j, slot uint32) {
	a := b.a
	from, count, shift := b.chunkUnits(gather, j, a.Rank)
	v := make([][16]byte, a.N)
	for i := uint32(0); i < count; i++ {
		seg, off := a.Find(from+i, 16)
		s := a.Segs[seg]
		for r := uint32(0); r < a.N; r++ {
			if r == a.Rank {
				v[r] = b.load(seg, s.Src+shift(s), off, 16)
			} else {
				copy(v[r][:], bytesAt(Ptr(a.Peer[0]+b.stage(slot, r, i)), 16))
			}
		}
		w := reduce(a, v)
		for k := uint32(0); k < a.N && (k == 0 || gather); k++ {
			b.store(seg, b.toPeer(k, s.Dst), off, 16, w)
		}
	}
}

// staged folds pieces that copies have brought, those of several segments one behind
// the other.
func (b *fakeBlock) staged(unit uint64) error {
	a, before := b.a, uint64(0)
	for i, s := range a.Segs {
		for off := uint64(b.bid) * 16; off < s.Bytes; off += uint64(b.grid) * 16 {
			v := make([][16]byte, a.N)
			for r := uint32(0); r < a.N; r++ {
				base := a.Peer[0] + a.Scratch + uint64(r)*a.Slot + before
				if r == a.Rank {
					base = s.Src
				}
				v[r] = b.load(i, base, off, 16)
			}
			b.store(i, s.Dst, off, 16, reduce(a, v))
		}
		before += (s.Bytes + unit - 1) / unit * unit
	}
	return nil
}
