package hostops

import (
	"math"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Quotients, remainders and operations on bits. Integers divided by 0 give -1 and leave
// the dividend, as XLA defines; nothing traps.

// each applies f to one pair of elements after the other.
func each[T num](f func(a, b T) T) func(dst, a, b []T) {
	return func(dst, a, b []T) {
		for i := range dst {
			dst[i] = f(a[i], b[i])
		}
	}
}

func atan2[T real](a, b T) T { return T(math.Atan2(float64(a), float64(b))) }

// fmod is exact in any precision.
func fmod[T real](a, b T) T { return T(math.Mod(float64(a), float64(b))) }

func remainder[T real](a, b T) T {
	r := fmod(a, b)
	if r != 0 && (r < 0) != (b < 0) {
		r += b
	}
	return r
}

func truncDivide[T real](a, b T) T { return T(math.Trunc(float64(a / b))) }

func floorDivide[T real](a, b T) T {
	if b == 0 {
		return a / b
	}
	r := fmod(a, b)
	q := (a - r) / b
	if r != 0 && (r < 0) != (b < 0) {
		q--
	}
	if q == 0 {
		return T(math.Copysign(0, float64(a/b)))
	}
	whole := T(math.Floor(float64(q)))
	if q-whole > 0.5 {
		whole++
	}
	return whole
}

func quotient[T int64 | uint64](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a / b
}

func rest[T int64 | uint64](a, b T) T {
	if b == 0 {
		return a
	}
	return a % b
}

func floorQuotient(a, b int64) int64 {
	q := quotient(a, b)
	if b != 0 && a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func floorRest(a, b int64) int64 {
	r := rest(a, b)
	if b != 0 && r != 0 && (r < 0) != (b < 0) {
		r += b
	}
	return r
}

// runBits runs an operation on the bits of integers and of truth values. Both domains of
// integers hold the same bits.
func runBits(f func(a, b int64) int64) func(*call) (job, error) {
	return func(c *call) (job, error) {
		if err := c.wantIntegers(); err != nil {
			return nil, err
		}
		return runBinary(c, binaryOp{i64: each(f)})
	}
}

// runBitwiseNot inverts truth values as such.
func runBitwiseNot(c *call) (job, error) {
	if err := c.wantIntegers(); err != nil {
		return nil, err
	}
	if c.outs[0].DType == dtype.Bool {
		return runUnary(c, opNot)
	}
	return runUnary(c, unaryOp{i64: func(dst, a []int64) {
		for i, v := range a {
			dst[i] = ^v
		}
	}})
}

func shiftLeft(a, b int64) int64 {
	if uint64(b) > 63 {
		return 0
	}
	return a << uint64(b)
}

// runShiftRight copies the sign of signed types. A narrow type lies in int64 with its
// sign, so its own width does not matter.
func runShiftRight(c *call) (job, error) {
	if err := c.wantIntegers(); err != nil {
		return nil, err
	}
	return runBinary(c, binaryOp{
		i64: each(func(a, b int64) int64 { return a >> min(uint64(b), 63) }),
		u64: each(func(a, b uint64) uint64 { return a >> b }),
	})
}

func (c *call) wantIntegers() error {
	for i := range c.ins {
		if c.ins[i].DType.IsFloat() {
			return c.inErr(i, ErrDType, "%v, want integers", c.ins[i].DType)
		}
	}
	if c.outs[0].DType.IsFloat() {
		return c.outErr(0, ErrDType, "%v, want integers", c.outs[0].DType)
	}
	if s := c.numAttr("scalar"); s.IsFloat {
		return c.fail(ErrAttr, "scalar is a float, want an integer")
	}
	return c.bad
}
