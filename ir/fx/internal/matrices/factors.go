package matrices

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// factorOps factor and solve by halves.
var factorOps = []row{
	{"aten.linalg_cholesky_ex.default", "self * upper check_errors", cholesky},
	{"aten.cholesky.default", "self upper", cholesky},
	{"aten.cholesky_solve.default", "B self upper", choleskySolve},
	{"aten.linalg_solve_triangular.default", "self B * upper left unitriangular", solveTriangular},
	{"aten.linalg_lu_factor_ex.default", "A * pivot check_errors", factored(func(c *call, f decompose.Factors) []*ir.Value { return []*ir.Value{f.LU, f.Pivots} })},
	{"aten.linalg_lu.default", "A * pivot", factored(func(c *call, f decompose.Factors) []*ir.Value { return c.unpacked(f, true, true) })},
	{"aten._linalg_det.default", "A", factored(determinant)},
	{"aten._linalg_slogdet.default", "A", factored(logDeterminant)},
	{"aten.linalg_inv_ex.default", "A * check_errors", inverse},
	{"aten._linalg_solve_ex.default", "A B * left check_errors", solve},
	{"aten.linalg_lu_solve.default", "LU pivots B * left adjoint", solveFactored},
	{"aten.linalg_qr.default", "A mode", qr},
	{"aten.geqrf.default", "self", func(c *call) error {
		a := c.Tensor("self")
		if c.Err != nil {
			return c.Err
		}
		packed, tau, err := decompose.Reflections(traced.Emitter{Call: c.Call}, a)
		return c.settledOr(err, packed, tau)
	}},
	{"aten.linalg_householder_product.default aten.orgqr.default", "self tau", func(c *call) error {
		a, tau := c.Tensor("self"), c.Tensor("tau")
		if c.Err != nil {
			return c.Err
		}
		q, err := decompose.Reflected(traced.Emitter{Call: c.Call}, a, tau)
		return c.settledOr(err, q)
	}},
	{"aten.ormqr.default", "self tau other left transpose", func(c *call) error {
		a, tau, b, left, transpose := c.Tensor("self"), c.Tensor("tau"), c.Tensor("other"), c.Bool("left", true), c.Bool("transpose", false)
		if c.Err != nil {
			return c.Err
		}
		y, err := decompose.Reflect(traced.Emitter{Call: c.Call}, a, tau, b, left, transpose)
		return c.settledOr(err, y)
	}},
	{"aten.linalg_matrix_exp.default", "self", func(c *call) error {
		a := c.Tensor("self")
		if c.Err != nil {
			return c.Err
		}
		y, err := decompose.MatrixExp(traced.Emitter{Call: c.Call}, a)
		return c.settledOr(err, y)
	}},
	{"aten.triangular_solve.default", "B self upper transpose unitriangular", legacySolve},
	{"aten.cholesky_inverse.default", "self upper", choleskyInverse},
	{"aten.lu_unpack.default", "LU pivots unpack_data unpack_pivots", unpackFactors},
}

// cholesky gives the factor: where a matrix is not positive definite it is not a number from the
// first place on that says so.
func cholesky(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if len(ts) > 2 || x.Type().Rank() < 2 {
		return traced.ErrForm
	}
	l, err := decompose.Cholesky(traced.Emitter{Call: c.Call}, x, !c.Bool("upper", false))
	if err != nil {
		return traced.Unknown(err)
	}
	if c.Err != nil {
		return c.Err
	}
	if len(ts) == 1 {
		return c.Settle(l)
	}
	return c.Settle(l, c.firstPlace(c.Make(ir.OpLogicalNot, nil, c.With(ir.OpGt, c.diagonal(l), 0))))
}

// settledOr is Settle, unless there was an error.
func (c *call) settledOr(err error, vals ...*ir.Value) error {
	if err != nil {
		return traced.Unknown(err)
	}
	return c.Settle(vals...)
}

// legacySolve gives back the coefficients, too.
func legacySolve(c *call) error {
	b, a := c.Tensor("B"), c.Tensor("self")
	upper, transpose, ones := c.Bool("upper", true), c.Bool("transpose", false), c.Bool("unitriangular", false)
	if c.Err != nil {
		return c.Err
	}
	b, a, ok := c.batched(b, a)
	if !ok {
		return traced.ErrForm
	}
	x, err := decompose.TriangularSolve(traced.Emitter{Call: c.Call}, a, b, true, !upper, ones, transpose)
	return c.settledOr(err, x, a)
}

// choleskyInverse is the inverse of what has been factored.
func choleskyInverse(c *call) error {
	l, upper := c.Tensor("self"), c.Bool("upper", false)
	if c.Err != nil {
		return c.Err
	}
	shape := traced.Static(l)
	if len(shape) < 2 || shape[len(shape)-1] != shape[len(shape)-2] {
		return traced.ErrForm
	}
	unit, _ := c.Broadcast(c.In(l.Type().DType(), c.unit(shape[len(shape)-1])), ir.Dims(shape...))
	return c.solveByFactor(l, unit, upper)
}

// unpackFactors gives the permutation and both triangles of LU factors; what is not asked for is empty.
func unpackFactors(c *call) error {
	lu, pivots := c.Tensor("LU"), c.Tensor("pivots")
	data, swaps := c.Bool("unpack_data", true), c.Bool("unpack_pivots", true)
	if c.Err != nil {
		return c.Err
	}
	f, err := decompose.PivotedFactors(traced.Emitter{Call: c.Call}, lu, pivots)
	if err != nil {
		return traced.Unknown(err)
	}
	return c.Settle(c.unpacked(f, data, swaps)...)
}

// unpacked is a permutation, if swaps, and triangles, if data.
func (c *call) unpacked(f decompose.Factors, data, swaps bool) []*ir.Value {
	shape, dt := traced.Static(f.LU), f.LU.Type().DType()
	r := len(shape)
	m, n := shape[r-2], shape[r-1]
	p, l, u := c.Filled(attr.Int(0), dt, 0), c.Filled(attr.Int(0), dt, 0), c.Filled(attr.Int(0), dt, 0)
	if swaps {
		at := c.Shaped(c.Counting(m), m, 1)
		p = c.In(dt, c.Make(ir.OpEq, nil, at, c.Shaped(f.Order, append(slices.Clone(shape[:r-2]), 1, m)...)))
	}
	if data {
		row, column, zero := c.Shaped(c.Counting(m), m, 1), c.Counting(n), c.Filled(attr.Int(0), dt)
		l = c.Make(ir.OpWhere, nil, c.Make(ir.OpGt, nil, row, column), f.LU, c.In(dt, c.Make(ir.OpEq, nil, row, column)))
		u = c.Make(ir.OpWhere, nil, c.Make(ir.OpLe, nil, row, column), f.LU, zero)
		l, u = c.Slice(l, r-1, 0, min(m, n)), c.Slice(u, r-2, 0, min(m, n))
	}
	return []*ir.Value{p, l, u}
}

// choleskySolve solves by a factor and its transpose.
func choleskySolve(c *call) error {
	b, l, upper := c.Tensor("B"), c.Tensor("self"), c.Bool("upper", false)
	if c.Err != nil {
		return c.Err
	}
	b, l, ok := c.batched(b, l)
	if !ok {
		return traced.ErrForm
	}
	return c.solveByFactor(l, b, upper)
}

// solveByFactor gives what solves for b by Cholesky's factor and its transpose.
func (c *call) solveByFactor(l, b *ir.Value, upper bool) error {
	y, err := decompose.TriangularSolve(traced.Emitter{Call: c.Call}, l, b, true, !upper, false, upper)
	if err == nil {
		y, err = decompose.TriangularSolve(traced.Emitter{Call: c.Call}, l, y, true, !upper, false, !upper)
	}
	return c.settledOr(err, y)
}

func solveTriangular(c *call) error {
	a, b := c.Tensor("self"), c.Tensor("B")
	upper, left, ones := c.Bool("upper", false), c.Bool("left", true), c.Bool("unitriangular", false)
	if c.Err != nil {
		return c.Err
	}
	b, a, ok := c.batched(b, a)
	if !ok {
		return traced.ErrForm
	}
	x, err := decompose.TriangularSolve(traced.Emitter{Call: c.Call}, a, b, left, !upper, ones, false)
	return c.settledOr(err, x)
}

// batched gives both the dimensions before the matrices that they broadcast to.
func (c *call) batched(b, a *ir.Value) (*ir.Value, *ir.Value, bool) {
	bs, as := traced.Static(b), traced.Static(a)
	if len(bs) < 2 || len(as) < 2 {
		return b, a, false
	}
	lead := broadcastShape(bs[:len(bs)-2], as[:len(as)-2])
	b, fits := c.Broadcast(b, ir.Dims(slices.Concat(lead, bs[len(bs)-2:])...))
	a, fit := c.Broadcast(a, ir.Dims(slices.Concat(lead, as[len(as)-2:])...))
	return b, a, fits && fit
}

// broadcastShape is the shape of two, the larger size of each dimension.
func broadcastShape(a, b []int64) []int64 {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i, n := range b {
		if d := len(a) - len(b) + i; out[d] == 1 {
			out[d] = n
		}
	}
	return out
}

// firstPlace is LAPACK's word on each matrix: the first place on its diagonal, counted from 1,
// where bad holds, or 0.
func (c *call) firstPlace(bad *ir.Value) *ir.Value {
	if c.Err != nil {
		return c.None()
	}
	d := int64(bad.Type().Rank() - 1)
	none := traced.SizeAt(bad, d) + 1
	if none == 1 {
		return c.Filled(attr.Int(0), ir.I64, traced.Static(bad)[:d]...)
	}
	at := c.With(ir.OpAdd, c.Counting(none-1), 1)
	first := c.Over(ir.OpAmin, c.Make(ir.OpWhere, nil, bad, at, c.Filled(attr.Int(none), ir.I64)), false, d)
	return c.Make(ir.OpWhere, nil, c.With(ir.OpEq, first, float64(none)), c.Filled(attr.Int(0), ir.I64), first)
}

// factored ends an operator whose first results f makes of the LU factors of A.
func factored(f func(c *call, f decompose.Factors) []*ir.Value) func(c *call) error {
	return func(c *call) error {
		a := c.Tensor("A")
		if c.Err != nil {
			return c.Err
		}
		if !c.Bool("pivot", true) {
			return traced.ErrForm
		}
		if !strings.HasPrefix(c.Operator, "aten.linalg_lu") {
			if s := traced.Static(a); len(s) < 2 || s[len(s)-1] != s[len(s)-2] {
				return traced.ErrForm
			}
			a = c.asFactored(a)
		}
		lu, err := decompose.LU(traced.Emitter{Call: c.Call}, a)
		if err != nil {
			return traced.Unknown(err)
		}
		return c.settleWith(lu, f(c, lu)...)
	}
}

// asFactored is what PyTorch factors for a determinant: the transpose of what lies row by row.
func (c *call) asFactored(a *ir.Value) *ir.Value {
	r := a.Type().Rank()
	if r < 2 || !a.Type().Contiguous() {
		return a
	}
	return c.transposed(a)
}

// settleWith is Settle; where the trace has one more result it says which matrices are singular.
func (c *call) settleWith(f decompose.Factors, vals ...*ir.Value) error {
	ts, err := c.Types()
	if err != nil || c.Err != nil {
		return cmp.Or(c.Err, err)
	}
	if len(ts) == len(vals)+1 {
		vals = append(vals, c.firstPlace(c.With(ir.OpEq, c.diagonal(f.LU), 0)))
	}
	return c.Settle(vals...)
}

// diagonal is that of matrices, as sums with zeros.
func (c *call) diagonal(x *ir.Value) *ir.Value {
	r := int64(x.Type().Rank())
	n := min(traced.SizeAt(x, r-1), traced.SizeAt(x, r-2))
	x, here := c.Slice(c.Slice(x, int(r-1), 0, n), int(r-2), 0, n), c.unit(n)
	return c.Over(ir.OpSum, c.Make(ir.OpWhere, nil, here, x, c.Filled(attr.Int(0), x.Type().DType())), false, r-1)
}

// unit is true where row and column are the same, bool[n,n].
func (c *call) unit(n int64) *ir.Value {
	return c.Make(ir.OpEq, nil, c.Shaped(c.Counting(n), n, 1), c.Counting(n))
}

func determinant(c *call, f decompose.Factors) []*ir.Value {
	last := int64(f.LU.Type().Rank() - 2)
	return []*ir.Value{c.Mul(c.Over(ir.OpProd, c.diagonal(f.LU), false, last), f.Sign), f.LU, f.Pivots}
}

func logDeterminant(c *call, f decompose.Factors) []*ir.Value {
	last, d := int64(f.LU.Type().Rank()-2), c.diagonal(f.LU)
	sign := c.Mul(c.Over(ir.OpProd, c.Make(ir.OpSign, nil, d), false, last), f.Sign)
	return []*ir.Value{sign, c.Over(ir.OpSum, c.Make(ir.OpLog, nil, c.Make(ir.OpAbs, nil, d)), false, last), f.LU, f.Pivots}
}

// inverse solves for the unit matrix.
func inverse(c *call) error {
	a := c.Tensor("A")
	if c.Err != nil {
		return c.Err
	}
	f, err := decompose.LU(traced.Emitter{Call: c.Call}, a)
	if err != nil {
		return traced.Unknown(err)
	}
	shape := traced.Static(a)
	unit, fits := c.Broadcast(c.In(a.Type().DType(), c.unit(shape[len(shape)-1])), ir.Dims(shape...))
	if !fits {
		return traced.ErrForm
	}
	x, err := decompose.SolveLU(traced.Emitter{Call: c.Call}, f, unit, true, false)
	if err != nil {
		return traced.Unknown(err)
	}
	return c.settleWith(f, x)
}

func solve(c *call) error {
	a, b, left := c.Tensor("A"), c.Tensor("B"), c.Bool("left", true)
	if c.Err != nil {
		return c.Err
	}
	as, bs := traced.Static(a), traced.Static(b)
	if len(as) < 2 {
		return traced.ErrForm
	}
	f, err := decompose.LU(traced.Emitter{Call: c.Call}, a)
	if err != nil {
		return traced.Unknown(err)
	}
	line := len(bs) == 1 || len(bs) == len(as)-1 && slices.Equal(bs, as[:len(as)-1])
	if line { // a vector for each matrix
		b = c.Unsqueezed(b, int64(len(bs)))
	}
	b, again, ok := c.batched(b, f.LU)
	if !ok || again != f.LU {
		return traced.ErrForm
	}
	x, err := decompose.SolveLU(traced.Emitter{Call: c.Call}, f, b, left, false)
	if err != nil {
		return traced.Unknown(err)
	}
	if line {
		s := traced.Static(x)
		x = c.Shaped(x, s[:len(s)-1]...)
	}
	return c.settleWith(f, x, f.LU, f.Pivots)
}

func solveFactored(c *call) error {
	lu, pivots, b := c.Tensor("LU"), c.Tensor("pivots"), c.Tensor("B")
	left, adjoint := c.Bool("left", true), c.Bool("adjoint", false)
	if c.Err != nil {
		return c.Err
	}
	f, err := decompose.PivotedFactors(traced.Emitter{Call: c.Call}, lu, pivots)
	if err != nil {
		return traced.Unknown(err)
	}
	b, again, ok := c.batched(b, lu)
	if !ok || again != lu {
		return traced.ErrForm
	}
	x, err := decompose.SolveLU(traced.Emitter{Call: c.Call}, f, b, left, adjoint)
	return c.settledOr(err, x)
}

func qr(c *call) error {
	a, mode := c.Tensor("A"), c.StrOr("mode", "reduced")
	if c.Err != nil {
		return c.Err
	}
	if s := traced.Static(a); mode != "reduced" && (mode != "complete" || len(s) < 2 || s[len(s)-2] > s[len(s)-1]) {
		return traced.ErrForm
	}
	q, r, err := decompose.QR(traced.Emitter{Call: c.Call}, a)
	return c.settledOr(err, q, r)
}
