package training

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// quantizedOps are what quantisation of exported programs leaves of its layers: numbers of few
// bits with a scale and a zero, of the whole tensor, of each place along an axis (a channel), of
// each line along the last dimension (a token), or of each group of elements in such a line.
// Arithmetic is in the types that PyTorch promotes to, so that each step rounds as there.
var quantizedOps = []row{
	{"quantized_decomposed.quantize_per_tensor.default quantized_decomposed.quantize_per_tensor.tensor quantized_decomposed.quantize_per_tensor.tensor2",
		"input scale zero_point quant_min quant_max dtype", quantize(wholeTensor)},
	{"quantized_decomposed.dequantize_per_tensor.default quantized_decomposed.dequantize_per_tensor.tensor quantized_decomposed.dequantize_per_tensor.tensor2",
		"input scale zero_point quant_min quant_max dtype * out_dtype", dequantize(wholeTensor)},
	{"quantized_decomposed.quantize_per_channel.default", "input scale zero_point axis quant_min quant_max dtype", quantize(eachChannel)},
	{"quantized_decomposed.dequantize_per_channel.default", "input scale zero_point axis quant_min quant_max dtype * out_dtype", dequantize(eachChannel)},
	{"quantized_decomposed.quantize_per_token.default", "input scale zero_point quant_min quant_max dtype", quantize(eachToken)},
	{"quantized_decomposed.dequantize_per_token.default", "input scale zero_point quant_min quant_max dtype output_dtype", dequantize(eachToken)},
	{"quantized_decomposed.quantize_per_channel_group.default", "input scale zero_point quant_min quant_max dtype group_size", quantize(eachGroup)},
	{"quantized_decomposed.dequantize_per_channel_group.default", "input scale zero_point quant_min quant_max dtype group_size output_dtype", dequantize(eachGroup)},
	{"quantized_decomposed.choose_qparams_per_token.default", "input dtype", tokenScale},
	{"quantized_decomposed.choose_qparams_per_token_asymmetric.default quantized_decomposed._choose_qparams_per_token_asymmetric_impl.default", "input dtype", tokenRange},
	{"quantized_decomposed.choose_qparams.tensor", "input quant_min quant_max eps dtype", tensorRange(false)},
	{"quantized_decomposed.choose_qparams_symmetric.tensor", "input quant_min quant_max eps dtype", tensorRange(true)},
}

// grain says what shares a scale: it gives the operand in a shape to which scales and zeros,
// given as they are, broadcast in the shape that it gives too.
type grain func(c *call, x *ir.Value, scales ir.Shape) (*ir.Value, ir.Shape)

func wholeTensor(_ *call, x *ir.Value, _ ir.Shape) (*ir.Value, ir.Shape) { return x, nil }

func eachToken(_ *call, x *ir.Value, scales ir.Shape) (*ir.Value, ir.Shape) { return x, scales }

func eachChannel(c *call, x *ir.Value, scales ir.Shape) (*ir.Value, ir.Shape) {
	shape := slices.Clone(x.Type().Shape())
	d := c.Dim("axis", 0, len(shape))
	if c.Err != nil || !scales.NumElems().Equal(shape[d]) {
		return nil, nil
	}
	for k := range shape {
		if k != int(d) {
			shape[k] = ir.D(1)
		}
	}
	return x, shape
}

func eachGroup(c *call, x *ir.Value, scales ir.Shape) (*ir.Value, ir.Shape) {
	shape, n := x.Type().Shape(), c.Int("group_size", 128)
	if len(shape) != 2 {
		return nil, nil
	}
	wide := traced.Constant(shape[1])
	if len(scales) > 0 && n > wide && scales[len(scales)-1].Equal(ir.D(1)) {
		n = wide
	}
	if n < 1 || wide%n != 0 {
		return nil, nil
	}
	groups := shape[0].Mul(ir.D(wide / n))
	return c.Reshaped(x, ir.Shape{groups, ir.D(n)}), ir.Shape{groups, ir.D(1)}
}

// quantised reads the operand, in the types that PyTorch computes in, its scales and its zeros.
func (c *call) quantised(per grain) (x, scale, zero *ir.Value, err error) {
	x = c.Tensor("input")
	if c.Err != nil {
		return nil, nil, nil, c.Err
	}
	var scales ir.Shape
	if c.IsTensor("scale") {
		if s := c.Tensor("scale"); c.Err == nil {
			scales = s.Type().Shape()
		}
	}
	x, shape := per(c, x, scales)
	if x == nil || c.Err != nil {
		return nil, nil, nil, cmp.Or(c.Err, traced.ErrForm)
	}
	param := func(name string, number ir.DType) *ir.Value {
		if !c.IsTensor(name) {
			v, ok := c.Num(name)
			if !ok {
				if c.Arg(name) != nil {
					c.Want(name, "a tensor or a number", c.Arg(name))
				}
				return nil
			}
			return c.Filled(v, number)
		}
		return c.Reshaped(c.Tensor(name), shape)
	}
	scale, zero = param("scale", ir.F64), param("zero_point", ir.I64)
	if c.Err != nil || scale == nil {
		return nil, nil, nil, cmp.Or(c.Err, traced.ErrForm)
	}
	return x, scale, zero, nil
}

// promoted is the type of a sum or product of two tensors with dimensions, or of the second's
// number where it has none.
func promoted(a, b ir.DType) ir.DType {
	switch {
	case a.IsFloat() && !b.IsFloat():
		return a
	case b.IsFloat() && !a.IsFloat():
		return b
	case !a.IsFloat() && a != b: // uint8 and int8 have no larger one but this is enough for both
		return ir.I64
	case a.IsFloat() && a != b && a.Size() == b.Size():
		return ir.F32
	case a.Size() < b.Size():
		return b
	}
	return a
}

// joined is op of two tensors in the type that PyTorch promotes to.
func (c *call) joined(op ir.Op, a, b *ir.Value) *ir.Value {
	dt := promoted(a.Type().DType(), b.Type().DType())
	return c.Make(op, nil, c.In(dt, a), c.In(dt, b))
}

// bound reads a number that may be a tensor.
func (c *call) bound(op ir.Op, x *ir.Value, name string) *ir.Value {
	if c.IsTensor(name) {
		return c.Make(op, nil, x, c.In(x.Type().DType(), c.Tensor(name)))
	}
	v, ok := c.Num(name)
	if !ok {
		c.Want(name, "a tensor or a number", c.Arg(name))
		return x
	}
	f, _ := v.AsFloat()
	return c.With(op, x, f)
}

// quantize multiplies by the inverse of the scale, rounds, and keeps what the bounds allow. A scale
// of the whole tensor is a number, which takes the operand's type.
func quantize(per grain) func(c *call) error {
	return func(c *call) error {
		x, scale, zero, err := c.quantised(per)
		if err != nil {
			return err
		}
		if !x.Type().DType().IsFloat() || zero == nil {
			return traced.ErrForm
		}
		whole, early := scale.Type().Rank() == 0, c.Arg("axis") != nil
		if whole || early {
			x = c.In(traced.AccType(x.Type().DType()), x)
		}
		inverse := c.Make(ir.OpReciprocal, nil, scale)
		if whole {
			dt := x.Type().DType()
			inverse, zero, early = c.In(dt, inverse), c.In(dt, zero), true
		}
		y := c.joined(ir.OpMul, x, inverse)
		if early { // zeros are added after rounding
			y = c.joined(ir.OpAdd, c.Make(ir.OpRound, nil, y), zero)
		} else {
			y = c.Make(ir.OpRound, nil, c.joined(ir.OpAdd, y, zero))
		}
		y = c.bound(ir.OpMinimum, c.bound(ir.OpMaximum, y, "quant_min"), "quant_max")
		return c.quantizedAs(y)
	}
}

// dequantize takes the zero away and multiplies by the scale.
func dequantize(per grain) func(c *call) error {
	return func(c *call) error {
		x, scale, zero, err := c.quantised(per)
		if err != nil {
			return err
		}
		ts, err := c.Types()
		if err != nil {
			return err
		}
		if scale.Type().Rank() == 0 { // numbers, of more digits than narrow types hold
			x, scale = c.In(ts[0].DType(), x), c.In(traced.AccType(ts[0].DType()), scale)
			zero = c.In(ts[0].DType(), zero)
		}
		if zero != nil {
			x = c.joined(ir.OpSub, x, zero)
		}
		return c.quantizedAs(c.joined(ir.OpMul, x, scale))
	}
}

// quantizedAs gives the result its type and shape.
func (c *call) quantizedAs(y *ir.Value) error {
	ts, err := c.Types()
	if err = cmp.Or(c.Err, err); err != nil {
		return err
	}
	if len(ts) != 1 {
		return traced.ErrForm
	}
	y = c.In(ts[0].DType(), y)
	if shape := ts[0].Shape(); !y.Type().Shape().Equal(shape) {
		y = c.Reshaped(y, shape)
	}
	return c.Settle(y)
}

// tokenScale is what a line's largest magnitude makes of 127; zeros are 0.
func tokenScale(c *call) error {
	x := c.Tensor("input")
	if c.Err != nil {
		return c.Err
	}
	last := int64(x.Type().Rank() - 1)
	if last < 0 {
		return traced.ErrForm
	}
	most := c.Over(ir.OpAmax, c.Make(ir.OpAbs, nil, x), true, last)
	if most.Type().DType() == ir.F16 {
		most = c.In(ir.F32, most)
	}
	scale := c.With(ir.OpDiv, c.With(ir.OpMaximum, most, 1e-5), 127)
	return c.Settle(scale, c.Full(attr.Int(0), scale.Type().DType(), scale.Type().Shape()))
}

// tokenRange makes -128 and 127 of a line's smallest and largest elements, with 0 between them.
func tokenRange(c *call) error {
	x := c.Tensor("input")
	if c.Err != nil {
		return c.Err
	}
	last := int64(x.Type().Rank() - 1)
	if last < 0 {
		return traced.ErrForm
	}
	low := c.With(ir.OpMinimum, c.Over(ir.OpAmin, x, true, last), 0)
	high := c.With(ir.OpMaximum, c.Over(ir.OpAmax, x, true, last), 0)
	scale := c.With(ir.OpMaximum, c.With(ir.OpDiv, c.Sub(high, low), 255), 0x1p-23)
	low, high = c.Make(ir.OpDiv, nil, low, scale), c.Make(ir.OpDiv, nil, high, scale)
	above := c.With(ir.OpGt, c.Add(c.With(ir.OpAdd, low, -128), c.With(ir.OpAdd, high, 127)), 0)
	zero := c.Make(ir.OpWhere, nil, above, c.With(ir.OpSub, c.Make(ir.OpNeg, nil, low), 128), c.With(ir.OpAdd, c.Make(ir.OpNeg, nil, high), 127))
	zero = c.Make(ir.OpRound, nil, c.With(ir.OpMinimum, c.With(ir.OpMaximum, zero, -128), 127))
	return c.Settle(c.In(ir.F64, scale), c.In(ir.I64, zero))
}

// tensorRange makes the bounds of a tensor's smallest and largest elements, with 0 between them, or
// of the larger magnitude of both; the scale is eps at least. Only the quotient is in narrow types.
func tensorRange(symmetric bool) func(c *call) error {
	return func(c *call) error {
		x, low, high, eps := c.Tensor("input"), c.Need("quant_min"), c.Need("quant_max"), float64(float32(c.float("eps")))
		if c.Err != nil {
			return c.Err
		}
		least, most := c.With(ir.OpMinimum, c.Over(ir.OpAmin, x, false), 0), c.With(ir.OpMaximum, c.Over(ir.OpAmax, x, false), 0)
		var scale, zero *ir.Value
		if symmetric {
			scale = c.With(ir.OpDiv, c.Make(ir.OpMaximum, nil, c.Make(ir.OpNeg, nil, least), most), float64(high-low)/2)
			scale, zero = c.With(ir.OpMaximum, c.In(ir.F32, scale), eps), c.Filled(attr.Int(0), ir.I64)
			if v := c.Arg("dtype"); v != nil && v.DType == ir.U8 {
				zero = c.Filled(attr.Int(128), ir.I64)
			}
		} else {
			scale = c.With(ir.OpDiv, c.Sub(most, least), float64(high-low))
			scale = c.With(ir.OpMaximum, c.In(ir.F32, scale), eps)
			zero = c.In(ir.I64, c.Make(ir.OpRound, nil, c.Make(ir.OpDiv, nil, c.In(ir.F32, least), scale)))
			zero = c.With(ir.OpAdd, c.Make(ir.OpNeg, nil, zero), float64(low))
			zero = c.With(ir.OpMinimum, c.With(ir.OpMaximum, zero, float64(low)), float64(high))
		}
		return c.Settle(c.Shaped(c.In(ir.F64, scale), 1), c.Shaped(zero, 1))
	}
}
