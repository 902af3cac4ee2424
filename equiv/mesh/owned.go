package mesh

import (
	"slices"
	"strconv"
	"strings"
)

// This file has tables of which each rank has some rows, or columns, and looks up those that are
// its own: a number less where a rank's rows begin, if that is from 0 to less than their number,
// and zeros elsewhere. The sum over ranks is the lookup in the whole table.

// sumOwn sums a choice over loops along which a table is cut.
func (t *table) sumOwn(s *summed, base *expr, loops []loop, kept int) bool {
	if base.kind != choice || !t.is(base.args[2], 0) || base.args[0].coef != 1 {
		return false
	}
	in, look := base.args[0].base, base.args[1].base
	number, size, ok := t.within(in)
	if !ok || !look.is(nameLookup) || len(look.own) > 0 || places(look.args[0].inner) != size {
		return false
	}
	safe := look.args[1].base
	if !safe.plain("where") || look.args[1].coef != 1 || safe.args[0].base != in || safe.args[1].base != number || !t.is(safe.args[2], 0) || safe.args[0].coef != 1 || safe.args[1].coef != 1 {
		return false
	}
	out := make([]loop, 0, kept)
	var along []digit // of the table, by where the rank's rows begin
	var steps []digit
	for i, l := range loops {
		row, at := look.below(l.at[1], 0), look.below(l.at[1], 1)
		here := safe.below(at, 1)
		if safe.below(at, 0) != l.at[0] || slices.ContainsFunc(indices(2), func(k int) bool { return in.args[k].base.below(in.below(l.at[0], k), 0) != here }) {
			return false
		}
		begin, idx := number.below(here, 1), number.below(here, 0)
		if begin.dim == none { // summed behind
			if i >= kept && row.dim == none && idx.dim == none {
				return false
			}
			out = append(out, loop{size: l.size, at: []digit{row, idx}})
			continue
		}
		if i < kept || idx.dim != none || row.dim == none {
			return false
		}
		along, steps = append(along, row), append(steps, begin)
	}
	begins := plainIota
	if size > 1 {
		begins = "iota from {start=0, step=" + strconv.FormatInt(size, 10) + "}"
	}
	from := number.args[1].base
	if from.kind != leaf || from.text != begins {
		return false
	}
	order := indices(len(steps))
	slices.SortFunc(order, func(a, b int) int { return int(min(1, max(-1, steps[b].stride-steps[a].stride))) })
	var rows, counted []digit
	for _, i := range order {
		rows, counted = append(rows, along[i]), append(counted, steps[i])
	}
	if l := joined(counted); len(l) != 1 || l[0] != (digit{0, 1, from.shape[0]}) {
		return false // some ranks are not summed
	}
	inner := joined(append(rows, look.args[0].inner...))
	e, where := t.make(&spec{
		kind: block, text: nameLookup + "  0:" + strconv.FormatInt(places(inner), 10), loops: out,
		args: []arg{{base: look.args[0].base, coef: look.args[0].coef, inner: inner}, number.args[0]},
	})
	s.coef, s.base, s.where = base.args[1].coef, e, where[:kept]
	if len(where) > kept {
		x := t.sumOver(e, where[kept:])
		s.coef, s.base, s.where = s.coef*x.coef, x.base, make([]digit, kept)
		for i := range s.where {
			s.where[i] = x.move(where[i])
		}
	}
	return true
}

// is reports whether an operand is a number.
func (t *table) is(a arg, x float64) bool { return a.base == t.one && a.coef == x }

// within takes apart what says that a number less another is from 0 to less than a size.
func (t *table) within(e *expr) (number *expr, size int64, ok bool) {
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
