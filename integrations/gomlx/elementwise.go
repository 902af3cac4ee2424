package gomlx

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapeinference"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

func (f *function) unary(op compute.OpType, text string, x compute.Value) (compute.Value, error) {
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	shape, err := shapeinference.UnaryOp(op, in[0].shape)
	if err != nil {
		return nil, err
	}
	return result(f.one(shape, "%s %s : %s", text, in[0].name, typeText(shape)))
}

// result is a value as GoMLX takes it: a nil pointer is no value.
func result(v *value, err error) (compute.Value, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (f *function) binary(op compute.OpType, text string, x, y compute.Value) (compute.Value, error) {
	defer f.n.sites.once()()
	in, err := f.values([]compute.Value{x, y})
	if err != nil {
		return nil, err
	}
	shape, err := shapeinference.BinaryOp(op, in[0].shape, in[1].shape)
	if err != nil {
		return nil, err
	}
	for i, v := range in {
		if in[i], err = f.spread(v, shape.Dimensions); err != nil {
			return nil, err
		}
	}
	return result(f.one(shape, "%s %s : %s", text, names(in), typeText(shape)))
}

// spread broadcasts a scalar, or dimensions of 1.
func (f *function) spread(v *value, dims []int) (*value, error) {
	to := shapes.Make(v.shape.DType, dims...)
	if v.shape.EqualDimensions(to) {
		return v, nil
	}
	axes := make([]int, v.shape.Rank())
	for i := range axes {
		axes[i] = i
	}
	return f.one(to, "stablehlo.broadcast_in_dim %s, dims = %s : (%s) -> %s", v.name, list(axes), typeText(v.shape), typeText(to))
}

func list(ints []int) string { return "[" + commas(ints) + "]" }

func commas(ints []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ints), " ", ", "), "[]")
}

// array is a list of numbers as an attribute of the generic form.
func array(ints []int) string {
	if len(ints) == 0 {
		return "array<i64>"
	}
	return "array<i64: " + commas(ints) + ">"
}

func (f *function) compare(op compute.OpType, direction string, total bool, x, y compute.Value) (compute.Value, error) {
	defer f.n.sites.once()()
	in, err := f.values([]compute.Value{x, y})
	if err != nil {
		return nil, err
	}
	if op == compute.OpTypeNotEqualTotalOrder { // shapeinference does not know it
		op = compute.OpTypeNotEqual
	}
	shape, err := shapeinference.ComparisonOp(op, in[0].shape, in[1].shape)
	if err != nil {
		return nil, err
	}
	for i, v := range in {
		if in[i], err = f.spread(v, shape.Dimensions); err != nil {
			return nil, err
		}
	}
	kind := ""
	switch dt := in[0].shape.DType; {
	case dt.IsFloat() && total:
		kind = ", TOTALORDER"
	case dt.IsFloat():
		kind = ", FLOAT"
	case dt.IsUnsigned() || dt == dtypes.Bool:
		kind = ", UNSIGNED"
	default:
		kind = ", SIGNED"
	}
	return result(f.one(shape, "stablehlo.compare %s, %s%s : (%s) -> %s", direction, names(in), kind, types(in), typeText(shape)))
}

func (f *function) Equal(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeEqual, "EQ", false, x, y)
}
func (f *function) NotEqual(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeNotEqual, "NE", false, x, y)
}
func (f *function) LessThan(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeLessThan, "LT", false, x, y)
}
func (f *function) LessOrEqual(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeLessOrEqual, "LE", false, x, y)
}
func (f *function) GreaterThan(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeGreaterThan, "GT", false, x, y)
}
func (f *function) GreaterOrEqual(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeGreaterOrEqual, "GE", false, x, y)
}
func (f *function) EqualTotalOrder(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeEqualTotalOrder, "EQ", true, x, y)
}
func (f *function) NotEqualTotalOrder(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeNotEqualTotalOrder, "NE", true, x, y)
}
func (f *function) LessThanTotalOrder(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeLessThanTotalOrder, "LT", true, x, y)
}
func (f *function) LessOrEqualTotalOrder(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeLessOrEqualTotalOrder, "LE", true, x, y)
}
func (f *function) GreaterThanTotalOrder(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeGreaterThanTotalOrder, "GT", true, x, y)
}
func (f *function) GreaterOrEqualTotalOrder(x, y compute.Value) (compute.Value, error) {
	return f.compare(compute.OpTypeGreaterOrEqualTotalOrder, "GE", true, x, y)
}

func (f *function) IsFinite(x compute.Value) (compute.Value, error) {
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	if !in[0].shape.DType.IsFloat() {
		return nil, errors.Errorf("concert: IsFinite of %s", in[0].shape)
	}
	out := in[0].shape.Clone()
	out.DType = dtypes.Bool
	return result(f.one(out, "stablehlo.is_finite %s : (%s) -> %s", in[0].name, types(in), typeText(out)))
}

func (f *function) IsNaN(x compute.Value) (compute.Value, error) { return f.NotEqual(x, x) }

func (f *function) ConvertDType(x compute.Value, dtype dtypes.DType) (compute.Value, error) {
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	out := in[0].shape.Clone()
	out.DType = dtype
	return result(f.one(out, "stablehlo.convert %s : (%s) -> %s", in[0].name, types(in), typeText(out)))
}

// Bitcast takes booleans, of a byte in GoMLX and of a bit in StableHLO, as bytes.
func (f *function) Bitcast(x compute.Value, dtype dtypes.DType) (compute.Value, error) {
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	v := in[0]
	if err := supported(shapes.Make(dtype)); err != nil {
		return nil, err
	}
	if v.shape.DType == dtypes.Bool || dtype == dtypes.Bool {
		return f.bitcastBool(v, dtype)
	}
	if v.shape.IsScalar() && v.shape.DType.Size() < dtype.Size() { // shapeinference looks for a dimension
		return nil, errors.Errorf("concert: Bitcast of %s to %s, which is wider", v.shape, dtype)
	}
	out, err := shapeinference.Bitcast(v.shape, dtype)
	if err != nil {
		return nil, err
	}
	return result(f.one(out, "stablehlo.bitcast_convert %s : (%s) -> %s", v.name, types(in), typeText(out)))
}

func (f *function) bitcastBool(v *value, dtype dtypes.DType) (compute.Value, error) {
	if v.shape.DType == dtype {
		return f.Identity(v)
	}
	from, to := dtypes.Uint8, dtype
	if dtype == dtypes.Bool {
		from, to = dtype, dtypes.Uint8
	}
	w := &words{f: f}
	if from == dtypes.Uint8 {
		v = w.do(f.ConvertDType(v, from))
	}
	if v.shape.DType != to && w.err == nil {
		v = w.do(f.Bitcast(v, to))
	}
	if dtype == dtypes.Bool && w.err == nil {
		v = w.do(f.ConvertDType(v, dtype))
	}
	return result(v, w.err)
}

func (f *function) Where(condition, onTrue, onFalse compute.Value) (compute.Value, error) {
	in, err := f.values([]compute.Value{condition, onTrue, onFalse})
	if err != nil {
		return nil, err
	}
	shape, err := shapeinference.Where(in[0].shape, in[1].shape, in[2].shape)
	if err != nil {
		return nil, err
	}
	for i, v := range in {
		if in[i], err = f.spread(v, shape.Dimensions); err != nil {
			return nil, err
		}
	}
	return result(f.one(shape, "stablehlo.select %s : %s, %s", names(in), typeText(in[0].shape), typeText(shape)))
}

func (f *function) Clamp(min, x, max compute.Value) (compute.Value, error) {
	in, err := f.values([]compute.Value{min, x, max})
	if err != nil {
		return nil, err
	}
	shape := in[1].shape
	for _, v := range in {
		if v.shape.DType != shape.DType {
			return nil, errors.Errorf("concert: Clamp of %s by %s", shape, v.shape)
		}
		if shape, err = shapeinference.BinaryOp(compute.OpTypeMax, shape, v.shape); err != nil {
			return nil, err
		}
	}
	for i, v := range in {
		if in[i], err = f.spread(v, shape.Dimensions); err != nil {
			return nil, err
		}
	}
	return result(f.one(shape, "stablehlo.clamp %s : (%s) -> %s", names(in), types(in), typeText(shape)))
}

func (f *function) Identity(x compute.Value) (compute.Value, error) {
	return f.SchedulingBarrier(x)
}

func (f *function) OptimizationBarrier(operands ...compute.Value) ([]compute.Value, error) {
	in, err := f.values(operands)
	if err != nil || len(in) == 0 {
		return nil, err
	}
	var results []shapes.Shape
	for _, v := range in {
		results = append(results, v.shape)
	}
	vs, err := f.emit(results, "stablehlo.optimization_barrier %s : %s", names(in), types(in))
	return anys(vs), err
}

func (f *function) SchedulingBarrier(operand compute.Value, dependencies ...compute.Value) (compute.Value, error) {
	vs, err := f.OptimizationBarrier(append([]compute.Value{operand}, dependencies...)...)
	if err != nil {
		return nil, err
	}
	return vs[0], nil
}
