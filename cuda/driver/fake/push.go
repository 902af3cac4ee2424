//go:build linux

package fake

import (
	"errors"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// The Go forms of the kernels that push chunks against credits (kernels/src/push.h).

// push is the work of one block of all_reduce_push or reduce_scatter_push.
type push struct {
	*block
	gather       bool   // results go to all ranks: all_reduce
	units, depth uint32 // of a chunk; slots of a source
	done, mine   uint32 // chunks of this block in earlier calls and in this one
}

// push begins and ends the call around the way of its kind.
func (b *block) push(gather bool) error {
	a := b.a
	p := &push{block: b, gather: gather, units: kernels.ScatterUnits, depth: kernels.ScatterDepth}
	all, way := a.Units, p.reduceScatter
	if gather {
		p.units, p.depth = kernels.PushUnits, kernels.PushDepth
		all, way = a.Per, p.allReduce
	}
	e := word(a.Ctl+kernels.CtlDirect+4*uint64(b.bid)) + 1
	p.done = word(a.Ctl + kernels.CtlChunks + 4*uint64(b.bid))
	for k := uint32(0); b.bid == 0 && k < a.N; k++ {
		addWord(b.peerCtl(k)+kernels.CtlEntry+4*uint64(a.Rank), 1)
	}
	if chunks := (all + p.units - 1) / p.units; b.bid < chunks {
		p.mine = (chunks - b.bid + b.grid - 1) / b.grid
	}
	if err := way(); err != nil {
		return err
	}
	setWord(a.Ctl+kernels.CtlChunks+4*uint64(b.bid), p.done+p.mine)
	for k := uint32(1); k < a.N; k++ { // credits that were not given count as given
		setWord(p.counter(kernels.CtlCredit, p.rankAt(k)), p.done+p.mine)
	}
	return b.leave(e)
}

// counter is where this rank keeps what the same block of rank r has raised.
func (p *push) counter(which uint64, r uint32) uint64 {
	return p.a.Ctl + which + 4*(uint64(p.bid)*kernels.MaxRanks+uint64(r))
}

// allReduce pushes a window and then folds the one before.
func (p *push) allReduce() error {
	const window = kernels.PushWindow
	for w := uint32(0); w < p.mine+window; w += window {
		if w < p.mine {
			end := min(w+window, p.mine)
			if err := p.send(w, end); err != nil {
				return err
			}
			p.raise(kernels.CtlPushed, p.done+end)
		}
		if w < window {
			continue
		}
		from, to := w-window, min(w, p.mine)
		if err := p.await(kernels.CtlPushed, p.done+to); err != nil {
			return err
		}
		for i := from; i < to; i++ {
			p.fold(i)
		}
		if from+p.depth < p.mine {
			p.raise(kernels.CtlCredit, p.done+to)
		}
	}
	return nil
}

// reduceScatter pushes and folds at the same time.
func (p *push) reduceScatter() error {
	folded := make(chan error)
	go func() { folded <- p.foldAll() }()
	window := uint32(1)
	if p.mine <= kernels.ScatterFew {
		window = kernels.ScatterFew
	}
	var err error
	for w := uint32(0); w < p.mine && err == nil; w += window {
		end := min(w+window, p.mine)
		if err = p.send(w, end); err == nil {
			p.raise(kernels.CtlPushed, p.done+end)
		}
	}
	return errors.Join(err, <-folded)
}

func (p *push) foldAll() error {
	for i := uint32(0); i < p.mine; i++ {
		if err := p.await(kernels.CtlPushed, p.done+i+1); err != nil {
			return err
		}
		p.fold(i)
		if i+p.depth < p.mine {
			p.raise(kernels.CtlCredit, p.done+i+1)
		}
	}
	return nil
}

func (p *push) raise(which uint64, count uint32) {
	for k := uint32(1); k < p.a.N; k++ {
		setWord(p.toPeer(k, p.counter(which, p.a.Rank)), count)
	}
}

func (p *push) await(which uint64, count uint32) error {
	for k := uint32(1); k < p.a.N; k++ {
		r := p.rankAt(k)
		if err := p.waitCounter(p.counter(which, r), count, r); err != nil {
			return err
		}
	}
	return nil
}

// part gives the first unit of this block's chunk i of rank d's slice, how many it has,
// and the slice whose bytes are to be added to a source address.
func (p *push) part(i, d uint32) (from, count uint32, slice uint64) {
	a := p.a
	from = (p.bid + i*p.grid) * p.units
	if !p.gather {
		return from, min(p.units, a.Units-from), uint64(d)
	}
	count = min(p.units, a.Per-from)
	from += d * a.Per
	return from, min(count, a.Units-min(a.Units, from)), 0
}

func (p *push) stage(i, src, unit uint32) uint64 {
	slot := uint64((p.done + i) % p.depth)
	chunk := (slot*uint64(p.a.N)+uint64(src))*uint64(p.grid) + uint64(p.bid)
	return p.a.Scratch + (chunk*uint64(p.units)+uint64(unit))*16
}

// send pushes chunks [w, end) to one peer after the other, against credits.
//
//go:norace
func (p *push) send(w, end uint32) error {
	if end > p.depth {
		if err := p.await(kernels.CtlCredit, p.done+end-p.depth); err != nil {
			return err
		}
	}
	for k := uint32(1); k < p.a.N; k++ {
		for i := w; i < end; i++ {
			from, count, slice := p.part(i, p.rankAt(k))
			for u := uint32(0); u < count; u++ {
				seg, off := p.a.Find(from+u, 16)
				s := p.a.Segs[seg]
				v := p.load(seg, s.Src+slice*s.Bytes, off, 16)
				copy(bytesAt(driver.Ptr(p.a.Peer[k]+p.stage(i, p.a.Rank, u)), 16), v[:])
			}
		}
	}
	return nil
}

//go:norace
func (p *push) fold(i uint32) {
	a := p.a
	from, count, slice := p.part(i, a.Rank)
	v := make([][16]byte, a.N)
	for u := uint32(0); u < count; u++ {
		seg, off := a.Find(from+u, 16)
		s := a.Segs[seg]
		for r := uint32(0); r < a.N; r++ {
			if r == a.Rank {
				v[r] = p.load(seg, s.Src+slice*s.Bytes, off, 16)
			} else {
				copy(v[r][:], bytesAt(driver.Ptr(a.Peer[0]+p.stage(i, r, u)), 16))
			}
		}
		w := reduce(a, v)
		for k := uint32(0); k < a.N && (k == 0 || p.gather); k++ {
			p.store(seg, p.toPeer(k, s.Dst), off, 16, w)
		}
	}
}
