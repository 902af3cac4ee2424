package ir

import "slices"

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
	return boxesApart(a.typ, b.typ, p, q)
}

// boxesApart compares tensors as boxes in one grid, such as columns of a matrix: the strides
// of both, each a multiple of the next, are its dimensions. False where they are no boxes.
func boxesApart(a, b Type, p, q int64) bool {
	var strides []int64
	for _, t := range []Type{a, b} {
		st := t.Strides()
		if st == nil {
			return false
		}
		strides = append(strides, st...)
	}
	slices.Sort(strides)
	strides = slices.Compact(strides)
	slices.Reverse(strides)
	x, ok := box(a, p, strides)
	y, ok2 := box(b, q, strides)
	if !ok || !ok2 {
		return false
	}
	for d := range x {
		if x[d].start >= y[d].end || y[d].start >= x[d].end {
			return true
		}
	}
	return false
}

type interval struct{ start, end int64 }

// box is where a tensor lies in a grid: an interval for each stride, and its place within the
// last one.
func box(t Type, at int64, strides []int64) ([]interval, bool) {
	sizes, ok := t.Shape().Static()
	if !ok || len(strides) == 0 || slices.Min(strides) < 1 {
		return nil, false
	}
	var out []interval
	for k, s := range strides {
		n := int64(1)
		for d, st := range t.Strides() {
			if st == s && sizes[d] != 1 {
				if n != 1 {
					return nil, false
				}
				n = sizes[d]
			}
		}
		start := at / s
		at %= s
		if k > 0 && (strides[k-1]%s != 0 || start+n > strides[k-1]/s) {
			return nil, false
		}
		out = append(out, interval{start, start + n})
	}
	return append(out, interval{at, at + 1}), true
}
