package hierarchy

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// parts makes what n is taken apart into and returns the values of its operands' results, nil
// if some operand does not fall into equal pieces. The first collective stands where n does,
// everything else before its wait.
func (h *hierarchy) parts(n, wait *ir.Node, s *split) []*ir.Value {
	switch n.Op() {
	case ir.OpAllGather:
		return h.allGather(n, wait, s)
	case ir.OpReduceScatter:
		return h.reduceScatter(n, wait, s)
	case ir.OpAllReduce:
		return h.allReduce(n, wait, s)
	}
	return h.allToAll(n, wait, s)
}

// allGather gathers between domains, then within. A rank then has its rail's pieces, domain by
// domain; where the group's list goes by domain, its domain's pieces go between them, which is a
// gather along a dimension further in.
func (h *hierarchy) allGather(n, wait *ir.Node, s *split) []*ir.Value {
	dim := int(n.Attrs().Int("dim", 0))
	first := h.start(n, n, ir.OpAllGather, s.rail, dim, n.Args())
	mid := h.finish(wait, first)
	if s.outer {
		mid, dim = h.cut(wait, mid, dim, s.domains), dim+1
	}
	out := h.finish(wait, h.start(n, wait, ir.OpAllGather, s.domain, dim, mid))
	if s.outer {
		out = h.join(wait, out, dim-1)
	}
	return out
}

// reduceScatter is allGather's way back.
func (h *hierarchy) reduceScatter(n, wait *ir.Node, s *split) []*ir.Value {
	dim := int(n.Attrs().Int("dim", 0))
	in := n.Args()
	if s.outer {
		in, dim = h.cut(n, in, dim, s.domains), dim+1
	}
	mid := h.finish(wait, h.start(n, n, ir.OpReduceScatter, s.domain, dim, in))
	if s.outer {
		mid, dim = h.join(wait, mid, dim-1), dim-1
	}
	return h.finish(wait, h.start(n, wait, ir.OpReduceScatter, s.rail, dim, mid))
}

// allReduce has each rank of a domain reduce a piece of what the domain has: along the first dimension
// that falls into so many pieces in all operands, the further out, the longer the runs that travel.
func (h *hierarchy) allReduce(n, wait *ir.Node, s *split) []*ir.Value {
	for dim := range n.Arg(0).Type().Rank() {
		if slices.ContainsFunc(n.Args(), func(v *ir.Value) bool { return !divides(v.Type(), dim, s.ranks) }) {
			continue
		}
		mid := h.finish(wait, h.start(n, n, ir.OpReduceScatter, s.domain, dim, n.Args()))
		mid = h.finish(wait, h.start(n, wait, ir.OpAllReduce, s.rail, -1, mid))
		return h.finish(wait, h.start(n, wait, ir.OpAllGather, s.domain, dim, mid))
	}
	return nil
}

// allToAll sends what goes to one place of any domain to that place in its own first, so that
// each pair of domains exchanges one run of memory along each rail. In between, and on the
// side where the group's list goes the other way, pieces change their order, which is a copy.
func (h *hierarchy) allToAll(n, wait *ir.Node, s *split) []*ir.Value {
	var in []*ir.Value
	if s.outer {
		in = h.swap(n, h.cut(n, h.cut(n, n.Args(), 0, s.domains), 1, s.ranks))
	} else {
		in = h.cut(n, h.cut(n, n.Args(), 0, s.ranks), 1, s.domains)
	}
	mid := h.finish(wait, h.start(n, n, ir.OpAllToAll, s.domain, -1, in))
	out := h.finish(wait, h.start(n, wait, ir.OpAllToAll, s.rail, -1, h.swap(wait, mid)))
	if !s.outer {
		out = h.swap(wait, out)
	}
	return h.join(wait, h.join(wait, out, 0), 0)
}

// divides reports whether a dimension falls into so many equal pieces.
func divides(t ir.Type, dim, pieces int) bool {
	if dim >= t.Rank() {
		return false
	}
	d := t.Shape()[dim]
	return d.Div(int64(pieces)).Mul(ir.D(int64(pieces))).Equal(d)
}

// insert makes a node before at and returns it.
func (h *hierarchy) insert(at *ir.Node, spec ir.NodeSpec) *ir.Node {
	spec.Pos = at.Pos()
	if spec.From == nil {
		spec.From = []*ir.Node{at}
	}
	n := h.f.InsertBefore(at, spec)
	h.made = append(h.made, n)
	return n
}

// start makes the collective of several operands that is part of n, before at; nil if one of
// them does not fit. A dimension below 0 is none.
func (h *hierarchy) start(n, at *ir.Node, op ir.Op, g *ir.Group, dim int, args []*ir.Value) *ir.Node {
	if args == nil {
		return nil
	}
	var attrs ir.Attrs
	if op == ir.OpReduceScatter || op == ir.OpAllReduce {
		attrs = attrs.With("reduce", attr.String(string(n.Reduction())))
	}
	if dim >= 0 {
		attrs = attrs.With("dim", attr.Int(int64(dim)))
	}
	types := make([]ir.Type, len(args))
	for k, a := range args {
		types[k] = a.Type()
	}
	got, err := ir.Infer(op, g, attrs, types)
	if err != nil {
		return nil
	}
	return h.insert(at, ir.NodeSpec{Op: op, Name: n.Name() + "_" + g.Name, Args: args, Results: got, Group: g, Attrs: attrs,
		Meta: n.Meta().Without(passes.MembersKey), From: []*ir.Node{n}})
}

// finish waits for a collective before at; nil for none.
func (h *hierarchy) finish(at, start *ir.Node) []*ir.Value {
	if start == nil {
		return nil
	}
	return slices.Clone(h.insert(at, ir.NodeSpec{Op: ir.OpWaitTensor, Name: start.Name() + "_wait", Args: start.Results(), Results: start.Result(0).Type().Elems()}).Results())
}

// mapValues applies f to every value, nil if that gives nil for one.
func mapValues(vs []*ir.Value, f func(v *ir.Value) *ir.Value) (out []*ir.Value) {
	for _, v := range vs {
		if v = f(v); v == nil {
			return nil
		}
		out = append(out, v)
	}
	return out
}

// cut makes two dimensions of one, the outer one of that size.
func (h *hierarchy) cut(at *ir.Node, vs []*ir.Value, dim, size int) []*ir.Value {
	return mapValues(vs, func(v *ir.Value) *ir.Value {
		if !divides(v.Type(), dim, size) {
			return nil
		}
		shape := slices.Clone(v.Type().Shape())
		inner := shape[dim].Div(int64(size))
		shape[dim] = ir.D(int64(size))
		return h.view(at, v, slices.Insert(shape, dim+1, inner))
	})
}

// join makes one dimension of two.
func (h *hierarchy) join(at *ir.Node, vs []*ir.Value, dim int) []*ir.Value {
	return mapValues(vs, func(v *ir.Value) *ir.Value {
		shape := slices.Clone(v.Type().Shape())
		shape[dim] = shape[dim].Mul(shape[dim+1])
		return h.view(at, v, slices.Delete(shape, dim+1, dim+2))
	})
}

func (h *hierarchy) view(at *ir.Node, v *ir.Value, shape ir.Shape) *ir.Value {
	got, err := ir.Infer(ir.OpView, nil, ir.Attrs{}, []ir.Type{v.Type()}, ir.TensorOf(v.Type().DType(), shape))
	if err != nil {
		return nil
	}
	return h.insert(at, ir.NodeSpec{Op: ir.OpView, Name: v.Def().Name() + "_view", Args: []*ir.Value{v}, Results: got}).Result(0)
}

// swap copies tensors with their first two dimensions in the other order.
func (h *hierarchy) swap(at *ir.Node, vs []*ir.Value) []*ir.Value {
	return mapValues(vs, func(v *ir.Value) *ir.Value {
		dims := make([]int64, v.Type().Rank())
		for i := range dims {
			dims[i] = int64(i)
		}
		dims[0], dims[1] = 1, 0
		attrs := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(dims...)})
		got, err := ir.Infer(ir.OpPermute, nil, attrs, []ir.Type{v.Type()})
		if err != nil {
			return nil
		}
		p := h.insert(at, ir.NodeSpec{Op: ir.OpPermute, Name: v.Def().Name() + "_permute", Args: []*ir.Value{v}, Results: got, Attrs: attrs}).Result(0)
		return h.insert(at, ir.NodeSpec{Op: ir.OpClone, Name: v.Def().Name() + "_swap", Args: []*ir.Value{p}, Results: []ir.Type{ir.TensorOf(got[0].DType(), got[0].Shape())}}).Result(0)
	})
}

// undo removes what was made.
func (h *hierarchy) undo() {
	for i := len(h.made) - 1; i >= 0; i-- {
		h.f.Remove(h.made[i])
	}
	h.made = h.made[:0]
}

// replace puts the parts' values in place of the wait's.
func (h *hierarchy) replace(n, wait *ir.Node, out []*ir.Value) {
	for k, v := range out {
		h.f.ReplaceUses(wait.Result(k), v)
	}
	last, name, first := out[0].Def(), wait.Name(), n.Name()
	h.f.Derive(last, wait)
	h.f.Remove(wait)
	h.f.Remove(n)
	if len(out) == 1 || last.Op() == ir.OpWaitTensor {
		h.f.Rename(last, name)
	}
	for _, c := range h.made {
		if c.Op().IsCollective() {
			h.f.Rename(c, first)
			return
		}
	}
}
