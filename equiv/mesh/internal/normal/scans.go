package normal

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// What accumulates along a dimension is a window over all that is in front of each place, or after
// it, summed or folded. This file has such scans of a dimension's parts, and of what comes out in
// the end of each: both together are the scan of the dimension.

// JoinScans is an operation on two scans, a sum or the fold of a name, of which the one goes on where
// the other ends; nil where it is none. Neutral is the number that changes nothing.
func (m *Mesh) JoinScans(how string, neutral Operand, p, q *Tensor) *Tensor {
	for range 2 {
		a, b := scanOf(how, p, neutral), scanOf(how, q, neutral)
		if a == nil || b == nil || p.coef != q.coef {
			return nil
		}
		var out *Tensor
		if digits.Attempt(func() bool {
			o := m.Op(p, q)
			dims := o.broadcast()
			o.ranks()
			c, e, where, ok := m.t.mergeScans(how, a, b, o.loops)
			if ok {
				out = o.finish(c*p.coef, e, where, dims)
			}
			return ok
		}) {
			return out
		}
		p, q = q, p
	}
	return nil
}

// scan is a sum or a fold of a window that begins or ends at each place of a digit and reaches over
// all of it.
type scan struct {
	sum, window *expr
	of          digits.Digit
	neutral     arg
}

// scanOf is what a tensor is a scan of, nil if it is none.
func scanOf(how string, p *Tensor, neutral arg) *scan {
	e := p.base
	if !(how == Sum && e.kind == product || p.coef == 1 && e.kind == reduction && e.text == how) || len(e.args) != 1 || e.args[0].coef != 1 {
		return nil
	}
	v := e.args[0].base
	if v.win == nil || v.win.dil != 1 || len(v.own) != 2 || !slices.Equal(v.win.coefs, []int64{1, 1}) || len(v.args[0].inner) != 1 || v.args[0].coef != 1 || !neutral.equal(v.win.fill) {
		return nil
	}
	d := v.args[0].inner[0]
	for _, o := range v.own {
		if o.Size != d.Size || v.shape[o.Dim] != d.Size {
			return nil
		}
	}
	for _, l := range e.loops {
		if l.summed != (l.at[0].Dim == v.own[1].Dim) || l.summed && l.at[0] != v.own[1] {
			return nil
		}
	}
	return &scan{e, v, d, neutral}
}

// mergeScans is scan a of the parts of a digit, to which b adds what comes out in the end of those in front:
// the scan of all of it.
func (t *Table) mergeScans(how string, a, b *scan, loops []loop) (float64, *expr, []digits.Digit, bool) {
	x, m, k := a.window.args[0].base, a.of.Size, b.of.Size
	all := digits.Of(a.of.Dim, a.of.Stride, m*k)
	parts := digits.Of(a.of.Dim, a.of.Stride*m, k)
	begin := map[int64]int64{1 - m: 1 - m*k, 0: 0} // in front of each place and there, or from there on
	off, ok := begin[a.window.win.off]
	if !ok || off < 0 != (b.window.win.off == -k) || off == 0 && b.window.win.off != 1 || all.Stride*all.Size > x.shape[all.Dim] {
		return 0, nil, nil, false
	}
	ends := &digitMap{from: digits.Complement(x.shape, []digits.Digit{a.of})}
	var over []loop
	for i := range ends.from {
		over = append(over, loop{size: ends.from[i].Size, at: ends.from[i : i+1]})
	}
	c, e, w := t.reduce(how, arg{x, 1, nil}, append(over, loop{size: m, summed: true, at: []digits.Digit{a.of}}))
	ends.to = w[:len(over)]
	if c != 1 || e != b.window.args[0].base || ends.at(parts) != b.of {
		return 0, nil, nil, false
	}
	v := view{arg: arg{base: x, coef: 1}, inner: all, off: off, dil: 1, fill: &a.neutral}
	v.axes = []axis{{all.Size, digits.Repeated(all.Size), 1}, {all.Size, digits.Repeated(all.Size), 1}}
	at := make([]int64, len(loops)) // the stride of those that are digits of the place
	for i, l := range loops {
		d, o := a.sum.operandDigit(l.at[0], 0), b.sum.operandDigit(l.at[1], 0)
		carried := digits.Repeated(l.size)
		switch {
		case d.Dim == a.window.own[0].Dim && d.Dim != digits.None:
			if at[i] = d.Stride; o.Dim != digits.None {
				return 0, nil, nil, false
			}
		case d.Dim == digits.None:
			if o.Dim != digits.None {
				return 0, nil, nil, false
			}
		default:
			d = a.window.operandDigit(d, 0)
			if o.Dim == b.window.own[0].Dim {
				if at[i] = o.Stride * m; d != (digits.Of(parts.Dim, parts.Stride*o.Stride, l.size)) {
					return 0, nil, nil, false
				}
				d = digits.Repeated(l.size)
			} else if o.Dim == digits.None || b.window.operandDigit(o, 0) != ends.at(d) {
				return 0, nil, nil, false
			}
			carried = d
		}
		v.axes = append(v.axes, axis{l.size, carried, 0})
	}
	c, e, where := t.view(v)
	if len(where[0]) != 1 || len(where[1]) != 1 {
		return 0, nil, nil, false
	}
	var of []loop
	for i, d := range digits.Singles(where) {
		of = append(of, loop{size: d.Size, summed: i == 1, at: []digits.Digit{d}})
	}
	c, e, w = t.reduce(how, arg{base: e, coef: c}, of)
	for i := range loops {
		if at[i] > 0 {
			w[2+i] = digits.Of(w[0].Dim, w[0].Stride*at[i], loops[i].size)
		}
	}
	return c, e, w[2:], true
}

// trimWindow leaves out places of a window that are summed, or folded, and outside wherever it stands,
// but so that it has as many as it stands at: a scan of what is in front stays one. It returns false
// where there are none. Of two digits that a place depends on alike the first one is not summed.
func (t *Table) trimWindow(how string, a arg, loops []loop) (arg, []loop, bool) {
	e := a.base
	if e.win == nil || e.win.fill == nil || !t.is(*e.win.fill, 0) && how == Sum || how != Sum && !t.isIdentity(how, *e.win.fill) {
		return a, nil, false
	}
	v := view{arg: e.args[0], inner: append(digits.Joined(e.args[0].inner), digits.Repeated(1))[0], off: e.win.off, dil: e.win.dil, fill: e.win.fill}
	v.arg.inner = nil
	m := &digitMap{}
	for i, l := range e.loops {
		v.axes, m.from = append(v.axes, axis{l.size, l.at[0], 0}), append(m.from, e.place[i])
	}
	first, cut := len(v.axes), false
	for k, d := range e.own {
		v.axes, m.from = append(v.axes, axis{d.Size, digits.Repeated(d.Size), e.win.coefs[k]}), append(m.from, d)
	}
	loops = pickOperands(loops, []int{0})
	for k := range e.own {
		for j := range k {
			if e.own[j].Size == e.own[k].Size && e.win.coefs[j] == e.win.coefs[k] {
				cut = swapSummed(loops, e.own[j], e.own[k]) || cut
			}
		}
	}
	for k := range e.own {
		x := &v.axes[first+k]
		i := slices.IndexFunc(loops, func(l loop) bool { return l.summed && l.at[0] == m.from[first+k] })
		if i < 0 || x.coef < 1 {
			continue
		}
		n := x.size
		x.size = 1
		lo, hi := v.span()
		from, to := max(0, (x.coef-1-hi)/x.coef), min(n, max(0, (v.inner.Size-1)*v.dil-lo)/x.coef+1)
		if hi > 0 {
			from = 0
		}
		if x.size = n; from >= to {
			continue
		}
		for j, d := range e.own {
			if least := min(n, d.Size); j != k && to-from < least {
				from = max(0, to-least)
				to = from + least
			}
		}
		if from == 0 && to == n {
			continue
		}
		v.off, x.size, cut = v.off+from*x.coef, to-from, true
		m.from[first+k].Size, loops[i].size = to-from, to-from
		loops[i].at[0].Size = to - from
		x.at = digits.Repeated(x.size)
	}
	if !cut {
		return a, nil, false
	}
	c, b, where := t.view(v)
	m.to = digits.Singles(where)
	for i := range loops {
		loops[i].at[0] = m.at(loops[i].at[0])
	}
	return arg{base: b, coef: a.coef * c}, loops, true
}

// swapSummed lets loops change places of which that of the first digit is summed and that of the other is not.
func swapSummed(loops []loop, first, second digits.Digit) bool {
	i := slices.IndexFunc(loops, func(l loop) bool { return l.at[0] == first && l.summed })
	k := slices.IndexFunc(loops, func(l loop) bool { return l.at[0] == second && !l.summed })
	if i < 0 || k < 0 {
		return false
	}
	loops[i].at[0], loops[k].at[0] = second, first
	return true
}
