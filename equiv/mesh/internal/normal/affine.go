package normal

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has what is said of places: numbers that are affine in digits, comparisons of them,
// and what is chosen or looked up by them.

// plainIota is 0, 1, ... of any integer type.
const plainIota = "iota"

// fromIota begins the name of numbers that begin elsewhere, or go on in other steps.
const fromIota = "iota from "

// Iota are numbers from a start on, in steps.
func (m *Mesh) Iota(start, step, count int64) *Tensor { return m.Leaf(iotaName(start, step), count) }

func iotaName(start, step int64) string {
	if start == 0 && step == 1 {
		return plainIota
	}
	return fromIota + strconv.FormatInt(start, 10) + " " + strconv.FormatInt(step, 10)
}

// iotaRange are where the numbers of an iota begin, and their step; false of anything else.
func (e *expr) iotaRange() (start, step int64, ok bool) {
	if e.kind != leaf || e.text != plainIota && !strings.HasPrefix(e.text, fromIota) {
		return 0, 0, false
	}
	if e.text == plainIota {
		return 0, 1, true
	}
	a, b, _ := strings.Cut(strings.TrimPrefix(e.text, fromIota), " ")
	start, err := strconv.ParseInt(a, 10, 64)
	step, err2 := strconv.ParseInt(b, 10, 64)
	return start, step, err == nil && err2 == nil
}

// affine is a number of each element that is affine in its index: the first one, and how much
// more it is by dimension of the base. Numbers that might not fit their type are none.
func (t *Table) affine(e *expr) (first int64, coefs []int64, ok bool) {
	coefs = make([]int64, len(e.shape))
	if first, step, ok := e.iotaRange(); ok {
		for d := range coefs { // none of one number
			coefs[d] = step
		}
		return first, coefs, true
	}
	switch {
	case !e.isElementwise("add") && !e.isElementwise("sub") && !e.isElementwise("mul"), !strings.HasPrefix(e.text[3:], "  i64 i64") || len(e.args) != 2:
		return 0, nil, false
	}
	factor := int64(1)
	if e.isElementwise("sub") {
		factor = -1
	}
	if e.isElementwise("mul") {
		x, ok := t.whole64(e.args[1])
		return t.addScaled(e, 0, x, first, coefs, ok)
	}
	for k, f := range []int64{1, factor} {
		if x, ok := t.whole64(e.args[k]); ok {
			first += f * x
			continue
		}
		if first, coefs, ok = t.addScaled(e, k, f, first, coefs, e.args[k].coef == 1); !ok {
			return 0, nil, false
		}
	}
	return first, coefs, true
}

// addScaled adds operand k some times to what is affine.
func (t *Table) addScaled(e *expr, k int, times, first int64, coefs []int64, ok bool) (int64, []int64, bool) {
	from, steps, is := t.affine(e.args[k].base)
	if !ok || !is || times > mostPlaces || times < -mostPlaces || first > mostPlaces || first < -mostPlaces {
		return 0, nil, false
	}
	first += times * from
	for i, l := range e.loops {
		if d, p := l.at[k], e.place[i]; d.Dim != digits.None && p.Dim != digits.None {
			if coefs[p.Dim] += times * steps[d.Dim] * d.Stride; coefs[p.Dim] > mostPlaces || coefs[p.Dim] < -mostPlaces {
				return 0, nil, false
			}
		}
	}
	return first, coefs, true
}

// maskInterval says of each element whether a sum of its index is from lo to less than hi.
func (t *Table) maskInterval(e *expr) (coefs []int64, lo, hi int64, ok bool) {
	switch {
	case e.isElementwise("logical_and") && len(e.args) == 2:
		a, lo, hi, ok := t.maskInterval(e.args[0].base)
		b, lo2, hi2, ok2 := t.maskInterval(e.args[1].base)
		if !ok || !ok2 || e.args[0].coef != 1 || e.args[1].coef != 1 {
			return nil, 0, 0, false
		}
		x, y := e.resultSteps(a, 0), e.resultSteps(b, 1)
		return x, max(lo, lo2), min(hi, hi2), slices.Equal(x, y)
	case !e.isElementwise("lt") && !e.isElementwise("ge"), len(e.args) != 2, e.args[0].coef != 1, e.args[1].base != t.one, math.Abs(e.args[1].coef) > mostPlaces:
		return nil, 0, 0, false
	}
	first, steps, ok := t.affine(e.args[0].base)
	end := int64(math.Ceil(e.args[1].coef)) - first
	if e.isElementwise("lt") {
		return e.resultSteps(steps, 0), math.MinInt64 / 2, end, ok
	}
	return e.resultSteps(steps, 0), end, math.MaxInt64 / 2, ok
}

// resultSteps takes steps by dimension of an operand to those of the result.
func (e *expr) resultSteps(steps []int64, k int) []int64 {
	out := make([]int64, len(e.shape))
	for i, l := range e.loops {
		if d, p := l.at[k], e.place[i]; d.Dim != digits.None && p.Dim != digits.None && len(steps) > d.Dim {
			out[p.Dim] += steps[d.Dim] * d.Stride
		}
	}
	return out
}

// maskRange is where along a digit, which is all of its dimension, a condition holds that depends on
// nothing else.
func (t *Table) maskRange(e *expr, d digits.Digit) (from, to int64, ok bool) {
	if e.kind != generic || d.Dim == digits.None || d != (digits.Of(d.Dim, 1, e.shape[d.Dim])) {
		return 0, 0, false
	}
	coefs, from, to, ok := t.maskInterval(e)
	for k, c := range coefs {
		ok = ok && (c == 1) == (k == d.Dim) && c >= 0 && c <= 1
	}
	return from, to, ok
}

// lookupView is a lookup by numbers that are affine in their places: a view; false where one may be
// outside.
func (t *Table) lookupView(s *spec) (c float64, e *expr, where []digits.Digit, ok bool) {
	l := digits.Joined(s.args[0].inner)
	first, coefs, ok := t.affine(s.args[1].base)
	if !ok || s.args[1].coef != 1 || len(l) > 1 || len(s.own) > 0 {
		return 0, nil, nil, false
	}
	v := view{arg: arg{base: s.args[0].base, coef: s.args[0].coef}, inner: append(l, digits.Repeated(1))[0], off: first, dil: 1}
	for _, l := range s.loops {
		a := axis{size: l.size, at: l.at[0]}
		if d := l.at[1]; d.Dim != digits.None {
			a.coef = coefs[d.Dim] * d.Stride
		}
		v.axes = append(v.axes, a)
	}
	if v.isPadded() {
		return 0, nil, nil, false
	}
	return c, e, where, digits.Attempt(func() bool {
		var w [][]digits.Digit
		c, e, w = t.view(v)
		where = digits.Singles(w)
		return true
	})
}

// maskedView is a choice of a number where the place that something is read at is outside.
func (t *Table) maskedView(args []arg, loops []loop) (float64, *expr, []digits.Digit, bool) {
	other := args[2]
	if args[0].coef != 1 || !t.isNumber(other.base) || args[0].base.kind != generic {
		return 0, nil, nil, false
	}
	coefs, lo, hi, ok := t.maskInterval(args[0].base)
	if !ok {
		return 0, nil, nil, false
	}
	v := view{arg: arg{base: args[1].base, coef: args[1].coef}, dil: 1, inner: digits.Repeated(1)}
	want := make([]int64, len(loops))
	for i, l := range loops {
		v.axes = append(v.axes, axis{size: l.size, at: l.at[1]})
		if d := l.at[0]; d.Dim != digits.None {
			want[i] = coefs[d.Dim] * d.Stride
		}
		if d := l.at[1]; want[i] == 1 && d.Dim != digits.None && l.size > 1 {
			v.inner, v.axes[i].at, v.axes[i].coef = d, digits.Repeated(l.size), 1
		}
	}
	if v.inner.Dim == digits.None || !t.resolve(&v) || v.dil > 1 {
		return 0, nil, nil, false
	}
	unit := int64(0) // of a place of the condition
	for i, a := range v.axes {
		if want[i] != 0 && a.size > 1 && (unit == 0 || want[i] == 1) {
			unit = a.coef / want[i]
		}
	}
	if unit > 1 {
		v.coarsen(unit)
		unit = 1
	}
	for i, a := range v.axes {
		if a.size > 1 && (unit != 1 || a.coef != want[i] || a.coef != 0 && a.at.Dim != digits.None) {
			return 0, nil, nil, false
		}
	}
	from, to := max(lo, -mostPlaces)+v.off, min(hi, mostPlaces)+v.off
	low, high := v.overruns()
	if n := v.inner.Size; v.fill != nil && !v.fill.equal(&other) && (low && from < 0 || high && to > n) {
		return 0, nil, nil, false
	}
	from, to = max(from, 0), min(to, v.inner.Size)
	if from >= to {
		return 0, nil, nil, false
	}
	t.restrict(&v, from, to)
	v.fill = &other
	c, e, where := t.view(v)
	return c, e, digits.Singles(where), true
}

// selectByIndex is a choice by the place of an element: something is outside of it, or it is concatenated of
// what is chosen before a place and after it.
func (t *Table) selectByIndex(dt string, args []arg, loops []loop) (c float64, e *expr, where []digits.Digit, ok bool) {
	ok = digits.Attempt(func() (ok bool) {
		c, e, where, ok = t.maskedView(args, loops)
		return ok
	}) || digits.Attempt(func() (ok bool) {
		c, e, where, ok = t.distributeParts(args, loops, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
			return t.choose(dt, args, loops)
		}, t.add, func(j int, d digits.Digit) (cuts []int64) {
			if j > 0 || args[0].coef != 1 {
				return nil
			}
			from, to, ok := t.maskRange(args[0].base, d)
			for _, at := range []int64{from, to} {
				if ok && at > 0 && at < d.Size {
					cuts = append(cuts, at)
				}
			}
			return cuts
		})
		return ok
	})
	return c, e, where, ok
}

// coarsen takes a place whose unit is so many places of the dimension to one of what is major to
// that; what is minor is carried along.
func (v *view) coarsen(unit int64) {
	d := v.inner
	if d.Dim == digits.None || d.Size%unit != 0 || v.off%unit != 0 {
		return
	}
	for _, a := range v.axes {
		if a.coef%unit != 0 && (a.coef < 0 || a.coef*a.size > unit) {
			return
		}
	}
	v.inner, v.off = digits.Of(d.Dim, d.Stride*unit, d.Size/unit), v.off/unit
	for i := range v.axes {
		a := &v.axes[i]
		if a.coef%unit == 0 {
			a.coef /= unit
		} else {
			a.at, a.coef = digits.Of(d.Dim, d.Stride*a.coef, a.size), 0
		}
	}
}
