package decompose

import (
	"math"

	"github.com/seed-ee968945/concert/ir"
)

// ratio is a quotient of polynomials at x.
func (s special) ratio(x *ir.Value, r ratio) *ir.Value {
	return s.div(s.polynomial(x, r.above...), s.polynomial(x, r.below...))
}

// polynomial has coefficients from that of the highest power on.
func (s special) polynomial(x *ir.Value, cs ...float64) *ir.Value {
	p := s.number(cs[0])
	for _, c := range cs[1:] {
		p = s.plus(s.mul(p, x), c)
	}
	return p
}

// chebyshev is half a series of Chebyshev polynomials of x/2, the last coefficient counted half: Clenshaw's sum.
func (s special) chebyshev(x *ir.Value, cs []float64) *ir.Value {
	last, before, sum := s.number(0), s.number(0), s.number(0)
	for _, c := range cs {
		before, last = last, sum
		sum = s.plus(s.sub(s.mul(x, last), before), c)
	}
	return s.times(s.sub(sum, before), 0.5)
}

func (s special) sqrt(x *ir.Value) *ir.Value { return s.unary(ir.OpSqrt, x) }
func (s special) exp(x *ir.Value) *ir.Value  { return s.unary(ir.OpExp, x) }
func (s special) neg(x *ir.Value) *ir.Value  { return s.unary(ir.OpNeg, x) }
func (s special) nan() *ir.Value             { return s.number(math.NaN()) }
func (s special) inf() *ir.Value             { return s.number(math.Inf(1)) }

// known is y where x is a number, else x.
func (s special) known(x, y *ir.Value) *ir.Value { return s.where(s.binary(ir.OpNe, x, x), x, y) }

func single(f func(s special, x *ir.Value) *ir.Value) func(to Emitter, x *ir.Value) *ir.Value {
	return func(to Emitter, x *ir.Value) *ir.Value {
		return function(to, func(s special, args []*ir.Value) *ir.Value { return s.known(args[0], f(s, args[0])) }, x)
	}
}

// BesselJ is the Bessel function of the first kind, of order 0 or 1.
func BesselJ(order int) func(to Emitter, x *ir.Value) *ir.Value {
	return single(func(s special, x *ir.Value) *ir.Value {
		a := s.abs(x)
		y := s.where(s.by(ir.OpLe, a, 5), s.besselJ(order, a), s.wave(order, a, false))
		if order == 1 {
			y = s.where(s.by(ir.OpLt, x, 0), s.neg(y), y)
		}
		return y
	})
}

// besselJ is the function from 0 to 5.
func (s special) besselJ(order int, x *ir.Value) *ir.Value {
	c, z := bessels[order], s.mul(x, x)
	y := s.mul(s.ratio(z, c.first), s.mul(s.plus(z, -c.zeros[0]), s.plus(z, -c.zeros[1])))
	if order == 1 {
		y = s.mul(y, x)
	}
	return y
}

// wave is a Bessel function beyond 5, of the first kind or of the second, by waves a quarter or three of half a turn late.
func (s special) wave(order int, x *ir.Value, second bool) *ir.Value {
	c, w := bessels[order], s.over(5, x)
	z := s.mul(w, w)
	p, q := s.ratio(z, c.cosine), s.mul(w, s.ratio(z, c.sine))
	sin, cos := s.unary(ir.OpSin, x), s.unary(ir.OpCos, x)
	sin, cos = s.sub(sin, cos), s.add(sin, cos) // times the root of 2
	if order == 1 {
		sin, cos = s.neg(cos), sin
	}
	y := s.sub(s.mul(p, cos), s.mul(q, sin))
	if second {
		y = s.add(s.mul(p, sin), s.mul(q, cos))
	}
	return s.div(s.times(y, 1/math.SqrtPi), s.sqrt(x))
}

// BesselY is the Bessel function of the second kind, of order 0 or 1.
func BesselY(order int) func(to Emitter, x *ir.Value) *ir.Value {
	return single(func(s special, x *ir.Value) *ir.Value {
		y, multiple := s.ratio(s.mul(x, x), bessels[order].second), s.mul(s.besselJ(order, x), s.log(x))
		if order == 1 {
			y, multiple = s.mul(y, x), s.sub(multiple, s.over(1, x))
		}
		y = s.where(s.by(ir.OpLe, x, 5), s.add(y, s.times(multiple, 2/math.Pi)), s.wave(order, x, true))
		y = s.where(s.by(ir.OpEq, x, 0), s.number(math.Inf(-1)), y)
		return s.where(s.by(ir.OpLt, x, 0), s.nan(), y)
	})
}

// BesselK is the modified Bessel function of the second kind, of order 0 or 1, times exp(x) where scaled.
func BesselK(order int, scaled bool) func(to Emitter, x *ir.Value) *ir.Value {
	return single(func(s special, x *ir.Value) *ir.Value {
		c := macdonald[order]
		near := s.chebyshev(s.plus(s.mul(x, x), -2), c.near)
		multiple := s.mul(s.log(s.times(x, 0.5)), s.besselI(order, s.binary(ir.OpMinimum, x, s.number(2)), false))
		if order == 0 {
			near = s.sub(near, multiple)
		} else {
			near = s.add(s.div(near, x), multiple)
		}
		far := s.div(s.chebyshev(s.plus(s.over(8, x), -2), c.far), s.sqrt(x))
		if scaled {
			near = s.mul(near, s.exp(x))
		} else {
			far = s.mul(far, s.exp(s.neg(x)))
		}
		y := s.where(s.by(ir.OpLe, x, 2), near, far)
		y = s.where(s.by(ir.OpEq, x, 0), s.inf(), y)
		return s.where(s.by(ir.OpLt, x, 0), s.nan(), y)
	})
}

// SphericalBesselJ is sin(x) / x.
var SphericalBesselJ = single(func(s special, x *ir.Value) *ir.Value {
	y := s.where(s.by(ir.OpEq, x, 0), s.number(1), s.div(s.unary(ir.OpSin, x), x))
	return s.where(s.by(ir.OpEq, s.abs(x), math.Inf(1)), s.number(0), y)
})

// Airy is Airy's function Ai, by its power series in the middle.
var Airy = single(func(s special, x *ir.Value) *ir.Value {
	const left, right, end = -2.09, 2.09, 103.892 // where it is 0 in single precision
	a := s.abs(x)
	root := s.sqrt(a)
	zeta := s.times(s.mul(a, root), 2.0/3)
	z, scale := s.over(1, zeta), s.over(1/math.SqrtPi, s.sqrt(root))
	far := s.times(s.mul(s.mul(scale, s.ratio(z, airy.right)), s.exp(s.neg(zeta))), 0.5)
	angle, square := s.plus(zeta, math.Pi/4), s.mul(z, z)
	sine := s.mul(s.unary(ir.OpSin, angle), s.plus(s.mul(square, s.ratio(square, airy.sine)), 1))
	cosine := s.mul(s.unary(ir.OpCos, angle), s.mul(z, s.ratio(square, airy.cosine)))
	waves := s.mul(scale, s.sub(sine, cosine))
	const terms = 14 // of the two series, each times x^3 over two numbers in a row
	cube := s.mul(s.mul(x, x), x)
	f, g := s.number(1), s.number(1)
	for k := terms; k > 0; k-- {
		f = s.plus(s.mul(f, s.times(cube, 1/float64((3*k-1)*3*k))), 1)
		g = s.plus(s.mul(g, s.times(cube, 1/float64(3*k*(3*k+1)))), 1)
	}
	y := s.sub(s.times(f, 0.355028053887817239260), s.times(s.mul(x, g), 0.258819403792806798405))
	y = s.where(s.by(ir.OpGe, x, right), far, s.where(s.by(ir.OpLt, x, left), waves, y))
	y = s.where(s.by(ir.OpGt, x, end), s.number(0), y)
	return s.where(s.by(ir.OpEq, a, math.Inf(1)), s.nan(), y)
})

// Ndtri is the inverse of the normal distribution function.
var Ndtri = single(func(s special, x *ir.Value) *ir.Value {
	const end = 0.13533528323661269189 // exp(-2)
	c, upper := quantiles, s.by(ir.OpGt, x, 1-end)
	p := s.where(upper, s.less(1, x), x)
	away := s.plus(p, -0.5)
	square := s.mul(away, away)
	middle := s.times(s.add(away, s.mul(away, s.mul(square, s.ratio(square, c.middle)))), math.Sqrt(2*math.Pi))
	r := s.sqrt(s.times(s.log(p), -2))
	z := s.over(1, r)
	tail := s.mul(z, s.where(s.by(ir.OpLt, r, 8), s.ratio(z, c.near), s.ratio(z, c.far)))
	tail = s.sub(s.sub(r, s.div(s.log(r), r)), tail)
	y := s.where(s.by(ir.OpGt, p, end), middle, s.where(upper, tail, s.neg(tail)))
	y = s.where(s.by(ir.OpEq, x, 0), s.number(math.Inf(-1)), s.where(s.by(ir.OpEq, x, 1), s.inf(), y))
	outside := s.binary(ir.OpLogicalOr, s.by(ir.OpLt, x, 0), s.by(ir.OpGt, x, 1))
	return s.where(outside, s.nan(), y)
})

// Erfcx is exp(x^2) erfc(x), far out by its asymptotic series.
var Erfcx = single(func(s special, x *ir.Value) *ir.Value {
	const far, terms = 20, 8
	near := s.binary(ir.OpMaximum, s.binary(ir.OpMinimum, x, s.number(far)), s.number(-30)) // where it overflows
	square := s.mul(near, near)
	rest := s.one(ir.OpFma, nil, []*ir.Value{near, near, s.neg(square)})
	y := s.mul(s.mul(s.exp(square), s.plus(rest, 1)), s.unary(ir.OpErfc, near))
	away := s.binary(ir.OpMaximum, x, s.number(far))
	sum, z := s.number(1), s.over(-0.5, s.mul(away, away))
	for k := terms; k > 0; k-- {
		sum = s.plus(s.mul(sum, s.times(z, float64(2*k-1))), 1)
	}
	return s.where(s.by(ir.OpGt, x, far), s.div(s.times(sum, 1/math.SqrtPi), away), y)
})
