package hostops

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Attention follows the arithmetic of the fused kernels (cuDNN, FlashAttention-2,
// Dao 2023): scores, softmax and all sums in float32 (float64 for f64 operands);
// the weights P and, in the backward pass, the gradients of the scores are rounded
// to the operands' type before they enter a matrix product, because the tensor
// cores take them in that type. P is rounded before it is divided by its sum.
//
// A causal mask is aligned with the top left corner: query i sees keys 0..i. A query
// that sees no key at all (bias -inf everywhere) gets output 0 and lse -inf.

// heads is the geometry that both directions share.
type heads struct {
	b, h, hkv, s, t, d, dv int64
	group                  int64 // query heads per key head
	scale                  float64
	causal                 bool
	bias                   *Tensor // broadcast to [b, h, s, t], or nil
}

// headsOf checks q, k, v (operands first, first+1, first+2) and the attributes.
func (c *call) headsOf(first int, bias int) (heads, error) {
	var g heads
	q, k, v := &c.ins[first], &c.ins[first+1], &c.ins[first+2]
	for i, t := range []*Tensor{q, k, v} {
		if len(t.Shape) != 4 {
			return g, c.inErr(first+i, ErrShape, "%v, want [batch, heads, length, width]", t.Shape)
		}
		if !t.DType.IsFloat() || t.DType != q.DType {
			return g, c.inErr(first+i, ErrDType, "%v; q, k and v are floats of one type", t.DType)
		}
	}
	g = heads{b: q.Shape[0], h: q.Shape[1], s: q.Shape[2], d: q.Shape[3], hkv: k.Shape[1], t: k.Shape[2], dv: v.Shape[3]}
	if k.Shape[0] != g.b || k.Shape[3] != g.d || g.hkv == 0 || g.h%g.hkv != 0 {
		return g, c.inErr(first+1, ErrShape, "keys %v do not fit queries %v", k.Shape, q.Shape)
	}
	if !slices.Equal(v.Shape[:3], k.Shape[:3]) {
		return g, c.inErr(first+2, ErrShape, "values %v do not fit keys %v", v.Shape, k.Shape)
	}
	g.group = g.h / g.hkv
	g.causal = c.boolAttr("causal", false)
	g.scale = 1 / math.Sqrt(float64(g.d))
	if n := c.numAttr("scale"); n.Set {
		g.scale = n.F
	}
	dropout := c.numAttr("dropout")
	if c.bad != nil {
		return g, c.bad
	}
	if dropout.F != 0 {
		return g, c.fail(ErrUnsupported, "dropout %v: the mask of a device cannot be drawn again on the host", dropout.F)
	}
	if bias < len(c.ins) {
		x := c.ins[bias]
		s, ok := x.broadcast([]int64{g.b, g.h, g.s, g.t})
		if !ok {
			return g, c.inErr(bias, ErrShape, "%v does not broadcast to [%d, %d, %d, %d]", x.Shape, g.b, g.h, g.s, g.t)
		}
		x.Strides = s
		g.bias = &x
	}
	for _, n := range []int64{g.s, g.t} {
		for _, m := range []int64{g.d, g.dv, 1} {
			if sz, ok := numel([]int64{n, m}); !ok || sz > scratchLimit {
				return g, c.fail(ErrUnsupported, "one head of %d x %d is too large", n, m)
			}
		}
	}
	return g, nil
}

// wantShape checks a tensor of four dimensions, of which the last may be left out
// if it is 1.
func wantShape(t *Tensor, shape ...int64) bool {
	return slices.Equal(t.Shape, shape) || shape[3] == 1 && slices.Equal(t.Shape, shape[:3])
}

// rowsOf widens head (b, h) of t into dst, row after row.
func rowsOf[T real](dst []T, t *Tensor, b, h int64) {
	width := t.Shape[3]
	for i := range t.Shape[2] {
		load(dst[i*width:(i+1)*width], t, t.Offset+b*t.Strides[0]+h*t.Strides[1]+i*t.Strides[2], t.Strides[3])
	}
}

// storeRow rounds row i of head (b, h) into t.
func storeRow[T real](t *Tensor, b, h, i int64, src []T) {
	step := int64(1)
	if len(t.Strides) == 4 {
		step = t.Strides[3]
	}
	store(t, t.Offset+b*t.Strides[0]+h*t.Strides[1]+i*t.Strides[2], step, src)
}

// visible is the number of keys that query i sees.
func (g *heads) visible(i int64) int64 {
	if g.causal {
		return min(i+1, g.t)
	}
	return g.t
}

// scores computes scale * q.k + bias of one query with the keys it sees. bias is a
// buffer of that many elements.
func scores[T real](g *heads, dst, bias []T, q, keys []T, b, h, i int64) {
	dots(dst, q, keys)
	for j := range dst {
		dst[j] *= T(g.scale)
	}
	if x := g.bias; x != nil {
		load(bias, x, x.Offset+b*x.Strides[0]+h*x.Strides[1]+i*x.Strides[2], x.Strides[3])
		for j, v := range bias {
			dst[j] += v
		}
	}
}

// dots writes the inner products of x with consecutive rows of m, four at a time.
func dots[T real](dst, x, m []T) {
	d := len(x)
	j := 0
	for ; j+4 <= len(dst); j += 4 {
		r0, r1, r2, r3 := m[j*d:][:d], m[(j+1)*d:][:d], m[(j+2)*d:][:d], m[(j+3)*d:][:d]
		var s0, s1, s2, s3 T
		for i, v := range x {
			s0 += T(v * r0[i])
			s1 += T(v * r1[i])
			s2 += T(v * r2[i])
			s3 += T(v * r3[i])
		}
		dst[j], dst[j+1], dst[j+2], dst[j+3] = s0, s1, s2, s3
	}
	for ; j < len(dst); j++ {
		var s T
		for i, v := range m[j*d:][:d] {
			s += T(v * x[i])
		}
		dst[j] = s
	}
}

// addRows adds to dst the rows of m weighted by w, in ascending order.
func addRows[T real](dst, w, m []T) {
	d := len(dst)
	j := 0
	for ; j+4 <= len(w); j += 4 {
		r0, r1, r2, r3 := m[j*d:][:d], m[(j+1)*d:][:d], m[(j+2)*d:][:d], m[(j+3)*d:][:d]
		w0, w1, w2, w3 := w[j], w[j+1], w[j+2], w[j+3]
		for i := range dst {
			dst[i] = dst[i] + T(w0*r0[i]) + T(w1*r1[i]) + T(w2*r2[i]) + T(w3*r3[i])
		}
	}
	for ; j < len(w); j++ {
		axpy(dst, w[j], m[j*d:][:d])
	}
}

// axpy adds a*x to dst.
func axpy[T real](dst []T, a T, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += T(a * x[i])
	}
}

// roundTo rounds xs to the precision of d.
func roundTo[T real](d dtype.DType, xs []T) {
	switch d {
	case dtype.BF16:
		for i, v := range xs {
			xs[i] = T(dtype.BF16ToF32(dtype.BF16FromF32(float32(v))))
		}
	case dtype.F16:
		for i, v := range xs {
			xs[i] = T(dtype.F16ToF32(dtype.F16FromF32(float32(v))))
		}
	}
	if d.IsFloat8() {
		for i, v := range xs {
			xs[i] = T(dtype.F8ToF32(d, dtype.F8FromF32(d, float32(v))))
		}
	}
}

// runAttention computes (out, lse, seed, offset); without dropout the last two are 0.
func runAttention(c *call) error {
	g, err := c.headsOf(0, 3)
	if err != nil {
		return err
	}
	if !wantShape(&c.outs[0], g.b, g.h, g.s, g.dv) {
		return c.outErr(0, ErrShape, "%v, want [%d, %d, %d, %d]", c.outs[0].Shape, g.b, g.h, g.s, g.dv)
	}
	if !wantShape(&c.outs[1], g.b, g.h, g.s, 1) {
		return c.outErr(1, ErrShape, "%v, want [%d, %d, %d, 1]", c.outs[1].Shape, g.b, g.h, g.s)
	}
	for i := range 2 {
		if !c.outs[i].DType.IsFloat() {
			return c.outErr(i, ErrDType, "%v, want a float", c.outs[i].DType)
		}
	}
	for i := 2; i < 4; i++ {
		zero := call{op: c.op, outs: c.outs[i : i+1]}
		if err := fill(&zero, func(int64) int64 { return 0 }); err != nil {
			return err
		}
	}
	if c.ins[0].DType == dtype.F64 {
		attention[float64](c, &g)
	} else {
		attention[float32](c, &g)
	}
	return nil
}

func attention[T real](c *call, g *heads) {
	q, k, v, out, lse := &c.ins[0], &c.ins[1], &c.ins[2], &c.outs[0], &c.outs[1]
	parallel(g.b*g.hkv, g.group*g.s*g.t*(g.d+g.dv), func(_ *memory, lo, hi int64) {
		qs, ks, vs := make([]T, g.s*g.d), make([]T, g.t*g.d), make([]T, g.t*g.dv)
		p, bias, row := make([]T, g.t), make([]T, g.t), make([]T, g.dv)
		for item := lo; item < hi; item++ {
			b, hk := item/g.hkv, item%g.hkv
			rowsOf(ks, k, b, hk)
			rowsOf(vs, v, b, hk)
			for h := hk * g.group; h < (hk+1)*g.group; h++ {
				rowsOf(qs, q, b, h)
				for i := range g.s {
					p := p[:g.visible(i)]
					scores(g, p, bias[:len(p)], qs[i*g.d:(i+1)*g.d], ks, b, h, i)
					m, sum := expRow(p)
					roundTo(q.DType, p)
					clear(row)
					addRows(row, p, vs)
					for j := range row {
						if sum == 0 {
							row[j] = 0
						} else {
							row[j] /= sum
						}
					}
					storeRow(out, b, h, i, row)
					storeRow(lse, b, h, i, []float64{float64(m) + math.Log(float64(sum))})
				}
			}
		}
	})
}

// expRow replaces scores by exp(score - m) for their maximum m, and sums them.
func expRow[T real](p []T) (m, sum T) {
	m = T(math.Inf(-1))
	for _, v := range p {
		m = max(m, v)
	}
	if math.IsInf(float64(m), -1) {
		clear(p)
		return m, 0
	}
	for i, v := range p {
		p[i] = T(math.Exp(float64(v - m)))
		sum += p[i]
	}
	return m, sum
}

// runAttentionBackward computes (dq, dk, dv) from (grad_out, q, k, v, out, lse,
// seed, offset[, bias]).
func runAttentionBackward(c *call) error {
	g, err := c.headsOf(1, 8)
	if err != nil {
		return err
	}
	for _, i := range []int{0, 4} {
		if !slices.Equal(c.ins[i].Shape, []int64{g.b, g.h, g.s, g.dv}) {
			return c.inErr(i, ErrShape, "%v, want [%d, %d, %d, %d]", c.ins[i].Shape, g.b, g.h, g.s, g.dv)
		}
	}
	if !wantShape(&c.ins[5], g.b, g.h, g.s, 1) {
		return c.inErr(5, ErrShape, "%v, want [%d, %d, %d, 1]", c.ins[5].Shape, g.b, g.h, g.s)
	}
	for i := range 3 {
		if !slices.Equal(c.outs[i].Shape, c.ins[1+i].Shape) {
			return c.outErr(i, ErrShape, "%v, want that of the operand, %v", c.outs[i].Shape, c.ins[1+i].Shape)
		}
		if !c.outs[i].DType.IsFloat() {
			return c.outErr(i, ErrDType, "%v, want a float", c.outs[i].DType)
		}
	}
	if c.ins[1].DType == dtype.F64 {
		attentionBackward[float64](c, &g)
	} else {
		attentionBackward[float32](c, &g)
	}
	return nil
}

// gradients holds the buffers of one goroutine of attentionBackward.
type gradients[T real] struct {
	q, k, v, out, grad []T // one head each
	dk, dv             []T // sums over a group of heads
	p, dp, bias        []T // one query
	dq, lse            []T
}

func newGradients[T real](g *heads) *gradients[T] {
	return &gradients[T]{
		q: make([]T, g.s*g.d), k: make([]T, g.t*g.d), v: make([]T, g.t*g.dv),
		out: make([]T, g.s*g.dv), grad: make([]T, g.s*g.dv),
		dk: make([]T, g.t*g.d), dv: make([]T, g.t*g.dv),
		p: make([]T, g.t), dp: make([]T, g.t), bias: make([]T, g.t),
		dq: make([]T, g.d), lse: make([]T, 1),
	}
}

func attentionBackward[T real](c *call, g *heads) {
	parallel(g.b*g.hkv, 3*g.group*g.s*g.t*(g.d+g.dv), func(_ *memory, lo, hi int64) {
		w := newGradients[T](g)
		for item := lo; item < hi; item++ {
			b, hk := item/g.hkv, item%g.hkv
			rowsOf(w.k, &c.ins[2], b, hk)
			rowsOf(w.v, &c.ins[3], b, hk)
			clear(w.dk)
			clear(w.dv)
			for h := hk * g.group; h < (hk+1)*g.group; h++ {
				rowsOf(w.grad, &c.ins[0], b, h)
				rowsOf(w.q, &c.ins[1], b, h)
				rowsOf(w.out, &c.ins[4], b, h)
				for i := range g.s {
					w.query(c, g, b, h, i)
				}
			}
			for j := range g.t {
				storeRow(&c.outs[1], b, hk, j, w.dk[j*g.d:(j+1)*g.d])
				storeRow(&c.outs[2], b, hk, j, w.dv[j*g.dv:(j+1)*g.dv])
			}
		}
	})
}

// query adds what one query contributes to dk and dv, and writes its dq.
func (w *gradients[T]) query(c *call, g *heads, b, h, i int64) {
	p := w.p[:g.visible(i)]
	dp, bias := w.dp[:len(p)], w.bias[:len(p)]
	q, grad, out := w.q[i*g.d:(i+1)*g.d], w.grad[i*g.dv:(i+1)*g.dv], w.out[i*g.dv:(i+1)*g.dv]
	scores(g, p, bias, q, w.k, b, h, i)
	lse := &c.ins[5]
	load(w.lse, lse, lse.Offset+b*lse.Strides[0]+h*lse.Strides[1]+i*lse.Strides[2], 1)
	if math.IsInf(float64(w.lse[0]), -1) {
		clear(p) // the query saw no key
	} else {
		for j, s := range p {
			p[j] = T(math.Exp(float64(s - w.lse[0])))
		}
	}
	var delta T // the inner product of the output and its gradient
	for j, v := range grad {
		delta += T(v * out[j])
	}
	dots(dp, grad, w.v)
	for j := range dp {
		dp[j] = p[j] * (dp[j] - delta)
	}
	typ := c.ins[1].DType
	roundTo(typ, p)
	roundTo(typ, dp)
	clear(w.dq)
	addRows(w.dq, dp, w.k)
	for j := range w.dq {
		w.dq[j] *= T(g.scale)
	}
	storeRow(&c.outs[0], b, h, i, w.dq)
	for j := range p {
		axpy(w.dv[int64(j)*g.dv:int64(j+1)*g.dv], p[j], grad)
		axpy(w.dk[int64(j)*g.d:int64(j+1)*g.d], T(g.scale)*dp[j], q)
	}
}
