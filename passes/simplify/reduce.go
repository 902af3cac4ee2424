package simplify

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// Rules about reductions: all_reduce = reduce_scatter then all_gather, their sums,
// and reductions over the rows and columns of a grid of ranks.
func reduceRules() []simplifyRule {
	wait := isOp(ir.OpWaitTensor)
	return []simplifyRule{
		{name: "reduce-then-shard", doc: "all_reduce, then this rank's piece: reduce_scatter",
			legal:   "the shard has the reduction's group and nothing else reads the reduction",
			gate:    "always: half the bytes on the wire and a smaller result",
			special: sameNumbers, exact: exact, anchor: isOp(ir.OpShard), apply: reduceThenShard},
		{name: "reduce-then-subshard", doc: "all_reduce, then this rank's piece by a smaller group: reduce_scatter over that and all_reduce of the piece over the rest",
			legal:   "the shard's subgroups lie inside the reduction's, nothing else reads the reduction, whose order may change, and no call that communicates stands between its start and its wait",
			gate:    "the cost model, or else the bytes on the wire",
			special: reordered, exact: reassociates, anchor: isOp(ir.OpShard), apply: reduceThenSubshard},
		{name: "gather-of-scatter", doc: "reduce_scatter, then all_gather of the pieces: all_reduce",
			legal:   "same group and dimension, and only the gather reads the pieces; not while split-all-reduce is on",
			gate:    "at most keep-distance operations launch between the two, over which the whole lives in place of the piece: one collective in place of two, equal bytes",
			special: sameNumbers, exact: exact, anchor: wait, apply: atMembers(gatherOfScatter)},
		{name: "split-all-reduce", doc: "all_reduce as reduce_scatter and all_gather, so that the halves overlap with different work",
			legal:   "some dimension falls into equal pieces, and no call that communicates stands between start and wait",
			gate:    "at least split-bytes, and an operation between the start and the first reader of the result that can run beside a half",
			special: sameNumbers, exact: exact, off: true, anchor: wait, apply: atMembers(splitAllReduce)},
		{name: "sum-of-reductions", doc: "a sum of two reductions, or of several things of which two are: the reduction of their sum",
			legal:   "same collective, group, dimension and type; the operation distributes over the reduction; nothing else reads them or the sums between",
			gate:    "always: half the bytes",
			special: reordered, exact: reassociates, anchor: isOp(ir.OpAdd, ir.OpSub, ir.OpMul, ir.OpMaximum, ir.OpMinimum), apply: sumOfReductions},
		{name: "merge-reductions", doc: "reductions in a row over the rows and columns of a grid: one over the grid, declared if need be",
			legal:   "the groups' product is a partition, one kind of reduction, and only the second reads the first",
			gate:    "the cost model, or else the bytes on the wire",
			special: reordered, exact: reassociates, anchor: wait, apply: atMembers(mergeReductions)},
		{name: "reduce-before-gather", doc: "all_gather over rows, then all_reduce over columns: the reduction first, on the pieces",
			legal:   "the groups form grids and only the reduction reads the gather",
			gate:    "always: fewer bytes are reduced",
			special: sameNumbers, exact: exact, anchor: wait, apply: atMembers(reduceBeforeGather)},
		{name: "scatter-before-reduce", doc: "all_reduce over columns, then reduce_scatter over rows: the scatter first, and the pieces are reduced",
			legal:   "the groups form grids, one kind of reduction, and only the scatter reads the reduction",
			gate:    "always: fewer bytes are reduced",
			special: reordered, exact: reassociates, anchor: wait, apply: atMembers(scatterBeforeReduce)},
	}
}

func reduceThenShard(s *simplifier, n *ir.Node) bool {
	m, ok := s.from(n.Arg(0))
	if !ok || !m.is(ir.OpAllReduce) || !s.groups.equal(m.group(), n.Group()) || !only(n.Arg(0), n) || !s.fire(n) {
		return false
	}
	start := s.communicate(m.start, ir.OpReduceScatter, m.group(), reduceAttrs(m.reduction(), int(n.Attrs().Int("dim", 0))), m.operand(), m.start)
	if start == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), s.finish(m.wait, start))
}

func reduceThenSubshard(s *simplifier, n *ir.Node) bool {
	m, ok := s.from(n.Arg(0))
	if !ok || !m.is(ir.OpAllReduce) || !only(n.Arg(0), n) || !s.may(m.reduction(), m.value().Type().DType()) {
		return false
	}
	ranks := s.groups.quotient(m.group(), n.Group())
	if ranks == nil {
		return false
	}
	rest := &ir.Group{Name: "rest", Ranks: ranks}
	whole := s.of(m).bytes
	part := s.bytes(n.Result(0).Type())
	if !s.beside(m.start, m.wait) ||
		!s.pays([]traffic{s.of(m)}, []traffic{{ir.OpReduceScatter, n.Group(), m.reduction(), whole}, {ir.OpAllReduce, rest, m.reduction(), part}}) ||
		!s.fire(n) {
		return false
	}
	rest = s.groups.declare(ranks, true, m.group(), n.Group())
	start := s.communicate(m.start, ir.OpReduceScatter, n.Group(), reduceAttrs(m.reduction(), int(n.Attrs().Int("dim", 0))), m.operand(), m.start)
	if start == nil {
		return s.undo()
	}
	piece := s.finish(m.wait, start)
	second := s.communicate(m.wait, ir.OpAllReduce, rest, reduceAttrs(m.reduction(), -1), piece, m.start)
	return s.replace(n.Result(0), s.finish(m.wait, second))
}

func gatherOfScatter(s *simplifier, m member) bool {
	in, ok := s.from(m.operand())
	if !ok || s.on["split-all-reduce"] || !m.is(ir.OpAllGather) || !in.is(ir.OpReduceScatter) || in.dim() != m.dim() ||
		!s.groups.equal(in.group(), m.group()) || !only(m.operand(), m.start) ||
		!s.beside(in.start, m.start) || !s.keeps(s.launched[in.wait.ID()], m.start, s.bytes(m.value().Type())) || !s.fire(m.wait) {
		return false
	}
	start := s.communicate(in.start, ir.OpAllReduce, in.group(), reduceAttrs(in.reduction(), -1), in.operand(), in.start)
	if start == nil {
		return s.undo()
	}
	return s.replace(m.value(), s.finish(m.wait, start))
}

// splitAllReduce cuts along the first dimension that falls into equal pieces: the
// further out, the longer the runs of memory that travel.
func splitAllReduce(s *simplifier, m member) bool {
	if !m.is(ir.OpAllReduce) || m.group().Size() < 2 || s.bytes(m.operand().Type()) < s.ctx.Bytes("split-bytes") || !s.canHide(m) || !s.beside(m.start, m.wait) {
		return false
	}
	for d := range m.value().Type().Rank() {
		if !divisible(m.value().Type(), d, m.group().Size()) || !s.fire(m.wait) {
			continue
		}
		start := s.communicate(m.start, ir.OpReduceScatter, m.group(), reduceAttrs(m.reduction(), d), m.operand(), m.start)
		if start == nil {
			return s.undo()
		}
		piece := s.finish(m.wait, start)
		second := s.communicate(m.wait, ir.OpAllGather, m.group(), dimAttrs(d), piece, m.start)
		return s.replace(m.value(), s.finish(m.wait, second))
	}
	return false
}

// canHide reports whether something launches between the start of a collective
// and the first reader of its result.
func (s *simplifier) canHide(m member) bool {
	for n := m.start.Next(); n != nil; n = n.Next() {
		for _, a := range n.Args() {
			if n != m.wait && a.Def() == m.wait {
				return false
			}
		}
		if deps.Launches(n) {
			return true
		}
	}
	return false
}

// distributes reports whether op(reduce(a), reduce(b)) = reduce(op(a, b)).
func distributes(op ir.Op, r ir.Reduction) bool {
	switch op {
	case ir.OpAdd, ir.OpSub:
		return r == ir.Sum || r == ir.Avg
	case ir.OpMul:
		return r == ir.Product
	case ir.OpMaximum:
		return r == ir.Max
	case ir.OpMinimum:
		return r == ir.Min
	}
	return false
}

func sumOfReductions(s *simplifier, n *ir.Node) bool {
	if len(n.Args()) != 2 {
		return false
	}
	a, ok := s.reshaped(n.Arg(0), n)
	b, ok2 := s.reshaped(n.Arg(1), n)
	if ok != ok2 {
		return sumInTurn(s, n)
	}
	if !ok || !ok2 || !a.reduces() || a.op() != b.op() || a.reduction() != b.reduction() || a.dim() != b.dim() || a.value() == b.value() ||
		!s.groups.equal(a.group(), b.group()) || !distributes(n.Op(), a.reduction()) {
		return false
	}
	t := n.Result(0).Type()
	if !n.Arg(0).Type().SameTensor(t) || !n.Arg(1).Type().SameTensor(t) || !s.may(a.reduction(), t.DType()) || t.DType().IsInt() && n.Attrs().Has("alpha") ||
		!only(n.Arg(0), n) || !only(n.Arg(1), n) || !s.beside(a.start, b.start) || !s.fire(n) {
		return false
	}
	at := s.later(a.start, b.start)
	args := []*ir.Value{a.operand(), b.operand()}
	for i, m := range []member{a, b} {
		if unalias(n.Arg(i)) != m.value() { // the reshape goes in front
			if args[i] = s.compute(at, ir.OpView, nil, nil, nil, args[i:i+1:i+1], ir.TensorOf(t.DType(), t.Shape())); args[i] == nil {
				return s.undo()
			}
		}
	}
	sum := s.compute(at, n.Op(), nil, n.Attrs(), n, args, ir.TensorOf(t.DType(), args[0].Type().Shape()))
	if sum == nil {
		return s.undo()
	}
	start := s.communicate(at, a.op(), a.group(), a.start.Attrs(), sum, a.start)
	return s.replace(n.Result(0), s.finish(n, start))
}

// mostTerms is how many sums are looked through for another reduction.
const mostTerms = 16

// sumInTurn joins the reduction that a sum adds to one that was added before: what stood
// between them is added first, so that the next sum finds the reduction at once.
func sumInTurn(s *simplifier, n *ir.Node) bool {
	t := n.Result(0).Type()
	at := 0
	if _, ok := s.from(n.Arg(1)); ok {
		at = 1
	}
	b, ok := s.from(n.Arg(at))
	if !ok || !b.reduces() || n.Op() == ir.OpSub || n.Attrs().Has("alpha") || !distributes(n.Op(), b.reduction()) || !s.may(b.reduction(), t.DType()) || !only(n.Arg(at), n) {
		return false
	}
	var between []*ir.Value
	v, reader := n.Arg(1-at), n
	for len(between) < mostTerms {
		p := v.Def()
		if p.Op() != n.Op() || len(p.Args()) != 2 || p.Attrs().Has("alpha") || !only(v, reader) || !v.Type().SameTensor(t) || !p.Arg(0).Type().SameTensor(t) || !p.Arg(1).Type().SameTensor(t) {
			return false
		}
		for i, x := range p.Args() {
			if a, ok := s.from(x); ok && a.op() == b.op() && a.reduction() == b.reduction() && a.dim() == b.dim() && s.groups.equal(a.group(), b.group()) && only(x, p) && a.value() != b.value() {
				return s.joined(n, a, b, p.Arg(1-i), between)
			}
		}
		i := 0
		if p.Arg(0).Def().Op() != n.Op() {
			i = 1
		}
		between = append(between, p.Arg(1-i))
		v, reader = p.Arg(i), p
	}
	return false
}

// joined writes a sum of several as that of what stands beside two reductions and of these.
func (s *simplifier) joined(n *ir.Node, a, b member, rest *ir.Value, between []*ir.Value) bool {
	t := n.Result(0).Type()
	if !b.value().Type().SameTensor(t) || !s.beside(a.start, b.start) || !s.fire(n) {
		return false
	}
	at := s.later(a.start, b.start)
	sum := s.compute(at, n.Op(), nil, nil, n, []*ir.Value{a.operand(), b.operand()}, ir.TensorOf(t.DType(), a.operand().Type().Shape()))
	if sum == nil {
		return s.undo()
	}
	start := s.communicate(at, a.op(), a.group(), a.start.Attrs(), sum, a.start)
	for _, v := range slices.Backward(between) {
		rest = s.compute(n, n.Op(), nil, nil, n, []*ir.Value{rest, v}, ir.TensorOf(t.DType(), t.Shape()))
	}
	v := s.compute(n, n.Op(), nil, n.Attrs(), n, []*ir.Value{rest, s.finish(n, start)}, ir.TensorOf(t.DType(), t.Shape()))
	if v == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), v)
}

// reshaped finds the reduction that reader reads, or an all_reduce of which it
// alone reads a reshape: elements of an all_reduce stay where they are.
func (s *simplifier) reshaped(v *ir.Value, reader *ir.Node) (member, bool) {
	m, ok := s.from(v)
	if n := v.Def(); !ok && n.Op() == ir.OpView && only(v, reader) && only(n.Arg(0), n) {
		m, ok = s.from(n.Arg(0))
		ok = ok && m.is(ir.OpAllReduce) && m.operand().Type().Contiguous()
	}
	return m, ok
}

func mergeReductions(s *simplifier, m member) bool {
	in, ok := s.from(m.operand())
	if !ok || !m.reduces() || in.op() != m.op() || in.reduction() != m.reduction() || in.dim() != m.dim() ||
		!s.may(m.reduction(), m.value().Type().DType()) || !only(m.operand(), m.start) {
		return false
	}
	kind, attrs := byte(productReduce), reduceAttrs(m.reduction(), -1)
	if m.is(ir.OpReduceScatter) {
		kind, attrs = productScatter, reduceAttrs(m.reduction(), m.dim())
	}
	return s.mergeOver(kind, attrs, in, m)
}

// mergeOver replaces two collectives in a row by one over the product of their groups.
func (s *simplifier) mergeOver(kind byte, attrs attr.List, in, m member) bool {
	ranks := s.groups.product(kind, in.group(), m.group())
	if ranks == nil {
		return false
	}
	one := traffic{m.op(), &ir.Group{Name: "product", Ranks: ranks}, m.reduction(), max(s.of(in).bytes, s.of(m).bytes)}
	if !s.beside(in.start, m.start) || !s.pays([]traffic{s.of(in), s.of(m)}, []traffic{one}) || !s.fire(m.wait) {
		return false
	}
	g := s.groups.declare(ranks, kind == productReduce, in.group(), m.group())
	at := in.start
	if kind == productGather {
		at = m.start // the operand is the smallest of the three
	}
	start := s.communicate(at, m.op(), g, attrs, in.operand(), in.start)
	if start == nil {
		return s.undo()
	}
	return s.replace(m.value(), s.finish(m.wait, start))
}

func reduceBeforeGather(s *simplifier, m member) bool {
	in, ok := s.from(m.operand())
	if !ok || !m.is(ir.OpAllReduce) || !in.is(ir.OpAllGather) || in.group().Size() < 2 || !only(m.operand(), m.start) ||
		!s.beside(in.start, m.start) || !s.groups.grid(in.group(), m.group()) || !s.fire(m.wait) {
		return false
	}
	return s.swap(in, m)
}

// swap does m before in, whose result is its operand.
func (s *simplifier) swap(in, m member) bool {
	first := s.communicate(in.start, m.op(), m.group(), m.start.Attrs(), in.operand(), m.start)
	if first == nil {
		return s.undo()
	}
	second := s.communicate(m.start, in.op(), in.group(), in.start.Attrs(), s.finish(m.start, first), in.start)
	return s.replace(m.value(), s.finish(m.wait, second))
}

func scatterBeforeReduce(s *simplifier, m member) bool {
	in, ok := s.from(m.operand())
	if !ok || !m.is(ir.OpReduceScatter) || !in.is(ir.OpAllReduce) || in.reduction() != m.reduction() || m.group().Size() < 2 ||
		!s.may(m.reduction(), m.value().Type().DType()) || !only(m.operand(), m.start) ||
		!s.beside(in.start, m.start) || !s.groups.grid(m.group(), in.group()) || !s.fire(m.wait) {
		return false
	}
	return s.swap(in, m)
}
