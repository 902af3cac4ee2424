package decompose

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// Tridiagonal solves a x = b, of sizes [..., n, c], for matrices a of three diagonals [..., n]: row i has
// below[i], on[i] and above[i] about the diagonal, of which the first and the last count as zeros. Rows are
// exchanged for the larger pivot, as LAPACK's gtsv does it. Singular is 1, of type i32, for each matrix
// that has no inverse, else 0.
func Tridiagonal(to Looper, below, on, above, b *ir.Value) (x, singular *ir.Value, err error) {
	if err := check("tridiagonal", below, on, above, b); err != nil {
		return nil, nil, err
	}
	diagonal, shape, dt := sizes(on), sizes(b), b.Type().DType()
	r := len(shape)
	if r < 2 || !slices.Equal(diagonal, shape[:r-1]) || dt != ir.F32 && dt != ir.F64 {
		return nil, nil, fmt.Errorf("tridiagonal: a diagonal %s and %s do not fit", on.Type(), b.Type())
	}
	for _, v := range []*ir.Value{below, on, above} {
		if !slices.Equal(sizes(v), diagonal) || v.Type().DType() != dt {
			return nil, nil, fmt.Errorf("tridiagonal: diagonals %s and %s of %s", v.Type(), on.Type(), b.Type())
		}
	}
	s := &solver{emit: emit{to}}
	batch, n, c := intmath.Product(shape[:r-2]), shape[r-2], shape[r-1]
	if batch*n*c == 0 {
		return b, s.full(ir.I32, 0, shape[:r-2]...), nil
	}
	column := func(v *ir.Value) *ir.Value { return s.view(v, []int64{batch, n, 1}) }
	right := s.view(b, []int64{batch, n, c})
	rows := s.cat(2, column(below), column(on), column(above), right)
	rows = s.where(s.binary(ir.OpLogicalAnd, s.with(ir.OpEq, s.count(n, 3, 1), n-1), s.with(ir.OpEq, s.count(3+c, 3, 2), 2)), s.full(dt, 0, 1, 1, 1), rows)
	rows = s.eliminated(to, rows)
	lost := s.convert(s.unary(ir.OpLogicalNot, s.number(ir.OpGt, s.unary(ir.OpAbs, s.slice(rows, 2, 0, 1, 1)), 0)), ir.I32)
	singular = s.one(ir.OpAmax, ir.A("dims", []int64{1, 2}), []*ir.Value{lost})
	return s.view(s.substituted(to, rows), shape), s.view(singular, shape[:r-2]), nil
}

// at is one row of x, of a number i64[1].
func (s *solver) at(x, row *ir.Value) *ir.Value {
	return s.rows(x, s.dense(s.expand(s.view(row, []int64{1, 1}), []int64{sizes(x)[0], 1})))
}

// put is x with another row.
func (s *solver) put(x, row, v *ir.Value) *ir.Value {
	return s.where(s.binary(ir.OpEq, s.count(sizes(x)[1], 3, 1), s.view(row, []int64{1, 1, 1})), v, x)
}

// eliminated makes rows of pivots: of each the pivot, the two elements behind it and the right sides.
func (s *solver) eliminated(to Looper, rows *ir.Value) *ir.Value {
	b, n, w, dt := sizes(rows)[0], sizes(rows)[1], sizes(rows)[2], rows.Type().DType()
	next := func(s *solver, r *ir.Value) *ir.Value { // what is left of a row without its first element
		return s.cat(2, s.slice(r, 2, 1, 3, 1), s.full(dt, 0, b, 1, 1), s.slice(r, 2, 3, w, 1))
	}
	first := next(s, s.slice(rows, 1, 0, 1, 1))
	if n == 1 {
		return first
	}
	done := Loop(to, n-1, []*ir.Value{s.full(dt, 0, b, n, w), first}, []*ir.Value{rows}, nil, func(to Looper, k *ir.Value, state, fixed []*ir.Value) []*ir.Value {
		s := &solver{emit: emit{to}}
		one, two := state[1], s.at(fixed[0], s.with(ir.OpAdd, k, 1))
		head := func(r *ir.Value) *ir.Value { return s.slice(r, 2, 0, 1, 1) }
		swap := s.binary(ir.OpGt, s.unary(ir.OpAbs, head(two)), s.unary(ir.OpAbs, head(one)))
		pivot, other := s.where(swap, two, one), s.where(swap, one, two)
		rest := s.binary(ir.OpSub, other, s.mul(s.binary(ir.OpDiv, head(other), head(pivot)), pivot))
		return []*ir.Value{s.put(state[0], k, pivot), next(s, rest)}
	})
	return s.put(done[0], s.integer(ir.I64, n-1, 1), done[1])
}

// substituted solves for the last row first.
func (s *solver) substituted(to Looper, rows *ir.Value) *ir.Value {
	b, n, w, dt := sizes(rows)[0], sizes(rows)[1], sizes(rows)[2], rows.Type().DType()
	none := s.full(dt, 0, b, 1, w-3)
	return Loop(to, n, []*ir.Value{s.full(dt, 0, b, n, w-3), none, none}, []*ir.Value{rows}, nil, func(to Looper, k *ir.Value, state, fixed []*ir.Value) []*ir.Value {
		s := &solver{emit: emit{to}}
		k = s.with(ir.OpAdd, s.unary(ir.OpNeg, k), n-1)
		row := s.at(fixed[0], k)
		part := func(from, end int64) *ir.Value { return s.slice(row, 2, from, end, 1) }
		x := s.binary(ir.OpSub, part(3, w), s.binary(ir.OpAdd, s.mul(part(1, 2), state[1]), s.mul(part(2, 3), state[2])))
		x = s.binary(ir.OpDiv, x, part(0, 1))
		return []*ir.Value{s.put(state[0], k, x), x, state[1]}
	})[0]
}
