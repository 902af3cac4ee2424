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

// Every pattern of a float of a byte widens and narrows back to itself, midpoints between
// neighbours round to the even one, and what is beyond the largest is what the type has for it.
func TestFloat8Exhaustive(t *testing.T) {
	for d, want := range map[DType]struct {
		largest, least float64
		beyond, nan    byte
	}{
		F8E5M2:        {57344, 0x1p-16, 0x7c, 0x7e},
		F8E4M3:        {240, 0x1p-9, 0x78, 0x7c},
		F8E3M4:        {15.5, 0x1p-6, 0x70, 0x78},
		F8E4M3FN:      {448, 0x1p-9, 0x7f, 0x7f},
		F8E5M2FNUZ:    {57344, 0x1p-17, 0x80, 0x80},
		F8E4M3FNUZ:    {240, 0x1p-10, 0x80, 0x80},
		F8E4M3B11FNUZ: {30, 0x1p-13, 0x80, 0x80},
		F8E8M0FNU:     {0x1p127, 0x1p-126, 0xff, 0xff},
	} {
		if got := d.Largest(); got != want.largest || d.Size() != 1 || !d.IsFloat() {
			t.Errorf("%v: largest %v, want %v", d, got, want.largest)
		}
		if got := float64(F8ToF32(d, 1)); got != want.least {
			t.Errorf("%v: 1 is %v, want %v", d, got, want.least)
		}
		step := want.largest - float64(F8ToF32(d, F8FromF32(d, float32(want.largest))-1))
		if d == F8E8M0FNU {
			step = want.largest
		}
		over := math.Nextafter32(float32(want.largest+step/2), float32(math.Inf(1)))
		if got := F8FromF32(d, over); got != want.beyond {
			t.Errorf("%v: %v is %#x, want %#x", d, over, got, want.beyond)
		}
		if got := F8FromF32(d, float32(math.Inf(1))); got != want.beyond {
			t.Errorf("%v: infinity is %#x, want %#x", d, got, want.beyond)
		}
		if got := F8FromF32(d, float32(math.NaN())); got != want.nan {
			t.Errorf("%v: NaN is %#x, want %#x", d, got, want.nan)
		}
		for i := range 256 {
			b := byte(i)
			f := F8ToF32(d, b)
			if f != f || f > float32(want.largest) {
				continue
			}
			if got := F8FromF32(d, f); got != b {
				t.Errorf("%v %#x -> %v -> %#x", d, b, f, got)
			}
			next := F8ToF32(d, b+1)
			if next != next || math.IsInf(float64(next), 0) || b == 0x7f || b == 0xff {
				continue
			}
			mid := (f + next) / 2
			even := b + b&1
			if d == F8E8M0FNU {
				even = b + 1
			}
			if got := F8FromF32(d, mid); got != even && F8ToF32(d, got) != F8ToF32(d, even) {
				t.Errorf("%v: the middle %v above %#x is %#x, want %#x", d, mid, b, got, even)
			}
			if got := F8FromF32(d, math.Nextafter32(mid, next)); got != b+1 {
				t.Errorf("%v: just above %v is %#x, want %#x", d, mid, got, b+1)
			}
			if got := F8FromF32(d, math.Nextafter32(mid, f)); F8ToF32(d, got) != f {
				t.Errorf("%v: just below %v is %#x, want %#x", d, mid, got, b)
			}
		}
	}
	if F8FromF32(F8E8M0FNU, -1) != 0xff || F8FromF32(F8E8M0FNU, 0) != 0 || F8FromF32(F8E4M3FNUZ, float32(math.Copysign(0, -1))) != 0 {
		t.Error("a sign that there is not")
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

// Nothing lies beyond the ends of a floating-point type, which are numbers of it.
func TestEnds(t *testing.T) {
	b := make([]byte, 8)
	for d := F64; d < numDTypes; d++ {
		if !d.IsFloat() {
			continue
		}
		least, largest := d.Ends()
		for _, end := range []float64{least, largest} {
			StoreFloat(d, b, end)
			if got := LoadFloat(d, b); got != end {
				t.Errorf("%v: the end %v is stored as %v", d, end, got)
			}
		}
		for code := range 256 {
			b[0] = byte(code)
			if x := LoadFloat(d, b); d.IsFloat8() && (x < least || x > largest) {
				t.Errorf("%v: %v is not between %v and %v", d, x, least, largest)
			}
		}
	}
}
