package hostops

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// An opCase is one call of a kernel and what it gives, computed by hand.
type opCase struct {
	op, attrs string
	ins       []Tensor
	want      []Tensor
}

// opCases has cases for every kernel, by family.
func opCases() []opCase {
	return slices.Concat(creationCases, unaryCases, quotientAndBitCases, binaryCases, ternaryCases, reductionCases, productCases, movementCases, attentionCases)
}

// Tensors of one dimension.
func f32s(vals ...float64) Tensor  { return f32(shape{int64(len(vals))}, vals...) }
func i64s(vals ...float64) Tensor  { return i64(shape{int64(len(vals))}, vals...) }
func bools(vals ...float64) Tensor { return flags(shape{int64(len(vals))}, vals...) }
func bf16s(vals ...float64) Tensor { return bf16(shape{int64(len(vals))}, vals...) }

func mkI64(v int64) Tensor {
	x := i64(shape{})
	store(&x, 0, 1, []int64{v})
	return x
}

func i64Bits(vals ...int64) Tensor {
	x := i64(shape{int64(len(vals))})
	store(&x, 0, 1, vals)
	return x
}

// in lists operands, or results.
func in(ts ...Tensor) []Tensor { return ts }

var twoByThree = f32(shape{2, 3}, 1, 2, 3, 4, 5, 6)

var creationCases = []opCase{
	{"full", "{value=2.5}", nil, in(bf16(shape{2, 2}, 2.5, 2.5, 2.5, 2.5))},
	{"full", "{value=0.1}", nil, in(f32(shape{2, 1}, 0.1, 0.1))},
	{"full", "{value=-3}", nil, in(mk(dtype.I8, shape{}, -3))},
	{"full", "{value=9007199254740993}", nil, in(mkI64(9007199254740993))},
	{"full", "{value=true}", nil, in(bools(1, 1))},
	{"full", "{value=-inf}", nil, in(f32s(-inf))},
	{"constant", `{data="AACAPwAAAMAAAMB/"}`, nil, in(f32s(1, -2, nan))},
	{"constant", `{data="AQAAAAAAAAD//////////w=="}`, nil, in(i64s(1, -1))},
	{"iota", "{start=3, step=2}", nil, in(i64s(3, 5, 7))},
	{"iota", "{start=0.5, step=0.25}", nil, in(f32s(0.5, 0.75, 1))},
	{"iota", "", nil, in(i64s(0, 1, 2))},
}

var unaryCases = []opCase{
	{"neg", "", in(f32s(1, -2, 0)), in(f32s(-1, 2, math.Copysign(0, -1)))},
	{"neg", "", in(mk(dtype.U8, shape{2}, 1, 0)), in(mk(dtype.U8, shape{2}, 255, 0))},
	{"exp", "", in(f32s(0, 1, -inf, inf, nan)), in(f32s(1, e1, 0, inf, nan))},
	{"exp", "", in(bf16s(1)), in(bf16s(2.71875))},
	{"log", "", in(f32s(1, 2, 0, -1)), in(f32s(0, ln2, -inf, nan))},
	{"log", "", in(i64s(1, 2)), in(f32s(0, ln2))},
	{"sqrt", "", in(f32s(4, 2, -1)), in(f32s(2, r32(math.Sqrt2), nan))},
	{"rsqrt", "", in(f32s(4, 0)), in(f32s(0.5, inf))},
	{"reciprocal", "", in(f32s(4, -0.5)), in(f32s(0.25, -2))},
	{"reciprocal", "", in(i64s(4)), in(f32s(0.25))},
	{"abs", "", in(f32s(-1, 2)), in(f32s(1, 2))},
	{"abs", "", in(i64s(-3, 3)), in(i64s(3, 3))},
	{"sigmoid", "", in(f32s(0, inf, -inf)), in(f32s(0.5, 1, 0))},
	{"tanh", "", in(f32s(0, inf)), in(f32s(0, 1))},
	{"relu", "", in(f32s(-1, 2, nan)), in(f32s(0, 2, nan))},
	{"relu", "", in(i64s(-1, 2)), in(i64s(0, 2))},
	{"silu", "", in(f32s(0, 1)), in(f32s(0, r32(1/(1+math.Exp(-1)))))},
	{"gelu", "", in(f32s(0, 1)), in(f32s(0, r32(0.8413447460685429)))},
	{"gelu", `{approximate="tanh"}`, in(f32s(0, 1)), in(f32s(0, r32(0.8411919906082768)))},
	{"sin", "", in(f32s(0, math.Pi/2)), in(f32s(0, 1))},
	{"cos", "", in(f32s(0)), in(f32s(1))},
	{"floor", "", in(f32s(1.5, -1.5)), in(f32s(1, -2))},
	{"floor", "", in(i64s(7)), in(i64s(7))},
	{"erf", "", in(f32s(0.0, 0.5, -2.0)), in(f32s(r32(0.0), r32(0.5204998778130465), r32(-0.9953222650189527)))},
	{"erfc", "", in(f32s(0.0, 0.5, 3.0)), in(f32s(r32(1.0), r32(0.4795001221869535), r32(2.2090496998585438e-05)))},
	{"exp2", "", in(f32s(0.0, 3.0, -0.5)), in(f32s(r32(1.0), r32(8.0), r32(0.7071067811865476)))},
	{"expm1", "", in(f32s(0.0, 9.999999747378752e-05, 1.0)), in(f32s(r32(0.0), r32(0.00010000499764020572), r32(1.718281828459045)))},
	{"log2", "", in(f32s(1.0, 8.0, 3.0)), in(f32s(r32(0.0), r32(3.0), r32(1.584962500721156)))},
	{"log10", "", in(f32s(1.0, 1000.0, 3.0)), in(f32s(r32(0.0), r32(3.0), r32(0.47712125471966244)))},
	{"log1p", "", in(f32s(0.0, 9.999999747378752e-05, 1.0)), in(f32s(r32(0.0), r32(9.999499780734844e-05), r32(0.6931471805599453)))},
	{"tan", "", in(f32s(0.0, 1.0)), in(f32s(r32(0.0), r32(1.5574077246549023)))},
	{"asin", "", in(f32s(0.0, 0.5)), in(f32s(r32(0.0), r32(0.5235987755982989)))},
	{"acos", "", in(f32s(1.0, 0.5)), in(f32s(r32(0.0), r32(1.0471975511965979)))},
	{"atan", "", in(f32s(0.0, 1.0)), in(f32s(r32(0.0), r32(0.7853981633974483)))},
	{"sinh", "", in(f32s(0.0, 1.0)), in(f32s(r32(0.0), r32(1.1752011936438014)))},
	{"cosh", "", in(f32s(0.0, 1.0)), in(f32s(r32(1.0), r32(1.5430806348152437)))},
	{"asinh", "", in(f32s(0.0, 1.0)), in(f32s(r32(0.0), r32(0.881373587019543)))},
	{"acosh", "", in(f32s(1.0, 2.0)), in(f32s(r32(0.0), r32(1.3169578969248166)))},
	{"atanh", "", in(f32s(0.0, 0.5)), in(f32s(r32(0.0), r32(0.5493061443340548)))},
	{"erf", "", in(f32s(inf, -inf, nan)), in(f32s(1, -1, nan))},
	{"cbrt", "", in(f32s(8, -27, 0)), in(f32s(2, -3, 0))},
	{"ceil", "", in(f32s(1.5, -1.5)), in(f32s(2, -1))},
	{"round", "", in(f32s(0.5, 1.5, 2.5, -2.5, 2.6)), in(f32s(0, 2, 2, -2, 3))},
	{"round", "", in(i64s(7)), in(i64s(7))},
	{"trunc", "", in(f32s(1.5, -1.5)), in(f32s(1, -1))},
	{"sign", "", in(f32s(3, -2, 0, nan, -inf)), in(f32s(1, -1, 0, 0, -1))},
	{"sign", "", in(i64s(3, -2, 0)), in(i64s(1, -1, 0))},
	{"sign", "", in(mk(dtype.U64, shape{2}, 0, 9)), in(mk(dtype.U64, shape{2}, 0, 1))},
	{"bitwise_not", "", in(i64s(5, -1)), in(i64s(-6, 0))},
	{"bitwise_not", "", in(mk(dtype.U8, shape{1}, 1)), in(mk(dtype.U8, shape{1}, 254))},
	{"bitwise_not", "", in(bools(0, 1)), in(bools(1, 0))},
	{"logical_not", "", in(f32s(0, 2, nan)), in(bools(1, 0, 0))},
	{"logical_not", "", in(bools(0, 1)), in(bools(1, 0))},
	{"bitcast", "", in(f32s(1, -0.5)), in(mk(dtype.I32, shape{2}, 0x3f800000, -0x41000000))},
	{"bitcast", "", in(bf16s(1, inf)), in(mk(dtype.U16, shape{2}, 0x3f80, 0x7f80))},
	{"bitcast", "", in(i64s(0x7ff0000000000000, -1)), in(mk(dtype.F64, shape{2}, inf, nan))},
	{"convert", "", in(f32s(1.5, -2.7, 3e9, -3e9, nan)), in(mk(dtype.I32, shape{5}, 1, -2, math.MaxInt32, math.MinInt32, 0))},
	{"convert", "", in(f32s(-1, 257, 3.9)), in(mk(dtype.U8, shape{3}, 255, 1, 3))},
	{"convert", "", in(f32s(1e30, -1e30)), in(i64Bits(math.MaxInt64, math.MinInt64))},
	{"convert", "", in(f32s(0, 0.25, nan)), in(bools(0, 1, 1))},
	{"convert", "", in(i64s(256, 0)), in(bools(1, 0))},
	{"convert", "", in(f32s(1+1.0/256, 1+3.0/256, 1+1.0/256+1.0/65536)), in(bf16s(1, 1+4.0/256, 1+2.0/256))}, // ties to even
	{"convert", "", in(f32s(65519, 65520, 6e-8)), in(mk(dtype.F16, shape{3}, 65504, inf, 5.960464477539063e-08))},
	{"convert", "", in(i64Bits(9007199254740993)), in(i64Bits(9007199254740993))},
	{"convert", "", in(mk(dtype.F64, shape{1}, 0.1)), in(mk(dtype.F64, shape{1}, 0.1))},
}

var quotientAndBitCases = []opCase{
	{"atan2", "", in(f32s(1, -1, 0), f32s(1, -1, -1)), in(f32s(r32(math.Pi/4), r32(-3*math.Pi/4), r32(math.Pi)))},
	{"fmod", "", in(f32s(5.5, -5.5, 5, inf), f32s(2, 2, -3, 1)), in(f32s(1.5, -1.5, 2, nan))},
	{"fmod", "", in(i64s(7, -7, 7, 7), i64s(3, 3, -3, 0)), in(i64s(1, -1, 1, 7))},
	{"fmod", "{reverse=true, scalar=7}", in(i64s(4)), in(i64s(3))},
	{"remainder", "", in(f32s(5.5, -5.5, 5, 5, -5), f32s(2, 2, -3, inf, inf)), in(f32s(1.5, 0.5, -1, 5, inf))},
	{"remainder", "", in(i64s(7, -7, 7, -7, 7), i64s(3, 3, -3, -3, 0)), in(i64s(1, 2, -2, -1, 7))},
	{"floor_divide", "", in(f32s(7, -7, 1, -0.5, 1), f32s(2, 2, r32(0.1), 2, 0)), in(f32s(3, -4, 9, -1, inf))},
	{"floor_divide", "", in(i64s(7, -7, 7, -7, 7), i64s(2, 2, -2, -2, 0)), in(i64s(3, -4, -4, 3, -1))},
	{"trunc_divide", "", in(f32s(7, -7, 1), f32s(2, 2, 0)), in(f32s(3, -3, inf))},
	{"trunc_divide", "", in(i64s(7, -7, 7, math.MinInt64, 7), i64s(2, 2, -2, -1, 0)), in(i64s(3, -3, -3, math.MinInt64, -1))},
	{"trunc_divide", "", in(mk(dtype.U64, shape{2}, 7, 7), mk(dtype.U64, shape{2}, 2, 7)), in(mk(dtype.U64, shape{2}, 3, 1))},
	{"bitwise_and", "", in(i64s(12, -1), i64s(10, 7)), in(i64s(8, 7))},
	{"bitwise_or", "", in(i64s(12), i64s(10)), in(i64s(14))},
	{"bitwise_xor", "{scalar=10}", in(i64s(12)), in(i64s(6))},
	{"bitwise_and", "", in(bools(1, 1), bools(1, 0)), in(bools(1, 0))},
	{"shift_left", "", in(i64s(3, 3, 3), i64s(2, 64, -1)), in(i64s(12, 0, 0))},
	{"shift_left", "", in(mk(dtype.I8, shape{2}, 3, 3), mk(dtype.I8, shape{2}, 7, 8)), in(mk(dtype.I8, shape{2}, -128, 0))},
	{"shift_right", "", in(i64s(-8, -8, 8, -8), i64s(1, 64, 64, -1)), in(i64s(-4, -1, 0, -1))},
	{"shift_right", "", in(mk(dtype.U8, shape{2}, 200, 200), mk(dtype.U8, shape{2}, 3, 8)), in(mk(dtype.U8, shape{2}, 25, 0))},
}

var binaryCases = []opCase{
	{"add", "", in(f32s(1, 2), f32s(10, 20)), in(f32s(11, 22))},
	{"add", "{alpha=0.5}", in(f32s(1, 2), f32s(10, 20)), in(f32s(6, 12))},
	{"add", "{scalar=1e-05}", in(f32s(0)), in(f32s(r32(1e-05)))},
	{"add", "{scalar=3}", in(i64s(1, -1)), in(i64s(4, 2))},
	{"add", "{alpha=2}", in(i64s(1), i64s(5)), in(i64s(11))},
	{"add", "", in(bools(1, 0, 1), bools(1, 0, 0)), in(bools(1, 0, 1))},
	{"add", "", in(twoByThree, f32(shape{3}, 10, 20, 30)), in(f32(shape{2, 3}, 11, 22, 33, 14, 25, 36))},
	{"add", "", in(f32(shape{2, 1}, 1, 2), f32(shape{}, 10)), in(f32(shape{2, 1}, 11, 12))},
	{"add", "", in(f32(shape{2, 1}, 1, 2), f32(shape{1, 2}, 10, 20)), in(f32(shape{2, 2}, 11, 21, 12, 22))},
	{"add", "", in(i64Bits(1<<62), i64Bits(1<<62)), in(i64Bits(math.MinInt64))},
	{"add", "", in(mk(dtype.I32, shape{1}, math.MaxInt32), mk(dtype.I32, shape{1}, 1)), in(mk(dtype.I32, shape{1}, math.MinInt32))},
	// bf16: 256 + 1 + rounding once; the exact sum 257 is a tie and goes to even.
	{"add", "", in(bf16s(256), bf16s(1)), in(bf16s(256))},
	// alpha*b is not rounded to bf16 on the way: 1 + 3*(1/3 in bf16).
	{"add", "{alpha=3}", in(bf16s(1), bf16s(0.333984375)), in(bf16s(2))},
	{"sub", "", in(f32s(5), f32s(3)), in(f32s(2))},
	{"sub", "{scalar=1, reverse=true}", in(f32s(5)), in(f32s(-4))},
	{"sub", "{alpha=2}", in(f32s(5), f32s(3)), in(f32s(-1))},
	{"sub", "{alpha=2, reverse=true, scalar=10}", in(f32s(3)), in(f32s(4))},
	{"mul", "", in(f32s(2), f32s(3)), in(f32s(6))},
	{"mul", "{scalar=-0.5}", in(bf16s(3)), in(bf16s(-1.5))},
	{"mul", "", in(bf16s(1.0078125), f32(shape{1}, 1.00390625)), in(f32(shape{1}, 1.0078125*1.00390625))},
	{"mul", "{scalar=0.5}", in(i64s(3)), in(f32s(1.5))},
	{"div", "", in(f32s(1, 1), f32s(4, 0)), in(f32s(0.25, inf))},
	{"div", "", in(i64s(1, 7), i64s(2, 2)), in(f32s(0.5, 3.5))},
	{"div", "{scalar=64}", in(f32s(32)), in(f32s(0.5))},
	{"div", "{scalar=1, reverse=true}", in(f32s(4)), in(f32s(0.25))},
	{"pow", "{scalar=2}", in(f32s(3, -3)), in(f32s(9, 9))},
	{"pow", "{scalar=3}", in(f32s(-2)), in(f32s(-8))},
	{"pow", "{scalar=1.0}", in(bf16s(3)), in(bf16s(3))},
	{"pow", "{scalar=0.5}", in(f32s(9)), in(f32s(3))},
	{"pow", "{scalar=-0.5}", in(f32s(4)), in(f32s(0.5))},
	{"pow", "{scalar=-1}", in(f32s(4)), in(f32s(0.25))},
	{"pow", "{scalar=4}", in(f32s(3)), in(f32s(81))},
	{"pow", "{scalar=2, reverse=true}", in(f32s(3)), in(f32s(8))},
	{"pow", "", in(i64s(2, 1, -1, 3, 0), i64s(10, -1, -3, -1, 0)), in(i64s(1024, 1, -1, 0, 1))},
	{"maximum", "", in(f32s(1, nan), f32s(2, 0)), in(f32s(2, nan))},
	{"minimum", "", in(i64s(1, 5), i64s(2, 3)), in(i64s(1, 3))},
	{"eq", "{scalar=-1}", in(i64s(-1, 0)), in(bools(1, 0))},
	{"eq", "", in(i64Bits(9007199254740993), i64Bits(9007199254740992)), in(bools(0))},
	{"ne", "", in(f32s(nan, 1), f32s(nan, 1)), in(bools(1, 0))},
	{"lt", "", in(f32s(1, 2, nan), f32s(2, 2, 0)), in(bools(1, 0, 0))},
	{"le", "", in(f32s(1, 2, nan), f32s(2, 2, 0)), in(bools(1, 1, 0))},
	{"gt", "{scalar=1.5}", in(i64s(1, 2)), in(bools(0, 1))},
	{"ge", "", in(i64s(1, 2), i64s(2, 2)), in(bools(0, 1))},
	{"logical_and", "", in(f32s(0, 2, nan), f32s(1, 1, 1)), in(bools(0, 1, 1))},
	{"logical_or", "", in(bools(0, 1), bools(0, 0)), in(bools(0, 1))},
}

var ternaryCases = []opCase{
	{"where", "", in(bools(1, 0), f32s(1, 2), f32(shape{}, 9)), in(f32s(1, 9))},
	{"where", "", in(bools(1, 0), i64Bits(1<<53+1, 1), i64s(0, 7)), in(i64Bits(1<<53+1, 7))},
	{"fma", "", in(f32s(2), f32s(3), f32s(4)), in(f32s(10))},
	// (1+2^-12)^2 - 1 keeps the 2^-24 that a rounded product would lose.
	{"fma", "", in(f32s(1+1.0/4096), f32s(1+1.0/4096), f32s(-1)), in(f32s(2.0/4096 + 1.0/4096/4096))},
	{"fma", "", in(i64s(2), i64s(3), i64s(4)), in(i64s(10))},
	{"clamp", "{max=255}", in(i64s(300, 10)), in(i64s(255, 10))},
	{"clamp", "{min=0.0, max=1.0}", in(f32s(-1, 0.5, 2, nan)), in(f32s(0, 0.5, 1, nan))},
}

var reductionCases = []opCase{
	{"sum", "", in(twoByThree), in(f32(shape{}, 21))},
	{"sum", "{dims=[1], keepdim=true}", in(twoByThree), in(f32(shape{2, 1}, 6, 15))},
	{"sum", "{dims=[0]}", in(twoByThree), in(f32(shape{3}, 5, 7, 9))},
	{"sum", "{dims=[-1, 0], keepdim=true}", in(twoByThree), in(f32(shape{1, 1}, 21))},
	{"sum", "", in(bools(1, 0, 1, 1)), in(i64(shape{}, 3))},
	{"sum", "", in(f32(shape{0})), in(f32(shape{}, 0))},
	{"sum", "", in(f32(shape{}, 4)), in(f32(shape{}, 4))},
	{"sum", "{dims=[0]}", in(bf16s(256, 1, 1, 1)), in(bf16(shape{}, 260))}, // 259 rounds once, up
	{"mean", "{dims=[-1], keepdim=true}", in(twoByThree), in(f32(shape{2, 1}, 2, 5))},
	{"mean", "", in(i64s(1, 2)), in(f32(shape{}, 1.5))},
	{"mean", "", in(f32(shape{0})), in(f32(shape{}, nan))},
	{"amax", "{dims=[1]}", in(f32(shape{2, 2}, 1, nan, -3, -4)), in(f32(shape{2}, nan, -3))},
	{"amin", "", in(i64Bits(1<<53+1, 1<<53+3)), in(mkI64(1<<53 + 1))},
	{"amax", "", in(f32(shape{0})), in(f32(shape{}, -inf))},
	{"amin", "{dims=[0]}", in(f32(shape{0, 2})), in(f32(shape{2}, inf, inf))},
	{"amax", "", in(mk(dtype.I8, shape{0})), in(mk(dtype.I8, shape{}, -128))},
	{"amin", "", in(mk(dtype.U16, shape{0})), in(mk(dtype.U16, shape{}, 65535))},
	{"amin", "", in(mk(dtype.U64, shape{0})), in(mk(dtype.U64, shape{}, 1<<64))},
	{"amax", "", in(mk(dtype.Bool, shape{0})), in(mk(dtype.Bool, shape{}, 0))},
	{"amax", "", in(mk(dtype.F8E4M3FN, shape{0})), in(mk(dtype.F8E4M3FN, shape{}, -448))},
	{"amin", "", in(mk(dtype.F8E5M2, shape{0})), in(mk(dtype.F8E5M2, shape{}, inf))},
	{"reduce_window", `{window=[1], padding=[1, 0], reduce="min"}`, in(mk(dtype.F8E4M3FN, shape{1}, 2)), in(mk(dtype.F8E4M3FN, shape{2}, 448, 2))},
	{"prod", "{dims=[0]}", in(twoByThree), in(f32(shape{3}, 4, 10, 18))},
	{"prod", "", in(i64s(2, 3, 7)), in(i64(shape{}, 42))},
	{"argmax", "{dim=1}", in(f32(shape{3, 3}, 1, 3, 3, -1, -2, -3, 1, nan, inf)), in(i64s(1, 0, 1))},
	{"argmax", "", in(twoByThree), in(i64(shape{}, 5))},
	{"argmax", "{dim=0, keepdim=true}", in(twoByThree), in(i64(shape{1, 3}, 1, 1, 1))},
	{"cumsum", "{dim=1}", in(twoByThree), in(f32(shape{2, 3}, 1, 3, 6, 4, 9, 15))},
	{"cumsum", "{dim=0}", in(i64s(1, 2, 3)), in(i64s(1, 3, 6))},
	{"cumsum", "{dim=0}", in(f32(shape{}, 2)), in(f32(shape{}, 2))},
	{"softmax", "{dim=0}", in(f32s(0, 0)), in(f32s(0.5, 0.5))},
	{"softmax", "{dim=0}", in(f32(shape{2, 2}, 1000, -inf, 1000, 0)), in(f32(shape{2, 2}, 0.5, 0, 0.5, 1))},
	{"log_softmax", "{dim=0}", in(f32s(0, 0)), in(f32s(-ln2, -ln2))},
}

var productCases = []opCase{
	{"matmul", "", in(twoByThree, f32(shape{3, 1}, 1, 10, 100)), in(f32(shape{2, 1}, 321, 654))},
	{"matmul", "", in(f32(shape{2, 1, 2}, 1, 2, 3, 4), f32(shape{2, 2, 1}, 1, 10, 1, 100)), in(f32(shape{2, 1, 1}, 21, 403))},
	{"matmul", "", in(f32(shape{2, 0}), f32(shape{0, 1})), in(f32(shape{2, 1}, 0, 0))},
	{"reduce_window", `{reduce="sum", strides=[2], window=[2]}`, in(f32s(1, 2, 3, 4, 5)), in(f32s(3, 7))},
	{"reduce_window", `{padding=[1, 0], reduce="max", window=[2]}`, in(i64s(-3, -1, -2)), in(i64s(-3, -1, -1))},
	{"reduce_window", `{base_dilation=[2], padding=[1, 1], reduce="product", window=[2]}`, in(f32s(2, 3)), in(f32s(2, 2, 3, 3))},
	{"reduce_window", `{padding=[2, 0], reduce="min", window=[1]}`, in(f32s(4)), in(f32s(inf, inf, 4))},
	{"reduce_window", `{reduce="argmax", window=[1, 3]}`, in(f32(shape{2, 4}, 1, 3, 3, nan, 5, 4, 3, 2)), in(i64(shape{2, 2}, 1, 2, 0, 0))},
	{"reduce_window", `{reduce="argmax", window=[1, 3]}`, in(f32(shape{1, 5}, nan, nan, 1, nan, 2)), in(i64(shape{1, 3}, 1, 2, 1))},
	{"reduce_window", `{padding=[1, 1], reduce="sum", window=[2]}`, in(f32s(1, 2, 3), i64s(0, 1, 1)), in(f32s(0, 3, 3, 0))},
	{"reduce_window", `{reduce="sum", window=[]}`, in(f32(shape{}, 7)), in(f32(shape{}, 7))},
	{"convolution", "", in(f32(shape{1, 2, 3}, 1, 2, 3, 4, 5, 6), f32(shape{1, 2, 2}, 1, 10, 100, 1000)), in(f32(shape{1, 1, 2}, 5421, 6532))},
	{"convolution", "{padding=[1, 0], strides=[2]}", in(f32(shape{1, 1, 4}, 1, 2, 3, 4), f32(shape{1, 1, 2}, 1, 10)), in(f32(shape{1, 1, 2}, 10, 32))},
	{"convolution", "{padding=[-1, 1]}", in(f32(shape{1, 1, 3}, 1, 2, 3), f32(shape{1, 1, 2}, 1, 10)), in(f32(shape{1, 1, 2}, 32, 3))},
	{"convolution", "{base_dilation=[2], padding=[1, 1], reverse=[1]}", in(i64(shape{1, 1, 2}, 1, 2), i64(shape{1, 1, 2}, 1, 10)), in(i64(shape{1, 1, 4}, 1, 10, 2, 20))},
	{"convolution", "{groups=2, window_dilation=[2]}", in(f32(shape{1, 2, 3}, 1, 2, 3, 4, 5, 6), f32(shape{2, 1, 2}, 1, 10, 100, 1000)), in(f32(shape{1, 2, 1}, 31, 6400))},
	{"convolution", "{batch_groups=2}", in(f32(shape{2, 1, 2}, 1, 2, 3, 4), f32(shape{2, 1, 1}, 1, 10)), in(f32(shape{1, 2, 2}, 1, 2, 30, 40))},
	{"convolution", "{base_dilation=[2]}", in(f32(shape{1, 1, 2}, 1, 2), f32(shape{1, 1, 1}, inf)), in(f32(shape{1, 1, 3}, inf, 0, inf))},
	{"convolution", "{padding=[1, 0]}", in(f32(shape{1, 1, 1}, 1), f32(shape{1, 1, 1}, inf)), in(f32(shape{1, 1, 2}, nan, inf))},
	{"matmul", "", in(i64(shape{1, 2}, 2, 3), i64(shape{2, 1}, 5, 7)), in(i64(shape{1, 1}, 31))},
	// 256 + 1 + 1 in float32, rounded to bf16 once.
	{"matmul", "", in(bf16(shape{1, 3}, 256, 1, 1), bf16(shape{3, 1}, 1, 1, 1)), in(bf16(shape{1, 1}, 258))},
	{"addmm", "", in(f32s(1), twoByThree, f32(shape{3, 1}, 1, 1, 1)), in(f32(shape{2, 1}, 7, 16))},
	{"addmm", "{alpha=2, beta=0.5}", in(f32(shape{2, 1}, 2, 4), twoByThree, f32(shape{3, 1}, 1, 1, 1)), in(f32(shape{2, 1}, 13, 32))},
	{"grouped_matmul", "", in(f32(shape{3, 2}, 1, 2, 3, 4, 5, 6), f32(shape{2, 2, 1}, 1, 1, 10, 100), i64s(1, 2)), in(f32(shape{3, 1}, 3, 430, 0))},
	{"grouped_matmul", "", in(f32(shape{2, 1, 2}, 1, 1, 10, 100), f32(shape{2, 3}, 1, 2, 3, 4, 5, 6), i64s(1, 2)), in(f32(shape{1, 3}, 5, 520, 0))},
	{"grouped_matmul", "", in(f32(shape{1, 3}, 1, 2, 3), f32(shape{3, 1}, 10, 20, 30), mk(dtype.I32, shape{3}, 1, 1, 2)), in(f32(shape{3, 1, 1}, 10, 0, 40))},
	{"addmm", "{beta=0}", in(f32s(nan), twoByThree, f32(shape{3, 1}, 1, 1, 1)), in(f32(shape{2, 1}, 6, 15))},
}

var movementCases = []opCase{
	{"clone", "", in(twoByThree), in(twoByThree)},
	{"cat", "{dim=1}", in(twoByThree, f32(shape{2, 1}, 7, 8)), in(f32(shape{2, 4}, 1, 2, 3, 7, 4, 5, 6, 8))},
	{"cat", "{dim=-2}", in(twoByThree, f32(shape{0}), f32(shape{1, 3}, 7, 8, 9)), in(f32(shape{3, 3}, 1, 2, 3, 4, 5, 6, 7, 8, 9))},
	{"slice_scatter", "{dim=1, start=-2, end=100, step=1}", in(twoByThree, f32(shape{2, 2}, 7, 8, 9, 10)), in(f32(shape{2, 3}, 1, 7, 8, 4, 9, 10))},
	{"slice_scatter", "{dim=0, start=0, end=4, step=3}", in(f32s(1, 2, 3, 4), f32s(7, 8)), in(f32s(7, 2, 3, 8))},
	{"slice_scatter", "{dim=0, start=3, end=1}", in(f32s(1, 2, 3, 4), f32s()), in(f32s(1, 2, 3, 4))},
	{"index", "", in(twoByThree, i64s(1, 0, -1)), in(f32(shape{3, 3}, 4, 5, 6, 1, 2, 3, 4, 5, 6))},
	{"index", "{dims=[1]}", in(twoByThree, i64(shape{2, 1}, 2, 0)), in(f32(shape{2, 2, 1}, 3, 1, 6, 4))},
	{"index", "{dims=[0, 1]}", in(twoByThree, i64s(0, 1), mk(dtype.I32, shape{1}, 2)), in(f32s(3, 6))},
	// Indices that are not adjacent put their dimensions first.
	{"index", "{dims=[0, 2]}", in(f32(shape{2, 2, 2}, 0, 1, 2, 3, 4, 5, 6, 7), i64s(0, 1, 1), i64s(1, 0, 1)), in(f32(shape{3, 2}, 1, 3, 4, 6, 5, 7))},
	{"index_put", "", in(f32s(1, 2, 3), f32s(10, 20, 30), i64s(0, 2, 0)), in(f32s(30, 2, 20))},
	{"index_put", "{accumulate=true}", in(f32s(1, 2, 3), f32s(10, 20, 30), i64s(0, 2, 0)), in(f32s(41, 2, 23))},
	{"index_put", "{accumulate=true}", in(bf16s(256), bf16s(1, 1, 1), i64s(0, 0, 0)), in(bf16s(260))}, // 259 rounds once
	{"index_put", "{dims=[1]}", in(twoByThree, f32(shape{}, 9), i64s(-1)), in(f32(shape{2, 3}, 1, 2, 9, 4, 5, 9))},
	{"index_add", "{dim=1, alpha=2}", in(twoByThree, i64s(0, 0), f32(shape{2, 2}, 1, 2, 3, 4)), in(f32(shape{2, 3}, 7, 2, 3, 18, 5, 6))},
	{"gather", "{dim=1}", in(twoByThree, i64(shape{2, 2}, 2, 0, 1, 1)), in(f32(shape{2, 2}, 3, 1, 5, 5))},
	{"gather", "{dim=0}", in(twoByThree, i64(shape{1, 2}, 1, 0)), in(f32(shape{1, 2}, 4, 2))},
	{"scatter", "{dim=1, value=-1.0}", in(twoByThree, i64(shape{2, 1}, 2, 0)), in(f32(shape{2, 3}, 1, 2, -1, -1, 5, 6))},
	{"scatter", "{dim=0}", in(f32s(0, 0, 0), i64s(1, 1), f32s(5, 6, 7)), in(f32s(0, 6, 0))},
	{"scatter", `{dim=0, reduce="add"}`, in(f32s(1, 1, 1), i64s(1, 1), f32s(5, 6)), in(f32s(1, 12, 1))},
	{"scatter", `{dim=0, reduce="multiply"}`, in(i64s(1, 2), i64s(1, 1), i64s(5, 6)), in(i64s(1, 60))},
	{"scatter", `{dim=0, reduce="amax"}`, in(f32s(1, 9), i64s(0, 1), f32s(5, 6)), in(f32s(5, 9))},
	{"embedding", "", in(twoByThree, i64(shape{1, 2}, 1, 0)), in(f32(shape{1, 2, 3}, 4, 5, 6, 1, 2, 3))},
	{"read_size", `{symbols=["u0", "u1"]}`, in(mk(dtype.I32, shape{2}, 7, -1)), in(i64s(7, -1))},
	{"topk", "{k=2, dim=0}", in(f32s(1, 3, 2, 3)), in(f32s(3, 3), i64s(1, 3))},
	{"topk", "{k=3, largest=false}", in(f32(shape{1, 4}, 2, 1, 2, nan)), in(f32(shape{1, 3}, 1, 2, 2), i64(shape{1, 3}, 1, 0, 2))},
	{"topk", "{k=2}", in(f32s(1, nan, inf)), in(f32s(nan, inf), i64s(1, 2))},
	{"topk", "{k=1, dim=0}", in(i64Bits(1<<53, 1<<53+1)), in(i64Bits(1<<53+1), i64s(1))},
}

var attentionCases = []opCase{
	// Attention: with all scores equal the output is the mean of the visible values.
	{"attention", "{causal=true}", in(f32(shape{1, 1, 2, 1}, 0, 0), f32(shape{1, 1, 2, 1}, 3, 4), f32(shape{1, 1, 2, 1}, 10, 20)),
		in(f32(shape{1, 1, 2, 1}, 10, 15), f32(shape{1, 1, 2, 1}, 0, ln2), i64(shape{}, 0), i64(shape{}, 0))},
	// Two query heads share one key head; the bias hides the first key from head 1.
	{"attention", "{scale=1.0}", in(f32(shape{1, 2, 1, 1}, 0, 0), f32(shape{1, 1, 2, 1}, 3, 4), f32(shape{1, 1, 2, 2}, 10, 1, 20, 3), f32(shape{2, 1, 2}, 0, 0, -inf, 0)),
		in(f32(shape{1, 2, 1, 2}, 15, 2, 20, 3), f32(shape{1, 2, 1, 1}, ln2, 0), i64(shape{}, 0), i64(shape{}, 0))},
	{"attention", "", in(f32(shape{1, 1, 1, 1}, 1), f32(shape{1, 1, 1, 1}, 1), f32(shape{1, 1, 1, 1}, 5), f32(shape{}, -inf)),
		in(f32(shape{1, 1, 1, 1}, 0), f32(shape{1, 1, 1, 1}, -inf), i64(shape{}, 0), i64(shape{}, 0))},
	// P = (1/2, 1/2), dO = 1: dV = P; dP = v; dS = P*(dP - 15) = (-2.5, 2.5); dq = sum dS k = 2.5; dk = dS q.
	{"attention_backward", "{scale=1.0}", in(
		f32(shape{1, 1, 1, 1}, 1), f32(shape{1, 1, 1, 1}, 0), f32(shape{1, 1, 2, 1}, 3, 4), f32(shape{1, 1, 2, 1}, 10, 20),
		f32(shape{1, 1, 1, 1}, 15), f32(shape{1, 1, 1, 1}, math.Ln2), i64(shape{}, 0), i64(shape{}, 0)),
		in(f32(shape{1, 1, 1, 1}, 2.5), f32(shape{1, 1, 2, 1}, 0, 0), f32(shape{1, 1, 2, 1}, 0.5, 0.5))},
}
