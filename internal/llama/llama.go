// Package llama builds a decoder's training step: for one device, or hand-sharded
// for each rank of a mesh, as the reference for what a partitioner makes of the former.
package llama

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// Step is a training step of a decoder with grouped heads, written by hand: of one device, or
// of each rank of a mesh with parameters over data and tensor and sequence parallelism over
// model; experts lie over data.
type Step struct {
	Layers, Hidden, FFN, Heads, Keys, Head, Vocab, Batch, Seq int64
	Data, Model                                               int64 // ranks along each axis
	DType                                                     ir.DType
	Replicate                                                 bool  // parameters lie on all ranks along data
	Experts                                                   int64 // of each layer, 0 of one without; then Model is 1

	f      *ir.FuncBuilder
	dp, tp *ir.Group
	In     [][][]string // of each input: the axes along its dimensions
	grads  []*ir.Value
	Inputs map[string][]*ir.Value // by kind: of one in each layer, or alone
}

// parts is how many pieces an axis makes.
func (l *Step) parts(axis string) int64 {
	switch {
	case l.dp == nil:
		return 1
	case axis == "data":
		return l.Data
	case axis == "model":
		return l.Model
	}
	return 1
}

func (l *Step) group(axis string) *ir.Group {
	if axis == "data" {
		return l.dp
	}
	return l.tp
}

// input is a piece of a tensor: the axis along each dimension, none where it is empty.
func (l *Step) input(role ir.Role, name string, dt ir.DType, axes []string, shape ...int64) *ir.Value {
	p := [][]string{}
	for d, a := range axes {
		shape[d] /= l.parts(a)
		p = append(p, slices.DeleteFunc([]string{a}, func(a string) bool { return a == "" }))
	}
	l.In = append(l.In, p)
	v := l.f.InputRole(name, ir.Tensor(dt, shape...), role)
	kind := strings.TrimRight(name, "0123456789")
	l.Inputs[kind] = append(l.Inputs[kind], v)
	return v
}

func (l *Step) weight(name string, axes []string, shape ...int64) *ir.Value {
	if l.Replicate {
		axes = slices.Clone(axes)
		for d, a := range axes {
			if a == "data" {
				axes[d] = ""
			}
		}
	}
	return l.input(ir.RoleParameter, name, l.DType, axes, shape...)
}

func (l *Step) gather(x *ir.Value, axis string, dim int64) *ir.Value {
	if l.dp == nil || l.Replicate && axis == "data" {
		return x
	}
	return l.f.Wait1(l.f.AllGather(l.group(axis), dim, x))
}

func (l *Step) scatter(x *ir.Value, axis string, dim int64) *ir.Value {
	if l.dp == nil {
		return x
	}
	if l.Replicate && axis == "data" {
		return l.sum(x, axis)
	}
	return l.f.Wait1(l.f.ReduceScatter(ir.Sum, l.group(axis), dim, x))
}

func (l *Step) sum(x *ir.Value, axes ...string) *ir.Value {
	for _, a := range axes {
		if l.dp != nil {
			x = l.f.Wait1(l.f.AllReduce(ir.Sum, l.group(a), x))
		}
	}
	return x
}

// flat are the tokens of a tensor [batch, tokens, features] as rows.
func (l *Step) flat(x *ir.Value) *ir.Value {
	s := x.Type().Shape()
	return l.f.View(x, ir.Shape{s[0].Mul(s[1]), s[2]})
}

func (l *Step) rows(x *ir.Value) *ir.Value {
	b := l.Batch / l.parts("data")
	return l.f.View(x, ir.Shape{ir.D(b), ir.D(l.Seq), x.Type().Shape()[1]})
}

func (l *Step) t(x *ir.Value) *ir.Value { return l.f.Permute(x, 1, 0) }

// norm is a normal form and what its gradient needs.
func (l *Step) norm(x, gain *ir.Value) (out, unit, r *ir.Value) {
	f := l.f
	r = f.Unary(ir.OpRsqrt, f.Scalar(ir.OpAdd, f.Reduce(ir.OpMean, f.Mul(x, x), true, 2), 1e-5))
	unit = f.Mul(x, r)
	return f.Mul(unit, gain), unit, r
}

func (l *Step) normGrad(d, unit, r, gain *ir.Value) (dx, dgain *ir.Value) {
	f := l.f
	dgain = l.sum(f.Reduce(ir.OpSum, f.Mul(d, unit), false, 0, 1), "data", "model")
	du := f.Mul(d, gain)
	m := f.Reduce(ir.OpMean, f.Mul(du, unit), true, 2)
	return f.Mul(f.Sub(du, f.Mul(unit, m)), r), dgain
}

type layer struct {
	q, k, v, o, gate, up, down, first, second, router *ir.Value
}

// Device writes the step of one device, in a module of all ranks; annotate may say how values
// lie.
func (l *Step) Device(annotate func(l *Step, m *ir.Mesh)) (*ir.Func, error) {
	b := ir.NewBuilder(int(l.Data * l.Model))
	m := b.Mesh(ir.Axis{Name: "data", Size: l.Data}, ir.Axis{Name: "model", Size: l.Model})
	return l.build(b, func() {
		if annotate != nil {
			annotate(l, m)
		}
	})
}

// Ranks writes the step of each rank.
func (l *Step) Ranks() (*ir.Func, error) {
	b := ir.NewBuilder(int(l.Data * l.Model))
	rows, cols := make([][]int, l.Data), make([][]int, l.Model)
	for r := range int(l.Data * l.Model) {
		d, m := r/int(l.Model), r%int(l.Model)
		rows[d], cols[m] = append(rows[d], r), append(cols[m], r)
	}
	l.dp, l.tp = b.Group("dp", cols), b.Group("tp", rows)
	return l.build(b, func() {})
}

func (l *Step) build(b *ir.Builder, annotate func()) (*ir.Func, error) {
	l.Inputs = map[string][]*ir.Value{}
	l.f = b.Func("step")
	f := l.f
	ids := l.input(ir.RoleData, "ids", ir.I64, []string{"data", "model"}, l.Batch, l.Seq)
	goal := l.input(ir.RoleData, "goal", ir.I64, []string{"data", "model"}, l.Batch, l.Seq)
	table := l.weight("table", []string{"data", ""}, l.Vocab, l.Hidden)
	head := l.weight("out", []string{"data", "model"}, l.Hidden, l.Vocab)
	col, row := []string{"data", "model"}, []string{"model", "data"}
	var ls []layer
	for i := range l.Layers {
		n := func(s string) string { return fmt.Sprintf("%s%d", s, i) }
		qs, ks := l.Heads*l.Head, l.Keys*l.Head
		w := layer{q: l.weight(n("q"), col, l.Hidden, qs), k: l.weight(n("k"), col, l.Hidden, ks), v: l.weight(n("v"), col, l.Hidden, ks), o: l.weight(n("o"), row, qs, l.Hidden)}
		if l.Experts > 0 {
			w.router, w.gate, w.up, w.down = l.experts(n)
		} else {
			w.gate, w.up, w.down = l.weight(n("gate"), col, l.Hidden, l.FFN), l.weight(n("up"), col, l.Hidden, l.FFN), l.weight(n("down"), row, l.FFN, l.Hidden)
		}
		w.first, w.second = l.weight(n("first"), []string{""}, l.Hidden), l.weight(n("second"), []string{""}, l.Hidden)
		ls = append(ls, w)
	}
	annotate()
	x := f.Embedding(l.gather(table, "data", 0), ids)
	var backs []func(d *ir.Value) *ir.Value
	for _, w := range ls {
		var back func(d *ir.Value) *ir.Value
		x, back = l.attention(x, w)
		backs = append(backs, back)
		if l.Experts > 0 {
			x, back = l.mixture(x, w)
		} else {
			x, back = l.mlp(x, w)
		}
		backs = append(backs, back)
	}
	full := l.gather(l.gather(head, "data", 0), "model", 1)
	rows := l.flat(x)
	lp := f.LogSoftmax(f.MatMul(rows, full), 1)
	n := rows.Type().Shape()[0]
	at := f.View(goal, ir.Shape{n, ir.D(1)})
	scale := -1 / float64(l.Batch*l.Seq)
	loss := l.sum(f.Scalar(ir.OpMul, f.Reduce(ir.OpSum, f.Gather(lp, at, 1), false, 0, 1), scale), "data", "model")
	hot := f.Scatter(f.Full(ir.TensorOf(l.DType, lp.Type().Shape()), 0), at, f.Full(ir.TensorOf(l.DType, at.Type().Shape()), 1), 1)
	dl := f.Scalar(ir.OpMul, f.Sub(hot, f.Unary(ir.OpExp, lp)), scale)
	dhead := l.scatter(l.scatter(f.MatMul(l.t(rows), dl), "data", 0), "model", 1)
	d := f.View(f.MatMul(dl, l.t(full)), x.Type().Shape())
	for _, back := range slices.Backward(backs) {
		d = back(d)
	}
	zero := f.Full(ir.Tensor(l.DType, l.Vocab, l.Hidden), 0)
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
func (l *Step) products(rows *ir.Value, ws ...*ir.Value) (out, full []*ir.Value) {
	for _, w := range ws {
		w = l.gather(w, "data", 0)
		full = append(full, w)
		out = append(out, l.f.MatMul(rows, w))
	}
	return out, full
}

// productsGrad is the gradient of the rows, those of the weights are kept.
func (l *Step) productsGrad(rows *ir.Value, full, ds []*ir.Value) *ir.Value {
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

func (l *Step) heads4(x *ir.Value, heads int64) *ir.Value {
	b := l.Batch / l.parts("data")
	return l.f.Permute(l.f.View(x, ir.Dims(b, l.Seq, heads/l.parts("model"), l.Head)), 0, 2, 1, 3)
}

func (l *Step) unheads(x *ir.Value) *ir.Value {
	y := l.f.Clone(l.f.Permute(x, 0, 2, 1, 3))
	s := x.Type().Shape()
	return l.f.View(y, ir.Shape{s[0].Mul(s[2]), s[1].Mul(s[3])})
}

func (l *Step) attention(x *ir.Value, w layer) (*ir.Value, func(d *ir.Value) *ir.Value) {
	f := l.f
	n, unit, r := l.norm(x, w.first)
	rows := l.flat(l.gather(n, "model", 1))
	p, full := l.products(rows, w.q, w.k, w.v)
	q, k, v := l.heads4(p[0], l.Heads), l.heads4(p[1], l.Keys), l.heads4(p[2], l.Keys)
	a := f.Attention(q, k, v, nil, true, 0)
	o := l.unheads(a[0])
	wo := l.gather(w.o, "data", 1)
	y := f.Add(x, l.scatter(l.rows(f.MatMul(o, wo)), "model", 1))
	return y, func(d *ir.Value) *ir.Value {
		dr := l.flat(l.gather(d, "model", 1))
		l.grads = append(l.grads, l.scatter(f.MatMul(l.t(o), dr), "data", 1))
		do := l.heads4(f.MatMul(dr, l.t(wo)), l.Heads)
		g := f.Op(ir.OpAttentionBackward, nil, a[0].Def().Attrs(), []*ir.Value{do, q, k, v, a[0], a[1], a[2], a[3]})
		dn := l.productsGrad(rows, full, []*ir.Value{l.unheads(g[0]), l.unheads(g[1]), l.unheads(g[2])})
		dx, dgain := l.normGrad(dn, unit, r, w.first)
		l.grads = append(l.grads, dgain)
		return f.Add(d, dx)
	}
}

func (l *Step) mlp(x *ir.Value, w layer) (*ir.Value, func(d *ir.Value) *ir.Value) {
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
		dx, dgain := l.normGrad(dn, unit, r, w.second)
		l.grads = append(l.grads, dgain)
		return f.Add(d, dx)
	}
}
