package mesh

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/normal"
	"github.com/seed-ee968945/concert/ir"
)

// communicate states what a collective, or a shard, makes of each operand.
func (s *side) communicate(n *ir.Node) {
	if s.g == nil {
		if n.Op() != ir.OpShard && n.Group().Size() != 1 {
			normal.Unsupported("a collective on one device")
		}
		s.vals[n.Result(0).ID()] = s.operands(n)
		return
	}
	atoms, ok := s.g.Group(n.Group())
	if !ok {
		normal.Unsupported("group @%s does not run along axes of the mesh", n.Group().Name)
	}
	if n.Attrs().Has("in_splits") || n.Attrs().Has("out_splits") {
		normal.Unsupported("its splits have several sizes")
	}
	var out []*normal.Tensor
	for _, p := range s.operands(n) {
		d := int(n.Attrs().Int("dim", 0))
		switch n.Op() {
		case ir.OpAllReduce:
			p = s.reduced(p, atoms, n.Reduction())
		case ir.OpReduceScatter:
			p = s.m.Shard(s.reduced(p, atoms, n.Reduction()), atoms, d)
		case ir.OpAllGather:
			p = s.m.AllGather(p, atoms, d)
		case ir.OpShard:
			p = s.m.Shard(p, atoms, d)
		case ir.OpAllToAll:
			p = s.m.AllToAll(p, atoms, 0)
		case ir.OpCollectivePermute:
			p = s.permuted(p, atoms, n.Attrs().Ints("pairs"))
		case ir.OpBroadcast:
			if p.VariesAlong(atoms) {
				normal.Unsupported("a broadcast of what ranks do not share")
			}
		default:
			normal.Unsupported("no rule says what %s does", n.Op())
		}
		out = append(out, p)
	}
	s.vals[n.Result(0).ID()] = out
}

// operands are the tensors of all of them.
func (s *side) operands(n *ir.Node) []*normal.Tensor {
	var out []*normal.Tensor
	for _, v := range n.Args() {
		out = append(out, s.of(v)...)
	}
	return out
}

// reduced is a reduction over atoms. What ranks share counts once for each.
func (s *side) reduced(p *normal.Tensor, atoms []int, how ir.Reduction) *normal.Tensor {
	name, ok := map[ir.Reduction]string{ir.Sum: normal.Sum, ir.Avg: normal.Sum, ir.Max: normal.Max, ir.Min: normal.Min, ir.Product: normal.Prod}[how]
	if !ok {
		normal.Unsupported("no rule says what a reduction by %s does", how)
	}
	p = s.m.Reduce(name, p, nil, atoms)
	if how == ir.Avg {
		n := 1.0
		for _, a := range atoms {
			n *= float64(s.g.Atoms[a].Size)
		}
		p = p.Scale(1 / n)
	}
	return p
}

// permuted is a permutation of ranks that is one of their digits.
func (s *side) permuted(p *normal.Tensor, atoms []int, pairs []int64) *normal.Tensor {
	n, sizes := 1, make([]int, len(atoms))
	for i, a := range atoms {
		sizes[i] = int(s.g.Atoms[a].Size)
		n *= sizes[i]
	}
	from := slices.Repeat([]int{-1}, n)
	for i := 0; i+1 < len(pairs); i += 2 {
		from[pairs[i+1]] = int(pairs[i])
	}
	for _, turn := range []int{1, -1} {
		if by, ok := turned(from, turn); ok && (by != 0 || turn < 0) {
			if q, ok := s.m.Shift(p, atoms, turn, by); ok {
				return q
			}
		}
	}
	unit := make([]int, len(atoms)) // the member whose only digit other than 0 is a 1 in this place
	for k, at := len(atoms)-1, 1; k >= 0; k-- {
		unit[k] = at
		at *= sizes[k]
	}
	to, were := make([]int, len(atoms)), make([]int, len(atoms)) // by digit of the receiver: that of the sender
	for k := range atoms {
		if to[k] = slices.Index(unit, from[unit[k]]); to[k] < 0 || sizes[to[k]] != sizes[k] {
			return s.m.Shuffle(p, atoms, from)
		}
		were[k] = atoms[to[k]]
	}
	for i, src := range from {
		want := 0
		for k := range atoms {
			want += i / unit[k] % sizes[k] * unit[to[k]]
		}
		if src != want {
			return s.m.Shuffle(p, atoms, from)
		}
	}
	return s.m.SwapAtoms(p, atoms, were)
}

// turned is where members have all from that are turn times their number further on.
func turned(from []int, turn int) (by int, ok bool) {
	for i, src := range from {
		if src >= 0 {
			by = src - turn*i
			break
		}
	}
	for i, src := range from {
		if want := turn*i + by; src != want && (src >= 0 || want >= 0 && want < len(from)) {
			return 0, false
		}
	}
	return by, true
}
