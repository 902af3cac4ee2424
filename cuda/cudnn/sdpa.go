package cudnn

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/cuda/attention"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// builder composes the graph of one problem.
type builder struct {
	graph
	p   *attention.Problem
	typ dataType
}

func newBuilder(p *attention.Problem) *builder {
	b := &builder{p: p, typ: typeBF16, graph: graph{modes: []int32{heurA}, most: math.MaxUint64}}
	if p.DType == dtype.F16 {
		b.typ = typeF16
	}
	return b
}

// operand adds a tensor of the call. Sizes of 1 get the stride that they would have
// in a packed tensor: engines look at strides to tell layouts apart.
func (b *builder) operand(name string, t *library.Tensor, p port) *tensor {
	dims, strides := slices.Clone(t.Shape), slices.Clone(t.Strides)
	for i := len(dims) - 1; i >= 0; i-- {
		if dims[i] != 1 {
			continue
		}
		strides[i] = 1
		if i+1 < len(dims) {
			strides[i] = dims[i+1] * strides[i+1]
		}
	}
	typ := b.typ
	if t.DType == dtype.F32 {
		typ = typeF32
	}
	x := b.add(name, typ, external, dims, strides)
	x.port = p
	return x
}

// transposed adds a tensor of the call with its last two dimensions exchanged.
func (b *builder) transposed(name string, t *library.Tensor, p port) *tensor {
	x := b.operand(name, t, p)
	x.dims[2], x.dims[3] = x.dims[3], x.dims[2]
	x.strides[2], x.strides[3] = x.strides[3], x.strides[2]
	return x
}

// unreproduced is an engine of forward passes that splits the keys of few queries. It
// carries no note of it, but with one query and 512 keys 10 of 50 runs of cuDNN 9.19 on
// an H200 differed from the first.
const unreproduced = 1

func (b *builder) scores() []int64 {
	return []int64{b.p.Batch, b.p.Heads, b.p.Queries, b.p.Keys}
}

func (b *builder) rows() []int64 { return []int64{b.p.Batch, b.p.Heads, b.p.Queries, 1} }

// forwardGraph is out = softmax(scale q k^T + bias, masked) v and, as the operand or
// result LSE, the logarithm of the sum of the exponentials of each row of scores.
func forwardGraph(p *attention.Problem) *graph {
	b := newBuilder(p)
	b.varying = []int64{unreproduced}
	q := b.operand("q", &p.Q, portQ)
	k := b.transposed("k^T", &p.K, portK)
	v := b.operand("v", &p.V, portV)
	s := b.virtual(product("q k^T", q, k), b.scores())
	s = b.virtual(point("scaled", modeMul, s, b.scalar("scale", float32(p.Scale))), b.scores())
	s = b.biased(s)
	if p.Causal {
		s = b.causal(s)
	}
	m := b.virtual(reduce("max", reduceMax, s), b.rows())
	e := b.virtual(point("less max", modeSub, s, m), b.scores())
	e = b.virtual(point("exp", modeExp, e), b.scores())
	sum := b.virtual(reduce("sum", reduceAdd, e), b.rows())
	l := b.virtual(point("log", modeLog, sum), b.rows())
	b.into(point("lse", modeAdd, m, l), b.operand("lse", &p.LSE, portLSE))
	w := b.virtual(point("weights", modeDiv, e, sum), b.scores())
	w.typ = b.typ
	b.into(product("weights v", w, v), b.operand("out", &p.Out, portOut))
	return &b.graph
}

func (b *builder) biased(s *tensor) *tensor {
	if b.p.Bias == nil {
		return s
	}
	return b.virtual(point("biased", modeAdd, s, b.operand("bias", b.p.Bias, portBias)), b.scores())
}

// backwardGraph gives the gradients of q, k and v. The gradient of q is a sum over
// blocks of keys that run side by side: unless exact is set, they add to an f32
// tensor in whatever order they end. exact makes the order fixed; the engine then
// keeps the gradients of all scores in its workspace.
func backwardGraph(p *attention.Problem, exact bool) *graph {
	b := newBuilder(p)
	q := b.operand("q", &p.Q, portQ)
	k := b.transposed("k^T", &p.K, portK)
	v := b.transposed("v^T", &p.V, portV)
	grad := b.operand("grad", &p.Grad, portGrad)
	scale := b.scalar("scale", float32(p.Scale))
	wide := []int64{p.Batch, p.Heads, p.Queries, p.DimV}

	d := b.virtual(point("grad * out", modeMul, grad, b.operand("out", &p.Out, portOut)), wide)
	d.strides[2] = p.Heads * p.DimV // as NVIDIA's own composition has it; nothing is there
	d = b.virtual(reduce("rows", reduceAdd, d), b.rows())
	delta := b.into(point("delta", modeMul, d, b.scalar("one", 1)), b.workspace("delta", b.rows()))

	s := b.virtual(product("q k^T", q, k), b.scores())
	s = b.virtual(point("scaled", modeMul, s, scale), b.scores())
	s = b.biased(s)
	s = b.virtual(point("less lse", modeSub, s, b.operand("lse", &p.LSE, portLSE)), b.scores())
	if p.Causal {
		s = b.causal(s)
	}
	w := b.virtual(point("weights", modeExp, s), b.scores())
	b.perKey("dv", b.turned("weights^T", w), grad, &p.DV, portDV)

	ds := b.virtual(product("grad v^T", grad, v), b.scores())
	ds = b.virtual(point("less delta", modeSub, ds, delta), b.scores())
	ds = b.virtual(point("times weights", modeMul, ds, w), b.scores())
	ds = b.virtual(point("ds", modeMul, ds, scale), b.scores())
	b.perKey("dk", b.turned("ds^T", ds), q, &p.DK, portDK)

	rows := b.into(view("k", k), b.add("k", typeF32, virtual, p.K.Shape, []int64{k.strides[0], k.strides[1], k.strides[3], k.strides[2]}))
	dq := b.operand("dq", &p.DQ, portDQ)
	if exact {
		b.into(product("ds k", ds, rows), dq)
	} else {
		sum := b.into(product("ds k", ds, rows), b.workspace("dq sum", []int64{p.Batch, p.Heads, p.Queries, p.Dim}))
		b.into(point("dq", modeIdentity, sum), dq)
	}
	return &b.graph
}

// turned is a tensor of scores with queries last, in the operands' type: a view.
func (b *builder) turned(name string, x *tensor) *tensor {
	p := b.p
	n := p.Queries * p.Keys
	dims := []int64{p.Batch, p.Heads, p.Keys, p.Queries}
	return b.into(view(name, x), b.add(name, b.typ, virtual, dims, []int64{p.Heads * n, n, 1, p.Keys}))
}

// perKey multiplies turned scores by rows of queries and, when several query heads
// share a key head, sums over those.
func (b *builder) perKey(name string, scores, rows *tensor, out *library.Tensor, at port) {
	p := b.p
	result := b.operand(name, out, at)
	if p.Heads == p.KeyHeads {
		b.into(product(name, scores, rows), result)
		return
	}
	full := b.virtual(product(name+" of all heads", scores, rows), []int64{p.Batch, p.Heads, p.Keys, rows.dims[3]})
	full.typ = b.typ
	b.into(reduce(name, reduceAdd, full), result)
}
