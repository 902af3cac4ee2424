package fx

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// reduceOps are the reductions, scans and softmaxes.
var reduceOps = []row{
	{"aten.sum.default", "self", reduce(ir.OpSum)},
	{"aten.sum.dim_IntList", "self dim keepdim", reduce(ir.OpSum)},
	{"aten.mean.default", "self", reduce(ir.OpMean)},
	{"aten.mean.dim", "self dim keepdim", reduce(ir.OpMean)},
	{"aten.amax.default", "self dim keepdim", reduce(ir.OpAmax)},
	{"aten.amin.default", "self dim keepdim", reduce(ir.OpAmin)},
	{"aten.max.default", "self", reduce(ir.OpAmax)},
	{"aten.min.default", "self", reduce(ir.OpAmin)},
	{"aten.prod.default", "self", reduce(ir.OpProd)},
	{"aten.prod.dim_int", "self dim keepdim", reduce(ir.OpProd)},
	{"aten.cumsum.default", "self dim", along(ir.OpCumsum)},
	{"aten._softmax.default", "self dim half_to_float", along(ir.OpSoftmax)},
	{"aten._log_softmax.default", "self dim half_to_float", along(ir.OpLogSoftmax)},
	{"aten.softmax.int", "self dim", along(ir.OpSoftmax)},
	{"aten.log_softmax.int", "self dim", along(ir.OpLogSoftmax)},
}

// reduce imports a reduction; no dims, or an empty list, means all.
func reduce(op ir.Op) func(c *call) error {
	return func(c *call) error {
		x := c.tensor("self")
		if c.err != nil {
			return c.err
		}
		var l attr.List
		if slices.Contains(c.params, "dim") {
			if d := c.dims("dim", x.Type().Rank()); len(d) > 0 && x.Type().Rank() > 0 {
				l = l.With("dims", attr.Ints(d...))
			}
			if c.bool("keepdim", false) {
				l = l.With("keepdim", attr.Bool(true))
			}
		}
		return c.emitErr(op, l, x)
	}
}

// along imports an op that keeps the shape and works along one dimension.
func along(op ir.Op) func(c *call) error {
	return func(c *call) error {
		x, d, err := c.selfAlong(0)
		if err != nil {
			return err
		}
		c.need("dim")
		return c.emitErr(op, dimAttr(d), x)
	}
}

// productOps are the matrix products and attention.
var productOps = []row{
	{"aten.mm.default aten.bmm.default aten.matmul.default", "self mat2", matmul},
	{"aten.addmm.default aten.baddbmm.default", "self mat1 mat2 * beta alpha", addmm},
	{"aten._grouped_mm.default", "self mat2 offs bias out_dtype", groupedMM},
}

func matmul(c *call) error {
	a, b := c.tensor("self"), c.tensor("mat2")
	if c.err != nil {
		return c.err
	}
	ra, rb := a.Type().Rank(), b.Type().Rank()
	if c.target == "aten.matmul.default" && (ra != rb || ra < 2 || ra > 3) {
		return errForm // broadcasts
	}
	return c.emitErr(ir.OpMatmul, nil, a, b)
}

// groupedMM imports products by groups; batches of matrices have none.
func groupedMM(c *call) error {
	a, b := c.tensor("self"), c.tensor("mat2")
	if c.err != nil {
		return c.err
	}
	switch {
	case c.isTensor("bias"):
		return errForm
	case !c.isTensor("offs"):
		return c.emitErr(ir.OpMatmul, nil, a, b)
	}
	return c.emitErr(ir.OpGroupedMatmul, nil, a, b, c.tensor("offs"))
}

// addmm is beta*self + alpha*(mat1 x mat2) as a product and what is elementwise: libraries
// have the product, and the sum joins what reads it.
func addmm(c *call) error {
	factor := func(key string) float64 {
		if v, ok := c.num(key); ok {
			f, _ := v.AsFloat()
			return f
		}
		return 1
	}
	self, a, b := c.tensor("self"), c.tensor("mat1"), c.tensor("mat2")
	alpha, beta := factor("alpha"), factor("beta")
	if c.err != nil {
		return c.err
	}
	c.shares = 1
	p := c.make(ir.OpMatmul, nil, a, b)
	if alpha != 1 || beta == 0 {
		p = c.with(ir.OpMul, p, alpha)
	}
	switch {
	case c.err != nil:
		return c.err
	case beta == 0: // whatever self holds
		return c.settle(p)
	case beta != 1:
		self = c.with(ir.OpMul, self, beta)
	}
	return c.finish(ir.OpAdd, nil, []*ir.Value{p, self})
}
