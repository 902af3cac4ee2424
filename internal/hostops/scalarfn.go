package hostops

import "math"

// The elementwise functions. Cheap ones are loops in each domain; transcendental
// ones are computed in float64 and rounded to the domain, which is at least as
// exact as a device's float32 routines.

func floatFn(f func(float64) float64) unaryOp {
	return unaryOp{
		f32: func(dst, a []float32) {
			for i, v := range a {
				dst[i] = float32(f(float64(v)))
			}
		},
		f64: func(dst, a []float64) {
			for i, v := range a {
				dst[i] = f(v)
			}
		},
	}
}

var (
	opGelu = unaryOp{f32: gelus, f64: floatFn(func(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) }).f64}
	// The constants are those of PyTorch: sqrt(2/pi) and 0.044715.
	opGeluTanh = floatFn(func(x float64) float64 {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt2*(2/math.SqrtPi)*0.5*(x+0.044715*x*x*x)))
	})
	opNot        = unaryOp{f32: not[float32], f64: not[float64], i64: not[int64]}
	opCopy       = unaryOp{f32: same[float32], f64: same[float64], i64: same[int64]}
	opReciprocal = unaryOp{f32: reciprocal[float32], f64: reciprocal[float64]}
	opSqrt       = floatFn(math.Sqrt)
	opRsqrt      = floatFn(func(x float64) float64 { return 1 / math.Sqrt(x) })
)

// unaryOps are the elementwise operations of one operand.
var unaryOps = map[string]unaryOp{
	// The three that models spend their time in call math.Exp from a loop of their
	// own: through a function value it takes three times as long.
	"exp":     {f32: exp, f64: floatFn(exponential).f64},
	"sigmoid": {f32: sigmoids, f64: floatFn(func(x float64) float64 { return 1 / (1 + exponential(-x)) }).f64},
	"silu":    {f32: silu, f64: floatFn(func(x float64) float64 { return x / (1 + exponential(-x)) }).f64},

	"log":         floatFn(logarithm),
	"tanh":        floatFn(math.Tanh),
	"sin":         {f32: floatFn(math.Sin).f32, f64: floatFn(sine).f64},
	"cos":         {f32: floatFn(math.Cos).f32, f64: floatFn(cosine).f64},
	"sqrt":        opSqrt,
	"rsqrt":       opRsqrt,
	"erf":         {f32: erfs, f64: floatFn(math.Erf).f64},
	"erfc":        floatFn(math.Erfc),
	"exp2":        floatFn(math.Exp2),
	"expm1":       floatFn(math.Expm1),
	"log2":        floatFn(logarithm2),
	"log10":       floatFn(logarithm10),
	"log1p":       floatFn(math.Log1p),
	"tan":         {f32: floatFn(math.Tan).f32, f64: floatFn(tangent).f64},
	"asin":        floatFn(arcSine),
	"acos":        floatFn(arcCosine),
	"atan":        floatFn(math.Atan),
	"sinh":        floatFn(sinh),
	"cosh":        floatFn(cosh),
	"asinh":       floatFn(math.Asinh),
	"acosh":       floatFn(math.Acosh),
	"atanh":       floatFn(math.Atanh),
	"cbrt":        floatFn(math.Cbrt),
	"reciprocal":  opReciprocal,
	"convert":     opCopy,
	"neg":         {f32: neg[float32], f64: neg[float64], i64: neg[int64]},
	"relu":        {f32: relu[float32], f64: relu[float64], i64: relu[int64], u64: same[uint64]},
	"logical_not": opNot,
	"floor":       integral(math.Floor),
	"ceil":        integral(math.Ceil),
	"round":       integral(math.RoundToEven),
	"trunc":       integral(math.Trunc),
	"sign":        {f32: sign[float32], f64: sign[float64], i64: sign[int64], u64: sign[uint64]},
	"abs":         {f32: floatFn(math.Abs).f32, f64: floatFn(math.Abs).f64, i64: absInt, u64: same[uint64]},
}

// binaryOps are those of two operands, or of one and a scalar.
var binaryOps = map[string]binaryOp{
	"add":         {f32: add[float32], f64: add[float64], i64: add[int64], alpha: true},
	"sub":         {f32: sub[float32], f64: sub[float64], i64: sub[int64], alpha: true},
	"mul":         {f32: mul[float32], f64: mul[float64], i64: mul[int64]},
	"div":         {f32: div[float32], f64: div[float64]},
	"pow":         {f32: pow32, f64: each(power), i64: powInt, u64: powUint, scalar: powScalar},
	"maximum":     {f32: maximum[float32], f64: maximum[float64], i64: maximum[int64], u64: maximum[uint64]},
	"minimum":     {f32: minimum[float32], f64: minimum[float64], i64: minimum[int64], u64: minimum[uint64]},
	"eq":          {f32: eqOf[float32], f64: eqOf[float64], i64: eqOf[int64], u64: eqOf[uint64]},
	"ne":          {f32: neOf[float32], f64: neOf[float64], i64: neOf[int64], u64: neOf[uint64]},
	"lt":          {f32: ltOf[float32], f64: ltOf[float64], i64: ltOf[int64], u64: ltOf[uint64]},
	"le":          {f32: leOf[float32], f64: leOf[float64], i64: leOf[int64], u64: leOf[uint64]},
	"gt":          {f32: swapped(ltOf[float32]), f64: swapped(ltOf[float64]), i64: swapped(ltOf[int64]), u64: swapped(ltOf[uint64])},
	"ge":          {f32: swapped(leOf[float32]), f64: swapped(leOf[float64]), i64: swapped(leOf[int64]), u64: swapped(leOf[uint64])},
	"logical_and": {f32: both[float32], f64: both[float64], i64: both[int64]},
	"logical_or":  {f32: either[float32], f64: either[float64], i64: either[int64]},
	"atan2":       {f32: each(atan2[float32]), f64: each(atan2[float64])},
	"fmod":        {f32: each(fmod[float32]), f64: each(fmod[float64]), i64: each(rest[int64]), u64: each(rest[uint64])},
	// The steps are those of PyTorch, each rounded, since the results jump.
	"remainder":    {f32: each(remainder[float32]), f64: each(remainder[float64]), i64: each(floorRest), u64: each(rest[uint64])},
	"floor_divide": {f32: each(floorDivide[float32]), f64: each(floorDivide[float64]), i64: each(floorQuotient), u64: each(quotient[uint64])},
	"trunc_divide": {f32: each(truncDivide[float32]), f64: each(truncDivide[float64]), i64: each(quotient[int64]), u64: each(quotient[uint64])},
}

// logarithm is right for subnormal numbers, too, of which math.Log takes the exponent of the
// least normal one.
func logarithm(x float64) float64 {
	if x > 0 && x < 0x1p-1022 {
		return math.Log(x*0x1p54) - 54*math.Ln2
	}
	return math.Log(x)
}

// logarithm2 keeps its digits above 1, where math.Log2 subtracts from 1, and is exact for powers of two.
func logarithm2(x float64) float64 {
	frac, exp := math.Frexp(x)
	if frac < math.Sqrt2/2 {
		frac, exp = 2*frac, exp-1
	}
	return math.Log(frac)*(1/math.Ln2) + float64(exp)
}

// logarithm10 is right for subnormal numbers, too, as logarithm is.
func logarithm10(x float64) float64 {
	if x > 0 && x < 0x1p-1022 {
		return math.Log10(x*0x1p54) - 54*(math.Ln2/math.Ln10)
	}
	return math.Log10(x)
}

// arcSine keeps its digits near 1, where math.Asin has the rest of a square.
func arcSine(x float64) float64 { return math.Atan2(x, math.Sqrt((1-x)*(1+x))) }

// arcCosine keeps its digits near 1, where math.Acos subtracts from π/2.
func arcCosine(x float64) float64 { return 2 * math.Atan2(math.Sqrt(1-x), math.Sqrt(1+x)) }

// sinh and cosh are finite for the last numbers of which the exponential is not.
func sinh(x float64) float64 {
	if math.Abs(x) > 709 {
		return math.Copysign(cosh(x), x)
	}
	return math.Sinh(x)
}

func cosh(x float64) float64 {
	if x = math.Abs(x); x > 709 {
		half := math.Exp(x / 2)
		return half / 2 * half
	}
	return math.Cosh(x)
}

// exponential is finite for the last numbers of which math.Exp is not on some machines.
func exponential(x float64) float64 {
	if x > 709 {
		half := math.Exp(x / 2)
		return half * half
	}
	return math.Exp(x)
}

func exp(dst, a []float32) {
	for i, v := range a {
		dst[i] = float32(math.Exp(float64(v)))
	}
}

func sigmoids(dst, a []float32) {
	for i, v := range a {
		dst[i] = float32(1 / (1 + math.Exp(-float64(v))))
	}
}

func silu(dst, a []float32) {
	for i, v := range a {
		x := float64(v)
		dst[i] = float32(x / (1 + math.Exp(-x)))
	}
}

func same[T num](dst, a []T) { copy(dst, a) }

func neg[T num](dst, a []T) {
	for i, v := range a {
		dst[i] = -v
	}
}

// relu keeps NaN.
func relu[T num](dst, a []T) {
	for i, v := range a {
		if v < 0 {
			v = 0
		}
		dst[i] = v
	}
}

func not[T num](dst, a []T) {
	for i, v := range a {
		dst[i] = 0
		if v == 0 {
			dst[i] = 1
		}
	}
}

func reciprocal[T real](dst, a []T) {
	for i, v := range a {
		dst[i] = 1 / v
	}
}

// integral gives integers, hence integers as they are.
func integral(f func(float64) float64) unaryOp {
	fn := floatFn(f)
	return unaryOp{f32: fn.f32, f64: fn.f64, i64: same[int64]}
}

// sign of NaN is 0, as in PyTorch.
func sign[T num](dst, a []T) {
	for i, v := range a {
		switch {
		case v > 0:
			dst[i] = 1
		case v < 0:
			dst[i] = 0
			dst[i]--
		default:
			dst[i] = 0
		}
	}
}

func absInt(dst, a []int64) {
	for i, v := range a {
		dst[i] = max(v, -v)
	}
}

func add[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func sub[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func mul[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func div[T real](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

// maximum of anything and NaN is NaN.
func maximum[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

func minimum[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

// bit is 1 for true, without a branch: nobody foresees which of a mask's bits are set.
func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func eqOf[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = T(bit(a[i] == b[i]))
	}
}

func neOf[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = T(bit(a[i] != b[i]))
	}
}

func ltOf[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = T(bit(a[i] < b[i]))
	}
}

func leOf[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = T(bit(a[i] <= b[i]))
	}
}

func swapped[T num](f func(dst, a, b []T)) func(dst, a, b []T) {
	return func(dst, a, b []T) { f(dst, b, a) }
}

func both[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = T(bit(a[i] != 0) & bit(b[i] != 0))
	}
}

func either[T num](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = T(bit(a[i] != 0) | bit(b[i] != 0))
	}
}

// pow32 has digits to spare in float64.
func pow32(dst, a, b []float32) {
	for i := range dst {
		dst[i] = float32(math.Pow(float64(a[i]), float64(b[i])))
	}
}

// powInt raises integers by squaring, wrapping; a negative exponent gives the
// truncated quotient 1/base^|exponent|, and 0 for base 0.
func powInt(dst, a, b []int64) {
	for i := range dst {
		base, e := a[i], b[i]
		if e < 0 {
			switch base {
			case 1:
				dst[i] = 1
			case -1:
				dst[i] = 1 - 2*(e&1)
			default:
				dst[i] = 0
			}
			continue
		}
		dst[i] = int64(raise(uint64(base), uint64(e)))
	}
}

func powUint(dst, a, b []uint64) {
	for i := range dst {
		dst[i] = raise(a[i], b[i])
	}
}

// raise is base to the power e by squaring, wrapping.
func raise(base, e uint64) uint64 {
	r := uint64(1)
	for ; e > 0; e >>= 1 {
		if e&1 == 1 {
			r *= base
		}
		base *= base
	}
	return r
}

// powScalar replaces the constant exponents that PyTorch replaces, because the
// products it computes differ in the last bit from a call of pow.
func powScalar(e float64) (unaryOp, bool) {
	switch e {
	case 1:
		return opCopy, true
	case 2:
		return unaryOp{f32: square[float32], f64: square[float64]}, true
	case 3:
		return unaryOp{f32: cube[float32], f64: cube[float64]}, true
	case -1:
		return opReciprocal, true
	case 0.5:
		return opSqrt, true
	case -0.5:
		return opRsqrt, true
	}
	return unaryOp{}, false
}

func square[T real](dst, a []T) {
	for i, v := range a {
		dst[i] = v * v
	}
}

func cube[T real](dst, a []T) {
	for i, v := range a {
		dst[i] = v * v * v
	}
}

// fma32 rounds a*b+c once to float32, up to the rare double rounding of the sum:
// the product of two float32 is exact in float64.
func fma32(a, b, c float32) float32 { return float32(float64(a)*float64(b) + float64(c)) }

func fma64(a, b, c float64) float64 { return math.FMA(a, b, c) }
