package fx

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
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
	v, ok := c.num(param)
	if !ok {
		c.want(param, "a number", c.arg(param))
	}
	f, _ := v.AsFloat()
	return f
}

// channels is a tensor of one number for each channel, in the type of sums, as it
// broadcasts against rank dimensions.
func (c *call) channels(param string, acc ir.DType, rank int) *ir.Value {
	v := c.in(acc, c.tensor(param))
	shape := slices.Repeat([]int64{1}, rank)
	shape[1] = count(static(v))
	return c.shaped(v, shape...)
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
	mean = c.over(ir.OpMean, x, true, dims...)
	away := c.make(ir.OpSub, nil, x, mean)
	variance = c.over(ir.OpMean, c.make(ir.OpMul, nil, away, away), true, dims...)
	rstd = c.make(ir.OpRsqrt, nil, c.with(ir.OpAdd, variance, eps))
	return c.make(ir.OpMul, nil, away, rstd), mean, variance, rstd
}

// affine is y times weight plus bias, which are one number for each channel, where given.
func (c *call) affine(y *ir.Value, acc ir.DType, rank int) *ir.Value {
	if c.isTensor("weight") {
		y = c.make(ir.OpMul, nil, y, c.channels("weight", acc, rank))
	}
	if c.isTensor("bias") {
		y = c.make(ir.OpAdd, nil, y, c.channels("bias", acc, rank))
	}
	return y
}

// batchNorm gives the normalised tensor, and the statistics of the batch in training: empty
// ones otherwise. The functional form gives the new running statistics, too.
func batchNorm(functional bool) func(c *call) error {
	return func(c *call) error {
		x := c.tensor("input")
		eps := c.floatArg("eps")
		if c.err != nil {
			return c.err
		}
		rank, running := x.Type().Rank(), c.isTensor("running_mean") && c.isTensor("running_var")
		train := slices.Contains(c.params, "training") && c.bool("training", false)
		ts, err := c.types()
		if c.err != nil || err != nil {
			return cmp.Or(c.err, err)
		}
		if rank < 2 || len(ts) < 3 || train && running && !functional || !train && !running || functional && !running || slices.Contains(static(x), 0) {
			return errForm
		}
		acc := accType(x.Type().DType())
		wide := c.in(acc, x)
		if !train {
			away := c.make(ir.OpSub, nil, wide, c.channels("running_mean", acc, rank))
			rstd := c.make(ir.OpRsqrt, nil, c.with(ir.OpAdd, c.channels("running_var", acc, rank), eps))
			out := []*ir.Value{c.affine(c.make(ir.OpMul, nil, away, rstd), acc, rank)}
			for k := 1; k < 3; k++ {
				out = append(out, c.filled(attr.Int(0), ts[k].DType(), sizesOf(ts[k])...))
			}
			if functional {
				out = append(out, c.make(ir.OpClone, nil, c.tensor("running_mean")), c.make(ir.OpClone, nil, c.tensor("running_var")))
			}
			return c.settle(out...)
		}
		y, mean, variance, rstd := c.standardised(wide, eps, others(rank)...)
		n := sizeAt(x, 1)
		out := []*ir.Value{c.affine(y, acc, rank), c.shaped(mean, n), c.shaped(rstd, n)}
		if functional {
			rate := c.floatArg("momentum")
			elems := float64(count(static(x)) / n)
			variance = c.with(ir.OpMul, variance, elems/max(elems-1, 1))
			for _, p := range []struct {
				name string
				now  *ir.Value
			}{{"running_mean", mean}, {"running_var", variance}} {
				old := c.in(acc, c.tensor(p.name))
				out = append(out, c.make(ir.OpAdd, nil, c.with(ir.OpMul, c.shaped(p.now, n), rate), c.with(ir.OpMul, old, 1-rate)))
			}
		}
		return c.settle(out...)
	}
}

// asked settles those of three gradients that output_mask asks for.
func (c *call) asked(grads ...func() *ir.Value) error {
	var out []*ir.Value
	var items []int
	for i, yes := range c.mask("output_mask", 3) {
		if yes {
			out, items = append(out, grads[i]()), append(items, i)
		}
	}
	if c.err != nil {
		return c.err
	}
	if len(out) == 0 {
		return errForm
	}
	c.im.nodes[c.i].items = items
	return c.settle(out...)
}

func batchNormBackward(c *call) error {
	dy, x := c.tensor("grad_out"), c.tensor("input")
	eps, train := c.floatArg("eps"), c.bool("train", false)
	if c.err != nil {
		return c.err
	}
	rank := x.Type().Rank()
	if rank < 2 || slices.Contains(static(x), 0) || !train && !(c.isTensor("running_mean") && c.isTensor("running_var")) {
		return errForm
	}
	acc, n, dims := accType(x.Type().DType()), sizeAt(x, 1), others(rank)
	dy, x = c.in(acc, dy), c.in(acc, x)
	var mean, rstd *ir.Value
	if train {
		mean, rstd = c.channels("save_mean", acc, rank), c.channels("save_invstd", acc, rank)
	} else {
		mean = c.channels("running_mean", acc, rank)
		rstd = c.make(ir.OpRsqrt, nil, c.with(ir.OpAdd, c.channels("running_var", acc, rank), eps))
	}
	norm := c.make(ir.OpMul, nil, c.make(ir.OpSub, nil, x, mean), rstd)
	sum := c.over(ir.OpSum, dy, true, dims...)
	dot := c.over(ir.OpSum, c.make(ir.OpMul, nil, dy, norm), true, dims...)
	return c.asked(func() *ir.Value {
		scale := rstd
		if c.isTensor("weight") {
			scale = c.make(ir.OpMul, nil, rstd, c.channels("weight", acc, rank))
		}
		g := dy
		if train {
			elems := float64(count(static(x)) / n)
			g = c.make(ir.OpSub, nil, g, c.with(ir.OpDiv, sum, elems))
			g = c.make(ir.OpSub, nil, g, c.make(ir.OpMul, nil, norm, c.with(ir.OpDiv, dot, elems)))
		}
		return c.make(ir.OpMul, nil, g, scale)
	}, func() *ir.Value { return c.shaped(dot, n) }, func() *ir.Value { return c.shaped(sum, n) })
}

// grouped reads the sizes of a group norm and checks that they are x's.
func (c *call) grouped(x *ir.Value) (batch, channels, inner, groups int64) {
	batch, channels, inner, groups = c.need("N"), c.need("C"), c.need("HxW"), c.need("group")
	if c.err == nil && (groups < 1 || batch < 1 || channels < 1 || inner < 1 || channels%groups != 0 || x.Type().Rank() < 2 ||
		count(static(x)) == 0 || sizeAt(x, 0) != batch || sizeAt(x, 1) != channels || count(static(x))/batch/channels != inner) {
		c.err = errForm
	}
	return batch, channels, inner, groups
}

func groupNorm(c *call) error {
	x := c.tensor("input")
	eps := c.floatArg("eps")
	if c.err != nil {
		return c.err
	}
	batch, channels, inner, groups := c.grouped(x)
	if c.err != nil {
		return c.err
	}
	acc, shape := accType(x.Type().DType()), static(x)
	y, mean, _, rstd := c.standardised(c.shaped(c.in(acc, x), batch, groups, channels/groups*inner), eps, 2)
	y = c.affine(c.shaped(y, shape...), acc, len(shape))
	return c.settle(y, c.shaped(mean, batch, groups), c.shaped(rstd, batch, groups))
}

func groupNormBackward(c *call) error {
	dy, x := c.tensor("grad_out"), c.tensor("input")
	if c.err != nil {
		return c.err
	}
	batch, channels, inner, groups := c.grouped(x)
	if c.err != nil {
		return c.err
	}
	acc, shape := accType(x.Type().DType()), static(x)
	part := []int64{batch, groups, channels / groups, inner}
	mean, rstd := c.shaped(c.in(acc, c.tensor("mean")), batch, groups, 1, 1), c.shaped(c.in(acc, c.tensor("rstd")), batch, groups, 1, 1)
	dy = c.shaped(c.in(acc, dy), part...)
	norm := c.make(ir.OpMul, nil, c.make(ir.OpSub, nil, c.shaped(c.in(acc, x), part...), mean), rstd)
	return c.asked(func() *ir.Value {
		g := dy
		if c.isTensor("weight") {
			g = c.make(ir.OpMul, nil, g, c.shaped(c.in(acc, c.tensor("weight")), 1, groups, channels/groups, 1))
		}
		a := c.over(ir.OpMean, g, true, 2, 3)
		b := c.over(ir.OpMean, c.make(ir.OpMul, nil, g, norm), true, 2, 3)
		g = c.make(ir.OpSub, nil, c.make(ir.OpSub, nil, g, a), c.make(ir.OpMul, nil, norm, b))
		return c.shaped(c.make(ir.OpMul, nil, g, rstd), shape...)
	}, func() *ir.Value {
		return c.shaped(c.over(ir.OpSum, c.make(ir.OpMul, nil, dy, norm), false, 0, 3), channels)
	}, func() *ir.Value { return c.shaped(c.over(ir.OpSum, dy, false, 0, 3), channels) })
}
