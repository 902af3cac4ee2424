package mesh

import (
	"slices"
)

// This file has views of views: along the same dimension they are one, along several they stand
// in the order of these.

// through makes a view of a view one of what that is of.
func (t *table) through(v *view) bool {
	e := v.arg.base
	if e.win == nil || v.inner.dim == none || e.win.fill != nil && v.arg.coef != 1 && !t.is(*e.win.fill, 0) {
		return false
	}
	own := func(d digit) int {
		return slices.IndexFunc(e.own, func(o digit) bool { return d.dim != none && o.dim == d.dim })
	}
	j := own(v.inner)
	if j < 0 {
		return v.beside(e)
	}
	w, step := e.win, times(e.win.coefs[j], v.inner.stride)
	out := view{arg: arg{e.args[0].base, v.arg.coef * e.args[0].coef, nil}, inner: repeated(e.win.size(e)), off: times(w.off, v.dil), dil: w.dil, fill: w.fill, part: v.part}
	if l := e.args[0].inner; len(l) > 0 {
		out.inner = l[0]
	}
	others := view{off: w.off, axes: slices.Clone(v.axes)}
	for i, a := range v.axes {
		x, o := axis{size: a.size, at: repeated(a.size)}, &others.axes[i]
		if o.coef = 0; a.at.dim != none {
			if k := own(a.at); k >= 0 {
				o.coef = times(w.coefs[k], a.at.stride)
				x.coef = times(o.coef, v.dil)
			} else {
				x.at = e.below(a.at, 0)
			}
		}
		x.coef += times(step, a.coef)
		out.axes = append(out.axes, x)
	}
	out.off += times(step, v.off)
	if v.outside() {
		low, high := v.sides()
		lo, hi := others.span()
		n := out.inner.size
		switch {
		case w.dil > 1 || step < 1 || v.dil > 1 && step != 1, w.fill != nil && !v.fill.equal(w.fill):
			return false
		case low && hi-step >= 0, high && lo+step*v.inner.size < n: // it is there in what the view is of
			return false
		}
		out.dil, out.fill = v.dil, v.fill
	}
	*v = out
	return true
}

// beside makes a view along a loop of a view that is nowhere outside, such as the rank whose rows
// are read, one of the dimension that both are of.
func (v *view) beside(e *expr) bool {
	if e.win.fill != nil || v.dil > 1 || len(e.args[0].inner) != 1 || v.inner.dim == none {
		return false
	}
	in, d := e.args[0].inner[0], e.below(v.inner, 0)
	if d.dim != in.dim || d.dim == none || d.stride < in.stride*in.size {
		return false
	}
	step, top := d.stride/in.stride, d.stride*d.size
	out := view{arg: arg{e.args[0].base, v.arg.coef * e.args[0].coef, nil}, inner: digit{in.dim, in.stride, top / in.stride}, off: times(step, v.off) + e.win.off, dil: 1, fill: v.fill, part: v.part}
	for _, a := range v.axes {
		x := axis{size: a.size, at: repeated(a.size), coef: times(step, a.coef)}
		if k := slices.IndexFunc(e.own, func(o digit) bool { return a.at.dim != none && o.dim == a.at.dim }); k >= 0 {
			x.coef += e.win.coefs[k] * a.at.stride
		} else if y := e.below(a.at, 0); y.dim == in.dim && y.dim != none && y.stride >= in.stride && y.stride*y.size <= top {
			x.coef += y.stride / in.stride
		} else {
			x.at = y
		}
		out.axes = append(out.axes, x)
	}
	*v = out
	return true
}

// root is a digit in what views are of at last.
func (e *expr) root(d digit) digit {
	for e.win != nil && d.dim != none {
		if slices.ContainsFunc(e.own, func(o digit) bool { return o.dim == d.dim }) {
			d = append(slices.Clone(e.args[0].inner), repeated(1))[0]
		} else {
			d = e.below(d, 0)
		}
		e = e.args[0].base
	}
	return d
}

// swapped puts views along several dimensions of one tensor in the order of these.
func (t *table) swapped(v *view) bool {
	e := v.arg.base
	if e.win == nil || v.inner.dim == none || len(e.args[0].inner) != 1 || e.win.fill != nil && (v.arg.coef != 1 || v.fill != nil && !v.fill.equal(e.win.fill)) {
		return false
	}
	in, b := e.args[0].inner[0], e.args[0].base
	own := func(d digit) int {
		return slices.IndexFunc(e.own, func(o digit) bool { return d.dim != none && o.dim == d.dim })
	}
	if own(v.inner) >= 0 {
		return false
	}
	p, q := e.root(v.inner), b.root(in)
	inOrder := q.dim == none || p.dim > q.dim || p.dim == q.dim && p.stride >= q.stride
	if c := (&view{arg: arg{base: b}, inner: e.below(v.inner, 0)}); inOrder && (v.fill != nil || v.single() < 0 || !c.computed()) {
		return false
	}
	x := view{arg: e.args[0], inner: e.below(v.inner, 0), off: v.off, dil: v.dil, fill: v.fill, part: v.part, axes: []axis{{in.size, in, 0}}}
	x.arg.inner = nil
	out := view{inner: in, off: e.win.off, dil: e.win.dil, fill: e.win.fill, part: v.part}
	for _, a := range v.axes {
		o := axis{size: a.size}
		if k := own(a.at); k >= 0 {
			o.coef, a.at = e.win.coefs[k]*a.at.stride, repeated(a.size)
		} else {
			a.at = e.below(a.at, 0)
		}
		x.axes, out.axes = append(x.axes, a), append(out.axes, o)
	}
	c, base, where := t.view(x)
	at := singles(where)
	out.arg, out.inner = arg{base: base, coef: v.arg.coef * c}, at[0]
	for i := range out.axes {
		out.axes[i].at = at[1+i]
	}
	*v = out
	return true
}
