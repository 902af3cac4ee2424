package normal

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has the normal form of a view.

// term is a part of an axis on which a place depends.
type term struct {
	axis         int
	stride, size int64 // of the axis
	coef         int64
}

// terms are those of a view, the largest steps first, and which go on in which.
func (v *view) terms() (out []term) {
	for i, a := range v.axes {
		if a.coef != 0 {
			out = append(out, term{i, 1, a.size, a.coef})
		}
	}
	slices.SortStableFunc(out, func(a, b term) int { return cmp.Compare(max(b.coef, -b.coef), max(a.coef, -a.coef)) })
	return out
}

// runs are terms of which each goes on where the one before it ends, those of the largest unit
// first, and then the longest.
func runs(l []term) (out [][]term) {
	used := make([]bool, len(l))
	for i := range l {
		if used[i] {
			continue
		}
		run := []term{l[i]}
		for k := i + 1; k < len(l); k++ {
			if !used[k] && run[len(run)-1].coef == l[k].coef*l[k].size {
				run, used[k] = append(run, l[k]), true
			}
		}
		out = append(out, run)
	}
	slices.SortStableFunc(out, func(a, b []term) int {
		return cmp.Or(cmp.Compare(b[len(b)-1].coef, a[len(a)-1].coef), cmp.Compare(total(b), total(a)))
	})
	return out
}

func total(l []term) int64 {
	n := int64(1)
	for _, x := range l {
		n *= x.size
	}
	return n
}

// readTerm is a term with the digit that it is.
type readTerm struct {
	term
	d digits.Digit
}

// readDigits are terms that are one and are digits of what is viewed, from a stride on.
func (v *view) readDigits(l []term, stride int64) (out []readTerm) {
	for _, x := range slices.Backward(l) {
		d := digits.Repeated(x.size)
		if v.inner.Dim != digits.None {
			d = digits.Of(v.inner.Dim, v.inner.Stride*stride, x.size)
		}
		out = append(out, readTerm{x, d})
		stride *= x.size
	}
	return out
}

// takeMajors takes from a view that is nowhere outside what is major and read whole.
func (v *view) takeMajors(rs [][]term) ([][]term, []readTerm) {
	if len(rs) == 0 || v.fill != nil {
		return rs, nil
	}
	unit, rest := rs[0][len(rs[0])-1].coef, v.off
	for _, r := range rs[1:] {
		rest += max(0, (total(r)-1)*r[len(r)-1].coef)
		if r[len(r)-1].coef < 1 {
			return rs, nil
		}
	}
	if unit*total(rs[0]) != v.inner.Size || rest >= unit {
		return rs, nil
	}
	out := v.readDigits(rs[0], unit)
	v.inner.Size = unit
	return rs[1:], out
}

// buildView is a view in its normal form: what is read in order is a loop.
func (t *Table) buildView(v *view) (float64, *expr, [][]digits.Digit) {
	rs, all := v.takeMajors(runs(v.terms()))
	where := make([][]digits.Digit, len(v.axes))
	coef, base := v.arg.coef, v.arg.base
	if v.inner.Size == 1 && v.fill == nil && len(rs) == 0 { // all of it is read in order
		for i, a := range v.axes {
			if a.coef == 0 {
				where[i] = digits.Add(nil, a.at)
			}
		}
	} else {
		var loops []loop
		for _, a := range v.axes {
			if a.coef == 0 {
				loops = append(loops, loop{size: a.size, at: []digits.Digit{a.at}})
			}
		}
		plain := len(loops)
		for _, x := range all {
			loops = append(loops, loop{size: x.size, at: []digits.Digit{x.d}})
		}
		c, e, w, ok := t.viewOfConcat(v, loops, rs)
		switch {
		case ok:
			coef, base = c, e
		case len(rs) == 1 && v.fill != nil && v.dil == 1 && rs[0][len(rs[0])-1].coef == 1:
			coef, base, w = t.padConcat(v, loops, total(rs[0]))
		default:
			coef, base, w = t.makeWindow(v, loops, rs)
		}
		k := 0
		for i, a := range v.axes {
			if a.coef == 0 {
				where[i], k = digits.Add(nil, w[k]), k+1
			}
		}
		for i := range all {
			all[i].d = w[plain+i]
		}
		for j, r := range rs {
			o := &view{inner: w[len(loops)+j]}
			all = append(all, o.readDigits(r, 1)...)
		}
	}
	slices.SortStableFunc(all, func(a, b readTerm) int { return cmp.Compare(b.stride, a.stride) })
	for _, x := range all {
		where[x.axis] = digits.Add(where[x.axis], x.d)
	}
	for i, a := range v.axes {
		if len(where[i]) == 0 {
			where[i] = []digits.Digit{digits.Repeated(a.size)}
		}
	}
	return coef, base, where
}

// makeWindow is a view that is none of something simpler, with the digits of loops and then of its sizes.
func (t *Table) makeWindow(v *view, loops []loop, rs [][]term) (float64, *expr, []digits.Digit) {
	s := &spec{kind: generic, text: nameWindow, loops: loops, win: &window{v.off, v.dil, v.fill, nil}}
	if v.fill != nil && !t.is(*v.fill, 0) {
		s.text = nameEdged
	}
	for _, n := range []int64{v.inner.Size, v.off, v.dil} {
		s.text += " " + strconv.FormatInt(n, 10)
	}
	if v.fill != nil {
		s.text += " else " + strconv.Itoa(v.fill.base.id) + "*" + string(number(nil, v.fill.coef))
	}
	for _, r := range rs {
		s.own = append(s.own, total(r))
		s.win.coefs = append(s.win.coefs, r[len(r)-1].coef)
		s.text += " " + strconv.FormatInt(r[len(r)-1].coef, 10)
	}
	s.args = []arg{{v.arg.base, 1, []digits.Digit{v.inner}}}
	e, where := t.make(s)
	return v.arg.coef, e, where
}

// viewOfConcat is a view of what is concatenated along another dimension: concatenated of views.
func (t *Table) viewOfConcat(v *view, loops []loop, rs [][]term) (float64, *expr, []digits.Digit, bool) {
	whole := arg{v.arg.base, 1, []digits.Digit{v.inner}}
	c, e, where, ok := t.distributeConcat([]arg{whole}, loops, func(args []arg, parts []loop) (float64, *expr, []digits.Digit) {
		x := view{arg: arg{args[0].base, args[0].coef, nil}, inner: v.inner, off: v.off, dil: v.dil, fill: v.fill}
		if l := digits.Joined(args[0].inner); len(l) == 1 {
			x.inner = l[0]
		} else {
			panic(digits.Uneven{})
		}
		for _, l := range parts {
			x.axes = append(x.axes, axis{l.size, l.at[0], 0})
		}
		for _, r := range rs {
			n := total(r)
			x.axes = append(x.axes, axis{n, digits.Repeated(n), r[len(r)-1].coef})
		}
		c, e, where := t.view(x)
		return c, e, digits.Singles(where)
	}, t.add)
	return v.arg.coef * c, e, where, ok
}

// padConcat is n places in order, of which some are outside: concatenated of a number and what is inside.
func (t *Table) padConcat(v *view, loops []loop, n int64) (float64, *expr, []digits.Digit) {
	front, back := min(n, max(0, -v.off)), min(n, max(0, v.off+n-v.inner.Size))
	x := view{arg: v.arg, inner: v.inner, off: v.off + front, dil: 1, axes: []axis{{n - front - back, digits.Repeated(1), 1}}}
	if front+back >= n {
		return v.fill.coef, v.fill.base, append(repeatedDigits(loops), digits.Repeated(n))
	}
	for _, l := range loops {
		x.axes = append(x.axes, axis{l.size, l.at[0], 0})
	}
	c, e, where := t.view(x)
	var args []arg
	var lists [][]digits.Digit
	mid := 0
	if front > 0 {
		args, lists, mid = append(args, *v.fill), append(lists, digits.Add(nil, digits.Repeated(front))), 1
	}
	args, lists = append(args, arg{base: e, coef: c}), append(lists, digits.Joined(where[0]))
	if back > 0 {
		args, lists = append(args, *v.fill), append(lists, digits.Add(nil, digits.Repeated(back)))
	}
	at := digits.Singles(where[1:])
	both := make([]loop, len(loops))
	for i, l := range loops {
		both[i] = loop{size: l.size, at: slices.Repeat([]digits.Digit{digits.Repeated(l.size)}, len(args))}
		both[i].at[mid] = at[i]
	}
	coef, base, w, along := t.concat(args, lists, both)
	if len(along) != 1 {
		panic(digits.Uneven{})
	}
	return coef, base, append(slices.Clone(w), along[0])
}
