package layers

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// attentionOps are PyTorch's kinds of fused attention. They differ in the shape of the
// log-sum-exp, in what dropout leaves behind, and in names.
var attentionOps = []row{
	{"aten._scaled_dot_product_cudnn_attention.default",
		"query key value attn_bias compute_log_sumexp dropout_p is_causal return_debug_mask * scale", attention},
	{"aten._scaled_dot_product_fused_attention_overrideable.default",
		"query key value attn_bias dropout_p is_causal return_debug_mask compute_log_sumexp * scale", attention},
	{"aten._scaled_dot_product_flash_attention.default",
		"query key value dropout_p is_causal return_debug_mask * scale", attention},
	{"aten._scaled_dot_product_efficient_attention.default",
		"query key value attn_bias compute_log_sumexp dropout_p is_causal * scale", attention},
	{"aten._scaled_dot_product_flash_attention_for_cpu.default",
		"query key value dropout_p is_causal * attn_mask scale", attention},
	{"aten._scaled_dot_product_cudnn_attention_backward.default",
		"grad_out query key value out logsumexp philox_seed philox_offset attn_bias cum_seq_q cum_seq_k max_q max_k dropout_p is_causal * scale", attentionBackward},
	{"aten._scaled_dot_product_fused_attention_overrideable_backward.default",
		"grad_out query key value attn_bias grad_input_mask out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal philox_seed philox_offset * scale", attentionBackward},
	{"aten._scaled_dot_product_flash_attention_backward.default",
		"grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal philox_seed philox_offset * scale", attentionBackward},
	{"aten._scaled_dot_product_efficient_attention_backward.default",
		"grad_out query key value attn_bias out logsumexp philox_seed philox_offset dropout_p grad_input_mask is_causal * scale", attentionBackward},
	{"aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
		"grad_out query key value out logsumexp dropout_p is_causal * attn_mask scale", attentionBackward},
}

// attentionBias is what is added to the scores, nil if nothing is.
func (c *call) attentionBias() *ir.Value {
	for _, p := range []string{"attn_bias", "attn_mask"} {
		if c.IsTensor(p) {
			return c.Tensor(p)
		}
	}
	return nil
}

// attentionAttrs reads what both directions of attention share.
func (c *call) attentionAttrs() attr.List {
	var l attr.List
	if c.Bool("is_causal", false) {
		l = l.With("causal", attr.Bool(true))
	}
	for _, p := range [][2]string{{"dropout_p", "dropout"}, {"scale", "scale"}} {
		v, ok := c.Num(p[0])
		if f, _ := v.AsFloat(); ok && (f != 0 || p[1] == "scale") {
			l = l.With(p[1], attr.Float(f))
		}
	}
	return l
}

// attention imports the forward direction. Of its results the first is attention's; the
// log-sum-exp gets the shape that the kind has, and what dropout would need is zero.
func attention(c *call) error {
	q, k, v, bias := c.Tensor("query"), c.Tensor("key"), c.Tensor("value"), c.attentionBias()
	l := c.attentionAttrs()
	if c.Err != nil {
		return c.Err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if c.Bool("return_debug_mask", false) || q.Type().Rank() != 4 || k.Type().Rank() != 4 || v.Type().Rank() != 4 || len(ts) < 2 {
		return traced.ErrForm
	}
	if causalBehind(c, "aten._scaled_dot_product_flash_attention.default", l, q, k) {
		return traced.ErrForm
	}
	args := []*ir.Value{q, k, v}
	if bias != nil {
		args = append(args, bias)
	}
	s := q.Type().Shape()
	lse := ir.TensorOf(accumulated(q), ir.Shape{s[0], s[1], s[2], ir.D(1)})
	if len(ts) == ir.OpAttention.Info().NumResults && ts[1].Equal(lse) && ts[2].Equal(ir.Tensor(ir.I64)) && ts[3].Equal(ts[2]) {
		return c.EmitErr(ir.OpAttention, l, args...)
	}
	wide := ts[1].Shape()
	fits := ts[1].Equal(lse) || len(wide) == 3 && wide[:2].Equal(s[:2]) && (ts[1].DType() == ir.F32 || ts[1].DType() == lse.DType())
	if !fits || l.Has("dropout") {
		return traced.ErrForm // what the backward direction reads is not of a form that concert has
	}
	c.Shares = 1
	n := c.Append(ir.OpAttention, l, nil, []ir.Type{ts[0], lse, ir.Tensor(ir.I64), ir.Tensor(ir.I64)}, nil, args)
	c.Results, c.View = []*ir.Value{n.Result(0), c.logSumExp(n.Result(1), ts[1])}, false
	for _, t := range ts[2:] {
		c.Results = append(c.Results, c.Helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: attr.Int(0)}), t))
	}
	return nil
}

// causalBehind reports whether the call is one of a target whose causal mask ends at the last
// key: with as many queries as keys that is where concert's ends.
func causalBehind(c *call, target string, l attr.List, q, k *ir.Value) bool {
	return c.Operator == target && l.Bool("causal", false) && !q.Type().Shape()[2].Equal(k.Type().Shape()[2])
}

// accumulated is the element type in which attention of such queries adds.
func accumulated(q *ir.Value) ir.DType {
	if q.Type().DType() == ir.F64 {
		return ir.F64
	}
	return ir.F32
}

// logSumExp gives attention's [b,h,s,1] the type t: [b,h,s], with infinities behind up
// to a longer row, or nothing at all.
func (c *call) logSumExp(x *ir.Value, t ir.Type) *ir.Value {
	if t.Equal(x.Type()) {
		return x
	}
	s, x := x.Type().Shape(), c.In(t.DType(), x)
	wide := t.Shape()[2]
	flat := c.Helper(ir.OpView, nil, ir.TensorOf(t.DType(), s[:3]), x)
	if wide.Equal(s[2]) {
		return c.LaidOut(flat, t)
	}
	n, ok := s[2].Const()
	if !ok {
		rest := slices.Clone(t.Shape())
		if rest[2] = wide.Sub(s[2]); c.Never(rest[2]) {
			return c.Full(attr.Float(math.Inf(1)), t.DType(), t.Shape()) // it was not asked for
		}
		return c.LaidOut(c.Make(ir.OpCat, traced.DimAttr(2), flat, c.Full(attr.Float(math.Inf(1)), t.DType(), rest)), t)
	}
	full := c.Helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: attr.Float(math.Inf(1))}), t)
	if most, _ := wide.Const(); most < n {
		return full // it was not asked for
	}
	return c.Helper(ir.OpSliceScatter, traced.DimAttr(2).With("start", attr.Int(0)).With("end", attr.Int(n)), t, full, flat)
}

// attentionBackward imports the gradients. That of a bias is as large as all scores: with
// it, scores are made of matrix products.
func attentionBackward(c *call) error {
	if c.IsTensor("cum_seq_q") || c.IsTensor("cum_seq_k") {
		return traced.ErrForm // packed sequences of different lengths
	}
	l := c.attentionAttrs()
	var args []*ir.Value
	for _, p := range []string{"grad_out", "query", "key", "value", "out", "logsumexp"} {
		args = append(args, c.Tensor(p))
	}
	if c.Err != nil {
		return c.Err
	}
	q := args[1].Type().Shape()
	if len(q) != 4 || args[2].Type().Rank() != 4 || causalBehind(c, "aten._scaled_dot_product_flash_attention_backward.default", l, args[1], args[2]) {
		return traced.ErrForm
	}
	c.Shares = 1
	lse, ok := c.storedLogSumExp(args[5], q)
	if !ok {
		return traced.ErrForm
	}
	args[5] = lse
	if c.NumResults > 3 {
		return c.attentionGradients(l, args, c.attentionBias())
	}
	for _, p := range []string{"philox_seed", "philox_offset"} {
		if c.IsTensor(p) && c.Tensor(p).Type().Equal(ir.Tensor(ir.I64)) {
			args = append(args, c.Tensor(p))
			continue
		}
		if l.Has("dropout") {
			return traced.ErrForm
		}
		args = append(args, c.Helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: attr.Int(0)}), ir.Tensor(ir.I64)))
	}
	if bias := c.attentionBias(); bias != nil {
		args = append(args, bias)
	}
	return c.EmitErr(ir.OpAttentionBackward, l, args...)
}

// storedLogSumExp is a log-sum-exp as attention has it of one of any kind.
func (c *call) storedLogSumExp(x *ir.Value, q ir.Shape) (*ir.Value, bool) {
	s := x.Type().Shape()
	if len(s) == 4 {
		return x, true
	}
	if len(s) != 3 || !s[:2].Equal(q[:2]) {
		return nil, false
	}
	if more := s[2].Sub(q[2]); !more.Equal(ir.D(0)) {
		if least, _, ok := c.Trace.Bounds(more); !ok || least < 0 {
			return nil, false
		}
		x = c.First(x, 2, q[2])
	}
	x = c.LaidOut(x, ir.TensorOf(x.Type().DType(), q[:3]))
	return c.Unsqueezed(x, 3), true
}

// attentionGradients computes the gradients of q, k, v and of the bias from scores that
// are made again, and rounds where attention_backward does.
func (c *call) attentionGradients(l attr.List, args []*ir.Value, bias *ir.Value) error {
	ts, err := c.Types()
	if err != nil {
		return err
	}
	grad, q, k, v, out, lse := args[0], args[1], args[2], args[3], args[4], args[5]
	qs, ks := q.Type().Shape(), k.Type().Shape()
	if bias == nil || len(ts) != 4 || l.Has("dropout") || !qs[1].Equal(ks[1]) || !v.Type().Shape()[3].Equal(out.Type().Shape()[3]) {
		return traced.ErrForm
	}
	c.Shares = 5 // products
	b, s, t := qs[0].Mul(qs[1]), qs[2], ks[2]
	dt, acc := q.Type().DType(), accumulated(q)
	all := ir.TensorOf(acc, ir.Shape{qs[0], qs[1], s, t})
	heads := func(x *ir.Value) *ir.Value { // [b,h,m,n] as [bh,m,n]
		n := x.Type().Shape()
		return c.Reshaped(x, ir.Shape{b, n[2], n[3]})
	}
	turned := func(x *ir.Value) *ir.Value { return c.Permuted(x, 0, 2, 1) }
	product := func(dt ir.DType, x, y *ir.Value) *ir.Value {
		if c.Err != nil {
			return c.None()
		}
		return c.Helper(ir.OpMatmul, nil, ir.TensorOf(dt, ir.Shape{b, x.Type().Shape()[1], y.Type().Shape()[2]}), x, y)
	}
	scores := func(x *ir.Value) *ir.Value { return c.Helper(ir.OpView, nil, all, x) }
	scale := 1 / math.Sqrt(float64(traced.Constant(qs[3])))
	if v, ok := l.Get("scale"); ok {
		scale, _ = v.AsFloat()
	}
	q3, k3, v3, g3 := heads(q), heads(k), heads(v), heads(grad)

	first := product(acc, q3, turned(k3))
	if c.Err != nil {
		return c.Err
	}
	x := c.Helper(ir.OpMul, traced.Scalar(attr.Float(scale)), all, scores(first))
	x = c.Helper(ir.OpAdd, nil, all, x, c.In(acc, bias))
	hidden := c.Helper(ir.OpEq, traced.Scalar(attr.Float(math.Inf(-1))), traced.Like(x, ir.Bool), x)
	if l.Bool("causal", false) {
		later := c.Make(ir.OpGt, nil, c.Unsqueezed(c.Places(t), 0), c.Unsqueezed(c.Places(s), 1))
		hidden = c.Helper(ir.OpLogicalOr, nil, traced.Like(x, ir.Bool), hidden, later)
	}
	zero := c.Helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: attr.Int(0)}), ir.Tensor(acc))
	p := c.Helper(ir.OpExp, nil, all, c.Helper(ir.OpSub, nil, all, x, lse))
	p = c.Helper(ir.OpWhere, nil, all, hidden, zero, p)

	both := c.Helper(ir.OpMul, nil, traced.Like(out, acc), c.In(acc, grad), c.In(acc, out))
	total := c.Helper(ir.OpSum, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(3)}, attr.Attr{Key: "keepdim", Val: attr.Bool(true)}), ir.TensorOf(acc, ir.Shape{qs[0], qs[1], s, ir.D(1)}), both)
	ds := c.Helper(ir.OpSub, nil, all, scores(product(acc, g3, turned(v3))), total)
	ds = c.Helper(ir.OpMul, nil, all, p, ds)

	rounded := heads(c.In(dt, ds))
	grads := []*ir.Value{product(acc, rounded, k3), product(acc, turned(rounded), q3), product(dt, turned(heads(c.In(dt, p))), g3)}
	for i, x := range grads {
		shape := args[1+i].Type().Shape()
		if i < 2 {
			x = c.Helper(ir.OpMul, traced.Scalar(attr.Float(scale)), traced.Like(x, acc), x)
		}
		x = c.In(ts[i].DType(), x)
		grads[i] = c.Helper(ir.OpView, nil, ir.TensorOf(x.Type().DType(), shape), x)
	}
	dbias, err := c.summedTo(ds, ts[3])
	if err != nil {
		return err
	}
	return c.Finish(ir.OpClone, nil, []*ir.Value{grads[0]}, c.LaidOut(grads[1], ts[1]), c.LaidOut(grads[2], ts[2]), c.LaidOut(c.In(ts[3].DType(), dbias), ts[3]))
}

// summedTo adds up the dimensions in which t has one element, or none.
func (c *call) summedTo(x *ir.Value, t ir.Type) (*ir.Value, error) {
	from, to := x.Type().Shape(), t.Shape()
	if len(to) > len(from) {
		return nil, traced.ErrForm
	}
	lead := len(from) - len(to)
	var dims []int64
	kept := slices.Clone(from)
	for d, n := range from {
		switch {
		case d >= lead && to[d-lead].Equal(n):
		case d < lead || to[d-lead].Equal(ir.D(1)):
			dims, kept[d] = append(dims, int64(d)), ir.D(1)
		default:
			return nil, traced.ErrForm
		}
	}
	if len(dims) > 0 {
		x = c.Helper(ir.OpSum, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(dims...)}, attr.Attr{Key: "keepdim", Val: attr.Bool(true)}), ir.TensorOf(x.Type().DType(), kept), x)
	}
	if lead > 0 {
		x = c.Helper(ir.OpView, nil, ir.TensorOf(x.Type().DType(), to), x)
	}
	return x, nil
}
