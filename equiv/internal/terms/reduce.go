package terms

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/ir"
)

// Equations about reductions over ranks.

// again is t on another operand.
func (z *Normalizer) again(t *term, x TermID) TermID {
	u := *t
	a := z.at(x)
	u.args, u.n, u.dt = []TermID{x}, a.n, a.dt
	return z.make(u)
}

// over is t over other ranks, of x.
func (z *Normalizer) over(t *term, rows [][]int32, x TermID) TermID {
	u := *t
	u.rows = z.lists(rows)
	return z.again(&u, x)
}

// moveOfReduce selects before it reduces, as far as no rank selects differently. What only
// changes the order of elements, or repeats them, stays outside.
func moveOfReduce(z *Normalizer, t *term) (TermID, bool) {
	x, l := z.at(t.args[0]), &z.layouts.All[t.layout]
	if x.kind != kindReduce {
		return 0, false
	}
	if id, ok := z.into(t, x); ok {
		return id, true
	}
	n, ok := x.n.Const()
	if !ok {
		return 0, false
	}
	w, q, ok := l.Window(n, z.vals.world)
	if !ok {
		return 0, false
	}
	m, ok := q.Elements().Const()
	if !ok {
		return 0, false
	}
	return z.move(w, t.n, z.again(x, z.move(q, ir.D(m), x.args[0]))), true
}

// into moves before it reduces where the reduction's operand is moved in a way that
// cannot come out: the ranks from which a rank reads the reduction, each reduce over
// a list; member by member these are whom the ranks of its own list read instead.
func (z *Normalizer) into(t, x *term) (TermID, bool) {
	l, rows := z.layouts.All[t.layout], z.rows.All[x.rows]
	if in := z.at(x.args[0]); z.trying || in.kind != kindMove || z.layouts.All[in.layout].Rank == nil || l.Rank == nil {
		return 0, false
	}
	entries := l.Entries()
	rank, add := make([]int32, len(l.Rank)), make([]int64, len(l.Rank))
	for k := range rank {
		rank[k] = -1
	}
	for r, row := range rows {
		for e := range entries {
			from := rows[l.Rank[r*entries+e]]
			if len(from) != len(row) {
				return 0, false
			}
			for j, q := range row {
				k := int(q)*entries + e
				if rank[k] >= 0 && (rank[k] != from[j] || add[k] != l.Add[r*entries+e]) {
					return 0, false
				}
				rank[k], add[k] = from[j], l.Add[r*entries+e]
			}
		}
	}
	if slices.Contains(rank, -1) {
		return 0, false
	}
	l.Rank, l.Add, l.Digits = rank, add, slices.Clone(l.Digits)
	l.Canonical(z.vals.world)
	in := z.move(l, t.n, x.args[0])
	u := *x
	u.args, u.n = []TermID{in}, t.n
	if z.at(in).kind != kindMove {
		return 0, false
	}
	z.trying = true
	_, out := reduceOfMove(z, &u)
	z.trying = false
	if out {
		return 0, false
	}
	return z.make(u), true
}

// reduceOfMove is moveOfReduce the other way round, for what tells ranks apart.
func reduceOfMove(z *Normalizer, t *term) (TermID, bool) {
	x := z.at(t.args[0])
	if x.kind != kindMove {
		return 0, false
	}
	return z.out(t, x)
}

// out takes move x, which is t's operand, out of reduction t.
func (z *Normalizer) out(t, x *term) (TermID, bool) {
	l, from := z.layouts.All[x.layout], x.args[0]
	if l.Rank == nil {
		return z.outOf(t, x)
	}
	rows, entries := z.rows.All[t.rows], l.Entries()
	block := z.parts.All[z.at(from).same]
	loose := z.anyOrder(t.red, t.dt)
	blocks := func(l []int32) []int32 {
		out := make([]int32, len(l))
		for i, q := range l {
			out[i] = block[q]
		}
		if loose {
			slices.Sort(out)
		}
		return out
	}
	rank, add := make([]int32, len(l.Rank)), make([]int64, len(l.Rank))
	lists := make([][]int32, len(rows)) // what ranks would have to reduce over
	again := false                      // that does not come out
	for r, row := range rows {
		for e := range entries {
			at := l.Add[int(row[0])*entries+e]
			sources := make([]int32, 0, len(row))
			for _, q := range row {
				k := int(q)*entries + e
				if l.Add[k] != at {
					return z.byClasses(t, &l)
				}
				sources = append(sources, l.Rank[k])
			}
			for _, q := range sources {
				again = again || lists[q] != nil && !slices.Equal(lists[q], sources)
				lists[q] = sources
			}
			rank[r*entries+e], add[r*entries+e] = sources[0], at
		}
	}
	again = again || slices.ContainsFunc(lists, func(l []int32) bool { return l == nil })
	if again { // by the lists as they are
		lists = rows
		for k := range rank {
			row, want := rows[k/entries], make([]int32, 0, len(rows[0]))
			for _, q := range row {
				want = append(want, l.Rank[int(q)*entries+k%entries])
			}
			i := slices.IndexFunc(append(want, int32(k/entries)), func(q int32) bool {
				return len(rows[q]) == len(row) && slices.Equal(blocks(rows[q]), blocks(want))
			})
			if i < 0 {
				return 0, false
			}
			rank[k] = append(want, int32(k/entries))[i]
		}
	}
	l.Rank, l.Add, l.Digits = rank, add, slices.Clone(l.Digits)
	l.Canonical(z.vals.world)
	return z.move(l, t.n, z.over(t, lists, from)), true
}

// byClasses reduces first over those ranks of a list that move x alike, where the order
// does not matter, and then over one rank for each class of them. Classes are of one size: of
// others a reduction around this one may make such.
func (z *Normalizer) byClasses(t *term, l *layout.Layout) (TermID, bool) {
	rows, entries := z.rows.All[t.rows], l.Entries()
	if !z.anyOrder(t.red, t.dt) {
		return 0, false
	}
	alike := func(p, q int32) bool {
		return slices.Equal(l.Add[int(p)*entries:int(p+1)*entries], l.Add[int(q)*entries:int(q+1)*entries])
	}
	classes, firsts, fewer := make([][]int32, len(rows)), make([][]int32, len(rows)), false
	for r, row := range rows {
		for i, q := range row {
			if slices.ContainsFunc(row[:i], func(p int32) bool { return alike(p, q) }) {
				fewer = true
				continue
			}
			firsts[r] = append(firsts[r], q)
			var class []int32
			for _, p := range row {
				if alike(p, q) {
					class = append(class, p)
				}
			}
			for _, p := range class {
				if classes[p] != nil && !slices.Equal(classes[p], class) {
					return 0, false
				}
				classes[p] = class
			}
		}
	}
	if !fewer || slices.ContainsFunc(classes, func(c []int32) bool { return len(c) == 0 || len(c) != len(classes[0]) }) {
		return 0, false
	}
	inner := z.over(t, classes, t.args[0])
	if in := z.at(inner); in.kind == kindReduce && in.rows == z.lists(classes) {
		return 0, false // it did not come out
	}
	return z.over(t, firsts, inner), true
}

// outOf takes out of a reduction what moves the elements of x on all ranks alike, but
// for the selection, see moveOfReduce.
func (z *Normalizer) outOf(t, x *term) (TermID, bool) {
	by, of := z.outer(x)
	if by == x.layout && len(z.layouts.All[by].Digits) > 0 && z.layouts.All[by].Selects() || z.layouts.All[by].IsIdentity(t.n) {
		return 0, false
	}
	return z.moveBy(by, t.n, z.again(t, of)), true
}

func reduceOfShuffle(z *Normalizer, t *term) (TermID, bool) {
	x := *z.at(t.args[0])
	if x.kind != kindShuffle || !x.local {
		return 0, false
	}
	return z.each(x, func(a TermID) TermID { return z.again(t, a) }), true
}

func reduceOverEqual(z *Normalizer, t *term) (TermID, bool) {
	rows := z.rows.All[t.rows]
	block := z.parts.All[z.at(t.args[0]).same]
	loose, once := z.anyOrder(t.red, t.dt), t.red == ir.Min || t.red == ir.Max
	out, changed := make([][]int32, len(rows)), false
	for r, row := range rows {
		l := make([]int32, len(row))
		for i, q := range row {
			l[i] = block[q]
		}
		if loose {
			slices.Sort(l)
		}
		if once {
			l = slices.Compact(l)
		}
		changed = changed || !slices.Equal(l, row)
		out[r] = l
	}
	if !changed {
		return 0, false
	}
	return z.over(t, out, t.args[0]), true
}

// fromRanks is x as each rank's given other has it.
func (z *Normalizer) fromRanks(x TermID, rank []int32) TermID {
	l := layout.Identity(z.at(x).n)
	l.Rank, l.Add = rank, make([]int64, len(rank))
	l.Canonical(z.vals.world)
	return z.move(l, z.at(x).n, x)
}

func reduceOfOne(z *Normalizer, t *term) (TermID, bool) {
	rows := z.rows.All[t.rows]
	from := make([]int32, len(rows))
	for r, row := range rows {
		if len(row) != 1 {
			return 0, false
		}
		from[r] = row[0]
	}
	return z.fromRanks(t.args[0], from), true
}

// reduceOfMoved takes a move that all operands of an elementwise operation share in
// front of it again, where the reduction lets it out.
func reduceOfMoved(z *Normalizer, t *term) (TermID, bool) {
	if z.at(t.args[0]).kind != kindPoint {
		return 0, false
	}
	by, ok := z.shared(t.args[0], maxShared)
	if !ok || by < 0 {
		return 0, false
	}
	n, ok := z.sourceSize(t.args[0])
	if !ok {
		return 0, false
	}
	inner := z.before(t.args[0], by, n)
	return z.out(t, &term{layout: by, args: []TermID{inner}})
}

// maxShared bounds how many elementwise operations deep a shared move is looked for.
const maxShared = 64

// shared is the layout, up to what is the same on all ranks, by which all operands of
// nested elementwise operations that are not constants are moved, -1 if there is no
// operand but constants.
func (z *Normalizer) shared(id TermID, depth int) (by int32, ok bool) {
	x := z.at(id)
	switch {
	case x.kind == kindFull:
		return -1, true
	case x.kind == kindMove:
		by, _ := z.outer(x)
		return by, true
	case x.kind != kindPoint || depth == 0:
		return 0, false
	}
	by = -1
	for _, a := range x.args {
		b, ok := z.shared(a, depth-1)
		if !ok || b >= 0 && by >= 0 && b != by {
			return 0, false
		}
		by = max(by, b)
	}
	return by, true
}

// outer takes a move apart into what depends on the rank and the rest.
func (z *Normalizer) outer(x *term) (by int32, of TermID) {
	if n, ok := z.at(x.args[0]).n.Const(); ok {
		if w, q, ok := z.layouts.All[x.layout].Window(n, z.vals.world); ok {
			return z.layout(w), z.move(q, q.Elements(), x.args[0])
		}
	}
	return x.layout, x.args[0]
}

// sourceSize is the number of elements of what is moved, false if it differs.
func (z *Normalizer) sourceSize(id TermID) (n ir.Dim, ok bool) {
	x := z.at(id)
	if x.kind == kindMove {
		_, of := z.outer(x)
		return z.at(of).n, true
	}
	found := false
	for _, a := range x.args {
		if z.at(a).kind == kindFull {
			continue
		}
		m, ok := z.sourceSize(a)
		if !ok || found && !m.Equal(n) {
			return n, false
		}
		n, found = m, true
	}
	return n, found
}

// before is nested elementwise operations of n elements without the move.
func (z *Normalizer) before(id TermID, by int32, n ir.Dim) TermID {
	x := *z.at(id)
	switch x.kind {
	case kindFull:
		return z.full(id, n)
	case kindMove:
		_, of := z.outer(&x)
		return of
	}
	x.n = n
	return z.each(x, func(a TermID) TermID { return z.before(a, by, n) })
}

func reduceOfReduce(z *Normalizer, t *term) (TermID, bool) {
	x := z.at(t.args[0])
	if x.kind != kindReduce || x.red != t.red || !z.anyOrder(t.red, t.dt) {
		return 0, false
	}
	outer, inner := z.rows.All[t.rows], z.rows.All[x.rows]
	if len(outer)*len(outer[0])*len(inner[0]) > layout.MaxTable {
		return 0, false
	}
	out := make([][]int32, len(outer))
	for r, row := range outer {
		for _, q := range row {
			out[r] = append(out[r], inner[q]...)
		}
		slices.Sort(out[r])
		if t.red == ir.Min || t.red == ir.Max {
			out[r] = slices.Compact(out[r])
		}
	}
	return z.over(t, out, x.args[0]), true
}
