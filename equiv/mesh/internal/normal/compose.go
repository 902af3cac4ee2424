package normal

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has views of views: along the same dimension they are one, along several they stand
// in the order of these.

// compose makes a view of a view one of what that is of.
func (t *Table) compose(v *view) bool {
	e := v.arg.base
	if e.win == nil || v.inner.Dim == digits.None || e.win.fill != nil && v.arg.coef != 1 && !t.is(*e.win.fill, 0) {
		return false
	}
	own := func(d digits.Digit) int {
		return slices.IndexFunc(e.own, func(o digits.Digit) bool { return d.Dim != digits.None && o.Dim == d.Dim })
	}
	j := own(v.inner)
	if j < 0 {
		return v.composeAlongLoop(e)
	}
	w, step := e.win, mulExact(e.win.coefs[j], v.inner.Stride)
	out := view{arg: arg{e.args[0].base, v.arg.coef * e.args[0].coef, nil}, inner: digits.Repeated(e.win.size(e)), off: mulExact(w.off, v.dil), dil: w.dil, fill: w.fill, part: v.part}
	if l := e.args[0].inner; len(l) > 0 {
		out.inner = l[0]
	}
	others := view{off: w.off, axes: slices.Clone(v.axes)}
	for i, a := range v.axes {
		x, o := axis{size: a.size, at: digits.Repeated(a.size)}, &others.axes[i]
		if o.coef = 0; a.at.Dim != digits.None {
			if k := own(a.at); k >= 0 {
				o.coef = mulExact(w.coefs[k], a.at.Stride)
				x.coef = mulExact(o.coef, v.dil)
			} else {
				x.at = e.operandDigit(a.at, 0)
			}
		}
		x.coef += mulExact(step, a.coef)
		out.axes = append(out.axes, x)
	}
	out.off += mulExact(step, v.off)
	if v.isPadded() {
		if w.dil > 1 || step < 1 || v.dil > 1 && step != 1 || w.fill != nil && !v.fill.equal(w.fill) || v.padsInside(&others, step, out.inner.Size, 1) {
			return false
		}
		out.dil, out.fill = v.dil, v.fill
	}
	*v = out
	return true
}

// padsInside reports whether what is outside of a view, in steps of what that is of, is there in the n
// places of that, which the others depend on, or may be. What both depend on, such as the rank, is
// looked at one by one.
func (v *view) padsInside(others *view, step, n, times int64) bool {
	for i, a := range v.axes {
		b := others.axes[i]
		if times *= a.size; a.coef == 0 || b.coef == 0 || times > maxShared {
			times /= a.size
			continue
		}
		x, y := *v, *others
		x.axes, y.axes = slices.Delete(slices.Clone(v.axes), i, i+1), slices.Delete(slices.Clone(others.axes), i, i+1)
		for range a.size {
			if x.padsInside(&y, step, n, times) {
				return true
			}
			x.off, y.off = x.off+a.coef, y.off+b.coef
		}
		return false
	}
	low, high := v.overruns()
	lo, hi := others.span()
	return low && hi-step >= 0 || high && lo+step*v.inner.Size < n
}

// maxShared bounds them.
const maxShared = 1 << 10

// composeAlongLoop makes a view along a loop of a view that is nowhere outside, such as the rank whose rows
// are read, one of the dimension that both are of.
func (v *view) composeAlongLoop(e *expr) bool {
	if e.win.fill != nil || v.dil > 1 || len(e.args[0].inner) != 1 || v.inner.Dim == digits.None {
		return false
	}
	in, d := e.args[0].inner[0], e.operandDigit(v.inner, 0)
	if d.Dim != in.Dim || d.Dim == digits.None || d.Stride < in.Stride*in.Size {
		return false
	}
	step, top := d.Stride/in.Stride, d.Stride*d.Size
	out := view{arg: arg{e.args[0].base, v.arg.coef * e.args[0].coef, nil}, inner: digits.Of(in.Dim, in.Stride, top/in.Stride), off: mulExact(step, v.off) + e.win.off, dil: 1, fill: v.fill, part: v.part}
	for _, a := range v.axes {
		x := axis{size: a.size, at: digits.Repeated(a.size), coef: mulExact(step, a.coef)}
		if k := slices.IndexFunc(e.own, func(o digits.Digit) bool { return a.at.Dim != digits.None && o.Dim == a.at.Dim }); k >= 0 {
			x.coef += e.win.coefs[k] * a.at.Stride
		} else if y := e.operandDigit(a.at, 0); y.Dim == in.Dim && y.Dim != digits.None && y.Stride >= in.Stride && y.Stride*y.Size <= top {
			x.coef += y.Stride / in.Stride
		} else {
			x.at = y
		}
		out.axes = append(out.axes, x)
	}
	*v = out
	return true
}

// rootDigit is a digit in what views are of at last.
func (e *expr) rootDigit(d digits.Digit) digits.Digit {
	for e.win != nil && d.Dim != digits.None {
		if slices.ContainsFunc(e.own, func(o digits.Digit) bool { return o.Dim == d.Dim }) {
			d = append(slices.Clone(e.args[0].inner), digits.Repeated(1))[0]
		} else {
			d = e.operandDigit(d, 0)
		}
		e = e.args[0].base
	}
	return d
}

// reorder puts views along several dimensions of one tensor in the order of these.
func (t *Table) reorder(v *view) bool {
	e := v.arg.base
	if e.win == nil || v.inner.Dim == digits.None || len(e.args[0].inner) != 1 || e.win.fill != nil && (v.arg.coef != 1 || v.fill != nil && !v.fill.equal(e.win.fill)) {
		return false
	}
	in, b := e.args[0].inner[0], e.args[0].base
	own := func(d digits.Digit) int {
		return slices.IndexFunc(e.own, func(o digits.Digit) bool { return d.Dim != digits.None && o.Dim == d.Dim })
	}
	if own(v.inner) >= 0 {
		return false
	}
	p, q := e.rootDigit(v.inner), b.rootDigit(in)
	inOrder := q.Dim == digits.None || p.Dim > q.Dim || p.Dim == q.Dim && p.Stride >= q.Stride
	if c := (&view{arg: arg{base: b}, inner: e.operandDigit(v.inner, 0)}); inOrder && (v.fill != nil || v.onlyAxis() < 0 || v.axes[v.onlyAxis()].coef > 1 || !c.alongElementwise()) {
		return false
	}
	x := view{arg: e.args[0], inner: e.operandDigit(v.inner, 0), off: v.off, dil: v.dil, fill: v.fill, part: v.part, axes: []axis{{in.Size, in, 0}}}
	x.arg.inner = nil
	out := view{inner: in, off: e.win.off, dil: e.win.dil, fill: e.win.fill, part: v.part}
	for _, a := range v.axes {
		o := axis{size: a.size}
		if k := own(a.at); k >= 0 {
			o.coef, a.at = e.win.coefs[k]*a.at.Stride, digits.Repeated(a.size)
		} else {
			a.at = e.operandDigit(a.at, 0)
		}
		x.axes, out.axes = append(x.axes, a), append(out.axes, o)
	}
	c, base, where := t.view(x)
	at := digits.Singles(where)
	out.arg, out.inner = arg{base: base, coef: v.arg.coef * c}, at[0]
	for i := range out.axes {
		out.axes[i].at = at[1+i]
	}
	*v = out
	return true
}
