package host

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

// piece is a region of the arena that is memory, of every rank.
type piece struct {
	at    rt.Region
	datas [][]byte // by world rank, nil for those of other hosts
	life  *lifecycle.Scope
}

// memory finds the piece that bytes lo to hi are in; an empty range is in any.
func (d *Device) memory(lo, hi int64) (*piece, bool) {
	pieces := *d.pieces.Load()
	i, ok := slices.BinarySearchFunc(pieces, lo, func(p *piece, lo int64) int {
		switch {
		case p.at.Hi <= lo:
			return -1
		case p.at.Lo > lo:
			return 1
		}
		return 0
	})
	if !ok || hi > pieces[i].at.Hi {
		return nil, lo == hi
	}
	return pieces[i], true
}

// bytes are bytes lo to hi of a rank's arena, which have been found to be memory.
func (d *Device) bytes(rank int, lo, hi int64) []byte {
	p, _ := d.memory(lo, hi)
	if p == nil {
		return nil
	}
	return p.datas[rank][lo-p.at.Lo : hi-p.at.Lo : hi-p.at.Lo]
}

// ownBytes are bytes of this rank's.
func (d *Device) ownBytes(lo, hi int64) []byte { return d.bytes(d.spec.Rank, lo, hi) }

// arena is the end of the last region.
func (d *Device) arena() int64 {
	pieces := *d.pieces.Load()
	if len(pieces) == 0 {
		return 0
	}
	return pieces[len(pieces)-1].at.Hi
}

// Grow implements runtime.Device.
func (d *Device) Grow(ctx context.Context, at rt.Region) error {
	if d.life.Begin() != nil {
		return rt.ErrClosed
	}
	defer d.life.Done()
	ctx, free := d.life.Bound(ctx)
	defer free()
	if at.Lo < 0 || at.Hi <= at.Lo || at.Hi > d.mesh.stride || at.Lo%rt.ArenaAlign != 0 {
		return d.call("grow", fmt.Errorf("region %d to %d of an arena of %d at most", at.Lo, at.Hi, d.mesh.stride))
	}
	p := &piece{at: at}
	off, size := d.mesh.pad+int(at.Lo), int(at.Hi-at.Lo)
	var err error
	if p.datas, err = d.mesh.share(ctx, off, size, func([]byte) {}); err != nil {
		return err
	}
	for r, b := range p.datas { // of processes there is the rest of a page
		if b != nil {
			p.datas[r] = b[:size:size]
		}
	}
	if p.life, err = d.room.New("a region of the arena"); err == nil {
		err = p.life.Defer("memory", func() error { return d.mesh.unmap(off, size) })
	}
	if err != nil {
		return err // the device is closing, and unmaps everything
	}
	d.change(func(pieces []*piece) []*piece {
		i, _ := slices.BinarySearchFunc(pieces, at.Lo, func(p *piece, lo int64) int { return int(min(max(p.at.Lo-lo, -1), 1)) })
		return slices.Insert(pieces, i, p)
	})
	return nil
}

// Shrink implements runtime.Device. Transfers that have begun go on with the memory.
func (d *Device) Shrink(at rt.Region) error {
	if d.life.Begin() != nil {
		return rt.ErrClosed
	}
	defer d.life.Done()
	var gone *piece
	d.change(func(pieces []*piece) []*piece {
		return slices.DeleteFunc(pieces, func(p *piece) bool {
			if p.at != at {
				return false
			}
			gone = p
			return true
		})
	})
	if gone == nil {
		return d.call("shrink", fmt.Errorf("no region %d to %d", at.Lo, at.Hi))
	}
	return gone.life.EndInCall()
}

// change replaces the list of pieces, when no transfer looks at them.
func (d *Device) change(f func([]*piece) []*piece) {
	d.gate.Lock()
	defer d.gate.Unlock()
	pieces := f(slices.Clone(*d.pieces.Load()))
	d.pieces.Store(&pieces)
}

// AddGroup implements runtime.Device. The channel may have served another group, whose
// members counted apart: all that signals here starts anew.
func (d *Device) AddGroup(_ context.Context, g rt.Group) error {
	if d.life.Begin() != nil {
		return rt.ErrClosed
	}
	defer d.life.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	used := make([]bool, d.lay.channels)
	for _, ch := range d.chans {
		used[ch.id] = true
	}
	id := slices.Index(used, false)
	if id < 0 || d.chans[g.Name] != nil {
		return d.call("group", fmt.Errorf("%q is there already, or one of more than %d (Options.Groups): %w", g.Name, d.lay.channels, rt.ErrUnsupported))
	}
	for r := range d.spec.World {
		atomic.StoreUint32(d.peerWord(r, d.lay.inbox(id, r)), d.opts.FirstEpoch)
	}
	members, pos := g.Find(d.spec.Rank)
	ch := &channel{id: id, group: g, members: members, pos: pos, epoch: d.opts.FirstEpoch, lastStream: -1}
	for i, m := range members {
		if i != pos {
			ch.others = append(ch.others, i)
		}
		if d.links[m] != nil {
			ch.far = append(ch.far, i)
		}
	}
	d.chans[g.Name] = ch
	return nil
}

// DropGroup implements runtime.Device.
func (d *Device) DropGroup(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.chans, name)
	return nil
}

// Compile implements runtime.Device: kernels run by their bodies, which launches bring.
func (d *Device) Compile(int, rt.Unit) error { return nil }

// Load implements runtime.Device.
func (d *Device) Load(int) error { return nil }

// Unload implements runtime.Device.
func (d *Device) Unload(int) error { return nil }
