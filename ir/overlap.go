package ir

import "github.com/seed-ee968945/concert/ir/types"

// Whether two tensors that lie in one storage have elements in common.

// offset is where x begins in its storage, in elements; false where that is not known.
func (v *verifier) offset(x *Value) (at int64, ok bool) {
	for a := x.Aliases(); a != nil && !a.typ.IsAsync(); x, a = a, a.Aliases() {
		if x.IsVersion() || !x.def.op.IsView() {
			continue
		}
		if v.bad[x.def.id] {
			return 0, false
		}
		o, err := x.def.ViewOffset(int(x.index))
		if err != nil {
			return 0, false
		}
		at += o
	}
	return at, true
}

// apart reports whether two tensors of one storage have no element in common, whatever the
// values of symbols.
func (v *verifier) apart(a, b *Value) bool {
	p, ok := v.offset(a)
	q, ok2 := v.offset(b)
	if !ok || !ok2 {
		return false
	}
	between := D((q - p) * int64(a.typ.DType().Size()))
	if v.notNegative(between.Sub(a.typ.Extent())) || v.notNegative(D(0).Sub(between).Sub(b.typ.Extent())) {
		return true
	}
	return types.Disjoint(a.typ, b.typ, p, q)
}
