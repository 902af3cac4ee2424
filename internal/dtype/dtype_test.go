package dtype

import (
	"math"
	"testing"
)

func TestNamesRoundTrip(t *testing.T) {
	for _, d := range All() {
		got, ok := Parse(d.String())
		if !ok || got != d {
			t.Errorf("Parse(%q) = %v, %v", d.String(), got, ok)
		}
		if d.Size() == 0 {
			t.Errorf("%v has no size", d)
		}
	}
	if _, ok := Parse("invalid"); ok {
		t.Error("Parse accepts invalid")
	}
}

// Every 16-bit pattern widens and narrows back to itself, and every midpoint
// between neighbours rounds to the even one.
func TestHalfExhaustive(t *testing.T) {
	for _, c := range []struct {
		name string
		to   func(uint16) float32
		from func(float32) uint16
		inf  uint16
	}{{"f16", F16ToF32, F16FromF32, 0x7c00}, {"bf16", BF16ToF32, BF16FromF32, 0x7f80}} {
		for i := 0; i < 1<<16; i++ {
			h := uint16(i)
			f := c.to(h)
			if f != f {
				if g := c.to(c.from(f)); g == g {
					t.Fatalf("%s %#x: NaN became %v", c.name, h, g)
				}
				continue
			}
			if got := c.from(f); got != h {
				t.Fatalf("%s %#x -> %v -> %#x", c.name, h, f, got)
			}
			if h&0x7fff < c.inf-1 {
				mid := float32((float64(f) + float64(c.to(h+1))) / 2)
				want := h + h&1
				if got := c.from(mid); got != want {
					t.Fatalf("%s midpoint above %#x = %#x, want %#x", c.name, h, got, want)
				}
				up := math.Nextafter32(mid, float32(math.Inf(1-2*int(h>>15))))
				if got := c.from(up); got != h+1 {
					t.Fatalf("%s just above midpoint of %#x = %#x", c.name, h, got)
				}
			}
		}
	}
}

func TestRange(t *testing.T) {
	for d, want := range map[DType][2]int64{I8: {-128, 127}, U8: {0, 255}, I16: {-1 << 15, 1<<15 - 1}, U16: {0, 1<<16 - 1},
		I32: {-1 << 31, 1<<31 - 1}, U32: {0, 1<<32 - 1}, I64: {math.MinInt64, math.MaxInt64}, U64: {0, -1}, Bool: {0, 1}} {
		if least, largest := d.Range(); [2]int64{least, largest} != want {
			t.Errorf("%v: %d to %d, want %d", d, least, largest, want)
		}
	}
}
