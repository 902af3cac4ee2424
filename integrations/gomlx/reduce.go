package gomlx

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapeinference"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// fold is the region of an operation that reduceOps elements of a type by a binary operation.
func (f *function) fold(op string, of shapes.Shape) string {
	t := typeText(shapes.Make(of.DType))
	a, b, c := f.n.fresh(), f.n.fresh(), f.n.fresh()
	return fmt.Sprintf("({\n^bb0(%s: %s, %s: %s):\n%s = stablehlo.%s %s, %s : %s\nstablehlo.return %s : %s\n})", a, t, b, t, c, op, a, b, t, c, t)
}

// neutral is the element that a fold begins with.
func (f *function) neutral(op string, dt dtypes.DType) *value {
	bits := dt.Bits()
	low, high := int64(math.MinInt64)>>(64-bits), int64(math.MaxInt64)>>(64-bits)
	if dt.IsUnsigned() || dt == dtypes.Bool {
		low, high = 0, int64(uint64(math.MaxUint64)>>(64-bits))
		if dt == dtypes.Bool {
			high = 1
		}
	}
	x := map[string]int64{"add": 0, "or": 0, "xor": 0, "multiply": 1, "and": high, "maximum": low, "minimum": high}[op]
	if op == "and" && dt != dtypes.Bool {
		x = -1
	}
	if dt.IsFloat() {
		v := map[string]float64{"multiply": 1, "maximum": math.Inf(-1), "minimum": math.Inf(1)}[op]
		switch dt {
		case dtypes.Float64:
			x = int64(math.Float64bits(v))
		case dtypes.Float32:
			x = int64(math.Float32bits(float32(v)))
		case dtypes.BFloat16: // the upper half of float32
			x = int64(math.Float32bits(float32(v)) >> 16)
		default: // Float16: 1, -inf, inf
			x = map[float64]int64{1: 0x3c00, math.Inf(-1): 0xfc00, math.Inf(1): 0x7c00}[v]
		}
	}
	return f.constant(binary.LittleEndian.AppendUint64(nil, uint64(x))[:dt.Size()], shapes.Make(dt))
}

func (f *function) reduce(op string, x compute.Value, axes []int) (compute.Value, error) {
	defer f.n.sites.once()()
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	if len(axes) == 0 {
		for a := range in[0].shape.Rank() {
			axes = append(axes, a)
		}
	}
	shape, err := shapeinference.Reduce(in[0].shape, axes)
	if err != nil {
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	zero := f.neutral(op, in[0].shape.DType)
	return result(f.one(shape, "stablehlo.reduce(%s init: %s) applies stablehlo.%s across dimensions = %s : (%s, %s) -> %s",
		in[0].name, zero.name, op, list(slices.Sorted(slices.Values(axes))), typeText(in[0].shape), typeText(zero.shape), typeText(shape)))
}

func (f *function) ReduceSum(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("add", x, axes)
}
func (f *function) ReduceProduct(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("multiply", x, axes)
}
func (f *function) ReduceMax(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("maximum", x, axes)
}
func (f *function) ReduceMin(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("minimum", x, axes)
}
func (f *function) ReduceBitwiseAnd(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("and", x, axes)
}
func (f *function) ReduceBitwiseOr(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("or", x, axes)
}
func (f *function) ReduceBitwiseXor(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("xor", x, axes)
}
func (f *function) ReduceLogicalAnd(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("and", x, axes)
}
func (f *function) ReduceLogicalOr(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("or", x, axes)
}
func (f *function) ReduceLogicalXor(x compute.Value, axes ...int) (compute.Value, error) {
	return f.reduce("xor", x, axes)
}

var reduceOps = map[compute.ReduceOpType]string{
	compute.ReduceOpSum: "add", compute.ReduceOpProduct: "multiply", compute.ReduceOpMax: "maximum", compute.ReduceOpMin: "minimum",
}

// ones stands for the strides or dilations that are not given.
func ones(ints []int, n int) []int {
	if len(ints) > 0 {
		return ints
	}
	return slices.Repeat([]int{1}, n)
}

// pads is a matrix of paddings as an attribute of the generic form.
func pads(paddings [][2]int, n int) string {
	if len(paddings) == 0 {
		paddings = make([][2]int, n)
	}
	if n == 0 {
		return "dense<> : tensor<0x2xi64>"
	}
	rows := make([]string, n)
	for i, p := range paddings {
		rows[i] = list(p[:])
	}
	return fmt.Sprintf("dense<[%s]> : tensor<%dx2xi64>", strings.Join(rows, ", "), n)
}

func (f *function) ReduceWindow(x compute.Value, kind compute.ReduceOpType, window, strides, inputDilations, windowDilations []int, paddings [][2]int) (compute.Value, error) {
	op, ok := reduceOps[kind]
	if !ok {
		return nil, errors.Errorf("concert: ReduceWindow by %s", kind)
	}
	if len(strides) == 0 {
		strides = window
	}
	return f.window(op, x, window, strides, inputDilations, windowDilations, paddings)
}

func (f *function) window(op string, x compute.Value, window, strides, inputDilations, windowDilations []int, paddings [][2]int) (compute.Value, error) {
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	shape, err := shapeinference.ReduceWindow(in[0].shape, window, strides, inputDilations, windowDilations, paddings)
	if err != nil {
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f.slide(op, in[0], shape, window, strides, inputDilations, windowDilations, paddings)
}

// slide emits a reduction of windows, with 1 for strides and dilations that are not given.
func (f *function) slide(op string, x *value, shape shapes.Shape, window, strides, inputDilations, windowDilations []int, paddings [][2]int) (compute.Value, error) {
	zero, n := f.neutral(op, x.shape.DType), x.shape.Rank()
	return result(f.one(shape, `"stablehlo.reduce_window"(%s, %s) <{window_dimensions = %s, window_strides = %s, base_dilations = %s, window_dilations = %s, padding = %s}> %s : (%s, %s) -> %s`,
		x.name, zero.name, array(window), array(ones(strides, n)), array(ones(inputDilations, n)), array(ones(windowDilations, n)), pads(paddings, n),
		f.fold(op, x.shape), typeText(x.shape), typeText(zero.shape), typeText(shape)))
}

// CumSum is a window that ends, or begins, at each element.
func (f *function) CumSum(x compute.Value, axis int, options compute.CumSumOptions) (compute.Value, error) {
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	if _, err := shapeinference.CumSum(in[0].shape, axis); err != nil {
		return nil, err
	}
	n := in[0].shape.Dimensions[axis]
	if n == 0 {
		return f.Identity(x)
	}
	window, paddings := ones(nil, in[0].shape.Rank()), make([][2]int, in[0].shape.Rank())
	window[axis], paddings[axis] = n, [2]int{n - 1, 0}
	if options.Exclusive {
		paddings[axis] = [2]int{n, -1}
	}
	if options.Reverse {
		paddings[axis][0], paddings[axis][1] = paddings[axis][1], paddings[axis][0]
	}
	return f.slide("add", in[0], in[0].shape, window, nil, nil, nil, paddings)
}

func (f *function) selectAndScatter(direction string, x, source compute.Value, window, strides []int, paddings [][2]int) (compute.Value, error) {
	in, err := f.values([]compute.Value{x, source})
	if err != nil {
		return nil, err
	}
	if len(strides) == 0 {
		strides = window
	}
	shape, err := shapeinference.SelectAndScatter(in[0].shape, in[1].shape, window, strides, paddings)
	if err != nil {
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	zero, t := f.neutral("add", shape.DType), typeText(shapes.Make(shape.DType))
	a, b, c := f.n.fresh(), f.n.fresh(), f.n.fresh()
	choose := fmt.Sprintf("({\n^bb0(%s: %s, %s: %s):\n%s = stablehlo.compare %s, %s, %s : (%s, %s) -> tensor<i1>\nstablehlo.return %s : tensor<i1>\n}, %s",
		a, t, b, t, c, direction, a, b, t, t, c, strings.TrimPrefix(f.fold("add", shape), "("))
	return result(f.one(shape, `"stablehlo.select_and_scatter"(%s, %s) <{window_dimensions = %s, window_strides = %s, padding = %s}> %s : (%s, %s) -> %s`,
		names(in), zero.name, array(window), array(strides), pads(paddings, shape.Rank()), choose, types(in), typeText(zero.shape), typeText(shape)))
}

func (f *function) SelectAndScatterMax(x, source compute.Value, window, strides []int, paddings [][2]int) (compute.Value, error) {
	return f.selectAndScatter("GE", x, source, window, strides, paddings)
}

func (f *function) SelectAndScatterMin(x, source compute.Value, window, strides []int, paddings [][2]int) (compute.Value, error) {
	return f.selectAndScatter("LE", x, source, window, strides, paddings)
}

// ArgMinMax is a fold of pairs of an element and its index, as JAX writes it: NaN wins, then
// the better element, then the lower index.
func (f *function) ArgMinMax(x compute.Value, axis int, dtype dtypes.DType, isMin bool) (compute.Value, error) {
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	if in[0].shape.DType == dtypes.Bool { // false before true
		number, err := f.ConvertDType(in[0], dtypes.Uint8)
		if err != nil {
			return nil, err
		}
		return f.ArgMinMax(number, axis, dtype, isMin)
	}
	shape, err := shapeinference.ArgMinMax(in[0].shape, axis, dtype)
	if err != nil {
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	where := in[0].shape.Clone()
	where.DType = dtype
	index, err := f.one(where, "stablehlo.iota dim = %d : %s", axis, typeText(where))
	if err != nil {
		return nil, err
	}
	op, direction := "maximum", "GT"
	if isMin {
		op, direction = "minimum", "LT"
	}
	first, zero := f.neutral(op, in[0].shape.DType), f.neutral("add", dtype)
	best := shape.Clone()
	best.DType = in[0].shape.DType
	t, u := typeText(first.shape), typeText(zero.shape)
	v := make([]any, 14)
	for i := range 11 {
		v[i] = f.n.fresh()
	}
	v[11], v[12], v[13] = t, u, direction
	body := fmt.Sprintf(`reducer(%[1]s: %[12]s, %[2]s: %[12]s) (%[3]s: %[13]s, %[4]s: %[13]s) {
%[5]s = stablehlo.compare %[14]s, %[1]s, %[2]s : (%[12]s, %[12]s) -> tensor<i1>
%[6]s = stablehlo.compare NE, %[1]s, %[1]s : (%[12]s, %[12]s) -> tensor<i1>
%[7]s = stablehlo.or %[5]s, %[6]s : tensor<i1>
%[8]s = stablehlo.compare EQ, %[1]s, %[2]s : (%[12]s, %[12]s) -> tensor<i1>
%[9]s = stablehlo.compare LT, %[3]s, %[4]s : (%[13]s, %[13]s) -> tensor<i1>
%[10]s = stablehlo.and %[8]s, %[9]s : tensor<i1>
%[11]s = stablehlo.or %[7]s, %[10]s : tensor<i1>
`, v...)
	better, chosen := f.n.fresh(), f.n.fresh()
	body += fmt.Sprintf("%s = stablehlo.select %s, %s, %s : tensor<i1>, %s\n%s = stablehlo.select %s, %s, %s : tensor<i1>, %s\nstablehlo.return %s, %s : %s, %s\n}",
		better, v[6], v[0], v[1], t, chosen, v[10], v[2], v[3], u, better, chosen, t, u)
	outs, err := f.emit([]shapes.Shape{best, shape}, "stablehlo.reduce(%s init: %s), (%s init: %s) across dimensions = [%d] : (%s, %s, %s, %s) -> (%s, %s)\n%s",
		in[0].name, first.name, index.name, zero.name, axis, typeText(in[0].shape), typeText(where), t, u, typeText(best), typeText(shape), body)
	if err != nil {
		return nil, err
	}
	return outs[1], nil
}
