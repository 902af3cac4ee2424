// Package dtype holds the element types that tensors of every layer share:
// the IR, the lowered program, the host kernels and the CUDA runtime.
//
// It is a leaf: it imports nothing of concert, so that program and runtime can
// speak of element types without importing the IR.
package dtype

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DType is the element type of a tensor. The zero value is Invalid.
type DType uint8

// The element types. Their order is part of the program's text digest: append only.
const (
	Invalid DType = iota
	F64           // IEEE binary64
	F32           // IEEE binary32
	F16           // IEEE binary16
	BF16          // bfloat16: the upper half of a binary32
	I64           // signed 64-bit
	I32           // signed 32-bit
	I8            // signed 8-bit
	U8            // unsigned 8-bit
	Bool          // one byte, 0 or 1
	I16           // signed 16-bit
	U16           // unsigned 16-bit
	U32           // unsigned 32-bit
	U64           // unsigned 64-bit

	// Floats of one byte, by their bits of exponent and mantissa: with infinities, without
	// (FN), without and with one zero (FNUZ), and powers of two.
	F8E5M2
	F8E4M3
	F8E3M4
	F8E4M3FN
	F8E5M2FNUZ
	F8E4M3FNUZ
	F8E4M3B11FNUZ
	F8E8M0FNU
	numDTypes
)

var infos = [numDTypes]struct {
	name string
	size int
}{
	Invalid: {"invalid", 0},
	F64:     {"f64", 8},
	F32:     {"f32", 4},
	F16:     {"f16", 2},
	BF16:    {"bf16", 2},
	I64:     {"i64", 8},
	I32:     {"i32", 4},
	I8:      {"i8", 1},
	U8:      {"u8", 1},
	Bool:    {"bool", 1},
	I16:     {"i16", 2},
	U16:     {"u16", 2},
	U32:     {"u32", 4},
	U64:     {"u64", 8},

	F8E5M2:        {"f8e5m2", 1},
	F8E4M3:        {"f8e4m3", 1},
	F8E3M4:        {"f8e3m4", 1},
	F8E4M3FN:      {"f8e4m3fn", 1},
	F8E5M2FNUZ:    {"f8e5m2fnuz", 1},
	F8E4M3FNUZ:    {"f8e4m3fnuz", 1},
	F8E4M3B11FNUZ: {"f8e4m3b11fnuz", 1},
	F8E8M0FNU:     {"f8e8m0fnu", 1},
}

// All lists every valid element type in declaration order.
func All() []DType {
	out := make([]DType, 0, numDTypes)
	for d := F64; d < numDTypes; d++ {
		out = append(out, d)
	}
	return out
}

// String returns the text form: f64 f32 f16 bf16 i64 i32 i8 u8 bool i16 u16 u32 u64 f8e5m2 ...
func (d DType) String() string {
	if d < numDTypes {
		return infos[d].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Size is the size of one element in bytes, 0 for Invalid.
func (d DType) Size() int {
	if d < numDTypes {
		return infos[d].size
	}
	return 0
}

// Valid reports whether d is one of the declared element types.
func (d DType) Valid() bool { return d > Invalid && d < numDTypes }

// IsFloat reports whether d is a floating-point type.
func (d DType) IsFloat() bool { return d >= F64 && d <= BF16 || d.IsFloat8() }

// IsInt reports whether d is an integer type; bool is not.
func (d DType) IsInt() bool { return d >= I64 && d <= U8 || d >= I16 && d <= U64 }

// IsUnsigned reports whether d is an integer type without negative values; bool is not.
func (d DType) IsUnsigned() bool { return d == U8 || d >= U16 && d <= U64 }

// Range is the least and the largest value of an integer type or of bool; those of u64
// have the bits of these numbers.
func (d DType) Range() (least, largest int64) {
	switch bits := 8 * d.Size(); {
	case d == Bool:
		return 0, 1
	case d.IsUnsigned():
		return 0, int64(uint64(math.MaxUint64) >> (64 - bits))
	default:
		return math.MinInt64 >> (64 - bits), math.MaxInt64 >> (64 - bits)
	}
}

// Parse returns the element type that s names in the text form.
func Parse(s string) (DType, bool) {
	for d := F64; d < numDTypes; d++ {
		if infos[d].name == s {
			return d, true
		}
	}
	return Invalid, false
}

// BF16FromF32 rounds to the nearest bfloat16, ties to even; NaN stays NaN.
func BF16FromF32(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x0040
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// BF16ToF32 widens exactly.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F16FromF32 rounds to the nearest binary16, ties to even; overflow gives infinity, NaN stays NaN.
func F16FromF32(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // rounds past 65504
		return sign | 0x7c00
	case b >= 0x38800000: // normal
		b += 0xfff + b>>13&1
		return sign | uint16((b-0x38000000)>>13)
	case b < 0x33000000: // under half of the smallest subnormal
		return sign
	}
	e := b >> 23
	m := b&0x7fffff | 0x800000
	shift := 126 - e
	half := uint32(1) << (shift - 1)
	r := m >> shift
	rem := m & (1<<shift - 1)
	if rem > half || rem == half && r&1 == 1 {
		r++
	}
	return sign | uint16(r)
}

// F16ToF32 widens exactly.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	e := uint32(h >> 10 & 0x1f)
	m := uint32(h & 0x3ff)
	switch {
	case e == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	case e != 0:
		return math.Float32frombits(sign | (e+112)<<23 | m<<13)
	}
	f := float32(m) * (1.0 / (1 << 24))
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// LoadInt reads one little-endian element of an integer type, or a bool as 0 or 1. A u64
// past 2^63 comes as the negative number of the same bits.
func LoadInt(t DType, b []byte) int64 {
	switch t {
	case I64, U64:
		return int64(binary.LittleEndian.Uint64(b))
	case I32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case U32:
		return int64(binary.LittleEndian.Uint32(b))
	case I16:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case U16:
		return int64(binary.LittleEndian.Uint16(b))
	case I8:
		return int64(int8(b[0]))
	}
	return int64(b[0])
}

// StoreInt writes v as one little-endian element of an integer type, cut to its width.
func StoreInt(t DType, b []byte, v int64) {
	switch t.Size() {
	case 8:
		binary.LittleEndian.PutUint64(b, uint64(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	default:
		b[0] = byte(v)
	}
}

// LoadFloat reads one little-endian element of a float type.
func LoadFloat(t DType, b []byte) float64 {
	switch t {
	case F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case F16:
		return float64(F16ToF32(binary.LittleEndian.Uint16(b)))
	}
	if t.IsFloat8() {
		return float64(F8ToF32(t, b[0]))
	}
	return float64(BF16ToF32(binary.LittleEndian.Uint16(b)))
}

// Rounded is the number of a floating-point type that stands for v.
func (d DType) Rounded(v float64) float64 {
	var b [8]byte
	StoreFloat(d, b[:], v)
	return LoadFloat(d, b[:])
}

// StoreFloat writes v as one little-endian element of a float type, rounded to f32 first
// where that is narrower.
func StoreFloat(t DType, b []byte, v float64) {
	switch t {
	case F64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(v))
	case F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
	case F16:
		binary.LittleEndian.PutUint16(b, F16FromF32(float32(v)))
	case BF16:
		binary.LittleEndian.PutUint16(b, BF16FromF32(float32(v)))
	default:
		b[0] = F8FromF32(t, float32(v))
	}
}

// TruncInt64 truncates towards zero and saturates; NaN becomes 0. Go leaves the
// conversion of values out of range to the machine.
func TruncInt64(f float64) int64 {
	switch {
	case f != f:
		return 0
	case f >= 1<<63:
		return math.MaxInt64
	case f < -1<<63:
		return math.MinInt64
	}
	return int64(f)
}
