//go:build linux

package fake

import (
	"encoding/binary"

	"github.com/seed-ee968945/concert/kernels"
)

// The Go forms of the packet kernels: small collectives, whose data or flags beside it say
// that they have come.

//go:norace
func (b *block) sendPoisoned(at uint64, v [16]byte) {
	for i := uint64(0); i < 4; i++ {
		w := binary.LittleEndian.Uint32(v[4*i:])
		if w == kernels.Poison {
			w = 0x7fff7fff
		}
		setWord(at+4*i, w)
	}
}

//go:norace
func (b *block) receivePoisoned(at uint64, peer uint32) (v [16]byte, err error) {
	for i := uint64(0); i < 4; i++ {
		err := b.poll(peer, 0, func() (bool, uint32) {
			w := word(at + 4*i)
			binary.LittleEndian.PutUint32(v[4*i:], w)
			return w != kernels.Poison, w
		})
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

//go:norace
func (b *block) poison(at uint64) {
	for i := uint64(0); i < 4; i++ {
		setWord(at+4*i, kernels.Poison)
	}
}

// gather receives unit i from all peers, with mine in its place, and re-poisons.
//
//go:norace
func (b *block) gather(at uint64, mine [16]byte) ([][16]byte, error) {
	v := make([][16]byte, b.a.N)
	for r := uint32(0); r < b.a.N; r++ {
		if r == b.a.Rank {
			v[r] = mine
			continue
		}
		var err error
		if v[r], err = b.receivePoisoned(at+uint64(r)*b.a.Slot, r); err != nil {
			return nil, err
		}
		b.poison(at + uint64(r)*b.a.Slot)
	}
	return v, nil
}

// operand is what rank r gets of a segment: all of it, or its slice.
func operand(s kernels.Seg, r uint32, sliced bool) uint64 {
	if sliced {
		return s.Src + uint64(r)*s.Bytes
	}
	return s.Src
}

// oneshot is all_reduce_oneshot, or reduce_scatter_oneshot when slices differ.
//
//go:norace
func (b *block) oneshot(scatter bool) error {
	a := b.a
	e, half := b.epoch(kernels.CtlEpoch)
	from := func(s kernels.Seg, r uint32) uint64 { return operand(s, r, scatter) }
	for i := b.bid; i < a.Units; i += b.grid {
		seg, off := a.Find(i, 16)
		for k := uint32(1); k < a.N; k++ {
			v := b.load(seg, from(a.Segs[seg], b.rankAt(k)), off, 16)
			b.sendPoisoned(a.Peer[k]+half+uint64(a.Rank)*a.Slot+uint64(i)*16, v)
		}
	}
	for i := b.bid; i < a.Units; i += b.grid {
		seg, off := a.Find(i, 16)
		v, err := b.gather(a.Peer[0]+half+uint64(i)*16, b.load(seg, from(a.Segs[seg], a.Rank), off, 16))
		if err != nil {
			return err
		}
		b.store(seg, a.Segs[seg].Dst, off, 16, reduce(a, v))
	}
	b.setEpoch(kernels.CtlEpoch, e)
	return nil
}

//go:norace
func (b *block) twoshot() error {
	a := b.a
	e, half := b.epoch(kernels.CtlEpoch)
	for i := b.bid; i < a.Per; i += b.grid {
		for k := uint32(1); k < a.N; k++ {
			unit := b.rankAt(k)*a.Per + i
			if unit >= a.Units {
				continue
			}
			seg, off := a.Find(unit, 16)
			b.sendPoisoned(a.Peer[k]+half+uint64(a.Rank)*a.Slot+uint64(i)*16, b.load(seg, a.Segs[seg].Src, off, 16))
		}
	}
	for i := b.bid; i < a.Per && a.Rank*a.Per+i < a.Units; i += b.grid {
		seg, off := a.Find(a.Rank*a.Per+i, 16)
		v, err := b.gather(a.Peer[0]+half+uint64(i)*16, b.load(seg, a.Segs[seg].Src, off, 16))
		if err != nil {
			return err
		}
		s := reduce(a, v)
		for k := uint32(1); k < a.N; k++ {
			b.sendPoisoned(a.Peer[k]+half+a.Region+uint64(a.Rank)*a.Slot+uint64(i)*16, s)
		}
		b.store(seg, a.Segs[seg].Dst, off, 16, s)
	}
	for i := b.bid; i < a.Per; i += b.grid {
		for r := uint32(0); r < a.N; r++ {
			unit := r*a.Per + i
			if r == a.Rank || unit >= a.Units {
				continue
			}
			at := a.Peer[0] + half + a.Region + uint64(r)*a.Slot + uint64(i)*16
			v, err := b.receivePoisoned(at, r)
			if err != nil {
				return err
			}
			b.poison(at)
			seg, off := a.Find(unit, 16)
			b.store(seg, a.Segs[seg].Dst, off, 16, v)
		}
	}
	b.setEpoch(kernels.CtlEpoch, e)
	return nil
}

//go:norace
func (b *block) sendFlagged(at uint64, v [16]byte, e uint32) {
	setLong(at, uint64(binary.LittleEndian.Uint32(v[:]))|uint64(e)<<32)
	setLong(at+8, uint64(binary.LittleEndian.Uint32(v[4:]))|uint64(e)<<32)
}

//go:norace
func (b *block) receiveFlagged(at uint64, peer, e uint32) (v [16]byte, err error) {
	for i := uint64(0); i < 2; i++ {
		err := b.poll(peer, e, func() (bool, uint32) {
			w := long(at + 8*i)
			binary.LittleEndian.PutUint32(v[4*i:], uint32(w))
			return uint32(w>>32) == e, uint32(w >> 32)
		})
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// reset clears every stride-th packet of a slot from the first on to the last but last.
//
//go:norace
func (b *block) reset(slot, first, last, stride uint64) {
	for i := first; i < last; i += stride {
		setLong(slot+16*i, 0)
		setLong(slot+16*i+8, 0)
	}
}

// flagged is every *_ll kernel with segments.
//
//go:norace
func (b *block) flagged(kind kernels.Collective) error {
	a := b.a
	e, half := b.epoch(kernels.CtlFlagged)
	src := func(s kernels.Seg, r uint32) uint64 {
		return operand(s, r, kind == kernels.ReduceScatter || kind == kernels.AllToAll)
	}
	for i := b.bid; i < a.Units; i += b.grid {
		seg, off := a.Find(i, 8)
		for k := uint32(1); k < a.N; k++ {
			v := b.load(seg, src(a.Segs[seg], b.rankAt(k)), off, 8)
			b.sendFlagged(a.Peer[k]+half+uint64(a.Rank)*a.Slot+uint64(i)*16, v, e)
		}
	}
	v := make([][16]byte, a.N)
	for i := b.bid; i < a.Units; i += b.grid {
		seg, off := a.Find(i, 8)
		s := a.Segs[seg]
		for r := uint32(0); r < a.N; r++ {
			if r == a.Rank {
				v[r] = b.load(seg, src(s, r), off, 8)
				continue
			}
			var err error
			if v[r], err = b.receiveFlagged(a.Peer[0]+half+uint64(r)*a.Slot+uint64(i)*16, r, e); err != nil {
				return err
			}
		}
		if kind == kernels.AllReduce || kind == kernels.ReduceScatter {
			b.store(seg, s.Dst, off, 8, reduce(a, v))
			continue
		}
		for r := range v {
			b.store(seg, s.Dst+uint64(r)*s.Bytes, off, 8, v[r])
		}
	}
	b.setEpoch(kernels.CtlFlagged, e)
	if e >= kernels.FirstResetEpoch && b.bid < a.Units {
		for r := uint64(0); r < uint64(a.N); r++ {
			b.reset(a.Peer[0]+half+r*a.Slot, uint64(a.Units+b.bid), a.Slot/16, uint64(min(b.grid, a.Units)))
		}
	}
	return nil
}
