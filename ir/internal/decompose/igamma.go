package decompose

import (
	"math"
	"math/big"
	"sync"

	"github.com/seed-ee968945/concert/ir"
)

// Lanczos's approximation of exp(-g) Gamma(a) with thirteen terms, as Boost has it: the numerator, whose
// denominator is a (a + 1) ... (a + 11).
const lanczosWideG = 6.024680040776729583740234375

var lanczosWide = [...]float64{0.006061842346248906525783753964555936883222, 0.5098416655656676188125178644804694509993, 19.51992788247617482847860966235652136208,
	449.9445569063168119446858607650988409623, 6955.999602515376140356310115515198987526, 75999.29304014542649875303443598909137092, 601859.6171681098786670226533699352302507,
	3481712.15498064590882071018964774556468, 14605578.08768506808414169982791359218571, 43338889.32467613834773723740590533316085, 86363131.28813859145546927288977868422342,
	103794043.1163445451906271053616070238554, 56906521.91347156388090791033559122686859}

// Igamma is the regularised incomplete gamma function of a and x: the lower one, or the upper one.
func Igamma(upper bool) func(to Emitter, a, x *ir.Value) *ir.Value {
	return func(to Emitter, a, x *ir.Value) *ir.Value {
		return function(to, func(s special, args []*ir.Value) *ir.Value { return s.igamma(args[0], args[1], upper) }, a, x)
	}
}

// igamma is a power series for x up to about a, a continued fraction beyond, and where they take
// many terms, for large a near x, Temme's expansion (The asymptotic expansion of the incomplete
// gamma functions, 1979).
func (s special) igamma(a, x *ir.Value, upper bool) *ir.Value {
	complement := func(p *ir.Value) *ir.Value { return s.less(1, p) }
	// x^a exp(-x) / Gamma(a + 1), by Lanczos's approximation, each factor near 1 where the result is.
	at := s.binary(ir.OpMinimum, a, s.number(1e20))
	sum, below := s.number(lanczosWide[0]), s.plus(at, 1)
	for k, c := range lanczosWide[1:] {
		if sum = s.plus(s.mul(sum, at), c); k > 0 && k < 11 {
			below = s.mul(below, s.plus(at, float64(k+1)))
		}
	}
	t := s.plus(a, lanczosWideG-0.5)
	ratio, gap := s.div(x, t), s.sub(a, x)
	small := s.both(s.by(ir.OpLt, a, 200), s.by(ir.OpLt, x, 200))
	power := s.where(small, s.mul(s.binary(ir.OpPow, ratio, a), s.unary(ir.OpExp, gap)),
		s.unary(ir.OpExp, s.add(s.mul(a, s.log(ratio)), gap)))
	factor := s.div(s.mul(s.mul(power, s.unary(ir.OpSqrt, s.times(t, 1/math.E))), below), sum)
	series := s.number(1)
	for k := 64; k > 0; k-- {
		series = s.plus(s.mul(series, s.div(x, s.plus(a, float64(k)))), 1)
	}
	// Legendre's continued fraction, from its end on.
	gap = s.sub(x, a)
	fraction := s.plus(gap, 2*fractionTerms+1)
	for k := fractionTerms; k > 0; k-- {
		part := s.div(s.times(s.plus(a, float64(-k)), float64(k)), fraction)
		fraction = s.add(s.plus(gap, float64(2*k-1)), part)
	}
	lower, other := s.mul(factor, series), s.div(s.mul(factor, a), fraction)
	first := s.by(ir.OpLe, s.sub(x, s.binary(ir.OpMaximum, a, s.number(0.2))), 1)
	far := s.where(first, lower, complement(other))
	if upper {
		far = s.where(first, complement(lower), other)
	}
	near, middle := s.temme(a, x, upper)
	y := s.where(s.both(s.by(ir.OpGt, a, 20), near), middle, far)
	// The ends: at infinite a all is above, at 0 and at infinite x below.
	all, none := s.number(1), s.number(0)
	if upper {
		all, none = none, all
	}
	infinite := func(v *ir.Value) *ir.Value { return s.by(ir.OpEq, v, math.Inf(1)) }
	y = s.where(infinite(x), all, y)
	y = s.where(infinite(a), none, y)
	y = s.where(s.by(ir.OpEq, x, 0), none, y)
	y = s.where(s.both(s.by(ir.OpEq, a, 0), s.by(ir.OpGt, x, 0)), all, y)
	strange := s.binary(ir.OpLogicalOr, s.both(infinite(a), infinite(x)), s.both(s.by(ir.OpEq, a, 0), s.by(ir.OpEq, x, 0)))
	for _, v := range []*ir.Value{a, x} {
		strange = s.binary(ir.OpLogicalOr, strange, s.unary(ir.OpLogicalNot, s.by(ir.OpGe, v, 0)))
	}
	return s.where(strange, s.number(math.NaN()), y)
}

const fractionTerms = 90

// temme tells where x is near a, and gives the function there.
func (s special) temme(a, x *ir.Value, upper bool) (near, y *ir.Value) {
	u := s.div(s.sub(x, a), a)
	near = s.both(s.by(ir.OpGt, u, -0.45), s.by(ir.OpLt, u, 0.65))
	u = s.where(near, u, s.number(0))
	// log(1 + u) - u, by powers of r = u / (2 + u).
	r := s.div(u, s.plus(u, 2))
	square, odd := s.mul(r, r), s.number(1.0/33)
	for k := 31; k > 1; k -= 2 {
		odd = s.plus(s.mul(odd, square), 1/float64(k))
	}
	half := s.mul(r, s.sub(u, s.times(s.mul(square, odd), 2)))
	eta := s.mul(s.unary(ir.OpSign, u), s.unary(ir.OpSqrt, s.times(half, 2)))
	var sum *ir.Value
	table := temmeTable()
	for k := len(table) - 1; k >= 0; k-- {
		row := s.number(table[k][len(table[k])-1])
		for n := len(table[k]) - 2; n >= 0; n-- {
			row = s.plus(s.mul(row, eta), table[k][n])
		}
		if sum != nil {
			row = s.add(row, s.div(sum, a))
		}
		sum = row
	}
	rest := s.div(s.mul(s.unary(ir.OpExp, s.unary(ir.OpNeg, s.mul(a, half))), sum), s.unary(ir.OpSqrt, s.times(a, 2*math.Pi)))
	z := s.mul(eta, s.unary(ir.OpSqrt, s.times(a, 0.5)))
	if upper {
		return near, s.add(s.times(s.unary(ir.OpErfc, z), 0.5), rest)
	}
	return near, s.sub(s.times(s.unary(ir.OpErfc, s.unary(ir.OpNeg, z)), 0.5), rest)
}

// temmeTable has the coefficients of eta^n / a^k of Temme's expansion. With u(eta) as above they are
// those of C0 = 1/u - 1/eta and of Ck = (C(k-1)' + g eta/u) / eta, whose g leaves no pole.
var temmeTable = sync.OnceValue(func() [][]float64 {
	const rows, columns = 14, 22
	const n = columns + 2*rows + 2
	rat := func(a, b int64) *big.Rat { return big.NewRat(a, b) }
	// u = eta v and u du/deta = eta (1 + u) give v's coefficients one by one.
	v := []*big.Rat{rat(1, 1)}
	for k := 1; k < n; k++ {
		sum := new(big.Rat).Set(v[k-1])
		for i := 1; i < k; i++ { // of v (eta v)' at eta^k, but for what has v[k]
			sum.Sub(sum, new(big.Rat).Mul(rat(int64(k-i+1), 1), new(big.Rat).Mul(v[i], v[k-i])))
		}
		v = append(v, sum.Mul(sum, rat(1, int64(k+2))))
	}
	w := []*big.Rat{rat(1, 1)} // 1/v = eta/u
	for k := 1; k < n; k++ {
		sum := new(big.Rat)
		for i := 1; i <= k; i++ {
			sum.Sub(sum, new(big.Rat).Mul(v[i], w[k-i]))
		}
		w = append(w, sum)
	}
	c := w[1:]
	var table [][]float64
	for range rows {
		row := make([]float64, columns)
		for i := range row {
			row[i], _ = c[i].Float64()
		}
		table = append(table, row)
		next := make([]*big.Rat, len(c)-2)
		for i := range next {
			next[i] = new(big.Rat).Mul(c[i+2], rat(int64(i+2), 1))
			next[i].Sub(next[i], new(big.Rat).Mul(c[1], w[i+1]))
		}
		c = next
	}
	return table
})
