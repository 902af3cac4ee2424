package decompose

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// maxColumns is how many columns matrices have at most that are factored column by column.
const maxColumns = 256

// Factors are the LU factors of matrices whose rows have been exchanged.
type Factors struct {
	LU     *ir.Value // [..., m, n], both triangles in one
	Pivots *ir.Value // i32 [..., min(m, n)]: with which row each was exchanged in turn, counted from 1
	Sign   *ir.Value // [...]: -1 for an odd number of exchanges, else 1
	Order  *ir.Value // i64 [batch, m]: the row that stands in each place
}

// LU factors matrices [..., m, n] by columns: the largest element of each goes to the
// diagonal. A column of zeros leaves a zero there.
func LU(to Emitter, a *ir.Value) (Factors, error) {
	if f, ok := emptyLU(to, a); ok {
		return f, nil
	}
	s, x, err := columns(to, "lu", a)
	if err != nil {
		return Factors{}, err
	}
	shape := sizes(a)
	lead, b, m, n := shape[:len(shape)-2], sizes(x)[0], sizes(x)[1], sizes(x)[2]
	zero := s.full(x.Type().DType(), 0, 1, 1, 1)
	row, column := s.count(m, 3, 1), s.count(n, 3, 2)
	var exchanged []*ir.Value
	for k := range min(m, n) {
		size := s.unary(ir.OpAbs, s.view(s.block(x, k, m, k, k+1), []int64{b, m - k}))
		p := s.with(ir.OpAdd, s.one(ir.OpArgmax, ir.A("dim", int64(1), "keepdim", true), []*ir.Value{size}), k)
		exchanged = append(exchanged, p)
		x = s.rows(x, s.exchange(p, k, m))
		pivot := s.block(x, k, k+1, k, k+1)
		below := s.with(ir.OpGt, row, k)
		l := s.where(s.binary(ir.OpLogicalAnd, below, s.binary(ir.OpNe, pivot, zero)), s.binary(ir.OpDiv, s.block(x, 0, m, k, k+1), pivot), zero)
		rest := s.binary(ir.OpSub, x, s.binary(ir.OpMul, l, s.block(x, k, k+1, 0, n)))
		here := s.binary(ir.OpLogicalAnd, below, s.with(ir.OpEq, column, k))
		x = s.where(s.with(ir.OpGt, column, k), rest, s.where(here, l, x))
	}
	pivots := s.cat(1, exchanged...)
	moved := s.convert(s.binary(ir.OpNe, pivots, s.count(min(m, n), 2, 1)), ir.I64)
	odd := s.with(ir.OpBitwiseAnd, s.one(ir.OpSum, ir.A("dims", []int64{1}), []*ir.Value{moved}), 1)
	sign := s.with(ir.OpAdd, s.with(ir.OpMul, odd, -2), 1)
	dt := a.Type().DType()
	return Factors{
		LU:     s.convert(s.view(x, shape), dt),
		Pivots: s.convert(s.view(s.with(ir.OpAdd, pivots, 1), append(slices.Clone(lead), min(m, n))), ir.I32),
		Sign:   s.convert(s.view(sign, lead), dt),
		Order:  s.order(pivots, m),
	}, nil
}

// emptyLU are the factors of matrices without elements, which are as they are.
func emptyLU(to Emitter, a *ir.Value) (Factors, bool) {
	if check("lu", a) != nil {
		return Factors{}, false
	}
	e, shape := emit{to}, sizes(a)
	r := len(shape)
	if r < 2 || !a.Type().DType().IsFloat() || !slices.Contains(shape, 0) {
		return Factors{}, false
	}
	lead, m := shape[:r-2], shape[r-2]
	return Factors{
		LU:     e.dense(a),
		Pivots: e.integer(ir.I32, 0, append(slices.Clone(lead), min(m, shape[r-1]))...),
		Sign:   e.full(a.Type().DType(), 1, lead...),
		Order:  e.dense(e.expand(e.count(m, 2, 1), []int64{intmath.Product(lead), m})),
	}, true
}

// columns is a as one batch of matrices, in single precision at least.
func columns(to Emitter, what string, a *ir.Value) (*solver, *ir.Value, error) {
	if err := check(what, a); err != nil {
		return nil, nil, err
	}
	shape := sizes(a)
	r := len(shape)
	if r < 2 || !a.Type().DType().IsFloat() || slices.Contains(shape, 0) {
		return nil, nil, fmt.Errorf("%s: %s is not matrices of floats", what, a.Type())
	}
	if min(shape[r-1], shape[r-2]) > maxColumns {
		return nil, nil, fmt.Errorf("%s: matrices of %d columns, at most %d are factored column by column", what, min(shape[r-1], shape[r-2]), maxColumns)
	}
	s := &solver{emit: emit{to}}
	x := s.view(a, []int64{intmath.Product(shape[:r-2]), shape[r-2], shape[r-1]})
	if x.Type().DType().Size() < 4 {
		x = s.convert(x, ir.F32)
	}
	return s, x, nil
}

// exchange is the places 0, 1, ... n-1 with k and p, i64 [batch, 1], exchanged.
func (s *solver) exchange(p *ir.Value, k, n int64) *ir.Value {
	at := s.count(n, 2, 1)
	other := s.where(s.binary(ir.OpEq, at, p), s.integer(ir.I64, k, 1, 1), at)
	return s.where(s.with(ir.OpEq, at, k), p, other)
}

// order is what exchanges make of 0, 1, ... n-1.
func (s *solver) order(pivots *ir.Value, n int64) *ir.Value {
	b := sizes(pivots)[0]
	at := s.dense(s.expand(s.count(n, 2, 1), []int64{b, n}))
	for k := range sizes(pivots)[1] {
		at = s.one(ir.OpGather, ir.A("dim", int64(1)), []*ir.Value{at, s.exchange(s.slice(pivots, 1, k, k+1, 1), k, n)})
	}
	return at
}

// Permutation is what exchanges [..., k] of each row with that of a number, counted from 0, make of
// the order of rows, of a type [..., m].
func Permutation(to Emitter, pivots *ir.Value, t ir.Type) (*ir.Value, error) {
	if err := check("permutation", pivots); err != nil {
		return nil, err
	}
	from := sizes(pivots)
	into, ok := t.Shape().Static()
	r := len(from) - 1
	if !ok || r < 0 || len(into) != r+1 || !slices.Equal(into[:r], from[:r]) || from[r] > into[r] || !pivots.Type().DType().IsInt() || !t.DType().IsInt() {
		return nil, fmt.Errorf("permutation: exchanges %s of %s", pivots.Type(), t)
	}
	if from[r] > maxColumns {
		return nil, fmt.Errorf("permutation: %d exchanges, at most %d are made one by one", from[r], maxColumns)
	}
	s := &solver{emit: emit{to}}
	order := s.order(s.convert(s.view(pivots, []int64{intmath.Product(from[:r]), from[r]}), ir.I64), into[r])
	return s.convert(s.view(order, into), t.DType()), nil
}

// rows are those of x at places, i64 [batch, n].
func (s *solver) rows(x, places *ir.Value) *ir.Value {
	n := sizes(places)
	index := s.expand(s.view(places, []int64{n[0], n[1], 1}), []int64{n[0], n[1], sizes(x)[2]})
	return s.one(ir.OpGather, ir.A("dim", int64(1)), []*ir.Value{x, index})
}

// PivotedFactors are those of LU from its results.
func PivotedFactors(to Emitter, lu, pivots *ir.Value) (Factors, error) {
	s, x, err := columns(to, "lu", lu)
	if err == nil {
		err = check("lu", pivots)
	}
	if err != nil {
		return Factors{}, err
	}
	shape, b, m := sizes(lu), sizes(x)[0], sizes(x)[1]
	k := min(m, sizes(x)[2])
	if !slices.Equal(sizes(pivots), append(slices.Clone(shape[:len(shape)-2]), k)) || !pivots.Type().DType().IsInt() {
		return Factors{}, fmt.Errorf("lu: factors %s with pivots %s", lu.Type(), pivots.Type())
	}
	p := s.with(ir.OpSub, s.convert(s.view(pivots, []int64{b, k}), ir.I64), 1)
	return Factors{LU: lu, Pivots: pivots, Order: s.order(p, m)}, nil
}

// SolveLU solves a x = b by the factors of a, or x a = b where not left; adjoint puts the
// transpose of a in its place.
func SolveLU(to Emitter, f Factors, b *ir.Value, left, adjoint bool) (*ir.Value, error) {
	if err := check("lu", b); err != nil {
		return nil, err
	}
	s, shape, square := &solver{emit: emit{to}}, sizes(b), sizes(f.LU)
	r := len(shape)
	side := r - 1
	if left {
		side = r - 2
	}
	if r < 2 || r != len(square) || square[r-1] != square[r-2] || !slices.Equal(shape[:r-2], square[:r-2]) || shape[side] != square[r-1] || b.Type().DType() != f.LU.Type().DType() {
		return nil, fmt.Errorf("lu: factors %s and %s do not fit", f.LU.Type(), b.Type())
	}
	if slices.Contains(shape, 0) {
		return b, nil
	}
	if !left {
		x, err := SolveLU(to, f, Transposed(to, b), true, !adjoint)
		if err != nil {
			return nil, err
		}
		return Transposed(to, x), nil
	}
	flat := []int64{intmath.Product(shape[:r-2]), shape[r-2], shape[r-1]}
	at := f.Order
	if !adjoint {
		b = s.view(s.rows(s.view(b, flat), at), shape)
	}
	x, err := TriangularSolve(to, f.LU, b, true, !adjoint, !adjoint, adjoint)
	if err == nil {
		x, err = TriangularSolve(to, f.LU, x, true, adjoint, adjoint, adjoint)
	}
	if err != nil || !adjoint {
		return x, err
	}
	n := flat[1]
	stands := s.binary(ir.OpEq, s.view(at, []int64{flat[0], 1, n}), s.count(n, 3, 1)) // where each row stands
	back := s.one(ir.OpArgmax, ir.A("dim", int64(2)), []*ir.Value{s.convert(stands, ir.I64)})
	return s.view(s.rows(s.view(x, flat), back), shape), nil
}

// QR factors matrices [..., m, n] into k = min(m, n) columns at right angles and a triangle of
// k rows, by Householder's reflections with LAPACK's signs.
func QR(to Emitter, a *ir.Value) (q, r *ir.Value, err error) {
	packed, tau, err := Reflections(to, a)
	if err == nil {
		q, err = Reflected(to, packed, tau)
	}
	if err != nil {
		return nil, nil, err
	}
	e, shape := emit{to}, sizes(a)
	rank, m, n := len(shape), shape[len(shape)-2], shape[len(shape)-1]
	rows := e.slice(packed, rank-2, 0, min(m, n), 1)
	upper := e.binary(ir.OpGe, e.count(n, rank, rank-1), e.count(min(m, n), rank, rank-2))
	return q, e.where(upper, rows, e.full(a.Type().DType(), 0, ones(rank)...)), nil
}

// down is the sums of columns.
func (s *solver) down(x *ir.Value) *ir.Value {
	return s.one(ir.OpSum, ir.A("dims", []int64{1}, "keepdim", true), []*ir.Value{x})
}

// reflect turns columns along v, by tau times its outer product.
func (s *solver) reflect(x, v, tau *ir.Value) *ir.Value {
	return s.binary(ir.OpSub, x, s.binary(ir.OpMul, s.binary(ir.OpMul, tau, v), s.down(s.binary(ir.OpMul, v, x))))
}

// Reflections makes a triangle of matrices [..., m, n]. Below it are the vectors that it took, whose
// elements on the diagonal are 1; tau [..., min(m, n)] has their factors.
func Reflections(to Emitter, a *ir.Value) (packed, tau *ir.Value, err error) {
	s, x, err := columns(to, "qr", a)
	if err != nil {
		return nil, nil, err
	}
	shape := sizes(a)
	b, m, n := sizes(x)[0], sizes(x)[1], sizes(x)[2]
	k, dt := min(m, n), x.Type().DType()
	zero, one := s.full(dt, 0, 1, 1, 1), s.full(dt, 1, 1, 1, 1)
	row, column := s.count(m, 3, 1), s.count(n, 3, 2)
	var taus []*ir.Value
	for j := range k {
		col, alpha := s.block(x, 0, m, j, j+1), s.block(x, j, j+1, j, j+1)
		below := s.with(ir.OpGt, row, j)
		// Numbers may be far from 1, so squares are of what a power of two leaves of them.
		size := s.unary(ir.OpAbs, s.where(s.with(ir.OpGe, row, j), col, zero))
		largest := s.one(ir.OpAmax, ir.A("dims", []int64{1}, "keepdim", true), []*ir.Value{size})
		power := s.unary(ir.OpExp2, s.unary(ir.OpFloor, s.unary(ir.OpLog2, s.where(s.binary(ir.OpEq, largest, zero), one, largest))))
		part := s.binary(ir.OpDiv, size, power)
		square := s.down(s.where(below, s.binary(ir.OpMul, part, part), zero))
		first := s.block(part, j, j+1, 0, 1)
		norm := s.binary(ir.OpMul, power, s.unary(ir.OpSqrt, s.binary(ir.OpAdd, s.binary(ir.OpMul, first, first), square)))
		beta := s.where(s.binary(ir.OpLt, alpha, zero), norm, s.unary(ir.OpNeg, norm))
		turns := s.binary(ir.OpNe, square, zero) // else the column is as it should be
		factor := s.where(turns, s.binary(ir.OpDiv, s.binary(ir.OpSub, beta, alpha), beta), zero)
		v := s.where(s.binary(ir.OpLogicalAnd, below, turns), s.binary(ir.OpDiv, col, s.binary(ir.OpSub, alpha, beta)), zero)
		turned := s.reflect(x, s.where(s.with(ir.OpEq, row, j), one, v), factor)
		kept := s.binary(ir.OpLogicalAnd, below, s.with(ir.OpEq, column, j))
		x = s.where(kept, v, s.where(s.with(ir.OpGe, column, j), turned, x))
		taus = append(taus, s.view(factor, []int64{b, 1}))
	}
	out := a.Type().DType()
	tau = s.view(s.convert(s.cat(1, taus...), out), append(slices.Clone(shape[:len(shape)-2]), k))
	return s.convert(s.view(x, shape), out), tau, nil
}

// Reflected is the first n columns of the product of reflections of matrices [..., m, n].
func Reflected(to Emitter, packed, tau *ir.Value) (*ir.Value, error) {
	if err := check("householder", packed); err != nil {
		return nil, err
	}
	e, shape := emit{to}, sizes(packed)
	r := len(shape)
	if r < 2 {
		return nil, fmt.Errorf("householder: %s is not matrices", packed.Type())
	}
	if shape[r-1] > shape[r-2] { // of wide ones the product is square
		shape = slices.Clone(shape)
		shape[r-1] = shape[r-2]
		packed = e.slice(packed, r-1, 0, shape[r-2], 1)
	}
	unit := e.binary(ir.OpEq, e.count(shape[r-2], r, r-2), e.count(shape[r-1], r, r-1))
	at := e.dense(e.expand(e.convert(unit, packed.Type().DType()), shape))
	return Reflect(to, packed, tau, at, true, false)
}

// Reflect is the product Q of reflections, or its transpose, times b, or b times that where not left.
func Reflect(to Emitter, packed, tau, b *ir.Value, left, transpose bool) (*ir.Value, error) {
	s, x, err := columns(to, "householder", packed)
	if err == nil {
		err = check("householder", tau, b)
	}
	if err != nil {
		return nil, err
	}
	shape, ts, bs := sizes(packed), sizes(tau), sizes(b)
	r, side := len(shape), len(bs)-1
	if left {
		side--
	}
	if len(ts) != r-1 || len(bs) != r || !slices.Equal(ts[:r-2], shape[:r-2]) || !slices.Equal(bs[:r-2], shape[:r-2]) || ts[r-2] > min(shape[r-1], shape[r-2]) ||
		bs[side] != shape[r-2] || slices.Contains(bs, 0) || tau.Type().DType() != packed.Type().DType() || b.Type().DType() != packed.Type().DType() {
		return nil, fmt.Errorf("householder: %s with factors %s and %s do not fit", packed.Type(), tau.Type(), b.Type())
	}
	batch, m, dt := sizes(x)[0], sizes(x)[1], x.Type().DType()
	y := s.convert(s.view(b, []int64{batch, bs[r-2], bs[r-1]}), dt)
	if !left {
		y, transpose = s.permute(y, []int{0, 2, 1}), !transpose
	}
	factors := s.convert(s.view(tau, []int64{batch, ts[r-2], 1}), dt)
	zero, one, row := s.full(dt, 0, 1, 1, 1), s.full(dt, 1, 1, 1, 1), s.count(m, 3, 1)
	for k := range ts[r-2] {
		j := k
		if !transpose {
			j = ts[r-2] - 1 - k
		}
		v := s.where(s.with(ir.OpGt, row, j), s.block(x, 0, m, j, j+1), zero)
		y = s.reflect(y, s.where(s.with(ir.OpEq, row, j), one, v), s.block(factors, j, j+1, 0, 1))
	}
	if !left {
		y = s.permute(y, []int{0, 2, 1})
	}
	return s.convert(s.view(y, bs), b.Type().DType()), nil
}

// Transposed are matrices with rows and columns exchanged, a view.
func Transposed(to Emitter, x *ir.Value) *ir.Value {
	turn := make([]int, x.Type().Rank())
	for i := range turn {
		turn[i] = i
	}
	slices.Reverse(turn[len(turn)-2:])
	return emit{to}.permute(x, turn)
}
