package normal

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// Parts that have a size in common are joined place by place of it: three weights that are one
// behind the other are three times a row. Where ranks have pieces that end within a part, they
// are joined whole.

// divisible is a tensor whose dimension can be cut in so many pieces, and each of these again: if
// parts that are joined along it are cut where pieces do not end, one that is joined of them whole, if
// digits are, one in which they are flat.
func (t *Table) divisible(p *Tensor, d int, by []int64) *Tensor {
	l := p.Dims[d]
	for _, n := range by {
		taken, rest, ok := digits.Leading(l, n)
		if ok && len(taken) < 2 {
			l = rest
			continue
		}
		q := t.rejoined(p, d)
		if q == p {
			q = t.flattened(p, d, digits.Places(l), n)
		}
		if q == p {
			return p
		}
		return t.divisible(q, d, by)
	}
	return p
}

// rejoined is a tensor that is joined along a dimension, of parts that are not cut there; the tensor
// itself where it is none.
func (t *Table) rejoined(p *Tensor, d int) *Tensor {
	e, l := p.base, p.Dims[d]
	if len(l) < 2 {
		return p
	}
	seam, ok := seamOf(e, l[0])
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
	s := spec{kind: block, text: nameCat, own: []int64{digits.Places(l)}}
	for k, a := range e.args {
		var inner []digits.Digit
		for _, x := range l {
			inner = append(inner, seam.part(k, x)...)
		}
		s.text += " " + strconv.FormatInt(digits.Places(inner), 10)
		s.args = append(s.args, arg{base: a.base, coef: a.coef, inner: digits.Joined(inner)})
	}
	at := make([]int, len(e.loops)) // among the new ones
	for i, x := range e.loops {
		if at[i] = digits.None; !minors[i] {
			x.tail, x.at, at[i] = false, slices.Clone(x.at), len(s.loops)
			s.loops = append(s.loops, x)
		}
	}
	coef, base, where := t.linearly(s)
	move := func(ds []digits.Digit) []digits.Digit {
		out := slices.Clone(ds)
		for i, x := range ds {
			if x.Dim == digits.None {
				continue
			}
			of := e.loopOf(x)
			if of < 0 || at[of] == digits.None {
				panic(digits.Uneven{})
			}
			if y := where[at[of]]; y.Dim == digits.None {
				out[i] = digits.Repeated(x.Size)
			} else {
				out[i] = digits.Of(y.Dim, y.Stride*x.Stride, x.Size)
			}
		}
		return out
	}
	q := &Tensor{base: base, coef: p.coef * coef, Held: move(p.Held)}
	for k, ds := range p.Dims {
		if k == d {
			q.Dims = append(q.Dims, digits.Add(nil, where[len(s.loops)]))
		} else {
			q.Dims = append(q.Dims, digits.Joined(move(ds)))
		}
	}
	q.check()
	return q
}
