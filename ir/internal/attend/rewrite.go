package attend

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// writer makes nodes before another one.
type writer struct {
	f  *ir.Func
	at *ir.Node
	ok bool
}

// op appends an operation; after one that does not fit everything is nil.
func (w *writer) op(o ir.Op, attrs ir.Attrs, args []*ir.Value, want ...ir.Type) []*ir.Value {
	var types []ir.Type
	for _, a := range args {
		if a == nil {
			w.ok = false
			return make([]*ir.Value, 4)
		}
		types = append(types, a.Type())
	}
	got, err := ir.Infer(o, nil, attrs, types, want...)
	if err != nil {
		w.ok = false
		return make([]*ir.Value, 4)
	}
	return w.f.InsertBefore(w.at, ir.NodeSpec{Op: o, Name: w.at.Name() + "_" + o.Name(), Args: args, Results: got, Attrs: attrs, Pos: w.at.Pos(), From: []*ir.Node{w.at}}).Results()
}

// view is a value under another shape, without a copy where that is possible.
func (w *writer) view(v *ir.Value, shape []int64) *ir.Value {
	if v == nil || slices.Equal(sizes(v), shape) {
		return v
	}
	t := ir.TensorOf(v.Type().DType(), ir.Dims(shape...))
	if _, err := ir.Infer(ir.OpView, nil, nil, []ir.Type{v.Type()}, t); err != nil {
		v = w.clone(v)
	}
	return w.op(ir.OpView, nil, []*ir.Value{v}, t)[0]
}

func (w *writer) permute(v *ir.Value, dims []int64) *ir.Value {
	if v == nil || slices.IsSorted(dims) {
		return v
	}
	return w.op(ir.OpPermute, ir.A("dims", dims), []*ir.Value{v})[0]
}

// clone is a value in row-major order.
func (w *writer) clone(v *ir.Value) *ir.Value {
	if v == nil || v.Type().Contiguous() {
		return v
	}
	return w.op(ir.OpClone, nil, []*ir.Value{v}, ir.TensorOf(v.Type().DType(), v.Type().Shape()))[0]
}

// swapped has the last two dimensions in each other's place.
func (w *writer) swapped(v *ir.Value) *ir.Value {
	if v == nil {
		return nil
	}
	dims := make([]int64, len(sizes(v)))
	for i := range dims {
		dims[i] = int64(i)
	}
	n := len(dims)
	dims[n-1], dims[n-2] = dims[n-2], dims[n-1]
	return w.permute(v, dims)
}

// heads is a matrix as [b, h, rows, columns]: a view of what it is made of, or of itself.
func (s *softmax) heads(w *writer, m matrix) *ir.Value {
	if v := m.viewed(w, s.batch[0], s.batch[1]); v != nil {
		return v
	}
	v := m.v
	if m.swap {
		v = w.swapped(v)
	}
	shape := sizes(v)
	n := len(shape)
	return w.view(v, []int64{s.batch[0], s.batch[1], shape[n-2], shape[n-1]})
}

// like is a result [b, h, rows, columns] in place of a product's, which may have its last
// two dimensions the other way around.
func (s *softmax) like(w *writer, v *ir.Value, n *ir.Node, flipped bool) *ir.Value {
	if flipped {
		v = w.clone(w.swapped(v))
	}
	return w.view(v, sizes(n.Result(0)))
}

// added is what is added to scores: a bias, or zeros and what hides.
func (s *softmax) added(w *writer) *ir.Value {
	dt := ir.F32
	if s.q.v.Type().DType() == ir.F64 {
		dt = ir.F64
	}
	convert := func(v *ir.Value) *ir.Value {
		if v == nil || v.Type().DType() == dt {
			return v
		}
		return w.op(ir.OpConvert, nil, []*ir.Value{v}, ir.TensorOf(dt, v.Type().Shape()))[0]
	}
	if s.bias != nil {
		return w.view(convert(s.bias), []int64{s.batch[0], s.batch[1], s.s, s.t})
	}
	zero := w.op(ir.OpFull, ir.A("value", 0.0), nil, ir.Tensor(dt))[0]
	c, _ := constant(s.low)
	low := w.op(ir.OpFull, ir.A("value", c), nil, ir.Tensor(dt))[0]
	mask, shape := s.shown()
	args := []*ir.Value{mask, zero, low}
	if s.inverted {
		args[1], args[2] = low, zero
	}
	return w.view(w.op(ir.OpWhere, nil, args)[0], shape)
}

// shown is the mask, and what its sizes are as one of [b, h, s, t].
func (s *softmax) shown() (mask *ir.Value, shape []int64) {
	mask = s.mask
	shape = []int64{s.batch[0], s.batch[1], s.s, s.t}
	if a := axesOf(mask); len(a.dims) >= 2 { // the same for all heads
		all := slices.Concat(a.dims[:len(a.dims)-2]...)
		if r := sizes(a.root); len(r) == 2 && r[0] == s.s && r[1] == s.t && !slices.ContainsFunc(all, func(f factor) bool { return f.step != 0 }) &&
			slices.EqualFunc(a.dims[len(a.dims)-2:], whole(a.root).dims, slices.Equal) {
			mask, shape = a.root, []int64{1, 1, s.s, s.t}
		}
	}
	return mask, shape
}

// blind reports whether there may be queries that see no key and weigh all keys alike, since hidden
// scores are one number and no infinity. As a bias that number would be added to each one's score.
func (s *softmax) blind() bool {
	if s.mask == nil || s.causal || s.follower.triangular {
		return false
	}
	c, _ := constant(s.low)
	return !math.IsInf(c, -1)
}

// seeing is where queries see a key, as [b, h, s, 1].
func (s *softmax) seeing(w *writer) *ir.Value {
	mask, shape := s.shown()
	if mask = w.view(mask, shape); s.inverted {
		mask = w.op(ir.OpLogicalNot, nil, []*ir.Value{mask})[0]
	}
	return w.op(ir.OpAmax, ir.A("dims", []int64{3}, "keepdim", true), []*ir.Value{mask})[0]
}

// orZero is a tensor with zeros where a query sees no key.
func (s *softmax) orZero(w *writer, sees, v *ir.Value) *ir.Value {
	if v == nil {
		return nil
	}
	zero := w.op(ir.OpFull, ir.A("value", 0.0), nil, ir.Tensor(v.Type().DType()))[0]
	return w.op(ir.OpWhere, nil, []*ir.Value{sees, v, zero})[0]
}

// rewrite puts attention in place of the products, and removes what nothing reads then.
func (s *softmax) rewrite() bool {
	place := map[*ir.Node]int{} // look-up only
	for i, n := range s.f.Order() {
		place[n] = i
	}
	first, dout := s.grad, s.gout
	if s.grad != nil {
		if place[s.dv] < place[first] {
			first, dout = s.dv, s.dout
		}
		if place[first] < place[s.out] || place[s.dq] < place[first] || place[s.dk] < place[first] {
			return false
		}
	}
	w := &writer{s.f, s.out, true}
	var made []*ir.Node
	undo := func() bool {
		for i := len(made) - 1; i >= 0; i-- {
			s.f.Remove(made[i])
		}
		return false
	}
	before := s.f.NumNodeIDs()
	collect := func() {
		for id := before; id < s.f.NumNodeIDs(); id++ {
			made = append(made, s.f.NodeByID(ir.NodeID(id)))
		}
		before = s.f.NumNodeIDs()
	}
	args := []*ir.Value{s.heads(w, s.q), s.heads(w, s.k), s.heads(w, s.v)}
	var bias []*ir.Value
	if s.bias != nil || s.mask != nil && !s.causal {
		bias = []*ir.Value{s.added(w)}
	}
	var sees *ir.Value
	if s.blind() { // such a query is zero and nothing is hidden from it: all of its scores are 0
		sees = s.seeing(w)
		args[0], bias[0] = s.orZero(w, sees, args[0]), s.orZero(w, sees, bias[0])
	}
	attrs := ir.A("causal", s.causal, "scale", s.scale)
	out := w.op(ir.OpAttention, attrs, append(slices.Clone(args), bias...))
	results := []*ir.Value{s.like(w, out[0], s.out, s.flipped)}
	products := []*ir.Node{s.out}
	if s.grad != nil && w.ok {
		w.at = first
		g := s.heads(w, dout)
		d := w.op(ir.OpAttentionBackward, attrs, slices.Concat([]*ir.Value{g}, args, []*ir.Value{out[0], out[1], out[2], out[3]}, bias))
		dq := d[0]
		if sees != nil { // the gradient of a score that is hidden goes nowhere
			dq = s.orZero(w, sees, dq)
		}
		results = append(results, s.like(w, dq, s.dq, s.dqFlip), s.like(w, d[1], s.dk, s.dkFlip), s.like(w, d[2], s.dv, s.dvFlip))
		products = append(products, s.dq, s.dk, s.dv)
	}
	if collect(); !w.ok {
		return undo()
	}
	for i, n := range products {
		if !results[i].Type().Equal(n.Result(0).Type()) {
			return undo()
		}
	}
	for i, n := range products {
		s.f.ReplaceUses(n.Result(0), results[i])
	}
	s.f.RemoveDead(products...)
	return true
}
