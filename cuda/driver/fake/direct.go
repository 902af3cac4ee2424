//go:build linux

package fake

import "github.com/seed-ee968945/concert/kernels"

// The Go forms of the kernels that read and write peers' memory: large collectives, with
// barriers before and after, and folds of what was staged.

func (b *block) enter() (uint32, error) {
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

// row is the word of a block and a rank among those at which.
func (b *block) row(which uint64, block, rank uint32) uint64 {
	return which + 4*(uint64(block)*kernels.MaxRanks+uint64(rank))
}

func (b *block) leave(e uint32) error {
	for k := uint32(0); k < b.a.N; k++ {
		if e%kernels.Refresh == 0 && b.bid == 0 {
			for c := b.grid; c < kernels.MaxBlocks; c++ {
				setWord(b.row(b.a.Ctl+kernels.CtlExit, c, b.rankAt(k)), e)
			}
		}
		setWord(b.row(b.peerCtl(k)+kernels.CtlExit, b.bid, b.a.Rank), e)
	}
	for r := uint32(0); r < b.a.N; r++ {
		if err := b.waitCounter(b.row(b.a.Ctl+kernels.CtlExit, b.bid, r), e, r); err != nil {
			return err
		}
	}
	b.setEpoch(kernels.CtlDirect, e)
	return nil
}

//go:norace
func (b *block) direct(kind kernels.Collective) error {
	a := b.a
	e, err := b.enter()
	if err != nil {
		return err
	}
	lo, hi := uint32(0), a.Units
	if kind == kernels.AllReduce {
		lo, hi = min(a.Rank*a.Per, a.Units), min((a.Rank+1)*a.Per, a.Units)
	}
	v := make([][16]byte, a.N)
	for i := lo + b.bid; i < hi; i += b.grid {
		seg, off := a.Find(i, 16)
		s := a.Segs[seg]
		switch kind {
		case kernels.AllReduce, kernels.ReduceScatter:
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

// staged folds pieces that copies have brought, those of several segments one behind
// the other.
//
//go:norace
func (b *block) staged(unit uint64) error {
	a, before := b.a, uint64(0)
	v := make([][16]byte, a.N)
	for i, s := range a.Segs {
		for off := uint64(b.bid) * 16; off < s.Bytes; off += uint64(b.grid) * 16 {
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

// sent folds what matmuls have sent.
func (b *block) sent() error {
	e, err := b.enter()
	if err == nil {
		err = b.staged(16)
	}
	if err != nil {
		return err
	}
	return b.leave(e)
}

// coresidentCopy copies this block's units of all segments; a last unit may be shorter.
//
//go:norace
func (b *block) coresidentCopy() error {
	for i := b.bid; i < b.a.Units; i += b.grid {
		seg, off := b.a.Find(i, 16)
		s := b.a.Segs[seg]
		b.store(seg, s.Dst, off, 16, b.load(seg, s.Src, off, 16))
	}
	return nil
}
