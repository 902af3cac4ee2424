package hostops

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

var (
	inf = math.Inf(1)
	nan = math.NaN()
)

// ln2 is log(2) in float32.
var ln2 = float64(float32(math.Ln2))

// e1 is e in float32.
var e1 = float64(float32(math.E))

func r32(x float64) float64 { return float64(float32(x)) }

type opCase struct {
	op, attrs string
	ins       []Tensor
	want      []Tensor
}

// opCases has hand-computed results for every kernel.
func opCases() []opCase {
	v := func(vals ...float64) Tensor { return f32(shape{int64(len(vals))}, vals...) }
	w := func(vals ...float64) Tensor { return i64(shape{int64(len(vals))}, vals...) }
	b := func(vals ...float64) Tensor { return flags(shape{int64(len(vals))}, vals...) }
	h := func(vals ...float64) Tensor { return bf16(shape{int64(len(vals))}, vals...) }
	in := func(ts ...Tensor) []Tensor { return ts }
	m23 := f32(shape{2, 3}, 1, 2, 3, 4, 5, 6)
	return []opCase{
		// Creation.
		{"full", "{value=2.5}", nil, in(bf16(shape{2, 2}, 2.5, 2.5, 2.5, 2.5))},
		{"full", "{value=-3}", nil, in(mk(dtype.I8, shape{}, -3))},
		{"full", "{value=9007199254740993}", nil, in(mkI64(9007199254740993))},
		{"full", "{value=true}", nil, in(b(1, 1))},
		{"full", "{value=-inf}", nil, in(v(-inf))},
		{"constant", `{data="AACAPwAAAMAAAMB/"}`, nil, in(v(1, -2, nan))},
		{"constant", `{data="AQAAAAAAAAD//////////w=="}`, nil, in(w(1, -1))},
		{"iota", "{start=3, step=2}", nil, in(w(3, 5, 7))},
		{"iota", "{start=0.5, step=0.25}", nil, in(v(0.5, 0.75, 1))},
		{"iota", "", nil, in(w(0, 1, 2))},

		// Unary.
		{"neg", "", in(v(1, -2, 0)), in(v(-1, 2, math.Copysign(0, -1)))},
		{"neg", "", in(mk(dtype.U8, shape{2}, 1, 0)), in(mk(dtype.U8, shape{2}, 255, 0))},
		{"exp", "", in(v(0, 1, -inf, inf, nan)), in(v(1, e1, 0, inf, nan))},
		{"exp", "", in(h(1)), in(h(2.71875))},
		{"log", "", in(v(1, 2, 0, -1)), in(v(0, ln2, -inf, nan))},
		{"log", "", in(w(1, 2)), in(v(0, ln2))},
		{"sqrt", "", in(v(4, 2, -1)), in(v(2, r32(math.Sqrt2), nan))},
		{"rsqrt", "", in(v(4, 0)), in(v(0.5, inf))},
		{"reciprocal", "", in(v(4, -0.5)), in(v(0.25, -2))},
		{"reciprocal", "", in(w(4)), in(v(0.25))},
		{"abs", "", in(v(-1, 2)), in(v(1, 2))},
		{"abs", "", in(w(-3, 3)), in(w(3, 3))},
		{"sigmoid", "", in(v(0, inf, -inf)), in(v(0.5, 1, 0))},
		{"tanh", "", in(v(0, inf)), in(v(0, 1))},
		{"relu", "", in(v(-1, 2, nan)), in(v(0, 2, nan))},
		{"relu", "", in(w(-1, 2)), in(w(0, 2))},
		{"silu", "", in(v(0, 1)), in(v(0, r32(1/(1+math.Exp(-1)))))},
		{"gelu", "", in(v(0, 1)), in(v(0, r32(0.8413447460685429)))},
		{"gelu", `{approximate="tanh"}`, in(v(0, 1)), in(v(0, r32(0.8411919906082768)))},
		{"sin", "", in(v(0, math.Pi/2)), in(v(0, 1))},
		{"cos", "", in(v(0)), in(v(1))},
		{"floor", "", in(v(1.5, -1.5)), in(v(1, -2))},
		{"floor", "", in(w(7)), in(w(7))},
		{"erf", "", in(v(0.0, 0.5, -2.0)), in(v(r32(0.0), r32(0.5204998778130465), r32(-0.9953222650189527)))},
		{"erfc", "", in(v(0.0, 0.5, 3.0)), in(v(r32(1.0), r32(0.4795001221869535), r32(2.2090496998585438e-05)))},
		{"exp2", "", in(v(0.0, 3.0, -0.5)), in(v(r32(1.0), r32(8.0), r32(0.7071067811865476)))},
		{"expm1", "", in(v(0.0, 9.999999747378752e-05, 1.0)), in(v(r32(0.0), r32(0.00010000499764020572), r32(1.718281828459045)))},
		{"log2", "", in(v(1.0, 8.0, 3.0)), in(v(r32(0.0), r32(3.0), r32(1.584962500721156)))},
		{"log10", "", in(v(1.0, 1000.0, 3.0)), in(v(r32(0.0), r32(3.0), r32(0.47712125471966244)))},
		{"log1p", "", in(v(0.0, 9.999999747378752e-05, 1.0)), in(v(r32(0.0), r32(9.999499780734844e-05), r32(0.6931471805599453)))},
		{"tan", "", in(v(0.0, 1.0)), in(v(r32(0.0), r32(1.5574077246549023)))},
		{"asin", "", in(v(0.0, 0.5)), in(v(r32(0.0), r32(0.5235987755982989)))},
		{"acos", "", in(v(1.0, 0.5)), in(v(r32(0.0), r32(1.0471975511965979)))},
		{"atan", "", in(v(0.0, 1.0)), in(v(r32(0.0), r32(0.7853981633974483)))},
		{"sinh", "", in(v(0.0, 1.0)), in(v(r32(0.0), r32(1.1752011936438014)))},
		{"cosh", "", in(v(0.0, 1.0)), in(v(r32(1.0), r32(1.5430806348152437)))},
		{"asinh", "", in(v(0.0, 1.0)), in(v(r32(0.0), r32(0.881373587019543)))},
		{"acosh", "", in(v(1.0, 2.0)), in(v(r32(0.0), r32(1.3169578969248166)))},
		{"atanh", "", in(v(0.0, 0.5)), in(v(r32(0.0), r32(0.5493061443340548)))},
		{"erf", "", in(v(inf, -inf, nan)), in(v(1, -1, nan))},
		{"cbrt", "", in(v(8, -27, 0)), in(v(2, -3, 0))},
		{"ceil", "", in(v(1.5, -1.5)), in(v(2, -1))},
		{"round", "", in(v(0.5, 1.5, 2.5, -2.5, 2.6)), in(v(0, 2, 2, -2, 3))},
		{"round", "", in(w(7)), in(w(7))},
		{"trunc", "", in(v(1.5, -1.5)), in(v(1, -1))},
		{"sign", "", in(v(3, -2, 0, nan, -inf)), in(v(1, -1, 0, 0, -1))},
		{"sign", "", in(w(3, -2, 0)), in(w(1, -1, 0))},
		{"sign", "", in(mk(dtype.U64, shape{2}, 0, 9)), in(mk(dtype.U64, shape{2}, 0, 1))},
		{"bitwise_not", "", in(w(5, -1)), in(w(-6, 0))},
		{"bitwise_not", "", in(mk(dtype.U8, shape{1}, 1)), in(mk(dtype.U8, shape{1}, 254))},
		{"bitwise_not", "", in(b(0, 1)), in(b(1, 0))},
		{"logical_not", "", in(v(0, 2, nan)), in(b(1, 0, 0))},
		{"logical_not", "", in(b(0, 1)), in(b(1, 0))},
		{"bitcast", "", in(v(1, -0.5)), in(mk(dtype.I32, shape{2}, 0x3f800000, -0x41000000))},
		{"bitcast", "", in(h(1, inf)), in(mk(dtype.U16, shape{2}, 0x3f80, 0x7f80))},
		{"bitcast", "", in(w(0x7ff0000000000000, -1)), in(mk(dtype.F64, shape{2}, inf, nan))},
		{"convert", "", in(v(1.5, -2.7, 3e9, -3e9, nan)), in(mk(dtype.I32, shape{5}, 1, -2, math.MaxInt32, math.MinInt32, 0))},
		{"convert", "", in(v(-1, 257, 3.9)), in(mk(dtype.U8, shape{3}, 255, 1, 3))},
		{"convert", "", in(v(1e30, -1e30)), in(i64Bits(math.MaxInt64, math.MinInt64))},
		{"convert", "", in(v(0, 0.25, nan)), in(b(0, 1, 1))},
		{"convert", "", in(w(256, 0)), in(b(1, 0))},
		{"convert", "", in(v(1+1.0/256, 1+3.0/256, 1+1.0/256+1.0/65536)), in(h(1, 1+4.0/256, 1+2.0/256))}, // ties to even
		{"convert", "", in(v(65519, 65520, 6e-8)), in(mk(dtype.F16, shape{3}, 65504, inf, 5.960464477539063e-08))},
		{"convert", "", in(i64Bits(9007199254740993)), in(i64Bits(9007199254740993))},
		{"convert", "", in(mk(dtype.F64, shape{1}, 0.1)), in(mk(dtype.F64, shape{1}, 0.1))},

		// Quotients, remainders and bits.
		{"atan2", "", in(v(1, -1, 0), v(1, -1, -1)), in(v(r32(math.Pi/4), r32(-3*math.Pi/4), r32(math.Pi)))},
		{"fmod", "", in(v(5.5, -5.5, 5, inf), v(2, 2, -3, 1)), in(v(1.5, -1.5, 2, nan))},
		{"fmod", "", in(w(7, -7, 7, 7), w(3, 3, -3, 0)), in(w(1, -1, 1, 7))},
		{"fmod", "{reverse=true, scalar=7}", in(w(4)), in(w(3))},
		{"remainder", "", in(v(5.5, -5.5, 5, 5, -5), v(2, 2, -3, inf, inf)), in(v(1.5, 0.5, -1, 5, inf))},
		{"remainder", "", in(w(7, -7, 7, -7, 7), w(3, 3, -3, -3, 0)), in(w(1, 2, -2, -1, 7))},
		{"floor_divide", "", in(v(7, -7, 1, -0.5, 1), v(2, 2, r32(0.1), 2, 0)), in(v(3, -4, 9, -1, inf))},
		{"floor_divide", "", in(w(7, -7, 7, -7, 7), w(2, 2, -2, -2, 0)), in(w(3, -4, -4, 3, -1))},
		{"trunc_divide", "", in(v(7, -7, 1), v(2, 2, 0)), in(v(3, -3, inf))},
		{"trunc_divide", "", in(w(7, -7, 7, math.MinInt64, 7), w(2, 2, -2, -1, 0)), in(w(3, -3, -3, math.MinInt64, -1))},
		{"trunc_divide", "", in(mk(dtype.U64, shape{2}, 7, 7), mk(dtype.U64, shape{2}, 2, 7)), in(mk(dtype.U64, shape{2}, 3, 1))},
		{"bitwise_and", "", in(w(12, -1), w(10, 7)), in(w(8, 7))},
		{"bitwise_or", "", in(w(12), w(10)), in(w(14))},
		{"bitwise_xor", "{scalar=10}", in(w(12)), in(w(6))},
		{"bitwise_and", "", in(b(1, 1), b(1, 0)), in(b(1, 0))},
		{"shift_left", "", in(w(3, 3, 3), w(2, 64, -1)), in(w(12, 0, 0))},
		{"shift_left", "", in(mk(dtype.I8, shape{2}, 3, 3), mk(dtype.I8, shape{2}, 7, 8)), in(mk(dtype.I8, shape{2}, -128, 0))},
		{"shift_right", "", in(w(-8, -8, 8, -8), w(1, 64, 64, -1)), in(w(-4, -1, 0, -1))},
		{"shift_right", "", in(mk(dtype.U8, shape{2}, 200, 200), mk(dtype.U8, shape{2}, 3, 8)), in(mk(dtype.U8, shape{2}, 25, 0))},

		// Binary.
		{"add", "", in(v(1, 2), v(10, 20)), in(v(11, 22))},
		{"add", "{alpha=0.5}", in(v(1, 2), v(10, 20)), in(v(6, 12))},
		{"add", "{scalar=1e-05}", in(v(0)), in(v(r32(1e-05)))},
		{"add", "{scalar=3}", in(w(1, -1)), in(w(4, 2))},
		{"add", "{alpha=2}", in(w(1), w(5)), in(w(11))},
		{"add", "", in(b(1, 0, 1), b(1, 0, 0)), in(b(1, 0, 1))},
		{"add", "", in(m23, f32(shape{3}, 10, 20, 30)), in(f32(shape{2, 3}, 11, 22, 33, 14, 25, 36))},
		{"add", "", in(f32(shape{2, 1}, 1, 2), f32(shape{}, 10)), in(f32(shape{2, 1}, 11, 12))},
		{"add", "", in(f32(shape{2, 1}, 1, 2), f32(shape{1, 2}, 10, 20)), in(f32(shape{2, 2}, 11, 21, 12, 22))},
		{"add", "", in(i64Bits(1<<62), i64Bits(1<<62)), in(i64Bits(math.MinInt64))},
		{"add", "", in(mk(dtype.I32, shape{1}, math.MaxInt32), mk(dtype.I32, shape{1}, 1)), in(mk(dtype.I32, shape{1}, math.MinInt32))},
		// bf16: 256 + 1 + rounding once; the exact sum 257 is a tie and goes to even.
		{"add", "", in(h(256), h(1)), in(h(256))},
		// alpha*b is not rounded to bf16 on the way: 1 + 3*(1/3 in bf16).
		{"add", "{alpha=3}", in(h(1), h(0.333984375)), in(h(2))},
		{"sub", "", in(v(5), v(3)), in(v(2))},
		{"sub", "{scalar=1, reverse=true}", in(v(5)), in(v(-4))},
		{"sub", "{alpha=2}", in(v(5), v(3)), in(v(-1))},
		{"sub", "{alpha=2, reverse=true, scalar=10}", in(v(3)), in(v(4))},
		{"mul", "", in(v(2), v(3)), in(v(6))},
		{"mul", "{scalar=-0.5}", in(h(3)), in(h(-1.5))},
		{"mul", "", in(h(1.0078125), f32(shape{1}, 1.00390625)), in(f32(shape{1}, 1.0078125*1.00390625))},
		{"mul", "{scalar=0.5}", in(w(3)), in(v(1.5))},
		{"div", "", in(v(1, 1), v(4, 0)), in(v(0.25, inf))},
		{"div", "", in(w(1, 7), w(2, 2)), in(v(0.5, 3.5))},
		{"div", "{scalar=64}", in(v(32)), in(v(0.5))},
		{"div", "{scalar=1, reverse=true}", in(v(4)), in(v(0.25))},
		{"pow", "{scalar=2}", in(v(3, -3)), in(v(9, 9))},
		{"pow", "{scalar=3}", in(v(-2)), in(v(-8))},
		{"pow", "{scalar=1.0}", in(h(3)), in(h(3))},
		{"pow", "{scalar=0.5}", in(v(9)), in(v(3))},
		{"pow", "{scalar=-0.5}", in(v(4)), in(v(0.5))},
		{"pow", "{scalar=-1}", in(v(4)), in(v(0.25))},
		{"pow", "{scalar=4}", in(v(3)), in(v(81))},
		{"pow", "{scalar=2, reverse=true}", in(v(3)), in(v(8))},
		{"pow", "", in(w(2, 1, -1, 3, 0), w(10, -1, -3, -1, 0)), in(w(1024, 1, -1, 0, 1))},
		{"maximum", "", in(v(1, nan), v(2, 0)), in(v(2, nan))},
		{"minimum", "", in(w(1, 5), w(2, 3)), in(w(1, 3))},
		{"eq", "{scalar=-1}", in(w(-1, 0)), in(b(1, 0))},
		{"eq", "", in(i64Bits(9007199254740993), i64Bits(9007199254740992)), in(b(0))},
		{"ne", "", in(v(nan, 1), v(nan, 1)), in(b(1, 0))},
		{"lt", "", in(v(1, 2, nan), v(2, 2, 0)), in(b(1, 0, 0))},
		{"le", "", in(v(1, 2, nan), v(2, 2, 0)), in(b(1, 1, 0))},
		{"gt", "{scalar=1.5}", in(w(1, 2)), in(b(0, 1))},
		{"ge", "", in(w(1, 2), w(2, 2)), in(b(0, 1))},
		{"logical_and", "", in(v(0, 2, nan), v(1, 1, 1)), in(b(0, 1, 1))},
		{"logical_or", "", in(b(0, 1), b(0, 0)), in(b(0, 1))},

		// Ternary.
		{"where", "", in(b(1, 0), v(1, 2), f32(shape{}, 9)), in(v(1, 9))},
		{"where", "", in(b(1, 0), i64Bits(1<<53+1, 1), w(0, 7)), in(i64Bits(1<<53+1, 7))},
		{"fma", "", in(v(2), v(3), v(4)), in(v(10))},
		// (1+2^-12)^2 - 1 keeps the 2^-24 that a rounded product would lose.
		{"fma", "", in(v(1+1.0/4096), v(1+1.0/4096), v(-1)), in(v(2.0/4096 + 1.0/4096/4096))},
		{"fma", "", in(w(2), w(3), w(4)), in(w(10))},
		{"clamp", "{max=255}", in(w(300, 10)), in(w(255, 10))},
		{"clamp", "{min=0.0, max=1.0}", in(v(-1, 0.5, 2, nan)), in(v(0, 0.5, 1, nan))},

		// Reductions.
		{"sum", "", in(m23), in(f32(shape{}, 21))},
		{"sum", "{dims=[1], keepdim=true}", in(m23), in(f32(shape{2, 1}, 6, 15))},
		{"sum", "{dims=[0]}", in(m23), in(f32(shape{3}, 5, 7, 9))},
		{"sum", "{dims=[-1, 0], keepdim=true}", in(m23), in(f32(shape{1, 1}, 21))},
		{"sum", "", in(b(1, 0, 1, 1)), in(i64(shape{}, 3))},
		{"sum", "", in(f32(shape{0})), in(f32(shape{}, 0))},
		{"sum", "", in(f32(shape{}, 4)), in(f32(shape{}, 4))},
		{"sum", "{dims=[0]}", in(h(256, 1, 1, 1)), in(bf16(shape{}, 260))}, // 259 rounds once, up
		{"mean", "{dims=[-1], keepdim=true}", in(m23), in(f32(shape{2, 1}, 2, 5))},
		{"mean", "", in(w(1, 2)), in(f32(shape{}, 1.5))},
		{"mean", "", in(f32(shape{0})), in(f32(shape{}, nan))},
		{"amax", "{dims=[1]}", in(f32(shape{2, 2}, 1, nan, -3, -4)), in(f32(shape{2}, nan, -3))},
		{"amin", "", in(i64Bits(1<<53+1, 1<<53+3)), in(mkI64(1<<53 + 1))},
		{"amax", "", in(f32(shape{0})), in(f32(shape{}, -inf))},
		{"amin", "{dims=[0]}", in(f32(shape{0, 2})), in(f32(shape{2}, inf, inf))},
		{"amax", "", in(mk(dtype.I8, shape{0})), in(mk(dtype.I8, shape{}, -128))},
		{"amin", "", in(mk(dtype.U16, shape{0})), in(mk(dtype.U16, shape{}, 65535))},
		{"amin", "", in(mk(dtype.U64, shape{0})), in(mk(dtype.U64, shape{}, 1<<64))},
		{"amax", "", in(mk(dtype.Bool, shape{0})), in(mk(dtype.Bool, shape{}, 0))},
		{"prod", "{dims=[0]}", in(m23), in(f32(shape{3}, 4, 10, 18))},
		{"prod", "", in(w(2, 3, 7)), in(i64(shape{}, 42))},
		{"argmax", "{dim=1}", in(f32(shape{3, 3}, 1, 3, 3, -1, -2, -3, 1, nan, inf)), in(w(1, 0, 1))},
		{"argmax", "", in(m23), in(i64(shape{}, 5))},
		{"argmax", "{dim=0, keepdim=true}", in(m23), in(i64(shape{1, 3}, 1, 1, 1))},
		{"cumsum", "{dim=1}", in(m23), in(f32(shape{2, 3}, 1, 3, 6, 4, 9, 15))},
		{"cumsum", "{dim=0}", in(w(1, 2, 3)), in(w(1, 3, 6))},
		{"cumsum", "{dim=0}", in(f32(shape{}, 2)), in(f32(shape{}, 2))},
		{"softmax", "{dim=0}", in(v(0, 0)), in(v(0.5, 0.5))},
		{"softmax", "{dim=0}", in(f32(shape{2, 2}, 1000, -inf, 1000, 0)), in(f32(shape{2, 2}, 0.5, 0, 0.5, 1))},
		{"log_softmax", "{dim=0}", in(v(0, 0)), in(v(-ln2, -ln2))},

		// Products.
		{"matmul", "", in(m23, f32(shape{3, 1}, 1, 10, 100)), in(f32(shape{2, 1}, 321, 654))},
		{"matmul", "", in(f32(shape{2, 1, 2}, 1, 2, 3, 4), f32(shape{2, 2, 1}, 1, 10, 1, 100)), in(f32(shape{2, 1, 1}, 21, 403))},
		{"matmul", "", in(f32(shape{2, 0}), f32(shape{0, 1})), in(f32(shape{2, 1}, 0, 0))},
		{"reduce_window", `{reduce="sum", strides=[2], window=[2]}`, in(v(1, 2, 3, 4, 5)), in(v(3, 7))},
		{"reduce_window", `{padding=[1, 0], reduce="max", window=[2]}`, in(w(-3, -1, -2)), in(w(-3, -1, -1))},
		{"reduce_window", `{base_dilation=[2], padding=[1, 1], reduce="product", window=[2]}`, in(v(2, 3)), in(v(2, 2, 3, 3))},
		{"reduce_window", `{padding=[2, 0], reduce="min", window=[1]}`, in(v(4)), in(v(inf, inf, 4))},
		{"reduce_window", `{reduce="argmax", window=[1, 3]}`, in(f32(shape{2, 4}, 1, 3, 3, nan, 5, 4, 3, 2)), in(i64(shape{2, 2}, 1, 2, 0, 0))},
		{"reduce_window", `{padding=[1, 1], reduce="sum", window=[2]}`, in(v(1, 2, 3), w(0, 1, 1)), in(v(0, 3, 3, 0))},
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
		{"addmm", "", in(v(1), m23, f32(shape{3, 1}, 1, 1, 1)), in(f32(shape{2, 1}, 7, 16))},
		{"addmm", "{alpha=2, beta=0.5}", in(f32(shape{2, 1}, 2, 4), m23, f32(shape{3, 1}, 1, 1, 1)), in(f32(shape{2, 1}, 13, 32))},
		{"grouped_matmul", "", in(f32(shape{3, 2}, 1, 2, 3, 4, 5, 6), f32(shape{2, 2, 1}, 1, 1, 10, 100), w(1, 2)), in(f32(shape{3, 1}, 3, 430, 0))},
		{"grouped_matmul", "", in(f32(shape{2, 1, 2}, 1, 1, 10, 100), f32(shape{2, 3}, 1, 2, 3, 4, 5, 6), w(1, 2)), in(f32(shape{1, 3}, 5, 520, 0))},
		{"grouped_matmul", "", in(f32(shape{1, 3}, 1, 2, 3), f32(shape{3, 1}, 10, 20, 30), mk(dtype.I32, shape{3}, 1, 1, 2)), in(f32(shape{3, 1, 1}, 10, 0, 40))},
		{"addmm", "{beta=0}", in(v(nan), m23, f32(shape{3, 1}, 1, 1, 1)), in(f32(shape{2, 1}, 6, 15))},

		// Data movement.
		{"clone", "", in(m23), in(m23)},
		{"cat", "{dim=1}", in(m23, f32(shape{2, 1}, 7, 8)), in(f32(shape{2, 4}, 1, 2, 3, 7, 4, 5, 6, 8))},
		{"cat", "{dim=-2}", in(m23, f32(shape{0}), f32(shape{1, 3}, 7, 8, 9)), in(f32(shape{3, 3}, 1, 2, 3, 4, 5, 6, 7, 8, 9))},
		{"slice_scatter", "{dim=1, start=-2, end=100, step=1}", in(m23, f32(shape{2, 2}, 7, 8, 9, 10)), in(f32(shape{2, 3}, 1, 7, 8, 4, 9, 10))},
		{"slice_scatter", "{dim=0, start=0, end=4, step=3}", in(v(1, 2, 3, 4), v(7, 8)), in(v(7, 2, 3, 8))},
		{"slice_scatter", "{dim=0, start=3, end=1}", in(v(1, 2, 3, 4), v()), in(v(1, 2, 3, 4))},
		{"index", "", in(m23, w(1, 0, -1)), in(f32(shape{3, 3}, 4, 5, 6, 1, 2, 3, 4, 5, 6))},
		{"index", "{dims=[1]}", in(m23, i64(shape{2, 1}, 2, 0)), in(f32(shape{2, 2, 1}, 3, 1, 6, 4))},
		{"index", "{dims=[0, 1]}", in(m23, w(0, 1), mk(dtype.I32, shape{1}, 2)), in(v(3, 6))},
		// Indices that are not adjacent put their dimensions first.
		{"index", "{dims=[0, 2]}", in(f32(shape{2, 2, 2}, 0, 1, 2, 3, 4, 5, 6, 7), w(0, 1, 1), w(1, 0, 1)), in(f32(shape{3, 2}, 1, 3, 4, 6, 5, 7))},
		{"index_put", "", in(v(1, 2, 3), v(10, 20, 30), w(0, 2, 0)), in(v(30, 2, 20))},
		{"index_put", "{accumulate=true}", in(v(1, 2, 3), v(10, 20, 30), w(0, 2, 0)), in(v(41, 2, 23))},
		{"index_put", "{accumulate=true}", in(h(256), h(1, 1, 1), w(0, 0, 0)), in(h(260))}, // 259 rounds once
		{"index_put", "{dims=[1]}", in(m23, f32(shape{}, 9), w(-1)), in(f32(shape{2, 3}, 1, 2, 9, 4, 5, 9))},
		{"index_add", "{dim=1, alpha=2}", in(m23, w(0, 0), f32(shape{2, 2}, 1, 2, 3, 4)), in(f32(shape{2, 3}, 7, 2, 3, 18, 5, 6))},
		{"gather", "{dim=1}", in(m23, i64(shape{2, 2}, 2, 0, 1, 1)), in(f32(shape{2, 2}, 3, 1, 5, 5))},
		{"gather", "{dim=0}", in(m23, i64(shape{1, 2}, 1, 0)), in(f32(shape{1, 2}, 4, 2))},
		{"scatter", "{dim=1, value=-1.0}", in(m23, i64(shape{2, 1}, 2, 0)), in(f32(shape{2, 3}, 1, 2, -1, -1, 5, 6))},
		{"scatter", "{dim=0}", in(v(0, 0, 0), w(1, 1), v(5, 6, 7)), in(v(0, 6, 0))},
		{"scatter", `{dim=0, reduce="add"}`, in(v(1, 1, 1), w(1, 1), v(5, 6)), in(v(1, 12, 1))},
		{"scatter", `{dim=0, reduce="multiply"}`, in(w(1, 2), w(1, 1), w(5, 6)), in(w(1, 60))},
		{"scatter", `{dim=0, reduce="amax"}`, in(v(1, 9), w(0, 1), v(5, 6)), in(v(5, 9))},
		{"embedding", "", in(m23, i64(shape{1, 2}, 1, 0)), in(f32(shape{1, 2, 3}, 4, 5, 6, 1, 2, 3))},
		{"read_size", `{symbols=["u0", "u1"]}`, in(mk(dtype.I32, shape{2}, 7, -1)), in(w(7, -1))},
		{"topk", "{k=2, dim=0}", in(v(1, 3, 2, 3)), in(v(3, 3), w(1, 3))},
		{"topk", "{k=3, largest=false}", in(f32(shape{1, 4}, 2, 1, 2, nan)), in(f32(shape{1, 3}, 1, 2, 2), i64(shape{1, 3}, 1, 0, 2))},
		{"topk", "{k=2}", in(v(1, nan, inf)), in(v(nan, inf), w(1, 2))},
		{"topk", "{k=1, dim=0}", in(i64Bits(1<<53, 1<<53+1)), in(i64Bits(1<<53+1), w(1))},

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
}

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

func TestOps(t *testing.T) {
	seen := map[string]bool{"rand": true} // see TestRand
	for _, tt := range opCases() {
		seen[tt.op] = true
		t.Run(tt.op+tt.attrs, func(t *testing.T) {
			outs := make([]Tensor, len(tt.want))
			for i := range outs {
				outs[i] = like(tt.want[i])
			}
			if err := Run(tt.op, attrs(t, tt.attrs), outs, tt.ins); err != nil {
				t.Fatal(err)
			}
			for i := range outs {
				got, want := values(t, outs[i]), values(t, tt.want[i])
				same := equalValues(got, want)
				if tt.op == "attention_backward" { // the exponential of a rounded logarithm
					same = slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-5 })
				} else if same && !tt.want[i].DType.IsFloat() {
					same = string(outs[i].Data) == string(tt.want[i].Data)
				}
				if !same {
					t.Errorf("result %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
	for _, name := range Names() {
		if !seen[name] {
			t.Errorf("no case for %s", name)
		}
	}
}

// TestTable checks that the table is complete.
func TestTable(t *testing.T) {
	// Every operation that computes; views and collectives have no kernel.
	const ops = `full constant iota neg exp log sqrt rsqrt reciprocal abs sigmoid tanh relu silu gelu sin cos floor
		ceil round trunc sign erf erfc exp2 expm1 log2 log10 log1p tan asin acos atan sinh cosh asinh acosh atanh cbrt
		bitwise_not bitwise_and bitwise_or bitwise_xor shift_left shift_right atan2 fmod remainder floor_divide trunc_divide
		logical_not convert bitcast add sub mul div pow maximum minimum eq ne lt le gt ge logical_and logical_or where fma
		clamp sum mean amax amin prod argmax cumsum softmax log_softmax matmul addmm grouped_matmul convolution reduce_window attention attention_backward
		clone cat index index_put index_add gather scatter slice_scatter embedding topk read_size rand`
	want := strings.Fields(ops)
	slices.Sort(want)
	if !slices.Equal(want, Names()) {
		t.Errorf("got %v\nwant %v", Names(), want)
	}
	for _, name := range want {
		if !Has(name) {
			t.Errorf("Has(%q) is false", name)
		}
	}
	if Has("view") || Has("") {
		t.Error("Has is true for what has no kernel")
	}
}

func TestRand(t *testing.T) {
	draw := func(seed string, d dtype.DType) []float64 {
		x := mk(d, shape{1000})
		if err := Run("rand", attrs(t, "{seed="+seed+"}"), []Tensor{x}, nil); err != nil {
			t.Fatal(err)
		}
		return values(t, x)
	}
	for _, d := range []dtype.DType{dtype.F32, dtype.F64, dtype.BF16, dtype.F16} {
		a := draw("1", d)
		if !slices.Equal(a, draw("1", d)) {
			t.Errorf("%v: one seed gave two sequences", d)
		}
		if slices.Equal(a, draw("2", d)) {
			t.Errorf("%v: two seeds gave one sequence", d)
		}
		mean := 0.0
		for _, v := range a {
			if v < 0 || v >= 1 {
				t.Fatalf("%v: %v is outside [0, 1)", d, v)
			}
			mean += v / 1000
		}
		if math.Abs(mean-0.5) > 0.05 { // five standard deviations
			t.Errorf("%v: mean %v", d, mean)
		}
	}
}

func TestReduce(t *testing.T) {
	v := func(d dtype.DType, vals ...float64) Tensor { return mk(d, shape{int64(len(vals))}, vals...) }
	tests := []struct {
		reduce string
		d      dtype.DType
		ins    [][]float64
		want   []float64
	}{
		{"sum", dtype.F32, [][]float64{{1, 2}, {10, 20}, {100, 200}}, []float64{111, 222}},
		{"avg", dtype.F32, [][]float64{{1, 2}, {2, 4}}, []float64{1.5, 3}},
		{"product", dtype.I32, [][]float64{{2}, {3}, {7}}, []float64{42}},
		{"min", dtype.F32, [][]float64{{1, nan}, {0, 1}}, []float64{0, nan}},
		{"max", dtype.I8, [][]float64{{-1}, {-2}}, []float64{-1}},
		{"sum", dtype.BF16, [][]float64{{256}, {1}, {1}, {1}}, []float64{260}}, // rounded once
		{"avg", dtype.BF16, [][]float64{{256}, {1}}, []float64{128}},           // 257/2 = 128.5 rounds to 128
		{"sum", dtype.F16, [][]float64{{2048}, {1}, {1}}, []float64{2050}},
		{"sum", dtype.F32, [][]float64{{1 << 24}, {1}, {1}}, []float64{1 << 24}}, // in the given order
		{"sum", dtype.F32, [][]float64{{1}, {1}, {1 << 24}}, []float64{1<<24 + 2}},
		{"sum", dtype.Bool, [][]float64{{1, 0}, {1, 0}}, []float64{1, 0}},
		{"avg", dtype.I64, [][]float64{{7}, {-10}}, []float64{-1}},
		{"sum", dtype.F64, [][]float64{{0.1}, {0.2}}, []float64{0.30000000000000004}},
	}
	for _, tt := range tests {
		var ins []Tensor
		for _, x := range tt.ins {
			ins = append(ins, v(tt.d, x...))
		}
		out := mk(tt.d, shape{int64(len(tt.want))})
		if err := Reduce(tt.reduce, out, ins); err != nil {
			t.Fatal(err)
		}
		if got := values(t, out); !slices.EqualFunc(got, tt.want, func(a, b float64) bool { return a == b || a != a && b != b }) {
			t.Errorf("%s %v of %v: got %v, want %v", tt.reduce, tt.d, tt.ins, got, tt.want)
		}
		if err := Reduce(tt.reduce, ins[len(ins)-1], ins); err != nil {
			t.Fatal(err)
		}
		if got := values(t, ins[len(ins)-1]); !equalValues(got, values(t, out)) {
			t.Errorf("%s %v in place: got %v, want %v", tt.reduce, tt.d, got, tt.want)
		}
	}
	out := v(dtype.F32, 9, 9, 9, 9)
	if err := ReduceRange("sum", out, []Tensor{v(dtype.F32, 1, 2, 3, 4), v(dtype.F32, 1, 1, 1, 1)}, 1, 3); err != nil {
		t.Fatal(err)
	}
	if got := values(t, out); !slices.Equal(got, []float64{9, 3, 4, 9}) {
		t.Errorf("a range: got %v", got)
	}
}
