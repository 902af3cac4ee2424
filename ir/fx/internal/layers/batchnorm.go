package layers

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// batchNormOps are the norms with statistics of channels, over the batch or over groups.
// Forms that change running statistics in place are not among them: exporters write the
// functional one.
var batchNormOps = []row{
	{"aten._native_batch_norm_legit_no_training.default", "input weight bias running_mean running_var momentum eps", batchNorm(false)},
	{"aten._native_batch_norm_legit.no_stats", "input weight bias training momentum eps", batchNorm(false)},
	{"aten._native_batch_norm_legit.default aten.native_batch_norm.default", "input weight bias running_mean running_var training momentum eps", batchNorm(false)},
	{"aten._native_batch_norm_legit_functional.default", "input weight bias running_mean running_var training momentum eps", batchNorm(true)},
	{"aten.native_batch_norm_backward.default", "grad_out input weight running_mean running_var save_mean save_invstd train eps output_mask", batchNormBackward},
	{"aten.native_group_norm.default", "input weight bias N C HxW group eps", groupNorm},
	{"aten.native_group_norm_backward.default", "grad_out input mean rstd weight N C HxW group output_mask", groupNormBackward},
}

// floatArg is a number argument.
func (c *call) floatArg(param string) float64 {
	v, ok := c.Num(param)
	if !ok {
		c.Want(param, "a number", c.Arg(param))
	}
	f, _ := v.AsFloat()
	return f
}

// channels is a tensor of one number for each channel, in the type of sums, as it
// broadcasts against rank dimensions.
func (c *call) channels(param string, acc ir.DType, rank int) *ir.Value {
	v := c.In(acc, c.Tensor(param))
	shape := slices.Repeat(ir.Dims(1), rank)
	shape[1] = v.Type().Shape().NumElems()
	return c.Reshaped(v, shape)
}

// others are all dimensions but that of the channels.
func others(rank int) []int64 {
	out := []int64{0}
	for d := 2; d < rank; d++ {
		out = append(out, int64(d))
	}
	return out
}

// standardised is x without its mean over dims, over its standard deviation, with what they
// are; the variance, too.
func (c *call) standardised(x *ir.Value, eps float64, dims ...int64) (y, mean, variance, rstd *ir.Value) {
	mean = c.Over(ir.OpMean, x, true, dims...)
	away := c.Make(ir.OpSub, nil, x, mean)
	variance = c.Over(ir.OpMean, c.Make(ir.OpMul, nil, away, away), true, dims...)
	rstd = c.Make(ir.OpRsqrt, nil, c.With(ir.OpAdd, variance, eps))
	return c.Make(ir.OpMul, nil, away, rstd), mean, variance, rstd
}

// affine is y times weight plus bias, which are one number for each channel, where given.
func (c *call) affine(y *ir.Value, acc ir.DType, rank int) *ir.Value {
	if c.IsTensor("weight") {
		y = c.Make(ir.OpMul, nil, y, c.channels("weight", acc, rank))
	}
	if c.IsTensor("bias") {
		y = c.Make(ir.OpAdd, nil, y, c.channels("bias", acc, rank))
	}
	return y
}

// each is how many elements of x a channel has.
func (c *call) each(x *ir.Value) ir.Dim {
	s := x.Type().Shape()
	return slices.Concat(s[:1], s[2:]).NumElems()
}

// batchNorm gives the normalised tensor, and the statistics of the batch in training: empty
// ones otherwise. The functional form gives the new running statistics, too.
func batchNorm(functional bool) func(c *call) error {
	return func(c *call) error {
		x := c.Tensor("input")
		eps := c.floatArg("eps")
		if c.Err != nil {
			return c.Err
		}
		rank, running := x.Type().Rank(), c.IsTensor("running_mean") && c.IsTensor("running_var")
		train := slices.Contains(c.Params, "training") && c.Bool("training", false)
		ts, err := c.Types()
		if c.Err != nil || err != nil {
			return cmp.Or(c.Err, err)
		}
		if rank < 2 || len(ts) < 3 || train && running && !functional || !train && !running || functional && !running || traced.Empty(x) {
			return traced.ErrForm
		}
		acc := traced.AccType(x.Type().DType())
		wide := c.In(acc, x)
		if !train {
			away := c.Make(ir.OpSub, nil, wide, c.channels("running_mean", acc, rank))
			rstd := c.Make(ir.OpRsqrt, nil, c.With(ir.OpAdd, c.channels("running_var", acc, rank), eps))
			out := []*ir.Value{c.affine(c.Make(ir.OpMul, nil, away, rstd), acc, rank)}
			for k := 1; k < 3; k++ {
				out = append(out, c.Full(attr.Int(0), ts[k].DType(), ts[k].Shape()))
			}
			if functional {
				out = append(out, c.Make(ir.OpClone, nil, c.Tensor("running_mean")), c.Make(ir.OpClone, nil, c.Tensor("running_var")))
			}
			return c.Settle(out...)
		}
		y, mean, variance, rstd := c.standardised(wide, eps, others(rank)...)
		n := x.Type().Shape()[1:2]
		out := []*ir.Value{c.affine(y, acc, rank), c.Reshaped(mean, n), c.Reshaped(rstd, n)}
		if functional {
			rate := c.floatArg("momentum")
			if elems, ok := c.each(x).Const(); ok {
				variance = c.With(ir.OpMul, variance, float64(elems)/max(float64(elems)-1, 1))
			} else {
				elems := c.In(ir.F64, c.Counted(c.each(x)))
				factor := c.Make(ir.OpDiv, nil, elems, c.With(ir.OpMaximum, c.With(ir.OpSub, elems, 1), 1))
				variance = c.Mul(variance, c.In(acc, factor))
			}
			for _, p := range []struct {
				name string
				now  *ir.Value
			}{{"running_mean", mean}, {"running_var", variance}} {
				old := c.In(acc, c.Tensor(p.name))
				out = append(out, c.Make(ir.OpAdd, nil, c.With(ir.OpMul, c.Reshaped(p.now, n), rate), c.With(ir.OpMul, old, 1-rate)))
			}
		}
		return c.Settle(out...)
	}
}

// asked settles those of three gradients that output_mask asks for.
func (c *call) asked(grads ...func() *ir.Value) error {
	var out []*ir.Value
	var items []int
	for i, yes := range c.Mask("output_mask", 3) {
		if yes {
			out, items = append(out, grads[i]()), append(items, i)
		}
	}
	if c.Err != nil {
		return c.Err
	}
	if len(out) == 0 {
		return traced.ErrForm
	}
	c.Items = items
	return c.Settle(out...)
}

func batchNormBackward(c *call) error {
	dy, x := c.Tensor("grad_out"), c.Tensor("input")
	eps, train := c.floatArg("eps"), c.Bool("train", false)
	if c.Err != nil {
		return c.Err
	}
	rank := x.Type().Rank()
	if rank < 2 || traced.Empty(x) || !train && !(c.IsTensor("running_mean") && c.IsTensor("running_var")) {
		return traced.ErrForm
	}
	acc, n, dims := traced.AccType(x.Type().DType()), x.Type().Shape()[1:2], others(rank)
	dy, x = c.In(acc, dy), c.In(acc, x)
	var mean, rstd *ir.Value
	if train {
		mean, rstd = c.channels("save_mean", acc, rank), c.channels("save_invstd", acc, rank)
	} else {
		mean = c.channels("running_mean", acc, rank)
		rstd = c.Make(ir.OpRsqrt, nil, c.With(ir.OpAdd, c.channels("running_var", acc, rank), eps))
	}
	norm := c.Make(ir.OpMul, nil, c.Make(ir.OpSub, nil, x, mean), rstd)
	sum := c.Over(ir.OpSum, dy, true, dims...)
	dot := c.Over(ir.OpSum, c.Make(ir.OpMul, nil, dy, norm), true, dims...)
	return c.asked(func() *ir.Value {
		scale := rstd
		if c.IsTensor("weight") {
			scale = c.Make(ir.OpMul, nil, rstd, c.channels("weight", acc, rank))
		}
		g := dy
		if train {
			g = c.Make(ir.OpSub, nil, g, c.By(ir.OpDiv, sum, c.each(x)))
			g = c.Make(ir.OpSub, nil, g, c.Make(ir.OpMul, nil, norm, c.By(ir.OpDiv, dot, c.each(x))))
		}
		return c.Make(ir.OpMul, nil, g, scale)
	}, func() *ir.Value { return c.Reshaped(dot, n) }, func() *ir.Value { return c.Reshaped(sum, n) })
}

// grouped reads the sizes of a group norm and checks that they are x's.
func (c *call) grouped(x *ir.Value) (batch ir.Dim, channels, groups int64, inner ir.Dim) {
	sizes := slices.Concat(c.Sizes("N"), c.Sizes("C"), c.Sizes("HxW"))
	if groups = c.Need("group"); c.Err != nil {
		return
	}
	if len(sizes) != 3 || x.Type().Rank() < 2 {
		c.Err = traced.ErrForm
		return
	}
	batch, channels, inner = sizes[0], traced.Constant(sizes[1]), sizes[2]
	s := x.Type().Shape()
	if groups < 1 || channels < 1 || channels%groups != 0 || traced.Empty(x) || !s[:2].Equal(sizes[:2]) || !s[2:].NumElems().Equal(inner) {
		c.Err = traced.ErrForm
	}
	return batch, channels, groups, inner
}

func groupNorm(c *call) error {
	x := c.Tensor("input")
	eps := c.floatArg("eps")
	if c.Err != nil {
		return c.Err
	}
	batch, channels, groups, inner := c.grouped(x)
	if c.Err != nil {
		return c.Err
	}
	acc, shape := traced.AccType(x.Type().DType()), x.Type().Shape()
	y, mean, _, rstd := c.standardised(c.Reshaped(c.In(acc, x), ir.Shape{batch, ir.D(groups), inner.Mul(ir.D(channels / groups))}), eps, 2)
	y = c.affine(c.Reshaped(y, shape), acc, len(shape))
	each := ir.Shape{batch, ir.D(groups)}
	return c.Settle(y, c.Reshaped(mean, each), c.Reshaped(rstd, each))
}

func groupNormBackward(c *call) error {
	dy, x := c.Tensor("grad_out"), c.Tensor("input")
	if c.Err != nil {
		return c.Err
	}
	batch, channels, groups, inner := c.grouped(x)
	if c.Err != nil {
		return c.Err
	}
	acc, shape := traced.AccType(x.Type().DType()), x.Type().Shape()
	part, each := ir.Shape{batch, ir.D(groups), ir.D(channels / groups), inner}, ir.Shape{batch, ir.D(groups), ir.D(1), ir.D(1)}
	mean, rstd := c.Reshaped(c.In(acc, c.Tensor("mean")), each), c.Reshaped(c.In(acc, c.Tensor("rstd")), each)
	dy = c.Reshaped(c.In(acc, dy), part)
	norm := c.Make(ir.OpMul, nil, c.Make(ir.OpSub, nil, c.Reshaped(c.In(acc, x), part), mean), rstd)
	return c.asked(func() *ir.Value {
		g := dy
		if c.IsTensor("weight") {
			g = c.Make(ir.OpMul, nil, g, c.Shaped(c.In(acc, c.Tensor("weight")), 1, groups, channels/groups, 1))
		}
		a := c.Over(ir.OpMean, g, true, 2, 3)
		b := c.Over(ir.OpMean, c.Make(ir.OpMul, nil, g, norm), true, 2, 3)
		g = c.Make(ir.OpSub, nil, c.Make(ir.OpSub, nil, g, a), c.Make(ir.OpMul, nil, norm, b))
		return c.Reshaped(c.Make(ir.OpMul, nil, g, rstd), shape)
	}, func() *ir.Value {
		return c.Shaped(c.Over(ir.OpSum, c.Make(ir.OpMul, nil, dy, norm), false, 0, 3), channels)
	}, func() *ir.Value { return c.Shaped(c.Over(ir.OpSum, dy, false, 0, 3), channels) })
}
