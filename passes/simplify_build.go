package passes

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// This file makes and removes nodes for the rules.

// insert makes a node directly before at.
func (s *simplifier) insert(at *ir.Node, spec ir.NodeSpec) *ir.Node {
	spec.Pos = at.Pos()
	n := s.f.InsertBefore(at, spec)
	s.place(n)
	s.made = append(s.made, n)
	return n
}

// compute makes an operation other than a collective before at and returns its
// result, or nil if the operands do not fit. like is the operation whose
// annotations it takes over, and whose cost in proportion to the elements; it may
// be nil.
func (s *simplifier) compute(at *ir.Node, op ir.Op, g *ir.Group, attrs attr.List, like *ir.Node, args []*ir.Value, want ...ir.Type) *ir.Value {
	types := make([]ir.Type, len(args))
	for i, a := range args {
		types[i] = a.Type()
	}
	got, err := ir.Infer(op, g, attrs, types, want...)
	if err != nil || len(got) != 1 {
		return nil
	}
	spec := ir.NodeSpec{Op: op, Name: at.Name() + "_" + op.Name(), Args: args, Results: got, Group: g, Attrs: attrs}
	if like != nil {
		spec.Meta = like.Meta()
		if ms, ok := like.Cost(); ok && s.ctx.Costs() == nil {
			whole := s.bytes(like.Result(0).Type())
			spec.Cost, spec.HasCost = ms*ratio(s.bytes(got[0]), whole), true
		}
	}
	return s.insert(at, spec).Result(0)
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

// communicate starts a collective of one operand before at and returns the start,
// or nil if the operand does not fit. like is the collective that it stands for.
func (s *simplifier) communicate(at *ir.Node, op ir.Op, g *ir.Group, attrs attr.List, x *ir.Value, like *ir.Node) *ir.Node {
	got, err := ir.Infer(op, g, attrs, []ir.Type{x.Type()})
	if err != nil {
		return nil
	}
	spec := ir.NodeSpec{Op: op, Name: like.Name() + "_" + op.Name(), Args: []*ir.Value{x}, Results: got, Group: g, Attrs: attrs, Meta: like.Meta().Without(MembersKey)}
	n := s.insert(at, spec)
	if ms, ok := like.Cost(); ok && s.ctx.Costs() == nil {
		s.f.SetCost(n, ms*s.share(n, like))
	}
	return n
}

// share is the time of n in proportion to that of like, by bytes on the wire.
func (s *simplifier) share(n, like *ir.Node) float64 {
	weight := func(n *ir.Node) float64 {
		w := float64(s.moved(n))
		if n.Op() == ir.OpAllReduce {
			w *= 2
		}
		return w
	}
	if weight(like) == 0 {
		return 1
	}
	return weight(n) / weight(like)
}

// finish waits for a collective of one operand before at and returns the tensor.
func (s *simplifier) finish(at, start *ir.Node) *ir.Value {
	return s.insert(at, ir.NodeSpec{Op: ir.OpWaitTensor, Name: at.Name() + "_wait", Args: []*ir.Value{start.Result(0)}, Results: start.Result(0).Type().Elems()}).Result(0)
}

// reduceAttrs are the attributes of a collective that reduces, dim < 0 for none.
func reduceAttrs(r ir.Reduction, dim int) attr.List {
	l := attr.Make(attr.Attr{Key: "reduce", Val: attr.String(string(r))})
	if dim >= 0 {
		l = l.With("dim", attr.Int(int64(dim)))
	}
	return l
}

func dimAttrs(dim int) attr.List {
	return attr.Make(attr.Attr{Key: "dim", Val: attr.Int(int64(dim))})
}

// replace makes every user of old read v, gives v's node the name of old's, and
// removes what nobody reads any more. old must not be written in place nor v.
func (s *simplifier) replace(old, v *ir.Value) {
	n := old.Def()
	v = s.conform(n, old, v)
	s.f.ReplaceUses(old, v)
	name := n.Name()
	s.release(old)
	if !s.alive(n) && slices.Contains(s.made, v.Def()) && len(v.Def().Results()) == 1 {
		s.f.Rename(v.Def(), name)
	}
}

// conform returns v in the layout of old, which the users of old rely on, and in a
// storage of its own where the caller would otherwise see its input returned.
func (s *simplifier) conform(at *ir.Node, old, v *ir.Value) *ir.Value {
	if v.Type().Equal(old.Type()) && !(fromCaller(v) && returned(old)) {
		return v
	}
	return s.insert(at, ir.NodeSpec{Op: ir.OpClone, Name: at.Name() + "_clone", Args: []*ir.Value{v}, Results: []ir.Type{old.Type()}}).Result(0)
}

// release removes the nodes that define vs if nobody reads them, then what only
// they read. A collective goes when no result of it is left, which all ranks
// decide alike; else the unread ones leave the bucket.
func (s *simplifier) release(vs ...*ir.Value) {
	for len(vs) > 0 {
		v := vs[len(vs)-1]
		vs = vs[:len(vs)-1]
		n := v.Def()
		if !s.alive(n) || len(v.Uses()) > 0 || n.Op() == ir.OpInput {
			continue
		}
		if n.Op() == ir.OpWaitTensor {
			vs = append(vs, s.trim(n)...)
			continue
		}
		if n.Op().IsCollective() || !n.Pure() || used(n) {
			continue
		}
		vs = append(vs, n.Args()...)
		s.f.Remove(n)
	}
}

// trim removes the unread tensors of a wait from it and from its collective. It
// returns the operands that went.
func (s *simplifier) trim(w *ir.Node) []*ir.Value {
	start := w.Arg(0).Def()
	if !start.Op().IsCollective() {
		return nil
	}
	var keep []int
	var gone []*ir.Value
	for k, r := range w.Results() {
		if len(r.Uses()) > 0 {
			keep = append(keep, k)
		} else {
			gone = append(gone, start.Arg(k))
		}
	}
	switch {
	case gone == nil:
		return nil
	case keep == nil:
		s.f.Remove(w)
		s.f.Remove(start)
		return gone
	}
	spec := ir.NodeSpec{Op: start.Op(), Name: start.Name(), Group: start.Group(), Attrs: start.Attrs(), Meta: start.Meta()}
	var types []ir.Type
	for _, k := range keep {
		spec.Args = append(spec.Args, start.Arg(k))
		types = append(types, start.Result(0).Type().Elems()[k])
	}
	spec.Results = []ir.Type{ir.Async(types...)}
	for _, key := range []string{"in_splits", "out_splits"} {
		if spec.Attrs.Has(key) {
			spec.Attrs = spec.Attrs.With(key, attr.Strings(pick(spec.Attrs.Strs(key), keep)...))
		}
	}
	if spec.Meta.Has(MembersKey) {
		spec.Meta = spec.Meta.With(MembersKey, attr.Strings(pick(spec.Meta.Strs(MembersKey), keep)...))
	}
	small := s.insert(start, spec)
	if ms, ok := start.Cost(); ok {
		s.f.SetCost(small, ms*s.share(small, start))
	}
	left := s.insert(w, ir.NodeSpec{Op: ir.OpWaitTensor, Name: w.Name(), Args: []*ir.Value{small.Result(0)}, Results: types, Meta: w.Meta()})
	for i, k := range keep {
		s.f.ReplaceUses(w.Result(k), left.Result(i))
	}
	wname, sname := w.Name(), start.Name()
	s.f.Remove(w)
	s.f.Remove(start)
	s.f.Rename(left, wname)
	s.f.Rename(small, sname)
	return gone
}

// pick returns the elements of list at the places in keep.
func pick(list []string, keep []int) []string {
	var out []string
	for _, k := range keep {
		if k < len(list) {
			out = append(out, list[k])
		}
	}
	return out
}

// resized is t, row-major, with dimension d of size n.
func resized(t ir.Type, d int, n ir.Dim) ir.Type {
	shape := slices.Clone(t.Shape())
	shape[d] = n
	return ir.TensorOf(t.DType(), shape)
}

// divisible reports whether dimension d of t falls into n equal pieces.
func divisible(t ir.Type, d, n int) bool {
	if d < 0 || d >= t.Rank() {
		return false
	}
	size := t.Shape()[d]
	return size.Div(int64(n)).Mul(ir.D(int64(n))).Equal(size)
}
