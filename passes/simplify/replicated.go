package simplify

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Rules about tensors that are the same on all ranks of a subgroup.
func replicatedRules() []simplifyRule {
	wait := isOp(ir.OpWaitTensor)
	const same = "the operand is known to be equal on the ranks of each subgroup"
	return []simplifyRule{
		{name: "reduce-of-replicated", doc: "a reduction of equal operands: the operand, its piece, or a multiple",
			legal: same + "; sums and averages round, min and max do not",
			gate:  "always: no communication", special: "a sum of equal numbers and their multiple have one sign; which of them overflows may differ", exact: reassociates, anchor: wait, apply: atMembers(reduceOfReplicated)},
		{name: "gather-of-shard", doc: "all_gather of this rank's piece of a replicated tensor: the tensor",
			legal: same + ", same group and dimension",
			gate:  "always: no communication", special: onlyMoved, exact: exact, anchor: wait, apply: atMembers(gatherOfShard)},
		{name: "gather-of-replicated", doc: "all_gather of equal operands: copies of the operand",
			legal: same + ", sizes are static",
			gate:  "always: a local copy", special: onlyMoved, exact: exact, anchor: wait, apply: atMembers(gatherOfReplicated)},
		{name: "broadcast-of-replicated", doc: "broadcast of equal operands: the operand",
			legal: same, gate: "always: no communication", special: onlyMoved, exact: exact, anchor: wait, apply: atMembers(broadcastOfReplicated)},
		{name: "own-slice", doc: "the piece that one rank sent in an all_to_all of equal operands, or the row that the rank's place selects: this rank's piece, written as shard",
			legal: same + ", the slice keeps exactly one rank's piece and nothing else reads the exchange; the row is looked up by the shard of 0, 1, ... n-1",
			gate:  "always: no communication", special: onlyMoved, exact: exact, anchor: isOp(ir.OpSlice, ir.OpIndex, ir.OpEmbedding), apply: ownSlice},
	}
}

func reduceOfReplicated(s *simplifier, m member) bool {
	t := m.value().Type()
	r := m.reduction()
	if !m.reduces() || r == ir.Product || !s.replicated(m.operand(), m.group()) {
		return false
	}
	if !s.may(r, t.DType()) || !s.fire(m.wait) {
		return false
	}
	v := m.operand()
	if m.is(ir.OpReduceScatter) {
		v = s.compute(m.wait, ir.OpShard, m.group(), dimAttrs(m.dim()), nil, []*ir.Value{v})
	}
	if v != nil && r == ir.Sum && m.group().Size() > 1 {
		n := attr.Int(int64(m.group().Size())) // a float would take integers out of their arithmetic
		if t.DType().IsFloat() {
			n = attr.Float(float64(m.group().Size()))
		}
		v = s.compute(m.wait, ir.OpMul, nil, attr.Make(attr.Attr{Key: "scalar", Val: n}), nil, []*ir.Value{v}, ir.TensorOf(t.DType(), v.Type().Shape()))
	}
	if v == nil {
		return s.undo()
	}
	return s.replace(m.value(), v)
}

func gatherOfShard(s *simplifier, m member) bool {
	sh := unalias(m.operand()).Def()
	if !m.is(ir.OpAllGather) || sh.Op() != ir.OpShard || !s.groups.equal(sh.Group(), m.group()) || int(sh.Attrs().Int("dim", 0)) != m.dim() ||
		!s.replicated(sh.Arg(0), m.group()) || !s.fire(m.wait) {
		return false
	}
	return s.replace(m.value(), sh.Arg(0))
}

func broadcastOfReplicated(s *simplifier, m member) bool {
	if !m.is(ir.OpBroadcast) || !s.replicated(m.operand(), m.group()) || !s.fire(m.wait) {
		return false
	}
	return s.replace(m.value(), m.operand())
}

func gatherOfReplicated(s *simplifier, m member) bool {
	shape, static := m.operand().Type().Shape().Static()
	if !m.is(ir.OpAllGather) || !static || !s.replicated(m.operand(), m.group()) || !s.fire(m.wait) {
		return false
	}
	d, at := m.dim(), m.wait
	dt := m.operand().Type().DType()
	v := s.compute(at, ir.OpUnsqueeze, nil, dimAttrs(d), nil, []*ir.Value{m.operand()})
	wide := ir.Tensor(dt, slices.Insert(slices.Clone(shape), d, int64(m.group().Size()))...)
	if v != nil {
		v = s.compute(at, ir.OpExpand, nil, nil, nil, []*ir.Value{v}, wide)
	}
	if v != nil {
		v = s.compute(at, ir.OpClone, nil, nil, nil, []*ir.Value{v}, wide)
	}
	if v != nil {
		v = s.compute(at, ir.OpView, nil, nil, nil, []*ir.Value{v}, ir.TensorOf(dt, m.value().Type().Shape()))
	}
	if v == nil {
		return s.undo()
	}
	return s.replace(m.value(), v)
}

// ownSlice recognises ways of writing this rank's piece without an operation for
// it. After an all_to_all of equal tensors every rank holds, from each rank, the
// piece that is its own. And a table whose rows are looked up at the rank's place,
// which is the rank's piece of 0, 1, ..., gives the rank's row.
func ownSlice(s *simplifier, n *ir.Node) bool {
	if n.Op() == ir.OpSlice {
		return ownSliceOfExchange(s, n)
	}
	table, idx := n.Arg(0), n.Arg(1)
	place := unalias(idx).Def()
	if n.Op() == ir.OpIndex && (len(n.Args()) != 2 || !slices.Equal(n.Attrs().Ints("dims"), []int64{0})) ||
		place.Op() != ir.OpShard || place.Arg(0).Def().Op() != ir.OpIota || idx.Type().Rank() != 1 {
		return false
	}
	g, iota := place.Group(), place.Arg(0).Def()
	rows, ok := table.Type().Shape()[0].Const()
	count, ok2 := iota.Result(0).Type().Shape()[0].Const()
	// Each rank looks up as many rows as its piece of the table has, in order.
	if !ok || !ok2 || rows != count || rows%int64(g.Size()) != 0 || iota.Attrs().Int("start", 0) != 0 || iota.Attrs().Int("step", 1) != 1 ||
		!n.Result(0).Type().SameTensor(resized(table.Type(), 0, ir.D(rows/int64(g.Size())))) || !s.fire(n) {
		return false
	}
	v := s.compute(n, ir.OpShard, g, dimAttrs(0), nil, []*ir.Value{table})
	if v == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), v)
}

func ownSliceOfExchange(s *simplifier, n *ir.Node) bool {
	m, ok := s.from(n.Arg(0))
	if !ok || !m.is(ir.OpAllToAll) || m.start.Attrs().Has("in_splits") || n.Attrs().Int("dim", 0) != 0 || n.Attrs().Int("step", 1) != 1 || !only(n.Arg(0), n) {
		return false
	}
	rows, static := m.value().Type().Shape()[0].Const()
	size := rows / int64(m.group().Size())
	start := n.Attrs().Int("start", 0)
	if !static || size == 0 || start%size != 0 || !n.Result(0).Type().Shape()[0].Equal(ir.D(size)) || !s.replicated(m.operand(), m.group()) ||
		!s.fire(n) {
		return false
	}
	v := s.compute(n, ir.OpShard, m.group(), dimAttrs(0), nil, []*ir.Value{m.operand()})
	if v == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), v)
}
