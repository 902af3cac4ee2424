package decompose

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// This file finds eigenvalues and singular values by Jacobi's rotations, in double precision. A round
// turns all pairs of a row or column of the first half and the one at its place in the second half, so
// that what the two have in common vanishes, and exchanges them so that the next pairs are others: all
// have met after one round less than there are (Brent and Luk, The solution of singular-value and
// symmetric eigenvalue problems on multiprocessor arrays, 1985).

// number is an operation of x and a number.
func (e emit) number(op ir.Op, x *ir.Value, c float64) *ir.Value {
	return e.one(op, ir.A("scalar", c), []*ir.Value{x})
}

// over is a reduction that keeps the dimensions.
func (e emit) over(op ir.Op, x *ir.Value, dims ...int64) *ir.Value {
	return e.one(op, ir.A("dims", dims, "keepdim", true), []*ir.Value{x})
}

func (e emit) mul(a, b *ir.Value) *ir.Value { return e.binary(ir.OpMul, a, b) }

// unit is n rows of 1 on the diagonal and 0 elsewhere, in m columns, in each of a batch.
func (e emit) unit(dt ir.DType, b, n, m int64) *ir.Value {
	one := e.convert(e.binary(ir.OpEq, e.count(n, 3, 1), e.count(m, 3, 2)), dt)
	return e.dense(e.expand(one, []int64{b, n, m}))
}

// halves are the first and the second half of a dimension.
func (e emit) halves(x *ir.Value, d int) (first, second *ir.Value) {
	n := sizes(x)[d]
	return e.slice(x, d, 0, n/2, 1), e.slice(x, d, n/2, n, 1)
}

// diagonal is that of square matrices, [batch, n].
func (e emit) diagonal(x *ir.Value) *ir.Value {
	n := sizes(x)[1]
	here := e.binary(ir.OpEq, e.count(n, 3, 1), e.count(n, 3, 2))
	own := e.where(here, x, e.full(x.Type().DType(), 0, 1, 1, 1))
	return e.one(ir.OpSum, ir.A("dims", []int64{2}), []*ir.Value{own})
}

// turn is a rotation of each pair that a round meets, by its cosine and sine.
type turn struct {
	emit
	cosine, sine *ir.Value // [batch, pairs]
}

// rotation takes from pairs what they have in common, where it is said so: with p and q on the
// diagonal and pq beside it.
func (e emit) rotation(p, q, pq, where *ir.Value) turn {
	theta := e.binary(ir.OpDiv, e.binary(ir.OpSub, q, p), e.with(ir.OpMul, pq, 2))
	root := e.unary(ir.OpSqrt, e.with(ir.OpAdd, e.mul(theta, theta), 1))
	tangent := e.unary(ir.OpReciprocal, e.binary(ir.OpAdd, e.unary(ir.OpAbs, theta), root))
	tangent = e.where(e.with(ir.OpLt, theta, 0), e.unary(ir.OpNeg, tangent), tangent)
	tangent = e.where(where, tangent, e.full(ir.F64, 0, 1, 1))
	cosine := e.unary(ir.OpRsqrt, e.with(ir.OpAdd, e.mul(tangent, tangent), 1))
	return turn{e, cosine, e.mul(tangent, cosine)}
}

// of turns along a dimension, and exchanges.
func (t turn) of(x *ir.Value, d int) *ir.Value {
	n := sizes(t.cosine)
	h, shape := n[1], []int64{n[0], 1, n[1]}
	if d == 1 {
		shape = []int64{n[0], n[1], 1}
	}
	cosine, sine := t.view(t.cosine, shape), t.view(t.sine, shape)
	one, two := t.halves(x, d)
	one, two = t.binary(ir.OpSub, t.mul(one, cosine), t.mul(two, sine)), t.binary(ir.OpAdd, t.mul(one, sine), t.mul(two, cosine))
	if h == 1 {
		return t.cat(d, one, two)
	}
	return t.cat(d, t.slice(one, d, 0, 1, 1), t.slice(two, d, 0, 1, 1), t.slice(one, d, 1, h-1, 1), t.slice(two, d, 1, h, 1), t.slice(one, d, h-1, h, 1))
}

// sweeps makes rounds of turns, of n rows or columns, until all have met and none was turned. A round
// makes the next state and says which pairs were turned.
func sweeps(to Looper, most, n int64, state []*ir.Value, round func(s *solver, state []*ir.Value) (next []*ir.Value, turned *ir.Value)) []*ir.Value {
	e, rounds := emit{to}, max(n-1, 1)
	state = append(state, e.integer(ir.I64, 0, 1)) // and rounds in turn that have found nothing to turn
	last := len(state) - 1
	more := func(e Looper, state []*ir.Value) *ir.Value { return emit{e}.with(ir.OpLt, state[last], rounds) }
	return Loop(to, most*rounds, state, nil, more, func(to Looper, _ *ir.Value, state, _ []*ir.Value) []*ir.Value {
		s := &solver{emit: emit{to}}
		next, turned := round(s, state[:last])
		some := s.view(s.over(ir.OpAmax, s.convert(turned, ir.I64), 0, 1), []int64{1})
		still := s.where(s.with(ir.OpEq, some, 1), s.integer(ir.I64, 0, 1), s.with(ir.OpAdd, state[last], 1))
		return append(next, still)
	})[:last]
}

// sorted are the k largest, or smallest, of each row, and what gathers their columns of matrices of
// so many rows.
func (e emit) sorted(key *ir.Value, k int64, largest bool) (values *ir.Value, columns func(x *ir.Value) *ir.Value) {
	top := e.Op(ir.OpTopk, nil, ir.A("dim", int64(1), "k", k, "largest", largest), []*ir.Value{key})
	b := sizes(key)[0]
	return top[0], func(x *ir.Value) *ir.Value {
		index := e.expand(e.view(top[1], []int64{b, 1, k}), []int64{b, sizes(x)[1], k})
		return e.one(ir.OpGather, ir.A("dim", int64(2)), []*ir.Value{x, index})
	}
}

// unitColumns are columns of length 1.
func (e emit) unitColumns(x *ir.Value) *ir.Value {
	return e.binary(ir.OpDiv, x, e.unary(ir.OpSqrt, e.over(ir.OpSum, e.mul(x, x), 1)))
}

// Eigh gives the eigenvalues of symmetric matrices [..., n, n], of which one triangle is read, in rising
// order, and vectors, which are columns of length 1. Signs of vectors, and which ones stand for values
// that are equal, are as they come.
func Eigh(to Looper, a *ir.Value, lower bool) (values, vectors *ir.Value, err error) {
	s, x, err := matrices(to, "eigh", a)
	if err != nil {
		return nil, nil, err
	}
	shape, dt := sizes(a), a.Type().DType()
	b, n, lead := sizes(x)[0], sizes(x)[1], shape[:len(shape)-1]
	if b*n == 0 {
		return s.full(dt, 0, lead...), a, nil
	}
	order := ir.OpGe
	if !lower {
		order = ir.OpLe
	}
	x = s.convert(x, ir.F64)
	x = s.where(s.binary(order, s.count(n, 3, 1), s.count(n, 3, 2)), x, s.permute(x, []int{0, 2, 1}))
	even := n + n%2
	padded := x
	if even > n { // with a row that no other meets
		padded = s.cat(1, s.cat(2, x, s.full(ir.F64, 0, b, n, 1)), s.full(ir.F64, 0, b, 1, even))
	}
	done := sweeps(to, int64(6+bits.Len64(uint64(n))), even, []*ir.Value{padded, s.unit(ir.F64, b, even, even)}, symmetricRound)
	key, v := s.diagonal(done[0]), done[1]
	if even > n { // the vector of the row that was added comes last
		own := s.with(ir.OpEq, s.view(s.slice(v, 1, n, even, 1), []int64{b, even}), 1)
		key = s.where(own, s.full(ir.F64, math.Inf(1), 1, 1), key)
	}
	_, columns := s.sorted(key, n, false)
	v = s.unitColumns(columns(s.slice(v, 1, 0, n, 1)))
	// Values once more, of the matrices as they were: errors of the vectors count twice only.
	values = s.over(ir.OpSum, s.mul(v, s.binary(ir.OpMatmul, x, v)), 1)
	return s.convert(s.view(values, lead), dt), s.convert(s.view(v, shape), dt), nil
}

// symmetricRound turns rows and columns of matrices, and columns of vectors.
func symmetricRound(s *solver, state []*ir.Value) ([]*ir.Value, *ir.Value) {
	top, bottom := s.halves(state[0], 1)
	first, beside := s.halves(top, 2)
	_, second := s.halves(bottom, 2)
	p, q, pq := s.diagonal(first), s.diagonal(second), s.diagonal(beside)
	t := s.rotation(p, q, pq, s.with(ir.OpNe, pq, 0))
	largest := s.binary(ir.OpMaximum, s.over(ir.OpAmax, s.unary(ir.OpAbs, p), 1), s.over(ir.OpAmax, s.unary(ir.OpAbs, q), 1))
	turned := s.binary(ir.OpGt, s.unary(ir.OpAbs, pq), s.number(ir.OpMul, largest, 0x1p-54))
	return []*ir.Value{t.of(t.of(state[0], 2), 1), t.of(state[1], 2)}, turned
}

// nothing is the square of a column's length, by that of the longest of its matrix, up to which the
// column counts as zeros: to turn it changes nothing that double precision has of the matrix.
const nothing = 0x1p-106

// SVD factors matrices [..., m, n] into columns u at right angles, k = min(m, n) values in falling order,
// and rows vt at right angles: k of either, or all m and n where full. Without vectors u and vt are nil.
// Signs of vectors, and which ones stand for values that are equal or for none, are as they come.
//
// Columns are turned until they are at right angles to each other (one-sided Jacobi: Hestenes, Inversion
// of matrices by biorthogonalization and related results, 1958; when two are by Drmač and Veselić, New
// fast and accurate Jacobi SVD algorithm, 2008): their lengths are the values then.
func SVD(to Looper, a *ir.Value, vectors, full bool) (u, values, vt *ir.Value, err error) {
	if err := check("svd", a); err != nil {
		return nil, nil, nil, err
	}
	e, shape, dt := emit{to}, sizes(a), a.Type().DType()
	r := len(shape)
	if r < 2 || !dt.IsFloat() {
		return nil, nil, nil, fmt.Errorf("svd: %s is not matrices of floats", a.Type())
	}
	lead, m, n := shape[:r-2], shape[r-2], shape[r-1]
	b, k := intmath.Product(lead), min(m, n)
	rows, columns := k, k // of vt and u
	if full {
		rows, columns = n, m
	}
	x := e.convert(e.view(a, []int64{b, m, n}), ir.F64)
	out := func(x *ir.Value, dims ...int64) *ir.Value {
		return e.convert(e.view(x, slices.Concat(lead, dims)), dt)
	}
	switch {
	case b*k == 0: // vectors are of nothing
		u, values, vt = e.unit(ir.F64, b, m, columns), e.full(ir.F64, 0, b, k), e.unit(ir.F64, b, rows, n)
	case m < n:
		vt, values, u = tallSVD(to, e.permute(x, []int{0, 2, 1}), vectors, full)
		if vectors {
			u, vt = e.permute(u, []int{0, 2, 1}), e.permute(vt, []int{0, 2, 1})
		}
	default:
		u, values, vt = tallSVD(to, x, vectors, full)
	}
	values = out(values, k)
	if !vectors {
		return nil, values, nil, nil
	}
	return out(u, m, columns), values, out(vt, rows, n), nil
}

// tallSVD is SVD of matrices [batch, m, n] that are not empty and have no fewer rows than columns.
func tallSVD(to Looper, x *ir.Value, vectors, full bool) (u, values, vt *ir.Value) {
	e := emit{to}
	b, m, n := sizes(x)[0], sizes(x)[1], sizes(x)[2]
	// Numbers may be far from 1, so squares are of what a power of two leaves of them.
	largest := e.over(ir.OpAmax, e.unary(ir.OpAbs, x), 1, 2)
	largest = e.where(e.with(ir.OpEq, largest, 0), e.full(ir.F64, 1, 1, 1, 1), largest)
	power := e.unary(ir.OpExp2, e.unary(ir.OpFloor, e.unary(ir.OpLog2, largest)))
	even := n + n%2
	if even > n { // with a column of zeros
		x = e.cat(2, x, e.full(ir.F64, 0, b, m, 1))
	}
	x = e.binary(ir.OpDiv, x, power)
	if vectors { // below are the columns of v, which turn likewise; no numbers where the matrix has none
		x = e.cat(1, x, e.mul(e.unit(ir.F64, b, n, even), e.binary(ir.OpDiv, power, power)))
	}
	const most = 30
	x = sweeps(to, most, even, []*ir.Value{x}, func(s *solver, state []*ir.Value) ([]*ir.Value, *ir.Value) {
		first, second := s.halves(s.slice(state[0], 1, 0, m, 1), 2)
		along := func(a, b *ir.Value) *ir.Value {
			return s.one(ir.OpSum, ir.A("dims", []int64{1}), []*ir.Value{s.mul(a, b)})
		}
		p, q, pq := along(first, first), along(second, second), along(first, second)
		bound := s.number(ir.OpMul, s.mul(s.unary(ir.OpSqrt, p), s.unary(ir.OpSqrt, q)), 0x1p-53*math.Sqrt(float64(m)))
		turned := s.binary(ir.OpGt, s.unary(ir.OpAbs, pq), bound)
		longest := s.over(ir.OpAmax, s.binary(ir.OpMaximum, p, q), 1)
		turned = s.binary(ir.OpLogicalAnd, turned, s.binary(ir.OpGt, s.binary(ir.OpMinimum, p, q), s.number(ir.OpMul, longest, nothing)))
		return []*ir.Value{s.rotation(p, q, pq, turned).of(state[0], 2)}, turned
	})[0]
	w := e.slice(x, 1, 0, m, 1)
	key := e.view(e.over(ir.OpSum, e.mul(w, w), 1), []int64{b, even})
	power = e.view(power, []int64{b, 1})
	if !vectors {
		squares, _ := e.sorted(key, n, true)
		return nil, e.mul(e.unary(ir.OpSqrt, squares), power), nil
	}
	v := e.slice(x, 1, m, m+n, 1)
	if even > n { // the column that was added comes last
		own := e.with(ir.OpEq, e.view(e.over(ir.OpSum, e.mul(v, v), 1), []int64{b, even}), 0)
		key = e.where(own, e.full(ir.F64, -1, 1, 1), key)
	}
	squares, columns := e.sorted(key, n, true)
	lengths := e.view(e.unary(ir.OpSqrt, squares), []int64{b, 1, n})
	none := e.binary(ir.OpLe, squares, e.number(ir.OpMul, e.slice(squares, 1, 0, 1, 1), nothing))
	none = e.view(none, []int64{b, 1, n})
	u = e.where(none, e.full(ir.F64, 0, 1, 1, 1), e.binary(ir.OpDiv, columns(w), lengths))
	if full && m > n {
		u = e.cat(2, u, e.full(ir.F64, 0, b, m, m-n))
	}
	vt = e.permute(e.unitColumns(columns(v)), []int{0, 2, 1})
	return completed(to, u), e.mul(e.view(lengths, []int64{b, n}), power), vt
}

// completed gives columns of zeros, one after the other, what is at right angles to all others: of the
// row that is least in them, twice, what they leave (Giraud, Langou and Rozložník, The loss of
// orthogonality in the Gram-Schmidt orthogonalization process, 2005).
func completed(to Looper, q *ir.Value) *ir.Value {
	b, m, n := sizes(q)[0], sizes(q)[1], sizes(q)[2]
	zeros := func(e emit, q *ir.Value) *ir.Value { // [batch, 1, n]
		return e.convert(e.with(ir.OpEq, e.over(ir.OpAmax, e.unary(ir.OpAbs, q), 1), 0), ir.I64)
	}
	more := func(to Looper, state []*ir.Value) *ir.Value {
		e := emit{to}
		return e.with(ir.OpEq, e.over(ir.OpAmax, zeros(e, state[0]), 0, 1, 2), 1)
	}
	return Loop(to, n, []*ir.Value{q}, nil, more, func(to Looper, _ *ir.Value, state, _ []*ir.Value) []*ir.Value {
		e, q := emit{to}, state[0]
		at := func(x *ir.Value, d int64) *ir.Value {
			return e.one(ir.OpArgmax, ir.A("dim", d, "keepdim", true), []*ir.Value{x})
		}
		missing := zeros(e, q)
		here := e.binary(ir.OpLogicalAnd, e.with(ir.OpEq, missing, 1), e.binary(ir.OpEq, e.count(n, 3, 2), at(missing, 2)))
		row := at(e.unary(ir.OpNeg, e.over(ir.OpSum, e.mul(q, q), 2)), 1)
		v := e.dense(e.expand(e.convert(e.binary(ir.OpEq, e.count(m, 3, 1), row), ir.F64), []int64{b, m, 1}))
		for range 2 {
			v = e.binary(ir.OpSub, v, e.over(ir.OpSum, e.mul(q, e.over(ir.OpSum, e.mul(q, v), 1)), 2))
		}
		return []*ir.Value{e.where(here, e.unitColumns(v), q)}
	})[0]
}
