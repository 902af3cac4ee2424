package normal

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has slices of what is computed element by element of views: it is computed of slices,
// so that it does not matter which came first.

// isWindowed reports whether a digit of a base goes along places of a view, itself or in what it is
// computed of element by element.
func (e *expr) isWindowed(d digits.Digit) bool { return d.Dim != digits.None && e.windowed[d.Dim] }

// markWindowed finds out which dimensions of a base do.
func (e *expr) markWindowed() {
	e.windowed = make([]bool, len(e.shape))
	if e.win != nil {
		for _, d := range e.own {
			e.windowed[d.Dim] = true
		}
	}
	if e.win == nil && !e.isLoopwise() {
		return
	}
	for i, l := range e.loops {
		for k, d := range l.at {
			if p := e.place[i]; p.Dim != digits.None && e.args[k].base.isWindowed(d) {
				e.windowed[p.Dim] = true
			}
		}
	}
}

// isLoopwise reports whether a base is computed element by element of its loops.
func (e *expr) isLoopwise() bool {
	return e.kind != leaf && len(e.own) == 0 && !slices.ContainsFunc(e.args, func(a arg) bool { return len(a.inner) > 0 })
}

// alongElementwise reports whether a view is along a loop of something computed element by element of
// views.
func (v *view) alongElementwise() bool {
	e := v.arg.base
	if !e.isWindowed(v.inner) || !e.isLoopwise() {
		return false
	}
	of := e.loopOf(v.inner)
	return of >= 0 && v.inner == e.place[of]
}

// sliceOperands is a slice of what is computed of views: computed of slices.
func (t *Table) sliceOperands(v *view) (float64, *expr, [][]digits.Digit, bool) {
	e, k := v.arg.base, v.onlyAxis()
	if v.fill != nil || !v.alongElementwise() || k < 0 && slices.ContainsFunc(v.axes, func(a axis) bool { return a.coef != 0 }) {
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
		c, b, w = t.convertTo(e.text, args[0], loops)
	case choice:
		c, b, w = t.choose(e.text, args, loops)
	case reduction:
		c, b, w = t.reduceWith(e.text, args[0], loops)
	default:
		c, b, w = t.genericOf(&spec{kind: generic, text: e.text, args: args, loops: loops})
	}
	m, where := &digitMap{from: e.place, to: w}, make([][]digits.Digit, len(v.axes))
	for i, a := range v.axes {
		if where[i] = w[of : of+1]; i != k {
			where[i] = []digits.Digit{m.at(a.at)}
		}
	}
	return v.arg.coef * c, b, where, true
}

// trimOperands leaves out of what is computed of views what is not read.
func (t *Table) trimOperands(v *view) {
	if !v.alongElementwise() {
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
	t.restrict(v, from, to+1)
}
