package terms

import (
	"math"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Equations about sums over ranks of tables to which each rank adds rows. Their right
// sides are some forty operations. They are not taken apart one by one: what they are
// made of (rows, indices, group, types) is found by following one path through them,
// the whole is made of that anew, and only if that is the term in question does the
// equation apply.

// tableSum is what both sides of the equations are made of.
type tableSum struct {
	group     int32
	ranks     int64
	run       int64 // rows of a rank's piece
	count     int64 // indices of a rank
	row       int64 // elements of a row
	vals, ids TermID
	table     ir.DType // of the rows and their sums
	out       ir.DType // of what travels, and of the result
	average   bool
}

// sumOfCombined and sumOfAdded are the equations from right to left.
func sumOfCombined(z *Normalizer, t *term) (TermID, bool) { return z.tableSum(t, true) }

func sumOfAdded(z *Normalizer, t *term) (TermID, bool) { return z.tableSum(t, false) }

// tableSum finds the parts of t, if it is a right side; combined says of which
// equation.
func (z *Normalizer) tableSum(t *term, combined bool) (TermID, bool) {
	if z.asking {
		return 0, false
	}
	core, average, ok := z.core(t)
	if !ok {
		return 0, false
	}
	place, rows, ok := z.placed(core)
	if !ok {
		return 0, false
	}
	for g := range z.vals.groups {
		s := tableSum{group: int32(g), ranks: int64(z.vals.groups[g].Size), out: t.dt, average: average}
		if s.ranks < 2 || !place.by(z, z.vals.groups[g].List) || !z.atoms(&s, place, rows, combined) {
			continue
		}
		if !combined && !z.anyOrder(ir.Sum, s.table) {
			continue
		}
		z.asking = true
		same := z.isSide(&s, t, combined)
		z.asking = false
		if same {
			return z.summed(&s), true
		}
	}
	return 0, false
}

// core takes off what may follow the addition of rows: a division by the number of
// ranks, and a conversion.
func (z *Normalizer) core(t *term) (core *term, average, ok bool) {
	x := t
	if x.kind == kindPoint && x.op == ir.OpConvert {
		x = z.at(x.args[0])
	}
	if x.kind == kindPoint && x.op == ir.OpDiv && len(x.args) == 1 {
		x, average = z.at(x.args[0]), true
	}
	if x.kind == kindPoint {
		_, scaled := z.summand(x)
		return x, average || scaled, x.op == ir.OpAdd && len(x.args) == 2
	}
	return x, average, x.kind == kindScatter
}

// summand is the first of a sum, and whether it is scaled: reassociation takes factors into sums.
func (z *Normalizer) summand(x *term) (first *term, scaled bool) {
	for x.kind == kindPoint && x.op == ir.OpAdd && len(x.args) == 2 {
		x = z.at(x.args[0])
	}
	if x.kind == kindPoint && x.op == ir.OpMul && len(x.args) == 1 {
		return z.at(x.args[0]), true
	}
	return x, false
}

// placed finds the indices and the rows that travelled.
func (z *Normalizer) placed(core *term) (owned, TermID, bool) {
	if core.kind == kindPoint { // rows looked up and added
		core, _ = z.summand(core)
		if core.kind == kindPoint && core.op == ir.OpConvert {
			core = z.at(core.args[0])
		}
		if core.kind != kindPoint || core.op != ir.OpWhere {
			return owned{}, 0, false
		}
		look := z.at(core.args[1])
		if look.kind != kindLookup {
			return owned{}, 0, false
		}
		at := z.at(look.args[1])
		if at.kind != kindPoint || at.op != ir.OpClamp {
			return owned{}, 0, false
		}
		places := z.at(at.args[0])
		if places.kind == kindMove {
			places = z.at(places.args[0])
		}
		if places.kind != kindScatter {
			return owned{}, 0, false
		}
		o, ok := z.ownedRows(places.args[2], places.base, true)
		return o, look.args[0], ok
	}
	added := z.at(core.args[1])
	if added.kind != kindPoint || added.op != ir.OpWhere {
		return owned{}, 0, false
	}
	o, ok := z.ownedRows(core.args[2], core.base, false)
	rows := added.args[1]
	if x := z.at(rows); x.kind == kindPoint && x.op == ir.OpConvert && x.dt == ir.F32 && z.at(x.args[0]).dt.Size() < 4 {
		rows = x.args[0] // widened to be divided before it is rounded
	}
	return o, rows, ok
}

// ownedRows finds owned indices among the indices of a scatter: they themselves, or
// where this rank has them, something else elsewhere. byRank says that the table has a
// run for every rank.
func (z *Normalizer) ownedRows(rows TermID, size int64, byRank bool) (owned, bool) {
	x := z.at(rows)
	if x.kind == kindPoint && x.op == ir.OpWhere {
		c := z.at(x.args[0])
		if c.kind != kindPoint || c.op != ir.OpEq || len(c.args) != 2 {
			return owned{}, false
		}
		rows = c.args[1]
	}
	c := z.at(rows)
	if c.kind != kindPoint || c.op != ir.OpClamp {
		return owned{}, false
	}
	run := c.attrs.Int("max", -1) + 1
	if run < 1 || byRank && size%run != 0 || !byRank && size != run {
		return owned{}, false
	}
	return z.ownedPart(rows, run)
}

// own is this rank's part of what was gathered: of so many elements.
func (z *Normalizer) own(x TermID, group int32, n int64) TermID {
	size := int64(z.vals.groups[group].Size)
	return z.shard(x, ir.Dims(size*n), 0, group, ir.Dims(n))
}

// atoms finds rows and indices before they travelled. False if that cannot be.
func (z *Normalizer) atoms(s *tableSum, o owned, rows TermID, combined bool) bool {
	s.run = o.run
	all, ok1 := z.at(o.indices).n.Const()
	elems, ok2 := z.at(rows).n.Const()
	if !ok1 || !ok2 || all == 0 || all%s.ranks != 0 || elems%all != 0 {
		return false
	}
	s.count, s.row = all/s.ranks, elems/all
	indices := z.own(o.indices, s.group, s.count)
	sums := z.own(rows, s.group, s.count*s.row)
	if combined {
		w := z.at(indices)
		if w.kind != kindPoint || w.op != ir.OpWhere {
			return false
		}
		indices = w.args[1]
		x := z.at(sums)
		if x.kind == kindPoint && x.op == ir.OpConvert {
			x = z.at(x.args[0])
		}
		if x.kind != kindScatter {
			return false
		}
		s.vals, s.table = x.args[1], x.dt
	} else {
		s.vals, s.table = sums, z.at(sums).dt
	}
	w := z.at(indices) // negative ones counted from the end
	if w.kind != kindPoint || w.op != ir.OpWhere {
		return false
	}
	s.ids = w.args[2]
	return z.at(s.vals).dt == s.table && s.table.HasZero() && s.out.HasZero() && (s.table.IsFloat() || !combined && s.table.IsInt())
}

// summed is the left side.
func (z *Normalizer) summed(s *tableSum) TermID {
	b := sideOf(z, s)
	x := b.op(ir.OpIndexPut, addRows, ir.TensorOf(s.table, ir.Dims(s.run*s.ranks, s.row)), b.full(s.table, 0, s.run*s.ranks, s.row), b.vals, b.ids)
	if s.out != s.table {
		x = b.op(ir.OpConvert, nil, ir.TensorOf(s.out, ir.Dims(s.run*s.ranks, s.row)), x)
	}
	red := "sum"
	if s.average {
		red = "avg"
	}
	attrs := attr.Make(attr.Attr{Key: "reduce", Val: attr.String(red)}, attr.Attr{Key: "dim", Val: attr.Int(0)})
	v := Value{Op: ir.OpReduceScatter, Group: s.group, Attrs: attrs, Type: ir.TensorOf(s.out, ir.Dims(s.run, s.row)), Args: []ValueID{x}}
	return b.norm(z.vals.Number(v))
}

var addRows = attr.Make(attr.Attr{Key: "accumulate", Val: attr.Bool(true)}, attr.Attr{Key: "dims", Val: attr.Ints(0)})

// side makes a side of an equation of operations on given terms.
type side struct {
	z         *Normalizer
	s         *tableSum
	vals, ids ValueID
	index     ir.DType // of indices
}

func sideOf(z *Normalizer, s *tableSum) *side {
	b := &side{z: z, s: s, index: z.at(s.ids).dt}
	b.vals = b.given(s.vals, ir.TensorOf(s.table, ir.Dims(s.count, s.row)))
	b.ids = b.given(s.ids, ir.TensorOf(b.index, ir.Dims(s.count)))
	return b
}

// given is a value whose term is known.
func (b *side) given(t TermID, typ ir.Type) ValueID {
	v := b.z.vals.Number(Value{Op: ir.OpInvalid, Group: -1, Tag: "term " + strconv.Itoa(int(t)), Type: typ, Node: b.z.vals.all[b.z.at(t).from].Node})
	b.z.grow()
	b.z.memo[v] = t
	return v
}

func (b *side) op(op ir.Op, attrs attr.List, typ ir.Type, args ...ValueID) ValueID {
	return b.z.vals.Number(Value{Op: op, Group: -1, Attrs: attrs, Type: typ, Args: args, Node: b.z.vals.all[b.z.now].Node})
}

// norm is the term of a value that an equation made; the value at hand stays the one that is being
// brought into normal form.
func (b *side) norm(v ValueID) TermID {
	now := b.z.now
	t := b.z.Norm(v)
	b.z.now = now
	return t
}

func (b *side) full(dt ir.DType, x float64, dims ...int64) ValueID {
	return b.op(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: attr.Float(x)}), ir.TensorOf(dt, ir.Dims(dims...)))
}

func (b *side) iota(dt ir.DType, step, n int64) ValueID {
	return b.op(ir.OpIota, attr.Make(attr.Attr{Key: "step", Val: attr.Int(step)}), ir.TensorOf(dt, ir.Dims(n)))
}

func (b *side) scalar(op ir.Op, c attr.Value, typ ir.Type, x ValueID) ValueID {
	return b.op(op, attr.Make(attr.Attr{Key: "scalar", Val: c}), typ, x)
}

// column is a vector as a matrix with equal columns.
func (b *side) column(v ValueID, columns int64) ValueID {
	t := b.z.vals.all[v].Type
	n := t.Shape()[0]
	one := b.op(ir.OpView, nil, ir.TensorOf(t.DType(), ir.Shape{n, ir.D(1)}), v)
	return b.op(ir.OpExpand, nil, ir.TensorOf(t.DType(), ir.Shape{n, ir.D(columns)}), one)
}

func (b *side) gather(v ValueID) ValueID {
	t := b.z.vals.all[v].Type
	shape := slices.Clone(t.Shape())
	shape[0] = shape[0].Mul(ir.D(b.s.ranks))
	attrs := attr.Make(attr.Attr{Key: "dim", Val: attr.Int(0)})
	return b.z.vals.Number(Value{Op: ir.OpAllGather, Group: b.s.group, Attrs: attrs, Type: ir.TensorOf(t.DType(), shape), Args: []ValueID{v}})
}

// natural is the indices with negative ones counted from the table's end.
func (b *side) natural() ValueID {
	t := ir.TensorOf(b.index, ir.Dims(b.s.count))
	below := b.scalar(ir.OpLt, attr.Int(0), t.WithDType(ir.Bool), b.ids)
	moved := b.scalar(ir.OpAdd, attr.Int(b.s.ranks*b.s.run), t, b.ids)
	return b.op(ir.OpWhere, nil, t, below, moved, b.ids)
}

// local is what a rank contributes: its sums of rows for equal indices, at the
// first of them, and the indices, -1 at the others.
func (b *side) local() (indices, sums ValueID) {
	n, t := b.s.count, ir.TensorOf(b.index, ir.Dims(b.s.count))
	places := ir.Tensor(ir.I64, n)
	all := b.natural()
	line := b.op(ir.OpView, nil, ir.TensorOf(b.index, ir.Dims(1, n)), all)
	equal := b.op(ir.OpEq, nil, ir.Tensor(ir.Bool, n, n), b.op(ir.OpView, nil, ir.TensorOf(b.index, ir.Dims(n, 1)), all), line)
	first := b.op(ir.OpArgmax, attr.Make(attr.Attr{Key: "dim", Val: attr.Int(1)}), places, equal)
	leads := b.op(ir.OpEq, nil, places.WithDType(ir.Bool), first, b.op(ir.OpIota, nil, places))
	indices = b.op(ir.OpWhere, nil, t, leads, all, b.full(b.index, -1))
	rows := ir.TensorOf(b.s.table, ir.Dims(n, b.s.row))
	sums = b.op(ir.OpIndexPut, addRows, rows, b.full(b.s.table, 0, n, b.s.row), b.vals, first)
	if b.s.out != b.s.table {
		sums = b.op(ir.OpConvert, nil, rows.WithDType(b.s.out), sums)
	}
	return indices, sums
}

// owned is, of gathered indices, the row in this rank's run and whether it has it.
func (b *side) owned(indices ValueID) (from, rows, mine ValueID) {
	n := b.s.ranks * b.s.count
	t := ir.TensorOf(b.index, ir.Dims(n))
	starts := b.iota(b.index, b.s.run, b.s.ranks)
	first := b.z.vals.Number(Value{Op: ir.OpShard, Group: b.s.group, Attrs: attr.Make(attr.Attr{Key: "dim", Val: attr.Int(0)}), Type: ir.TensorOf(b.index, ir.Dims(1)), Args: []ValueID{starts}})
	from = b.op(ir.OpSub, nil, t, indices, first)
	rows = b.op(ir.OpClamp, attr.Make(attr.Attr{Key: "min", Val: attr.Int(0)}, attr.Attr{Key: "max", Val: attr.Int(b.s.run - 1)}), t, from)
	return from, rows, b.op(ir.OpEq, nil, t.WithDType(ir.Bool), from, rows)
}

// isSide reports whether t is a right side for these parts.
func (z *Normalizer) isSide(s *tableSum, t *term, combined bool) bool {
	b := sideOf(z, s)
	indices, rows := b.natural(), b.vals
	if combined {
		indices, rows = b.local()
	}
	indices, rows = b.gather(indices), b.gather(rows)
	for _, v := range b.sides(indices, rows, combined) {
		if z.key(t) == z.key(z.at(b.norm(v))) {
			return true
		}
	}
	return false
}

// sides are the ways in which a rank makes its run of the table of what was gathered.
func (b *side) sides(indices, rows ValueID, combined bool) []ValueID {
	s := b.s
	from, clamped, mine := b.owned(indices)
	shape := ir.Dims(s.run, s.row)
	all := ir.Dims(s.ranks*s.count, s.row)
	none := 0.0
	if combined {
		none = math.Copysign(0, -1)
	}
	var out []ValueID
	for _, work := range b.works(b.z.vals.all[rows].Type.DType(), combined) {
		if work != b.z.vals.all[rows].Type.DType() {
			rows = b.op(ir.OpConvert, nil, ir.TensorOf(work, all), rows)
		}
		added := b.op(ir.OpWhere, nil, ir.TensorOf(work, all), b.column(mine, s.row), rows, b.full(work, none))
		for _, at := range b.targets(from, clamped, mine) {
			for _, base := range b.bases(at, mine, work, combined) {
				out = append(out, b.finish(b.op(ir.OpIndexPut, addRows, ir.TensorOf(work, shape), base, added, at)))
			}
		}
	}
	if combined && s.count <= s.run {
		out = append(out, b.lookedUp(clamped, mine, b.gather(b.sums())))
	}
	return out
}

// works are the types in which sums of a type may be made: those of narrow floats are made in f32 and
// rounded once, and averages divided before that.
func (b *side) works(dt ir.DType, combined bool) []ir.DType {
	switch {
	case !combined || dt.Size() >= ir.F32.Size():
		return []ir.DType{dt}
	case b.s.average:
		return []ir.DType{ir.F32}
	}
	return []ir.DType{dt, ir.F32}
}

func (b *side) sums() ValueID { _, s := b.local(); return s }

// targets are rows of the run to add to: where this rank does not have an index any row
// does, since zeros are added there.
func (b *side) targets(from, clamped, mine ValueID) []ValueID {
	n := b.s.ranks * b.s.count
	t := ir.TensorOf(b.index, ir.Dims(n))
	out := []ValueID{clamped}
	if n <= b.s.run {
		out = append(out, b.op(ir.OpWhere, nil, t, mine, from, b.iota(b.index, b.s.run/n, n)))
	}
	if b.s.count > b.s.run {
		return out
	}
	each := b.iota(b.index, b.s.run/b.s.count, b.s.count)
	spread := b.op(ir.OpExpand, nil, ir.TensorOf(b.index, ir.Dims(b.s.ranks, b.s.count)), b.op(ir.OpView, nil, ir.TensorOf(b.index, ir.Dims(1, b.s.count)), each))
	flat := b.op(ir.OpView, nil, t, spread)
	return append(out, b.op(ir.OpWhere, nil, t, mine, clamped, flat))
}

// bases are what rows may be added to: +0 where no sum of a rank can be -0, for sums
// that start from +0 are not unless they are rounded; else -0 in the rows that all
// ranks have.
func (b *side) bases(at, mine ValueID, work ir.DType, combined bool) []ValueID {
	s := b.s
	if !combined || s.out == s.table && s.table.Size() >= ir.F32.Size() {
		return []ValueID{b.full(work, 0, s.run, s.row)}
	}
	n, rows := ir.Tensor(ir.F32, s.ranks*s.count), ir.Tensor(ir.F32, s.run)
	ones := b.op(ir.OpWhere, nil, n, mine, b.full(ir.F32, 1), b.full(ir.F32, 0))
	have := b.op(ir.OpIndexPut, addRows, rows, b.full(ir.F32, 0, s.run), ones, at)
	every := b.scalar(ir.OpEq, attr.Float(float64(s.ranks)), rows.WithDType(ir.Bool), have)
	zero := b.op(ir.OpWhere, nil, rows.WithDType(work), every, b.full(work, math.Copysign(0, -1)), b.full(work, 0))
	return []ValueID{b.column(zero, s.row)}
}

// finish divides averages and rounds.
func (b *side) finish(v ValueID) ValueID {
	t := b.z.vals.all[v].Type
	if b.s.average {
		v = b.scalar(ir.OpDiv, attr.Float(float64(b.s.ranks)), t, v)
	}
	if t.DType() != b.s.out {
		v = b.op(ir.OpConvert, nil, t.WithDType(b.s.out), v)
	}
	return v
}

// lookedUp is the run of which every row looks up what the ranks have for it.
func (b *side) lookedUp(clamped, mine, sums ValueID) ValueID {
	s := b.s
	n, byRank := s.ranks*s.count, ir.Dims(s.ranks, s.count)
	t := ir.TensorOf(b.index, ir.Dims(n))
	begin := b.op(ir.OpView, nil, ir.TensorOf(b.index, ir.Dims(s.ranks, 1)), b.iota(b.index, s.run, s.ranks))
	rows := b.op(ir.OpView, nil, ir.TensorOf(b.index, byRank), clamped)
	rows = b.op(ir.OpView, nil, t, b.op(ir.OpAdd, nil, ir.TensorOf(b.index, byRank), rows, begin))
	rows = b.op(ir.OpWhere, nil, t, mine, rows, b.iota(b.index, s.ranks*s.run/n, n))
	places := ir.Tensor(ir.I64, n)
	place := b.scalar(ir.OpAdd, attr.Int(1), places, b.iota(ir.I64, 1, n))
	place = b.op(ir.OpWhere, nil, places, mine, place, b.full(ir.I64, 0))
	at := b.op(ir.OpIndexPut, addRows, ir.Tensor(ir.I64, s.ranks*s.run), b.full(ir.I64, -1, s.ranks*s.run), place, rows)
	work, run := s.out, ir.Tensor(ir.I64, s.run)
	if work.Size() < ir.F32.Size() {
		work = ir.F32
	}
	piece := ir.Dims(s.run, s.row)
	var sum ValueID
	for k := range s.ranks {
		l := attr.Make(attr.Attr{Key: "dim", Val: attr.Int(0)}, attr.Attr{Key: "start", Val: attr.Int(k * s.run)}, attr.Attr{Key: "end", Val: attr.Int((k + 1) * s.run)})
		of := b.op(ir.OpSlice, l, run, at)
		has := b.scalar(ir.OpGe, attr.Int(0), run.WithDType(ir.Bool), of)
		row := b.op(ir.OpEmbedding, nil, ir.TensorOf(s.out, piece), sums, b.op(ir.OpClamp, attr.Make(attr.Attr{Key: "min", Val: attr.Int(0)}), run, of))
		row = b.op(ir.OpWhere, nil, ir.TensorOf(s.out, piece), b.column(has, s.row), row, b.full(s.out, 0))
		if work != s.out {
			row = b.op(ir.OpConvert, nil, ir.TensorOf(work, piece), row)
		}
		if k > 0 {
			row = b.op(ir.OpAdd, nil, ir.TensorOf(work, piece), sum, row)
		}
		sum = row
	}
	return b.finish(sum)
}
