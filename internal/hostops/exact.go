package hostops

import (
	"math"
	"math/bits"
)

// This file has sines, cosines, tangents and powers of float64 with an error below 1 ulp, of tangents
// below 2, for all arguments. Those of package math lose digits near multiples of π and in large powers.

// pair is an unevaluated sum, with about twice the digits of its first part.
type pair struct{ hi, lo float64 }

func twoSum(a, b float64) pair {
	s := a + b
	t := s - a
	return pair{s, (a - (s - t)) + (b - t)}
}

func twoProduct(a, b float64) pair {
	p := a * b
	return pair{p, math.FMA(a, b, -p)}
}

func (x pair) add(y pair) pair {
	s := twoSum(x.hi, y.hi)
	return twoSum(s.hi, s.lo+(x.lo+y.lo))
}

func (x pair) mul(y pair) pair {
	p := twoProduct(x.hi, y.hi)
	return twoSum(p.hi, p.lo+(float64(x.hi*y.lo)+float64(x.lo*y.hi)))
}

func (x pair) div(y pair) pair {
	q := x.hi / y.hi
	r := x.add(y.mul(pair{-q, 0}))
	return twoSum(q, r.hi/y.hi)
}

var (
	logOf2 = pair{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56}
	halfPi = pair{0x1.921fb54442d18p0, 0x1.1a62633145c07p-54}
)

// inverses are 1/n.
var inverses = func() (t [28]pair) {
	for n := 1; n < len(t); n++ {
		t[n] = pair{1, 0}.div(pair{float64(n), 0})
	}
	return t
}()

// twoOverPi are the first bits of 2/π behind the point, by 64: as many as reduce the largest number.
var twoOverPi = [...]uint64{
	0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
	0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
	0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
	0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
	0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d,
}

// quarter is x - quadrant π/2, at most π/4 from 0, for 0 <= x < +Inf: the multiple of π/2 and the rest
// come of the product of x and 192 bits of 2/π, those that lie at its point and behind (Payne and Hanek).
func quarter(x float64) (quadrant uint64, rest pair) {
	if x <= math.Pi/4 {
		return 0, pair{x, 0}
	}
	b := math.Float64bits(x)
	m, at := b&(1<<52-1)|1<<52, int(b>>52)-1075 // x = m 2^at
	// Bit 0 of the window is worth 2^-skip in 2/π; before it are multiples of 4 of the product.
	skip := at - 2
	var w [4]uint64
	for i := range w {
		w[i] = bitsOfTwoOverPi(skip + 64*i)
	}
	// The product's bits: 2 of the quadrant, then those behind the point.
	h3, _ := bits.Mul64(m, w[3])
	h2, l2 := bits.Mul64(m, w[2])
	h1, l1 := bits.Mul64(m, w[1])
	l0 := m * w[0]
	p2, c := bits.Add64(l2, h3, 0)
	p1, c := bits.Add64(l1, h2, c)
	p0, _ := bits.Add64(l0, h1, c)
	quadrant = p0 >> 62
	p0, p1, p2 = p0<<2|p1>>62, p1<<2|p2>>62, p2<<2
	negative := p0>>63 != 0 // nearer to the next multiple
	if negative {
		quadrant++
		p0, p1, p2 = ^p0, ^p1, ^p2
	}
	lead := bits.LeadingZeros64(p0)
	if lead > 0 {
		p0, p1 = p0<<lead|p1>>(64-lead), p1<<lead|p2>>(64-lead)
	}
	hi := float64(p0 >> 11)
	lo := math.Ldexp(float64((p0<<53|p1>>11)>>11), -53)
	f := twoSum(math.Ldexp(hi, -53-lead), math.Ldexp(lo, -53-lead))
	rest = f.mul(halfPi)
	if negative {
		rest = pair{-rest.hi, -rest.lo}
	}
	return quadrant & 3, rest
}

// bitsOfTwoOverPi is the 64 bits of 2/π from bit i behind the point on.
func bitsOfTwoOverPi(i int) (w uint64) {
	word := func(k int) uint64 {
		if k < 0 || k >= len(twoOverPi) {
			return 0
		}
		return twoOverPi[k]
	}
	k, r := i>>6, uint(i&63)
	return word(k)<<r | word(k+1)>>(64-r)
}

// sineOf and cosineOf are the polynomials of FreeBSD's msun, on [-π/4, π/4].
func sineOf(x pair) float64 {
	z := x.hi * x.hi
	v := z * x.hi
	r := 8.33333333332248946124e-03 + z*(-1.98412698298579493134e-04+z*(2.75573137070700676789e-06+z*(-2.50507602534068634195e-08+z*1.58969099521155010221e-10)))
	return x.hi - ((z*(0.5*x.lo-v*r) - x.lo) - v*-1.66666666666666324348e-01)
}

func cosineOf(x pair) float64 {
	z := x.hi * x.hi
	r := z * (4.16666666666666019037e-02 + z*(-1.38888888888741095749e-03+z*(2.48015872894767294178e-05+z*(-2.75573143513906633035e-07+z*(2.08757232129817482790e-09+z*-1.13596475577881948265e-11)))))
	h := 0.5 * z
	w := 1 - h
	return w + (((1 - w) - h) + (z*r - x.hi*x.lo))
}

func sine(x float64) float64 {
	if x == 0 || x-x != 0 {
		return x * (x - x + 1) // NaN of infinities
	}
	q, r := quarter(math.Abs(x))
	v := sineOf(r)
	if q&1 != 0 {
		v = cosineOf(r)
	}
	if q >= 2 {
		v = -v
	}
	return math.Copysign(1, x) * v
}

func cosine(x float64) float64 {
	if x-x != 0 {
		return math.NaN()
	}
	q, r := quarter(math.Abs(x))
	v := cosineOf(r)
	if q&1 != 0 {
		v = sineOf(r)
	}
	if q == 1 || q == 2 {
		v = -v
	}
	return v
}

func tangent(x float64) float64 {
	if x == 0 || x-x != 0 {
		return x * (x - x + 1)
	}
	q, r := quarter(math.Abs(x))
	s, c := sineOf(r), cosineOf(r)
	if q&1 != 0 {
		s, c = -c, s
	}
	return math.Copysign(1, x) * s / c
}

// power is x to the power y.
func power(x, y float64) float64 {
	if x == 0 || x == 1 || y == 0 || x-x != 0 || y-y != 0 {
		return math.Pow(x, y)
	}
	sign := 1.0
	if x < 0 {
		if y != math.Trunc(y) {
			return math.NaN()
		}
		if math.Mod(y, 2) != 0 {
			sign = -1
		}
		x = -x
	}
	p := logPair(x).mul(pair{y, 0})
	switch {
	case p.hi > 710:
		return sign * math.Inf(1)
	case p.hi < -746:
		return sign * 0
	}
	e, k := expPair(p)
	return sign * math.Ldexp(e.hi+e.lo, k)
}

// logPair is the logarithm of a positive number: of its fraction m as the series of
// 2 artanh (m-1)/(m+1), and of its exponent.
func logPair(x float64) pair {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	s := twoSum(m, -1).div(twoSum(m, 1))
	z := s.mul(s)
	sum := pair{}
	for n := 27; n > 0; n -= 2 {
		sum = z.mul(sum).add(inverses[n])
	}
	sum = sum.mul(s)
	return logOf2.mul(pair{float64(e), 0}).add(pair{2 * sum.hi, 2 * sum.lo})
}

// expPair is the exponential of p as e 2^k, with e near 1: of p without multiples of the
// logarithm of 2, divided by 256, as a series, which is then squared.
func expPair(p pair) (e pair, k int) {
	n := math.RoundToEven(p.hi / logOf2.hi)
	r := p.add(logOf2.mul(pair{-n, 0}))
	r = pair{r.hi / 256, r.lo / 256}
	sum := pair{}
	for n := 9; n > 0; n-- {
		sum = sum.add(pair{1, 0}).mul(r).mul(inverses[n])
	}
	for range 8 { // 1 + sum, squared
		sum = pair{2 * sum.hi, 2 * sum.lo}.add(sum.mul(sum))
	}
	return sum.add(pair{1, 0}), int(n)
}
