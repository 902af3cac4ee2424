package hostops

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The vector unit's tile gives the bits of the one in Go, of numbers of every size.
func TestTileVector(t *testing.T) {
	width := vectorTile()
	if width == 0 {
		t.Skip("there is no vector unit that is used")
	}
	r := rand.New(rand.NewPCG(1, 2))
	number := func() float32 {
		if r.IntN(50) == 0 {
			return float32(math.Inf(r.IntN(2)*2 - 1))
		}
		return math.Float32frombits(r.Uint32()&0x807fffff | uint32(r.IntN(256))<<23&0x7f000000>>uint(r.IntN(3)))
	}
	for depth := range int64(40) {
		stride := width + depth
		a, b := make([]float32, mTile*depth), make([]float32, width*depth)
		sum := make([]float32, 3*stride+width)
		for _, s := range [][]float32{a, b, sum} {
			for i := range s {
				s[i] = number()
			}
		}
		want := append([]float32(nil), sum...)
		tileVector(sum, stride, a, b)
		for j := int64(0); j < width; j += nTile {
			part := make([]float32, nTile*depth)
			for k := range depth {
				copy(part[k*nTile:(k+1)*nTile], b[k*width+j:])
			}
			tile(want[j:], stride, a, part)
		}
		for i, v := range sum {
			if x, y := math.Float32bits(v), math.Float32bits(want[i]); x != y && (v == v || want[i] == want[i]) {
				t.Fatalf("depth %d: element %d is %x, want %x", depth, i, x, y)
			}
		}
	}
}
