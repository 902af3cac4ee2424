package fx

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// layerOps are parts of layers: gates, weights with a norm of their own, and rounding while
// a quantised model is trained.
var layerOps = []row{
	{"aten.glu.default", "self dim", glu},
	{"aten.glu_backward.default", "grad_output self dim", gluBackward},
	{"aten._weight_norm_interface.default", "v g dim", weightNorm},
	{"aten._weight_norm_interface_backward.default", "grad_w v g norms dim", weightNormBackward},
	{"aten.fake_quantize_per_tensor_affine_cachemask.default", "self scale zero_point quant_min quant_max", fakeQuantize},
	{"aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", "self scale zero_point enabled quant_min quant_max", fakeQuantize},
	{"aten.fake_quantize_per_channel_affine_cachemask.default", "self scale zero_point axis quant_min quant_max", fakeQuantize},
}

// halves are those of self along dim, which is split by GLU, and that dimension.
func (c *call) halves() (a, b *ir.Value, d int64, err error) {
	x, d, err := c.selfAlong(-1)
	if err != nil {
		return nil, nil, 0, err
	}
	n := sizeAt(x, d)
	if n%2 != 0 {
		return nil, nil, 0, errForm
	}
	x = c.in(accType(x.Type().DType()), x)
	return c.slice(x, int(d), 0, n/2), c.slice(x, int(d), n/2, n), d, c.err
}

// glu is the first half under a gate of the second one.
func glu(c *call) error {
	a, b, _, err := c.halves()
	if err != nil {
		return err
	}
	return c.settle(c.mul(a, c.make(ir.OpSigmoid, nil, b)))
}

func gluBackward(c *call) error {
	a, b, d, err := c.halves()
	if err != nil {
		return err
	}
	dy := c.tensor("grad_output")
	if c.err != nil {
		return c.err
	}
	dy = c.in(a.Type().DType(), dy)
	gate := c.make(ir.OpSigmoid, nil, b)
	open := c.mul(dy, gate)
	return c.settle(c.make(ir.OpCat, dimAttr(d), open, c.mul(open, c.rest(gate), a)))
}

// normed reads a weight's direction and the dimension that has norms of its own: all others
// are in dims.
func (c *call) normed() (v *ir.Value, dims []int64) {
	v = c.tensor("v")
	if c.err != nil {
		return nil, nil
	}
	rank := v.Type().Rank()
	d := c.dim("dim", 0, rank)
	if rank < 2 || !v.Type().DType().IsFloat() {
		c.err = errForm
	}
	for k := range int64(rank) {
		if k != d {
			dims = append(dims, k)
		}
	}
	return c.in(accType(v.Type().DType()), v), dims
}

// weightNorm is g v/|v|, and |v|.
func weightNorm(c *call) error {
	v, dims := c.normed()
	g := c.tensor("g")
	if c.err != nil {
		return c.err
	}
	norms := c.make(ir.OpSqrt, nil, c.over(ir.OpSum, c.mul(v, v), true, dims...))
	w := c.mul(v, c.make(ir.OpDiv, nil, c.in(v.Type().DType(), g), norms))
	return c.settle(w, norms)
}

func weightNormBackward(c *call) error {
	v, dims := c.normed()
	dw, g, norms := c.tensor("grad_w"), c.tensor("g"), c.tensor("norms")
	if c.err != nil {
		return c.err
	}
	acc := v.Type().DType()
	dw, g, norms = c.in(acc, dw), c.in(acc, g), c.in(acc, norms)
	along := c.make(ir.OpDiv, nil, c.over(ir.OpSum, c.mul(dw, v), true, dims...), norms)
	dv := c.mul(c.make(ir.OpDiv, nil, g, norms), c.sub(dw, c.mul(v, c.make(ir.OpDiv, nil, along, norms))))
	return c.settle(dv, along)
}

// fakeQuantize rounds to multiples of a scale, of which as many are left as an integer
// counts, and says which elements are within.
func fakeQuantize(c *call) error {
	x, dims := c.tensor("self"), 0
	low, high := c.need("quant_min"), c.need("quant_max")
	if c.err != nil {
		return c.err
	}
	acc := accType(x.Type().DType())
	if c.arg("axis") != nil {
		dims = x.Type().Rank() - 1 - int(c.dim("axis", 0, x.Type().Rank()))
	}
	param := func(name string) *ir.Value {
		if !c.isTensor(name) {
			v, ok := c.num(name)
			if !ok {
				c.want(name, "a tensor or a number", c.arg(name))
			}
			f, _ := v.AsFloat()
			return c.filled(attr.Float(f), acc)
		}
		p := c.in(acc, c.tensor(name))
		for range dims {
			p = c.unsqueezed(p, int64(p.Type().Rank()))
		}
		return p
	}
	scale, zero := param("scale"), param("zero_point")
	if c.err != nil {
		return c.err
	}
	if !x.Type().DType().IsFloat() || low > high || low < -1<<24 || high > 1<<24 {
		return errForm
	}
	y := c.in(acc, x)
	at := c.add(c.make(ir.OpRound, nil, c.mul(y, c.make(ir.OpReciprocal, nil, scale))), zero)
	within := c.make(ir.OpLogicalAnd, nil, c.with(ir.OpGe, at, float64(low)), c.with(ir.OpLe, at, float64(high)))
	at = c.make(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: attr.Int(high)}, attr.Attr{Key: "min", Val: attr.Int(low)}), at)
	y = c.in(x.Type().DType(), c.mul(c.sub(at, zero), scale))
	if c.isTensor("enabled") {
		off := c.with(ir.OpEq, c.tensor("enabled"), 0)
		y, within = c.make(ir.OpWhere, nil, off, x, y), c.make(ir.OpLogicalOr, nil, off, within)
	}
	return c.settle(y, within)
}
