package normal

import (
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// Parts that have a size in common are concatenated place by place of it: three weights, one after
// the other, are three times a row. Where ranks have pieces that end within a part, the parts
// are concatenated whole.

// divisible is a tensor whose dimension can be cut in so many pieces, and each of these again: if
// parts that are concatenated along it do not end where pieces do, one that is concatenated of them whole, if
// digits are, one in which they are flat.
func (t *Table) divisible(p *Tensor, d int, by []int64) *Tensor {
	l := p.Dims[d]
	for _, n := range by {
		taken, rest, ok := digits.Leading(l, n)
		if ok && len(taken) < 2 {
			l = rest
			continue
		}
		q := t.concatWhole(p, d)
		if q == p {
			q = t.flattenFor(p, d, digits.Places(l), n)
		}
		if q == p {
			return p
		}
		return t.divisible(q, d, by)
	}
	return p
}

// concatWhole is a tensor that is concatenated along a dimension, of parts that are not cut there; the tensor
// itself where it is none.
func (t *Table) concatWhole(p *Tensor, d int) *Tensor {
	e, l := p.base, p.Dims[d]
	if len(l) < 2 {
		return p
	}
	seam, ok := concatAlong(e, l[0])
	if !ok {
		return p
	}
	minors := make([]bool, len(e.loops))
	if j := e.joins[0]; j != digits.None {
		minors[j] = true
	}
	for _, x := range l[1:] {
		of := e.loopOf(x)
		if x.Dim == digits.None || of < 0 || x != e.place[of] {
			return p
		}
		minors[of] = true
	}
	s := spec{kind: generic, text: nameCat, own: []int64{digits.Places(l)}}
	for k, a := range e.args {
		var inner []digits.Digit
		for _, x := range l {
			inner = append(inner, seam.partDigits(k, x)...)
		}
		s.text += " " + strconv.FormatInt(digits.Places(inner), 10)
		s.args = append(s.args, arg{base: a.base, coef: a.coef, inner: digits.Joined(inner)})
	}
	m := &digitMap{}
	for i, x := range e.loops {
		if !minors[i] {
			x.tail, m.from = false, append(m.from, e.place[i])
			s.loops = append(s.loops, x)
		}
	}
	m.coef, m.base, m.to = t.makeGeneric(s)
	return p.remapped(m, d, m.to[len(m.from):])
}
