package shm

import (
	"testing"
	"unsafe"
)

func TestHeap(t *testing.T) {
	for _, c := range [][2]int{{0, 0}, {1, 1}, {4096, 100}, {130, 1 << 20}} {
		s := Heap(c[0], c[1])
		if len(s.Data) != c[1] || len(s.Bytes) < c[0] || len(s.Words)*4 != len(s.Bytes) || len(s.Quads)*8 != len(s.Bytes) {
			t.Errorf("%v: %d words, %d quads, %d bytes, %d data", c, len(s.Words), len(s.Quads), len(s.Bytes), len(s.Data))
		}
		if p := uintptr(unsafe.Pointer(unsafe.SliceData(s.Quads))); p%8 != 0 {
			t.Errorf("%v: pad at %#x", c, p)
		}
		if p := uintptr(unsafe.Pointer(unsafe.SliceData(s.Data))); p%64 != 0 {
			t.Errorf("%v: arena at %#x", c, p)
		}
		s.Words[1] = 0x01020304
		if s.Quads[0]>>32 != 0x01020304 || s.Bytes[4] != 4 {
			t.Error("the views of the pad differ")
		}
	}
}
