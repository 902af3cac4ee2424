package decompose

import (
	"math"

	"github.com/seed-ee968945/concert/ir"
)

// Special functions are computed in double precision, whatever the type of the operand, and
// rounded once.
type special struct{ emit }

// function applies f to operands of double precision.
func function(to Emitter, f func(s special, args []*ir.Value) *ir.Value, args ...*ir.Value) *ir.Value {
	s := special{emit{to}}
	wide := make([]*ir.Value, len(args))
	for i, a := range args {
		wide[i] = s.convert(a, ir.F64)
	}
	return s.convert(f(s, wide), args[0].Type().DType())
}

func (s special) add(a, b *ir.Value) *ir.Value { return s.binary(ir.OpAdd, a, b) }
func (s special) sub(a, b *ir.Value) *ir.Value { return s.binary(ir.OpSub, a, b) }
func (s special) mul(a, b *ir.Value) *ir.Value { return s.binary(ir.OpMul, a, b) }
func (s special) div(a, b *ir.Value) *ir.Value { return s.binary(ir.OpDiv, a, b) }
func (s special) log(a *ir.Value) *ir.Value    { return s.unary(ir.OpLog, a) }
func (s special) abs(a *ir.Value) *ir.Value    { return s.unary(ir.OpAbs, a) }
func (s special) floor(a *ir.Value) *ir.Value  { return s.unary(ir.OpFloor, a) }

// by is an operation of x and a number.
func (s special) by(op ir.Op, x *ir.Value, c float64) *ir.Value {
	return s.one(op, ir.A("scalar", c), []*ir.Value{x})
}

func (s special) plus(x *ir.Value, c float64) *ir.Value  { return s.by(ir.OpAdd, x, c) }
func (s special) times(x *ir.Value, c float64) *ir.Value { return s.by(ir.OpMul, x, c) }

// less is c - x, over is c / x.
func (s special) less(c float64, x *ir.Value) *ir.Value {
	return s.one(ir.OpSub, ir.A("reverse", true, "scalar", c), []*ir.Value{x})
}

func (s special) over(c float64, x *ir.Value) *ir.Value {
	return s.one(ir.OpDiv, ir.A("reverse", true, "scalar", c), []*ir.Value{x})
}

func (s special) both(a, b *ir.Value) *ir.Value { return s.binary(ir.OpLogicalAnd, a, b) }

// number is a scalar.
func (s special) number(c float64) *ir.Value { return s.full(ir.F64, c) }

// Lanczos's approximation with g = 7 and nine terms (Godfrey, A note on the computation of the
// convergent Lanczos complex gamma approximation, 2001).
const lanczosG = 7

var lanczos = [...]float64{676.520368121885098567009190444019, -1259.13921672240287047156078755283, 771.3234287776530788486528258894, -176.61502916214059906584551354,
	12.507343278686904814458936853, -0.13857109526572011689554707, 9.984369578019570859563e-6, 1.50563273514931155834e-7}

const lanczosBase = 0.99999999999980993227684700473478

// gamma is what Lanczos's approximation of the gamma function is made of.
type gamma struct {
	below      *ir.Value // x < 1/2, where z = -x and the result is reflected; elsewhere z = x - 1
	z, t, logT *ir.Value // t = z + lanczosG + 1/2
	sum, slope *ir.Value // Lanczos's sum at z and its derivative
}

func (s special) lanczos(x *ir.Value) (g gamma) {
	g.below = s.by(ir.OpLt, x, 0.5)
	g.z = s.where(g.below, s.unary(ir.OpNeg, x), s.plus(x, -1))
	g.sum, g.slope = s.number(lanczosBase), s.number(0)
	for k, c := range lanczos {
		at := s.plus(g.z, float64(k+1))
		g.sum, g.slope = s.add(g.sum, s.over(c, at)), s.sub(g.slope, s.over(c, s.mul(at, at)))
	}
	const shift = lanczosG + 0.5
	g.t = s.plus(g.z, shift)
	g.logT = s.plus(s.unary(ir.OpLog1p, s.by(ir.OpDiv, g.z, shift)), math.Log(shift))
	return g
}

// Lgamma is the logarithm of the magnitude of the gamma function.
func Lgamma(to Emitter, x *ir.Value) *ir.Value {
	return function(to, func(s special, args []*ir.Value) *ir.Value { return s.lgamma(args[0]) }, x)
}

func (s special) lgamma(x *ir.Value) *ir.Value {
	g := s.lanczos(x)
	// (z + 1/2) log t - t, which overflows where the result does only.
	main := s.mul(s.sub(s.plus(g.z, 0.5), s.div(g.t, g.logT)), g.logT)
	y := s.add(s.plus(main, (math.Log(2)+math.Log(math.Pi))/2), s.log(g.sum))
	// By reflection: log(pi / |sin(pi x)|) - y, of the distance to the next integer.
	f := s.abs(x)
	f = s.sub(f, s.floor(f))
	f = s.binary(ir.OpMinimum, f, s.less(1, f))
	sine := s.log(s.unary(ir.OpSin, s.times(f, math.Pi)))
	finite := s.by(ir.OpGt, sine, math.Inf(-1))
	other := s.where(finite, s.sub(s.less(math.Log(math.Pi), sine), y), s.number(math.Inf(1)))
	y = s.where(g.below, other, y)
	return s.where(s.by(ir.OpEq, s.abs(x), math.Inf(1)), s.number(math.Inf(1)), y)
}

// Digamma is the derivative of the logarithm of the gamma function: NaN at negative integers,
// and infinite at zero, with the other sign than zero's.
func Digamma(to Emitter, x *ir.Value) *ir.Value {
	return function(to, func(s special, args []*ir.Value) *ir.Value { return s.digamma(args[0]) }, x)
}

func (s special) digamma(x *ir.Value) *ir.Value {
	g := s.lanczos(x)
	y := s.sub(s.add(g.logT, s.div(g.slope, g.sum)), s.over(lanczosG, g.t))
	// By reflection: y - pi / tan(pi x), of the distance to the next integer.
	f := s.times(s.sub(x, s.unary(ir.OpRound, x)), math.Pi)
	y = s.where(g.below, s.sub(y, s.div(s.times(s.unary(ir.OpCos, f), math.Pi), s.unary(ir.OpSin, f))), y)
	pole := s.both(s.by(ir.OpLt, x, 0), s.binary(ir.OpEq, x, s.floor(x)))
	y = s.where(pole, s.number(math.NaN()), y)
	return s.where(s.by(ir.OpEq, x, 0), s.over(-1, x), y)
}

// Zeta is Hurwitz's zeta function, the sum of (q + k) to the -x over all k from 0 on: by
// Euler and Maclaurin's formula behind ten terms (Johansson, Rigorous high-precision
// computation of the Hurwitz zeta function and its derivatives, 2015). Its poles lie where q + k is
// 0: those of even x are inf, what those of odd x are, whose sides differ, callers say.
func Zeta(odd float64) func(to Emitter, x, q *ir.Value) *ir.Value {
	return func(to Emitter, x, q *ir.Value) *ir.Value {
		return function(to, func(s special, args []*ir.Value) *ir.Value { return s.zeta(args[0], args[1], odd) }, x, q)
	}
}

// bernoulli are (2k)! / B(2k) for k from 1 on.
var bernoulli = [...]float64{12, -720, 30240, -1209600, 47900160, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
	1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18}

func (s special) zeta(x, q *ir.Value, odd float64) *ir.Value {
	// The sum over all k, negative ones too, is the same at all q of one fraction, and is two such functions:
	// of q and 1 - q, and of the distances to the integers below and above.
	left, right := s.sub(q, s.floor(q)), s.sub(s.unary(ir.OpCeil, q), q)
	even := s.by(ir.OpEq, s.by(ir.OpFmod, x, 2), 0)
	below := s.by(ir.OpLt, q, 0)
	one := s.number(1)
	more := s.sub(s.above(x, s.where(below, right, one)), s.above(x, s.where(below, s.less(1, q), one)))
	y := s.above(x, s.where(below, left, q))
	y = s.where(below, s.where(even, s.add(y, more), s.sub(y, more)), y)
	nan, inf := s.number(math.NaN()), s.number(math.Inf(1))
	below = s.by(ir.OpLe, q, 0)
	y = s.where(s.both(below, s.binary(ir.OpNe, x, s.floor(x))), nan, y)
	y = s.where(s.both(below, s.binary(ir.OpEq, q, s.floor(q))), s.where(even, inf, s.number(odd)), y)
	y = s.where(s.by(ir.OpLt, x, 1), nan, y)
	return s.where(s.by(ir.OpEq, x, 1), inf, y)
}

// above is zeta of q > 0 and x > 1.
func (s special) above(x, q *ir.Value) *ir.Value {
	negative := s.unary(ir.OpNeg, x)
	power := func(a *ir.Value) *ir.Value { return s.binary(ir.OpPow, a, negative) }
	sum, a := power(q), q
	for range 9 {
		a = s.plus(a, 1)
		sum = s.add(sum, power(a))
	}
	a = s.plus(a, 1)
	last := power(a)
	tail := s.add(s.div(s.mul(last, a), s.plus(x, -1)), s.times(last, 0.5))
	// The terms of the formula, each of which is the one before it times a factor.
	inner := s.number(1 / bernoulli[len(bernoulli)-1])
	square := s.mul(a, a)
	for k := len(bernoulli) - 2; k >= 0; k-- {
		factor := s.div(s.mul(s.plus(x, float64(2*k+1)), s.plus(x, float64(2*k+2))), square)
		inner = s.plus(s.mul(inner, factor), 1/bernoulli[k])
	}
	tail = s.add(tail, s.mul(s.mul(s.div(x, a), last), inner))
	return s.where(s.by(ir.OpEq, last, 0), sum, s.add(sum, tail))
}

// Polygamma is derivative n of digamma, NaN where n is no natural number; odd is as for [Zeta].
func Polygamma(odd float64) func(to Emitter, n, x *ir.Value) *ir.Value {
	return func(to Emitter, n, x *ir.Value) *ir.Value {
		return function(to, func(s special, args []*ir.Value) *ir.Value { return s.polygamma(args[0], args[1], odd) }, n, x)
	}
}

func (s special) polygamma(n, x *ir.Value, odd float64) *ir.Value {
	next := s.plus(n, 1)
	sign := s.plus(s.times(s.by(ir.OpFmod, n, 2), 2), -1) // of odd n
	y := s.mul(s.mul(sign, s.unary(ir.OpExp, s.lgamma(next))), s.zeta(next, x, odd))
	y = s.where(s.by(ir.OpEq, n, 0), s.digamma(x), y)
	strange := s.binary(ir.OpLogicalOr, s.by(ir.OpLt, n, 0), s.binary(ir.OpNe, n, s.floor(n)))
	return s.where(strange, s.number(math.NaN()), y)
}

// ErfInv is the inverse of the error function: a start by Giles's polynomials
// (Approximating the erfinv function, 2010), then steps of Halley's method on erfc, which
// is exact where erf comes close to 1.
func ErfInv(to Emitter, x *ir.Value) *ir.Value {
	return function(to, func(s special, args []*ir.Value) *ir.Value {
		x := args[0]
		a := s.abs(x)
		w := s.unary(ir.OpNeg, s.log(s.mul(s.less(1, a), s.plus(a, 1))))
		near, far := s.plus(w, -2.5), s.plus(s.unary(ir.OpSqrt, w), -3)
		p := s.polynomial(near, 2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
		q := s.polynomial(far, -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)
		y := s.mul(s.where(s.by(ir.OpLt, w, 5), p, q), a)
		// Beyond single precision erfc is about exp(-y^2) / (y sqrt(pi)).
		tail := s.unary(ir.OpNeg, s.log(s.less(1, a)))
		tail = s.unary(ir.OpSqrt, s.sub(tail, s.times(s.log(s.times(tail, math.Pi)), 0.5)))
		y = s.where(s.by(ir.OpLt, w, 15), y, tail)
		small := s.by(ir.OpLt, a, 0.5)
		for range 3 {
			miss := s.where(small, s.sub(s.unary(ir.OpErf, y), a), s.sub(s.less(1, a), s.unary(ir.OpErfc, y)))
			step := s.div(miss, s.times(s.unary(ir.OpExp, s.unary(ir.OpNeg, s.mul(y, y))), 2/math.SqrtPi))
			y = s.sub(y, s.div(step, s.plus(s.mul(y, step), 1)))
		}
		y = s.where(s.by(ir.OpEq, a, 1), s.number(math.Inf(1)), y)
		y = s.where(s.by(ir.OpLt, x, 0), s.unary(ir.OpNeg, y), y)
		return s.where(s.by(ir.OpEq, x, 0), x, y)
	}, x)
}

// BesselI is the modified Bessel function of order 0 or 1, times exp(-|x|) where scaled.
func BesselI(order int, scaled bool) func(to Emitter, x *ir.Value) *ir.Value {
	return func(to Emitter, x *ir.Value) *ir.Value {
		return function(to, func(s special, args []*ir.Value) *ir.Value { return s.besselI(order, args[0], scaled) }, x)
	}
}

// besselI is computed by its power series, whose terms are all positive, and far out by
// Hankel's expansion.
func (s special) besselI(order int, x *ir.Value, scaled bool) *ir.Value {
	const far, terms = 30, 64
	a := s.abs(x)
	near := s.binary(ir.OpMinimum, a, s.number(far))
	half := s.times(near, 0.5)
	square := s.mul(half, half)
	one := s.number(1)
	sum := one
	for k := terms; k > 0; k-- {
		sum = s.one(ir.OpFma, nil, []*ir.Value{s.by(ir.OpDiv, sum, float64(k*(k+order))), square, one})
	}
	if order == 1 {
		sum = s.mul(sum, half)
	}
	y := s.mul(sum, s.unary(ir.OpExp, s.unary(ir.OpNeg, near)))
	away := s.binary(ir.OpMaximum, a, s.number(far))
	sum = s.number(1)
	for k := 20; k > 0; k-- { // term k is the one before it times ((2k-1)^2 - (2 order)^2) / (8 k x)
		odd := float64(2*k - 1)
		sum = s.plus(s.mul(sum, s.over((odd*odd-float64(4*order))/float64(8*k), away)), 1)
	}
	z := s.div(sum, s.unary(ir.OpSqrt, s.times(away, 2*math.Pi)))
	y = s.where(s.by(ir.OpGt, a, far), z, y)
	if !scaled { // in two steps: the exponential overflows before the function does
		grown := s.unary(ir.OpExp, s.times(a, 0.5))
		y = s.mul(s.mul(y, grown), grown)
	}
	if order == 1 {
		y = s.where(s.by(ir.OpLt, x, 0), s.unary(ir.OpNeg, y), y)
	}
	return s.where(s.binary(ir.OpNe, x, x), x, y)
}
