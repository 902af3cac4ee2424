package decompose

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// recurrence gives polynomials of each degree by those of the two before: it starts with 1 and a x + b, and step makes
// that of degree k+1 of k, in double precision, and those of degrees k and k-1.
type recurrence struct {
	a, b float64
	step func(s special, k, x, p, before *ir.Value) *ir.Value
	most float64 // the degree beyond which there are no numbers, as in PyTorch; 0 if that is maxDegree
}

// polynomials are those that are orthogonal under some weight (Abramowitz and Stegun, Handbook of
// Mathematical Functions, 22.7).
var polynomials = map[string]recurrence{
	"chebyshev_polynomial_t": {a: 1, step: chebyshevStep},
	"chebyshev_polynomial_u": {a: 2, step: chebyshevStep},
	"chebyshev_polynomial_v": {a: 2, b: -1, step: chebyshevStep},
	"chebyshev_polynomial_w": {a: 2, b: 1, step: chebyshevStep},
	"hermite_polynomial_h": {a: 2, most: 128, step: func(s special, k, x, p, before *ir.Value) *ir.Value {
		return s.times(s.sub(s.mul(x, p), s.mul(k, before)), 2)
	}},
	"hermite_polynomial_he": {a: 1, most: 128, step: func(s special, k, x, p, before *ir.Value) *ir.Value {
		return s.sub(s.mul(x, p), s.mul(k, before))
	}},
	"laguerre_polynomial_l": {a: -1, b: 1, step: func(s special, k, x, p, before *ir.Value) *ir.Value {
		odd := s.plus(s.times(k, 2), 1)
		return s.div(s.sub(s.mul(s.sub(odd, x), p), s.mul(k, before)), s.plus(k, 1))
	}},
	"legendre_polynomial_p": {a: 1, step: func(s special, k, x, p, before *ir.Value) *ir.Value {
		odd := s.plus(s.times(k, 2), 1)
		return s.div(s.sub(s.mul(s.mul(odd, x), p), s.mul(k, before)), s.plus(k, 1))
	}},
}

func chebyshevStep(s special, k, x, p, before *ir.Value) *ir.Value {
	return s.sub(s.times(s.mul(x, p), 2), before)
}

const shifted = "shifted_"

// Polynomials are the names of those that are known.
func Polynomials() []string {
	names := slices.Collect(maps.Keys(polynomials))
	for _, name := range names {
		if strings.HasPrefix(name, "chebyshev") {
			names = append(names, shifted+name)
		}
	}
	slices.Sort(names)
	return names
}

// Polynomial is that of degree n at x, of the same sizes, and 0 if n is negative; a shifted one is that at 2x - 1. It is computed
// up to the largest degree, but for those beyond maxDegree, which are no numbers.
func Polynomial(name string) func(to Looper, x, n *ir.Value) *ir.Value {
	name, moved := strings.CutPrefix(name, shifted)
	r := polynomials[name]
	return func(to Looper, x, n *ir.Value) *ir.Value {
		return function(to, func(s special, args []*ir.Value) *ir.Value {
			shape, all := sizes(x), []int64{intmath.Product(sizes(x))}
			if all[0] == 0 {
				return args[0]
			}
			x := s.view(args[0], all)
			if moved {
				x = s.plus(s.times(x, 2), -1)
			}
			y := s.recur(to, r, x, s.unary(ir.OpTrunc, s.view(args[1], all)))
			return s.view(y, shape)
		}, x, n)
	}
}

const maxDegree = 1 << 16

// recur runs a recurrence on x and n of one dimension.
func (s special) recur(to Looper, r recurrence, x, n *ir.Value) *ir.Value {
	most, high := s.number(maxDegree), n
	if r.most > 0 {
		most = s.number(r.most)
	}
	high = s.where(s.binary(ir.OpGt, n, most), s.number(0), n)
	one := s.full(ir.F64, 1, sizes(x)...)
	goes := func(s special, state []*ir.Value) *ir.Value { return s.binary(ir.OpLt, state[0], state[3]) }
	state := []*ir.Value{s.full(ir.F64, 1, 1), s.plus(s.times(x, r.a), r.b), one, high}
	state = Loop(to, maxDegree, state, []*ir.Value{x}, func(e Looper, state []*ir.Value) *ir.Value {
		s := special{emit{e}}
		return s.one(ir.OpAmax, nil, []*ir.Value{goes(s, state)})
	}, func(e Looper, _ *ir.Value, state, fixed []*ir.Value) []*ir.Value {
		s := special{emit{e}}
		k, p, before, on := state[0], state[1], state[2], goes(s, state)
		next := r.step(s, k, fixed[0], p, before)
		return []*ir.Value{s.plus(k, 1), s.where(on, next, p), s.where(on, p, before), state[3]}
	})
	y := s.where(s.by(ir.OpEq, n, 0), one, state[1])
	y = s.where(s.binary(ir.OpGt, n, most), s.nan(), y)
	return s.where(s.by(ir.OpLt, n, 0), s.number(0), y)
}
