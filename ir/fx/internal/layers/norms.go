package layers

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// layerNormOps are the norms over trailing dimensions.
var layerNormOps = []row{
	{"aten.native_layer_norm.default", "input normalized_shape weight bias eps", layerNorm},
	{"aten.native_layer_norm_backward.default", "grad_out input normalized_shape mean rstd weight bias output_mask", layerNormBackward},
	{"aten._fused_rms_norm.default", "input normalized_shape weight eps", rmsNorm},
	{"aten._fused_rms_norm_backward.default", "grad_out input normalized_shape rstd weight output_mask", rmsNormBackward},
}

// normalized reads the trailing dimensions that a layer norm is over, and the shapes of
// its statistics and of one row.
func (c *call) normalized(x *ir.Value) (dims []int64, kept, row ir.Shape) {
	row = c.Sizes("normalized_shape")
	if c.Err != nil {
		return nil, nil, nil
	}
	s := x.Type().Shape()
	lead := len(s) - len(row)
	if lead < 0 || len(row) == 0 || !s[lead:].Equal(row) || !x.Type().DType().IsFloat() {
		c.Err = traced.ErrForm
		return nil, nil, nil
	}
	kept = slices.Clone(s)
	for d := lead; d < len(s); d++ {
		dims, kept[d] = append(dims, int64(d)), ir.D(1)
	}
	return dims, kept, row
}

// layerNorm gives the normalised tensor, means, and inverses of standard deviations, in
// single precision at least.
func layerNorm(c *call) error {
	x := c.Tensor("input")
	if c.Err != nil {
		return c.Err
	}
	dims, _, _ := c.normalized(x)
	eps, ok := c.Num("eps")
	if !ok {
		c.Want("eps", "a number", c.Arg("eps"))
	}
	if c.Err != nil {
		return c.Err
	}
	small, _ := eps.AsFloat()
	acc := traced.AccType(x.Type().DType())
	x = c.In(acc, x)
	mean := c.Over(ir.OpMean, x, true, dims...)
	away := c.Make(ir.OpSub, nil, x, mean)
	variance := c.Over(ir.OpMean, c.Make(ir.OpMul, nil, away, away), true, dims...)
	rstd := c.Make(ir.OpRsqrt, nil, c.With(ir.OpAdd, variance, small))
	y := c.Make(ir.OpMul, nil, away, rstd)
	for _, p := range []struct {
		name string
		op   ir.Op
	}{{"weight", ir.OpMul}, {"bias", ir.OpAdd}} {
		if c.IsTensor(p.name) {
			y = c.Make(p.op, nil, y, c.In(acc, c.Tensor(p.name)))
		}
	}
	return c.Settle(y, mean, rstd)
}

// layerNormBackward gives the gradients of the operand, of the weights and of the bias,
// as many as are asked for.
func layerNormBackward(c *call) error {
	grad, x, mean, rstd := c.Tensor("grad_out"), c.Tensor("input"), c.Tensor("mean"), c.Tensor("rstd")
	if c.Err != nil {
		return c.Err
	}
	dims, kept, row := c.normalized(x)
	if c.Err != nil {
		return c.Err
	}
	acc := traced.AccType(x.Type().DType())
	grad, x = c.In(acc, grad), c.In(acc, x)
	mean, rstd = c.Reshaped(c.In(acc, mean), kept), c.Reshaped(c.In(acc, rstd), kept)
	norm := c.Make(ir.OpMul, nil, c.Make(ir.OpSub, nil, x, mean), rstd)
	scaled := c.weighted(acc, grad)
	a := c.Over(ir.OpMean, scaled, true, dims...)
	b := c.Over(ir.OpMean, c.Make(ir.OpMul, nil, scaled, norm), true, dims...)
	dx := c.Make(ir.OpSub, nil, c.Make(ir.OpSub, nil, scaled, a), c.Make(ir.OpMul, nil, norm, b))
	all := []*ir.Value{c.Make(ir.OpMul, nil, dx, rstd), c.Make(ir.OpMul, nil, grad, norm), grad}
	return c.normGradients(all, outerDims(len(kept)-len(row)))
}

// normGradients gives those of the gradients of operand, weight and bias that are asked for; the
// last ones are summed over what a row is repeated over.
func (c *call) normGradients(all []*ir.Value, outer []int64) error {
	var out []*ir.Value
	var items []int
	for i, asked := range c.Mask("output_mask", len(all)) {
		if !asked || i > 0 && !c.IsTensor([]string{"", "weight", "bias"}[i]) {
			continue
		}
		if i > 0 && len(outer) > 0 {
			all[i] = c.Over(ir.OpSum, all[i], false, outer...)
		}
		out, items = append(out, all[i]), append(items, i)
	}
	if c.Err != nil {
		return c.Err
	}
	c.Items = items
	return c.Settle(out...)
}

// rmsNorm gives the tensor over the root of its mean square, and the inverse of that root.
func rmsNorm(c *call) error {
	x := c.Tensor("input")
	if c.Err != nil {
		return c.Err
	}
	dims, _, _ := c.normalized(x)
	if c.Err != nil {
		return c.Err
	}
	acc := traced.AccType(x.Type().DType())
	small := map[bool]float64{false: 0x1p-23, true: 0x1p-52}[acc == ir.F64] // what PyTorch takes if it is not told
	if v, ok := c.Num("eps"); ok {
		small, _ = v.AsFloat()
	}
	x = c.In(acc, x)
	rstd := c.Make(ir.OpRsqrt, nil, c.With(ir.OpAdd, c.Over(ir.OpMean, c.Make(ir.OpMul, nil, x, x), true, dims...), small))
	return c.Settle(c.weighted(acc, c.Make(ir.OpMul, nil, x, rstd)), rstd)
}

// weighted is x times the weight, if there is one.
func (c *call) weighted(acc ir.DType, x *ir.Value) *ir.Value {
	if !c.IsTensor("weight") {
		return x
	}
	return c.Make(ir.OpMul, nil, x, c.In(acc, c.Tensor("weight")))
}

// rmsNormBackward gives the gradients of the operand and of the weight, as many as are asked for.
func rmsNormBackward(c *call) error {
	grad, x, rstd := c.Tensor("grad_out"), c.Tensor("input"), c.Tensor("rstd")
	if c.Err != nil {
		return c.Err
	}
	dims, kept, row := c.normalized(x)
	if c.Err != nil {
		return c.Err
	}
	acc := traced.AccType(x.Type().DType())
	grad, rstd = c.In(acc, grad), c.Reshaped(c.In(acc, rstd), kept)
	norm, scaled := c.Make(ir.OpMul, nil, c.In(acc, x), rstd), c.weighted(acc, grad)
	along := c.Over(ir.OpMean, c.Make(ir.OpMul, nil, scaled, norm), true, dims...)
	dx := c.Make(ir.OpMul, nil, c.Make(ir.OpSub, nil, scaled, c.Make(ir.OpMul, nil, norm, along)), rstd)
	return c.normGradients([]*ir.Value{dx, c.Make(ir.OpMul, nil, grad, norm)}, outerDims(len(kept)-len(row)))
}

// outerDims are the first n dimensions.
func outerDims(n int) (dims []int64) {
	for d := range n {
		dims = append(dims, int64(d))
	}
	return dims
}
