package gomlx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapeinference"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

func (f *function) DotGeneral(lhs compute.Value, lhsContracting, lhsBatch []int, rhs compute.Value, rhsContracting, rhsBatch []int, config compute.DotGeneralConfig) (compute.Value, error) {
	in, err := f.values([]compute.Value{lhs, rhs})
	if err != nil {
		return nil, err
	}
	shape, err := shapeinference.DotGeneral(in[0].shape, lhsContracting, lhsBatch, in[1].shape, rhsContracting, rhsBatch, config)
	if err != nil {
		return nil, err
	}
	// The product is of the accumulator's type, or of the result's if that is wider; operands of a narrower one are converted.
	final := shape.DType
	acc := config.AccumulatorDType
	if acc == dtypes.InvalidDType {
		acc = in[0].shape.DType
	}
	if acc.IsFloat() && final.IsFloat() && acc.Bits() < final.Bits() {
		acc = final
	}
	for i, v := range in {
		if v.shape.DType == acc {
			continue
		}
		x, err := f.ConvertDType(v, acc)
		if err != nil {
			return nil, err
		}
		in[i] = x.(*value)
	}
	shape.DType = acc
	dims := ""
	if len(lhsBatch) > 0 {
		dims = fmt.Sprintf(", batching_dims = %s x %s", list(lhsBatch), list(rhsBatch))
	}
	out, err := f.one(shape, "stablehlo.dot_general %s%s, contracting_dims = %s x %s : (%s) -> %s",
		names(in), dims, list(lhsContracting), list(rhsContracting), types(in), typeText(shape))
	if err != nil || final == acc {
		return result(out, err)
	}
	return f.ConvertDType(out, final)
}

// layout is the order of a convolution operand's dimensions as StableHLO writes it.
func layout(first, second string, a, b int, spatial []int) string {
	at := make([]string, len(spatial)+2)
	at[a], at[b] = first, second
	for i, s := range spatial {
		at[s] = strconv.Itoa(i)
	}
	return "[" + strings.Join(at, ", ") + "]"
}

func (f *function) ConvGeneral(x, kernel compute.Value, axes compute.ConvolveAxesConfig, strides []int, paddings [][2]int, inputDilations, kernelDilations []int, channelGroups, batchGroups int) (compute.Value, error) {
	n, channelGroups, batchGroups := len(axes.InputSpatial), max(1, channelGroups), max(1, batchGroups)
	return f.apply([]compute.Value{x, kernel}, func(in []shapes.Shape) (shapes.Shape, error) {
		return shapeinference.ConvGeneral(in[0], in[1], axes, strides, paddings, inputDilations, kernelDilations, channelGroups, batchGroups)
	}, func(in []*value) string {
		rows := make([]string, n)
		for i := range rows {
			rows[i] = "[0, 0]"
			if len(paddings) > 0 {
				rows[i] = list(paddings[i][:])
			}
		}
		return fmt.Sprintf("stablehlo.convolution(%s) dim_numbers = %sx%s->%s, window = {stride = %s, pad = [%s], lhs_dilate = %s, rhs_dilate = %s} {batch_group_count = %d : i64, feature_group_count = %d : i64}",
			names(in), layout("b", "f", axes.InputBatch, axes.InputChannels, axes.InputSpatial),
			layout("i", "o", axes.KernelInputChannels, axes.KernelOutputChannels, axes.KernelSpatial),
			layout("b", "f", axes.OutputBatch, axes.OutputChannels, axes.OutputSpatial),
			list(ones(strides, n)), strings.Join(rows, ", "), list(ones(inputDilations, n)), list(ones(kernelDilations, n)), batchGroups, channelGroups)
	})
}

// norm adds one of the batch norms.
func (f *function) norm(name string, operands []compute.Value, epsilon float32, axis int, results func(x, scale shapes.Shape) []shapes.Shape) ([]*value, error) {
	in, err := f.values(operands)
	if err != nil {
		return nil, err
	}
	if axis < 0 || axis >= in[0].shape.Rank() {
		return nil, errors.Errorf("concert: %s of %s along axis %d", name, in[0].shape, axis)
	}
	outs := results(in[0].shape, in[1].shape)
	texts := make([]string, len(outs))
	for i, s := range outs {
		texts[i] = typeText(s)
	}
	return f.emit(outs, `"stablehlo.%s"(%s) <{epsilon = %s : f32, feature_index = %d : i64}> : (%s) -> (%s)`,
		name, names(in), strconv.FormatFloat(float64(epsilon), 'e', -1, 32), axis, types(in), strings.Join(texts, ", "))
}

func (f *function) BatchNormForInference(x, scale, offset, mean, variance compute.Value, epsilon float32, axis int) (compute.Value, error) {
	vs, err := f.norm("batch_norm_inference", []compute.Value{x, scale, offset, mean, variance}, epsilon, axis,
		func(x, _ shapes.Shape) []shapes.Shape { return []shapes.Shape{x} })
	if err != nil {
		return nil, err
	}
	return vs[0], nil
}

func (f *function) BatchNormForTraining(x, scale, offset compute.Value, epsilon float32, axis int) (compute.Value, compute.Value, compute.Value, error) {
	vs, err := f.norm("batch_norm_training", []compute.Value{x, scale, offset}, epsilon, axis,
		func(x, s shapes.Shape) []shapes.Shape { return []shapes.Shape{x, s, s} })
	if err != nil {
		return nil, nil, nil, err
	}
	return vs[0], vs[1], vs[2], nil
}

func (f *function) BatchNormGradient(x, scale, mean, variance, gradient compute.Value, epsilon float32, axis int) (compute.Value, compute.Value, compute.Value, error) {
	vs, err := f.norm("batch_norm_grad", []compute.Value{x, scale, mean, variance, gradient}, epsilon, axis,
		func(x, s shapes.Shape) []shapes.Shape { return []shapes.Shape{x, s, s} })
	if err != nil {
		return nil, nil, nil, err
	}
	return vs[0], vs[1], vs[2], nil
}

func (f *function) Sort(comparator compute.Function, axis int, stable bool, inputs ...compute.Value) ([]compute.Value, error) {
	in, err := f.values(inputs)
	if err != nil {
		return nil, err
	}
	if len(in) == 0 || axis < 0 || axis >= in[0].shape.Rank() || slices.ContainsFunc(in, func(v *value) bool { return !v.shape.EqualDimensions(in[0].shape) }) {
		return nil, errors.Errorf("concert: Sort of %d tensors along axis %d", len(in), axis)
	}
	g, body, err := f.body(comparator)
	if err != nil {
		return nil, err
	}
	if len(g.params) != 2*len(in) || len(g.outs) != 1 || g.outs[0].shape.DType != dtypes.Bool || !g.outs[0].shape.IsScalar() {
		return nil, errors.New("concert: Sort's comparator takes two scalars for each tensor and returns a boolean")
	}
	var outs []shapes.Shape
	for _, v := range in {
		outs = append(outs, v.shape)
	}
	vs, err := f.emit(outs, `"stablehlo.sort"(%s) <{dimension = %d : i64, is_stable = %v}> (%s) : (%s) -> (%s)`, names(in), axis, stable, body, types(in), types(in))
	return anys(vs), err
}
