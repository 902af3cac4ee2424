package simplify

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// RegatherKey is the annotation of a collective that repeats an earlier one on
// purpose, to free the first result in between: it is never shared.
const RegatherKey = "regather"

// Rules about repeated communication.
func shareRules() []simplifyRule {
	return []simplifyRule{
		{name: "share-repeated", doc: "a collective or shard that computes what an earlier one has: the earlier one's result",
			legal:   "same operation, attributes, ranks and operands, whose storage nobody writes, and not both are returned",
			gate:    "at most keep-distance operations launch between the last use of the first result and the repeat, its bytes are within keep-bytes, and it is not annotated regather; an equal piece of a tensor that is dead afterwards, always",
			special: sameNumbers, exact: exact,
			anchor: func(n *ir.Node) bool {
				return n.Op().IsCollective() || n.Op() == ir.OpShard
			},
			apply: shareRepeated},
	}
}

func shareRepeated(s *simplifier, n *ir.Node) bool {
	key := s.computes(n)
	first := s.seen[key]
	if first == nil || !s.alive(first) || s.computes(first) != key {
		s.seen[key] = n
		return false
	}
	if first == n {
		return false
	}
	second := s.later(first, n)
	if second == first {
		first = n
	}
	s.seen[key] = second // a third one is nearer to this one
	if second.Meta().Bool(RegatherKey, false) {
		return false
	}
	was, now := s.outcome(first), s.outcome(second)
	if was == nil || now == nil {
		return false
	}
	last, bytes := int32(0), int64(0)
	for k, v := range was {
		if !v.Type().Equal(now[k].Type()) || ir.Returned(v) && ir.Returned(now[k]) { // the caller would hold one storage twice
			return false
		}
		last = max(last, s.lastUse(v))
		bytes += s.bytes(v.Type())
	}
	w, x := was[0].Def(), now[0].Def()
	early := s.later(w, x) == w
	if early && w.Ordered() || slices.ContainsFunc(slices.Concat(was, now), s.writes.Written) || !s.keeps(last, second, bytes) && !s.lastPiece(second) || !s.fire(second) {
		return false
	}
	if early {
		s.f.MoveBefore(w, x)
		s.place(w)
	}
	s.seen[key] = first
	for k, v := range now {
		s.f.ReplaceUses(v, was[k])
	}
	s.release(now...)
	return true
}

// lastPiece reports whether n is a shard and nothing reads its operand after it:
// to keep an earlier equal piece until here instead is to keep less.
func (s *simplifier) lastPiece(n *ir.Node) bool {
	if n.Op() != ir.OpShard || n.Group().Size() < 2 || ir.FromCaller(n.Arg(0)) {
		return false
	}
	return s.lastUse(n.Arg(0).Viewed()) <= s.launched[n.ID()]+1
}

// computes is a text that is equal for nodes that compute the same.
func (s *simplifier) computes(n *ir.Node) string {
	b := strconv.AppendInt(append([]byte(n.Op().Name()), '@'), int64(s.groups.of(n.Group()).id), 10)
	b = n.Attrs().AppendText(b)
	for _, a := range n.Args() {
		b = strconv.AppendInt(append(b, ' '), int64(unalias(a).ID()), 10)
	}
	return string(b)
}

// outcome lists the tensors that a shard or a collective gives, nil if it leaves
// the function in flight.
func (s *simplifier) outcome(n *ir.Node) []*ir.Value {
	if !n.Op().IsCollective() {
		return n.Results()
	}
	if w := n.Result(0).Uses()[0].Node; w.Op() == ir.OpWaitTensor {
		return w.Results()
	}
	return nil
}

// keeps reports whether a tensor of so many bytes, which is dead after so many
// operations have launched, may be kept until n.
func (s *simplifier) keeps(dead int32, n *ir.Node, bytes int64) bool {
	gap := s.launched[n.ID()] - dead
	return gap <= 0 || int64(gap) <= s.ctx.Int("keep-distance") && bytes <= s.ctx.Bytes("keep-bytes")
}

// lastUse is how many operations have launched when the last that reads v or a
// view of it has.
func (s *simplifier) lastUse(v *ir.Value) int32 {
	last := s.launched[v.Def().ID()]
	for _, u := range v.Uses() {
		at := s.launched[u.Node.ID()]
		if deps.Launches(u.Node) {
			at++
		}
		last = max(last, at)
		if u.Node.Op().IsView() {
			for _, r := range u.Node.Results() {
				last = max(last, s.lastUse(r))
			}
		}
	}
	return last
}

// Rules about gathers.
func gatherRules() []simplifyRule {
	return []simplifyRule{
		{name: "shard-of-gather", doc: "this rank's piece of what it gathered: what it brought",
			legal: "same group and dimension",
			gate:  "always; the gather goes if nothing else reads it", special: onlyMoved, exact: exact, anchor: isOp(ir.OpShard), apply: shardOfGather},
		{name: "shard-gather-elsewhere", doc: "all_gather, then this rank's piece along another dimension: all_to_all",
			legal: "same group, static sizes, and only the shard reads the gather",
			gate:  "the cost model, or else the bytes on the wire", special: onlyMoved, exact: exact, anchor: isOp(ir.OpShard), apply: shardGatherElsewhere},
		{name: "merge-gathers", doc: "all_gathers in a row along one dimension over the rows and columns of a grid: one over the grid, declared if need be",
			legal: "the groups' product is a partition whose order gives the same concatenation, and only the second reads the first",
			gate:  "the cost model, or else the bytes on the wire", special: onlyMoved, exact: exact, anchor: isOp(ir.OpWaitTensor), apply: atMembers(mergeGathers)},
	}
}

func shardOfGather(s *simplifier, n *ir.Node) bool {
	m, ok := s.from(n.Arg(0))
	if !ok || !m.is(ir.OpAllGather) || m.dim() != int(n.Attrs().Int("dim", 0)) || !s.groups.equal(m.group(), n.Group()) ||
		!s.fire(n) {
		return false
	}
	return s.replace(n.Result(0), m.operand())
}

func mergeGathers(s *simplifier, m member) bool {
	in, ok := s.from(m.operand())
	return ok && m.is(ir.OpAllGather) && in.is(ir.OpAllGather) && in.dim() == m.dim() && only(m.operand(), m.start) &&
		s.mergeOver(productGather, dimAttrs(m.dim()), in, m)
}

// shardGatherElsewhere exchanges pieces instead of gathering all and keeping one.
// The operand x is this rank's piece along d; wanted is the piece along e. Cut
// dimension e into n pieces, move their number to the front, exchange along it:
// what arrives is numbered by the source's place, which is the place along d.
func shardGatherElsewhere(s *simplifier, n *ir.Node) bool {
	m, ok := s.from(n.Arg(0))
	e := int(n.Attrs().Int("dim", 0))
	if !ok || !m.is(ir.OpAllGather) || m.dim() == e || !s.groups.equal(m.group(), n.Group()) || !only(n.Arg(0), n) {
		return false
	}
	x, ranks := m.operand(), int64(m.group().Size())
	shape, static := x.Type().Shape().Static()
	if !static || ranks < 2 || !s.pays([]traffic{s.of(m)}, []traffic{{ir.OpAllToAll, m.group(), "", s.bytes(x.Type())}}) || !s.fire(n) {
		return false
	}
	dt, at := x.Type().DType(), m.start
	step := func(at *ir.Node, op ir.Op, l attr.List, v *ir.Value, sizes []int64) *ir.Value {
		if v == nil {
			return nil
		}
		if op == ir.OpPermute {
			if slices.IsSorted(l.Ints("dims")) {
				return v
			}
			return s.compute(at, op, nil, l, nil, []*ir.Value{v})
		}
		return s.compute(at, op, nil, l, nil, []*ir.Value{v}, ir.Tensor(dt, sizes...))
	}
	cut := slices.Insert(slices.Clone(shape), e, ranks)
	cut[e+1] /= ranks
	v := x
	if !x.Type().Contiguous() {
		v = step(at, ir.OpClone, nil, v, shape)
	}
	v = step(at, ir.OpView, nil, v, cut)
	v = step(at, ir.OpPermute, permuteAttrs(moved(len(cut), e, 0)), v, nil)
	if v == nil {
		return s.undo()
	}
	start := s.communicate(at, ir.OpAllToAll, m.group(), nil, v, m.start)
	v = s.finish(m.wait, start)
	v = step(m.wait, ir.OpPermute, permuteAttrs(moved(len(cut), 0, m.dim())), v, nil)
	if v != nil && !v.Type().Contiguous() {
		sizes, _ := v.Type().Shape().Static()
		v = step(m.wait, ir.OpClone, nil, v, sizes)
	}
	out, _ := n.Result(0).Type().Shape().Static()
	v = step(m.wait, ir.OpView, nil, v, out)
	if v == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), v)
}

// moved is the order of rank dimensions in which from has moved to place to.
func moved(rank, from, to int) []int64 {
	var dims []int64
	for d := range rank {
		if d != from {
			dims = append(dims, int64(d))
		}
	}
	return slices.Insert(dims, to, int64(from))
}

func permuteAttrs(dims []int64) attr.List {
	return attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(dims...)})
}
