package normal

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has views of concatenations, and concatenations that are one view.

// sliceAcross is a slice of several parts of a concatenation: the concatenation of slices.
func (t *Table) sliceAcross(v *view) (float64, *expr, [][]digits.Digit, bool) {
	s, ok := concatAlong(v.arg.base, v.inner)
	k := v.onlyAxis()
	if !ok || v.fill != nil || k < 0 || v.axes[k].coef != 1 || v.axes[k].size == v.inner.Size {
		return 0, nil, nil, false
	}
	var args []arg
	var lists [][]digits.Digit
	loops := make([]loop, len(v.axes))
	at, end := int64(0), v.off+v.axes[k].size
	for p, a := range s.e.args {
		n := s.size(p)
		from, to := max(v.off, at), min(end, at+n)
		if at += n; from >= to {
			continue
		}
		x := arg{base: a.base, coef: v.arg.coef * a.coef}
		var part []loop
		for i, o := range v.axes {
			l := digits.Joined(s.partDigits(p, o.at))
			if i == k {
				l = nil
			}
			if len(l) > 1 {
				return 0, nil, nil, false
			}
			part = append(part, loop{size: o.size, at: []digits.Digit{append(l, digits.Repeated(o.size))[0]}})
		}
		part[k] = loop{size: 1, at: []digits.Digit{digits.Repeated(1)}}
		c, e, where, along := t.slice(x, s.partDigits(p, v.inner), span{from - (at - n), to - from, 1}, part)
		args, lists = append(args, arg{base: e, coef: c}), append(lists, along)
		for i, d := range where {
			loops[i].size, loops[i].at = part[i].size, append(loops[i].at, d)
		}
	}
	c, e, w, along := t.concat(args, lists, loops)
	where := make([][]digits.Digit, len(v.axes))
	for i := range where {
		where[i] = w[i : i+1]
	}
	where[k] = along
	return c, e, where, true
}

// dropUnread leaves out parts of a concatenation at its ends that are not read, or that are the same
// as what is outside.
func (t *Table) dropUnread(v *view) bool {
	s, ok := concatAlong(v.arg.base, v.inner)
	if !ok {
		return false
	}
	lo, hi := v.span()
	var starts []int64
	at := int64(0)
	for k := range s.e.args {
		starts = append(starts, at)
		at += s.size(k)
	}
	starts = append(starts, at)
	empty := func(k int) bool {
		a := s.e.args[k]
		return starts[k+1]*v.dil <= lo || starts[k]*v.dil > hi || v.fill != nil && a.base == v.fill.base && a.coef*v.arg.coef == v.fill.coef
	}
	from, to := 0, len(s.e.args)
	for from < to && empty(from) {
		from++
	}
	for from < to && empty(to-1) {
		to--
	}
	if to-from == len(s.e.args) || from == to {
		return false
	}
	out := *v
	out.off -= starts[from] * v.dil
	if to-from > 1 {
		out.axes = nil
		m := t.subConcat(s.e, from, to)
		out.arg = arg{base: m.base, coef: v.arg.coef * m.coef}
		out.inner = digits.Of(m.base.own[0].Dim, 1, starts[to]-starts[from])
		for _, a := range v.axes {
			a.at = m.at(a.at)
			out.axes = append(out.axes, a)
		}
		*v = out
		return true
	}
	a := s.e.args[from]
	out.arg = arg{base: a.base, coef: v.arg.coef * a.coef}
	if out, ok = s.viewOfPart(from, out); ok {
		*v = out
	}
	return ok
}

// subConcat is a concatenation of some of its parts, and where its digits are in that.
func (t *Table) subConcat(e *expr, from, to int) *digitMap {
	s := spec{kind: generic, text: nameCat, args: slices.Clone(e.args[from:to])}
	n := int64(0)
	for _, a := range s.args {
		s.text += " " + strconv.FormatInt(digits.Places(a.inner), 10)
		n += digits.Places(a.inner)
	}
	s.own = []int64{n}
	for k, l := range e.loops {
		s.loops = append(s.loops, loop{size: l.size, at: l.at[from:to], tail: k == e.joins[0]})
	}
	m := &digitMap{}
	var where []digits.Digit
	m.coef, m.base, where = t.makeGeneric(s)
	for k := range e.loops {
		if k != e.joins[0] {
			m.from, m.to = append(m.from, e.place[k]), append(m.to, where[k])
		}
	}
	return m
}

// resolve takes a view to what it is of at last.
func (t *Table) resolve(v *view) bool {
	for again := true; again; again = t.compose(v) || t.padToView(v) {
		t.spend(1)
		if !v.isPadded() {
			v.fill = nil
		} else if v.fill == nil {
			return false
		}
		v.toWholeDim()
	}
	return true
}

// padToView makes a view of a number, something and the number, concatenated, one of that, where
// the number is outside.
func (t *Table) padToView(v *view) bool {
	s, ok := concatAlong(v.arg.base, v.inner)
	if !ok || v.isPadded() {
		return false
	}
	mid := -1
	var fill *arg
	front := int64(0)
	for k, a := range s.e.args {
		switch number := t.isNumber(a.base); {
		case !number && mid < 0:
			mid = k
		case !number, fill != nil && !fill.equal(&arg{base: a.base, coef: a.coef * v.arg.coef}):
			return false
		default:
			fill = &arg{base: a.base, coef: a.coef * v.arg.coef}
		}
		if mid < 0 {
			front += s.size(k)
		}
	}
	if mid < 0 || len(s.e.args) > 3 || mid == 0 && len(s.e.args) > 2 || mid == 2 {
		return false
	}
	x := s.e.args[mid]
	out := *v
	out.arg, out.off, out.fill = arg{base: x.base, coef: v.arg.coef * x.coef}, v.off-front, fill
	if out, ok = s.viewOfPart(mid, out); ok {
		*v = out
	}
	return ok
}

// mergeAdjacent concatenates operand k and the next one first if they are one view.
func (t *Table) mergeAdjacent(args []arg, lists [][]digits.Digit, loops []loop, k int) (float64, *expr, []digits.Digit, []digits.Digit, bool) {
	var vs [2]view
	for i := range vs {
		l := digits.Joined(lists[k+i])
		a := args[k+i]
		if len(l) > 1 || a.base == t.one {
			return 0, nil, nil, nil, false
		}
		v := view{arg: arg{base: a.base, coef: a.coef}, dil: 1, inner: digits.Repeated(1)}
		along := axis{size: digits.Places(l), at: digits.Repeated(1)}
		if len(l) == 1 {
			if v.inner = l[0]; l[0].Dim == digits.None {
				return 0, nil, nil, nil, false
			}
			along.coef, along.at = 1, digits.Repeated(along.size)
		}
		for _, l := range loops {
			v.axes = append(v.axes, axis{size: l.size, at: l.at[k+i]})
		}
		v.axes = append(v.axes, along)
		if len(l) == 0 && !v.composeSingleRow() {
			return 0, nil, nil, nil, false
		}
		if !t.resolve(&v) {
			return 0, nil, nil, nil, false
		}
		vs[i] = v
	}
	a, b := &vs[0], &vs[1]
	n := len(loops)
	if a.arg.base != b.arg.base && !a.liftToConcat(b.arg.base) && !b.liftToConcat(a.arg.base) {
		return 0, nil, nil, nil, false
	}
	for _, x := range []*view{a, b} {
		if o := vs[0]; x.fill == nil && x == a {
			o = vs[1]
			x.alignTo(&o)
		} else if x.fill == nil {
			x.alignTo(&o)
		}
	}
	if a.arg.base != b.arg.base || a.arg.coef != b.arg.coef || a.inner != b.inner || a.dil != b.dil || a.fill != nil && b.fill != nil && !a.fill.equal(b.fill) {
		return 0, nil, nil, nil, false
	}
	for i := range n {
		if a.axes[i].coef != b.axes[i].coef || a.axes[i].at != b.axes[i].at {
			return 0, nil, nil, nil, false
		}
	}
	x, y := a.axes[n], b.axes[n]
	step := x.coef
	if x.size == 1 {
		step = y.coef
	}
	if y.size == 1 && x.size == 1 {
		step = b.off - a.off
	}
	if step < 1 || y.size > 1 && y.coef != step || b.off != a.off+step*x.size {
		return 0, nil, nil, nil, false
	}
	if a.fill == nil {
		a.fill = b.fill
	}
	a.axes[n] = axis{x.size + y.size, digits.Repeated(x.size + y.size), step}
	c, e, where := t.view(*a)
	along := where[n]
	at := digits.Singles(where[:n])
	rest := slices.Concat(args[:k], []arg{{base: e, coef: c}}, args[k+2:])
	left := slices.Concat(lists[:k], [][]digits.Digit{digits.Joined(along)}, lists[k+2:])
	next := make([]loop, n)
	for i, l := range loops {
		next[i] = loop{size: l.size, summed: l.summed, tail: l.tail, at: slices.Concat(l.at[:k], []digits.Digit{at[i]}, l.at[k+2:])}
	}
	c, e, w, d := t.concat(rest, left, next)
	return c, e, w, d, true
}

// concatPartwise concatenates operands that are concatenations along another dimension, such as what does not divide there:
// part by part of that, if each part of all of them is one view.
func (t *Table) concatPartwise(args []arg, lists [][]digits.Digit, loops []loop) (c float64, e *expr, where, along []digits.Digit, ok bool) {
	if t.apart {
		return 0, nil, nil, nil, false
	}
	t.apart = true
	defer func() { t.apart = false }()
	args = slices.Clone(args)
	for k := range args {
		args[k].inner = lists[k]
	}
	ok = digits.Attempt(func() (ok bool) {
		c, e, where, ok = t.distributeConcat(args, loops, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
			args, lists := slices.Clone(args), make([][]digits.Digit, len(args))
			for k := range args {
				args[k].inner, lists[k] = nil, args[k].inner
			}
			c, e, where, along := t.concat(args, lists, loops)
			if e.is(nameCat) || len(along) != 1 {
				panic(digits.Uneven{})
			}
			return c, e, append(slices.Clone(where), along[0])
		}, t.add)
		return ok
	})
	if !ok {
		return 0, nil, nil, nil, false
	}
	return c, e, where[:len(loops)], where[len(loops):], true
}

// liftToConcat makes a view of a part of a concatenation one of that, if it reads nothing of the others.
func (v *view) liftToConcat(e *expr) bool {
	if !e.is(nameCat) || e.own[0].Dim == digits.None || v.dil > 1 {
		return false
	}
	own := digits.Of(e.own[0].Dim, 1, e.shape[e.own[0].Dim])
	s, _ := concatAlong(e, own)
	start := int64(0)
	for k, a := range e.args {
		n := s.size(k)
		if in := digits.Joined(s.partDigits(k, own)); a.base != v.arg.base || a.coef == 0 || len(in) != 1 || in[0] != v.inner {
			start += n
			continue
		}
		if v.readsAny(-start, 0) || v.readsAny(n, own.Size-start) {
			return false
		}
		out := *v
		out.arg, out.inner, out.off = arg{base: e, coef: v.arg.coef / a.coef}, own, v.off+start
		out.axes = slices.Clone(v.axes)
		for i, x := range v.axes {
			if x.at.Dim == digits.None {
				continue
			}
			l := slices.IndexFunc(e.loops, func(l loop) bool {
				d := l.at[k]
				return d.Dim == x.at.Dim && x.at.Stride%d.Stride == 0 && x.at.Stride*x.at.Size <= d.Stride*d.Size
			})
			if l < 0 || e.place[l].Dim == digits.None || l == e.joins[0] {
				return false
			}
			out.axes[i].at = digits.Of(e.place[l].Dim, x.at.Stride/e.loops[l].at[k].Stride, x.at.Size)
		}
		*v = out
		return true
	}
	return false
}

// maxReads bounds the places that are looked at one by one.
const maxReads = 1 << 14

// readsAny reports whether a view reads a place from lo to less than hi, or may.
func (v *view) readsAny(lo, hi int64) bool {
	from := []int64{v.off}
	rs := runs(v.terms())
	for i, r := range rs {
		unit, n := r[len(r)-1].coef, total(r)
		if i == len(rs)-1 && unit == 1 { // in a row
			return slices.ContainsFunc(from, func(at int64) bool { return at < hi && at+n > lo })
		}
		if n > maxReads/int64(len(from)) {
			return true
		}
		var next []int64
		for _, at := range from {
			for k := range n {
				next = append(next, at+k*unit)
			}
		}
		from = next
	}
	return slices.ContainsFunc(from, func(at int64) bool { return at >= lo && at < hi })
}

// composeSingleRow makes a view of one row, which is a view itself, one of what that is of.
func (v *view) composeSingleRow() bool {
	e := v.arg.base
	if e.win == nil || len(e.args[0].inner) != 1 || e.win.fill != nil && v.arg.coef != 1 {
		return false
	}
	v.inner, v.off, v.dil, v.fill = e.args[0].inner[0], e.win.off, e.win.dil, e.win.fill
	v.arg = arg{base: e.args[0].base, coef: v.arg.coef * e.args[0].coef}
	for i := range v.axes {
		a := &v.axes[i]
		if k := slices.IndexFunc(e.own, func(o digits.Digit) bool { return a.at.Dim != digits.None && o.Dim == a.at.Dim }); k >= 0 {
			a.coef, a.at = e.win.coefs[k]*a.at.Stride, digits.Repeated(a.size)
		} else {
			a.at = e.operandDigit(a.at, 0)
		}
	}
	return true
}

// alignTo takes a view that is nowhere outside to the digit of another one of the same tensor, if
// the digits that are major to that are carried along.
func (v *view) alignTo(o *view) {
	if v.arg.base != o.arg.base || v.inner == o.inner || v.inner.Dim != o.inner.Dim || v.inner.Dim == digits.None || v.inner.Stride != 1 {
		return
	}
	u := *v
	u.axes = slices.Clone(v.axes)
	if u.coarsen(o.inner.Stride); u.inner.Stride != o.inner.Stride {
		return
	}
	top, rest := o.inner.Size, u.off
	for i := range u.axes {
		a := &u.axes[i]
		if a.coef%top == 0 && a.coef != 0 && a.size > 1 {
			a.at, a.coef = digits.Of(u.inner.Dim, u.inner.Stride*a.coef, a.size), 0
		} else {
			rest += a.coef * (a.size - 1)
		}
	}
	if u.off >= 0 && rest < top {
		u.inner.Size = top
		*v = u
	}
}
