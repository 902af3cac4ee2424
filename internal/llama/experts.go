package llama

import "github.com/seed-ee968945/concert/ir"

// This file has layers of experts, of which each takes the tokens of a row that suit it best. By
// hand, ranks along data have some of the experts each, and send them their tokens.

// experts are the weights of a layer's experts, as of one multilayer perceptron each.
func (l *Step) experts(n func(s string) string) (router, gate, up, down *ir.Value) {
	one := []string{"data", "", ""}
	router = l.weight(n("router"), []string{"", ""}, l.Hidden, l.Experts)
	gate = l.input(ir.RoleParameter, n("egate"), l.DType, one, l.Experts, l.Hidden, l.FFN)
	up = l.input(ir.RoleParameter, n("eup"), l.DType, one, l.Experts, l.Hidden, l.FFN)
	down = l.input(ir.RoleParameter, n("edown"), l.DType, one, l.Experts, l.FFN, l.Hidden)
	return router, gate, up, down
}

// taken is how many tokens of a row an expert takes.
func (l *Step) taken() int64 { return 2 * l.Seq / l.Experts }

// dispatch brings tokens [rows, experts*taken, features] to their experts.
func (l *Step) dispatch(x *ir.Value) *ir.Value {
	f, k := l.f, l.parts("data")
	b, c := l.Batch/k, l.taken()
	y := f.Clone(f.Permute(f.View(x, ir.Dims(b, l.Experts, c, l.Hidden)), 1, 0, 2, 3))
	if l.dp != nil {
		y = f.View(f.Wait1(f.AllToAll(l.dp, y)), ir.Dims(k, l.Experts/k, b*c*l.Hidden))
		y = f.Clone(f.Permute(y, 1, 0, 2))
	}
	return f.View(y, ir.Dims(l.Experts/k, l.Batch*c, l.Hidden))
}

// collect brings tokens back from their experts.
func (l *Step) collect(y *ir.Value) *ir.Value {
	f, k := l.f, l.parts("data")
	b, c := l.Batch/k, l.taken()
	if l.dp != nil {
		y = f.Clone(f.Permute(f.View(y, ir.Dims(l.Experts/k, k, b*c*l.Hidden)), 1, 0, 2))
		y = f.Wait1(f.AllToAll(l.dp, y))
	}
	y = f.Permute(f.View(y, ir.Dims(l.Experts, b, c, l.Hidden)), 1, 0, 2, 3)
	return f.View(f.Clone(y), ir.Dims(b, l.Experts*c, l.Hidden))
}

func (l *Step) mixture(x *ir.Value, w layer) (*ir.Value, func(d *ir.Value) *ir.Value) {
	f := l.f
	b, c := l.Batch/l.parts("data"), l.taken()
	n, unit, r := l.norm(x, w.second)
	rows := l.flat(n)
	p := f.Softmax(f.View(f.MatMul(rows, w.router), ir.Dims(b, l.Seq, l.Experts)), 2)
	share, which := f.TopK(f.Permute(p, 0, 2, 1), c, 2)
	at := f.Expand(f.View(which, ir.Dims(b, l.Experts*c, 1)), ir.Dims(b, l.Experts*c, l.Hidden))
	each := f.View(share, ir.Dims(b, l.Experts*c, 1))
	add := func(v *ir.Value) *ir.Value {
		zero := f.Full(ir.Tensor(l.DType, b, l.Seq, l.Hidden), 0)
		return f.Op(ir.OpScatter, nil, ir.A("dim", int64(1), "reduce", "add"), []*ir.Value{zero, at, v})[0]
	}
	in := l.dispatch(f.Gather(n, at, 1))
	g, u := f.MatMul(in, w.gate), f.MatMul(in, w.up)
	act := f.Mul(f.Unary(ir.OpSilu, g), u)
	out := l.collect(f.MatMul(act, w.down))
	y := f.Add(x, add(f.Mul(out, each)))
	t := func(v *ir.Value) *ir.Value { return f.Permute(v, 0, 2, 1) }
	return y, func(d *ir.Value) *ir.Value {
		dy := f.Gather(d, at, 1)
		dshare := f.View(f.Reduce(ir.OpSum, f.Mul(dy, out), false, 2), ir.Dims(b, l.Experts, c))
		do := l.dispatch(f.Mul(dy, each))
		ddown := f.MatMul(t(act), do)
		da := f.MatMul(do, t(w.down))
		sig := f.Unary(ir.OpSigmoid, g)
		slope := f.Mul(sig, f.Scalar(ir.OpAdd, f.Mul(g, f.Scalar(ir.OpAdd, f.Unary(ir.OpNeg, sig), 1)), 1))
		dg, du := f.Mul(f.Mul(da, u), slope), f.Mul(da, f.Unary(ir.OpSilu, g))
		din := f.Add(f.MatMul(dg, t(w.gate)), f.MatMul(du, t(w.up)))
		dn := add(l.collect(din))
		dp := t(f.Scatter(f.Full(ir.Tensor(l.DType, b, l.Experts, l.Seq), 0), which, dshare, 2))
		dl := f.Mul(p, f.Sub(dp, f.Reduce(ir.OpSum, f.Mul(dp, p), true, 2)))
		flat := f.View(dl, ir.Dims(b*l.Seq, l.Experts))
		dn = f.Add(dn, l.rows(f.MatMul(flat, l.t(w.router))))
		l.grads = append(l.grads, f.MatMul(t(in), du), f.MatMul(t(in), dg), ddown, l.sum(f.MatMul(l.t(rows), flat), "data"))
		dx, dgain := l.normGrad(dn, unit, r, w.second)
		l.grads = append(l.grads, dgain)
		return f.Add(d, dx)
	}
}
