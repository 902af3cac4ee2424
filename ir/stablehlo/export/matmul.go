package export

import (
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
)

// multiplied is the type that operands of a product have, and the one it is added up in.
func (e *emitter) multiplied(a, b val) (x, y val, dt ir.DType) {
	dt = domain(a.dt, b.dt, e.dtype(0))
	if a.dt != b.dt || a.dt == ir.Bool {
		return e.to(a, dt), e.to(b, dt), dt
	}
	return a, b, dt
}

// contracting are the dimension of batches and the summed dimension of each operand of a matmul of
// matrices, or of batches of them.
func contracting(rank int) (batch, contract [2][]int64) {
	if rank == 3 {
		return [2][]int64{{0}, {0}}, [2][]int64{{2}, {1}}
	}
	return batch, [2][]int64{{1}, {0}}
}

func matmul(e *emitter, vs []val) val {
	a, b, dt := e.multiplied(vs[0], vs[1])
	batch, contract := contracting(len(a.shape))
	if e.dtype(0) == a.dt && dt.IsFloat() {
		dt = a.dt
	}
	return e.to(e.product(a, b, batch, contract, dt), e.dtype(0))
}

func addmm(e *emitter, vs []val) val {
	a, b, dt := e.multiplied(vs[1], vs[2])
	dt = e.scalarType(domain(dt, vs[0].dt), "alpha", "beta")
	if !a.dt.IsFloat() {
		a, b = e.to(a, dt), e.to(b, dt)
	}
	batch, contract := contracting(len(a.shape))
	p := e.product(a, b, batch, contract, dt)
	c := e.broadcast(e.to(vs[0], dt), e.shape(0))
	for _, f := range []struct {
		key string
		of  *val
	}{{"alpha", &p}, {"beta", &c}} {
		if e.node.Attrs().Float(f.key, 1) != 1 {
			*f.of = e.simple("stablehlo.multiply", e.scalar(f.key, dt), *f.of)
		}
	}
	return e.to(e.simple("stablehlo.add", c, p), e.dtype(0))
}

// groupedMatmul multiplies everything by every group's matrix and keeps what is the group's:
// where groups end is known at run time only.
func groupedMatmul(e *emitter, vs []val) val {
	a, b, dt := e.multiplied(vs[0], vs[1])
	ends := e.to(vs[2], ir.I64)
	g := ends.shape[0]
	starts := e.concatenate([]val{e.whole(0, ir.I64, []int64{1}), ends}, 0)
	starts = e.slice(starts, 0, 0, g, 1)
	// within is where index i along a dimension of n belongs to group k, as [g, n].
	within := func(n int64) val {
		at := e.iota(ir.I64, []int64{g, n}, 1)
		low, high := e.along(starts, 0, at.shape), e.along(ends, 0, at.shape)
		return e.simple("stablehlo.and", e.compare("GE", at, low), e.compare("LT", at, high))
	}
	keep := func(v val, is val, dims ...int64) val {
		return e.choose(e.spread(is, dims, v.shape), v, e.whole(0, v.dt, v.shape))
	}
	ra, rb := len(a.shape), len(b.shape)
	every := func(v val) val { return e.broadcast(v, append([]int64{g}, v.shape...)) }
	batch := [2][]int64{{0}, {0}}
	contract := [2][]int64{{2}, {1}}
	switch {
	case ra == rb: // pieces of the inner dimension
		is := within(a.shape[1])
		return e.to(e.product(keep(every(a), is, 0, 2), keep(every(b), is, 0, 1), batch, contract, dt), e.dtype(0))
	case rb == 3: // rows
		p := e.product(every(a), b, batch, contract, dt)
		p = keep(p, within(a.shape[0]), 0, 1)
		return e.to(e.reduce("stablehlo.add", p, e.whole(0, dt, nil), []int64{0}), e.dtype(0))
	}
	p := e.product(a, every(b), batch, contract, dt)
	p = keep(p, within(b.shape[1]), 0, 2)
	return e.to(e.reduce("stablehlo.add", p, e.whole(0, dt, nil), []int64{0}), e.dtype(0))
}

func convolution(e *emitter, vs []val) val {
	a, b, dt := e.multiplied(vs[0], vs[1])
	if e.dtype(0) == a.dt && dt.IsFloat() {
		dt = a.dt
	}
	attrs := e.node.Attrs()
	w, err := window.Parse(attrs.Ints, b.shape[2:])
	if err != nil {
		e.failf("%v", err)
		return val{}
	}
	spatial := ""
	for i := range w {
		spatial += fmt.Sprintf(", %d", i)
	}
	get := func(f func(window.Dim) any) string {
		return list(w, func(d window.Dim) string { return fmt.Sprint(f(d)) })
	}
	text := fmt.Sprintf("dim_numbers = [b, f%[1]s]x[o, i%[1]s]->[b, f%[1]s], window = {stride = [%[2]s], pad = [%[3]s], lhs_dilate = [%[4]s], rhs_dilate = [%[5]s], reverse = [%[6]s]}",
		spatial, get(func(d window.Dim) any { return d.Stride }), list(w, func(d window.Dim) string { return fmt.Sprintf("[%d, %d]", d.Low, d.High) }),
		get(func(d window.Dim) any { return d.Base }), get(func(d window.Dim) any { return d.Dilation }), get(func(d window.Dim) any { return d.Reverse }))
	precision := "DEFAULT"
	if a.dt == ir.F32 {
		precision = "HIGHEST"
	}
	return e.to(e.write(dt, e.shape(0), "stablehlo.convolution(", []val{a, b}, ") ", text,
		fmt.Sprintf(" {batch_group_count = %d : i64, feature_group_count = %d : i64, precision_config = [#stablehlo<precision %[3]s>, #stablehlo<precision %[3]s>]}",
			attrs.Int("batch_groups", 1), attrs.Int("groups", 1), precision),
		" : (", list([]val{a, b}, val.typ), ") -> ", typeText(dt, e.shape(0))), e.dtype(0))
}

// heads is attention with the queries of a key head beside each other: q is [b, g, h/g, s, d].
type heads struct {
	q, k, v val
	dt      ir.DType // of scores
	to      ir.DType // of what enters products
	full    []int64  // shape of scores, [b, g, h/g, s, t]
	heads   []int64  // the same as [b, h, s, t]
	scale   float64
	causal  bool
}

// batches of scores and of what has a dimension less.
var byHead = [2][]int64{{0, 1}, {0, 1}}

func (e *emitter) heads(q, k, v val) heads {
	if e.node.Attrs().Float("dropout", 0) != 0 {
		e.failf("dropout: which numbers a device draws is its own")
	}
	h := heads{q: q, k: k, v: v, to: q.dt, dt: domain(q.dt), scale: e.node.Attrs().Float("scale", 1/math.Sqrt(float64(q.shape[3]))), causal: e.node.Attrs().Bool("causal", false)}
	h.full = []int64{q.shape[0], k.shape[1], q.shape[1] / k.shape[1], q.shape[2], k.shape[2]}
	h.heads = []int64{q.shape[0], q.shape[1], q.shape[2], k.shape[2]}
	h.q = h.grouped(e, q)
	return h
}

// grouped is a tensor of queries with the head dimension cut.
func (h *heads) grouped(e *emitter, v val) val {
	return e.reshape(v, append([]int64{h.full[0], h.full[1], h.full[2]}, v.shape[2:]...))
}

// scores are those of queries with keys, -inf where a query does not see a key.
func (h *heads) scores(e *emitter, bias []val) val {
	s := e.product(h.q, h.k, byHead, [2][]int64{{4}, {3}}, h.dt)
	s = e.simple("stablehlo.multiply", s, e.number(h.scale, h.dt, h.full))
	if len(bias) > 0 {
		s = e.simple("stablehlo.add", s, e.reshape(e.broadcast(e.to(bias[0], h.dt), h.heads), h.full))
	}
	if h.causal {
		sees := e.compare("GE", e.iota(ir.I32, h.full, 3), e.iota(ir.I32, h.full, 4))
		s = e.choose(sees, s, e.number(math.Inf(-1), h.dt, h.full))
	}
	return s
}

var queries = []int64{0, 1, 2, 3}

// attention rounds weights to the operands' type before they are multiplied with values, as
// fused kernels do. A query that sees no key gives 0.
func attention(e *emitter, vs []val) []val {
	h := e.heads(vs[0], vs[1], vs[2])
	s := h.scores(e, vs[3:])
	m := e.reduce("stablehlo.maximum", s, e.worst(h.dt, true, h.dt), []int64{4})
	none := e.compare("EQ", m, e.number(math.Inf(-1), h.dt, m.shape))
	safe := e.choose(none, e.whole(0, h.dt, m.shape), m)
	p := e.simple("stablehlo.exponential", e.simple("stablehlo.subtract", s, e.spread(safe, queries, h.full)))
	total := e.reduce("stablehlo.add", p, e.whole(0, h.dt, nil), []int64{4})
	out := e.product(e.to(p, h.to), h.v, byHead, [2][]int64{{4}, {2}}, h.dt)
	by := e.choose(none, e.whole(1, h.dt, m.shape), total)
	out = e.simple("stablehlo.divide", out, e.spread(by, queries, out.shape))
	lse := e.simple("stablehlo.add", m, e.simple("stablehlo.log", total))
	return []val{e.reshape(e.to(out, e.dtype(0)), e.shape(0)), e.reshape(e.to(lse, e.dtype(1)), e.shape(1)),
		e.whole(0, e.dtype(2), e.shape(2)), e.whole(0, e.dtype(3), e.shape(3))}
}

// attentionBackward makes the weights again from the scores and their log-sum-exp.
func attentionBackward(e *emitter, vs []val) []val {
	h := e.heads(vs[1], vs[2], vs[3])
	grad, out := h.grouped(e, vs[0]), h.grouped(e, vs[4])
	s := h.scores(e, vs[8:])
	lse := e.reshape(e.to(vs[5], h.dt), h.full[:4])
	none := e.compare("EQ", lse, e.number(math.Inf(-1), h.dt, lse.shape))
	p := e.simple("stablehlo.exponential", e.simple("stablehlo.subtract", s, e.spread(lse, queries, h.full)))
	p = e.choose(e.spread(none, queries, h.full), e.whole(0, h.dt, h.full), p)
	both := e.simple("stablehlo.multiply", e.to(grad, h.dt), e.to(out, h.dt))
	delta := e.reduce("stablehlo.add", both, e.whole(0, h.dt, nil), []int64{4})
	dp := e.product(grad, h.v, byHead, [2][]int64{{4}, {3}}, h.dt)
	ds := e.simple("stablehlo.multiply", p, e.simple("stablehlo.subtract", dp, e.spread(delta, queries, h.full)))
	p, ds = e.to(p, h.to), e.to(ds, h.to)
	scaled := func(v val) val {
		return e.simple("stablehlo.multiply", v, e.number(h.scale, h.dt, v.shape))
	}
	over := [2][]int64{{2, 3}, {2, 3}}
	dq := scaled(e.product(ds, h.k, byHead, [2][]int64{{4}, {2}}, h.dt))
	dk := scaled(e.product(ds, h.q, byHead, over, h.dt))
	dv := e.product(p, grad, byHead, over, h.dt)
	res := []val{dq, dk, dv}
	for i, v := range res {
		res[i] = e.reshape(e.to(v, e.dtype(i)), e.shape(i))
	}
	return res
}
