package decompose

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// TriangularSolve solves a x = b, or x a = b where not left, for matrices a of which one
// triangle is read, without the diagonal if that is ones. The matrices, of sizes [..., n, n],
// are halved until single rows are left, so that n of them take n products.
func TriangularSolve(to Emitter, a, b *ir.Value, left, lower, ones, transpose bool) (*ir.Value, error) {
	s, as, err := matrices(to, "triangular_solve", a)
	if err != nil {
		return nil, err
	}
	if err := check("triangular_solve", b); err != nil {
		return nil, err
	}
	shape, square := sizes(b), sizes(a)
	r := len(square)
	side := r - 1
	if left {
		side = r - 2
	}
	if len(shape) != r || !slices.Equal(shape[:r-2], square[:r-2]) || shape[side] != square[r-1] || a.Type().DType() != b.Type().DType() {
		return nil, fmt.Errorf("triangular_solve: %s and %s do not fit", a.Type(), b.Type())
	}
	bs := s.view(b, append([]int64{intmath.Product(shape[:r-2])}, shape[r-2:]...))
	s.ones, s.lower = ones, lower
	if !left {
		bs = s.permute(bs, []int{0, 2, 1})
	}
	if transpose == left { // the transpose of a stands in front
		as = s.permute(as, []int{0, 2, 1})
		s.lower = !lower
	}
	if slices.Contains(shape, 0) {
		return b, nil
	}
	x := s.solve(as, s.convert(bs, as.Type().DType()))
	if !left {
		x = s.permute(x, []int{0, 2, 1})
	}
	return s.convert(s.view(x, shape), b.Type().DType()), nil
}

// Cholesky factors symmetric matrices [..., n, n], of which one triangle is read, into a
// triangular one and its transpose.
func Cholesky(to Emitter, a *ir.Value, lower bool) (*ir.Value, error) {
	s, as, err := matrices(to, "cholesky", a)
	if err != nil {
		return nil, err
	}
	if slices.Contains(sizes(a), 0) {
		return a, nil
	}
	if !lower {
		as = s.permute(as, []int{0, 2, 1})
	}
	s.lower = true
	x := s.factor(as)
	if !lower {
		x = s.permute(x, []int{0, 2, 1})
	}
	return s.convert(s.view(x, sizes(a)), a.Type().DType()), nil
}

// AnyNaN is 1 for each of the last dims dimensions, two of matrices, with an element that is NaN, else 0,
// of type i32: a factor has some where there is none.
func AnyNaN(to Emitter, a *ir.Value, dims int) *ir.Value {
	e, shape := emit{to}, sizes(a)
	lead := shape[:len(shape)-dims]
	if slices.Contains(shape, 0) {
		return e.full(ir.I32, 0, lead...)
	}
	l := make([]int64, dims)
	for i := range l {
		l[i] = int64(len(lead) + i)
	}
	return e.one(ir.OpAmax, ir.A("dims", l), []*ir.Value{e.convert(e.binary(ir.OpNe, a, a), ir.I32)})
}

// solver works on batches of matrices [batch, n, n].
type solver struct {
	emit
	lower, ones bool
}

// maxRows is how many rows matrices have at most that are taken apart.
const maxRows = 4096

// matrices is a as one batch, in single precision at least.
func matrices(to Emitter, what string, a *ir.Value) (*solver, *ir.Value, error) {
	if err := check(what, a); err != nil {
		return nil, nil, err
	}
	shape := sizes(a)
	r := len(shape)
	if r < 2 || shape[r-1] != shape[r-2] || !a.Type().DType().IsFloat() {
		return nil, nil, fmt.Errorf("%s: %s is not square matrices of floats", what, a.Type())
	}
	if shape[r-1] > maxRows {
		return nil, nil, fmt.Errorf("%s: matrices of %d rows, at most %d are solved row by row", what, shape[r-1], maxRows)
	}
	s := &solver{emit: emit{to}}
	x := s.view(a, []int64{intmath.Product(shape[:r-2]), shape[r-2], shape[r-1]})
	if x.Type().DType().Size() < 4 {
		x = s.convert(x, ir.F32)
	}
	return s, x, nil
}

// block is rows from up to to and columns likewise.
func (s *solver) block(a *ir.Value, r0, r1, c0, c1 int64) *ir.Value {
	return s.slice(s.slice(a, 1, r0, r1, 1), 2, c0, c1, 1)
}

// less is a - b c.
func (s *solver) less(a, b, c *ir.Value) *ir.Value {
	return s.binary(ir.OpSub, a, s.binary(ir.OpMatmul, b, c))
}

func (s *solver) solve(a, b *ir.Value) *ir.Value {
	n, cols := sizes(a)[1], sizes(b)[2]
	if n == 1 {
		if s.ones {
			return b
		}
		return s.binary(ir.OpDiv, b, a)
	}
	h := n / 2
	first, second := s.block(a, 0, h, 0, h), s.block(a, h, n, h, n)
	top, bottom := s.block(b, 0, h, 0, cols), s.block(b, h, n, 0, cols)
	if s.lower {
		top = s.solve(first, top)
		bottom = s.solve(second, s.less(bottom, s.block(a, h, n, 0, h), top))
	} else {
		bottom = s.solve(second, bottom)
		top = s.solve(first, s.less(top, s.block(a, 0, h, h, n), bottom))
	}
	return s.cat(1, top, bottom)
}

func (s *solver) factor(a *ir.Value) *ir.Value {
	n := sizes(a)[1]
	if n == 1 {
		return s.unary(ir.OpSqrt, a)
	}
	h := n / 2
	first := s.factor(s.block(a, 0, h, 0, h))
	side := s.permute(s.solve(first, s.permute(s.block(a, h, n, 0, h), []int{0, 2, 1})), []int{0, 2, 1})
	second := s.factor(s.less(s.block(a, h, n, h, n), side, s.permute(side, []int{0, 2, 1})))
	none := s.full(a.Type().DType(), 0, sizes(a)[0], h, n-h)
	return s.cat(1, s.cat(2, first, none), s.cat(2, side, second))
}
