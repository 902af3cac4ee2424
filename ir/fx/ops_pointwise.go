package fx

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// pointwiseOps are the elementwise operators. Those of the lists are named as their ops.
var pointwiseOps = slices.Concat(
	alike("aten.%[1]s.default", "self", unary,
		ir.OpNeg, ir.OpExp, ir.OpLog, ir.OpSqrt, ir.OpRsqrt, ir.OpReciprocal, ir.OpAbs, ir.OpSigmoid, ir.OpTanh,
		ir.OpRelu, ir.OpSilu, ir.OpSin, ir.OpCos, ir.OpFloor, ir.OpCeil, ir.OpRound, ir.OpTrunc, ir.OpSign, ir.OpErf,
		ir.OpErfc, ir.OpExp2, ir.OpExpm1, ir.OpLog2, ir.OpLog10, ir.OpLog1p, ir.OpTan, ir.OpAsin, ir.OpAcos,
		ir.OpAtan, ir.OpSinh, ir.OpCosh, ir.OpAsinh, ir.OpAcosh, ir.OpAtanh, ir.OpLogicalNot, ir.OpBitwiseNot),
	alike("aten.%[1]s.default", "self other", ofTwo, ir.OpAtan2, ir.OpLogicalAnd, ir.OpLogicalOr),
	alike("aten.%[1]s.Tensor aten.%[1]s.Scalar", "self other", ofTwo,
		ir.OpMul, ir.OpFmod, ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe, ir.OpBitwiseAnd, ir.OpBitwiseOr,
		ir.OpBitwiseXor),
	pointwiseRows)

// alike makes a row for each op, whose name is in its targets.
func alike(targets, signature string, build func(op ir.Op) func(c *call) error, ops ...ir.Op) []row {
	var out []row
	for _, op := range ops {
		out = append(out, row{fmt.Sprintf(targets, op.Name()), signature, build(op)})
	}
	return out
}

func ofTwo(op ir.Op) func(c *call) error { return binary(op, "self", "other") }

var pointwiseRows = []row{
	{"aten.gelu.default", "self approximate", gelu},
	{"aten.square.default", "self", square},
	{"prims.convert_element_type.default", "self dtype", convert},
	{"aten._to_copy.default", "self * dtype", convert},
	{"aten.to.dtype", "self dtype non_blocking copy memory_format", convert},
	{"aten.view.dtype", "self dtype", bitcast},
	{"aten.clamp.default", "self min max", clamp},
	{"aten.clamp_min.default", "self min", clamp},
	{"aten.clamp_max.default", "self max", clamp},

	{"aten.add.Tensor aten.add.Scalar", "self other alpha", binary(ir.OpAdd, "self", "other")},
	{"aten.sub.Tensor aten.sub.Scalar", "self other alpha", binary(ir.OpSub, "self", "other")},
	{"aten.rsub.Tensor aten.rsub.Scalar", "self other alpha", binary(ir.OpSub, "other", "self")},
	{"aten.div.Tensor aten.div.Scalar aten.true_divide.Tensor", "self other", binary(ir.OpDiv, "self", "other")},
	{"aten.div.Tensor_mode aten.div.Scalar_mode", "self other * rounding_mode", divide},
	{"aten.floor_divide.default aten.floor_divide.Scalar", "self other", binary(ir.OpFloorDivide, "self", "other")},
	{"aten.remainder.Tensor aten.remainder.Scalar aten.remainder.Scalar_Tensor", "self other", binary(ir.OpRemainder, "self", "other")},
	{"aten.pow.Tensor_Scalar aten.pow.Tensor_Tensor aten.pow.Scalar", "self exponent", binary(ir.OpPow, "self", "exponent")},
	{"aten.maximum.default aten.max.other", "self other", binary(ir.OpMaximum, "self", "other")},
	{"aten.minimum.default aten.min.other", "self other", binary(ir.OpMinimum, "self", "other")},
	{"aten.bitwise_left_shift.Tensor aten.bitwise_left_shift.Tensor_Scalar aten.bitwise_left_shift.Scalar_Tensor aten.__lshift__.Tensor aten.__lshift__.Scalar", "self other", binary(ir.OpShiftLeft, "self", "other")},
	{"aten.bitwise_right_shift.Tensor aten.bitwise_right_shift.Tensor_Scalar aten.bitwise_right_shift.Scalar_Tensor aten.__rshift__.Tensor aten.__rshift__.Scalar", "self other", binary(ir.OpShiftRight, "self", "other")},

	{"aten.where.self aten.where.ScalarSelf aten.where.ScalarOther", "condition self other", where},
	{"aten.masked_fill.Scalar aten.masked_fill.Tensor", "other condition self", where},
	{"prims.fma.default", "a b c", fma},
	{"aten.addcmul.default", "c a b * value", fma},
}

// emitErr adds the node unless reading its arguments failed.
func (c *call) emitErr(op ir.Op, attrs attr.List, args ...*ir.Value) error {
	if c.err != nil {
		return c.err
	}
	_, err := c.emit(op, attrs, nil, args...)
	return err
}

func unary(op ir.Op) func(c *call) error {
	return func(c *call) error { return c.emitErr(op, nil, c.tensor("self")) }
}

func gelu(c *call) error {
	x := c.tensor("self")
	switch c.strOr("approximate", "none") {
	case "none":
		return c.emitErr(ir.OpGelu, nil, x)
	case "tanh":
		return c.emitErr(ir.OpGelu, attr.Make(attr.Attr{Key: "approximate", Val: attr.String("tanh")}), x)
	}
	return errForm
}

// divide imports a quotient that is rounded to an integer.
func divide(c *call) error {
	switch c.strOr("rounding_mode", "") {
	case "floor":
		return binary(ir.OpFloorDivide, "self", "other")(c)
	case "trunc":
		return binary(ir.OpTruncDivide, "self", "other")(c)
	case "":
		return binary(ir.OpDiv, "self", "other")(c)
	}
	return errForm
}

func square(c *call) error {
	x := c.tensor("self")
	return c.emitErr(ir.OpMul, nil, x, x)
}

// convert changes the element type; a _to_copy without one is a clone.
func convert(c *call) error {
	x := c.tensor("self")
	if c.err != nil {
		return c.err
	}
	to := x.Type().DType()
	if v := c.arg("dtype"); v != nil {
		if v.kind != pyDType {
			c.want("dtype", "an element type", v)
			return c.err
		}
		to = v.dt
	}
	if len(c.n.Out) == 1 {
		if dt, ok := parseDType(c.n.Out[0].DType); ok && dt != to {
			return c.fail("out", "type", "result 0 has element type %s, the arguments give %s", c.n.Out[0].DType, torchDType(to))
		}
	}
	switch {
	case c.n.Kind == KindView && to == x.Type().DType():
		return c.emitErr(ir.OpAlias, nil, x)
	case c.arg("dtype") == nil:
		return c.emitErr(ir.OpClone, nil, x)
	}
	return c.emitErr(ir.OpConvert, nil, x)
}

// bitcast reads the bits of a tensor as another type of the same width. It is no view here:
// storages hold one element type.
func bitcast(c *call) error {
	x, to := c.tensor("self"), c.arg("dtype")
	switch {
	case c.err != nil:
		return c.err
	case to == nil || to.kind != pyDType || to.dt.Size() != x.Type().DType().Size():
		return errForm
	case to.dt == x.Type().DType():
		return c.emitErr(ir.OpAlias, nil, x)
	}
	return c.emitErr(ir.OpBitcast, nil, x)
}

func clamp(c *call) error {
	x := c.tensor("self")
	var l attr.List
	for _, key := range []string{"min", "max"} {
		if c.isTensor(key) {
			return errForm
		}
		if v, ok := c.num(key); ok {
			l = l.With(key, v)
		}
	}
	return c.emitErr(ir.OpClamp, l, x)
}

// commutes lists the binary ops whose scalar may come first.
func commutes(op ir.Op) bool {
	switch op {
	case ir.OpAdd, ir.OpMul, ir.OpMaximum, ir.OpMinimum, ir.OpEq, ir.OpNe, ir.OpLogicalAnd, ir.OpLogicalOr, ir.OpBitwiseAnd, ir.OpBitwiseOr, ir.OpBitwiseXor:
		return true
	}
	return false
}

// binary imports op(a, b), where one of them may be a number.
func binary(op ir.Op, a, b string) func(c *call) error {
	return func(c *call) error {
		var l attr.List
		alpha, has := attr.Value{}, false
		if slices.Contains(c.params, "alpha") {
			alpha, has = c.num("alpha")
		}
		if f, _ := alpha.AsFloat(); has && f != 1 {
			l = l.With("alpha", alpha)
		}
		ta, tb := c.isTensor(a), c.isTensor(b)
		switch {
		case ta && tb:
			return c.emitErr(op, l, c.tensor(a), c.tensor(b))
		case ta:
			s, ok := c.num(b)
			if !ok {
				c.want(b, "a tensor or a number", c.arg(b))
			}
			return c.emitErr(op, l.With("scalar", s), c.tensor(a))
		case !tb:
			c.want(a, "a tensor", c.arg(a))
			return c.err
		}
		s, ok := c.num(a)
		if !ok {
			c.want(a, "a tensor or a number", c.arg(a))
		}
		switch {
		case c.err != nil:
			return c.err
		case len(l) > 0: // the factor would fall on the wrong operand
			return errForm
		case slices.ContainsFunc(op.Info().Attrs, func(s ir.AttrSpec) bool { return s.Key == "reverse" }):
			l = l.With("reverse", attr.Bool(true))
		case !commutes(op):
			return errForm
		}
		return c.emitErr(op, l.With("scalar", s), c.tensor(b))
	}
}

// where imports a choice; numbers become scalar tensors of the result's type.
func where(c *call) error {
	cond := c.tensor("condition")
	var args []*ir.Value
	for _, p := range []string{"self", "other"} {
		if c.isTensor(p) {
			args = append(args, c.tensor(p))
			continue
		}
		v, ok := c.num(p)
		if !ok {
			c.want(p, "a tensor or a number", c.arg(p))
		}
		if c.err != nil || len(c.n.Out) != 1 {
			break
		}
		t, err := c.tensorType(0)
		if err != nil {
			return err
		}
		args = append(args, c.helper(ir.OpFull, attr.List(nil).With("value", v), ir.Tensor(t.DType())))
	}
	return c.emitErr(ir.OpWhere, nil, append([]*ir.Value{cond}, args...)...)
}

// fma imports a*b + c.
func fma(c *call) error {
	if slices.Contains(c.params, "value") {
		if v, ok := c.num("value"); ok {
			if f, _ := v.AsFloat(); f != 1 {
				return errForm
			}
		}
	}
	return c.emitErr(ir.OpFma, nil, c.tensor("a"), c.tensor("b"), c.tensor("c"))
}
