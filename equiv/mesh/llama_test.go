package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// llama is a training step of a decoder with grouped heads, written by hand: of one device, or
// of each rank of a mesh with parameters over data and tensor and sequence parallelism over
// model.
type llama struct {
	layers, hidden, ffn, heads, keys, head, vocab, batch, seq int64
	data, model                                               int64 // 0: one device
	dt                                                        ir.DType

	f      *ir.FuncBuilder
	dp, tp *ir.Group
	in     []Placement
	grads  []*ir.Value
}

// parts is how many pieces an axis makes.
func (l *llama) parts(axis string) int64 {
	switch {
	case l.dp == nil:
		return 1
	case axis == "data":
		return l.data
	case axis == "model":
		return l.model
	}
	return 1
}

func (l *llama) group(axis string) *ir.Group {
	if axis == "data" {
		return l.dp
	}
	return l.tp
}

// input is a piece of a tensor: the axis along each dimension, none where it is empty.
func (l *llama) input(name string, dt ir.DType, axes []string, shape ...int64) *ir.Value {
	p := Placement{}
	for d, a := range axes {
		shape[d] /= l.parts(a)
		p = append(p, slices.DeleteFunc([]string{a}, func(a string) bool { return a == "" }))
	}
	l.in = append(l.in, p)
	return l.f.Input(name, ir.Tensor(dt, shape...))
}

func (l *llama) weight(name string, axes []string, shape ...int64) *ir.Value {
	return l.input(name, l.dt, axes, shape...)
}

func (l *llama) gather(x *ir.Value, axis string, dim int64) *ir.Value {
	if l.dp == nil {
		return x
	}
	return l.f.Wait1(l.f.AllGather(l.group(axis), dim, x))
}

func (l *llama) scatter(x *ir.Value, axis string, dim int64) *ir.Value {
	if l.dp == nil {
		return x
	}
	return l.f.Wait1(l.f.ReduceScatter(ir.Sum, l.group(axis), dim, x))
}

func (l *llama) sum(x *ir.Value, axes ...string) *ir.Value {
	for _, a := range axes {
		if l.dp != nil {
			x = l.f.Wait1(l.f.AllReduce(ir.Sum, l.group(a), x))
		}
	}
	return x
}

// flat are the tokens of a tensor [batch, tokens, features] as rows.
func (l *llama) flat(x *ir.Value) *ir.Value {
	s := x.Type().Shape()
	return l.f.View(x, ir.Shape{s[0].Mul(s[1]), s[2]})
}

func (l *llama) rows(x *ir.Value) *ir.Value {
	b := l.batch / l.parts("data")
	return l.f.View(x, ir.Shape{ir.D(b), ir.D(l.seq), x.Type().Shape()[1]})
}

func (l *llama) t(x *ir.Value) *ir.Value { return l.f.Permute(x, 1, 0) }

// norm is a normal form and what its gradient needs.
func (l *llama) norm(x, gain *ir.Value) (out, unit, r *ir.Value) {
	f := l.f
	r = f.Unary(ir.OpRsqrt, f.Scalar(ir.OpAdd, f.Reduce(ir.OpMean, f.Mul(x, x), true, 2), 1e-5))
	unit = f.Mul(x, r)
	return f.Mul(unit, gain), unit, r
}

func (l *llama) normGrad(d, x, unit, r, gain *ir.Value) (dx, dgain *ir.Value) {
	f := l.f
	dgain = l.sum(f.Reduce(ir.OpSum, f.Mul(d, unit), false, 0, 1), "data", "model")
	du := f.Mul(d, gain)
	m := f.Reduce(ir.OpMean, f.Mul(du, unit), true, 2)
	return f.Mul(f.Sub(du, f.Mul(unit, m)), r), dgain
}

type layer struct {
	q, k, v, o, gate, up, down, first, second *ir.Value
}

// build writes the step of each rank, or of one device.
func (l *llama) build(world int64, ranks bool) (*ir.Func, error) {
	b := ir.NewBuilder(int(world))
	if ranks {
		rows, cols := make([][]int, l.data), make([][]int, l.model)
		for r := range int(world) {
			d, m := r/int(l.model), r%int(l.model)
			rows[d], cols[m] = append(rows[d], r), append(cols[m], r)
		}
		l.dp, l.tp = b.Group("dp", cols), b.Group("tp", rows)
	}
	l.f = b.Func("step")
	f := l.f
	ids := l.input("ids", ir.I64, []string{"data", "model"}, l.batch, l.seq)
	goal := l.input("goal", ir.I64, []string{"data", "model"}, l.batch, l.seq)
	table := l.weight("table", []string{"data", ""}, l.vocab, l.hidden)
	head := l.weight("out", []string{"data", "model"}, l.hidden, l.vocab)
	col, row := []string{"data", "model"}, []string{"model", "data"}
	var ls []layer
	for i := range l.layers {
		n := func(s string) string { return fmt.Sprintf("%s%d", s, i) }
		qs, ks := l.heads*l.head, l.keys*l.head
		ls = append(ls, layer{
			l.weight(n("q"), col, l.hidden, qs), l.weight(n("k"), col, l.hidden, ks), l.weight(n("v"), col, l.hidden, ks), l.weight(n("o"), row, qs, l.hidden),
			l.weight(n("gate"), col, l.hidden, l.ffn), l.weight(n("up"), col, l.hidden, l.ffn), l.weight(n("down"), row, l.ffn, l.hidden),
			l.weight(n("first"), []string{""}, l.hidden), l.weight(n("second"), []string{""}, l.hidden),
		})
	}
	x := f.Embedding(l.gather(table, "data", 0), ids)
	var backs []func(d *ir.Value) *ir.Value
	for _, w := range ls {
		var back func(d *ir.Value) *ir.Value
		x, back = l.attention(x, w)
		backs = append(backs, back)
		x, back = l.mlp(x, w)
		backs = append(backs, back)
	}
	full := l.gather(l.gather(head, "data", 0), "model", 1)
	rows := l.flat(x)
	lp := f.LogSoftmax(f.MatMul(rows, full), 1)
	n := rows.Type().Shape()[0]
	at := f.View(goal, ir.Shape{n, ir.D(1)})
	scale := -1 / float64(l.batch*l.seq)
	loss := l.sum(f.Scalar(ir.OpMul, f.Reduce(ir.OpSum, f.Gather(lp, at, 1), false, 0, 1), scale), "data", "model")
	hot := f.Scatter(f.Full(ir.TensorOf(l.dt, lp.Type().Shape()), 0), at, f.Full(ir.TensorOf(l.dt, at.Type().Shape()), 1), 1)
	dl := f.Scalar(ir.OpMul, f.Sub(hot, f.Unary(ir.OpExp, lp)), scale)
	dhead := l.scatter(l.scatter(f.MatMul(l.t(rows), dl), "data", 0), "model", 1)
	d := f.View(f.MatMul(dl, l.t(full)), x.Type().Shape())
	for _, back := range slices.Backward(backs) {
		d = back(d)
	}
	zero := f.Full(ir.Tensor(l.dt, l.vocab, l.hidden), 0)
	dtable := l.sum(l.scatter(f.IndexPut(zero, d, []int64{0}, true, ids), "data", 0), "model")
	slices.Reverse(l.grads)
	f.Return(slices.Concat([]*ir.Value{loss, dtable, dhead}, l.grads)...)
	m, err := b.Finish()
	if err != nil {
		return nil, err
	}
	return m.Funcs()[0], nil
}

// products multiplies rows by weights, and gives what their gradients are made of.
func (l *llama) products(rows *ir.Value, ws ...*ir.Value) (out, full []*ir.Value) {
	for _, w := range ws {
		w = l.gather(w, "data", 0)
		full = append(full, w)
		out = append(out, l.f.MatMul(rows, w))
	}
	return out, full
}

// productsGrad is the gradient of the rows, those of the weights are kept.
func (l *llama) productsGrad(rows *ir.Value, full, ds []*ir.Value) *ir.Value {
	var dx *ir.Value
	for i, d := range ds {
		l.grads = append(l.grads, l.scatter(l.f.MatMul(l.t(rows), d), "data", 0))
		if p := l.f.MatMul(d, l.t(full[i])); dx == nil {
			dx = p
		} else {
			dx = l.f.Add(dx, p)
		}
	}
	return l.scatter(l.rows(dx), "model", 1)
}

func (l *llama) heads4(x *ir.Value, heads int64) *ir.Value {
	b := l.batch / l.parts("data")
	return l.f.Permute(l.f.View(x, ir.Dims(b, l.seq, heads/l.parts("model"), l.head)), 0, 2, 1, 3)
}

func (l *llama) unheads(x *ir.Value) *ir.Value {
	y := l.f.Clone(l.f.Permute(x, 0, 2, 1, 3))
	s := x.Type().Shape()
	return l.f.View(y, ir.Shape{s[0].Mul(s[2]), s[1].Mul(s[3])})
}

func (l *llama) attention(x *ir.Value, w layer) (*ir.Value, func(d *ir.Value) *ir.Value) {
	f := l.f
	n, unit, r := l.norm(x, w.first)
	rows := l.flat(l.gather(n, "model", 1))
	p, full := l.products(rows, w.q, w.k, w.v)
	q, k, v := l.heads4(p[0], l.heads), l.heads4(p[1], l.keys), l.heads4(p[2], l.keys)
	a := f.Attention(q, k, v, nil, true, 0)
	o := l.unheads(a[0])
	wo := l.gather(w.o, "data", 1)
	y := f.Add(x, l.scatter(l.rows(f.MatMul(o, wo)), "model", 1))
	return y, func(d *ir.Value) *ir.Value {
		dr := l.flat(l.gather(d, "model", 1))
		l.grads = append(l.grads, l.scatter(f.MatMul(l.t(o), dr), "data", 1))
		do := l.heads4(f.MatMul(dr, l.t(wo)), l.heads)
		g := f.Op(ir.OpAttentionBackward, nil, a[0].Def().Attrs(), []*ir.Value{do, q, k, v, a[0], a[1], a[2], a[3]})
		dn := l.productsGrad(rows, full, []*ir.Value{l.unheads(g[0]), l.unheads(g[1]), l.unheads(g[2])})
		dx, dgain := l.normGrad(dn, x, unit, r, w.first)
		l.grads = append(l.grads, dgain)
		return f.Add(d, dx)
	}
}

func (l *llama) mlp(x *ir.Value, w layer) (*ir.Value, func(d *ir.Value) *ir.Value) {
	f := l.f
	n, unit, r := l.norm(x, w.second)
	rows := l.flat(l.gather(n, "model", 1))
	p, full := l.products(rows, w.gate, w.up)
	act := f.Mul(f.Unary(ir.OpSilu, p[0]), p[1])
	wd := l.gather(w.down, "data", 1)
	y := f.Add(x, l.scatter(l.rows(f.MatMul(act, wd)), "model", 1))
	return y, func(d *ir.Value) *ir.Value {
		dr := l.flat(l.gather(d, "model", 1))
		l.grads = append(l.grads, l.scatter(f.MatMul(l.t(act), dr), "data", 1))
		da := f.MatMul(dr, l.t(wd))
		sig := f.Unary(ir.OpSigmoid, p[0])
		slope := f.Mul(sig, f.Scalar(ir.OpAdd, f.Mul(p[0], f.Scalar(ir.OpAdd, f.Unary(ir.OpNeg, sig), 1)), 1))
		dn := l.productsGrad(rows, full, []*ir.Value{f.Mul(f.Mul(da, p[1]), slope), f.Mul(da, f.Unary(ir.OpSilu, p[0]))})
		dx, dgain := l.normGrad(dn, x, unit, r, w.second)
		l.grads = append(l.grads, dgain)
		return f.Add(d, dx)
	}
}

// steps are the step of one device and that of the ranks.
func (l llama) steps(t testing.TB) (device, ranks *ir.Func, o Options) {
	one, many := l, l
	device, err := one.build(1, false)
	if err != nil {
		t.Fatal(err)
	}
	if ranks, err = many.build(l.data*l.model, true); err != nil {
		t.Fatal(err)
	}
	o = Options{Mesh: Mesh{Axes: []Axis{{"data", l.data}, {"model", l.model}}}, Inputs: many.in}
	// the loss, and gradients where their parameters lie
	o.Results = []Placement{{}, many.in[2], many.in[3]}
	for i := range int(l.layers) {
		w := many.in[4+9*i:]
		o.Results = append(o.Results, w[7], w[2], w[1], w[0], w[3], w[8], w[5], w[4], w[6])
	}
	return device, ranks, o
}

// TestLlama proves a small step and holds it against a run.
func TestLlama(t *testing.T) {
	l := llama{layers: 2, hidden: 8, ffn: 16, heads: 4, keys: 2, head: 4, vocab: 8, batch: 2, seq: 4, data: 2, model: 2, dt: ir.F64}
	device, ranks, o := l.steps(t)
	if rep, err := Check(device, ranks, o); err != nil || len(rep.Unknown) > 0 {
		t.Fatalf("%v %v", err, rep)
	}
	if !agrees(t, device, ranks, o, 1) {
		t.Fatal("what is proved gives other results")
	}
}

// llama405 is a step of 405 billion parameters on 512 ranks.
var llama405 = llama{layers: 126, hidden: 16384, ffn: 53248, heads: 128, keys: 8, head: 128, vocab: 128256, batch: 128, seq: 8192, data: 64, model: 8, dt: ir.BF16}

// TestLlama405B proves the large step: an axis of 64 gathers and reduces, and nothing is looked
// at rank by rank.
func TestLlama405B(t *testing.T) {
	device, ranks, o := llama405.steps(t)
	if rep, err := Check(device, ranks, o); err != nil || len(rep.Unknown) > 0 {
		t.Fatalf("%v %v", err, rep)
	}
}

func BenchmarkLlama405B(b *testing.B) {
	device, ranks, o := llama405.steps(b)
	for b.Loop() {
		if _, err := Check(device, ranks, o); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(device.Order())+len(ranks.Order())), "nodes")
}

// TestPartitionedLlama proves what the partitioner makes of the step of one device.
func TestPartitionedLlama(t *testing.T) {
	l := llama{layers: 2, hidden: 8, ffn: 16, heads: 4, keys: 4, head: 4, vocab: 8, batch: 4, seq: 4, dt: ir.F64}
	for _, c := range []struct {
		name        string
		data, model int64
		of          func(name string, in Placement) Placement
	}{
		{"ddp", 4, 1, func(name string, in Placement) Placement {
			if name == "ids" || name == "goal" {
				return Placement{{"data"}, {}}
			}
			return nil
		}},
		{"fsdp", 4, 1, func(name string, in Placement) Placement {
			p := make(Placement, len(in))
			p[0] = []string{"data"}
			return p
		}},
		{"tp", 1, 4, func(name string, in Placement) Placement {
			p := make(Placement, len(in))
			for d, l := range in {
				if len(l) > 0 && l[0] == "model" && name != "ids" && name != "goal" {
					p[d] = l
				}
			}
			return p
		}},
		{"fsdp x tp", 2, 2, func(_ string, in Placement) Placement { return in }},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := l
			one.data, one.model = c.data, c.model
			device, err := one.build(c.data*c.model, false)
			if err != nil {
				t.Fatal(err)
			}
			axes := fmt.Sprintf("['data'=%d, 'model'=%d]", c.data, c.model)
			for i, n := range device.Inputs() {
				if p := c.of(n.Name(), one.in[i]); p != nil {
					var dims []string
					for _, l := range p {
						dims = append(dims, "{"+strings.Join(quoted(l), ", ")+"}")
					}
					text := "<mesh<" + axes + ">, [" + strings.Join(dims, ", ") + "]>"
					device.SetMeta(n, n.Meta().With(ir.ShardingKey, attr.Strings(text)))
				}
			}
			m := device.Module().Clone()
			if err := compile.Partition(m); err != nil {
				t.Fatal(err)
			}
			o, err := Annotated(device)
			if err != nil {
				t.Fatal(err)
			}
			rep, err := Check(device, m.Funcs()[0], o)
			if err != nil || len(rep.Unknown) > 0 {
				t.Errorf("%v %v\n%s", err, rep, m)
			}
		})
	}
}

func quoted(l []string) []string {
	var out []string
	for _, s := range l {
		out = append(out, "'"+s+"'")
	}
	return out
}
