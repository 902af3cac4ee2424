package aten

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
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
	{"prims.convert_element_type.default quantized_decomposed.convert_element_type.no_fuse", "self dtype", convert},
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
	{"aten.addcmul.default", "self tensor1 tensor2 value", addScaled(ir.OpMul)},
	{"aten.addcdiv.default", "self tensor1 tensor2 value", addScaled(ir.OpDiv)},
	{"aten.lerp.Scalar aten.lerp.Tensor", "self end weight", lerp},
}

func unary(op ir.Op) func(c *call) error {
	return func(c *call) error { return c.EmitErr(op, nil, c.Tensor("self")) }
}

func gelu(c *call) error {
	x := c.Tensor("self")
	switch c.StrOr("approximate", "none") {
	case "none":
		return c.EmitErr(ir.OpGelu, nil, x)
	case "tanh":
		return c.EmitErr(ir.OpGelu, attr.Make(attr.Attr{Key: "approximate", Val: attr.String("tanh")}), x)
	}
	return traced.ErrForm
}

// divide imports a quotient that is rounded to an integer.
func divide(c *call) error {
	switch c.StrOr("rounding_mode", "") {
	case "floor":
		return binary(ir.OpFloorDivide, "self", "other")(c)
	case "trunc":
		if ts, err := c.Types(); err == nil && len(ts) == 1 && ts[0].DType().IsFloat() && ts[0].DType().Size() < 4 && c.IsTensor("self") && c.IsTensor("other") {
			a, b := c.Tensor("self"), c.Tensor("other") // PyTorch rounds the quotient to their type first
			if c.Err != nil {
				return c.Err
			}
			return c.EmitErr(ir.OpTrunc, nil, c.Make(ir.OpDiv, nil, a, b))
		}
		return binary(ir.OpTruncDivide, "self", "other")(c)
	case "":
		return binary(ir.OpDiv, "self", "other")(c)
	}
	return traced.ErrForm
}

func square(c *call) error {
	x := c.Tensor("self")
	return c.EmitErr(ir.OpMul, nil, x, x)
}

// convert changes the element type; a _to_copy without one is a clone.
func convert(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	to := x.Type().DType()
	if v := c.Arg("dtype"); v != nil {
		if v.Kind != pytext.DType {
			c.Want("dtype", "an element type", v)
			return c.Err
		}
		to = v.DType
	}
	if c.NumResults == 1 {
		name, _ := c.Trace.Declared(0)
		if dt, ok := pytext.ParseDType(name); ok && dt != to {
			return c.Fail("out", "type", "result 0 has element type %s, the arguments give %s", name, pytext.DTypeName(to))
		}
	}
	switch {
	case c.Class == ir.ClassView && to == x.Type().DType():
		return c.EmitErr(ir.OpAlias, nil, x)
	case c.Arg("dtype") == nil:
		return c.EmitErr(ir.OpClone, nil, x)
	}
	return c.EmitErr(ir.OpConvert, nil, x)
}

// bitcast reads the bits of a tensor as another type of the same width. It is no view here:
// storages hold one element type.
func bitcast(c *call) error {
	x, to := c.Tensor("self"), c.Arg("dtype")
	switch {
	case c.Err != nil:
		return c.Err
	case to == nil || to.Kind != pytext.DType || to.DType.Size() != x.Type().DType().Size():
		return traced.ErrForm
	case to.DType == x.Type().DType():
		return c.EmitErr(ir.OpAlias, nil, x)
	}
	return c.EmitErr(ir.OpBitcast, nil, x)
}

func clamp(c *call) error {
	x := c.Tensor("self")
	var l attr.List
	for _, key := range []string{"min", "max"} {
		if v := c.Arg(key); v != nil && c.Trace.Open(v) {
			return c.clampOpen(x)
		}
		if c.IsTensor(key) {
			return traced.ErrForm
		}
		if v, ok := c.Num(key); ok {
			if f, _ := v.AsFloat(); f != f { // nothing lies within
				return c.Settle(c.Full(v, x.Type().DType(), x.Type().Shape()))
			}
			l = l.With(key, v)
		}
	}
	return c.EmitErr(ir.OpClamp, l, x)
}

// clampOpen is clamp by bounds of which one at least is a size.
func (c *call) clampOpen(x *ir.Value) error {
	for _, p := range []struct {
		name string
		op   ir.Op
	}{{"min", ir.OpMaximum}, {"max", ir.OpMinimum}} {
		if c.IsTensor(p.name) {
			x = c.Make(p.op, nil, x, c.In(x.Type().DType(), c.Tensor(p.name)))
		} else if v, ok := c.Num(p.name); ok {
			x = c.Make(p.op, traced.Scalar(v), x)
		}
	}
	if c.Err != nil {
		return c.Err
	}
	return c.Settle(x)
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
		if slices.Contains(c.Params, "alpha") {
			alpha, has = c.Num("alpha")
		}
		if f, _ := alpha.AsFloat(); has && f != 1 {
			l = l.With("alpha", alpha)
		}
		ta, tb := c.IsTensor(a), c.IsTensor(b)
		switch {
		case ta && tb:
			x, y := c.Tensor(a), c.Tensor(b)
			if c.Err != nil {
				return c.Err
			}
			t, err := c.Trace.TypeOf(0)
			if err != nil {
				return err
			}
			if dt := common(x, y); kindOf(dt) == 2 || !t.DType().IsFloat() { // else numbers become floats of the result's type
				x, y = c.rounded(dt, x), c.rounded(dt, y)
			}
			return c.EmitErr(op, l, x, y)
		case ta:
			s, ok := c.Num(b)
			if !ok {
				c.Want(b, "a tensor or a number", c.Arg(b))
			}
			x := c.Tensor(a)
			if c.Err != nil {
				return c.Err
			}
			return c.EmitErr(op, l.With("scalar", asElement(op, s, x.Type().DType())), x)
		case !tb:
			c.Want(a, "a tensor", c.Arg(a))
			return c.Err
		}
		s, ok := c.Num(a)
		if !ok {
			c.Want(a, "a tensor or a number", c.Arg(a))
		}
		switch {
		case c.Err != nil:
			return c.Err
		case len(l) > 0: // the factor is the tensor's
			return c.scaled(op, l, s, c.Tensor(b))
		case slices.ContainsFunc(op.Info().Attrs, func(s ir.AttrSpec) bool { return s.Key == "reverse" }):
			l = l.With("reverse", attr.Bool(true))
		case !commutes(op):
			return traced.ErrForm
		}
		x := c.Tensor(b)
		if c.Err != nil {
			return c.Err
		}
		return c.EmitErr(op, l.With("scalar", asElement(op, s, x.Type().DType())), x)
	}
}

// kindOf orders types by what they promote: bool, integers, floats.
func kindOf(dt ir.DType) int {
	switch {
	case dt == ir.Bool:
		return 0
	case dt.IsFloat():
		return 2
	}
	return 1
}

// common is the type to which PyTorch converts both operands before it computes: of the higher kind,
// those that have dimensions before those that have none. Where they are two floats or two integers
// of which neither holds the other, it is a third: 0, for nothing is lost then.
func common(x, y *ir.Value) ir.DType {
	a, b := x.Type().DType(), y.Type().DType()
	if ka, kb := kindOf(a), kindOf(b); ka != kb {
		if ka > kb {
			return a
		}
		return b
	}
	if da, db := x.Type().Rank() > 0, y.Type().Rank() > 0; da != db {
		if da {
			return a
		}
		return b
	}
	switch {
	case holds(a, b):
		return a
	case holds(b, a):
		return b
	}
	return ir.DType(0)
}

// holds reports whether every number of type b is one of type a.
func holds(a, b ir.DType) bool {
	switch {
	case a == b || b == ir.Bool:
		return true
	case a.IsFloat() && b.IsFloat():
		return a.Size() > b.Size() && a.Size() > 2 || a.Size() == 2 && b.Size() == 1
	case a.IsFloat():
		return b.Size() == 1 && a.Size() > 1 || b.Size() < a.Size() && a.Size() >= 4
	case b.IsFloat() || a == ir.Bool:
		return false
	}
	return a.Size() > b.Size() && (!a.IsUnsigned() || b.IsUnsigned())
}

// rounded is x as PyTorch has it when it computes in type dt: of that type, where numbers of x are not.
func (c *call) rounded(dt ir.DType, x *ir.Value) *ir.Value {
	from := x.Type().DType()
	if dt == ir.DType(0) || holds(dt, from) || kindOf(from) == 1 && dt.IsFloat() && dt.Size() >= 4 { // in which it is computed anyway
		return x
	}
	return c.In(dt, x)
}

// asElement is a number beside a tensor as PyTorch has it: for comparisons and remainders of narrow
// floats one of them, and modulo the range of unsigned integers.
func asElement(op ir.Op, s attr.Value, dt ir.DType) attr.Value {
	f, ok := s.AsFloat()
	switch op {
	case ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe, ir.OpRemainder, ir.OpFmod:
		if ok && (dt == ir.BF16 || dt == ir.F16) {
			return attr.Float(dt.Rounded(f))
		}
	}
	if i, whole := s.AsInt(); whole && i < 0 && dt.IsUnsigned() && dt.Size() < 8 {
		return attr.Int(i & (1<<(8*dt.Size()) - 1))
	}
	return s
}

// scaled imports an operation of a number and a multiple of a tensor, whose results are rounded once.
func (c *call) scaled(op ir.Op, alpha attr.List, number attr.Value, x *ir.Value) error {
	t, err := c.Trace.TypeOf(0)
	if err != nil {
		return err
	}
	within := t.DType()
	if within == ir.BF16 || within == ir.F16 {
		within = ir.F32
	}
	return c.Settle(c.In(t.DType(), c.Make(op, alpha, c.Filled(number, within), c.In(within, x))))
}

// where imports a choice; numbers become scalar tensors of the result's type.
func where(c *call) error {
	cond := c.Tensor("condition")
	var args []*ir.Value
	for _, p := range []string{"self", "other"} {
		if c.IsTensor(p) {
			args = append(args, c.Tensor(p))
			continue
		}
		v, ok := c.Num(p)
		if !ok {
			c.Want(p, "a tensor or a number", c.Arg(p))
		}
		if c.Err != nil || c.NumResults != 1 {
			break
		}
		t, err := c.Trace.TypeOf(0)
		if err != nil {
			return err
		}
		args = append(args, c.Helper(ir.OpFull, attr.List(nil).With("value", v), ir.Tensor(t.DType())))
	}
	return c.EmitErr(ir.OpWhere, nil, append([]*ir.Value{cond}, args...)...)
}

// fma imports a*b + c.
func fma(c *call) error {
	return c.EmitErr(ir.OpFma, nil, c.Tensor("a"), c.Tensor("b"), c.Tensor("c"))
}

// addScaled adds a multiple of a product or quotient, as optimizers do.
func addScaled(op ir.Op) func(c *call) error {
	return func(c *call) error {
		x, a, b := c.Tensor("self"), c.Tensor("tensor1"), c.Tensor("tensor2")
		if c.IsTensor("value") {
			return traced.ErrForm
		}
		ts, err := c.Types()
		times := c.numOr("value", 1)
		switch {
		case err != nil || c.Err != nil:
			return cmp.Or(c.Err, err)
		case op == ir.OpMul && times == 1:
			return c.EmitErr(ir.OpFma, nil, a, b, x)
		case !ts[0].DType().IsFloat() && (op != ir.OpMul || times != math.Trunc(times)):
			return traced.ErrForm
		}
		acc := traced.AccType(ts[0].DType())
		if a = c.In(acc, a); times != 1 {
			a = c.With(ir.OpMul, a, times)
		}
		return c.Settle(c.Add(c.In(acc, x), c.Make(op, nil, a, c.In(acc, b))))
	}
}

// lerp goes from one value to another by a weight; near the other it comes from there.
func lerp(c *call) error {
	x, end := c.Tensor("self"), c.Tensor("end")
	ts, err := c.Types()
	if err != nil || c.Err != nil {
		return cmp.Or(c.Err, err)
	}
	acc := traced.AccType(ts[0].DType())
	var weight *ir.Value
	if c.IsTensor("weight") {
		weight = c.In(acc, c.Tensor("weight"))
	} else {
		weight = c.Filled(attr.Float(c.numOr("weight", 0)), acc)
	}
	x, end = c.In(acc, x), c.In(acc, end)
	way := c.Sub(end, x)
	near := c.With(ir.OpLt, c.Make(ir.OpAbs, nil, weight), 0.5)
	rest := c.With(ir.OpAdd, c.Make(ir.OpNeg, nil, weight), 1)
	return c.Settle(c.Make(ir.OpWhere, nil, near, c.Add(x, c.Mul(weight, way)), c.Sub(end, c.Mul(way, rest))))
}
