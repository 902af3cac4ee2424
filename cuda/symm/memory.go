package symm

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
)

// piece is a part of every rank's addresses that is memory.
type piece struct {
	at, bytes uint64
	mems      []driver.Mem // by rank: made here, or imported; 0 where the rank is out of reach
	life      *lifecycle.Scope
}

// Grow turns bytes from an offset on, a multiple of the granularity, into memory of every
// rank, rounded up to it. All processes call it alike, while nothing of the world runs. It
// returns when this process has mapped all of it, and fails in all processes if one could
// not make its part; one that fails to map has to tell the others itself.
func (w *World) Grow(ctx context.Context, at, bytes uint64) error {
	if err := CheckContext(ctx); err != nil {
		return err
	}
	if err := w.Usable(); err != nil {
		return err
	}
	if err := w.life.Begin(); err != nil {
		return err
	}
	defer w.life.Done()
	ctx, free := w.life.Bound(ctx)
	defer free()
	p, i, err := w.newPiece(at, bytes)
	if err != nil {
		w.control.skip(err)
		return err
	}
	if err := w.fill(ctx, p); err != nil {
		p.life.EndInCall() // the first error matters
		return err
	}
	pieces := slices.Insert(slices.Clone(*w.pieces.Load()), i, p)
	w.pieces.Store(&pieces)
	return nil
}

// newPiece is a part without memory, and its place among the others.
func (w *World) newPiece(at, bytes uint64) (*piece, int, error) {
	pieces := *w.pieces.Load()
	i := sort.Search(len(pieces), func(i int) bool { return pieces[i].at >= at })
	size := (bytes + w.unit - 1) / w.unit * w.unit
	switch {
	case bytes == 0 || at%w.unit != 0 || at > w.stride || bytes > w.stride-at || size > w.stride-at:
		return nil, 0, Invalid("symmetric memory", "%d bytes from offset %d of %d, of which memory has multiples of %d", bytes, at, w.stride, w.unit)
	case i < len(pieces) && pieces[i].at < at+size, i > 0 && pieces[i-1].at+pieces[i-1].bytes > at:
		return nil, 0, Invalid("symmetric memory", "[%d, +%d) is memory already, or a part of it", at, size)
	}
	p := &piece{at: at, bytes: size, mems: make([]driver.Mem, w.n)}
	var err error
	if p.life, err = w.life.New("symmetric memory"); err == nil {
		err = p.life.Work(lifecycle.Hooks{Idle: w.prepared()})
	}
	return p, i, err
}

// prepared gives a question for the end of what was enqueued for readying memory, on all ranks
// here, behind which nothing more is.
func (w *World) prepared() func() (bool, error) {
	left := w.Local()
	return func() (bool, error) {
		for len(left) > 0 {
			if ok, err := w.drv.StreamQuery(left[0].Ctx, left[0].setup); !ok || err != nil {
				return false, err
			}
			left = left[1:]
		}
		return true, nil
	}
}

// fill makes the memory of the ranks of this process, exchanges it with the others', and
// maps all of it.
func (w *World) fill(ctx context.Context, p *piece) (err error) {
	local := w.Local()
	var devs []int
	for _, r := range local {
		if p.mems[r.ID], err = r.own(p.life).Memory(r.Dev, p.bytes, r.made()); err != nil {
			err = fmt.Errorf("rank %d: symmetric memory of %d bytes: %w", r.ID, p.bytes, err)
			w.control.skip(err)
			return err
		}
		devs = append(devs, r.Dev)
	}
	slices.Sort(devs)
	devs = slices.Compact(devs)
	if w.control != nil {
		if err := w.share(ctx, p, local[0]); err != nil {
			return err
		}
	}
	o := local[0].own(p.life)
	for i, m := range p.mems {
		if w.single && w.local[i] == nil {
			continue
		}
		at := w.Addr(i, p.at)
		if err := o.Mapping(at, p.bytes, m); err != nil {
			return fmt.Errorf("mapping rank %d: %w", i, err)
		}
		if err := w.drv.Allow(o.Ctx, at, p.bytes, devs); err != nil {
			return fmt.Errorf("access to rank %d: %w", i, err)
		}
	}
	return nil
}

// share gives the memory of this process's rank to the others, and takes theirs.
func (w *World) share(ctx context.Context, p *piece, r *Rank) error {
	own, err := exportMem(w.drv, r.Ctx, p.mems[r.ID], r.how)
	if err != nil {
		err = fmt.Errorf("rank %d cannot share its memory: %w", r.ID, err)
		w.control.skip(err)
		return err
	}
	all, err := w.control.exchange(ctx, own, r.how)
	own.close()
	if err != nil {
		return err
	}
	defer closeHandles(all)
	for i, h := range all {
		if i == r.ID {
			continue
		}
		if p.mems[i], err = r.own(p.life).Imported(h.importMem(w.drv, r.Ctx)); err != nil {
			return fmt.Errorf("importing the memory of rank %d: %w", i, err)
		}
	}
	return nil
}

// Shrink takes away what Grow made at an offset, in this process. No kernel of any rank may
// use it any more, and none may wait.
func (w *World) Shrink(at uint64) error {
	if err := w.Usable(); err != nil {
		return err
	}
	if err := w.life.Begin(); err != nil {
		return err
	}
	defer w.life.Done()
	pieces := slices.Clone(*w.pieces.Load())
	i := slices.IndexFunc(pieces, func(p *piece) bool { return p.at == at })
	if i < 0 {
		return Invalid("symmetric memory", "nothing was made at offset %d", at)
	}
	gone := pieces[i]
	pieces = slices.Delete(pieces, i, i+1)
	w.pieces.Store(&pieces)
	return gone.life.EndInCall()
}

// FirstFree is the first offset from one on that has room for so many bytes: the same in all
// processes, which grow and shrink alike.
func (w *World) FirstFree(from, bytes uint64) uint64 {
	at := (from + w.unit - 1) / w.unit * w.unit
	for _, p := range *w.pieces.Load() {
		if p.at+p.bytes > at && p.at < at+bytes {
			at = p.at + p.bytes
		}
	}
	return at
}

// mapped reports whether bytes from an offset on are memory.
func (w *World) mapped(at, bytes uint64) bool {
	pieces := *w.pieces.Load()
	i := sort.Search(len(pieces), func(i int) bool { return pieces[i].at > at }) - 1
	return i >= 0 && at-pieces[i].at <= pieces[i].bytes && bytes <= pieces[i].bytes-(at-pieces[i].at)
}
