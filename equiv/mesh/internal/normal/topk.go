package normal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has topk and argmax. A base of theirs are the indices, in order; the elements are lookups
// by these. The topk of the topk of each part of a dimension is that of the dimension, if each part gives
// k elements, or all: ties are in the order of the parts. So a lookup by indices among those of the parts,
// in their elements or in their global indices, is one by the indices in the dimension.

// nameTopK begins the names of indices of topk: with order, element type, and the number that sorts last.
const nameTopK = "best"

// TopK are the places of the first k elements of a tensor along a dimension in an order of which a number
// is the last one.
func (m *Mesh) TopK(p *Tensor, d int, k int64, order string, last Operand) *Tensor {
	o := m.Op(p)
	var dims [][]int
	for e := range p.Dims {
		if e == d {
			dims = append(dims, []int{Own(0)})
		} else {
			dims = append(dims, o.Parallel(0, e))
		}
	}
	o.Inner(0, p.Dims[d])
	return o.Generic(nameTopK+" "+order+" "+last.text(), dims, []int64{k})
}

// topKOrder is that of which the best are, by its name.
func topKOrder(text string) []string { return strings.Fields(text)[1:5] }

// isTopValues reports whether a base is the best elements of something: a lookup in it by their places, in
// the same place of everything else.
func (e *expr) isTopValues() bool {
	if !e.is(Lookup) || len(e.own) > 0 || !e.args[1].base.is(nameTopK) || e.args[1].coef != 1 || e.args[0].coef != 1 {
		return false
	}
	of := &e.args[1].base.args[0]
	return of.base == e.args[0].base && slices.Equal(of.inner, e.args[0].inner) && e.args[1].base.alongTopK(e.loops)
}

// alongTopK reports whether loops go along what a best is of, operand 0, as they do along the best, operand 1.
func (e *expr) alongTopK(loops []loop) bool {
	return !slices.ContainsFunc(loops, func(l loop) bool {
		d, ok := e.loopDigit(l.at[1], 0)
		return ok && d != l.at[0] || !ok && l.at[0].Dim != digits.None
	})
}

// topKOfTopK is a lookup by places of the best among those of the parts of a dimension: in what these are,
// or in where they stand.
func (t *Table) topKOfTopK(s *spec) (float64, *expr, []digits.Digit, bool) {
	last := s.args[1].base
	if !last.is(nameTopK) || s.args[1].coef != 1 || len(s.own) > 0 || !last.args[0].base.isTopValues() {
		return 0, nil, nil, false
	}
	from := last.args[0].base // the best of each part
	parts := from.args[1].base
	of := parts.args[0]
	size, given := digits.Places(of.inner), parts.own[0].Size
	if !slices.Equal(topKOrder(last.text), topKOrder(parts.text)) || last.args[0].coef != of.coef || given < min(last.own[0].Size, size) {
		return 0, nil, nil, false
	}
	inner, ok := from.partDigits(last.args[0].inner, given)
	if !ok {
		return 0, nil, nil, false
	}
	values := s.args[0].base == from && slices.Equal(digits.Joined(s.args[0].inner), last.args[0].inner) && last.alongTopK(s.loops)
	if !values && !t.isGlobalIndex(s, last, from, size) {
		return 0, nil, nil, false
	}
	all := spec{kind: generic, own: []int64{last.own[0].Size}, args: []arg{{of.base, of.coef, digits.Joined(append(inner, of.inner...))}}}
	all.text = fmt.Sprint(nameTopK, " ", strings.Join(topKOrder(last.text), " "), "  0:", digits.Places(all.args[0].inner))
	m := &digitMap{}
	for i, l := range last.loops {
		m.from = append(m.from, last.place[i])
		all.loops = append(all.loops, loop{size: l.size, at: []digits.Digit{from.operandDigit(l.at[0], 0)}})
	}
	m.from = append(m.from, last.own[0])
	_, best, where := t.genericOf(&all)
	m.to = where
	out := make([]digits.Digit, len(s.loops))
	for i, l := range s.loops {
		out[i] = m.at(l.at[1])
	}
	if !values {
		return 1, best, out, true
	}
	c, e, out := t.topValues(best, out)
	return c * s.args[0].coef / of.coef, e, out, true
}

// partDigits are digits of the parts that a list of the best of each goes through, in what these are the
// best of, if after them it goes through all that is given of each part.
func (e *expr) partDigits(l []digits.Digit, given int64) (out []digits.Digit, ok bool) {
	parts := e.args[1].base
	for i, d := range l {
		at := e.operandDigit(d, 1)
		if at.Dim != digits.None && at == parts.own[0] {
			return out, i == len(l)-1
		}
		x, ok := parts.loopDigit(at, 0)
		if !ok || x.Dim == digits.None || x != e.operandDigit(d, 0) {
			return nil, false
		}
		out = append(out, x)
	}
	return out, given == 1
}

// isGlobalIndex reports whether a lookup is in where the best of each part stand in all: their places in the
// part and where that begins, parts being of a size.
func (t *Table) isGlobalIndex(s *spec, last, from *expr, size int64) bool {
	sum, parts := s.args[0].base, from.args[1].base
	if s.args[0].coef != 1 || !sum.isElementwise("add") || !strings.HasPrefix(sum.text, "add  i64 i64") {
		return false
	}
	k := slices.IndexFunc(sum.args, func(a arg) bool { return a.base == parts && a.coef == 1 })
	if k < 0 || sum.args[1-k].coef != 1 {
		return false
	}
	first, steps, ok := t.affine(sum.args[1-k].base)
	inner := digits.Joined(s.args[0].inner)
	if !ok || first != 0 || len(inner) != len(last.args[0].inner) {
		return false
	}
	for i, d := range slices.Backward(inner) {
		at, begin := sum.operandDigit(d, k), sum.operandDigit(d, 1-k)
		if at == parts.own[0] {
			ok = begin.Dim == digits.None
		} else {
			ok = begin.Dim != digits.None && steps[begin.Dim]*begin.Stride == size
			size *= d.Size
		}
		if !ok || at != from.operandDigit(last.args[0].inner[i], 1) {
			return false
		}
	}
	return !slices.ContainsFunc(s.loops, func(l loop) bool {
		at, other := last.loopDigit(l.at[1], 0)
		return sum.operandDigit(l.at[0], 1-k).Dim != digits.None || other && sum.operandDigit(l.at[0], k) != from.operandDigit(at, 1) || !other && l.at[0].Dim != digits.None
	})
}

// topValues are the best elements by their places, which are digits.
func (t *Table) topValues(best *expr, at []digits.Digit) (float64, *expr, []digits.Digit) {
	s := &spec{kind: generic, text: Lookup + "  0:" + strconv.FormatInt(digits.Places(best.args[0].inner), 10), args: []arg{best.args[0], {base: best, coef: 1}}}
	for _, d := range at {
		x, ok := best.loopDigit(d, 0)
		if !ok {
			x = digits.Repeated(d.Size)
		}
		s.loops = append(s.loops, loop{size: d.Size, at: []digits.Digit{x, d}})
	}
	return t.genericOf(s)
}

// topKUnpadded leaves out of what the best are of numbers at its end that are none of them.
func (t *Table) topKUnpadded(s *spec) (float64, *expr, []digits.Digit, bool) {
	a := s.args[0]
	if len(a.inner) != 1 {
		return 0, nil, nil, false
	}
	seam, ok := concatAlong(a.base, a.inner[0])
	if !ok || len(seam.e.args) != 2 || seam.size(0) < s.own[0] || !t.sortsLast(s.text, arg{base: seam.e.args[1].base, coef: seam.e.args[1].coef * a.coef}) {
		return 0, nil, nil, false
	}
	inner := digits.Joined(seam.partDigits(0, a.inner[0]))
	out := spec{kind: generic, own: s.own, args: []arg{{seam.e.args[0].base, a.coef * seam.e.args[0].coef, inner}}}
	out.text = fmt.Sprint(nameTopK, " ", strings.Join(topKOrder(s.text), " "), "  0:", digits.Places(inner))
	for _, l := range s.loops {
		d := digits.Joined(seam.partDigits(0, l.at[0]))
		if len(d) > 1 {
			return 0, nil, nil, false
		}
		out.loops = append(out.loops, loop{size: l.size, at: []digits.Digit{append(d, digits.Repeated(l.size))[0]}})
	}
	c, e, where := t.genericOf(&out)
	return c, e, where, true
}

// sortsLast reports whether a number comes last of all in the order that a name says, after what is equal to it.
func (t *Table) sortsLast(name string, x arg) bool {
	end, high := topKOrder(name)[3], arg{base: t.leaf(largest), coef: 1} // after which comes what is no number
	return t.isNumber(x.base) && (x.text() == end || end == high.text() && x.base.text == named+"NaN")
}
