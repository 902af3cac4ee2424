package simplify

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// member is a tensor that a collective gives: operand and result k of start, and
// the wait that ends it.
type member struct {
	start, wait *ir.Node
	k           int
}

// from finds the collective that v comes out of, looking through aliases. A
// collective that an input holds is not one: nobody here started it. One over a
// single rank is not either: canonicalize removes it.
func (s *simplifier) from(v *ir.Value) (member, bool) {
	v = unalias(v)
	w := v.Def()
	if !ends(w) {
		return member{}, false
	}
	return member{w.Arg(0).Def(), w, v.Index()}, true
}

// ends reports whether n waits for a collective of this function over several ranks.
func ends(n *ir.Node) bool {
	if n.Op() != ir.OpWaitTensor {
		return false
	}
	start := n.Arg(0).Def()
	return start.Op().IsCollective() && start.Group().Size() > 1 && !start.Ordered() && !n.Ordered()
}

// members lists the tensors of a wait that still have uses.
func (s *simplifier) members(w *ir.Node) []member {
	if !ends(w) {
		return nil
	}
	var ms []member
	for k, r := range w.Results() {
		if len(r.Uses()) > 0 {
			ms = append(ms, member{w.Arg(0).Def(), w, k})
		}
	}
	return ms
}

// atMembers makes a rule of one that looks at one tensor of a wait.
func atMembers(apply func(s *simplifier, m member) bool) func(s *simplifier, w *ir.Node) bool {
	return func(s *simplifier, w *ir.Node) bool {
		for _, m := range s.members(w) {
			if apply(s, m) {
				return true
			}
		}
		return false
	}
}

func (m member) op() ir.Op               { return m.start.Op() }
func (m member) is(op ir.Op) bool        { return m.start != nil && m.start.Op() == op }
func (m member) operand() *ir.Value      { return m.start.Arg(m.k) }
func (m member) value() *ir.Value        { return m.wait.Result(m.k) }
func (m member) group() *ir.Group        { return m.start.Group() }
func (m member) reduction() ir.Reduction { return m.start.Reduction() }
func (m member) dim() int                { return int(m.start.Attrs().Int("dim", 0)) }
func (m member) reduces() bool           { return m.is(ir.OpAllReduce) || m.is(ir.OpReduceScatter) }

// unalias follows aliases to what they name.
func unalias(v *ir.Value) *ir.Value {
	for v.Def().Op() == ir.OpAlias {
		v = v.Def().Arg(0)
	}
	return v
}

// only reports whether n alone reads v, and through v, if v is an alias, what it
// names: then what v names is gone once n no longer reads v.
func only(v *ir.Value, n *ir.Node) bool {
	for {
		for _, u := range v.Uses() {
			if u.Node != n {
				return false
			}
		}
		if v.Def().Op() != ir.OpAlias {
			return true
		}
		n = v.Def()
		v = n.Arg(0)
	}
}

// elementwise reports whether n computes each element from the elements at its
// place and from nothing else, without effects.
func elementwise(n *ir.Node) bool { return n.Op().Info().Elementwise && n.Pure() }

// replKey is a question to replicated.
type replKey struct {
	v ir.ValueID
	g int32
}

// maxReplicated bounds how far replicated looks back, and with it the stack.
const maxReplicated = 10000

// replicated reports whether v is known to be the same, sizes too, on all ranks of each
// subgroup of g: it came out of a collective that makes it so, or deterministic
// operations made it of such tensors and of constants. Inputs are not known to be.
// Amortised O(1) per value and group.
func (s *simplifier) replicated(v *ir.Value, g *ir.Group) bool {
	return s.isReplicated(v, g, maxReplicated)
}

func (s *simplifier) isReplicated(v *ir.Value, g *ir.Group, depth int) bool {
	if g.Size() == 1 {
		return true
	}
	q := replKey{v.ID(), s.groups.of(g).id}
	if ok, known := s.same[q]; known {
		return ok
	}
	ok := depth > 0 && s.makesSame(v, g, depth)
	s.same[q] = ok
	return ok
}

func (s *simplifier) makesSame(v *ir.Value, g *ir.Group, depth int) bool {
	n := v.Def()
	if m, ok := s.from(v); ok {
		switch m.op() {
		case ir.OpAllReduce, ir.OpAllGather, ir.OpBroadcast:
			return s.groups.inside(g, m.group())
		}
		return false
	}
	switch {
	case n.Op() == ir.OpInput || n.Op() == ir.OpCall || n.Op().Info().Bodies != nil || n.Op().Info().Grouped || !n.Pure() || !n.Op().IsView() && !deps.Launches(n):
		return false
	case n.Op() == ir.OpAttention && n.Attrs().Float("dropout", 0) != 0:
		return false
	}
	var sizes []ir.Dim
	for _, a := range n.Args() {
		if !s.isReplicated(a, g, depth-1) {
			return false
		}
		sizes = append(sizes, a.Type().Shape()...)
	}
	return !slices.ContainsFunc(v.Type().Shape(), func(d ir.Dim) bool { return !d.Determined(sizes) }) // symbols differ by rank
}

// bytes is the size of a type, symbols at their hints.
func (s *simplifier) bytes(t ir.Type) int64 { return s.f.Module().Hint(t.Bytes()) }

// moved is the size by which a collective is costed: over its members the larger
// of operand and result.
func (s *simplifier) moved(n *ir.Node) int64 {
	sum := int64(0)
	for k, t := range n.Result(0).Type().Tensors() {
		sum += max(s.bytes(n.Arg(k).Type()), s.bytes(t))
	}
	return sum
}

// traffic is a collective that a rewrite would remove or make.
type traffic struct {
	op    ir.Op
	group *ir.Group
	red   ir.Reduction
	bytes int64 // the larger of operand and result
}

// of is the traffic of one tensor of a collective.
func (s *simplifier) of(m member) traffic {
	return traffic{m.op(), m.group(), m.reduction(), max(s.bytes(m.operand().Type()), s.bytes(m.value().Type()))}
}

// whole is the traffic of a collective with all its tensors.
func (s *simplifier) whole(n *ir.Node) traffic {
	return traffic{n.Op(), n.Group(), n.Reduction(), s.moved(n)}
}

// pays compares the time of collectives before and after a rewrite: by the cost
// model, or, if that is silent, by the bytes on the wire and a latency for each.
func (s *simplifier) pays(before, after []traffic) bool {
	b, ok := s.modelled(before)
	a, ok2 := s.modelled(after)
	if !ok || !ok2 {
		b, a = wire(before), wire(after)
	}
	return a <= b
}

func (s *simplifier) modelled(ts []traffic) (ms float64, ok bool) {
	if s.ctx.Costs() == nil {
		return 0, false
	}
	for _, t := range ts {
		one, ok := s.ctx.Costs().CommMs(t.op, t.group, t.red, t.bytes)
		if !ok {
			return 0, false
		}
		ms += one
	}
	return ms, true
}

// latencyBytes is what a link moves in about the time that starting a collective
// takes: 25 us at 400 GB/s. It matters only where no cost model is given.
const latencyBytes = 10 << 20

func wire(ts []traffic) float64 {
	sum := 0.0
	for _, t := range ts {
		n := float64(t.group.Size())
		b := float64(t.bytes) * (n - 1) / n
		if t.op == ir.OpAllReduce {
			b *= 2
		}
		sum += b + latencyBytes
	}
	return sum
}
