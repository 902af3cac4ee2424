package fx_test

import (
	"math"
	"testing"
)

// Arguments that PyTorch's recorded samples do not have: reductions over no dimension, steps that are no integers,
// gradients divided by how often a row is looked up, and dropout of everything.
func TestForms(t *testing.T) {
	inf := math.Inf(1)
	sizes := func(n ...int64) []int64 { return n }
	two, three := sizes(2), sizes(3)
	space, place, one := of("float32", sizes(1, 1, 2, 1, 2), 1, 2, 3, 5), sizes(1, 1, 1, 1, 3), sizes(1, 1, 1, 1, 1)
	for _, c := range []struct {
		target, args string
		in, out      []recordedTensor
	}{
		{"aten.any.dims", "(x0, [])", []recordedTensor{of("float32", three, 1, 0, -2)}, []recordedTensor{of("bool", three, 1, 0, 1)}},
		{"aten.all.dims", "(x0, [])", []recordedTensor{of("bool", two, 1, 0)}, []recordedTensor{of("bool", two, 1, 0)}},
		{"aten.all.dims", "(x0, None)", []recordedTensor{of("bool", two, 1, 0)}, []recordedTensor{of("bool", nil, 0)}},
		{"aten.arange.start_step", "(0.5, 2, 0.5)", nil, []recordedTensor{of("float32", three, 0.5, 1, 1.5)}},
		{"aten.arange.start_step", "(1.0, 0.0, -0.4)", nil, []recordedTensor{of("float64", three, 1, 0.6, 0.2)}},
		{"aten.arange.default", "(1.5,)", nil, []recordedTensor{of("float32", two, 0, 1)}},
		{"aten.embedding_dense_backward.default", "(x0, x1, 3, -1, True)", []recordedTensor{of("float32", sizes(3, 1), 1, 2, 4), of("int64", three, 0, 0, 2)},
			[]recordedTensor{of("float32", sizes(3, 1), 1.5, 0, 4)}},
		{"aten._embedding_bag_dense_backward.default", "(x0, x1, x2, x3, x4, 3, True, 1, None, 2)", []recordedTensor{of("float32", sizes(2, 1), 6, 8), of("int64", three, 0, 0, 2),
			of("int64", three, 0, 0, 1), of("int64", two, 2, 1), of("int64", sizes(0))}, []recordedTensor{of("float32", sizes(3, 1), 3, 0, 0)}},
		{"aten.addcmul.default", "(x0, x1, x1, 2)", []recordedTensor{of("int64", two, 1, 1<<40+1), of("int64", two, 3, 1)}, []recordedTensor{of("int64", two, 19, 1<<40+3)}},
		{"aten._foreach_norm.Scalar", "([x0], 2, torch.float64)", []recordedTensor{of("float32", two, 3, -4)}, []recordedTensor{of("float64", nil, 5)}},
		{"aten.grid_sampler_3d.default", "(x0, x1, 0, 0, True)", []recordedTensor{space, of("float32", place, 0, 0, 0)}, []recordedTensor{of("float32", one, 2.75)}},
		{"aten.grid_sampler_3d.default", "(x0, x1, 0, 0, False)", []recordedTensor{space, of("float32", place, 0.5, 0, -1)}, []recordedTensor{of("float32", one, 1)}},
		{"aten.grid_sampler_3d.default", "(x0, x1, 0, 1, False)", []recordedTensor{space, of("float32", place, 0.5, 0, 9)}, []recordedTensor{of("float32", one, 5)}},
		{"aten.grid_sampler_3d.default", "(x0, x1, 1, 0, True)", []recordedTensor{space, of("float32", place, -1, 0, 1)}, []recordedTensor{of("float32", one, 3)}},
		{"aten.grid_sampler_3d_backward.default", "(x0, x1, x2, 0, 0, True, [True, True])", []recordedTensor{of("float32", one, 1), space, of("float32", place, 0, 0, 0)},
			[]recordedTensor{of("float32", sizes(1, 1, 2, 1, 2), 0.25, 0.25, 0.25, 0.25), of("float32", place, 0.75, 0, 1.25)}},
		{"aten.mode.default", "(x0,)", []recordedTensor{of("bool", three, 1, 0, 1)}, []recordedTensor{of("bool", nil, 1), of("int64", nil, 2)}},
		{"aten.native_dropout.default", "(x0, 1.0, True)", []recordedTensor{of("float32", two, inf, -1)}, []recordedTensor{of("float32", two, 0, 0), of("bool", two, 0, 0)}},
	} {
		r := recorded{Target: c.target, Args: c.args, In: c.in, Out: c.out}
		if msg := r.differs(t); msg != "" {
			t.Errorf("%s%s of %v: %s", c.target, c.args, r.types(), msg)
		}
	}
}
