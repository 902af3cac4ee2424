package host

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/internal/shm"
)

// FuzzLink reads what a rank of another host may send that breaks the protocol: nothing but
// the words that are its own, its mirror and the room that was made for it may change.
func FuzzLink(f *testing.F) {
	seed := func(kind, phase uint8, a, b uint32, data ...byte) []byte {
		h := []byte{kind, phase, 0, 0}
		for _, v := range []uint32{a, b, uint32(len(data))} {
			h = binary.LittleEndian.AppendUint32(h, v)
		}
		return append(h, data...)
	}
	lay := layout{world: 3, channels: 2, slots: 2}
	f.Add(seed(frameBeat, 0, 1, 2))
	f.Add(seed(frameSignal, 0, uint32(lay.inbox(1, 2)), 7))
	f.Add(seed(frameSignal, 0, uint32(lay.inbox(1, 1)), 7))
	f.Add(seed(frameSignal, 0, wordStatus, 7))
	f.Add(seed(frameDesc, 0, 1, 1, make([]byte, 64)...))
	f.Add(seed(frameData, 0, 1, 5, 1, 2, 3, 4, 5))
	f.Add(seed(frameAbort, 0, 0, 0, []byte("{}")...))
	f.Add(seed(frameLeft, 0, 0, 0))
	f.Add([]byte{frameData, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &Device{spec: rt.Spec{World: 3}, lay: lay, links: make([]*link, 3), opts: Options{Local: true}, transfers: transfers{of: map[transferKey]*transfer{}}}
		for range d.links {
			d.pads = append(d.pads, shm.PadOf(shm.Heap(lay.bytes())))
		}
		d.own, d.lost = d.pads[0], make([]atomic.Uint32, 3)
		l := &link{d: d, peer: 2}
		d.links[2] = l
		room := make([]byte, 16)
		d.transfers.expect(transferKey{1, 2, phaseOperands}, &transfer{call: 5, buf: room[:8]})
		r := bytes.NewReader(b)
		for l.take(r) == nil {
		}
		own := slices.Clone(d.own.Bytes)
		clear(own[4*wordAbort : abortRecord+abortBytes])
		for i, c := range own {
			if c != 0 {
				t.Fatalf("byte %d of this rank's pad is %d", i, c)
			}
		}
		if !bytes.Equal(d.pads[1].Bytes, make([]byte, lay.bytes())) || !bytes.Equal(room[8:], make([]byte, 8)) {
			t.Fatal("it has written what is not its own")
		}
		for w, v := range d.pads[2].Words[inboxStart:lay.signal(lay.slots, 0)] {
			if v != 0 && !lay.writes(2, inboxStart+w) {
				t.Fatalf("word %d of its mirror is %d", inboxStart+w, v)
			}
		}
	})
}
