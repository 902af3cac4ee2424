package normal

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has slices of what is computed element by element of views: it is computed of slices,
// so that it does not matter which came first.

// slides reports whether a digit of a base goes along places of a view, itself or in what it is
// computed of element by element.
func (e *expr) slides(d digits.Digit) bool { return d.Dim != digits.None && e.sliding[d.Dim] }

// slide finds out which dimensions of a base do.
func (e *expr) slide() {
	e.sliding = make([]bool, len(e.shape))
	if e.win != nil {
		for _, d := range e.own {
			e.sliding[d.Dim] = true
		}
	}
	if e.win == nil && !e.each() {
		return
	}
	for i, l := range e.loops {
		for k, d := range l.at {
			if p := e.place[i]; p.Dim != digits.None && e.args[k].base.slides(d) {
				e.sliding[p.Dim] = true
			}
		}
	}
}

// each reports whether a base is computed element by element of its loops.
func (e *expr) each() bool {
	return e.kind != leaf && len(e.own) == 0 && !slices.ContainsFunc(e.args, func(a arg) bool { return len(a.inner) > 0 })
}

// computed reports whether a view is along a loop of something computed element by element of
// views.
func (v *view) computed() bool {
	e := v.arg.base
	if !e.slides(v.inner) || !e.each() {
		return false
	}
	of := e.loopOf(v.inner)
	return of >= 0 && v.inner == e.place[of]
}

// pushed is a slice of what is computed of views: computed of slices.
func (t *Table) pushed(v *view) (float64, *expr, [][]digits.Digit, bool) {
	e, k := v.arg.base, v.single()
	if v.fill != nil || !v.computed() || k < 0 && slices.ContainsFunc(v.axes, func(a axis) bool { return a.coef != 0 }) {
		return 0, nil, nil, false
	}
	by := axis{1, digits.Repeated(1), 1}
	if k >= 0 {
		by = v.axes[k]
	}
	if by.coef > 1 && by.size > 1 || by.coef == 1 && by.size == v.inner.Size {
		return 0, nil, nil, false
	}
	of := e.loopOf(v.inner)
	args, loops := slices.Clone(e.args), make([]loop, 0, len(e.loops))
	for _, l := range e.loops {
		loops = append(loops, loop{size: l.size, summed: l.summed, at: slices.Clone(l.at)})
	}
	loops[of].size = by.size
	for j := range args {
		if d := loops[of].at[j]; d.Dim == digits.None {
			loops[of].at[j] = digits.Repeated(by.size)
			continue
		}
		x := view{arg: args[j], inner: loops[of].at[j], off: v.off, dil: 1, part: true}
		for i, l := range loops {
			a := axis{size: l.size, at: l.at[j]}
			if i == of {
				a = axis{by.size, digits.Repeated(by.size), by.coef}
			}
			x.axes = append(x.axes, a)
		}
		c, b, where := t.view(x)
		args[j] = arg{base: b, coef: c}
		for i, d := range digits.Singles(where) {
			loops[i].at[j] = d
		}
	}
	var c float64
	var b *expr
	var w []digits.Digit
	switch e.kind {
	case product:
		c, b, w = t.multiply(args, loops)
	case linear:
		c, b, w = t.add(args, loops)
	case convert:
		c, b, w = t.converted(e.text, args[0], loops)
	case choice:
		c, b, w = t.choose(e.text, args, loops)
	case fold:
		c, b, w = t.folded(e.text, args[0], loops)
	default:
		c, b, w = t.blockOf(&spec{kind: block, text: e.text, args: args, loops: loops})
	}
	where := make([][]digits.Digit, len(v.axes))
	for i, a := range v.axes {
		d := a.at
		if i == k {
			d = w[of]
		} else if d.Dim != digits.None {
			if l := e.loopOf(d); w[l].Dim == digits.None {
				d = digits.Repeated(d.Size)
			} else {
				d = digits.Of(w[l].Dim, w[l].Stride*d.Stride, d.Size)
			}
		}
		where[i] = []digits.Digit{d}
	}
	return v.arg.coef * c, b, where, true
}

// touched leaves out of what is computed of views what is not read.
func (t *Table) touched(v *view) {
	if !v.computed() {
		return
	}
	lo, hi := v.span()
	from, to := max(0, -(-lo/v.dil)), min(v.inner.Size-1, hi/v.dil)
	if lo > 0 {
		from = (lo + v.dil - 1) / v.dil
	}
	if from == 0 && to == v.inner.Size-1 || from > to {
		return
	}
	x := view{arg: v.arg, inner: v.inner, off: from, dil: 1, axes: []axis{{to - from + 1, digits.Repeated(1), 1}}}
	for _, a := range v.axes {
		x.axes = append(x.axes, axis{a.size, a.at, 0})
	}
	c, e, where := t.view(x)
	w := digits.Singles(where)
	v.arg, v.inner, v.off = arg{base: e, coef: c}, w[0], v.off-from*v.dil
	for i := range v.axes {
		v.axes[i].at = w[1+i]
	}
}
