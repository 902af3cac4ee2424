package normal

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has slices of several digits, such as rows that a view counts through tokens and their
// choices: the digits become one, of which slices are views.

// flat is a tensor in which dimensions, of which the first is given by what is minor in it and the
// others whole, are one dimension, and where its digits are in that.
func (t *Table) flat(a arg, along []digits.Digit) (arg, func(d digits.Digit) digits.Digit, bool) {
	e := a.base
	s := &spec{kind: block, text: nameFlat, args: []arg{{base: e, coef: 1}}, own: []int64{1}}
	stride := make([]int64, len(e.shape)) // in the one dimension
	for i, d := range slices.Backward(along) {
		if e.is(nameCat) || d.Dim == digits.None || stride[d.Dim] != 0 || d.Stride != 1 || i > 0 && d.Size != e.shape[d.Dim] {
			return a, nil, false
		}
		stride[d.Dim] = s.own[0]
		s.own[0] *= e.shape[d.Dim]
		s.args[0].inner = append(s.args[0].inner, digits.Of(d.Dim, 1, e.shape[d.Dim]))
	}
	slices.Reverse(s.args[0].inner)
	at := make([]int, len(e.shape))
	for dim, n := range e.shape {
		if at[dim] = len(s.loops); stride[dim] == 0 {
			s.loops = append(s.loops, loop{size: n, at: []digits.Digit{digits.Of(dim, 1, n)}})
		}
	}
	b, where := t.make(s)
	return arg{base: b, coef: a.coef}, func(d digits.Digit) digits.Digit {
		switch {
		case d.Dim == digits.None:
			return d
		case stride[d.Dim] > 0:
			return digits.Of(where[len(s.loops)].Dim, stride[d.Dim]*d.Stride, d.Size)
		}
		w := where[at[d.Dim]]
		return digits.Of(w.Dim, w.Stride*d.Stride, d.Size)
	}, true
}

// flatten makes operand k flat in place, if it is given by several digits.
func (t *Table) flatten(args []arg, lists [][]digits.Digit, loops []loop, k int) bool {
	l := digits.Joined(lists[k])
	if len(l) < 2 {
		return false
	}
	a, move, ok := t.flat(args[k], l)
	if ok {
		args[k], lists[k] = a, []digits.Digit{digits.Of(move(l[0]).Dim, 1, digits.Places(l))}
		for i := range loops {
			loops[i].at = slices.Clone(loops[i].at)
			loops[i].at[k] = move(loops[i].at[k])
		}
	}
	return ok
}

// reads reports whether a base is of views of another one made flat.
func (e *expr) reads(of *expr) bool {
	for e.win != nil {
		e = e.args[0].base
	}
	return e.is(nameFlat) && e.args[0].base == of
}
