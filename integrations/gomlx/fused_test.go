package gomlx

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// The gradients of attention are what differences of its result say, with heads behind the
// sequence and two of them for each of the keys.
func TestAttentionGradient(t *testing.T) {
	h := newHarness(t, "")
	n := h.b.Builder("attention")
	f := n.Main()
	qs, ks := shapes.Make(dtypes.Float64, 1, 3, 2, 2), shapes.Make(dtypes.Float64, 1, 3, 1, 2)
	q, k, v := h.must(f.Parameter("q", qs, nil)), h.must(f.Parameter("k", ks, nil)), h.must(f.Parameter("v", ks, nil))
	g := h.must(f.Parameter("g", qs, nil))
	const layout = compute.AttentionAxesLayoutBSHD
	o := &compute.ScaledDotProductAttentionConfig{Causal: true, Scale: 0.7}
	out, states, err := f.FusedScaledDotProductAttention(q, k, v, layout, o)
	h.check(err)
	dq, dk, dv, err := f.FusedScaledDotProductAttentionVJP(q, k, v, layout, o, out, states, g)
	h.check(err)
	h.check(f.Return([]compute.Value{h.must(f.ReduceSum(h.must(f.Mul(out, g)))), dq, dk, dv}, nil))
	e := h.compile(n)

	var in [4][]float64
	for i := range in {
		in[i] = make([]float64, []int{12, 6, 6, 12}[i])
		for k := range in[i] {
			in[i][k] = math.Sin(float64(7*i + 3*k + k*k))
		}
	}
	run := func() [][]float64 {
		var bufs []compute.Buffer
		for i, x := range in {
			u, err := h.b.BufferFromFlatData(0, x, []shapes.Shape{qs, ks, ks, qs}[i])
			h.check(err)
			bufs = append(bufs, u)
		}
		var got [][]float64
		for _, u := range h.run(e, nil, bufs...) {
			flat, err := u.Data()
			h.check(err)
			got = append(got, flat.([]float64))
		}
		return got
	}
	grads := run()
	for i := range 3 {
		for k, x := range in[i] {
			const d = 1e-5
			in[i][k] = x + d
			up := run()[0][0]
			in[i][k] = x - d
			slope := (up - run()[0][0]) / (2 * d)
			if in[i][k] = x; math.Abs(slope-grads[i+1][k]) > 1e-8 {
				t.Errorf("gradient %d of operand %d is %v, the slope is %v", k, i, grads[i+1][k], slope)
			}
		}
	}
}

// Scales of layer norms may have the dimensions of what they scale, and what does not fit is
// left to GoMLX.
func TestLayerNormScales(t *testing.T) {
	h := newHarness(t, "")
	n := h.b.Builder("norm")
	f := n.Main()
	x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2, 2), nil))
	scale := h.must(f.Parameter("scale", shapes.Make(dtypes.Float32, 1, 2), nil))
	if _, err := f.FusedLayerNorm(x, []int{1}, 0, x, nil); !errors.Is(err, compute.ErrNotImplemented) {
		t.Errorf("a scale of both dimensions: %v", err)
	}
	h.check(f.Return([]compute.Value{h.must(f.FusedLayerNorm(x, []int{1}, 0, scale, scale))}, nil))
	out := h.run(h.compile(n), nil, h.buffer(0, []float32{1, 3, 8, 4}, 2, 2), h.buffer(0, []float32{5, 7}, 1, 2))
	h.want("the norm", out[0], 0, 14, 10, 0)
}

// One product gives queries, keys and values, of inputs of any rank.
func TestQKVProjection(t *testing.T) {
	h := newHarness(t, "")
	n := h.b.Builder("qkv")
	f := n.Main()
	x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2, 1, 1), nil))
	w := h.must(f.Parameter("w", shapes.Make(dtypes.Float32, 1, 4), nil))
	bias := h.must(f.Parameter("bias", shapes.Make(dtypes.Float32, 1), nil))
	q, k, v, err := f.FusedAttentionQKVProjection(x, w, nil, bias, nil, 2, 1)
	h.check(err)
	h.check(f.Return([]compute.Value{q, k, v}, nil))
	outs := h.run(h.compile(n), nil, h.buffer(0, []float32{1, 2}, 2, 1, 1), h.buffer(0, []float32{3, 4, 5, 6}, 1, 4), h.buffer(0, []float32{10}, 1))
	h.want("queries", outs[0], 3, 4, 6, 8)
	h.want("keys", outs[1], 15, 20)
	h.want("values", outs[2], 6, 12)
}

// The greatest boolean is the first that holds.
func TestArgMaxOfBooleans(t *testing.T) {
	h := newHarness(t, "")
	n := h.b.Builder("first")
	f := n.Main()
	x := h.must(f.Constant([]bool{false, true, true, false, false, false}, 2, 3))
	at := h.must(f.ArgMinMax(x, 1, dtypes.Int32, false))
	h.check(f.Return([]compute.Value{h.must(f.ConvertDType(at, dtypes.Float32))}, nil))
	h.want("the places", h.run(h.compile(n), nil)[0], 1, 0)
}

// What a kernel computes in bfloat16 keeps float32 on its way if the configuration asks for it.
func TestExcessPrecision(t *testing.T) {
	for config, exact := range map[string]bool{"passes=cuda": false, "passes=cuda{excess-precision=true}": true} {
		h := newHarness(t, config)
		n := h.b.Builder("precision")
		f := n.Main()
		shape := shapes.Make(dtypes.Float32, 64)
		in := h.must(f.Parameter("x", shape, nil))
		x := h.must(f.ConvertDType(in, dtypes.BFloat16))
		number := func(v float32) compute.Value {
			c := h.must(f.ConvertDType(h.must(f.Constant([]float32{v})), dtypes.BFloat16))
			return h.must(f.BroadcastInDim(c, shapes.Make(dtypes.BFloat16, 64), nil))
		}
		y := h.must(f.Mul(h.must(f.Sub(h.must(f.Mul(x, number(1.0078125))), x)), number(128))) // x, but for roundings
		h.check(f.Return([]compute.Value{h.must(f.ConvertDType(y, dtypes.Float32))}, nil))
		xs := make([]float32, 64)
		for i := range xs {
			xs[i] = 1 + float32(i)/64
		}
		buf, err := h.b.BufferFromFlatData(0, xs, shape)
		h.check(err)
		got, err := h.run(h.compile(n), nil, buf)[0].Data()
		h.check(err)
		if slices.Equal(got.([]float32), xs) != exact {
			t.Errorf("%s: exact is %v: %v", config, !exact, got)
		}
	}
}

// Bounds of a clamp may be wider than what is clamped, results of products more exact than their
// operands, and numbers be unequal that compare as equal.
func TestWiderThanOperands(t *testing.T) {
	for _, device := range devices {
		h := newHarness(t, "device="+device)
		n := h.b.Builder("wider")
		f := n.Main()
		number := func(dt dtypes.DType, xs ...float32) compute.Value {
			return h.must(f.ConvertDType(h.must(f.Constant(xs, len(xs))), dt))
		}
		low, high := number(dtypes.Float32, -1, 2, 0), h.must(f.Constant([]float32{4}))
		clamped := h.must(f.Clamp(low, h.must(f.Constant([]float32{0.5})), high))
		a, b := number(dtypes.BFloat16, 1, 1), number(dtypes.BFloat16, 1, 0.00390625)
		sum := h.must(f.DotGeneral(a, []int{0}, nil, b, []int{0}, nil, compute.DotGeneralConfig{OutputDType: dtypes.Float32}))
		zeros := number(dtypes.Float32, 0, 0)
		unequal := h.must(f.NotEqualTotalOrder(zeros, h.must(f.Mul(zeros, number(dtypes.Float32, 1, -1)))))
		h.check(f.Return([]compute.Value{clamped, sum, h.must(f.ConvertDType(unequal, dtypes.Float32))}, nil))
		outs := h.run(h.compile(n), nil)
		h.want(device+": the clamp", outs[0], 0.5, 2, 0.5)
		h.want(device+": the product", outs[1], 1.00390625)
		h.want(device+": inequality", outs[2], 0, 1)
	}
}
