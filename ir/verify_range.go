package ir

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/ir/types"
)

// The rules of sizes and layouts, as Type documents them.

func ruleDimensions(v *verifier) {
	for _, n := range v.f.Order() {
		for _, r := range n.results {
			for _, t := range r.typ.Tensors() {
				v.dimensions(n, t)
			}
		}
	}
}

func (v *verifier) dimensions(n *Node, t Type) {
	total := int64(1)
	for _, d := range t.Shape() {
		c, ok := v.extent(n, t, "dimension", d)
		switch c = max(c, 1); {
		case !ok:
			return
		case total > types.MaxElems/c:
			v.at(n, -1, nil, "%s holds more than 2^50 elements", t)
			return
		}
		total *= c
	}
	if t.Contiguous() {
		return
	}
	for _, d := range t.SymbolicStrides() {
		if _, ok := v.extent(n, t, "stride", d); !ok {
			return
		}
	}
}

// extent is the greatest value of a dimension or a stride; false where it is reported as none.
func (v *verifier) extent(n *Node, t Type, what string, d Dim) (int64, bool) {
	for _, s := range d.Symbols(nil) {
		if v.m.Symbol(s) == nil {
			v.at(n, -1, nil, "symbol %s is not declared", s)
			return 0, false
		}
	}
	r, ok := v.m.Bounds(d)
	switch {
	case !ok:
		v.at(n, -1, nil, "%s %s of %s may not fit 64 bits", what, d, t)
	case r.Min < 0:
		v.at(n, -1, v.symbolNotes(d), "%s %s of %s is negative", what, d, t)
	}
	return r.Max, ok && r.Min >= 0
}

// symbolNotes says what values d takes, nil if it is a number.
func (v *verifier) symbolNotes(d Dim) []string {
	names := d.Symbols(nil)
	r, ok := v.m.Bounds(d)
	if len(names) == 0 || !ok {
		return nil
	}
	note := fmt.Sprintf("%s lies in %d..%d, where", d, r.Min, r.Max)
	for i, s := range names {
		y := v.m.Symbol(s)
		note += fmt.Sprintf("%s %s takes every value in %d..%d", ","[:min(i, 1)], s, y.Min, y.Max)
	}
	return []string{note}
}

func ruleLayout(v *verifier) {
	for _, n := range v.f.Order() {
		for _, r := range n.DeclaredResults() {
			for _, t := range r.typ.Tensors() {
				v.layout(n, t)
			}
		}
		if n.op == OpCall {
			v.writtenLayouts(n)
		}
	}
}

func (v *verifier) layout(n *Node, t Type) {
	if t.Contiguous() || v.bad[n.id] {
		return
	}
	most := func(list []Dim) []int64 {
		out := make([]int64, len(list))
		for i, d := range list {
			r, _ := v.m.Bounds(d) // rule dimensions has checked it
			out[i] = r.Max
		}
		return out
	}
	if _, ok := types.Reach(most(t.Shape()), most(t.SymbolicStrides())); !ok {
		v.at(n, -1, nil, "%s reaches past 2^50 elements", t)
		return
	}
	switch {
	case n.op.IsCollective():
		v.at(n, -1, nil, "%s cannot give %s; results of collectives are row-major", n.op.Name(), t)
	case n.op != OpInput && n.op != OpWaitTensor && n.Effects()&EffectAlias == 0 && !t.NonOverlapping():
		v.at(n, -1, []string{"declare a layout with a place for each element, and repeat elements by a view"},
			"%s cannot give %s, in which elements share a place", n.op.Name(), t)
	}
}

// writtenLayouts checks what a call writes in place.
func (v *verifier) writtenLayouts(n *Node) {
	for i, a := range n.DeclaredArgs() {
		t := a.typ
		if v.bad[n.id] || !n.Writes(i) || t.IsAsync() || t.Contiguous() {
			continue
		}
		if !t.NonOverlapping() {
			v.at(n, i, []string{fmt.Sprintf("write a copy: %%c = clone %s", a)}, "%s writes %s of type %s, in which elements share a place", n.op.Name(), a, t)
		}
	}
}

// notNegative reports whether d is never less than 0.
func (v *verifier) notNegative(d Dim) bool {
	r, ok := v.m.Bounds(d)
	return ok && r.Min >= 0
}

func ruleRange(v *verifier) {
	for _, n := range v.f.Order() {
		if v.bad[n.id] {
			continue
		}
		if n.op == OpAllToAll {
			v.splits(n)
		}
		for _, d := range n.Needs() {
			if r, ok := v.m.Bounds(d); !ok || r.Max < 0 {
				v.at(n, -1, v.symbolNotes(d), "%s reaches past its operand for all values of the symbols: %s is never 0 or more", n.op.Name(), d)
			}
		}
		if n.op == OpView {
			v.sameCount(n)
		}
		for i := range n.results {
			if !n.op.IsView() || v.bad[n.id] {
				continue
			}
			if _, err := n.ViewOffset(i); err != nil {
				v.at(n, -1, nil, "%v", err)
			}
		}
	}
}

// sameCount demands checks where a view has as many elements as its operand for some values of the
// symbols only, and that memory for the operand's bound is enough.
func (v *verifier) sameCount(n *Node) {
	x, r := n.args[0].typ.Shape(), n.results[0].typ.Shape()
	have, want := x.NumElems(), r.NumElems()
	d := have.Sub(want)
	for _, zero := range v.m.Zeros() {
		d = d.Given(zero)
	}
	switch {
	case !d.Equal(D(0)):
		v.at(n, -1, []string{fmt.Sprintf("declare that they are equal: need %s, need %s", d, D(0).Sub(d))},
			"view of %s as %s changes the number of elements", x, r)
	case v.m.Bound(want) > v.m.Bound(have):
		v.at(n, -1, slices.Concat(v.symbolNotes(have), v.symbolNotes(want)), "view of %s as %s: by the bounds of its symbols the result is larger", x, r)
	}
}

// Needs lists sizes that must not be negative for n to stay within its operands: what
// symbolic dimensions have beyond the pieces that n takes of them. Where they may be
// negative, the runtime checks them before anything runs (program.Program.Needs).
func (n *Node) Needs() []Dim {
	beyond := func(need int64) []Dim {
		size := n.args[0].typ.Shape()[n.attrs.Int("dim", 0)]
		if _, static := size.Const(); static {
			return nil
		}
		return []Dim{size.Sub(D(need))}
	}
	switch n.op {
	case OpSlice:
		return beyond(n.attrs.Int("end", 0))
	case OpSelect:
		return beyond(n.attrs.Int("index", 0) + 1)
	case OpTopk:
		return beyond(n.attrs.Int("k", 0))
	case OpAllToAll:
		if n.attrs.Has("in_splits") {
			return n.addUp()
		}
		var out []Dim
		for _, a := range n.args {
			d, ranks := a.typ.Shape()[0], int64(n.group.Size())
			if _, static := d.Const(); !static {
				out = append(out, d.Div(ranks).Mul(D(ranks)).Sub(d)) // 0 for multiples
			}
		}
		return out
	}
	return nil
}

// addUp lists what must not be negative for uneven pieces to make up operands and results.
func (n *Node) addUp() []Dim {
	var out []Dim
	in, from, _ := n.Splits() // rule range judges them
	for k, lists := range [2][][]Dim{in, from} {
		for i, list := range lists {
			t := n.args[i].typ
			if k == 1 {
				t = n.results[0].typ.Tensors()[i]
			}
			if d := t.Shape()[0].Sub(dim.Sum(list...)); !d.Equal(D(0)) {
				out = append(out, d, D(0).Sub(d))
			}
		}
	}
	return out
}

// splits checks the pieces of an all_to_all.
func (v *verifier) splits(n *Node) {
	in, out, err := n.Splits()
	if err != nil {
		v.at(n, -1, nil, "%v", err)
		return
	}
	for i, list := range append(in, out...) {
		key := [2]string{"in_splits", "out_splits"}[i/max(len(in), 1)]
		for _, d := range list {
			for _, s := range d.Symbols(nil) {
				if v.m.Symbol(s) == nil {
					v.at(n, -1, nil, "symbol %s in %s is not declared", s, key)
					return
				}
			}
			if !v.notNegative(d) {
				v.at(n, -1, v.symbolNotes(d), "%s: size %s is negative for some values of its symbols", key, d)
				return
			}
		}
	}
}
