package decompose

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

var (
	signed   = map[int]ir.DType{1: ir.I8, 2: ir.I16, 4: ir.I32, 8: ir.I64}
	unsigned = map[int]ir.DType{1: ir.U8, 2: ir.U16, 4: ir.U32, 8: ir.U64}
)

// bits is the bits of x as another type of its width.
func (e emit) bits(x *ir.Value, dt ir.DType) *ir.Value {
	if x.Type().DType() == dt {
		return x
	}
	return e.one(ir.OpBitcast, nil, []*ir.Value{x}, ir.TensorOf(dt, x.Type().Shape()))
}

// raw is the bits of x, which is no bool, as an unsigned integer.
func (e emit) raw(x *ir.Value) *ir.Value { return e.bits(x, unsigned[x.Type().DType().Size()]) }

// Bitcast reads the bits of x as elements of type dt. Several narrow elements stand in a
// last dimension of their own, the low bits first.
func Bitcast(to Emitter, x *ir.Value, dt ir.DType) (*ir.Value, error) {
	from := x.Type().DType()
	if from == dt {
		return x, nil
	}
	if err := check("bitcast_convert", x); err != nil {
		return nil, err
	}
	e := emit{to}
	shape := sizes(x)
	switch { // truth values are single bits
	case dt == ir.Bool:
		width := int64(8 * from.Size())
		at := e.one(ir.OpIota, nil, nil, ir.Tensor(ir.I64, width))
		bits := e.convert(e.view(e.raw(x), append(slices.Clone(shape), 1)), ir.U64)
		return e.with(ir.OpNe, e.with(ir.OpBitwiseAnd, e.binary(ir.OpShiftRight, bits, e.convert(at, ir.U64)), 1), 0), nil
	case from == ir.Bool:
		last := len(shape) - 1
		if width := int64(8 * dt.Size()); last < 0 || shape[last] != width {
			return nil, fmt.Errorf("bitcast_convert: the last dimension of %s does not have the %d bits of %s", x.Type(), width, dt)
		}
		at := e.one(ir.OpIota, nil, nil, ir.Tensor(ir.I64, shape[last]))
		bits := e.binary(ir.OpShiftLeft, e.convert(x, ir.I64), at) // of which no two add up
		sum := e.one(ir.OpSum, ir.A("dims", []int64{int64(last)}), []*ir.Value{bits})
		return e.bits(e.convert(sum, unsigned[dt.Size()]), dt), nil
	}
	wide, narrow := from.Size(), dt.Size()
	switch {
	case wide == narrow:
		return e.bits(x, dt), nil
	case wide > narrow:
		x = e.raw(x)
		var parts []*ir.Value
		for i := range wide / narrow {
			part := e.convert(e.with(ir.OpShiftRight, x, int64(8*narrow*i)), unsigned[narrow])
			parts = append(parts, e.view(part, append(slices.Clone(shape), 1)))
		}
		return e.bits(e.cat(len(shape), parts...), dt), nil
	}
	last := len(shape) - 1
	if last < 0 || shape[last] != int64(narrow/wide) {
		return nil, fmt.Errorf("bitcast_convert: the last dimension of %s does not have the %d elements that make one of %s", x.Type(), narrow/wide, dt)
	}
	var all *ir.Value
	for i := range shape[last] {
		part := e.one(ir.OpSelect, ir.A("dim", last, "index", i), []*ir.Value{e.raw(x)})
		part = e.with(ir.OpShiftLeft, e.convert(part, unsigned[narrow]), 8*int64(wide)*i)
		if all != nil {
			part = e.binary(ir.OpBitwiseOr, all, part)
		}
		all = part
	}
	return e.bits(all, dt), nil
}

// PopulationCount counts the bits of integers that are set.
func PopulationCount(to Emitter, x *ir.Value) *ir.Value {
	e := emit{to}
	return e.convert(e.population(e.convert(e.convert(x, unsigned[x.Type().DType().Size()]), ir.U64)), x.Type().DType())
}

// population counts bits in fields of 2, 4 and 8 bits, and adds up the last.
func (e emit) population(x *ir.Value) *ir.Value {
	field := func(x *ir.Value, width, mask int64) *ir.Value {
		return e.binary(ir.OpAdd, e.with(ir.OpBitwiseAnd, x, mask), e.with(ir.OpBitwiseAnd, e.with(ir.OpShiftRight, x, width), mask))
	}
	x = field(x, 1, 0x5555555555555555)
	x = field(x, 2, 0x3333333333333333)
	x = field(x, 4, 0x0f0f0f0f0f0f0f0f)
	return e.with(ir.OpShiftRight, e.with(ir.OpMul, x, 0x0101010101010101), 56)
}

// CountLeadingZeros counts the bits of integers above the highest that is set.
func CountLeadingZeros(to Emitter, x *ir.Value) *ir.Value {
	e := emit{to}
	dt := x.Type().DType()
	y := e.convert(e.convert(x, unsigned[dt.Size()]), ir.U64)
	for s := int64(1); s < int64(8*dt.Size()); s *= 2 { // every bit below it is set, too
		y = e.binary(ir.OpBitwiseOr, y, e.with(ir.OpShiftRight, y, s))
	}
	n := e.convert(e.population(y), ir.I64)
	return e.convert(e.one(ir.OpSub, ir.A("reverse", true, "scalar", 8*dt.Size()), []*ir.Value{n}), dt)
}

// MulHigh is the upper half of the product of integers.
func MulHigh(to Emitter, a, b *ir.Value) *ir.Value {
	e := emit{to}
	dt := a.Type().DType()
	width := int64(8 * dt.Size())
	if width < 64 {
		wide := ir.I64
		if dt.IsUnsigned() {
			wide = ir.U64
		}
		return e.convert(e.with(ir.OpShiftRight, e.binary(ir.OpMul, e.convert(a, wide), e.convert(b, wide)), width), dt)
	}
	const low = 1<<32 - 1
	x, y := e.convert(a, ir.U64), e.convert(b, ir.U64)
	xl, xh := e.with(ir.OpBitwiseAnd, x, low), e.with(ir.OpShiftRight, x, 32)
	yl, yh := e.with(ir.OpBitwiseAnd, y, low), e.with(ir.OpShiftRight, y, 32)
	mul := func(a, b *ir.Value) *ir.Value { return e.binary(ir.OpMul, a, b) }
	add := func(a, b *ir.Value) *ir.Value { return e.binary(ir.OpAdd, a, b) }
	half := func(a *ir.Value) *ir.Value { return e.with(ir.OpShiftRight, a, 32) }
	cross := add(mul(xh, yl), half(mul(xl, yl)))
	second := add(mul(xl, yh), e.with(ir.OpBitwiseAnd, cross, low))
	high := e.convert(add(add(mul(xh, yh), half(cross)), half(second)), dt)
	if dt.IsUnsigned() {
		return high
	}
	zero := e.integer(dt, 0)
	high = e.binary(ir.OpSub, high, e.where(e.with(ir.OpLt, a, 0), b, zero))
	return e.binary(ir.OpSub, high, e.where(e.with(ir.OpLt, b, 0), a, zero))
}

// TotalKey gives floats integers in their total order: -NaN, -inf, ..., -0, +0, ..., inf, NaN.
func TotalKey(to Emitter, x *ir.Value) *ir.Value {
	e := emit{to}
	dt := signed[x.Type().DType().Size()]
	b := e.bits(x, dt)
	width := int64(8 * dt.Size())
	rest := e.with(ir.OpBitwiseAnd, e.with(ir.OpShiftRight, b, width-1), 1<<(width-1)-1)
	return e.binary(ir.OpBitwiseXor, b, rest)
}

// Halfway is an f64 in the 12 digits behind the point that decide how it rounds to a type of 16 bits or
// fewer: what the digits leave out is the last of them, set if it is anything. A conversion to such a
// type goes by f32, which would round a number next to a tie to the tie; this one passes through f32 as it is.
func Halfway(to Emitter, x *ir.Value) *ir.Value {
	e := emit{to}
	const drop = 52 - 12
	b := e.bits(x, ir.I64)
	kept := e.with(ir.OpBitwiseAnd, b, -1<<drop)
	rest := e.with(ir.OpNe, e.with(ir.OpBitwiseAnd, b, 1<<drop-1), 0)
	return e.bits(e.where(rest, e.with(ir.OpBitwiseOr, kept, 1<<drop), kept), ir.F64)
}

// NextAfter is the number next to x in the direction of y.
func NextAfter(to Emitter, x, y *ir.Value) *ir.Value {
	e := emit{to}
	dt := x.Type().DType()
	i := signed[dt.Size()]
	width := int64(8 * dt.Size())
	least := e.with(ir.OpBitwiseOr, e.with(ir.OpBitwiseAnd, e.bits(y, i), -1<<(width-1)), 1) // with the sign of y
	b := e.bits(x, i)
	// Away from zero numbers grow with their bits, whatever their sign.
	up := e.binary(ir.OpEq, e.binary(ir.OpLt, x, y), e.with(ir.OpGt, x, 0))
	next := e.where(up, e.with(ir.OpAdd, b, 1), e.with(ir.OpSub, b, 1))
	next = e.where(e.with(ir.OpEq, x, 0), least, next)
	out := e.where(e.binary(ir.OpEq, x, y), y, e.bits(next, dt))
	strange := e.binary(ir.OpLogicalOr, e.binary(ir.OpNe, x, x), e.binary(ir.OpNe, y, y))
	return e.where(strange, e.binary(ir.OpAdd, x, y), out)
}

// ReducePrecision rounds floats to so many bits of exponent and mantissa: beyond the largest
// number they are infinite, NaN in types without infinities, below the least normal one zero.
// NaN is infinite without bits of mantissa.
func ReducePrecision(to Emitter, x *ir.Value, exponent, digits int) (*ir.Value, error) {
	e, dt := emit{to}, x.Type().DType()
	mantissa := dt.Mantissa()
	if mantissa == 0 || exponent < 1 || digits < 0 {
		return nil, fmt.Errorf("reduce_precision: %s with %d bits of exponent and %d of mantissa", dt, exponent, digits)
	}
	width := 8 * dt.Size()
	have := width - 1 - mantissa
	given := e.bits(x, signed[dt.Size()])
	sign := e.with(ir.OpBitwiseAnd, given, -1<<(width-1))
	zero, infinite := e.bits(sign, dt), e.bits(e.with(ir.OpBitwiseOr, sign, (1<<have-1)<<mantissa), dt)
	b, out := given, x
	if drop := mantissa - digits; drop > 0 { // half of what is dropped is added, less one before an even digit
		odd := e.with(ir.OpBitwiseAnd, e.with(ir.OpShiftRight, b, int64(drop)), 1)
		b = e.binary(ir.OpAdd, b, e.with(ir.OpAdd, odd, 1<<(drop-1)-1))
		b = e.with(ir.OpBitwiseAnd, b, -1<<drop)
		out = e.bits(b, dt)
	}
	_, end := dt.Ends()
	bounded := !math.IsInf(end, 1)
	if bounded {
		infinite = e.full(dt, math.NaN())
	}
	if dt == ir.F8E4M3FNUZ || dt == ir.F8E5M2FNUZ || dt == ir.F8E4M3B11FNUZ { // the bits of -0 are NaN
		zero = e.full(dt, 0)
		out = e.where(e.with(ir.OpEq, e.with(ir.OpBitwiseAnd, b, 1<<(width-1)-1), 0), zero, out)
	}
	if exponent < have {
		bias, less := int64(1)<<(have-1)-1, int64(1)<<(exponent-1)-1
		field := e.with(ir.OpBitwiseAnd, b, (1<<have-1)<<mantissa)
		out = e.where(e.with(ir.OpGt, field, (bias+less)<<mantissa), infinite, out)
		out = e.where(e.with(ir.OpLe, field, (bias-less)<<mantissa), zero, out)
	}
	nan := x
	switch {
	case bounded: // what rounds up beyond all exponents reaches the sign
		out = e.where(e.with(ir.OpLt, e.binary(ir.OpBitwiseXor, b, given), 0), infinite, out)
	case digits == 0:
		nan = e.full(dt, math.Inf(1))
	}
	return e.where(e.binary(ir.OpNe, x, x), nan, out), nil
}
