package simplify

import (
	"math"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// A step adds a row to the gradient of a table for every position that it read, and
// the tables of all ranks are summed. What the sum has from a rank is a few rows: for
// each position that the rank has, the sum of its rows there, rounded as the table is.
// Every rank therefore adds up its own rows for equal positions first, in their order,
// and gives the sum the place of the first of them; places of later ones stay empty.
// These sums and their positions travel, in the type that would have travelled, and
// every rank adds those in its piece of the table to zeros, by ascending rank.
//
// That is bit for bit what the reduction of the whole tables gives: an element of it
// adds one number of each rank in the same order and in the same precision, but for
// the zeros of ranks that do not have the row. To add +0 changes a sum only if it is
// -0 so far. Here sums start from +0, which -0 leaves as it is, so the results
// differ if every rank has the row and a sum there that is -0. A sum that starts from
// +0 is never -0 by itself, but it may become so when a small one is rounded to a
// narrower type. In that case rows that all ranks have start from -0. (Which of several
// NaN a sum is, the IR does not say.) With the option gather-sums rows gather what ranks
// have for them, zeros included, and nothing of this matters.

func combineRule() simplifyRule {
	return simplifyRule{name: "combine-before-reduce", doc: "rows added to zeros and summed over the ranks: every rank adds up its rows for equal indices, these sums and their indices are gathered, and every rank adds what belongs to its piece",
		legal: "nothing else reads the sum, which is scattered along dimension 0, of floats, and sizes are static; ranks add in the same order, and rows that all ranks have start from -0 where their sums may have been rounded to that; indices lie within the table",
		gate:  "the indices and rows of all ranks take less time than the table, a rank has no more of them than rows in its piece, and to compare them with each other takes no more than to write the piece", special: "rows that all ranks have start from -0 where their sums may be -0; others are +0 either way", exact: exact, anchor: isOp(ir.OpWaitTensor), apply: atMembers(combineBeforeReduce)}
}

func combineBeforeReduce(s *simplifier, m member) bool {
	t, ok := s.tableSum(m)
	if !ok {
		return false
	}
	dt, out := t.table.DType(), m.value().Type().DType()
	if !dt.IsFloat() || !out.IsFloat() || t.vals.Type().DType() != dt || math.Signbit(t.zero.Attrs().Float("value", 0)) {
		return false
	}
	rows := ir.TensorOf(out, append(ir.Shape{ir.D(t.count)}, t.table.Shape()[1:]...))
	if t.count > t.run || t.count > t.run*t.row/t.count || !s.travels(t, rows) || !s.fire(m.wait) {
		return false
	}
	positions, sums := s.combined(t, rows)
	positions = s.gathered(m.start, m.wait, m.group(), positions, m.start)
	sums = s.gathered(m.start, m.wait, m.group(), sums, m.start)
	if positions == nil || sums == nil {
		return s.undo()
	}
	var v *ir.Value
	if s.ctx.Bool("gather-sums") && t.table.Rank() == 2 {
		v = s.lookedUp(t, positions, sums)
	} else {
		v = s.piece(t, positions, sums)
	}
	if v == nil {
		return s.undo()
	}
	return s.replace(m.value(), v)
}

// combined makes this rank's sums of rows for equal positions, at the place of the
// first of these, and the positions, -1 at the places of the others.
func (s *simplifier) combined(t tableSum, rows ir.Type) (positions, sums *ir.Value) {
	at, dt := t.m.start, t.ids.Type().DType()
	rank := t.ids.Type().Rank()
	all := s.natural(at, t.ids, int64(t.m.group().Size())*t.run, rank)
	vals := s.flat(at, t.vals, rank)
	one := ir.Dims(t.count)
	column := s.chain(at, ir.OpUnsqueeze, nil, dimAttrs(1), []*ir.Value{all})
	line := s.chain(at, ir.OpUnsqueeze, nil, dimAttrs(0), []*ir.Value{all})
	equal := s.chain(at, ir.OpEq, nil, nil, []*ir.Value{column, line}, ir.TensorOf(ir.Bool, ir.Dims(t.count, t.count)))
	first := s.chain(at, ir.OpArgmax, nil, dimAttrs(1), []*ir.Value{equal}, ir.TensorOf(ir.I64, one))
	own := s.compute(at, ir.OpIota, nil, nil, nil, nil, ir.TensorOf(ir.I64, one))
	leads := s.chain(at, ir.OpEq, nil, nil, []*ir.Value{first, own}, ir.TensorOf(ir.Bool, one))
	positions = s.chain(at, ir.OpWhere, nil, nil, []*ir.Value{leads, all, s.number(at, dt, -1)}, ir.TensorOf(dt, one))

	shape := rows.Shape()
	zeros := s.compute(at, ir.OpFull, nil, t.zero.Attrs(), t.zero, nil, ir.TensorOf(t.table.DType(), shape))
	sums = s.compute(at, ir.OpIndexPut, nil, t.put.Attrs(), t.put, []*ir.Value{zeros, vals, first}, ir.TensorOf(t.table.DType(), shape))
	if t.narrow != nil {
		sums = s.compute(at, ir.OpConvert, nil, nil, t.narrow, []*ir.Value{sums}, rows)
	}
	return positions, sums
}

// piece adds the gathered sums that lie in this rank's piece of the table.
func (s *simplifier) piece(t tableSum, positions, sums *ir.Value) *ir.Value {
	at, g, dt := t.m.wait, t.m.group(), sums.Type().DType()
	ranks := int64(g.Size())
	average := t.m.reduction() == ir.Avg
	work := dt // what sums of such numbers are held in when they have to be divided before they are rounded
	if average && dt.Size() < ir.F32.Size() {
		work = ir.F32
		sums = s.chain(at, ir.OpConvert, nil, nil, []*ir.Value{sums}, ir.TensorOf(work, sums.Type().Shape()))
	}
	o, ok := s.spread(at, g, positions, t.run, t.count)
	if !ok {
		return nil
	}
	// -0 is what adding changes no number, -0 included.
	added := s.masked(at, o.mine, sums, math.Copysign(0, -1))
	shape := append(ir.Shape{ir.D(t.run)}, t.table.Shape()[1:]...)
	like := func(n *ir.Node, op ir.Op, l attr.List, dt ir.DType, args ...*ir.Value) *ir.Value {
		return s.compute(at, op, nil, l, n, args, ir.TensorOf(dt, shape))
	}
	var base *ir.Value
	if rounds := t.narrow != nil || t.table.DType().Size() < ir.F32.Size(); rounds {
		base = s.startOfRows(at, o, ranks, ir.TensorOf(work, shape))
	} else {
		base = like(t.zero, ir.OpFull, t.zero.Attrs(), work)
	}
	v := like(t.put, ir.OpIndexPut, t.put.Attrs(), work, base, added, o.rows)
	if average {
		v = like(nil, ir.OpDiv, attr.Make(attr.Attr{Key: "scalar", Val: attr.Float(float64(ranks))}), work, v)
	}
	if work != dt {
		v = like(t.narrow, ir.OpConvert, attr.List{}, dt, v)
	}
	return v
}

// spread is owned for positions of so many places for each rank, of which the other
// ranks' go to different rows, or where there are too few of these, those of one rank do.
func (s *simplifier) spread(at *ir.Node, g *ir.Group, positions *ir.Value, run, count int64) (owned, bool) {
	ranks := int64(g.Size())
	o, ok := s.owned(at, g, positions, run, ranks*count <= run)
	if !ok || ranks*count <= run {
		return o, ok
	}
	dt := positions.Type().DType()
	apart := s.apart(at, dt, ir.Dims(count), run)
	byRank := func(v *ir.Value) *ir.Value {
		return s.chain(at, ir.OpView, nil, nil, []*ir.Value{v}, ir.TensorOf(v.Type().DType(), ir.Dims(ranks, count)))
	}
	rows := s.chain(at, ir.OpWhere, nil, nil, []*ir.Value{byRank(o.mine), byRank(o.rows), apart}, ir.TensorOf(dt, ir.Dims(ranks, count)))
	o.rows = s.chain(at, ir.OpView, nil, nil, []*ir.Value{rows}, positions.Type())
	return o, o.rows != nil
}

// startOfRows is what the rows of a piece start from: -0 where every rank has one,
// and +0 elsewhere.
func (s *simplifier) startOfRows(at *ir.Node, o owned, ranks int64, piece ir.Type) *ir.Value {
	run, count := piece.Shape()[:1], o.rows.Type().Shape()
	dt := piece.DType()
	ones := s.chain(at, ir.OpWhere, nil, nil, []*ir.Value{o.mine, s.number(at, ir.F32, 1), s.number(at, ir.F32, 0)}, ir.TensorOf(ir.F32, count))
	none := s.compute(at, ir.OpFull, nil, attr.Make(attr.Attr{Key: "value", Val: attr.Float(0)}), nil, nil, ir.TensorOf(ir.F32, run))
	have := s.chain(at, ir.OpIndexPut, nil, addRows(), []*ir.Value{none, ones, o.rows}, ir.TensorOf(ir.F32, run))
	every := s.chain(at, ir.OpEq, nil, attr.Make(attr.Attr{Key: "scalar", Val: attr.Float(float64(ranks))}), []*ir.Value{have}, ir.TensorOf(ir.Bool, run))
	v := s.chain(at, ir.OpWhere, nil, nil, []*ir.Value{every, s.number(at, dt, math.Copysign(0, -1)), s.number(at, dt, 0)}, ir.TensorOf(dt, run))
	for d := 1; d < piece.Rank(); d++ {
		v = s.chain(at, ir.OpUnsqueeze, nil, dimAttrs(d), []*ir.Value{v})
	}
	return s.chain(at, ir.OpExpand, nil, nil, []*ir.Value{v}, piece)
}

// addRows are the attributes of an index_put that adds rows.
func addRows() attr.List {
	return attr.Make(attr.Attr{Key: "accumulate", Val: attr.Bool(true)}, attr.Attr{Key: "dims", Val: attr.Ints(0)})
}

// number is a tensor of rank 0.
func (s *simplifier) number(at *ir.Node, dt ir.DType, x float64) *ir.Value {
	return s.compute(at, ir.OpFull, nil, attr.Make(attr.Attr{Key: "value", Val: attr.Float(x)}), nil, nil, ir.TensorOf(dt, nil))
}

// lookedUp is piece the other way round: every row of this rank's piece looks up its sum
// of each rank, +0 where there is none, and adds them by ascending rank, as the reduction
// of the tables does. Where fusion makes one kernel of that it writes the piece and reads
// little else, whatever positions there are; without, it makes a table for each rank.
func (s *simplifier) lookedUp(t tableSum, positions, sums *ir.Value) *ir.Value {
	at, g, dt := t.m.wait, t.m.group(), sums.Type().DType()
	ranks, shape := int64(g.Size()), ir.Shape{ir.D(t.run), t.table.Shape()[1]}
	work := dt
	if dt.Size() < ir.F32.Size() {
		work = ir.F32
	}
	places := s.placesOfRows(at, t, positions)
	made := len(s.made)
	var sum *ir.Value
	for k := range ranks {
		l := attr.Make(attr.Attr{Key: "dim", Val: attr.Int(0)}, attr.Attr{Key: "start", Val: attr.Int(k * t.run)}, attr.Attr{Key: "end", Val: attr.Int((k + 1) * t.run)})
		mine := s.chain(at, ir.OpSlice, nil, l, []*ir.Value{places})
		has := s.chain(at, ir.OpGe, nil, attr.Make(attr.Attr{Key: "scalar", Val: attr.Int(0)}), []*ir.Value{mine}, ir.TensorOf(ir.Bool, shape[:1]))
		from := s.chain(at, ir.OpClamp, nil, attr.Make(attr.Attr{Key: "min", Val: attr.Int(0)}), []*ir.Value{mine}, ir.TensorOf(ir.I64, shape[:1]))
		row := s.masked(at, has, s.chain(at, ir.OpEmbedding, nil, nil, []*ir.Value{sums, from}), 0)
		if work != dt {
			row = s.chain(at, ir.OpConvert, nil, nil, []*ir.Value{row}, ir.TensorOf(work, shape))
		}
		if k == 0 {
			sum = row
		} else {
			sum = s.chain(at, ir.OpAdd, nil, nil, []*ir.Value{sum, row}, ir.TensorOf(work, shape))
		}
	}
	if t.m.reduction() == ir.Avg {
		sum = s.chain(at, ir.OpDiv, nil, attr.Make(attr.Attr{Key: "scalar", Val: attr.Float(float64(ranks))}), []*ir.Value{sum}, ir.TensorOf(work, shape))
	}
	if work != dt {
		sum = s.chain(at, ir.OpConvert, nil, nil, []*ir.Value{sum}, ir.TensorOf(dt, shape))
	}
	if _, ok := t.put.Cost(); ok && sum != nil {
		for _, n := range s.made[made:] { // one kernel, which takes what it writes
			if deps.Launches(n) {
				s.f.SetCost(n, 0)
			}
		}
		s.price(sum.Def(), t.put, func(n *ir.Node) float64 { return float64(s.bytes(n.Result(0).Type())) })
	}
	return sum
}

// placesOfRows is, for each rank and each row of this rank's piece, the place of the
// rank's sum for it among those gathered, -1 where there is none.
func (s *simplifier) placesOfRows(at *ir.Node, t tableSum, positions *ir.Value) *ir.Value {
	ranks := int64(t.m.group().Size())
	o, ok := s.owned(at, t.m.group(), positions, t.run, false)
	if !ok {
		return nil
	}
	dt, flat := positions.Type().DType(), positions.Type().Shape()
	byRank := ir.Dims(ranks, t.count)
	begin := s.compute(at, ir.OpIota, nil, attr.Make(attr.Attr{Key: "step", Val: attr.Int(t.run)}), nil, nil, ir.TensorOf(dt, ir.Dims(ranks)))
	begin = s.chain(at, ir.OpUnsqueeze, nil, dimAttrs(1), []*ir.Value{begin})
	rows := s.chain(at, ir.OpView, nil, nil, []*ir.Value{o.rows}, ir.TensorOf(dt, byRank))
	rows = s.chain(at, ir.OpAdd, nil, nil, []*ir.Value{rows, begin}, ir.TensorOf(dt, byRank))
	rows = s.chain(at, ir.OpView, nil, nil, []*ir.Value{rows}, ir.TensorOf(dt, flat))
	rows = s.chain(at, ir.OpWhere, nil, nil, []*ir.Value{o.mine, rows, s.apart(at, dt, flat, ranks*t.run)}, ir.TensorOf(dt, flat))
	place := s.compute(at, ir.OpIota, nil, nil, nil, nil, ir.TensorOf(ir.I64, flat))
	place = s.chain(at, ir.OpAdd, nil, attr.Make(attr.Attr{Key: "scalar", Val: attr.Int(1)}), []*ir.Value{place}, ir.TensorOf(ir.I64, flat))
	place = s.chain(at, ir.OpWhere, nil, nil, []*ir.Value{o.mine, place, s.number(at, ir.I64, 0)}, ir.TensorOf(ir.I64, flat))
	all := ir.TensorOf(ir.I64, ir.Dims(ranks*t.run))
	none := s.compute(at, ir.OpFull, nil, attr.Make(attr.Attr{Key: "value", Val: attr.Int(-1)}), nil, nil, all)
	return s.chain(at, ir.OpIndexPut, nil, addRows(), []*ir.Value{none, place, rows}, all)
}
