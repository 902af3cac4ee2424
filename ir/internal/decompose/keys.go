package decompose

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// sortKey is one number that a comparator orders by: a value of the first elements of the
// pairs, which it compares with the same of the second ones.
type sortKey struct {
	first, second *ir.Value
	descending    bool
}

// sortKeys finds the keys of a comparator that goes by one number after the other. inputs are
// its parameters, pairs next to each other.
func sortKeys(result *ir.Value, inputs []*ir.Value) ([]sortKey, bool) {
	var keys []sortKey
	for {
		if k, ok := keyOf(result, inputs); ok {
			return append(keys, k), true
		}
		next := (*ir.Value)(nil)
		for _, s := range sides(result, ir.OpLogicalOr, ir.OpBitwiseOr) {
			k, ok := keyOf(s[0], inputs)
			if !ok || k.first.Type().DType().IsFloat() { // a NaN is not equal to itself
				continue
			}
			for _, t := range sides(s[1], ir.OpLogicalAnd, ir.OpBitwiseAnd) {
				if next == nil && (is(t[0], ir.OpEq, k.first, k.second) || is(t[0], ir.OpEq, k.second, k.first)) {
					keys, next = append(keys, k), t[1]
				}
			}
		}
		if next == nil {
			return nil, false
		}
		result = next
	}
}

// keyOf reports whether v compares a value of the first elements with the same of the second.
func keyOf(v *ir.Value, inputs []*ir.Value) (sortKey, bool) {
	n := v.Def()
	if n.Op() != ir.OpLt && n.Op() != ir.OpGt || len(n.Args()) != 2 {
		return sortKey{}, false
	}
	k := sortKey{n.Arg(0), n.Arg(1), n.Op() == ir.OpGt}
	if mirrored(k.first, k.second, inputs, 0) {
		return k, true
	}
	k = sortKey{k.second, k.first, !k.descending}
	return k, mirrored(k.first, k.second, inputs, 0)
}

// maxKeyDepth bounds what is compared of two computations.
const maxKeyDepth = 12

// mirrored reports whether a is of the first elements what b is of the second ones.
func mirrored(a, b *ir.Value, inputs []*ir.Value, depth int) bool {
	if i := slices.Index(inputs, a); i >= 0 {
		return i%2 == 0 && b == inputs[i+1]
	}
	n, m := a.Def(), b.Def()
	if depth > maxKeyDepth || slices.Contains(inputs, b) || n.Op() == ir.OpInput || m.Op() == ir.OpInput || n.Op() != m.Op() || len(n.Args()) != len(m.Args()) || !n.Attrs().Equal(m.Attrs()) || !a.Type().Equal(b.Type()) ||
		a.Index() != 0 || b.Index() != 0 || !n.Pure() {
		return false
	}
	for i := range n.Args() {
		if !mirrored(n.Arg(i), m.Arg(i), inputs, depth+1) {
			return false
		}
	}
	return true
}

// replay computes a scalar v of a body of tensors in place of its parameters.
func (e emit) replay(v *ir.Value, inputs, tensors []*ir.Value, done map[*ir.Value]*ir.Value) *ir.Value {
	if i := slices.Index(inputs, v); i >= 0 {
		return tensors[i]
	}
	if w, ok := done[v]; ok {
		return w
	}
	n := v.Def()
	var args []*ir.Value
	var shape ir.Shape
	for _, a := range n.Args() {
		w := e.replay(a, inputs, tensors, done)
		if w.Type().Rank() > 0 {
			shape = w.Type().Shape()
		}
		args = append(args, w)
	}
	w := e.one(n.Op(), n.Attrs(), args, ir.TensorOf(v.Type().DType(), shape))
	done[v] = w
	return w
}

// byKeys sorts xs by keys: the last one first, then stably by those before it.
func (e emit) byKeys(xs []*ir.Value, dim int, keys []sortKey, inputs []*ir.Value) []*ir.Value {
	tensors := make([]*ir.Value, len(inputs))
	for i, x := range xs {
		tensors[2*i] = x
	}
	along := ir.A("dim", dim)
	var order *ir.Value
	done := map[*ir.Value]*ir.Value{}
	for _, k := range slices.Backward(keys) {
		key := e.replay(k.first, inputs, tensors, done)
		if order != nil {
			key = e.one(ir.OpGather, along, []*ir.Value{key, order})
		}
		best := e.Op(ir.OpTopk, nil, ir.A("dim", dim, "k", sizes(xs[0])[dim], "largest", k.descending), []*ir.Value{key})
		if order == nil {
			order = best[1]
		} else {
			order = e.one(ir.OpGather, along, []*ir.Value{order, best[1]})
		}
	}
	out := make([]*ir.Value, len(xs))
	for i, x := range xs {
		out[i] = e.one(ir.OpGather, along, []*ir.Value{x, order})
	}
	return out
}
