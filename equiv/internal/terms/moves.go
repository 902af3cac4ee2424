package terms

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Equations about movement of elements.

func moveOfItself(z *Normalizer, t *term) (TermID, bool) {
	x := t.args[0]
	return x, z.layouts.All[t.layout].IsIdentity(t.n) && z.at(x).n.Equal(t.n)
}

func movedConstant(z *Normalizer, t *term) (TermID, bool) {
	if z.at(t.args[0]).kind != kindFull {
		return 0, false
	}
	return z.full(t.args[0], t.n), true
}

func moveOfMove(z *Normalizer, t *term) (TermID, bool) {
	x := z.at(t.args[0])
	if x.kind != kindMove {
		return 0, false
	}
	from, l := x.args[0], z.join(t.layout, x.layout)
	if l < 0 {
		return 0, false
	}
	return z.moveOf(l, t.n, from), true
}

// moveOfParts takes elements from the only part of a concatenation or of a slice_scatter along an
// outermost dimension that has any of them.
func moveOfParts(z *Normalizer, t *term) (TermID, bool) {
	x, l := z.at(t.args[0]), z.layouts.All[t.layout]
	if x.kind != kindOpaque || x.op != ir.OpCat && x.op != ir.OpSliceScatter || x.types == nil || l.Rank != nil {
		return 0, false
	}
	last := l.Off
	for _, d := range l.Digits {
		if d.N < 1 || d.Stride < 0 {
			return 0, false
		}
		last += (d.N - 1) * d.Stride
	}
	dim, row := int(x.attrs.Int("dim", 0)), int64(1)
	whole, ok := x.types[0].Shape().Static()
	if !ok || slices.ContainsFunc(whole[:dim], func(n int64) bool { return n != 1 }) {
		return 0, false
	}
	for _, n := range whole[dim+1:] {
		row *= n
	}
	from := int64(0) // where a part begins
	if x.op == ir.OpSliceScatter {
		from = x.attrs.Int("start", 0) * row
		n, ok := z.at(x.args[1]).n.Const()
		if !ok || x.attrs.Int("step", 1) != 1 {
			return 0, false
		}
		if l.Off >= from+n || last < from {
			return z.move(l, t.n, x.args[0]), true
		}
	}
	for k, a := range x.args {
		n, ok := z.at(a).n.Const()
		if !ok {
			return 0, false
		}
		if x.op == ir.OpSliceScatter && k == 0 {
			continue
		}
		if l.Off >= from && last < from+n {
			l.Off -= from
			return z.move(l, t.n, a), true
		}
		from += n
	}
	return 0, false
}

// partIsAll is a slice_scatter that leaves nothing of what it writes to, or all.
func partIsAll(z *Normalizer, t *term) (TermID, bool) {
	if t.op != ir.OpSliceScatter {
		return 0, false
	}
	if z.at(t.args[1]).n.Equal(ir.D(0)) {
		return t.args[0], true
	}
	return t.args[1], z.at(t.args[1]).n.Equal(t.n)
}

func movedPointwise(z *Normalizer, t *term) (TermID, bool) {
	x := *z.at(t.args[0])
	if x.kind != kindPoint {
		return 0, false
	}
	x.n = t.n
	return z.each(x, func(a TermID) TermID {
		if t.kind == kindMove {
			return z.moveOf(t.layout, t.n, a)
		}
		return z.with(t, z.at(a).dt, a)
	}), true
}

func shuffleUndone(z *Normalizer, t *term) (TermID, bool) {
	x := z.at(t.args[0])
	if x.kind == kindShuffle && x.op == ir.OpPermute && t.op == ir.OpPermute && x.types[0].Shape().Equal(t.types[1].Shape()) {
		var dims []int64
		for _, d := range t.attrs.Ints("dims") {
			dims = append(dims, x.attrs.Ints("dims")[d])
		}
		return z.permuted(x.args[0], x.types[1].Shape(), dims), true
	}
	if x.kind != kindShuffle || x.base != t.base || x.scale != t.scale || t.local || x.local {
		return 0, false
	}
	switch {
	case t.op == ir.OpShard && x.op == ir.OpAllGather:
		return x.args[0], true
	case t.op == ir.OpAllGather && x.op == ir.OpShard:
		block := z.parts.All[z.at(x.args[0]).same]
		for r, members := range z.vals.groups[t.base].List {
			for _, q := range members {
				if block[q] != block[r] {
					return 0, false
				}
			}
		}
		return x.args[0], true
	}
	return 0, false
}

func convertToSame(z *Normalizer, t *term) (TermID, bool) {
	return t.args[0], t.op == ir.OpConvert && z.at(t.args[0]).dt == t.dt
}

// convertOfReceived converts what a permute brings before it is set to zero where
// nothing comes.
func convertOfReceived(z *Normalizer, t *term) (TermID, bool) {
	x := *z.at(t.args[0])
	if t.op != ir.OpConvert || !z.received(&x) || !t.dt.HasZero() {
		return 0, false
	}
	return z.with(&x, t.dt, x.args[0], z.convert(x.args[1], t.dt), z.with(z.at(x.args[2]), t.dt)), true
}

// received reports whether x is what a permute brings, see receive: programs have conditions of type
// bool.
func (z *Normalizer) received(x *term) bool {
	if x.kind != kindPoint || x.op != ir.OpWhere || z.at(x.args[0]).dt != ir.I64 || z.at(x.args[1]).dt != x.dt || !x.dt.HasZero() {
		return false
	}
	_, _, _, known := z.known(x.args[0])
	none := z.at(x.args[2])
	return known && none.kind == kindFull && none.text == "0"
}

// known returns the layout on 0, 1, 2, ... whose index, times step, plus start, is an
// integer term.
func (z *Normalizer) known(id TermID) (l layout.Layout, start, step int64, ok bool) {
	t := z.at(id)
	if t.kind == kindIota {
		return layout.Identity(t.n), t.base, t.scale, true
	}
	if v, ok := z.constant(id); ok {
		return layout.Identity(t.n), v, 0, true
	}
	if t.kind != kindMove || z.at(t.args[0]).kind != kindIota {
		return l, 0, 0, false
	}
	x := z.at(t.args[0])
	return z.layouts.All[t.layout], x.base, x.scale, true
}

// lookupAtKnown makes a move of a lookup whose indices count up.
func lookupAtKnown(z *Normalizer, t *term) (TermID, bool) {
	l, start, step, ok := z.known(t.args[1])
	if !ok || step < 0 || start < 0 || t.scale < 1 {
		return 0, false
	}
	most := int64(0)
	l.Digits, l.Rank, l.Add = slices.Clone(l.Digits), slices.Clone(l.Rank), slices.Clone(l.Add)
	for i := range l.Digits {
		d := &l.Digits[i]
		if d.N < 0 || d.Stride < 0 {
			return 0, false
		}
		d.Stride *= step
		most += (d.N - 1) * d.Stride
		d.Stride *= t.scale
	}
	l.Off = start + step*l.Off
	for k, v := range l.Add {
		at := l.Off + step*v
		if at < 0 || at+most >= t.base {
			return 0, false
		}
		l.Add[k] = step * v * t.scale
	}
	if l.Off < 0 || l.Add == nil && l.Off+most >= t.base {
		return 0, false
	}
	l.Off *= t.scale
	l.Digits = append(l.Digits, layout.Digit{N: t.scale, Stride: 1})
	l.Canonical(z.vals.world)
	return z.move(l, t.n, t.args[0]), true
}

// moveOfLookup moves indices instead of rows, columns of the table instead of columns
// of rows, and the table as a whole where it comes from another rank.
func moveOfLookup(z *Normalizer, t *term) (TermID, bool) {
	x := *z.at(t.args[0])
	if x.kind != kindLookup || x.scale < 1 {
		return 0, false
	}
	l, table, ids := z.layouts.All[t.layout], x.args[0], x.args[1]
	count, ok := z.at(ids).n.Const()
	if !ok {
		count = -1
	}
	ps, ok := layout.Radix{Sizes: []int64{count, x.scale}, Weights: []int64{x.scale, 1}}.Cut(l.Digits)
	if !ok {
		return 0, false
	}
	first := len(ps) // of the pieces that are columns
	for first > 0 && ps[first-1].Level == 1 && !ps[first-1].Table {
		first--
	}
	rows := layout.Layout{Off: l.Off / x.scale, Rank: slices.Clone(l.Rank), Add: slices.Clone(l.Add)}
	for _, p := range ps[:first] {
		if p.Level == 1 {
			return 0, false
		}
		d := p.Digit
		d.Stride = p.Coef
		rows.Digits = append(rows.Digits, d)
	}
	for k, v := range rows.Add {
		if v%x.scale != 0 {
			return 0, false
		}
		rows.Add[k] = v / x.scale
	}
	columns, last, width := []layout.Digit{{N: x.base, Stride: x.scale}}, l.Off%x.scale, int64(1)
	for _, p := range ps[first:] {
		d := p.Digit
		d.Stride = p.Coef
		columns = append(columns, d)
		last += (p.N - 1) * p.Coef
		width *= p.N
	}
	if last >= x.scale {
		return 0, false
	}
	pick, _ := layout.Plain(columns, l.Off%x.scale)
	table = z.move(pick, ir.D(x.base*width), table)
	if table, ok = z.tableOf(table, &l); !ok {
		return 0, false
	}
	n := t.n
	if width > 1 {
		n = n.Div(width)
	}
	rows.Canonical(z.vals.world)
	x.args, x.n, x.scale = []TermID{table, z.move(rows, n, ids)}, t.n, width
	return z.make(x), true
}

// tableOf is the table of the rank that a layout reads from, false if that depends on
// the index.
func (z *Normalizer) tableOf(table TermID, l *layout.Layout) (TermID, bool) {
	if l.Rank == nil {
		return table, true
	}
	block, entries := z.parts.All[z.at(table).same], l.Entries()
	rank := make([]int32, z.vals.world)
	for r := range z.vals.world {
		from := l.Rank[r*entries]
		for _, q := range l.Rank[r*entries : (r+1)*entries] {
			if block[q] != block[from] {
				return 0, false
			}
		}
		rank[r] = from
	}
	return z.fromRanks(table, rank), true
}

// rowsOfOwners recognises what every rank contributes to rows of a table of which it
// has a run: where an index, counted from the run's start, does not change when it
// is clamped to the run, the row there, and -0 elsewhere.
func rowsOfOwners(z *Normalizer, t *term) (TermID, bool) {
	x := z.at(t.args[0])
	if t.red != ir.Sum || !t.dt.IsFloat() || !t.dt.HasZero() || x.kind != kindPoint || x.op != ir.OpWhere {
		return 0, false
	}
	mine, rows, none := z.at(x.args[0]), z.at(x.args[1]), z.at(x.args[2])
	if none.kind != kindFull || none.text != "-0" || rows.kind != kindLookup || rows.op != ir.OpEmbedding || rows.dt != t.dt ||
		mine.kind != kindPoint || mine.op != ir.OpEq || len(mine.args) != 2 {
		return 0, false
	}
	o, ok := z.ownedPart(rows.args[1], rows.base)
	if !ok {
		return 0, false
	}
	lists := slices.Clone(z.rows.All[t.rows]) // the order of a sum of which one operand counts does not matter
	for r, l := range lists {
		lists[r] = slices.SortedFunc(slices.Values(l), func(p, q int32) int { return cmp.Compare(o.first[p], o.first[q]) })
	}
	if !o.by(z, lists) {
		return 0, false
	}
	each := layout.Layout{Digits: []layout.Digit{layout.Of(z.at(rows.args[1]).n, 1), {N: rows.scale}}}
	if each, ok = layout.Plain(each.Digits, 0); !ok || z.move(each, t.n, o.from) != mine.args[0] || z.move(each, t.n, rows.args[1]) != mine.args[1] {
		return 0, false
	}
	u := *rows
	table := z.gather(rows.args[0], lists)
	u.base *= int64(len(lists[0]))
	u.args = []TermID{table, o.indices}
	return z.make(u), true
}

// gather is the operands of lists of ranks one after the other.
func (z *Normalizer) gather(x TermID, lists [][]int32) TermID {
	n := z.at(x).n
	l := layout.Layout{Digits: []layout.Digit{{N: int64(len(lists[0])), Table: true}, layout.Of(n, 1)}}
	for _, row := range lists {
		l.Rank = append(l.Rank, row...)
	}
	l.Add = make([]int64, len(l.Rank))
	l.Canonical(z.vals.world)
	return z.move(l, n.Mul(ir.D(int64(len(lists[0])))), x)
}

// owned is indices in a table of which every rank has a run of rows: rows is
// clamp(from, 0, run-1) of from = indices - first, where first is the rank's first row.
type owned struct {
	indices, from, rows TermID
	first               []int64 // by rank
	run                 int64
}

// ownedPart takes indices within a run apart.
func (z *Normalizer) ownedPart(rows TermID, run int64) (owned, bool) {
	o := owned{rows: rows, run: run}
	c := z.at(rows)
	if c.kind != kindPoint || c.op != ir.OpClamp || c.attrs.Int("min", -1) != 0 || c.attrs.Int("max", -1) != run-1 || !c.dt.IsInt() {
		return o, false
	}
	o.from = c.args[0]
	s := z.at(o.from)
	if s.kind != kindPoint || s.op != ir.OpSub || len(s.args) != 2 || len(s.attrs) > 0 || s.dt != c.dt {
		return o, false
	}
	o.indices = s.args[0]
	l, start, step, ok := z.known(s.args[1])
	if !ok || z.at(o.indices).dt != c.dt || z.at(s.args[1]).dt != c.dt {
		return o, false
	}
	for _, d := range l.Digits {
		if d.Stride != 0 || d.Table {
			return o, false
		}
	}
	for r := range z.vals.world {
		v := l.Off
		if l.Add != nil {
			v += l.Add[r]
		}
		o.first = append(o.first, start+step*v)
	}
	return o, true
}

// by reports whether the ranks of each list have the runs in order, and all of them
// look for the same indices.
func (o *owned) by(z *Normalizer, lists [][]int32) bool {
	block := z.parts.All[z.at(o.indices).same]
	for _, l := range lists {
		for i, q := range l {
			if o.first[q] != int64(i)*o.run || block[q] != block[l[0]] || !slices.Equal(lists[q], l) {
				return false
			}
		}
	}
	return true
}

// noAttrs is the text of no attributes.
var noAttrs = attr.List(nil).String()
