package kernels

import "fmt"

// How the uneven all_to_all works; src/alltoall_ll.cu has the same depth.
const (
	unevenBlock = 256

	AllToAllVDepth = 4 // places for chunks that a block has in a slot

	// unevenPackets is up to how many bytes a piece goes by packets if it fits. Packets
	// need no second message but twice the bytes on the links.
	unevenPackets = 256 << 10
	unevenChunk   = 64 << 10 // bytes of a chunk at most
)

// uneven is the blocks of a group of n. A rank knows the sizes of its own pieces only, and
// the grid has to be the same on every rank, so they do not matter. All blocks of all ranks
// have to run at once, also where ranks share a device.
func (sc Scratch) uneven(n int) int { return sc.share(min(32, 256/n)) }

// AllToAllV gives up to how many bytes pieces go by packets, and the bytes of the chunks of
// larger ones, which are none where slots are too small for chunks.
func (sc Scratch) AllToAllV(n int) (packets uint64, chunk uint32) {
	slot := sc.slot(LL, n)
	slot -= min(slot, 16) // the last packet is the size of the piece
	grid := uint64(sc.uneven(n))
	counts := 16 * grid // packets before it count chunks
	if slot < counts+16*grid*AllToAllVDepth {
		return slot / 2, 0
	}
	chunk = uint32(min((slot-counts)/(grid*AllToAllVDepth), unevenChunk) &^ 15)
	return min((slot-counts)/2, unevenPackets), chunk
}

// MaxAllToAllV is how large a piece of an uneven all_to_all of n ranks may be.
func MaxAllToAllV(n int, sc Scratch) uint64 {
	packets, chunk := sc.AllToAllV(n)
	if chunk > 0 {
		return uint64(chunk) * uint64(sc.uneven(n)) << 30
	}
	return packets
}

// PlanAllToAllV plans an all_to_all with a size of its own for every pair of n ranks on the
// one that t belongs to, and fills in everything of the arguments that does not depend on
// addresses of the group. The two ranks of a piece agree on how it travels, by packets or
// by chunks, because it has one size for both; which kernel runs is a matter of each rank.
func PlanAllToAllV(t Table, n, rank int, sc Scratch) (*Launch, error) {
	fail := func(format string, args ...any) error {
		return &PlanError{AllToAllV, fmt.Sprintf(format, args...)}
	}
	if n < 2 || n > MaxRanks {
		return nil, fail("a group of %d ranks: kernels serve 2 to %d", n, MaxRanks)
	}
	if t.Send[rank] != t.Recv[rank] {
		return nil, fail("rank %d sends itself %d bytes and expects %d", rank, t.Send[rank], t.Recv[rank])
	}
	l := &Launch{Image: "alltoall_ll", Kernel: "all_to_all_uneven_ll", Algo: LL, Grid: sc.uneven(n), Block: unevenBlock}
	a := &l.Args
	a.N, a.Scratch, a.Half, a.Slot = uint32(n), sc.Flagged, sc.FlaggedHalf, sc.slot(LL, n)
	a.Region, a.Per = sc.AllToAllV(n)
	most := MaxAllToAllV(n, sc)
	for r := range n {
		for _, p := range []struct {
			what      string
			at, bytes uint64
		}{{"to", t.Src[r], t.Send[r]}, {"from", t.Dst[r], t.Recv[r]}} {
			switch {
			case p.at+p.bytes < p.at:
				return nil, fail("a piece of %d bytes at %#x %s rank %d ends beyond all addresses", p.bytes, p.at, p.what, r)
			case r == rank || p.bytes <= a.Region:
			case p.bytes > most:
				return nil, fail("a piece of %d bytes %s rank %d: slots of %d bytes take %d (GroupOptions.Flagged)", p.bytes, p.what, r, a.Slot, most)
			}
		}
	}
	if a.Units = a.Rounds(t, rank, l.Grid); a.Units > 0 {
		l.Kernel = "all_to_all_uneven_chunks"
	}
	return l, nil
}

// Rounds is how many chunks of the largest piece a block moves on a rank, 0 if all go by packets.
func (a *Args) Rounds(t Table, rank, grid int) uint32 {
	rounds := uint64(0)
	for r := range int(a.N) {
		for _, bytes := range [...]uint64{t.Send[r], t.Recv[r]} {
			if r != rank && bytes > a.Region {
				chunks := (bytes-1)/uint64(a.Per) + 1
				rounds = max(rounds, (chunks-1)/uint64(grid)+1)
			}
		}
	}
	return uint32(rounds)
}
