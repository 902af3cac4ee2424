//go:build linux

package fake

import (
	"errors"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// gathering is a matmul that gathers its left operand (kernels/src/gather.h). Pieces are sent while
// block 0 multiplies; the others have no tiles left.
func (b *block) gathering(m *matmul) error {
	e := word(b.a.Ctl+kernels.CtlGathers+4*uint64(b.bid)) + 1
	sender, sent := *b, make(chan error, 1)
	go func() { sent <- sender.send(e) }()
	var gone error
	for z := uint32(0); z < b.a.N && b.bid == 0; z++ {
		src, from, za := b.rankAt(z), m.gathered, int(b.rankAt(z))
		if z == 0 {
			from, za = m.a, 0
		} else if err := b.waitCounter(b.a.Ctl+kernels.CtlGathered+4*uint64(src), e, src); err != nil {
			gone = err // multiply what is there, as the kernel does
		}
		m.product(from, za, 0, int(src))
	}
	if err := errors.Join(gone, <-sent); err != nil {
		return errFakeAborted
	}
	return nil
}

// send deals the pieces out by the ticket.
func (b *block) send(e uint32) error {
	a, s := b.a, b.a.Segs[0]
	pieces, entered := (a.Units+a.Per-1)/a.Per, uint32(0)
	place := s.Dst + uint64(a.Rank)*s.Bytes
	all := pieces * a.N
	if place == s.Src {
		all -= pieces
	}
	for k := uint32(1); k < a.N && b.bid == 0; k++ {
		addWord(b.peerCtl(k)+kernels.CtlGatherEntry+4*uint64(a.Rank), 1)
	}
	for {
		b.f.pause()
		ticket := take(a.Ctl + kernels.CtlTicket)
		if ticket >= all {
			break
		}
		k, piece := 1+ticket/pieces, ticket%pieces
		j := (a.N - k) % a.N // the peer that takes these rows as its k-th
		if k > entered && k < a.N {
			entered = k
			if b.aborted() {
				return errFakeAborted
			}
			if err := b.waitCounter(a.Ctl+kernels.CtlGatherEntry+4*uint64(b.rankAt(j)), e, b.rankAt(j)); err != nil {
				return err
			}
		}
		from := 16 * uint64(piece*a.Per)
		n := min(16*uint64(a.Per), s.Bytes-from)
		copy(bytesAt(driver.Ptr(b.toPeer(j, place)+from), n), bytesAt(driver.Ptr(s.Src+from), n))
		if k < a.N && take(a.Ctl+kernels.CtlSent+4*uint64(k)) == pieces-1 {
			setWord(a.Ctl+kernels.CtlSent+4*uint64(k), 0)
			setWord(b.peerCtl(j)+kernels.CtlGathered+4*uint64(a.Rank), e)
		}
	}
	if take(a.Ctl+kernels.CtlSenders) == b.grid-1 {
		setWord(a.Ctl+kernels.CtlTicket, 0)
		setWord(a.Ctl+kernels.CtlSenders, 0)
	}
	b.setEpoch(kernels.CtlGathers, e)
	return nil
}

// take adds one and gives the old value.
func take(at uint64) uint32 { return addWord(at, 1) - 1 }
