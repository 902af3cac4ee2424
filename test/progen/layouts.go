package progen

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// layout gives a tensor one of its dense layouts.
func (g *gen) layout(t ir.Type) ir.Type {
	sizes := t.Shape()
	if len(sizes) < 2 || slices.ContainsFunc(sizes, ir.D(0).Equal) || g.r.IntN(8) > 0 {
		return t
	}
	strides, run := make([]ir.Dim, len(sizes)), ir.D(1)
	for _, d := range g.r.Perm(len(sizes)) {
		strides[d], run = run, run.Mul(sizes[d])
	}
	return t.WithSymbolicStrides(strides)
}

// moves reports whether a view of these attributes may start behind its operand.
func moves(l attr.List) bool {
	return l.Int("start", 0) > 0 || l.Int("index", 0) > 0 || l.Has("sizes")
}

// placed reports whether the distance of neighbours along dimension d is known before
// the program runs, which a view that does not start with its operand needs.
func (g *gen) placed(v *value, d int) bool {
	if d >= v.typ.Rank() {
		return true
	}
	_, ok := v.typ.SymbolicStrides()[d].Const()
	return ok
}

// overlaps reports whether a layout may put several elements in one place.
func overlaps(t ir.Type) bool {
	sizes, ok := t.Shape().Static()
	if !ok || t.Contiguous() {
		return !ok
	}
	type dim struct{ size, stride int64 }
	var ds []dim
	for i, n := range sizes {
		if n > 1 {
			ds = append(ds, dim{n, t.Strides()[i]})
		}
	}
	slices.SortFunc(ds, func(a, b dim) int { return int(a.stride - b.stride) })
	reach := int64(0)
	for _, d := range ds {
		if d.stride <= reach {
			return true
		}
		reach += (d.size - 1) * d.stride
	}
	return false
}
