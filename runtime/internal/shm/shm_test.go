package shm

import (
	"testing"
	"unsafe"
)

func TestHeap(t *testing.T) {
	for _, n := range []int{0, 1, 100, 4096, 1 << 20} {
		b := Heap(n)
		if p := uintptr(unsafe.Pointer(unsafe.SliceData(b))); len(b) != n || p%64 != 0 {
			t.Errorf("%d bytes of %d at %#x", len(b), n, p)
		}
	}
	pad := PadOf(Heap(256))
	if len(pad.Words) != 64 || len(pad.Quads) != 32 || len(pad.Bytes) != 256 {
		t.Errorf("%d words, %d quads, %d bytes", len(pad.Words), len(pad.Quads), len(pad.Bytes))
	}
	pad.Words[1] = 0x01020304
	if pad.Quads[0]>>32 != 0x01020304 || pad.Bytes[4] != 4 {
		t.Error("the views of the pad differ")
	}
}
