package normal

import (
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has tables of which each rank has some rows, or columns, and looks up those that are
// its own: a number less where a rank's rows begin, if that is from 0 to less than their number,
// and zeros elsewhere. The sum over ranks is the lookup in the whole table; what ranks add to
// their own rows are pieces of what is added to all.

// sumOwn sums a choice over loops along which a table is cut.
func (t *Table) sumOwn(s *summed, base *expr, loops []loop, kept int) bool {
	if base.kind != choice || !t.is(base.args[2], 0) || base.args[0].coef != 1 {
		return false
	}
	in, look := base.args[0].base, base.args[1].base
	number, size, ok := t.within(in)
	if !ok || !look.is(Lookup) || len(look.own) > 0 || digits.Places(look.args[0].inner) != size {
		return false
	}
	safe := look.args[1].base
	if safe.kind != choice || look.args[1].coef != 1 || safe.args[0].base != in || safe.args[1].base != number || !t.is(safe.args[2], 0) || safe.args[0].coef != 1 || safe.args[1].coef != 1 {
		return false
	}
	out := make([]loop, 0, kept)
	var along []digits.Digit // of the table, by where the rank's rows begin
	var steps []digits.Digit
	for i, l := range loops {
		row, at := look.below(l.at[1], 0), look.below(l.at[1], 1)
		here := safe.below(at, 1)
		if safe.below(at, 0) != l.at[0] || slices.ContainsFunc(indices(2), func(k int) bool { return in.args[k].base.below(in.below(l.at[0], k), 0) != here }) {
			return false
		}
		begin, idx := number.below(here, 1), number.below(here, 0)
		if begin.Dim == digits.None { // summed behind
			if i >= kept && row.Dim == digits.None && idx.Dim == digits.None {
				return false
			}
			out = append(out, loop{size: l.size, at: []digits.Digit{row, idx}})
			continue
		}
		if i < kept || idx.Dim != digits.None || row.Dim == digits.None {
			return false
		}
		along, steps = append(along, row), append(steps, begin)
	}
	from := number.args[1].base
	if !begins(from, size) {
		return false
	}
	order, ok := counting(steps, from)
	if !ok {
		return false // some ranks are not summed
	}
	var rows []digits.Digit
	for _, i := range order {
		rows = append(rows, along[i])
	}
	inner := digits.Joined(append(rows, look.args[0].inner...))
	index := number.args[0]
	if given, ok := t.counted(index.base, digits.Places(inner)); ok {
		for i := range out {
			d := out[i].at[1]
			if out[i].at[1] = index.base.below(d, 2); index.base.args[0].base.below(index.base.below(d, 0), 0) != out[i].at[1] || index.base.args[1].base.below(index.base.below(d, 1), 0) != out[i].at[1] {
				return false
			}
		}
		index = given
	}
	c, e, where := t.blockOf(&spec{
		kind: block, text: Lookup + "  0:" + strconv.FormatInt(digits.Places(inner), 10), loops: out,
		args: []arg{{base: look.args[0].base, coef: look.args[0].coef, inner: inner}, index},
	})
	s.coef, s.base, s.where = base.args[1].coef*c, e, where[:kept]
	if len(where) > kept {
		x := t.sumOver(e, where[kept:])
		s.coef, s.base, s.where = s.coef*x.coef, x.base, make([]digits.Digit, kept)
		for i := range s.where {
			s.where[i] = x.move(where[i])
		}
	}
	return true
}

// begins reports whether a base says where pieces of a size begin.
func begins(e *expr, size int64) bool {
	start, step, ok := e.counts()
	return ok && start == 0 && step == size
}

// counting is the order of digits in which they count through all of a list.
func counting(l []digits.Digit, list *expr) ([]int, bool) {
	order := indices(len(l))
	slices.SortFunc(order, func(a, b int) int { return int(min(1, max(-1, l[b].Stride-l[a].Stride))) })
	var sorted []digits.Digit
	for _, i := range order {
		sorted = append(sorted, l[i])
	}
	sorted = digits.Joined(sorted)
	return order, len(sorted) == 1 && sorted[0] == digits.Of(0, 1, list.shape[0])
}

// ownRows is what ranks add to rows that are their own, of a size: pieces of what is added to all
// rows; nil if the values are none of this.
func (m *Mesh) ownRows(vals, at *Tensor, d int, size int64) *Tensor {
	if vals.base.kind != choice || at.base.kind != choice || at.coef != 1 || !m.t.is(vals.base.args[2], 0) || !m.t.is(at.base.args[2], 0) {
		return nil
	}
	in, number, cond := at.under(0), at.under(1), vals.under(0)
	e, n, ok := m.t.within(in.base)
	if !ok || n != size || number.base != e || !in.under(0).under(0).alike(number) || !in.under(1).under(0).alike(number) || !begins(e.args[1].base, size) {
		return nil
	}
	like := *in // as the values have it
	like.Dims = slices.Concat(make([][]digits.Digit, d), in.Dims, make([][]digits.Digit, len(cond.Dims)-d-len(in.Dims)))
	from, idx, values := number.under(1), number.under(0), vals.under(1)
	if !cond.alike(&like) || !from.alike(&Tensor{base: from.base, coef: 1, Dims: make([][]digits.Digit, len(from.Dims)), Held: from.Held}) {
		return nil
	}
	var steps []digits.Digit
	var atoms []int
	for a, h := range from.Held {
		if h.Dim == digits.None {
			continue
		}
		if steps, atoms = append(steps, h), append(atoms, a); values.Held[a].Dim != digits.None || idx.Held[a].Dim != digits.None {
			return nil
		}
	}
	order, ok := counting(steps, from.base)
	if !ok {
		return nil
	}
	if _, ok := m.t.counted(idx.base, size*from.base.shape[0]); ok {
		x := idx.under(2)
		if !idx.under(0).under(0).alike(x) || !idx.under(1).under(0).alike(x) {
			return nil
		}
		idx = x
	}
	p := m.scatterAdd(values.Scale(vals.coef), idx, d, size*from.base.shape[0])
	for _, i := range order {
		taken, rest, ok := digits.Leading(p.Dims[d], steps[i].Size)
		if !ok || len(taken) != 1 {
			panic(digits.Uneven{})
		}
		p.Held[atoms[i]], p.Dims[d] = taken[0], rest
	}
	return p
}

// counted is what is looked up, where numbers below 0 have been counted from the end of n rows.
func (t *Table) counted(e *expr, n int64) (arg, bool) {
	if e.kind != choice || e.args[0].coef != 1 || e.args[1].coef != 1 {
		return arg{}, false
	}
	low, back, x := e.args[0].base, e.args[1].base, e.args[2]
	same := func(o *expr) bool { return o.args[0].base == x.base && o.args[0].coef == x.coef }
	return x, low.plain("lt") && back.plain("add") && same(low) && same(back) && t.is(low.args[1], 0) && t.is(back.args[1], float64(n))
}

// sumFirst sums what only the first of some ranks has, the others having zeros.
func (t *Table) sumFirst(s *summed, base *expr, loops []loop, kept int) bool {
	cond := base.args[0].base
	if base.kind != choice || !t.is(base.args[2], 0) || base.args[0].coef != 1 || !cond.plain("eq") || !t.is(cond.args[1], 0) || cond.args[0].coef != 1 {
		return false
	}
	places := cond.args[0].base
	if start, _, ok := places.counts(); !ok || start != 0 {
		return false
	}
	var rest []loop
	var counts []digits.Digit
	for i, l := range loops {
		d := cond.below(l.at[0], 0)
		if d.Dim != digits.None && (i < kept || l.at[1].Dim != digits.None) {
			return false
		}
		if d.Dim == digits.None {
			rest = append(rest, loop{size: l.size, summed: l.summed, at: l.at[1:2]})
		} else {
			counts = append(counts, d)
		}
	}
	if _, ok := counting(counts, places); !ok {
		return false
	}
	var where []digits.Digit
	s.coef, s.base, where = t.multiply(base.args[1:2], rest)
	s.where = where[:kept]
	return true
}

// within takes apart what says that a number less another is from 0 to less than a size.
func (t *Table) within(e *expr) (number *expr, size int64, ok bool) {
	if !e.plain("logical_and") {
		return nil, 0, false
	}
	low, high := e.args[0].base, e.args[1].base
	if low.plain("lt") {
		low, high = high, low
	}
	if !low.plain("ge") || !high.plain("lt") || e.args[0].coef != 1 || e.args[1].coef != 1 || low.args[0].base != high.args[0].base || !t.is(low.args[1], 0) || high.args[1].base != t.one || low.args[0].coef != 1 || high.args[0].coef != 1 {
		return nil, 0, false
	}
	number = low.args[0].base
	size = int64(high.args[1].coef)
	ok = number.plain("sub") && number.args[0].coef == 1 && number.args[1].coef == 1 && float64(size) == high.args[1].coef
	return number, size, ok
}

// plain reports whether a base is an elementwise operation without attributes.
func (e *expr) plain(name string) bool {
	return e.kind == block && strings.HasPrefix(e.text, name+"  ") && len(e.own) == 0
}
