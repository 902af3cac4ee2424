package stablehlo

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// irs are values of the current stage.
func (im *importer) irs(in []*value) ([]*ir.Value, error) {
	out := make([]*ir.Value, len(in))
	for i, v := range in {
		var err error
		if out[i], err = im.ir(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// one makes the result of a rule of a value.
func (im *importer) one(v *ir.Value, err error) ([]*value, error) {
	if err != nil {
		return nil, err
	}
	return []*value{im.value(v)}, nil
}

// dtypeOf is the element type of a value of the IR.
func dtypeOf(v *ir.Value) ir.DType { return v.Type().DType() }

// binaryOf appends an operation on two values.
func (im *importer) binaryOf(o ir.Op, a, b *ir.Value) (*ir.Value, error) {
	return im.emit(o, nil, []*ir.Value{a, b})
}

// scalarOf appends an operation on a value and a number.
func (im *importer) scalarOf(o ir.Op, a *ir.Value, c float64) (*ir.Value, error) {
	return im.emit(o, ir.A("scalar", c), []*ir.Value{a})
}

// where appends a choice.
func (im *importer) where(cond, a, b *ir.Value) (*ir.Value, error) {
	return im.emit(ir.OpWhere, nil, []*ir.Value{cond, a, b})
}

// converted is a value in another element type.
func (im *importer) converted(v *ir.Value, dt ir.DType) (*ir.Value, error) {
	if dtypeOf(v) == dt {
		return v, nil
	}
	if dtypeOf(v) == ir.F64 && dt.IsFloat() && dt.Size() < 4 {
		if v = decompose.Halfway(im.cur, v); im.failed != nil {
			return nil, im.check()
		}
	}
	return im.emit(ir.OpConvert, nil, []*ir.Value{v}, ir.TensorOf(dt, v.Type().Shape()))
}

// alike checks that operands have one type: StableHLO's operations do not broadcast. In a body
// that is computed on whole tensors, constants are single numbers.
func (im *importer) alike(args []*ir.Value) error {
	for _, a := range args[1:] {
		if dtypeOf(a) != dtypeOf(args[0]) {
			return im.errorf("%s of %s and %s", im.op.Name, dtypeOf(args[0]), dtypeOf(a))
		}
		if !im.vector && strings.HasPrefix(im.op.Name, "stablehlo.") && !slices.Equal(sizes(a), sizes(args[0])) {
			return im.errorf("%s of %s and %s: want one shape, which broadcast_in_dim gives", im.op.Name, typeOf(args[0]), typeOf(a))
		}
	}
	return nil
}

// ofFloats are operations that integers do not have, though the IR's may round them.
var ofFloats = []ir.Op{ir.OpExp, ir.OpExpm1, ir.OpLog, ir.OpLog1p, ir.OpSqrt, ir.OpRsqrt, ir.OpCbrt, ir.OpSigmoid, ir.OpTanh, ir.OpSin, ir.OpCos, ir.OpTan, ir.OpFloor,
	ir.OpCeil, ir.OpRound, ir.OpAtan2, ir.OpAsin, ir.OpAcos, ir.OpAtan, ir.OpSinh, ir.OpCosh, ir.OpAsinh, ir.OpAcosh, ir.OpAtanh, ir.OpErf, ir.OpErfc}

// elementwise imports an operation that is one of concert's.
func elementwise(o ir.Op) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
		args, err := im.irs(in)
		if err != nil {
			return nil, err
		}
		if err := im.alike(args); err != nil {
			return nil, err
		}
		if dt := dtypeOf(args[0]); slices.Contains(ofFloats, o) && !dt.IsFloat() {
			return nil, im.errorf("%s of %s, want floats", im.op.Name, dt)
		}
		return im.one(im.arith(o, args))
	}
}

// arith appends an operation with the meaning that StableHLO gives it for the type.
func (im *importer) arith(o ir.Op, args []*ir.Value) (*ir.Value, error) {
	dt := dtypeOf(args[0])
	if b, ok := ofBool[o]; ok && dt == ir.Bool {
		o = b
	}
	if o == ir.OpDiv && dt.IsInt() {
		o = ir.OpTruncDivide
	}
	return im.emit(o, nil, args)
}

func constantOp(im *importer, o *mlir.Operation, _ []*value) ([]*value, error) {
	a, ok := o.Attr("value")
	if !ok && len(o.Flags) > 0 {
		a = o.Flags[len(o.Flags)-1]
	}
	if !ok && len(o.Flags) == 0 {
		return nil, im.errorf("%s without a value, dense<...> : tensor<...>", o.Name)
	}
	v, err := im.decoded(a)
	if err != nil {
		return nil, err
	}
	return []*value{v}, nil
}

// decoded is the value of a constant, which is read once however often it is used.
func (im *importer) decoded(a mlir.Attr) (*value, error) {
	if v := im.literals[a.Start]; v != nil {
		return v, nil
	}
	l, err := im.m.Decode(a)
	if err != nil {
		return nil, err
	}
	im.literals[a.Start] = literalValue(l)
	return im.literals[a.Start], nil
}

// literalValue is a value that is a constant.
func literalValue(l *mlir.Literal) *value {
	return &value{typ: mlir.Type{Tensor: true, Elem: mlir.ElementName(l.DType), Shape: l.Shape}, lit: l}
}

func convert(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	args, dt, err := im.typedArgs(in)
	if err != nil {
		return nil, err
	}
	x := args[0]
	if bits := 8 * dt.Size(); dtypeOf(x).IsFloat() && dt.IsInt() && bits < 32 { // what is too large becomes the nearest number, as in 32 bits
		low, high := int64(-1)<<(bits-1), int64(1)<<(bits-1)-1
		if dt.IsUnsigned() {
			low, high = 0, int64(1)<<bits-1
		}
		if x, err = im.converted(x, ir.I32); err != nil {
			return nil, err
		}
		if x, err = im.emit(ir.OpClamp, ir.A("min", low, "max", high), []*ir.Value{x}); err != nil {
			return nil, err
		}
	}
	return im.one(im.converted(x, dt))
}

func compare(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	ops := map[string]ir.Op{"EQ": ir.OpEq, "NE": ir.OpNe, "LT": ir.OpLt, "LE": ir.OpLe, "GT": ir.OpGt, "GE": ir.OpGe}
	dir := im.enum("comparison_direction", 0)
	c, ok := ops[dir]
	if !ok {
		return nil, im.errorf("compare by %q: want EQ, NE, LT, LE, GT or GE", dir)
	}
	if err := im.alike(args); err != nil {
		return nil, err
	}
	switch kind := im.enum("compare_type", 1); kind {
	case "", "NOTYPE", "SIGNED", "UNSIGNED", "FLOAT":
	case "TOTALORDER":
		for i, a := range args {
			if dtypeOf(a).IsFloat() {
				args[i] = decompose.TotalKey(im.cur, a)
			}
		}
	default:
		return nil, im.errorf("compare of type %s", kind)
	}
	return im.one(im.binaryOf(c, args[0], args[1]))
}

func selectOp(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	if dt := dtypeOf(args[0]); dt != ir.Bool {
		return nil, im.errorf("%s by %s, want truth values", im.op.Name, dt)
	}
	if err := im.alike(args[1:]); err != nil {
		return nil, err
	}
	return im.one(im.where(args[0], args[1], args[2]))
}

func clamp(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	for _, a := range []*ir.Value{args[0], args[2]} {
		if dt := dtypeOf(args[1]); dtypeOf(a) != dt || len(sizes(a)) != 0 && !slices.Equal(sizes(a), sizes(args[1])) {
			return nil, im.errorf("clamp of %s by %s: want a limit of that type, or one number", typeOf(args[1]), typeOf(a))
		}
	}
	x, err := im.binaryOf(ir.OpMaximum, args[1], args[0])
	if err != nil {
		return nil, err
	}
	return im.one(im.binaryOf(ir.OpMinimum, x, args[2]))
}

func square(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	x, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	return im.one(im.binaryOf(ir.OpMul, x, x))
}

// sign keeps NaN and the sign of zero, which the IR's operation makes 0.
func sign(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	x, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	s, err := im.emit(ir.OpSign, nil, []*ir.Value{x})
	if err != nil || !dtypeOf(x).IsFloat() {
		return im.one(s, err)
	}
	abs, err := im.emit(ir.OpAbs, nil, []*ir.Value{x})
	if err != nil {
		return nil, err
	}
	some, err := im.scalarOf(ir.OpGt, abs, 0)
	if err != nil {
		return nil, err
	}
	return im.one(im.where(some, s, x))
}

// roundAway rounds halves away from zero: the fraction, which is exact, decides.
func roundAway(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	x, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	t, err := im.emit(ir.OpTrunc, nil, []*ir.Value{x})
	if err != nil {
		return nil, err
	}
	f, err := im.binaryOf(ir.OpSub, x, t)
	if err != nil {
		return nil, err
	}
	if f, err = im.emit(ir.OpAbs, nil, []*ir.Value{f}); err != nil {
		return nil, err
	}
	half, err := im.scalarOf(ir.OpGe, f, 0.5)
	if err != nil {
		return nil, err
	}
	s, err := im.emit(ir.OpSign, nil, []*ir.Value{x})
	if err != nil {
		return nil, err
	}
	up, err := im.binaryOf(ir.OpAdd, t, s)
	if err != nil {
		return nil, err
	}
	return im.one(im.where(half, up, t))
}

func isFinite(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	x, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	if !dtypeOf(x).IsFloat() {
		return nil, im.errorf("%s of %s", im.op.Name, dtypeOf(x))
	}
	if x, err = im.emit(ir.OpAbs, nil, []*ir.Value{x}); err != nil {
		return nil, err
	}
	return im.one(im.scalarOf(ir.OpLe, x, dtypeOf(x).Largest()))
}

// signed are integer types, by their unsigned counterparts.
var signed = map[ir.DType]ir.DType{ir.U8: ir.I8, ir.U16: ir.I16, ir.U32: ir.I32, ir.U64: ir.I64}

// shiftRight shifts copies of the sign in, or zeros: conversion between integers of one
// width keeps their bits.
func shiftRight(logical bool) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
		args, err := im.irs(in)
		if err != nil {
			return nil, err
		}
		if err := im.alike(args); err != nil {
			return nil, err
		}
		dt := dtypeOf(args[0])
		as := dt
		for u, s := range signed {
			if logical && dt == s {
				as = u
			} else if !logical && dt == u {
				as = s
			}
		}
		for i := range args {
			if args[i], err = im.converted(args[i], as); err != nil {
				return nil, err
			}
		}
		x, err := im.binaryOf(ir.OpShiftRight, args[0], args[1])
		if err != nil {
			return nil, err
		}
		return im.one(im.converted(x, dt))
	}
}

func same(_ *importer, _ *mlir.Operation, in []*value) ([]*value, error) { return in, nil }

// maxParts bounds the values in a tuple, and in those that it is of.
const maxParts = 1 << 16

func tuple(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	t := &value{tuple: append([]*value{}, in...), parts: len(in)}
	for _, v := range in {
		t.typ.Tuple, t.parts = append(t.typ.Tuple, v.typ), t.parts+v.parts
	}
	if t.parts > maxParts {
		return nil, im.errorf("a tuple of more than %d values", maxParts)
	}
	return []*value{t}, nil
}

func element(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	i, err := im.ints("index")
	if err != nil {
		return nil, err
	}
	if a, ok := o.Attr("ranges"); ok && len(a.List) == 1 {
		if i, err = im.m.Ints(a.List[0]); err != nil {
			return nil, err
		}
	}
	if len(i) != 1 || i[0] < 0 || i[0] >= int64(len(in[0].tuple)) {
		return nil, im.errorf("there is no element %v in a value of type %s", i, in[0].typ)
	}
	return []*value{in[0].tuple[i[0]]}, nil
}

func token(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return []*value{{typ: mlir.Type{Text: "!stablehlo.token"}}}, nil
}

// target is the function that a symbol names.
func (im *importer) target(a mlir.Attr) (*mlir.Func, error) {
	if f := im.m.Func(a.Text); a.Kind == mlir.KindSymbol && f != nil {
		return f, nil
	}
	return nil, im.errorf("there is no function @%s", a.Text)
}

// callee is the function that a call names.
func (im *importer) callee(o *mlir.Operation) (*mlir.Func, error) {
	a, ok := o.Attr("callee")
	if !ok && len(o.Flags) > 0 {
		a = o.Flags[0]
	}
	return im.target(a)
}

func callOp(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	f, err := im.callee(o)
	if err != nil {
		return nil, err
	}
	if im.global != nil {
		defer im.global.Call(o)()
	}
	return im.call(f, in)
}

func composite(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	a, _ := o.Attr("decomposition")
	f, err := im.target(a)
	if err != nil {
		return nil, err
	}
	return im.call(f, in)
}
