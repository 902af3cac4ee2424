package layers

import (
	"cmp"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// layerOps are parts of layers: gates, weights with a norm of their own, and rounding while
// a quantised model is trained.
var layerOps = []row{
	{"aten.glu.default", "self dim", glu},
	{"aten.glu_backward.default", "grad_output self dim", gluBackward},
	{"aten.hardshrink_backward.default aten.softshrink_backward.default", "grad self lambd", shrinkBackward},
	{"aten._weight_norm_interface.default", "v g dim", weightNorm},
	{"aten._weight_norm_interface_backward.default", "grad_w v g norms dim", weightNormBackward},
	{"aten.fake_quantize_per_tensor_affine_cachemask.default", "self scale zero_point quant_min quant_max", fakeQuantize},
	{"aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", "self scale zero_point enabled quant_min quant_max", fakeQuantize},
	{"aten.fake_quantize_per_channel_affine_cachemask.default quantized_decomposed.fake_quant_per_channel.default", "self scale zero_point axis quant_min quant_max", fakeQuantize},
}

// halves are those of self along dim, which is split by GLU, and that dimension.
func (c *call) halves() (a, b *ir.Value, d int64, err error) {
	x, d, err := c.SelfAlong(-1)
	if err != nil {
		return nil, nil, 0, err
	}
	n := traced.SizeAt(x, d)
	if n%2 != 0 {
		return nil, nil, 0, traced.ErrForm
	}
	x = c.In(traced.AccType(x.Type().DType()), x)
	return c.Slice(x, int(d), 0, n/2), c.Slice(x, int(d), n/2, n), d, c.Err
}

// glu is the first half under a gate of the second one.
func glu(c *call) error {
	a, b, _, err := c.halves()
	if err != nil {
		return err
	}
	return c.Settle(c.Mul(a, c.Make(ir.OpSigmoid, nil, b)))
}

func gluBackward(c *call) error {
	a, b, d, err := c.halves()
	if err != nil {
		return err
	}
	dy := c.Tensor("grad_output")
	if c.Err != nil {
		return c.Err
	}
	dy = c.In(a.Type().DType(), dy)
	gate := c.Make(ir.OpSigmoid, nil, b)
	open := c.Mul(dy, gate)
	return c.Settle(c.Make(ir.OpCat, traced.DimAttr(d), open, c.Mul(open, c.Rest(gate), a)))
}

// shrinkBackward lets gradients of elements through that are not within lambd of zero.
func shrinkBackward(c *call) error {
	dy, x := c.Tensor("grad"), c.Tensor("self")
	l, ok := c.Num("lambd")
	if c.Err != nil || !ok {
		return cmp.Or(c.Err, traced.ErrForm)
	}
	f, _ := l.AsFloat()
	f = x.Type().DType().Rounded(f)
	within := c.Make(ir.OpLogicalAnd, nil, c.With(ir.OpGe, x, -f), c.With(ir.OpLe, x, f))
	return c.Settle(c.Make(ir.OpWhere, nil, within, c.Filled(attr.Int(0), dy.Type().DType()), dy))
}

// normed reads a weight's direction and the dimension that has norms of its own: all others
// are in dims.
func (c *call) normed() (v *ir.Value, dims []int64) {
	v = c.Tensor("v")
	if c.Err != nil {
		return nil, nil
	}
	rank := v.Type().Rank()
	d := c.Dim("dim", 0, rank)
	if rank < 2 || !v.Type().DType().IsFloat() {
		c.Err = traced.ErrForm
	}
	for k := range int64(rank) {
		if k != d {
			dims = append(dims, k)
		}
	}
	return c.In(traced.AccType(v.Type().DType()), v), dims
}

// weightNorm is g v/|v|, and |v|.
func weightNorm(c *call) error {
	v, dims := c.normed()
	g := c.Tensor("g")
	if c.Err != nil {
		return c.Err
	}
	norms := c.Make(ir.OpSqrt, nil, c.Over(ir.OpSum, c.Mul(v, v), true, dims...))
	w := c.Mul(v, c.Make(ir.OpDiv, nil, c.In(v.Type().DType(), g), norms))
	return c.Settle(w, norms)
}

func weightNormBackward(c *call) error {
	v, dims := c.normed()
	dw, g, norms := c.Tensor("grad_w"), c.Tensor("g"), c.Tensor("norms")
	if c.Err != nil {
		return c.Err
	}
	acc := v.Type().DType()
	dw, g, norms = c.In(acc, dw), c.In(acc, g), c.In(acc, norms)
	along := c.Make(ir.OpDiv, nil, c.Over(ir.OpSum, c.Mul(dw, v), true, dims...), norms)
	dv := c.Mul(c.Make(ir.OpDiv, nil, g, norms), c.Sub(dw, c.Mul(v, c.Make(ir.OpDiv, nil, along, norms))))
	return c.Settle(dv, along)
}

// fakeQuantize rounds to multiples of a scale, of which as many are left as an integer
// counts, and says which elements are within.
func fakeQuantize(c *call) error {
	x, dims := c.Tensor("self"), 0
	low, high := c.Need("quant_min"), c.Need("quant_max")
	if c.Err != nil {
		return c.Err
	}
	acc := traced.AccType(x.Type().DType())
	if c.Arg("axis") != nil {
		dims = x.Type().Rank() - 1 - int(c.Dim("axis", 0, x.Type().Rank()))
	}
	param := func(name string) *ir.Value {
		if !c.IsTensor(name) {
			v, ok := c.Num(name)
			if !ok {
				c.Want(name, "a tensor or a number", c.Arg(name))
			}
			f, _ := v.AsFloat()
			return c.Filled(attr.Float(f), acc)
		}
		p := c.In(acc, c.Tensor(name))
		for range dims {
			p = c.Unsqueezed(p, int64(p.Type().Rank()))
		}
		return p
	}
	scale, zero := param("scale"), param("zero_point")
	if c.Err != nil {
		return c.Err
	}
	if !x.Type().DType().IsFloat() || low > high || low < -1<<24 || high > 1<<24 {
		return traced.ErrForm
	}
	y := c.In(acc, x)
	at := c.Add(c.Make(ir.OpRound, nil, c.Mul(y, c.Make(ir.OpReciprocal, nil, scale))), zero)
	within := c.Make(ir.OpLogicalAnd, nil, c.With(ir.OpGe, at, float64(low)), c.With(ir.OpLe, at, float64(high)))
	if strings.HasPrefix(c.Operator, "aten.") { // what is no number becomes the least one
		at = c.Make(ir.OpWhere, nil, c.With(ir.OpGe, at, float64(low)), at, c.Filled(attr.Int(low), acc))
	}
	at = c.Make(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: attr.Int(high)}, attr.Attr{Key: "min", Val: attr.Int(low)}), at)
	y = c.In(x.Type().DType(), c.Mul(c.Sub(at, zero), scale))
	if c.IsTensor("enabled") {
		off := c.With(ir.OpEq, c.Tensor("enabled"), 0)
		y, within = c.Make(ir.OpWhere, nil, off, x, y), c.Make(ir.OpLogicalOr, nil, off, within)
	}
	if c.NumResults == 1 {
		return c.Settle(y)
	}
	return c.Settle(y, within)
}
