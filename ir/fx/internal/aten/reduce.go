package aten

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
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
	{"aten.linalg_vector_norm.default", "self ord dim keepdim", vectorNorm},
	{"aten.cumsum.default", "self dim", along(ir.OpCumsum)},
	{"aten._softmax.default", "self dim half_to_float", along(ir.OpSoftmax)},
	{"aten._log_softmax.default", "self dim half_to_float", along(ir.OpLogSoftmax)},
	{"aten._softmax_backward_data.default", "grad output dim input_dtype", softmaxBackward(false)},
	{"aten._log_softmax_backward_data.default", "grad output dim input_dtype", softmaxBackward(true)},
	{"aten.softmax.int", "self dim dtype", along(ir.OpSoftmax)},
	{"aten.log_softmax.int", "self dim dtype", along(ir.OpLogSoftmax)},
}

// reduce imports a reduction; no dims, or an empty list, means all.
func reduce(op ir.Op) func(c *call) error {
	return func(c *call) error {
		x := c.Tensor("self")
		if c.Err != nil {
			return c.Err
		}
		var l attr.List
		if slices.Contains(c.Params, "dim") {
			if d := c.Dims("dim", x.Type().Rank()); len(d) > 0 {
				l = l.With("dims", attr.Ints(d...))
			}
			if c.Bool("keepdim", false) {
				l = l.With("keepdim", attr.Bool(true))
			}
		}
		return c.converted(op, l, x)
	}
}

// converted emits an op whose elements are of the type that dtype= asks for before they are folded:
// without it that type holds them all.
func (c *call) converted(op ir.Op, l attr.List, x *ir.Value) error {
	t, err := c.Trace.TypeOf(0)
	if err != nil {
		return err
	}
	from, to := x.Type().DType(), t.DType()
	switch op {
	case ir.OpSum, ir.OpProd, ir.OpMean, ir.OpCumsum, ir.OpSoftmax, ir.OpLogSoftmax:
		if !holds(to, from) {
			x = c.In(to, x)
		}
	}
	return c.EmitErr(op, l, x)
}

// along imports an op that keeps the shape and works along one dimension.
func along(op ir.Op) func(c *call) error {
	return func(c *call) error {
		x, d, err := c.SelfAlong(0)
		if err != nil {
			return err
		}
		c.Need("dim")
		return c.converted(op, traced.DimAttr(d), x)
	}
}

// productOps are the matrix products and attention.
var productOps = []row{
	{"aten.mm.default aten.bmm.default aten.matmul.default", "self mat2", matmul},
	{"aten.mm.dtype aten.bmm.dtype", "self mat2 out_dtype", matmul},
	{"aten._weight_int8pack_mm.default", "self mat2 scales", weightedBytes},
	{"aten._int_mm.default", "self mat2", func(c *call) error { // of bytes, summed up in 32 bits
		a, b := c.Tensor("self"), c.Tensor("mat2")
		if c.Err != nil {
			return c.Err
		}
		return c.Settle(c.Make(ir.OpMatmul, nil, c.In(ir.I32, a), c.In(ir.I32, b)))
	}},
	{"aten.addmm.default aten.baddbmm.default", "self mat1 mat2 * beta alpha", addmm},
	{"aten._addmm_activation.default", "self mat1 mat2 * beta alpha use_gelu", addmmActivation},
	{"aten.addmm.dtype aten.baddbmm.dtype", "self mat1 mat2 out_dtype * beta alpha", addmm},
	{"aten.addbmm.default", "self mat1 mat2 * beta alpha", addmm},
	{"aten._grouped_mm.default", "self mat2 offs bias out_dtype", groupedMM},
	{"aten._scaled_mm.default", "self mat2 scale_a scale_b bias scale_result out_dtype use_fast_accum", scaledMM},
}

func matmul(c *call) error {
	a, b := c.Tensor("self"), c.Tensor("mat2")
	if c.Err != nil {
		return c.Err
	}
	ra, rb := a.Type().Rank(), b.Type().Rank()
	if c.Target == "aten.matmul.default" && (ra != rb || ra < 2 || ra > 3) {
		return traced.ErrForm // broadcasts
	}
	return c.EmitErr(ir.OpMatmul, nil, a, b)
}

// groupedMM imports products by groups; batches of matrices have none.
func groupedMM(c *call) error {
	a, b := c.Tensor("self"), c.Tensor("mat2")
	if c.Err != nil {
		return c.Err
	}
	switch {
	case c.IsTensor("bias"):
		return traced.ErrForm
	case !c.IsTensor("offs"):
		return c.EmitErr(ir.OpMatmul, nil, a, b)
	}
	return c.EmitErr(ir.OpGroupedMatmul, nil, a, b, c.Tensor("offs"))
}

// scaledMM is the product of 8-bit numbers, each operand with one scale or one for each row or
// column: summed up and scaled in single precision.
func scaledMM(c *call) error {
	a, b := c.Tensor("self"), c.Tensor("mat2")
	factors := []*ir.Value{c.Tensor("scale_a"), c.Tensor("scale_b")}
	if c.IsTensor("scale_result") {
		factors = append(factors, c.Tensor("scale_result"))
	}
	if c.Err != nil {
		return c.Err
	}
	if a.Type().DType() != b.Type().DType() {
		a, b = c.In(dtype.BF16, a), c.In(dtype.BF16, b) // which has all numbers of both
	}
	c.Shares = 1
	y := c.MakeAs(ir.OpMatmul, nil, nil, []*ir.Value{a, b}, ir.TensorOf(dtype.F32, c.Shape(0)))[0]
	if c.Err != nil {
		return c.Err
	}
	m, n, one := a.Type().Shape()[0], b.Type().Shape()[1], ir.D(1)
	for i, f := range factors {
		switch s := f.Type().Shape(); {
		case s.NumElems().Equal(one):
			f = c.Shaped(f)
		case i == 0 && s.Equal(ir.Shape{m, one}), i == 1 && s.Equal(ir.Shape{one, n}):
		default:
			return traced.ErrForm // scales of blocks
		}
		factors[i] = c.In(dtype.F32, f)
	}
	scaled := c.Mul(y, factors[:2]...)
	if c.IsTensor("bias") {
		scaled = c.Add(scaled, c.In(dtype.F32, c.Tensor("bias")))
	}
	return c.Settle(c.Mul(scaled, factors[2:]...))
}

// weightedBytes is the product with 8-bit weights, each row of them with a scale: summed up and
// scaled in single precision.
func weightedBytes(c *call) error {
	x, w, scales := c.Tensor("self"), c.Tensor("mat2"), c.Tensor("scales")
	if c.Err != nil {
		return c.Err
	}
	c.Shares = 1
	w = c.Permuted(c.In(x.Type().DType(), w), 1, 0)
	y := c.MakeAs(ir.OpMatmul, nil, nil, []*ir.Value{x, w}, ir.TensorOf(dtype.F32, c.Shape(0)))[0]
	return c.Settle(c.Mul(y, c.In(dtype.F32, scales)))
}

// addmm is beta*self + alpha*(mat1 x mat2): one operation where self is a row, which libraries add to
// the product before they round it, and else a product and what is elementwise, which joins what reads it.
func addmm(c *call) error {
	factor := func(key string) float64 {
		if v, ok := c.Num(key); ok {
			f, _ := v.AsFloat()
			return f
		}
		return 1
	}
	self, a, b := c.Tensor("self"), c.Tensor("mat1"), c.Tensor("mat2")
	alpha, beta := factor("alpha"), factor("beta")
	if c.Err != nil {
		return c.Err
	}
	c.Shares = 1
	if c.Target == "aten.addbmm.default" { // the sum over the batch is one matmul
		s, n := a.Type().Shape(), b.Type().Shape()
		if len(s) != 3 || len(n) != 3 {
			return traced.ErrForm
		}
		a, b = c.Reshaped(c.Permuted(a, 1, 0, 2), ir.Shape{s[1], s[0].Mul(s[2])}), c.Reshaped(b, ir.Shape{n[0].Mul(n[1]), n[2]})
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	dt := ts[0].DType()
	if alpha == 1 && beta == 1 && addsRow(self, a, b, ts[0]) {
		return c.Finish(ir.OpAddmm, nil, []*ir.Value{self, a, b})
	}
	self = c.In(dt, self)
	p := c.MakeAs(ir.OpMatmul, nil, nil, []*ir.Value{a, b}, ir.TensorOf(dt, c.Shape(0)))[0]
	if alpha != 1 || beta == 0 {
		p = c.With(ir.OpMul, p, alpha)
	}
	switch {
	case c.Err != nil:
		return c.Err
	case beta == 0: // whatever self holds
		return c.Settle(p)
	case beta != 1:
		self = c.With(ir.OpMul, self, beta)
	}
	return c.Finish(ir.OpAdd, nil, []*ir.Value{p, self})
}

// addsRow reports whether self + a x b adds a number to each of several columns, in a type in which libraries
// do it. Of open sizes, and of what is gathered, programs have the product by itself: its rows are read late, or as
// they arrive.
func addsRow(self, a, b *ir.Value, out ir.Type) bool {
	dt := out.DType()
	for _, v := range []*ir.Value{self, a, b} {
		if !v.Type().Static() || v.Type().DType() != dt {
			return false
		}
	}
	s := out.Shape()
	return (dt == dtype.BF16 || dt == dtype.F16 || dt == dtype.F32) && len(s) == 2 && self.Type().Rank() == 1 && self.Type().Shape()[0].Equal(s[1]) &&
		!s[1].Equal(ir.D(1)) && a.Viewed().Def().Op() != ir.OpWaitTensor
}

// addmmActivation is what addmm gives, through ReLU or the approximation of GELU by tanh.
func addmmActivation(c *call) error {
	ts, err := c.Types()
	a, b, self := c.Tensor("mat1"), c.Tensor("mat2"), c.Tensor("self")
	alpha, ok := c.Num("alpha")
	beta, okay := c.Num("beta")
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	if one, _ := alpha.AsFloat(); ok && one != 1 {
		return traced.ErrForm
	}
	if one, _ := beta.AsFloat(); okay && one != 1 {
		return traced.ErrForm
	}
	c.Shares = 1
	y := c.Add(c.MakeAs(ir.OpMatmul, nil, nil, []*ir.Value{a, b}, ir.TensorOf(ts[0].DType(), c.Shape(0)))[0], self)
	if c.Bool("use_gelu", false) {
		return c.Settle(c.Make(ir.OpGelu, attr.Make(attr.Attr{Key: "approximate", Val: attr.String("tanh")}), y))
	}
	return c.Settle(c.Make(ir.OpRelu, nil, y))
}

// softmaxBackward takes a gradient through a softmax, or its logarithm, of which the results are there.
func softmaxBackward(logarithm bool) func(c *call) error {
	return func(c *call) error {
		g, y := c.Tensor("grad"), c.Tensor("output")
		if c.Err != nil {
			return c.Err
		}
		d, acc := c.Dim("dim", 0, y.Type().Rank()), traced.AccType(y.Type().DType())
		g, y = c.In(acc, g), c.In(acc, y)
		if logarithm {
			return c.Settle(c.Sub(g, c.Mul(c.Make(ir.OpExp, nil, y), c.Over(ir.OpSum, g, true, d))))
		}
		return c.Settle(c.Mul(c.Sub(g, c.Over(ir.OpSum, c.Mul(g, y), true, d)), y))
	}
}
