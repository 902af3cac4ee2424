package decompose

import (
	"math"

	"github.com/seed-ee968945/concert/ir"
)

// maxSquarings is how often the exponential of a matrix is squared at most: its norm is then up to
// 2^24 times what the series takes.
const maxSquarings = 24

// MatrixExp is the exponential of square matrices [..., n, n]: the Taylor series up to degree 18 of
// what a power of two leaves of them, squared as often (Sastre, Ibáñez, Defez, Boosting the
// computation of the matrix exponential, 2019). Beyond [maxSquarings] it is not a number.
func MatrixExp(to Emitter, a *ir.Value) (*ir.Value, error) {
	s, x, err := matrices(to, "matrix_exp", a)
	if err != nil {
		return nil, err
	}
	shape := sizes(a)
	n, b, dt := shape[len(shape)-1], sizes(x)[0], x.Type().DType()
	if n == 0 || b == 0 {
		return a, nil
	}
	most := 3.01 // norms for which the series is exact enough
	if dt == ir.F64 {
		most = 1.09
	}
	mul := func(x, y *ir.Value) *ir.Value { return s.binary(ir.OpMatmul, x, y) }
	times := func(x *ir.Value, c float64) *ir.Value {
		return s.one(ir.OpMul, ir.A("scalar", c), []*ir.Value{x})
	}
	// The norm is the largest sum of a column; each power of two that it has beyond is a squaring.
	column := s.one(ir.OpSum, ir.A("dims", []int64{1}, "keepdim", true), []*ir.Value{s.unary(ir.OpAbs, x)})
	norm := s.one(ir.OpAmax, ir.A("dims", []int64{1, 2}, "keepdim", true), []*ir.Value{column})
	count := s.unary(ir.OpCeil, s.unary(ir.OpLog2, times(norm, 1/most)))
	count = s.one(ir.OpClamp, ir.A("min", int64(0), "max", int64(maxSquarings+1)), []*ir.Value{count})
	x = s.binary(ir.OpMul, x, s.unary(ir.OpExp2, s.unary(ir.OpNeg, count)))
	unit := s.convert(s.binary(ir.OpEq, s.count(n, 3, 1), s.count(n, 3, 2)), dt)
	// Degree 18 as a polynomial in the cube of x, whose coefficients are polynomials of degree 2.
	square := mul(x, x)
	cube := mul(square, x)
	factorial := func(k int) float64 { return math.Gamma(float64(k + 1)) }
	var sum *ir.Value
	for k := 18; k >= 0; k -= 3 {
		part := s.binary(ir.OpAdd, times(unit, 1/factorial(k)), times(x, 1/factorial(k+1)))
		part = s.binary(ir.OpAdd, part, times(square, 1/factorial(k+2)))
		if sum == nil {
			sum = s.dense(s.expand(times(unit, 1/factorial(k)), []int64{b, n, n}))
			continue
		}
		sum = s.binary(ir.OpAdd, mul(sum, cube), part)
	}
	more := func(k float64) *ir.Value { return s.one(ir.OpGt, ir.A("scalar", k), []*ir.Value{count}) }
	for k := range maxSquarings {
		sum = s.where(more(float64(k)), mul(sum, sum), sum)
	}
	sum = s.where(more(maxSquarings), s.full(dt, math.NaN(), 1, 1, 1), sum)
	return s.convert(s.view(sum, shape), a.Type().DType()), nil
}
