//go:build linux

package fake

import (
	"encoding/binary"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// The Go form of the uneven all_to_all (kernels/src/alltoall_ll.cu): packets, and chunks of pieces
// that are too large for them.

// uneven is the work of one block.
type uneven struct {
	*block
	t     kernels.Table
	large bool // the kernel that moves chunks too
	e     uint32
	half  uint64 // offset of this call's half of the scratch
}

func (b *block) uneven(t kernels.Table, large bool) error {
	u := &uneven{block: b, t: t, large: large}
	u.e, u.half = b.epoch(kernels.CtlFlagged)
	u.send()
	if err := u.agreed(); err != nil {
		return err
	}
	if large {
		if err := u.chunks(); err != nil {
			return err
		}
	}
	if err := u.receive(); err != nil {
		return err
	}
	b.setEpoch(kernels.CtlFlagged, u.e)
	if u.e >= kernels.FirstResetEpoch {
		u.resetSlots()
	}
	return nil
}

// chunky says whether a piece of so many bytes goes by chunks.
func (u *uneven) chunky(bytes uint64) bool { return u.large && bytes > u.a.Region }

// mine and theirs are the slots that rank r writes here, and that we write at peer k.
func (u *uneven) mine(r uint32) uint64 { return u.a.Peer[0] + u.half + uint64(r)*u.a.Slot }
func (u *uneven) theirs(k uint32) uint64 {
	return u.a.Peer[k] + u.half + uint64(u.a.Rank)*u.a.Slot
}

// unit is how many bytes of a piece packet i carries.
func unit(bytes, i uint64) uint64 { return min(8, bytes-min(bytes, i*8)) }

//go:norace
func (u *uneven) send() {
	for k := uint32(0); k < u.a.N; k++ {
		d := u.rankAt(k)
		if k > 0 && u.bid == 0 {
			var size [16]byte
			binary.LittleEndian.PutUint64(size[:], u.t.Send[d])
			u.sendFlagged(u.size(u.theirs(k)), size, u.e)
		}
		if k > 0 && u.chunky(u.t.Send[d]) {
			continue
		}
		bytes := u.t.Send[d]
		if k == 0 {
			bytes = min(bytes, u.t.Recv[d])
		}
		for i := uint64(u.bid); i*8 < bytes; i += uint64(u.grid) {
			var v [16]byte
			n := unit(bytes, i)
			copy(v[:n], bytesAt(driver.Ptr(u.t.Src[d]+i*8), n))
			if k == 0 {
				copy(bytesAt(driver.Ptr(u.t.Dst[d]+i*8), n), v[:n])
			} else {
				u.sendFlagged(u.theirs(k)+i*16, v, u.e)
			}
		}
	}
}

// agreed waits for the sizes of pieces and ends the group if this rank expects others.
func (u *uneven) agreed() error {
	if u.bid != 0 { // those behind it run when it has ended
		return nil
	}
	for k := range u.a.N {
		r := u.rankAt(k)
		sent, want := u.t.Send[r], u.t.Recv[r]
		if k > 0 {
			v, err := u.receiveFlagged(u.size(u.mine(r)), r, u.e)
			if err != nil {
				return err
			}
			sent = binary.LittleEndian.Uint64(v[:])
		}
		if sent != want {
			return u.report(kernels.CodeMismatch, r, uint32(want), uint32(sent), want>>32|sent>>32<<32)
		}
	}
	return nil
}

//go:norace
func (u *uneven) receive() error {
	for k := uint32(1); k < u.a.N; k++ {
		r := u.rankAt(k)
		if u.chunky(u.t.Recv[r]) {
			continue
		}
		for i := uint64(u.bid); i*8 < u.t.Recv[r]; i += uint64(u.grid) {
			v, err := u.receiveFlagged(u.mine(r)+i*16, r, u.e)
			if err != nil {
				return err
			}
			n := unit(u.t.Recv[r], i)
			copy(bytesAt(driver.Ptr(u.t.Dst[r]+i*8), n), v[:n])
		}
	}
	return nil
}

// chunk is this block's i-th of a piece.
func (u *uneven) chunk(piece uint64, i uint32) (off, bytes uint64) {
	off = (uint64(i)*uint64(u.grid) + uint64(u.bid)) * uint64(u.a.Per)
	if !u.chunky(piece) || off >= piece {
		return 0, 0
	}
	return off, min(piece-off, uint64(u.a.Per))
}

// place is where chunk i is in a slot, and counts where the two counts are; size is where the size of
// the piece is.
func (u *uneven) place(slot uint64, i uint32) uint64 {
	return slot + (uint64(u.bid)*kernels.AllToAllVDepth+uint64(i%kernels.AllToAllVDepth))*uint64(u.a.Per)
}
func (u *uneven) size(slot uint64) uint64   { return slot + u.a.Slot - 16 }
func (u *uneven) counts(slot uint64) uint64 { return u.size(slot) - 16*uint64(u.grid-u.bid) }

const staged, taken = 0, 8 // counts

func (u *uneven) say(at uint64, count uint32) { setLong(at, uint64(u.e)<<32|uint64(count)) }

func (u *uneven) heard(at uint64, count, peer uint32) error {
	return u.poll(peer, count, func() (bool, uint32) {
		w := long(at)
		return uint32(w>>32) == u.e && uint32(w) >= count, uint32(w)
	})
}

// peers calls f for every peer with its rank.
func (u *uneven) peers(f func(k, r uint32) error) error {
	for k := uint32(1); k < u.a.N; k++ {
		if err := f(k, u.rankAt(k)); err != nil {
			return err
		}
	}
	return nil
}

func (u *uneven) chunks() error {
	for i := uint32(0); i <= u.a.Units; i++ {
		if i < u.a.Units {
			if err := u.fill(i); err != nil {
				return err
			}
		}
		if i > 0 {
			if err := u.take(i - 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill stages chunk i of every large piece.
func (u *uneven) fill(i uint32) error {
	err := u.peers(func(_, r uint32) error {
		if _, bytes := u.chunk(u.t.Send[r], i); bytes == 0 || i < kernels.AllToAllVDepth {
			return nil
		}
		return u.heard(u.counts(u.mine(r))+taken, i-kernels.AllToAllVDepth+1, r)
	})
	if err != nil {
		return err
	}
	return u.peers(func(k, r uint32) error {
		if off, bytes := u.chunk(u.t.Send[r], i); bytes > 0 {
			copy(bytesAt(driver.Ptr(u.place(u.theirs(k), i)), bytes), bytesAt(driver.Ptr(u.t.Src[r]+off), bytes))
			u.say(u.counts(u.theirs(k))+staged, i+1)
		}
		return nil
	})
}

// take brings chunk i of every large piece into place and leaves zeros.
func (u *uneven) take(i uint32) error {
	return u.peers(func(k, r uint32) error {
		off, bytes := u.chunk(u.t.Recv[r], i)
		if bytes == 0 {
			return nil
		}
		if err := u.heard(u.counts(u.mine(r))+staged, i+1, r); err != nil {
			return err
		}
		place := bytesAt(driver.Ptr(u.place(u.mine(r), i)), bytes)
		copy(bytesAt(driver.Ptr(u.t.Dst[r]+off), bytes), place)
		clear(place)
		if _, more := u.chunk(u.t.Recv[r], i+kernels.AllToAllVDepth); more > 0 {
			u.say(u.counts(u.theirs(k))+taken, i+1)
		}
		return nil
	})
}

func (u *uneven) resetSlots() {
	grid, bid := uint64(u.grid), uint64(u.bid)
	for r := uint32(0); r < u.a.N; r++ {
		end, own := u.a.Slot/16-1, kernels.AllToAllVDepth*uint64(u.a.Per)/16
		if u.large {
			end -= grid
			u.reset(u.counts(u.mine(r)), 0, 1, 1)
		}
		if u.chunky(u.t.Recv[r]) {
			last := (bid + 1) * own
			if bid+1 == grid {
				last = end
			}
			u.reset(u.mine(r), bid*own, last, 1)
			continue
		}
		u.reset(u.mine(r), (u.t.Recv[r]+7)/8+bid, end, grid)
	}
}
