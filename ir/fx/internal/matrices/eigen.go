package matrices

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// eigenOps find eigenvalues and singular values.
var eigenOps = []row{
	{"aten._linalg_eigh.default", "A UPLO compute_v", symmetric},
	{"aten._linalg_svd.default", "A full_matrices compute_uv * driver", singular},
	{"aten.linalg_svdvals.default", "A * driver", func(c *call) error {
		a := c.Tensor("A")
		if c.Err != nil {
			return c.Err
		}
		_, values, _, err := decompose.SVD(traced.Emitter{Call: c.Call}, a, false, false)
		return c.settledOr(err, values)
	}},
	{"aten.linalg_pinv.atol_rtol_tensor", "self * atol rtol hermitian", pseudoInverse},
}

// symmetric gives eigenvalues and vectors of symmetric matrices.
func symmetric(c *call) error {
	x, triangle, vectors := c.Tensor("A"), c.StrOr("UPLO", "L"), c.Bool("compute_v", true)
	if c.Err != nil {
		return c.Err
	}
	if triangle != "L" && triangle != "U" {
		return traced.ErrForm
	}
	values, v, err := decompose.Eigh(traced.Emitter{Call: c.Call}, x, triangle == "L")
	if !vectors {
		v = c.nothing(x)
	}
	return c.settledOr(err, values, v)
}

// singular gives singular values and vectors, which drivers compute alike.
func singular(c *call) error {
	x, full, vectors := c.Tensor("A"), c.Bool("full_matrices", false), c.Bool("compute_uv", true)
	if c.Err != nil {
		return c.Err
	}
	u, values, vt, err := decompose.SVD(traced.Emitter{Call: c.Call}, x, vectors, full)
	if !vectors {
		u, vt = c.nothing(x), c.nothing(x)
	}
	return c.settledOr(err, u, values, vt)
}

// nothing stands for vectors that are not asked for.
func (c *call) nothing(x *ir.Value) *ir.Value {
	return c.Filled(attr.Int(0), x.Type().DType(), 0)
}

// pseudoInverse is Moore's and Penrose's inverse, by singular values, or by eigenvalues of what is
// symmetric. Those up to a limit count as 0.
func pseudoInverse(c *call) error {
	a, symmetric := c.Tensor("self"), c.Bool("hermitian", false)
	if c.Err != nil {
		return c.Err
	}
	shape, dt := slices.Clone(traced.Static(a)), a.Type().DType()
	r := len(shape)
	if r < 2 {
		return traced.ErrForm
	}
	shape[r-2], shape[r-1] = shape[r-1], shape[r-2]
	if slices.Contains(shape, 0) {
		return c.Settle(c.Filled(attr.Int(0), dt, shape...))
	}
	var columns, values, rows *ir.Value // of the inverse, but for values
	var err error
	if symmetric {
		values, columns, err = decompose.Eigh(traced.Emitter{Call: c.Call}, a, true)
		rows = columns
	} else {
		rows, values, columns, err = decompose.SVD(traced.Emitter{Call: c.Call}, a, true, false)
	}
	if err != nil {
		return traced.Unknown(err)
	}
	if !symmetric {
		columns = c.transposed(columns)
	}
	size := c.Make(ir.OpAbs, nil, values)
	inverses := c.Make(ir.OpWhere, nil, c.Make(ir.OpGt, nil, size, c.negligible(size, max(shape[r-2], shape[r-1]))),
		c.Make(ir.OpReciprocal, nil, values), c.Filled(attr.Int(0), dt))
	return c.Settle(c.Make(ir.OpMatmul, nil, c.Mul(columns, c.Unsqueezed(inverses, int64(r-2))), c.transposed(rows)))
}

// negligible is the largest singular value that counts as 0: atol, or rtol times the largest of all, by
// default as many units in the last place of that as a side of the matrix is long.
func (c *call) negligible(values *ir.Value, side int64) *ir.Value {
	dt, last := values.Type().DType(), int64(values.Type().Rank()-1)
	given := func(param string) *ir.Value {
		x := c.Tensor(param)
		return c.Unsqueezed(c.In(dt, x), int64(x.Type().Rank()))
	}
	largest := c.Over(ir.OpAmax, values, true, last)
	var relative *ir.Value
	if c.IsTensor("rtol") {
		relative = c.Mul(given("rtol"), largest)
	} else {
		unit := 0x1p-23
		if dt == ir.F64 {
			unit = 0x1p-52
		}
		relative = c.With(ir.OpMul, largest, unit*float64(side))
	}
	if !c.IsTensor("atol") {
		return relative
	}
	atol := given("atol")
	if !c.IsTensor("rtol") {
		relative = c.Make(ir.OpWhere, nil, c.With(ir.OpGt, atol, 0), c.Filled(attr.Int(0), dt), relative)
	}
	return c.Make(ir.OpMaximum, nil, atol, relative)
}

// transposed exchanges rows and columns.
func (c *call) transposed(x *ir.Value) *ir.Value {
	dims := make([]int64, x.Type().Rank())
	for d := range dims {
		dims[d] = int64(d)
	}
	r := len(dims)
	dims[r-2], dims[r-1] = dims[r-1], dims[r-2]
	return c.Permuted(x, dims...)
}
