package matrices

import (
	"math"
	"math/bits"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// eigenOps find eigenvalues.
var eigenOps = []row{
	{"aten._linalg_eigh.default", "A UPLO compute_v", symmetric},
}

// symmetric gives the eigenvalues of symmetric matrices, of which one triangle is read, in rising
// order, and vectors, whose signs are as they come, by Jacobi's rotations in double precision.
func symmetric(c *call) error {
	x, upper, vectors := c.Tensor("A"), c.StrOr("UPLO", "L"), c.Bool("compute_v", true)
	if c.Err != nil {
		return c.Err
	}
	shape := traced.Static(x)
	r := len(shape)
	if r < 2 || shape[r-1] != shape[r-2] || slices.Contains(shape, 0) || !x.Type().DType().IsFloat() || upper != "L" && upper != "U" {
		return traced.ErrForm
	}
	b, n := intmath.Product(shape[:r-2]), shape[r-1]
	at := c.Counting(n)
	order := ir.OpGe
	if upper == "U" {
		order = ir.OpLe
	}
	a := c.Shaped(c.In(ir.F64, x), b, n, n)
	a = c.Make(ir.OpWhere, nil, c.Make(order, nil, c.Shaped(at, n, 1), at), a, c.Permuted(a, 0, 2, 1))
	even := n + n%2
	if even > n { // with a row that no other meets
		a = c.Make(ir.OpCat, traced.DimAttr(2), a, c.Filled(attr.Int(0), ir.F64, b, n, 1))
		a = c.Make(ir.OpCat, traced.DimAttr(1), a, c.Filled(attr.Int(0), ir.F64, b, 1, even))
	}
	v, _ := c.Broadcast(c.In(ir.F64, c.unit(even)), []int64{b, even, even})
	sweeps, rounds := int64(6+bits.Len64(uint64(n))), max(even-1, 1)
	still := c.Filled(attr.Int(0), ir.I64, 1) // rounds in turn that have found nothing to turn
	more := func(l *traced.Call, state []*ir.Value) *ir.Value { return l.With(ir.OpLt, state[2], float64(rounds)) }
	done := c.Loop(sweeps*rounds, []*ir.Value{a, v, still}, nil, more, func(l *traced.Call, _ *ir.Value, state, _ []*ir.Value) []*ir.Value {
		return (&call{l}).rotated(state[0], state[1], state[2])
	})
	values, v := c.diagonal(done[0]), done[1]
	key := values
	if even > n { // the vector of the row that was added comes last
		own := c.With(ir.OpEq, c.Shaped(c.Slice(v, 1, n, even), b, even), 1)
		key = c.Make(ir.OpWhere, nil, own, c.Filled(attr.Float(math.Inf(1)), ir.F64), values)
	}
	top := c.Helpers(ir.OpTopk, traced.DimAttr(1).With("k", attr.Int(n)).With("largest", attr.Bool(false)), []ir.Type{ir.Tensor(ir.F64, b, n), ir.Tensor(ir.I64, b, n)}, key)
	if c.Err != nil {
		return c.Err
	}
	index, _ := c.Broadcast(c.Shaped(top[1], b, 1, n), []int64{b, n, n})
	v = c.Make(ir.OpGather, traced.DimAttr(2), c.Slice(v, 1, 0, n), index)
	// Values once more, of the matrices as they were: errors of the vectors count twice only.
	v = c.Make(ir.OpDiv, nil, v, c.Make(ir.OpSqrt, nil, c.Over(ir.OpSum, c.Mul(v, v), true, 1)))
	a = c.Slice(c.Slice(a, 1, 0, n), 2, 0, n)
	values = c.Over(ir.OpSum, c.Mul(v, c.Make(ir.OpMatmul, nil, a, v)), false, 1)
	second := c.Filled(attr.Int(0), x.Type().DType(), 0)
	if vectors {
		second = c.Shaped(v, shape...)
	}
	return c.Settle(c.Shaped(values, shape[:r-1]...), second)
}

// rotated turns all pairs of a row of the first half and the one at its place in the second half,
// so that what the two have in common vanishes, and exchanges rows so that the next pairs are others
// (Brent and Luk, The solution of singular-value and symmetric eigenvalue problems on multiprocessor
// arrays, 1985): all have met after one round less than there are rows.
func (c *call) rotated(a, v, still *ir.Value) []*ir.Value {
	s := traced.Static(a)
	b, n := s[0], s[1]
	h := n / 2
	half := func(x *ir.Value, d int, second int64) *ir.Value { return c.Slice(x, d, second*h, (second+1)*h) }
	part := func(row, column int64) *ir.Value { return c.diagonal(half(half(a, 1, row), 2, column)) }
	p, q, pq := part(0, 0), part(1, 1), part(0, 1)
	theta := c.Make(ir.OpDiv, nil, c.Sub(q, p), c.With(ir.OpMul, pq, 2))
	size := c.Make(ir.OpAbs, nil, theta)
	root := c.Make(ir.OpSqrt, nil, c.With(ir.OpAdd, c.Mul(theta, theta), 1))
	tangent := c.Make(ir.OpReciprocal, nil, c.Add(size, root))
	tangent = c.Make(ir.OpWhere, nil, c.With(ir.OpLt, theta, 0), c.Make(ir.OpNeg, nil, tangent), tangent)
	tangent = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, pq, 0), c.Filled(attr.Int(0), ir.F64), tangent)
	cosine := c.Make(ir.OpRsqrt, nil, c.With(ir.OpAdd, c.Mul(tangent, tangent), 1))
	sine := c.Mul(tangent, cosine)
	turn := func(x *ir.Value, d int) *ir.Value {
		shape := []int64{b, 1, h}
		if d == 1 {
			shape = []int64{b, h, 1}
		}
		cosine, sine := c.Shaped(cosine, shape...), c.Shaped(sine, shape...)
		one, two := half(x, d, 0), half(x, d, 1)
		one, two = c.Sub(c.Mul(one, cosine), c.Mul(two, sine)), c.Add(c.Mul(one, sine), c.Mul(two, cosine))
		list := []*ir.Value{one, two}
		if h > 1 {
			list = []*ir.Value{c.Slice(one, d, 0, 1), c.Slice(two, d, 0, 1), c.Slice(one, d, 1, h-1), c.Slice(two, d, 1, h), c.Slice(one, d, h-1, h)}
		}
		return c.Make(ir.OpCat, traced.DimAttr(int64(d)), list...)
	}
	largest := c.Make(ir.OpMaximum, nil, c.Over(ir.OpAmax, c.Make(ir.OpAbs, nil, p), true, 1), c.Over(ir.OpAmax, c.Make(ir.OpAbs, nil, q), true, 1))
	turns := c.Make(ir.OpGt, nil, c.Make(ir.OpAbs, nil, pq), c.With(ir.OpMul, largest, 0x1p-54))
	turned := c.Shaped(c.Over(ir.OpAmax, c.In(ir.I64, turns), false), 1)
	still = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, turned, 1), c.Filled(attr.Int(0), ir.I64), c.With(ir.OpAdd, still, 1))
	return []*ir.Value{turn(turn(a, 2), 1), turn(v, 2), still}
}
