package gomlx

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// Fused operations are concert's softmax, gelu and attention with its gradients, which StableHLO
// calls by name, or what GoMLX would write in their place, which concert then has once.

// call is a call of one of concert's operations.
func (f *function) call(target string, in []*value, attrs []string, results ...shapes.Shape) ([]*value, error) {
	text := ""
	if len(attrs) > 0 {
		text = " {" + strings.Join(attrs, ", ") + "}"
	}
	out := make([]string, len(results))
	for i, r := range results {
		out[i] = typeText(r)
	}
	return f.emit(results, "stablehlo.custom_call @%s(%s)%s : (%s) -> (%s)", target, names(in), text, types(in), strings.Join(out, ", "))
}

// float is an operand of floating point.
func (f *function) float(op string, x compute.Value) (*value, error) {
	in, err := f.values([]compute.Value{x})
	if err != nil {
		return nil, err
	}
	if !in[0].shape.DType.IsFloat() {
		return nil, errors.Wrapf(compute.ErrNotImplemented, "concert: %s of %s", op, in[0].shape)
	}
	return in[0], nil
}

func (f *function) FusedSoftmax(x compute.Value, axis int) (compute.Value, error) {
	v, err := f.float("FusedSoftmax", x)
	if err != nil {
		return nil, err
	}
	if axis < 0 || axis >= v.shape.Rank() {
		return nil, errors.Errorf("concert: FusedSoftmax of %s along axis %d", v.shape, axis)
	}
	out, err := f.call("concert.softmax", []*value{v}, []string{fmt.Sprintf("dim = %d : i64", axis)}, v.shape)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

func (f *function) FusedGelu(x compute.Value, exact bool) (compute.Value, error) {
	v, err := f.float("FusedGelu", x)
	if err != nil {
		return nil, err
	}
	out, err := f.call("concert.gelu", []*value{v}, []string{fmt.Sprintf("approximate = %v", !exact)}, v.shape)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// wide broadcasts v to a shape: dimension i of v is dimension axes[i].
func (w *words) wide(v *value, to shapes.Shape, axes []int) *value {
	return w.do(w.f.BroadcastInDim(v, to, axes))
}

// learned is a scale or an offset of the dimensions at axes; it may have others, of size 1.
func (w *words) learned(v compute.Value, to shapes.Shape, axes []int) *value {
	x := w.do(w.f.Identity(v))
	dims, n := make([]int, len(axes)), 1
	for i, a := range axes {
		dims[i], n = to.Dimensions[a], n*to.Dimensions[a]
	}
	if w.err == nil && (x.shape.Size() != n || x.shape.DType != to.DType) {
		w.err = errors.Wrapf(compute.ErrNotImplemented, "concert: %s for the axes %v of %s in a fused operation", x.shape, axes, to)
	}
	if w.err == nil && !slices.Equal(x.shape.Dimensions, dims) {
		x = w.do(w.f.Reshape(x, dims...))
	}
	return w.wide(x, to, axes)
}

// scalar is a number as a tensor.
func (w *words) scalar(x float64, to shapes.Shape) *value {
	c := w.do(w.f.Constant([]float64{x}))
	return w.wide(w.do(w.f.ConvertDType(c, to.DType)), to, nil)
}

func (f *function) FusedLayerNorm(x compute.Value, axes []int, epsilon float64, gamma, beta compute.Value) (compute.Value, error) {
	v, err := f.float("FusedLayerNorm", x)
	if err != nil {
		return nil, err
	}
	shape, n := v.shape, 1
	var kept, normed []int
	for d := range shape.Rank() {
		if slices.Contains(axes, d) || slices.Contains(axes, d-shape.Rank()) {
			normed, n = append(normed, d), n*shape.Dimensions[d]
		} else {
			kept = append(kept, d)
		}
	}
	if len(axes) == 0 || len(normed) != len(axes) {
		return nil, errors.Errorf("concert: FusedLayerNorm of %s over axes %v", shape, axes)
	}
	defer f.n.sites.once()()
	w := &words{f: f}
	mean := func(v *value) *value {
		sum := w.do(f.ReduceSum(v, normed...))
		return w.do(f.Div(sum, w.scalar(float64(n), sum.shape)))
	}
	centered := w.do(f.Sub(v, w.wide(mean(v), shape, kept)))
	variance := mean(w.do(f.Mul(centered, centered)))
	scale := w.do(f.Rsqrt(w.do(f.Add(variance, w.scalar(epsilon, variance.shape)))))
	y := w.do(f.Mul(centered, w.wide(scale, shape, kept)))
	if gamma != nil {
		y = w.do(f.Mul(y, w.learned(gamma, shape, normed)))
	}
	if beta != nil {
		y = w.do(f.Add(y, w.learned(beta, shape, normed)))
	}
	return result(y, w.err)
}

func (f *function) FusedDense(x, weight, bias compute.Value, options compute.DenseConfig) (compute.Value, error) {
	in, err := f.values([]compute.Value{x, weight})
	if err != nil {
		return nil, err
	}
	xs, ws := in[0].shape, in[1].shape
	if xs.Rank() < 1 || ws.Rank() < 2 {
		return nil, errors.Errorf("concert: FusedDense of %s and %s", xs, ws)
	}
	inside, outs := 0, ws.Dimensions[1:]
	if options.WeightLayout == compute.DenseLayoutOutputsInput {
		inside, outs = 1, ws.Dimensions[:ws.Rank()-1]
	}
	k := xs.Dimensions[xs.Rank()-1]
	if at := inside * (ws.Rank() - 1); ws.Dimensions[at] != k {
		return nil, errors.Errorf("concert: FusedDense of %s and %s, whose axis %d does not fit", xs, ws, at)
	}
	defer f.n.sites.once()()
	w := &words{f: f}
	rows, columns := product(xs.Dimensions[:xs.Rank()-1]), product(outs)
	flat := func(v *value, dims ...int) *value {
		if v.shape.Rank() == 2 {
			return v
		}
		return w.do(f.Reshape(v, dims...))
	}
	a, b := flat(in[0], rows, k), in[1]
	if inside == 0 {
		b = flat(b, k, columns)
	} else {
		b = flat(b, columns, k)
	}
	y := w.do(f.DotGeneral(a, []int{1}, nil, b, []int{inside}, nil, compute.DotGeneralConfig{}))
	y = w.do(f.Reshape(y, slices.Concat(xs.Dimensions[:xs.Rank()-1], outs)...))
	if bias != nil {
		axes := make([]int, len(outs))
		for i := range axes {
			axes[i] = y.shape.Rank() - len(outs) + i
		}
		y = w.do(f.Add(y, w.learned(bias, y.shape, axes)))
	}
	return result(w.activated(y, options.Activation), w.err)
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// activated applies an activation.
func (w *words) activated(y *value, by compute.ActivationType) *value {
	f := w.f
	number := func(x float64) *value { return w.scalar(x, y.shape) }
	switch by {
	case compute.ActivationNone:
		return y
	case compute.ActivationGelu:
		return w.do(f.FusedGelu(y, true))
	case compute.ActivationRelu:
		return w.do(f.Max(y, number(0)))
	case compute.ActivationSilu:
		return w.do(f.Mul(y, w.do(f.Logistic(y))))
	case compute.ActivationHardSwish:
		part := w.do(f.Clamp(number(0), w.do(f.Add(w.do(f.Mul(y, number(1.0/6))), number(0.5))), number(1)))
		return w.do(f.Mul(y, part))
	case compute.ActivationTanh:
		return w.do(f.Tanh(y))
	}
	if w.err == nil {
		w.err = errors.Wrapf(compute.ErrNotImplemented, "concert: activation %s", by)
	}
	return y
}

func (f *function) FusedAttentionQKVProjection(x, wQKV, biasQ, biasK, biasV compute.Value, queryDim, keyValueDim int) (query, key, value compute.Value, err error) {
	defer f.n.sites.once()()
	w := &words{f: f}
	all := w.do(f.FusedDense(x, wQKV, nil, compute.DenseConfig{}))
	last := all.shape.Rank() - 1
	if w.err == nil && all.shape.Dimensions[last] != queryDim+2*keyValueDim {
		return nil, nil, nil, errors.Errorf("concert: FusedAttentionQKVProjection gives %s for %d and twice %d columns", all.shape, queryDim, keyValueDim)
	}
	part := func(from, n int, bias compute.Value) compute.Value {
		if w.err != nil {
			return nil
		}
		starts, ends := make([]int, last+1), slices.Clone(all.shape.Dimensions)
		starts[last], ends[last] = from, from+n
		v := w.do(f.Slice(all, starts, ends, nil))
		if bias != nil {
			v = w.do(f.Add(v, w.learned(bias, v.shape, []int{last})))
		}
		return v
	}
	query, key, value = part(0, queryDim, biasQ), part(queryDim, keyValueDim, biasK), part(queryDim+keyValueDim, keyValueDim, biasV)
	return query, key, value, w.err
}

// attend has what calls of attention and of its gradients share.
type attend struct {
	in    []*value // queries, keys, values
	bias  *value   // nil: none
	lse   shapes.Shape
	attrs []string
}

// attend checks the operands of attention.
func (f *function) attend(query, key, value compute.Value, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig) (*attend, error) {
	if o == nil {
		o = &compute.ScaledDotProductAttentionConfig{}
	}
	in, err := f.values([]compute.Value{query, key, value})
	if err != nil {
		return nil, err
	}
	q := in[0].shape
	if q.Rank() != 4 || !q.DType.IsFloat() {
		return nil, errors.Wrapf(compute.ErrNotImplemented, "concert: attention of queries %s", q)
	}
	lengths := o.QuerySeqLen != nil || o.KeyValueSeqLen != nil
	if o.Mask != nil && (lengths || o.Bias != nil) {
		return nil, errors.Wrapf(compute.ErrNotImplemented, "concert: attention with a mask beside a bias or lengths")
	}
	s, h := layout.SeqAxis(), layout.HeadsAxis()
	a := &attend{in: in, lse: shapes.Make(dtypes.Float32, q.Dimensions[0], q.Dimensions[h], q.Dimensions[s], 1)}
	if q.DType == dtypes.Float64 {
		a.lse.DType = q.DType
	}
	a.attrs = []string{fmt.Sprintf("causal = %v", o.Causal)}
	if layout == compute.AttentionAxesLayoutBSHD {
		a.attrs = append(a.attrs, "heads_third = true", "results_too = true")
	}
	scale := o.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(q.Dimensions[3]))
	}
	a.attrs = append(a.attrs, fmt.Sprintf("scale = %q", strconv.FormatFloat(scale, 'g', -1, 64)))
	if a.bias, err = f.scores(in[0].shape, in[1].shape, layout, o); err != nil || !lengths {
		return a, err
	}
	defer f.n.sites.once()()
	w := &words{f: f}
	ends := w.lengths(shapes.Make(q.DType, q.Dimensions[0], 1, q.Dimensions[s], in[1].shape.Dimensions[s]), o)
	if a.bias != nil && w.err == nil {
		to := shapes.Make(q.DType, q.Dimensions[0], q.Dimensions[h], q.Dimensions[s], in[1].shape.Dimensions[s])
		axes := []int{0, 1, 2, 3}
		ends = w.do(f.Add(w.wide(ends, to, axes), w.wide(a.bias, to, axes[4-a.bias.shape.Rank():])))
	}
	a.bias = ends
	return a, w.err
}

// scores is what is added to the scores by a mask or a bias, nil if nothing is.
func (f *function) scores(q, k shapes.Shape, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig) (*value, error) {
	extra := o.Mask
	if extra == nil {
		extra = o.Bias
	}
	if extra == nil {
		return nil, nil
	}
	x, err := f.values([]compute.Value{extra})
	if err != nil {
		return nil, err
	}
	shape := x[0].shape
	if r := shape.Rank(); r != 2 && r != 4 || r == 4 && o.Mask != nil && layout != compute.AttentionAxesLayoutBHSD {
		return nil, errors.Wrapf(compute.ErrNotImplemented, "concert: attention of %s and %s with a mask or bias %s", q, k, shape)
	}
	if shape.DType != dtypes.Bool {
		return x[0], nil
	}
	defer f.n.sites.once()()
	w := &words{f: f}
	shape.DType = q.DType
	out := w.open(x[0], shape)
	return out, w.err
}

// open is 0 where a condition holds and minus infinity elsewhere.
func (w *words) open(where *value, to shapes.Shape) *value {
	return w.do(w.f.Where(where, w.scalar(0, to), w.scalar(math.Inf(-1), to)))
}

// lengths is what is added to scores so that queries and keys behind the ends of their sequences
// have no part.
func (w *words) lengths(to shapes.Shape, o *compute.ScaledDotProductAttentionConfig) *value {
	var all *value
	for i, n := range []compute.Value{o.QuerySeqLen, o.KeyValueSeqLen} {
		if n == nil {
			continue
		}
		end := w.do(w.f.Identity(n))
		at := shapes.Make(end.shape.DType, to.Dimensions...)
		within := w.do(w.f.LessThan(w.do(w.f.Iota(at, 2+i)), w.wide(end, at, []int{0})))
		if all == nil {
			all = within
		} else {
			all = w.do(w.f.LogicalAnd(all, within))
		}
	}
	return w.open(all, to)
}

// operands are the operands of a call and the attribute that says which is which.
func (a *attend) operands(in ...*value) ([]*value, string) {
	if a.bias != nil {
		in = append(in, a.bias)
	}
	order := make([]int, len(in))
	for i := range order {
		order[i] = i
	}
	return in, "operands = " + array(order)
}

func (f *function) FusedScaledDotProductAttention(query, key, value compute.Value, layout compute.AttentionAxesLayout, options *compute.ScaledDotProductAttentionConfig) (compute.Value, []compute.Value, error) {
	a, err := f.attend(query, key, value, layout, options)
	if err != nil {
		return nil, nil, err
	}
	in, order := a.operands(a.in...)
	out := a.in[0].shape.Clone()
	out.Dimensions[3] = a.in[2].shape.Dimensions[3]
	outs, err := f.call("concert.attention", in, append(a.attrs, order, "results = "+array([]int{0, 1})), out, a.lse)
	if err != nil {
		return nil, nil, err
	}
	return outs[0], []compute.Value{outs[1]}, nil
}

func (f *function) FusedScaledDotProductAttentionVJP(query, key, value compute.Value, layout compute.AttentionAxesLayout, options *compute.ScaledDotProductAttentionConfig,
	output compute.Value, states []compute.Value, gradient compute.Value) (dQuery, dKey, dValue compute.Value, err error) {
	a, err := f.attend(query, key, value, layout, options)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(states) != 1 {
		return nil, nil, nil, errors.Errorf("concert: FusedScaledDotProductAttentionVJP with %d states", len(states))
	}
	more, err := f.values([]compute.Value{output, gradient, states[0]})
	if err != nil {
		return nil, nil, nil, err
	}
	in, order := a.operands(more[1], a.in[0], a.in[1], a.in[2], more[0], more[2])
	outs, err := f.call("concert.attention_backward", in, append(a.attrs, order, "results = "+array([]int{0, 1, 2})),
		a.in[0].shape, a.in[1].shape, a.in[2].shape)
	if err != nil {
		return nil, nil, nil, err
	}
	return outs[0], outs[1], outs[2], nil
}
