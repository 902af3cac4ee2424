package simplify

import (
	"math"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Rules about tables whose rows are spread over the ranks, such as the embeddings of
// a model that shards its parameters. A step reads, and its backward pass changes,
// as many rows as it has tokens, but the program gathers the whole table and scatters
// a gradient of its size. What has to travel is the positions and the rows. GSPMD
// partitions gathers and scatters along an indexed dimension in the same way (Xu et
// al., "GSPMD: General and Scalable Parallelization for ML Computation Graphs", 2021).
func lookupRules() []simplifyRule {
	return []simplifyRule{
		{name: "lookup-before-gather", doc: "rows of a gathered table: every rank looks up for all in its own piece, and the rows are scattered",
			legal: "nothing else reads the table, whose rows are gathered along dimension 0, and sizes are static; a row that a rank does not have counts as -0, which changes no sum; indices lie within the table",
			gate:  "the indices and rows of all ranks take less time than the table", special: "-0 added to any number gives that number, zeros and infinities included, and NaN for NaN", exact: exact, anchor: isOp(ir.OpEmbedding), apply: lookupBeforeGather},
		{name: "scatter-add-before-reduce", doc: "rows added to zeros and summed over the ranks: indices and rows are gathered, and every rank adds what belongs to its piece",
			legal: "nothing else reads the sum, which is scattered along dimension 0, and sizes are static; the sum over ranks is then not rounded in between, and only a rounding of floats may stand before it; indices lie within the table",
			gate:  "the indices and rows of all ranks take less time than the table, and are fewer than the rows of a piece", special: "zeros are added to rows, so a -0 may become +0", exact: reassociates, anchor: isOp(ir.OpWaitTensor), apply: atMembers(scatterAddBeforeReduce)},
		combineRule(),
	}
}

// owned are positions in a table of which each rank has a run of rows.
type owned struct {
	rows *ir.Value // positions in this rank's run where it has the row, anything within it elsewhere
	mine *ir.Value // whether this rank has the row
}

// owned makes, before at, of positions in a table over g, whose runs have run rows,
// what this rank has of them. spread sends the other positions to different rows, far
// apart, instead of to the first and the last, for what adds to them. It returns false if
// an operation does not fit.
func (s *simplifier) owned(at *ir.Node, g *ir.Group, positions *ir.Value, run int64, spread bool) (o owned, ok bool) {
	dt, n := positions.Type().DType(), int64(g.Size())
	count := positions.Type().Shape()
	one := ir.TensorOf(dt, ir.Dims(1))
	starts := s.compute(at, ir.OpIota, nil, attr.Make(attr.Attr{Key: "step", Val: attr.Int(run)}), nil, nil, ir.TensorOf(dt, ir.Dims(n)))
	first := s.chain(at, ir.OpShard, g, dimAttrs(0), []*ir.Value{starts}, one)
	from := s.chain(at, ir.OpSub, nil, nil, []*ir.Value{positions, first}, ir.TensorOf(dt, count))
	bounds := attr.Make(attr.Attr{Key: "min", Val: attr.Int(0)}, attr.Attr{Key: "max", Val: attr.Int(run - 1)})
	o.rows = s.chain(at, ir.OpClamp, nil, bounds, []*ir.Value{from}, ir.TensorOf(dt, count))
	o.mine = s.chain(at, ir.OpEq, nil, nil, []*ir.Value{from, o.rows}, ir.TensorOf(ir.Bool, count))
	if spread && o.mine != nil {
		apart := s.apart(at, dt, count, run)
		o.rows = s.chain(at, ir.OpWhere, nil, nil, []*ir.Value{o.mine, from, apart}, ir.TensorOf(dt, count))
	}
	return o, o.rows != nil && o.mine != nil
}

// apart is rows for so many places, as far apart as a run allows.
func (s *simplifier) apart(at *ir.Node, dt ir.DType, places ir.Shape, run int64) *ir.Value {
	l := attr.List{}
	if n, ok := places.NumElems().Const(); ok && n > 0 && run/n > 1 {
		l = attr.Make(attr.Attr{Key: "step", Val: attr.Int(run / n)})
	}
	return s.compute(at, ir.OpIota, nil, l, nil, nil, ir.TensorOf(dt, places))
}

// chain is compute of what stands for no operation of the program.
func (s *simplifier) chain(at *ir.Node, op ir.Op, g *ir.Group, attrs attr.List, args []*ir.Value, want ...ir.Type) *ir.Value {
	return s.compute(at, op, g, attrs, nil, args, want...)
}

// masked is x, of rows, where mine holds and the number elsewhere.
func (s *simplifier) masked(at *ir.Node, mine, x *ir.Value, elsewhere float64) *ir.Value {
	if mine == nil || x == nil {
		return nil
	}
	for d := 1; d < x.Type().Rank() && mine != nil; d++ {
		mine = s.chain(at, ir.OpUnsqueeze, nil, dimAttrs(d), []*ir.Value{mine})
	}
	return s.chain(at, ir.OpWhere, nil, nil, []*ir.Value{mine, x, s.number(at, x.Type().DType(), elsewhere)}, x.Type())
}

// flat is x with its first so many dimensions as one, nil if x has gaps.
func (s *simplifier) flat(at *ir.Node, x *ir.Value, dims int) *ir.Value {
	shape := x.Type().Shape()
	if !x.Type().Contiguous() {
		return nil
	}
	if dims == 1 {
		return x
	}
	to := append(ir.Shape{shape[:dims].NumElems()}, shape[dims:]...)
	return s.chain(at, ir.OpView, nil, nil, []*ir.Value{x}, ir.TensorOf(x.Type().DType(), to))
}

// gathered starts an all_gather of x along dimension 0 before start and waits for it
// before at; nil if x does not fit.
func (s *simplifier) gathered(start, at *ir.Node, g *ir.Group, x *ir.Value, like *ir.Node) *ir.Value {
	if x == nil {
		return nil
	}
	c := s.communicate(start, ir.OpAllGather, g, dimAttrs(0), x, like)
	if c == nil {
		return nil
	}
	return s.finish(at, c)
}

func lookupBeforeGather(s *simplifier, n *ir.Node) bool {
	m, ok := s.from(n.Arg(0))
	ids := n.Arg(1)
	if !ok || !m.is(ir.OpAllGather) || m.dim() != 0 || !only(n.Arg(0), n) || unalias(ids) == unalias(n.Arg(0)) || !s.beside(m.start, n) {
		return false
	}
	piece := m.operand()
	size, ok := piece.Type().Shape().Static()
	count, ok2 := ids.Type().Shape().NumElems().Const()
	if dt := piece.Type().DType(); !ok || !ok2 || len(size) != 2 || ids.Type().Rank() < 1 || !counts(ids.Type().DType(), size[0]*int64(m.group().Size())) || !ids.Type().Contiguous() || !dt.IsFloat() || !dt.HasZero() {
		return false
	}
	g, ranks := m.group(), int64(m.group().Size())
	all := s.bytes(ir.TensorOf(piece.Type().DType(), ir.Dims(ranks*count, size[1])))
	after := []traffic{{ir.OpAllGather, g, "", ranks * s.bytes(ids.Type())}, {ir.OpReduceScatter, g, ir.Sum, all}}
	if count == 0 || !s.pays([]traffic{s.of(m)}, after) || 2*all > s.of(m).bytes || !s.fire(n) {
		return false
	}
	positions := s.gathered(n, n, g, s.flat(n, ids, ids.Type().Rank()), m.start)
	if positions == nil {
		return s.undo()
	}
	o, ok := s.owned(n, g, positions, size[0], false)
	if !ok {
		return s.undo()
	}
	// Its cost is left to the model: what the old lookup is said to cost may count the table.
	rows := s.chain(n, ir.OpEmbedding, nil, nil, []*ir.Value{piece, o.rows})
	// -0 is what adding changes no number, -0 included.
	mine := s.masked(n, o.mine, rows, math.Copysign(0, -1))
	if mine == nil {
		return s.undo()
	}
	start := s.communicate(n, ir.OpReduceScatter, g, reduceAttrs(ir.Sum, 0), mine, m.start)
	if start == nil {
		return s.undo()
	}
	v := s.finish(n, start)
	if ids.Type().Rank() > 1 {
		v = s.chain(n, ir.OpView, nil, nil, []*ir.Value{v}, ir.TensorOf(piece.Type().DType(), n.Result(0).Type().Shape()))
	}
	if v == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), v)
}

// tableSum is a sum over ranks of tables of zeros to which each rank adds rows.
type tableSum struct {
	m         member
	put       *ir.Node // adds the rows
	zero      *ir.Node
	narrow    *ir.Node // a conversion of the table, or nil
	vals, ids *ir.Value
	table     ir.Type
	run       int64 // rows of a piece
	row       int64 // elements of a row
	count     int64 // positions of one rank
}

// tableSum finds what m sums over the ranks, if that is such a table.
func (s *simplifier) tableSum(m member) (t tableSum, ok bool) {
	if !m.is(ir.OpReduceScatter) || m.dim() != 0 || m.group().Size() < 2 || m.reduction() != ir.Sum && m.reduction() != ir.Avg || !only(m.operand(), m.start) {
		return t, false
	}
	t.m = m
	t.put = unalias(m.operand()).Def()
	if t.put.Op() == ir.OpConvert && only(t.put.Arg(0), t.put) {
		if t.put.Arg(0).Type().DType() != t.put.Result(0).Type().DType() {
			t.narrow = t.put
		}
		t.put = unalias(t.put.Arg(0)).Def()
	}
	put := t.put
	if put.Op() != ir.OpIndexPut || !put.Attrs().Bool("accumulate", false) || len(put.Args()) != 3 || len(put.Attrs().Ints("dims")) != 1 || put.Attrs().Ints("dims")[0] != 0 {
		return t, false
	}
	t.zero, t.vals, t.ids, t.table = unalias(put.Arg(0)).Def(), put.Arg(1), put.Arg(2), put.Result(0).Type()
	size, ok := t.table.Shape().Static()
	count, ok2 := t.ids.Type().Shape().NumElems().Const()
	if t.zero.Op() != ir.OpFull || t.zero.Attrs().Float("value", 1) != 0 || !ok || !ok2 || count == 0 || t.ids.Type().Rank() < 1 || !counts(t.ids.Type().DType(), size[0]) ||
		!t.table.DType().HasZero() || !m.value().Type().DType().HasZero() || !t.ids.Type().Contiguous() || !t.vals.Type().Contiguous() || t.vals.Type().Rank() != t.ids.Type().Rank()+len(size)-1 {
		return t, false
	}
	for d, n := range append(append(ir.Shape{}, t.ids.Type().Shape()...), t.table.Shape()[1:]...) {
		if !t.vals.Type().Shape()[d].Equal(n) {
			return t, false // they broadcast
		}
	}
	t.run, t.count, t.row = size[0]/int64(m.group().Size()), count, 1
	for _, n := range size[1:] {
		t.row *= n
	}
	return t, s.beside(put, m.start)
}

// travels reports whether it pays to gather positions, and rows of that type, instead
// of reducing the table.
func (s *simplifier) travels(t tableSum, rows ir.Type) bool {
	g, ranks := t.m.group(), int64(t.m.group().Size())
	after := []traffic{{ir.OpAllGather, g, "", ranks * s.bytes(t.ids.Type())}, {ir.OpAllGather, g, "", ranks * s.bytes(rows)}}
	return s.pays([]traffic{s.of(t.m)}, after) && 2*(after[0].bytes+after[1].bytes) <= s.of(t.m).bytes
}

func scatterAddBeforeReduce(s *simplifier, m member) bool {
	t, ok := s.tableSum(m)
	if !ok {
		return false
	}
	g, ranks := m.group(), int64(m.group().Size())
	if to := m.value().Type().DType(); t.narrow != nil && !(t.table.DType().IsFloat() && to.IsFloat() && to.Size() < t.table.DType().Size()) {
		return false // numbers would be added in other arithmetic, or in less precise one
	}
	if ranks*t.count > t.run || !s.travels(t, t.vals.Type()) || !s.may(m.reduction(), t.table.DType()) || !s.fire(m.wait) {
		return false
	}
	at := m.wait
	rank := t.ids.Type().Rank()
	positions := s.gathered(m.start, at, g, s.natural(m.start, t.ids, ranks*t.run, rank), m.start)
	rows := s.gathered(m.start, at, g, s.flat(m.start, t.vals, rank), m.start)
	if positions == nil || rows == nil {
		return s.undo()
	}
	o, ok := s.owned(at, g, positions, t.run, true)
	added := s.masked(at, o.mine, rows, 0)
	if !ok || added == nil {
		return s.undo()
	}
	shape := append(ir.Shape{ir.D(t.run)}, t.table.Shape()[1:]...)
	zeros := s.compute(at, ir.OpFull, nil, t.zero.Attrs(), t.zero, nil, ir.TensorOf(t.table.DType(), shape))
	v := s.chain(at, ir.OpIndexPut, nil, t.put.Attrs(), []*ir.Value{zeros, added, o.rows}, ir.TensorOf(t.table.DType(), shape))
	if v != nil && m.reduction() == ir.Avg {
		v = s.chain(at, ir.OpDiv, nil, attr.Make(attr.Attr{Key: "scalar", Val: attr.Float(float64(ranks))}), []*ir.Value{v}, v.Type())
	}
	if v != nil && t.narrow != nil {
		v = s.compute(at, ir.OpConvert, nil, nil, t.narrow, []*ir.Value{v}, ir.TensorOf(m.value().Type().DType(), shape))
	}
	if v == nil {
		return s.undo()
	}
	return s.replace(m.value(), v)
}

// counts reports whether positions in a table of so many rows may be of type dt: of the
// two that index operands have, one in which they can be added up to the table's end.
func counts(dt ir.DType, rows int64) bool {
	return dt == ir.I64 || dt == ir.I32 && rows <= math.MaxInt32
}

// natural is the flat list of positions that ids means: index_put counts a negative
// one from the end.
func (s *simplifier) natural(at *ir.Node, ids *ir.Value, size int64, dims int) *ir.Value {
	x := s.flat(at, ids, dims)
	if x == nil {
		return nil
	}
	t := x.Type()
	below := s.chain(at, ir.OpLt, nil, attr.Make(attr.Attr{Key: "scalar", Val: attr.Int(0)}), []*ir.Value{x}, ir.TensorOf(ir.Bool, t.Shape()))
	moved := s.chain(at, ir.OpAdd, nil, attr.Make(attr.Attr{Key: "scalar", Val: attr.Int(size)}), []*ir.Value{x}, t)
	return s.chain(at, ir.OpWhere, nil, nil, []*ir.Value{below, moved, x}, t)
}
