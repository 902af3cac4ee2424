package fx_test

import (
	"math"
	"testing"
)

// What PyTorch's kernels make of elements that are no numbers: of a window the last one of them is the largest
// (MaxPoolKernel.cpp), they are no mode while there are others, what is rounded to a few bits becomes the least
// (fmax), and the length of a complex number is infinite where one part is (std::hypot). Parameters that bound narrow
// floats are such themselves.
func TestNoNumbers(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	one, two, three := []int64{1}, []int64{2}, []int64{3}
	tenth := float64(math.Float32frombits(0x3dcd << 16)) // in bfloat16
	image, pooled := []int64{1, 1, 2, 3}, []int64{1, 1, 1, 2}
	for _, c := range []struct {
		target, args string
		in, out      []recordedTensor
	}{
		{"aten.max_pool2d_with_indices.default", "(x0, [2, 2], [1, 1])", []recordedTensor{of("float32", image, nan, 5, 1, 2, nan, 3)},
			[]recordedTensor{of("float32", pooled, nan, nan), of("int64", pooled, 4, 4)}},
		{"aten.max_pool2d_with_indices.default", "(x0, [1, 2], [1, 1])", []recordedTensor{of("float32", []int64{1, 1, 1, 3}, nan, nan, 7)},
			[]recordedTensor{of("float32", pooled, nan, nan), of("int64", pooled, 1, 1)}},
		{"aten.adaptive_max_pool2d.default", "(x0, [1, 3])", []recordedTensor{of("float32", []int64{1, 1, 5}, 7, nan, 7, nan, 7)},
			[]recordedTensor{of("float32", []int64{1, 1, 3}, nan, nan, nan), of("int64", []int64{1, 1, 3}, 1, 3, 3)}},
		{"aten.adaptive_max_pool2d.default", "(x0, [2, 2])", []recordedTensor{of("float32", []int64{1, 3, 3}, 2, 2, 1, 2, 2, 1, nan, 1, 1)},
			[]recordedTensor{of("float32", []int64{1, 2, 2}, 2, 2, nan, 2), of("int64", []int64{1, 2, 2}, 0, 1, 6, 4)}},
		{"aten.fractional_max_pool2d.default", "(x0, [1, 2], [1, 1], x1)", []recordedTensor{of("float32", []int64{1, 1, 1, 3}, nan, nan, nan), of("float32", []int64{1, 1, 2}, 0, 0)},
			[]recordedTensor{of("float32", []int64{1, 1, 1, 1}, nan), of("int64", []int64{1, 1, 1, 1}, 2)}},
		{"aten.mode.default", "(x0, 0)", []recordedTensor{of("float32", []int64{4}, 2, nan, 1, 2)},
			[]recordedTensor{of("float32", nil, 2), of("int64", nil, 3)}},
		{"aten.fake_quantize_per_tensor_affine_cachemask.default", "(x0, 0.5, 1, -4, 4)", []recordedTensor{of("float32", three, nan, 1, 9)},
			[]recordedTensor{of("float32", three, -2.5, 1, 1.5), of("bool", three, 0, 1, 0)}},
		{"quantized_decomposed.fake_quant_per_channel.default", "(x0, x1, x2, 0, -4, 4)", []recordedTensor{of("float32", one, nan), of("float32", one, 0.5), of("int32", one, 0)},
			[]recordedTensor{of("float32", one, nan)}},
		{"aten.abs.default", "(x0,)", []recordedTensor{of("complex64", three, 3, 4, inf, nan, nan, -inf)}, []recordedTensor{of("float32", three, 5, inf, inf)}},
		{"aten.abs.default", "(x0,)", []recordedTensor{of("complex64", two, 1, nan, 0, 0)}, []recordedTensor{of("float32", two, nan, 0)}},
		{"aten.hardshrink_backward.default", "(x0, x1, 0.1)", []recordedTensor{of("bfloat16", two, 1, 1), of("bfloat16", two, tenth, -tenth)}, []recordedTensor{of("bfloat16", two, 0, 0)}},
	} {
		r := recorded{Target: c.target, Args: c.args, In: c.in, Out: c.out}
		if msg := r.differs(t); msg != "" {
			t.Errorf("%s%s of %v: %s", c.target, c.args, r.types(), msg)
		}
	}
}
