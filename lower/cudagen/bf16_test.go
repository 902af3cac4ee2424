package cudagen_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// nearestBF16 rounds a number once.
func nearestBF16(x float64) float32 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return float32(x)
	}
	_, e := math.Frexp(x)
	unit := math.Ldexp(1, max(e-8, -133))
	if x = math.RoundToEven(x/unit) * unit; math.Abs(x) >= 0x1p128 {
		x = math.Inf(int(math.Copysign(1, x)))
	}
	return float32(x)
}

// The device's operations of bfloat16 round once, where the host goes by single precision: the
// bits are the same, for numbers of any size, far apart or close to each other.
func TestBF16RoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	value := func(bits uint16) float32 { return dtype.BF16ToF32(bits) }
	twice := func(x float32) float32 { return value(dtype.BF16FromF32(x)) }
	for range 300_000 {
		x := uint16(r.Uint32())
		y := uint16(r.Uint32())
		switch r.IntN(3) {
		case 0: // a sum of as large numbers, or nearly
			y = y&0x807f | uint16(min(max(int(x>>7&0xff)+r.IntN(41)-20, 0), 255))<<7
		case 1: // a product about the smallest numbers
			y = y&0x807f | uint16(min(max(r.IntN(30)-15-7+127-int(x>>7&0xff), 0), 255))<<7
		}
		a, b := value(x), value(y)
		for _, c := range []struct {
			name  string
			twice float32
			once  float64
		}{{"+", twice(a + b), float64(a) + float64(b)}, {"-", twice(a - b), float64(a) - float64(b)}, {"*", twice(a * b), float64(a) * float64(b)}} {
			once := nearestBF16(c.once)
			if math.Float32bits(once) != math.Float32bits(c.twice) && !(once != once && c.twice != c.twice) {
				t.Fatalf("%g %s %g is %g rounded once, %g rounded twice", a, c.name, b, once, c.twice)
			}
		}
	}
}
