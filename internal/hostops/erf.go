package hostops

import (
	"math"
	"sync"
)

// The error function of float32 numbers, computed in float64: math.Erf calls math.Exp twice where most
// activations of a model are, and takes ten times as long. Pieces of a sixteenth have Taylor series of their
// own, whose terms after the last are below 2^-55. The table is made when it is first asked for.

const (
	erfPieces = 96 // erf(6) is 1, also in float64
	erfTerms  = 10
)

type erfTable [erfPieces][erfTerms]float64

var erfSeries = sync.OnceValue(func() *erfTable {
	s := new(erfTable)
	for k := range s {
		// g = 2/sqrt(pi) exp(-x*x) is the derivative, and g' = -2xg gives its coefficients in turn.
		c := (float64(k) + 0.5) / 16
		before, g := 0.0, 2/math.SqrtPi*math.Exp(-c*c)
		s[k][0] = math.Erf(c)
		for n := 1; n < erfTerms; n++ {
			s[k][n] = g / float64(n)
			before, g = g, -2*(c*g+before)/float64(n)
		}
	}
	return s
})

func (t *erfTable) erf(x float64) float64 {
	a := math.Abs(x)
	if a < 1.0/16 { // the series around 0, which is as exact as x is small
		z := x * x
		return 2 / math.SqrtPi * x * (1 + z*(-1.0/3+z*(1.0/10+z*(-1.0/42+z*(1.0/216+z*(-1.0/1320))))))
	}
	if !(a < erfPieces/16) {
		if a > 0 {
			a = 1
		}
		return math.Copysign(a, x) // NaN as it is
	}
	k := int(a * 16)
	s, d := &t[k], a-(float64(k)+0.5)/16
	d2 := d * d
	d4 := d2 * d2
	y := s[0] + s[1]*d + (s[2]+s[3]*d)*d2 + (s[4]+s[5]*d+(s[6]+s[7]*d)*d2+(s[8]+s[9]*d)*d4)*d4
	return math.Copysign(y, x)
}

func erfs(dst, a []float32) {
	t := erfSeries()
	for i, v := range a {
		dst[i] = float32(t.erf(float64(v)))
	}
}

func gelus(dst, a []float32) {
	t := erfSeries()
	for i, v := range a {
		x := float64(v)
		dst[i] = float32(0.5 * x * (1 + t.erf(x*(1/math.Sqrt2))))
	}
}
