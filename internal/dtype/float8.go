package dtype

import "math"

// Floats of one byte. All are written down by the same few numbers.

// form is what the patterns at the end of a float's range stand for.
type form uint8

const (
	ieee   form = iota // infinities and NaN, where all bits of the exponent are set
	finite             // no infinities; NaN where all bits but the sign are set
	noSign             // of zero, whose negative is the only NaN; no infinities
	scale              // nothing but an exponent: powers of two, and NaN where all bits are set
)

// float8 describes a float of one byte.
type float8 struct {
	exponent, mantissa, bias int // bits, bits, and what is taken off the exponent
	form
}

var float8s = [...]float8{
	0:                      {5, 2, 15, ieee},
	F8E4M3 - F8E5M2:        {4, 3, 7, ieee},
	F8E3M4 - F8E5M2:        {3, 4, 3, ieee},
	F8E4M3FN - F8E5M2:      {4, 3, 7, finite},
	F8E5M2FNUZ - F8E5M2:    {5, 2, 16, noSign},
	F8E4M3FNUZ - F8E5M2:    {4, 3, 8, noSign},
	F8E4M3B11FNUZ - F8E5M2: {4, 3, 11, noSign},
	F8E8M0FNU - F8E5M2:     {8, 0, 127, scale},
}

// IsFloat8 reports whether d is a floating-point type of one byte.
func (d DType) IsFloat8() bool { return d >= F8E5M2 && d <= F8E8M0FNU }

// Mantissa is how many bits a floating-point type has behind its point.
func (d DType) Mantissa() int {
	switch {
	case d == F64:
		return 52
	case d == F32:
		return 23
	case d == F16:
		return 10
	case d == BF16:
		return 7
	case d.IsFloat8():
		return float8s[d-F8E5M2].mantissa
	}
	return 0
}

// Largest is the largest finite number of a floating-point type.
func (d DType) Largest() float64 {
	switch {
	case d == F64:
		return math.MaxFloat64
	case d == F32:
		return math.MaxFloat32
	case d == F16:
		return 65504
	case d == BF16:
		return float64(BF16ToF32(0x7f7f))
	case d.IsFloat8():
		return float64(F8ToF32(d, float8s[d-F8E5M2].infinity()-1))
	}
	return 0
}

// HasZero reports whether zero is a number of the type.
func (d DType) HasZero() bool { return d != F8E8M0FNU }

// Ends are the numbers of a floating-point type below and above which there is none:
// infinities, where it has them.
func (d DType) Ends() (least, largest float64) {
	if d.IsFloat8() {
		switch form := float8s[d-F8E5M2].form; form {
		case scale:
			return 1 / d.Largest(), d.Largest()
		case finite, noSign:
			return -d.Largest(), d.Largest()
		}
	}
	return math.Inf(-1), math.Inf(1)
}

// infinity is the pattern behind that of the largest number.
func (f *float8) infinity() byte {
	switch f.form {
	case ieee:
		return byte(1<<7 - 1<<f.mantissa)
	case finite:
		return 0x7f
	case noSign:
		return 0x80
	}
	return 0xff
}

// nan is the pattern of NaN, with a sign where there is one.
func (f *float8) nan(sign byte) byte {
	switch f.form {
	case ieee:
		return sign | f.infinity() | 1<<(f.mantissa-1)
	case finite:
		return sign | 0x7f
	}
	return f.infinity()
}

// F8FromF32 rounds to the nearest number of a type of one byte, ties to even, those of powers
// of two up. What is beyond the largest number is infinite, or NaN in types without infinities,
// as are negative numbers in one without a sign; zero is the least number in one that has none.
func F8FromF32(d DType, v float32) byte {
	f := &float8s[d-F8E5M2]
	b := math.Float32bits(v)
	sign := byte(b >> 24 & 0x80)
	b &= 0x7fffffff
	if b > 0x7f800000 {
		return f.nan(sign)
	}
	if f.form == scale {
		switch {
		case sign != 0 && b != 0 || b >= 0x7f400000:
			return f.nan(0)
		case b < 0x00600000:
			return 0
		case b < 0x00800000:
			return 1
		}
		return byte((b + 0x400000) >> 23)
	}
	e := int(b>>23) - 127
	shift := 23 - f.mantissa + max(0, 1-f.bias-e)
	if shift > 25 { // less than half of the least number
		if f.form == noSign {
			return 0
		}
		return sign
	}
	m := b&0x7fffff | 0x800000
	r := m >> shift
	if rest, half := m&(1<<shift-1), uint32(1)<<(shift-1); rest > half || rest == half && r&1 == 1 {
		r++
	}
	code := max(0, e+f.bias-1)<<f.mantissa + int(r)
	switch {
	case code >= int(f.infinity()) && f.form == ieee:
		return sign | f.infinity()
	case code >= int(f.infinity()):
		return f.nan(sign)
	case code == 0 && f.form == noSign:
		return 0
	}
	return sign | byte(code)
}

// F8ToF32 widens exactly.
func F8ToF32(d DType, b byte) float32 {
	f := &float8s[d-F8E5M2]
	if f.form == scale {
		switch b {
		case 0xff:
			return float32(math.NaN())
		case 0:
			return 0x1p-127
		}
		return math.Float32frombits(uint32(b) << 23)
	}
	sign, code := uint32(b&0x80)<<24, uint32(b&0x7f)
	switch {
	case f.form == noSign && b == 0x80 || f.form != noSign && code > uint32(f.infinity()) || f.form == finite && code == 0x7f:
		return math.Float32frombits(sign | 0x7fc00000)
	case f.form == ieee && code == uint32(f.infinity()):
		return math.Float32frombits(sign | 0x7f800000)
	case code>>f.mantissa == 0:
		least := math.Float32frombits(uint32(128-f.bias-f.mantissa) << 23)
		return math.Float32frombits(sign | math.Float32bits(float32(code)*least))
	}
	return math.Float32frombits(sign | code<<(23-f.mantissa) + uint32(127-f.bias)<<23)
}
