package simplify

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// Rules that move a shard up: what stands between a collective and the rank's
// piece of its result then works on the piece, and the collective meets the shard.
func shardRules() []simplifyRule {
	shard := isOp(ir.OpShard)
	return []simplifyRule{
		{name: "shard-before-pointwise", doc: "this rank's piece of an elementwise operation: the operation on this rank's pieces",
			legal: "nothing else reads the operation's result",
			gate:  "always: the work shrinks by the number of ranks", special: sameNumbers, exact: exact, anchor: shard, apply: shardBeforePointwise},
		{name: "shard-before-view", doc: "this rank's piece of a view: the view of this rank's piece",
			legal: "the piece is a run of the viewed tensor's dimension, and nothing else reads the view",
			gate:  "a reduction or gather of the shard's group lies above", special: onlyMoved, exact: exact, anchor: shard, apply: shardBeforeView},
		{name: "shard-of-constant", doc: "this rank's piece of a constant: a smaller constant",
			legal: "always", gate: "always", special: onlyMoved, exact: exact, anchor: shard, apply: shardOfConstant},
	}
}

func shardBeforePointwise(s *simplifier, n *ir.Node) bool {
	p := unalias(n.Arg(0)).Def()
	if !elementwise(p) || n.Group().Size() < 2 || !only(n.Arg(0), n) || !s.fire(n) {
		return false
	}
	t, d := p.Result(0).Type(), int(n.Attrs().Int("dim", 0))
	args := slices.Clone(p.Args())
	for i, a := range args {
		if !spans(a.Type(), t.Rank(), d) {
			continue // one element there for all
		}
		if args[i] = s.compute(p, ir.OpShard, n.Group(), dimAttrs(d-t.Rank()+a.Type().Rank()), nil, []*ir.Value{a}); args[i] == nil {
			return s.undo()
		}
		if i > 0 && a == p.Arg(0) {
			s.f.Remove(args[i].Def())
			s.made = s.made[:len(s.made)-1]
			args[i] = args[0]
		}
	}
	v := s.compute(p, p.Op(), nil, p.Attrs(), p, args, ir.TensorOf(t.DType(), n.Result(0).Type().Shape()))
	if v == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), v)
}

func shardOfConstant(s *simplifier, n *ir.Node) bool {
	c := unalias(n.Arg(0)).Def()
	if c.Op() != ir.OpFull || !s.fire(n) {
		return false
	}
	return s.replace(n.Result(0), s.compute(n, ir.OpFull, nil, c.Attrs(), c, nil, n.Result(0).Type()))
}

func shardBeforeView(s *simplifier, n *ir.Node) bool {
	v := unalias(n.Arg(0)).Def()
	if len(v.Args()) != 1 || n.Group().Size() < 2 || !only(n.Arg(0), n) {
		return false
	}
	x := v.Arg(0)
	e := viewedDim(v, int(n.Attrs().Int("dim", 0)), n.Group().Size())
	if e < 0 || !divisible(x.Type(), e, n.Group().Size()) || !s.promising(x, v, n.Group(), 32) || !s.fire(n) {
		return false
	}
	part := s.compute(v, ir.OpShard, n.Group(), dimAttrs(e), nil, []*ir.Value{x})
	if part == nil {
		return s.undo()
	}
	out := s.compute(v, v.Op(), nil, v.Attrs(), v, []*ir.Value{part}, ir.TensorOf(x.Type().DType(), n.Result(0).Type().Shape()))
	if out == nil {
		return s.undo()
	}
	return s.replace(n.Result(0), out)
}

// viewedDim is the dimension of a view's operand whose i-th of so many pieces
// holds the elements of the i-th piece of dimension d of the view, or -1. In a
// reshape that is the dimension with as many elements before it: its pieces are
// then runs of the same length at the same places.
func viewedDim(v *ir.Node, d, pieces int) int {
	to, from := v.Result(0).Type().Shape(), v.Arg(0).Type().Shape()
	switch v.Op() {
	case ir.OpPermute:
		return int(v.Attrs().Ints("dims")[d])
	case ir.OpUnsqueeze:
		if at := int(v.Attrs().Int("dim", 0)); d > at {
			return d - 1
		} else if d == at {
			return -1
		}
		return d
	case ir.OpSqueeze:
		for e, n := range from {
			if slices.Contains(v.Attrs().Ints("dims"), int64(e)) && n.Equal(ir.D(1)) {
				continue
			}
			if d == 0 {
				return e
			}
			d--
		}
	case ir.OpView:
		for e := range from {
			if from[:e].NumElems().Equal(to[:d].NumElems()) && divisible(v.Arg(0).Type(), e, pieces) {
				return e
			}
		}
	}
	return -1
}

// promising reports whether shards that move up from v, which reader reads, meet
// a collective that gives way to them.
func (s *simplifier) promising(v *ir.Value, reader *ir.Node, g *ir.Group, depth int) bool {
	if m, ok := s.from(v); ok {
		switch m.op() {
		case ir.OpAllGather:
			return s.groups.equal(m.group(), g)
		case ir.OpAllReduce:
			return only(v, reader) && s.groups.inside(g, m.group())
		}
		return false
	}
	n := unalias(v).Def()
	if depth == 0 || !only(v, reader) || !elementwise(n) && !isOp(ir.OpView, ir.OpPermute, ir.OpUnsqueeze, ir.OpSqueeze)(n) {
		return false
	}
	for _, a := range n.Args() {
		if s.promising(a, n, g, depth-1) {
			return true
		}
	}
	return false
}
