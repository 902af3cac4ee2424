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

// sumShardedLookup sums a choice over loops along which a table is cut.
func (t *Table) sumShardedLookup(s *digitMap, base *expr, loops []loop, kept int) bool {
	if base.kind != choice || !t.is(base.args[2], 0) || base.args[0].coef != 1 {
		return false
	}
	in, look := base.args[0].base, base.args[1].base
	number, size, ok := t.indexInShard(in)
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
		row, at := look.operandDigit(l.at[1], 0), look.operandDigit(l.at[1], 1)
		here := safe.operandDigit(at, 1)
		if safe.operandDigit(at, 0) != l.at[0] || slices.ContainsFunc(indices(2), func(k int) bool { return in.args[k].base.operandDigit(in.operandDigit(l.at[0], k), 0) != here }) {
			return false
		}
		begin, idx := number.operandDigit(here, 1), number.operandDigit(here, 0)
		if begin.Dim == digits.None { // summed afterwards
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
	if !isShardStart(from, size) {
		return false
	}
	order, ok := countsThrough(steps, from)
	if !ok {
		return false // some ranks are not summed
	}
	var rows []digits.Digit
	for _, i := range order {
		rows = append(rows, along[i])
	}
	inner := digits.Joined(append(rows, look.args[0].inner...))
	index := number.args[0]
	if given, ok := t.wrappedIndex(index.base, digits.Places(inner)); ok {
		for i := range out {
			d := out[i].at[1]
			if out[i].at[1] = index.base.operandDigit(d, 2); index.base.args[0].base.operandDigit(index.base.operandDigit(d, 0), 0) != out[i].at[1] || index.base.args[1].base.operandDigit(index.base.operandDigit(d, 1), 0) != out[i].at[1] {
				return false
			}
		}
		index = given
	}
	c, e, where := t.genericOf(&spec{
		kind: generic, text: Lookup + "  0:" + strconv.FormatInt(digits.Places(inner), 10), loops: out,
		args: []arg{{base: look.args[0].base, coef: look.args[0].coef, inner: inner}, index},
	})
	s.coef, s.base, s.to = base.args[1].coef*c, e, where[:kept]
	if len(where) > kept {
		x := t.sumOver(e, where[kept:])
		s.coef, s.base, s.to = s.coef*x.coef, x.base, make([]digits.Digit, kept)
		for i := range s.to {
			s.to[i] = x.at(where[i])
		}
	}
	return true
}

// isShardStart reports whether a base says where pieces of a size begin.
func isShardStart(e *expr, size int64) bool {
	start, step, ok := e.iotaRange()
	return ok && start == 0 && step == size
}

// countsThrough is the order of digits in which they count through all of a list.
func countsThrough(l []digits.Digit, list *expr) ([]int, bool) {
	order := indices(len(l))
	slices.SortFunc(order, func(a, b int) int { return int(min(1, max(-1, l[b].Stride-l[a].Stride))) })
	var sorted []digits.Digit
	for _, i := range order {
		sorted = append(sorted, l[i])
	}
	sorted = digits.Joined(sorted)
	return order, len(sorted) == 1 && sorted[0] == digits.Of(0, 1, list.shape[0])
}

// scatterShardedRows is what ranks add to rows that are their own, of a size: pieces of what is added to all
// rows; nil if the values are none of this.
func (m *Mesh) scatterShardedRows(vals, at *Tensor, d int, size int64) *Tensor {
	if vals.base.kind != choice || at.base.kind != choice || at.coef != 1 || !m.t.is(vals.base.args[2], 0) || !m.t.is(at.base.args[2], 0) {
		return nil
	}
	in, number, cond := at.operand(0), at.operand(1), vals.operand(0)
	e, n, ok := m.t.indexInShard(in.base)
	if !ok || n != size || number.base != e || !in.operand(0).operand(0).equalUpToRepeats(number) || !in.operand(1).operand(0).equalUpToRepeats(number) || !isShardStart(e.args[1].base, size) {
		return nil
	}
	like := *in // as the values have it
	like.Dims = slices.Concat(make([][]digits.Digit, d), in.Dims, make([][]digits.Digit, len(cond.Dims)-d-len(in.Dims)))
	from, idx, values := number.operand(1), number.operand(0), vals.operand(1)
	if !cond.equalUpToRepeats(&like) || !from.equalUpToRepeats(&Tensor{base: from.base, coef: 1, Dims: make([][]digits.Digit, len(from.Dims)), Atoms: from.Atoms}) {
		return nil
	}
	var steps []digits.Digit
	var atoms []int
	for a, h := range from.Atoms {
		if h.Dim == digits.None {
			continue
		}
		if steps, atoms = append(steps, h), append(atoms, a); values.Atoms[a].Dim != digits.None || idx.Atoms[a].Dim != digits.None {
			return nil
		}
	}
	order, ok := countsThrough(steps, from.base)
	if !ok {
		return nil
	}
	if _, ok := m.t.wrappedIndex(idx.base, size*from.base.shape[0]); ok {
		x := idx.operand(2)
		if !idx.operand(0).operand(0).equalUpToRepeats(x) || !idx.operand(1).operand(0).equalUpToRepeats(x) {
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
		p.Atoms[atoms[i]], p.Dims[d] = taken[0], rest
	}
	return p
}

// wrappedIndex is what is looked up, where numbers below 0 have been counted from the end of n rows.
func (t *Table) wrappedIndex(e *expr, n int64) (arg, bool) {
	if e.kind != choice || e.args[0].coef != 1 || e.args[1].coef != 1 {
		return arg{}, false
	}
	low, back, x := e.args[0].base, e.args[1].base, e.args[2]
	same := func(o *expr) bool { return o.args[0].base == x.base && o.args[0].coef == x.coef }
	return x, low.isElementwise("lt") && back.isElementwise("add") && same(low) && same(back) && t.is(low.args[1], 0) && t.is(back.args[1], float64(n))
}

// sumFirstRank sums what only the first of some ranks has, the others having zeros.
func (t *Table) sumFirstRank(s *digitMap, base *expr, loops []loop, kept int) bool {
	cond := base.args[0].base
	if base.kind != choice || !t.is(base.args[2], 0) || base.args[0].coef != 1 || !cond.isElementwise("eq") || !t.is(cond.args[1], 0) || cond.args[0].coef != 1 {
		return false
	}
	places := cond.args[0].base
	if start, _, ok := places.iotaRange(); !ok || start != 0 {
		return false
	}
	var rest []loop
	var counts []digits.Digit
	for i, l := range loops {
		d := cond.operandDigit(l.at[0], 0)
		if d.Dim != digits.None && (i < kept || l.at[1].Dim != digits.None) {
			return false
		}
		if d.Dim == digits.None {
			rest = append(rest, loop{size: l.size, summed: l.summed, at: l.at[1:2]})
		} else {
			counts = append(counts, d)
		}
	}
	if _, ok := countsThrough(counts, places); !ok {
		return false
	}
	var where []digits.Digit
	s.coef, s.base, where = t.multiply(base.args[1:2], rest)
	s.to = where[:kept]
	return true
}

// indexInShard takes apart what says that a number less another is from 0 to less than a size.
func (t *Table) indexInShard(e *expr) (number *expr, size int64, ok bool) {
	if !e.isElementwise("logical_and") {
		return nil, 0, false
	}
	low, high := e.args[0].base, e.args[1].base
	if low.isElementwise("lt") {
		low, high = high, low
	}
	if !low.isElementwise("ge") || !high.isElementwise("lt") || e.args[0].coef != 1 || e.args[1].coef != 1 || low.args[0].base != high.args[0].base || !t.is(low.args[1], 0) || high.args[1].base != t.one || low.args[0].coef != 1 || high.args[0].coef != 1 {
		return nil, 0, false
	}
	number = low.args[0].base
	size = int64(high.args[1].coef)
	ok = number.isElementwise("sub") && number.args[0].coef == 1 && number.args[1].coef == 1 && float64(size) == high.args[1].coef
	return number, size, ok
}

// isElementwise reports whether a base is an elementwise operation without attributes.
func (e *expr) isElementwise(name string) bool {
	return e.kind == generic && strings.HasPrefix(e.text, name+"  ") && len(e.own) == 0
}
