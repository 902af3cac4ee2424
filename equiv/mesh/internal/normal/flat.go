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
func (t *Table) flat(e *expr, along []digits.Digit) (*digitMap, []digits.Digit, bool) {
	if e.is(nameCat) || len(along) == 0 {
		return nil, nil, false
	}
	all := slices.Clone(along)
	if d := &all[0]; d.Dim != digits.None && !slices.ContainsFunc(all[1:], func(x digits.Digit) bool { return x.Dim == d.Dim && x.Stride > d.Stride }) {
		d.Size = e.shape[d.Dim] / d.Stride
	}
	has := slices.DeleteFunc(slices.Clone(all), func(d digits.Digit) bool { return d.Dim == digits.None })
	slices.SortFunc(has, func(a, b digits.Digit) int { return cmp.Or(a.Dim-b.Dim, cmp.Compare(b.Stride, a.Stride)) })
	s := &digitMap{coef: 1, from: digits.Complement(e.shape, has)}
	if digits.Places(s.from)*digits.Places(has) != digits.Places(digits.Complement(e.shape, nil)) {
		return nil, nil, false // some twice
	}
	inner := digits.Joined(all)
	flat := &spec{kind: generic, text: nameFlat, args: []arg{{base: e, coef: 1, inner: inner}}, own: []int64{digits.Places(all)}}
	for i, d := range s.from {
		flat.loops = append(flat.loops, loop{size: d.Size, at: s.from[i : i+1]})
	}
	var where []digits.Digit
	s.base, where = t.make(flat)
	own := where[len(flat.loops)].Dim
	s.to = where[:len(flat.loops):len(flat.loops)]
	for i, d := range inner {
		if d.Dim != digits.None {
			s.from, s.to = append(s.from, d), append(s.to, digits.Of(own, digits.Places(inner[i+1:]), d.Size))
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
			loops[i].at[k] = s.at(loops[i].at[k])
		}
	}
	return ok
}

// list are digits of the base that are left, joined where they are one.
func (s *digitMap) list(l []digits.Digit) []digits.Digit {
	var out []digits.Digit
	for _, d := range l {
		out = digits.Add(out, s.at(d))
	}
	return out
}

// viewsFlatOf reports whether a base is of views of another one made flat.
func (e *expr) viewsFlatOf(of *expr) bool {
	for e.win != nil {
		e = e.args[0].base
	}
	return e.is(nameFlat) && e.args[0].base == of
}

// flattenFor is a tensor in which the first of some places of a dimension, from its end, are one digit that can
// be cut in n parts; the tensor itself where there is none.
func (t *Table) flattenFor(p *Tensor, d int, places, n int64) *Tensor {
	front, l, _ := digits.Minor(p.Dims[d], places)
	for k := range l {
		if digits.Places(l[:k+1])%n != 0 {
			continue
		}
		if s, along, ok := t.flat(p.base, l[:k+1]); ok {
			return p.remapped(s, d, slices.Concat(s.list(front), along, s.list(l[k+1:])))
		}
		break
	}
	return p
}

// remapped is a tensor by another base that has its digits, but for a dimension that is given.
func (p *Tensor) remapped(s *digitMap, d int, dim []digits.Digit) *Tensor {
	q := &Tensor{base: s.base, coef: p.coef * s.coef}
	for e, l := range p.Dims {
		if e == d {
			l = digits.Joined(dim)
		} else {
			l = s.list(l)
		}
		q.Dims = append(q.Dims, l)
	}
	for _, d := range p.Atoms {
		q.Atoms = append(q.Atoms, s.at(d))
	}
	q.check()
	return q
}

// unflatten are the digits that a digit of a flat base is of; false where it begins or ends within one.
func (e *expr) unflatten(d digits.Digit) (out []digits.Digit, ok bool) {
	if d.Dim != e.own[0].Dim || d.Dim == digits.None {
		x, ok := e.loopDigit(d, 0)
		return []digits.Digit{x}, ok
	}
	begin, end, at := d.Stride, d.Stride*d.Size, int64(1)
	for _, x := range slices.Backward(e.args[0].inner) {
		from, to := max(begin, at), min(end, at*x.Size)
		if from < to {
			if from%at != 0 || to%from != 0 || at*x.Size%to != 0 {
				return nil, false
			}
			out = append(out, x.Part(from/at, to/from))
		}
		at *= x.Size
	}
	slices.Reverse(out)
	return out, true
}

// unflatten is a tensor by the digits that its base is flat of, if it is cut at none within; itself otherwise.
func (p *Tensor) unflatten() *Tensor {
	for p.base.is(nameFlat) {
		q := &Tensor{base: p.base.args[0].base, coef: p.coef * p.base.args[0].coef}
		for _, l := range p.Dims {
			var out []digits.Digit
			for _, d := range l {
				ds, ok := p.base.unflatten(d)
				if !ok {
					return p
				}
				out = append(out, ds...)
			}
			q.Dims = append(q.Dims, digits.Joined(out))
		}
		for _, d := range p.Atoms {
			ds, ok := p.base.unflatten(d)
			if !ok || len(ds) != 1 {
				return p
			}
			q.Atoms = append(q.Atoms, ds[0])
		}
		p = q
	}
	return p
}

// digitwise makes an operation on the digits that an operand is flat of, flat again; false where none is, or its
// loops begin or end within these.
func (t *Table) digitwise(args []arg, loops []loop, mk builder) (c float64, e *expr, where []digits.Digit, ok bool) {
	for k, a := range args {
		if !a.base.is(nameFlat) || !digits.Attempt(func() bool {
			cut, ok := cutAtDigits(args, loops, k)
			if !ok {
				return false
			}
			of := a.base.args[0]
			x := arg{base: of.base, coef: a.coef * of.coef}
			for _, d := range a.inner {
				y, ok := a.base.loopDigit(d, 0)
				if !ok {
					return false
				}
				x.inner = append(x.inner, y)
			}
			in := slices.Clone(args)
			in[k] = x
			c, e, where = mk(in, cut.parts)
			e, where, ok = cut.flattened(t, e, slices.Clone(where))
			return ok
		}) {
			continue
		}
		return c, e, where, true
	}
	return 0, nil, nil, false
}

// cutLoops are loops of which some are cut.
type cutLoops struct {
	loops  []loop
	merged []int   // by loop: the one that it is merged to
	stride []int64 // there
	parts  []loop  // of those that are cut, and then the others
	begin  []int   // by merged loop: the first of its parts, as many as the next one begins after
}

// cutAtDigits cuts loops at the digits that operand k is flat of; false where one begins or ends within these, or
// none has any.
func cutAtDigits(args []arg, loops []loop, k int) (*cutLoops, bool) {
	c, flat := &cutLoops{loops: loops}, args[k].base
	var merged []loop
	merged, c.merged, c.stride = mergeLoops(loops)
	for _, l := range merged {
		c.begin = append(c.begin, len(c.parts))
		if l.at[k].Dim == flat.own[0].Dim && !l.tail {
			ds, ok := flat.unflatten(l.at[k])
			if !ok {
				return nil, false
			}
			c.parts = append(c.parts, l.along(k, ds)...)
		}
	}
	c.begin = append(c.begin, len(c.parts))
	if len(c.parts) == 0 {
		return nil, false
	}
	for i, l := range loops {
		if c.isCut(i) {
			continue
		}
		x, ok := flat.loopDigit(l.at[k], 0)
		if !ok {
			return nil, false
		}
		l.at = slices.Clone(l.at)
		l.at[k] = x
		c.parts = append(c.parts, l)
	}
	return c, true
}

func (c *cutLoops) isCut(i int) bool {
	m := c.merged[i]
	return m >= 0 && c.begin[m] < c.begin[m+1]
}

// flattened is a result in which what was cut is one digit for each loop, by where its parts are; false where
// that cannot be.
func (c *cutLoops) flattened(t *Table, e *expr, parts []digits.Digit) (*expr, []digits.Digit, bool) {
	for m, from := range c.begin[:len(c.begin)-1] {
		to := c.begin[m+1]
		if c.place(nil, m, parts[from:to]) {
			continue
		}
		s, along, ok := t.flat(e, parts[from:to])
		if !ok {
			return nil, nil, false
		}
		for i, d := range parts {
			if i < from || i >= to {
				parts[i] = s.at(d)
			}
		}
		copy(parts[from:], along)
		e = s.base
	}
	cuts := c.begin[len(c.begin)-1]
	rest, where := parts[cuts:], make([]digits.Digit, len(c.loops))
	for i := range c.loops {
		if !c.isCut(i) {
			where[i], rest = rest[0], rest[1:]
		}
	}
	for m, from := range c.begin[:len(c.begin)-1] {
		if !c.place(where, m, parts[from:c.begin[m+1]]) {
			return nil, nil, false
		}
	}
	return e, append(where, rest...), true
}

// place gives each of the loops that were merged to one, m, its digit of those of that one's parts; false where
// it is of several.
func (c *cutLoops) place(where []digits.Digit, m int, parts []digits.Digit) bool {
	if len(parts) == 0 {
		return true
	}
	for i, l := range c.loops {
		if c.merged[i] != m {
			continue
		}
		d := []digits.Digit{digits.Repeated(l.size)}
		if !l.summed {
			rest, _, ok := digits.Minor(digits.Joined(parts), c.stride[i])
			_, taken, ok2 := digits.Minor(rest, l.size)
			if d = digits.Joined(taken); !ok || !ok2 || len(d) != 1 {
				return false
			}
		}
		if where != nil {
			where[i] = d[0]
		}
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
