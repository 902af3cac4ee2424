package mesh

import (
	"slices"
	"strconv"
)

// Parts that have a size in common are joined place by place of it: three weights that are one
// behind the other are three times a row. Where ranks have pieces that end within a part, they
// are joined whole.

// divisible is a tensor whose dimension can be cut in so many pieces, and each of these again: if
// parts that are joined along it are cut where pieces do not end, one that is joined of them whole.
func (t *table) divisible(p *piece, d int, by []int64) *piece {
	l := p.dims[d]
	for _, n := range by {
		taken, rest, ok := leading(l, n)
		if !ok || len(taken) > 1 {
			return t.rejoined(p, d)
		}
		l = rest
	}
	return p
}

// rejoined is a tensor that is joined along a dimension, of parts that are not cut there; the tensor
// itself where it is none.
func (t *table) rejoined(p *piece, d int) *piece {
	e, l := p.base, p.dims[d]
	if len(l) < 2 {
		return p
	}
	seam, ok := seamOf(e, l[0])
	if !ok {
		return p
	}
	minors := make([]bool, len(e.loops))
	if j := e.joins[0]; j != none {
		minors[j] = true
	}
	for _, x := range l[1:] {
		of := e.loopOf(x)
		if x.dim == none || of < 0 || x != e.place[of] {
			return p
		}
		minors[of] = true
	}
	s := spec{kind: block, text: nameCat, own: []int64{places(l)}}
	for k, a := range e.args {
		var inner []digit
		for _, x := range l {
			inner = append(inner, seam.part(k, x)...)
		}
		s.text += " " + strconv.FormatInt(places(inner), 10)
		s.args = append(s.args, arg{base: a.base, coef: a.coef, inner: joined(inner)})
	}
	at := make([]int, len(e.loops)) // among the new ones
	for i, x := range e.loops {
		if at[i] = none; !minors[i] {
			x.tail, x.at, at[i] = false, slices.Clone(x.at), len(s.loops)
			s.loops = append(s.loops, x)
		}
	}
	coef, base, where := t.linearly(s)
	move := func(ds []digit) []digit {
		out := slices.Clone(ds)
		for i, x := range ds {
			if x.dim == none {
				continue
			}
			of := e.loopOf(x)
			if of < 0 || at[of] == none {
				panic(uneven{})
			}
			if y := where[at[of]]; y.dim == none {
				out[i] = repeated(x.size)
			} else {
				out[i] = digit{y.dim, y.stride * x.stride, x.size}
			}
		}
		return out
	}
	q := &piece{base: base, coef: p.coef * coef, held: move(p.held)}
	for k, ds := range p.dims {
		if k == d {
			q.dims = append(q.dims, add(nil, where[len(s.loops)]))
		} else {
			q.dims = append(q.dims, joined(move(ds)))
		}
	}
	q.check()
	return q
}
