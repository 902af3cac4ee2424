package simplify

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// This file makes and removes nodes for the rules.

// insert makes a node directly before at, which it is part of the replacement of
// unless spec says what it is made from. One that reads what something writes in place
// may stand on the wrong side of the write, and one made from a node with order-only edges
// on the wrong side of those: it pins the rewrite, which replace refuses.
func (s *simplifier) insert(at *ir.Node, spec ir.NodeSpec) *ir.Node {
	spec.Pos = at.Pos()
	if spec.From == nil {
		spec.From = []*ir.Node{at}
	}
	s.pinned = s.pinned || slices.ContainsFunc(spec.Args, s.writes.Written) || slices.ContainsFunc(spec.From, (*ir.Node).Ordered)
	n := s.f.InsertBefore(at, spec)
	s.place(n)
	s.made = append(s.made, n)
	return n
}

// compute makes an operation other than a collective before at and returns its
// result, or nil if the operands do not fit or one is nil: what an operation before it
// that did not fit has left. like is the operation whose
// annotations it takes over, and whose cost in proportion to the elements; it may
// be nil.
func (s *simplifier) compute(at *ir.Node, op ir.Op, g *ir.Group, attrs attr.List, like *ir.Node, args []*ir.Value, want ...ir.Type) *ir.Value {
	types := make([]ir.Type, len(args))
	for i, a := range args {
		if a == nil {
			return nil
		}
		types[i] = a.Type()
	}
	got, err := ir.Infer(op, g, attrs, types, want...)
	if err != nil || len(got) != 1 {
		return nil
	}
	spec := ir.NodeSpec{Op: op, Name: at.Name() + "_" + op.Name(), Args: args, Results: got, Group: g, Attrs: attrs}
	if like != nil {
		spec.Meta, spec.From = like.Meta(), []*ir.Node{at, like}
	}
	n := s.insert(at, spec)
	if like != nil {
		s.price(n, like, func(n *ir.Node) float64 { return float64(s.bytes(n.Result(0).Type())) })
	}
	return n.Result(0)
}

// price gives n the cost attached to the node that it stands for, in proportion to
// their sizes; of collectives, to what the cost model says about both if it does.
// A node without an attached cost is left to the model.
func (s *simplifier) price(n, like *ir.Node, size func(n *ir.Node) float64) {
	ms, ok := like.Cost()
	if !ok {
		return
	}
	a, b := size(n), size(like)
	if n.Op().IsCollective() && like.Op().IsCollective() {
		x, ok := s.modelled([]traffic{s.whole(n)})
		y, ok2 := s.modelled([]traffic{s.whole(like)})
		if ok && ok2 && y > 0 {
			a, b = x, y
		}
	}
	if b > 0 {
		ms *= a / b
	}
	s.f.SetCost(n, min(ms, ir.MaxCost))
}

// wireBytes is what a collective puts on the wire, up to a factor that ranks of
// one group share.
func (s *simplifier) wireBytes(n *ir.Node) float64 {
	w := float64(s.moved(n))
	if n.Op() == ir.OpAllReduce {
		w *= 2
	}
	return w
}

// communicate starts a collective of one operand before at and returns the start,
// or nil if the operand does not fit. like is the collective that it stands for.
func (s *simplifier) communicate(at *ir.Node, op ir.Op, g *ir.Group, attrs attr.List, x *ir.Value, like *ir.Node) *ir.Node {
	got, err := ir.Infer(op, g, attrs, []ir.Type{x.Type()})
	if err != nil {
		return nil
	}
	spec := ir.NodeSpec{Op: op, Name: like.Name() + "_" + op.Name(), Args: []*ir.Value{x}, Results: got, Group: g, Attrs: attrs, Meta: like.Meta().Without(passes.MembersKey), From: []*ir.Node{like}}
	n := s.insert(at, spec)
	s.price(n, like, s.wireBytes)
	return n
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

// replace ends a rewrite: it makes every user of old read v, gives v's node the name of
// old's, and removes what nobody reads any more. If something writes the storage of
// old, of v or of what the rewrite reads anew, or old's node has order-only edges, with
// which it would stay, it undoes the rewrite and returns false.
func (s *simplifier) replace(old, v *ir.Value) bool {
	n := old.Def()
	v = s.conform(n, old, v)
	if s.pinned || n.Ordered() || s.writes.Written(old) || s.writes.Written(v) {
		return s.undo()
	}
	s.f.ReplaceUses(old, v)
	name := n.Name()
	if slices.Contains(s.made, v.Def()) {
		s.f.Derive(v.Def(), n)
	}
	s.release(old)
	if !s.alive(n) && slices.Contains(s.made, v.Def()) && len(v.Def().Results()) == 1 {
		s.f.Rename(v.Def(), name)
	}
	return true
}

// conform returns v in the layout of old where the users of old rely on it, and in
// a storage of its own where the caller would otherwise see its input, or one storage
// twice, returned.
func (s *simplifier) conform(at *ir.Node, old, v *ir.Value) *ir.Value {
	if (v.Type().Equal(old.Type()) || anyLayout(old)) && !(ir.Returned(old) && (ir.FromCaller(v) || ir.Returned(ir.StorageOf(v)))) {
		return v
	}
	return s.insert(at, ir.NodeSpec{Op: ir.OpClone, Name: at.Name() + "_clone", Args: []*ir.Value{v}, Results: []ir.Type{old.Type()}}).Result(0)
}

// anyLayout reports whether the users of v read it in whatever layout it has: they
// compute or communicate, and derive no layout of their own from it.
func anyLayout(v *ir.Value) bool {
	for _, u := range v.Uses() {
		if n := u.Node; n.Op() == ir.OpCall || n.Op().Info().Bodies != nil || !deps.Launches(n) && !n.Op().IsCollective() {
			return false
		}
	}
	return true
}

// dense reports whether a tensor of type t fills its storage: its dimensions lie
// in any order, but without gaps. Only such tensors can have storages of their own.
func dense(t ir.Type) bool {
	return t.Contiguous() || t.Extent().Equal(t.Bytes())
}

// release removes the nodes that define vs if nobody reads them, then what only
// they read. A collective goes when no result of it is left, which all ranks
// decide alike; else the unread ones leave the bucket.
func (s *simplifier) release(vs ...*ir.Value) {
	vs = slices.Clone(vs) // may be a node's own list
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
		if n.Op().IsCollective() || !n.Pure() || deps.Used(n) {
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
	spec := ir.NodeSpec{Op: start.Op(), Name: start.Name(), Group: start.Group(), Attrs: start.Attrs(), Meta: start.Meta(), From: []*ir.Node{start}}
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
	if spec.Meta.Has(passes.MembersKey) {
		spec.Meta = spec.Meta.With(passes.MembersKey, attr.Strings(pick(spec.Meta.Strs(passes.MembersKey), keep)...))
		spec.Members = pick(start.Members(), keep)
	}
	small := s.insert(start, spec)
	s.price(small, start, s.wireBytes)
	left := s.insert(w, ir.NodeSpec{Op: ir.OpWaitTensor, Name: w.Name(), Args: []*ir.Value{small.Result(0)}, Results: types, Meta: w.Meta(), From: []*ir.Node{w}})
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
func pick[T any](list []T, keep []int) []T {
	var out []T
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

// undo removes what a rule has made before it found that it does not fit; it
// returns false, what the rule then returns.
func (s *simplifier) undo() bool {
	for i := len(s.made) - 1; i >= 0; i-- {
		if n := s.made[i]; s.alive(n) && !deps.Used(n) {
			s.f.Remove(n)
		}
	}
	s.made = s.made[:0]
	return false
}
