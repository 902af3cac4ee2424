package matrices

import (
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
