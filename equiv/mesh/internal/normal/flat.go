package normal

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has tensors in which several digits are one dimension: of which slices are views, such as rows
// that a view counts through tokens and their choices, or which is cut within one of the digits, such as
// heads and features by more ranks than there are heads. An operation on such a tensor is one on its
// digits, flat again, so that it does not matter which came first; and what has all of the
// dimension, a sum or a tensor, has the digits.

// flat is a base in which digits, major first, are one dimension, with what is major to the first of them, and
// these digits of it; false where the base does not have them.
func (t *Table) flat(e *expr, along []digits.Digit) (*summed, []digits.Digit, bool) {
	if e.is(nameCat) || len(along) == 0 {
		return nil, nil, false
	}
	all := slices.Clone(along)
	if d := &all[0]; d.Dim != digits.None && !slices.ContainsFunc(all[1:], func(x digits.Digit) bool { return x.Dim == d.Dim && x.Stride > d.Stride }) {
		d.Size = e.shape[d.Dim] / d.Stride
	}
	has := slices.DeleteFunc(slices.Clone(all), func(d digits.Digit) bool { return d.Dim == digits.None })
	slices.SortFunc(has, func(a, b digits.Digit) int { return cmp.Or(a.Dim-b.Dim, cmp.Compare(b.Stride, a.Stride)) })
	s := &summed{coef: 1, segs: digits.Complement(e.shape, has)}
	if digits.Places(s.segs)*digits.Places(has) != digits.Places(digits.Complement(e.shape, nil)) {
		return nil, nil, false // some twice
	}
	inner := digits.Joined(all)
	flat := &spec{kind: block, text: nameFlat, args: []arg{{base: e, coef: 1, inner: inner}}, own: []int64{digits.Places(all)}}
	for i, d := range s.segs {
		flat.loops = append(flat.loops, loop{size: d.Size, at: s.segs[i : i+1]})
	}
	var where []digits.Digit
	s.base, where = t.make(flat)
	own := where[len(flat.loops)].Dim
	s.where = where[:len(flat.loops):len(flat.loops)]
	for i, d := range inner {
		if d.Dim != digits.None {
			s.segs, s.where = append(s.segs, d), append(s.where, digits.Of(own, digits.Places(inner[i+1:]), d.Size))
		}
	}
	out := make([]digits.Digit, len(along))
	for i, d := range along {
		out[i] = digits.Of(own, digits.Places(along[i+1:]), d.Size)
	}
	return s, out, true
}

// flatten makes operand k flat in place, if it is given by several digits.
func (t *Table) flatten(args []arg, lists [][]digits.Digit, loops []loop, k int) bool {
	l := digits.Joined(lists[k])
	if len(l) < 2 {
		return false
	}
	s, along, ok := t.flat(args[k].base, l)
	if ok {
		args[k].base, lists[k] = s.base, digits.Joined(along)
		for i := range loops {
			loops[i].at = slices.Clone(loops[i].at)
			loops[i].at[k] = s.move(loops[i].at[k])
		}
	}
	return ok
}

// all are digits of the base that are left, joined where they are one.
func (s *summed) all(l []digits.Digit) []digits.Digit {
	var out []digits.Digit
	for _, d := range l {
		out = digits.Add(out, s.move(d))
	}
	return out
}

// reads reports whether a base is of views of another one made flat.
func (e *expr) reads(of *expr) bool {
	for e.win != nil {
		e = e.args[0].base
	}
	return e.is(nameFlat) && e.args[0].base == of
}

// flattened is a tensor in which the first of some places of a dimension, from its end, are one digit that can
// be cut in n parts; the tensor itself where there is none.
func (t *Table) flattened(p *Tensor, d int, places, n int64) *Tensor {
	front, l, _ := digits.Minor(p.Dims[d], places)
	for k := range l {
		if digits.Places(l[:k+1])%n != 0 {
			continue
		}
		if s, along, ok := t.flat(p.base, l[:k+1]); ok {
			return p.moved(s, d, slices.Concat(s.all(front), along, s.all(l[k+1:])))
		}
		break
	}
	return p
}

// moved is a tensor by another base that has its digits, but for a dimension that is given.
func (p *Tensor) moved(s *summed, d int, dim []digits.Digit) *Tensor {
	q := &Tensor{base: s.base, coef: p.coef * s.coef}
	for e, l := range p.Dims {
		if e == d {
			l = digits.Joined(dim)
		} else {
			l = s.all(l)
		}
		q.Dims = append(q.Dims, l)
	}
	for _, d := range p.Held {
		q.Held = append(q.Held, s.move(d))
	}
	q.check()
	return q
}

// spread are the digits that a digit of a flat base is of; false where it begins or ends within one.
func (e *expr) spread(d digits.Digit) (out []digits.Digit, ok bool) {
	if d.Dim != e.own[0].Dim || d.Dim == digits.None {
		x, ok := e.beneath(d, 0)
		return []digits.Digit{x}, ok
	}
	begin, end, at := d.Stride, d.Stride*d.Size, int64(1)
	for _, x := range slices.Backward(e.args[0].inner) {
		from, to := max(begin, at), min(end, at*x.Size)
		if from < to {
			if from%at != 0 || to%from != 0 || at*x.Size%to != 0 {
				return nil, false
			}
			if y := digits.Repeated(to / from); x.Dim == digits.None {
				out = append(out, y)
			} else {
				out = append(out, digits.Of(x.Dim, x.Stride*(from/at), y.Size))
			}
		}
		at *= x.Size
	}
	slices.Reverse(out)
	return out, true
}

// spread is a tensor by the digits that its base is flat of, if it is cut at none within; itself otherwise.
func (p *Tensor) spread() *Tensor {
	for p.base.is(nameFlat) {
		q := &Tensor{base: p.base.args[0].base, coef: p.coef * p.base.args[0].coef}
		for _, l := range p.Dims {
			var out []digits.Digit
			for _, d := range l {
				ds, ok := p.base.spread(d)
				if !ok {
					return p
				}
				out = append(out, ds...)
			}
			q.Dims = append(q.Dims, digits.Joined(out))
		}
		for _, d := range p.Held {
			ds, ok := p.base.spread(d)
			if !ok || len(ds) != 1 {
				return p
			}
			q.Held = append(q.Held, ds[0])
		}
		p = q
	}
	return p
}

// digitwise makes an operation on what an operand is flat of, flat again; false where none is, or loops are cut
// within the digits of those that are.
func (t *Table) digitwise(args []arg, loops []loop, mk maker) (c float64, e *expr, where []digits.Digit, ok bool) {
	for k, a := range args {
		if a.base.is(nameFlat) && digits.Attempt(func() bool {
			c, e, where, ok = t.digitwiseIn(k, args, loops, mk)
			return ok
		}) {
			return c, e, where, true
		}
	}
	return 0, nil, nil, false
}

// digitwiseIn does so for operand k.
func (t *Table) digitwiseIn(k int, args []arg, loops []loop, mk maker) (float64, *expr, []digits.Digit, bool) {
	f := args[k].base
	var inner []digits.Digit
	merged, of, stride := canonical(loops)
	var parts []loop                   // of those that are cut, then the others
	cut := make([][2]int, len(merged)) // the range of parts
	for i, l := range merged {
		cut[i][0] = len(parts)
		if l.at[k].Dim == f.own[0].Dim && !l.tail {
			ds, ok := f.spread(l.at[k])
			if !ok {
				return 0, nil, nil, false
			}
			parts = append(parts, l.along(k, ds)...)
		}
		cut[i][1] = len(parts)
	}
	cuts := len(parts)
	if cuts == 0 {
		return 0, nil, nil, false
	}
	isCut := func(i int) bool { return of[i] >= 0 && cut[of[i]][0] < cut[of[i]][1] }
	for i, l := range loops {
		if !isCut(i) {
			x, ok := f.beneath(l.at[k], 0)
			if !ok {
				return 0, nil, nil, false
			}
			l.at = slices.Clone(l.at)
			l.at[k] = x
			parts = append(parts, l)
		}
	}
	args = slices.Clone(args)
	for _, d := range args[k].inner {
		x, ok := f.beneath(d, 0)
		if !ok {
			return 0, nil, nil, false
		}
		inner = append(inner, x)
	}
	args[k] = arg{base: f.args[0].base, coef: args[k].coef * f.args[0].coef, inner: inner}
	c, e, w := mk(args, parts)
	w = slices.Clone(w)
	where := make([]digits.Digit, len(loops), len(loops)+len(w)-len(parts))
	for m, r := range cut {
		if r[0] == r[1] || parts[r[0]].summed || place(where, w[r[0]:r[1]], loops, of, stride, m) {
			continue
		}
		s, along, ok := t.flat(e, w[r[0]:r[1]])
		if !ok {
			return 0, nil, nil, false
		}
		e = s.base
		for i, d := range w {
			if i < r[0] || i >= r[1] {
				w[i] = s.move(d)
			}
		}
		copy(w[r[0]:], along)
	}
	for m, r := range cut {
		if r[0] < r[1] && !parts[r[0]].summed && !place(where, w[r[0]:r[1]], loops, of, stride, m) {
			return 0, nil, nil, false
		}
	}
	rest := w[cuts:]
	for i, l := range loops {
		if !isCut(i) {
			where[i], rest = rest[0], rest[1:]
		} else if l.summed {
			where[i] = digits.Repeated(l.size)
		}
	}
	return c, e, append(where, rest...), true
}

// place gives each of the loops that were merged to one its digit of those of that one; false where it is of
// several.
func place(where, merged []digits.Digit, loops []loop, of []int, stride []int64, m int) bool {
	for i, l := range loops {
		if of[i] != m {
			continue
		}
		rest, _, ok := digits.Minor(digits.Joined(merged), stride[i])
		_, d, ok2 := digits.Minor(rest, l.size)
		if d = digits.Joined(d); !ok || !ok2 || len(d) != 1 {
			return false
		}
		where[i] = d[0]
	}
	return true
}

// along are loops of which operand k has digits, in place of one that has all of them.
func (l loop) along(k int, ds []digits.Digit) []loop {
	out := make([]loop, len(ds))
	at := slices.Clone(l.at)
	for i, d := range slices.Backward(ds) {
		out[i] = loop{size: d.Size, summed: l.summed, at: make([]digits.Digit, len(at))}
		for j := range at {
			at[j], out[i].at[j] = at[j].Cut(d.Size)
		}
		out[i].at[k] = d
	}
	return out
}
