package gomlx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapeinference"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// apply adds an operation of one result: infer gives its shape, line its text behind the
// operands' names and before their types.
func (f *function) apply(operands []compute.Value, infer func(in []shapes.Shape) (shapes.Shape, error), line func(in []*value) string) (compute.Value, error) {
	in, err := f.values(operands)
	if err != nil {
		return nil, err
	}
	var of []shapes.Shape
	for _, v := range in {
		of = append(of, v.shape)
	}
	shape, err := infer(of)
	if err != nil {
		return nil, err
	}
	return result(f.one(shape, "%s : (%s) -> %s", line(in), types(in), typeText(shape)))
}

func (f *function) BroadcastInDim(x compute.Value, outputShape shapes.Shape, axes []int) (compute.Value, error) {
	return f.apply([]compute.Value{x}, func(in []shapes.Shape) (shapes.Shape, error) {
		if len(axes) != in[0].Rank() {
			return shapes.Invalid(), errors.Errorf("concert: BroadcastInDim of %s with %d axes", in[0], len(axes))
		}
		out := outputShape.Clone()
		out.DType = in[0].DType
		for i, a := range axes {
			if a < 0 || a >= out.Rank() || i > 0 && a <= axes[i-1] || in[0].Dimensions[i] != 1 && in[0].Dimensions[i] != out.Dimensions[a] {
				return shapes.Invalid(), errors.Errorf("concert: BroadcastInDim of %s to %s along %v", in[0], out, axes)
			}
		}
		return out, nil
	}, func(in []*value) string {
		return fmt.Sprintf("stablehlo.broadcast_in_dim %s, dims = %s", in[0].name, list(axes))
	})
}

func (f *function) Reshape(x compute.Value, dims ...int) (compute.Value, error) {
	return f.apply([]compute.Value{x}, func(in []shapes.Shape) (shapes.Shape, error) { return shapeinference.Reshape(in[0], dims) },
		func(in []*value) string { return "stablehlo.reshape " + in[0].name })
}

func (f *function) Transpose(x compute.Value, permutation ...int) (compute.Value, error) {
	return f.apply([]compute.Value{x}, func(in []shapes.Shape) (shapes.Shape, error) { return shapeinference.Transpose(in[0], permutation) },
		func(in []*value) string {
			return fmt.Sprintf("stablehlo.transpose %s, dims = %s", in[0].name, list(permutation))
		})
}

func (f *function) Reverse(x compute.Value, axes ...int) (compute.Value, error) {
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	for _, a := range axes {
		if a < 0 || a >= in[0].shape.Rank() {
			return nil, errors.Errorf("concert: Reverse of %s along axis %d", in[0].shape, a)
		}
	}
	return result(f.one(in[0].shape, "stablehlo.reverse %s, dims = %s : %s", in[0].name, list(axes), types(in)))
}

func (f *function) Slice(x compute.Value, starts, limits, strides []int) (compute.Value, error) {
	strides = ones(strides, len(starts))
	return f.apply([]compute.Value{x}, func(in []shapes.Shape) (shapes.Shape, error) {
		return shapeinference.Slice(in[0], starts, limits, strides)
	}, func(in []*value) string {
		parts := make([]string, len(starts))
		for i := range parts {
			parts[i] = fmt.Sprintf("%d:%d:%d", starts[i], limits[i], strides[i])
		}
		return fmt.Sprintf("stablehlo.slice %s [%s]", in[0].name, strings.Join(parts, ", "))
	})
}

func (f *function) Concatenate(axis int, operands ...compute.Value) (compute.Value, error) {
	if len(operands) == 1 {
		return f.Identity(operands[0])
	}
	return f.apply(operands, func(in []shapes.Shape) (shapes.Shape, error) { return shapeinference.Concatenate(in, axis) },
		func(in []*value) string { return fmt.Sprintf("stablehlo.concatenate %s, dim = %d", names(in), axis) })
}

func (f *function) Pad(x, fill compute.Value, axes ...compute.PadAxis) (compute.Value, error) {
	return f.apply([]compute.Value{x, fill}, func(in []shapes.Shape) (shapes.Shape, error) { return shapeinference.Pad(in[0], axes...) },
		func(in []*value) string {
			all := slices.Grow(slices.Clone(axes), in[0].shape.Rank())[:in[0].shape.Rank()]
			clear(all[len(axes):])
			var low, high, inside []int
			for _, a := range all {
				low, high, inside = append(low, a.Start), append(high, a.End), append(inside, a.Interior)
			}
			return fmt.Sprintf("stablehlo.pad %s, low = %s, high = %s, interior = %s", names(in), list(low), list(high), list(inside))
		})
}

func (f *function) Iota(shape shapes.Shape, axis int) (compute.Value, error) {
	if axis < 0 || axis >= shape.Rank() {
		return nil, errors.Errorf("concert: Iota of %s along axis %d", shape, axis)
	}
	return result(f.one(shape, "stablehlo.iota dim = %d : %s", axis, typeText(shape)))
}

// scalars takes apart places that come as one tensor of rank 1.
func (f *function) scalars(starts []compute.Value) ([]compute.Value, error) {
	in, err := f.values(starts)
	if err != nil || len(in) != 1 || in[0].shape.Rank() != 1 {
		return starts, err
	}
	var out []compute.Value
	for i := range in[0].shape.Dimensions[0] {
		v, err := f.Slice(in[0], []int{i}, []int{i + 1}, nil)
		if err != nil {
			return nil, err
		}
		if v, err = f.Reshape(v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (f *function) DynamicSlice(x compute.Value, starts []compute.Value, sizes []int) (compute.Value, error) {
	starts, err := f.scalars(starts)
	if err != nil {
		return nil, err
	}
	return f.apply(append([]compute.Value{x}, starts...), func(in []shapes.Shape) (shapes.Shape, error) {
		return shapeinference.DynamicSlice(in[0], sizes)
	}, func(in []*value) string {
		return fmt.Sprintf("stablehlo.dynamic_slice %s, sizes = %s", names(in), list(sizes))
	})
}

func (f *function) DynamicUpdateSlice(x, update compute.Value, starts []compute.Value) (compute.Value, error) {
	starts, err := f.scalars(starts)
	if err != nil {
		return nil, err
	}
	return f.apply(append([]compute.Value{x, update}, starts...), func(in []shapes.Shape) (shapes.Shape, error) {
		return shapeinference.DynamicUpdateSlice(in[0], in[1])
	}, func(in []*value) string { return "stablehlo.dynamic_update_slice " + names(in) })
}

func (f *function) Gather(x, indices compute.Value, indexVectorAxis int, offsetAxes, collapsed, startIndexMap, sizes []int, sorted bool) (compute.Value, error) {
	defer f.n.sites.once()()
	at, err := f.values([]compute.Value{indices})
	if err != nil {
		return nil, err
	}
	if dims := at[0].shape.Dimensions; indexVectorAxis == len(dims) { // which shapeinference looks for
		if indices, err = f.Reshape(indices, append(slices.Clone(dims), 1)...); err != nil {
			return nil, err
		}
	}
	return f.apply([]compute.Value{x, indices}, func(in []shapes.Shape) (shapes.Shape, error) {
		return shapeinference.Gather(in[0], in[1], indexVectorAxis, offsetAxes, collapsed, startIndexMap, sizes, sorted)
	}, func(in []*value) string {
		return fmt.Sprintf(`"stablehlo.gather"(%s) <{dimension_numbers = #stablehlo.gather<offset_dims = %s, collapsed_slice_dims = %s, start_index_map = %s, index_vector_dim = %d>, indices_are_sorted = %v, slice_sizes = %s}>`,
			names(in), list(offsetAxes), list(collapsed), list(startIndexMap), indexVectorAxis, sorted, array(sizes))
	})
}

// scatter combines what is there (%old) and what comes (%new).
func (f *function) scatter(combine string, x, indices, updates compute.Value, indexVectorAxis int, window, inserted, toOperand []int, sorted, unique bool) (compute.Value, error) {
	return f.apply([]compute.Value{x, indices, updates}, func(in []shapes.Shape) (shapes.Shape, error) {
		return shapeinference.Scatter(in[0], in[1], in[2], indexVectorAxis, window, inserted, toOperand)
	}, func(in []*value) string {
		return fmt.Sprintf(`"stablehlo.scatter"(%s) <{indices_are_sorted = %v, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = %s, inserted_window_dims = %s, scatter_dims_to_operand_dims = %s, index_vector_dim = %d>, unique_indices = %v}> %s`,
			names(in), sorted, list(window), list(inserted), list(toOperand), indexVectorAxis, unique, f.fold(combine, in[0].shape))
	})
}

func (f *function) ScatterSum(x, indices, updates compute.Value, ivd int, window, inserted, toOperand []int, sorted, unique bool) (compute.Value, error) {
	return f.scatter("add", x, indices, updates, ivd, window, inserted, toOperand, sorted, unique)
}

func (f *function) ScatterMax(x, indices, updates compute.Value, ivd int, window, inserted, toOperand []int, sorted, unique bool) (compute.Value, error) {
	return f.scatter("maximum", x, indices, updates, ivd, window, inserted, toOperand, sorted, unique)
}

func (f *function) ScatterMin(x, indices, updates compute.Value, ivd int, window, inserted, toOperand []int, sorted, unique bool) (compute.Value, error) {
	return f.scatter("minimum", x, indices, updates, ivd, window, inserted, toOperand, sorted, unique)
}
