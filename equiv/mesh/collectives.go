package mesh

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/ir"
)

// communicate states what a collective, or a shard, makes of each operand.
func (s *side) communicate(n *ir.Node) {
	if s.g == nil {
		if n.Op() != ir.OpShard && n.Group().Size() != 1 {
			refuse("a collective on one device")
		}
		s.vals[n.Result(0).ID()] = s.concat(n)
		return
	}
	atoms, ok := s.g.Group(n.Group())
	if !ok {
		refuse("group @%s does not run along axes of the mesh", n.Group().Name)
	}
	if n.Attrs().Has("in_splits") || n.Attrs().Has("out_splits") {
		refuse("its pieces have several sizes")
	}
	var out []*piece
	for _, p := range s.concat(n) {
		d := int(n.Attrs().Int("dim", 0))
		switch n.Op() {
		case ir.OpAllReduce:
			p = s.reduced(p, atoms, n.Reduction())
		case ir.OpReduceScatter:
			p = s.shard(s.reduced(p, atoms, n.Reduction()), atoms, d)
		case ir.OpAllGather:
			p = s.gathered(p, atoms, d)
		case ir.OpShard:
			p = s.shard(p, atoms, d)
		case ir.OpAllToAll:
			p = s.exchanged(p, atoms)
		case ir.OpCollectivePermute:
			p = s.permuted(p, atoms, n.Attrs().Ints("pairs"))
		case ir.OpBroadcast:
			for _, a := range atoms {
				if p.held[a].Dim != digits.None {
					refuse("a broadcast of what ranks do not share")
				}
			}
		default:
			refuse("no rule says what %s does", n.Op())
		}
		out = append(out, p)
	}
	s.vals[n.Result(0).ID()] = out
}

// concat are the operands' tensors.
func (s *side) concat(n *ir.Node) []*piece {
	var out []*piece
	for _, v := range n.Args() {
		out = append(out, s.of(v)...)
	}
	return out
}

// reduced is a reduction over atoms. What ranks share counts once for each.
func (s *side) reduced(p *piece, atoms []int, how ir.Reduction) *piece {
	u := &use{s: s, t: s.t, in: []*piece{p}, held: make([]int, s.atoms())}
	dims := make([][]int, len(p.dims))
	for d := range dims {
		dims[d] = u.one(0, d)
	}
	n := 1.0
	u.ranks()
	for _, a := range atoms {
		u.loops[u.held[a]].summed = true
		n *= float64(s.g.Atoms[a].Size)
	}
	switch how {
	case ir.Sum, ir.Avg:
		coef, base, where := s.t.multiply(u.operands(), u.loops)
		if how == ir.Avg {
			coef /= n
		}
		return u.finish(coef, base, where, dims)
	case ir.Max, ir.Min, ir.Product:
		name := map[ir.Reduction]string{ir.Max: "amax", ir.Min: "amin", ir.Product: "prod"}[how]
		coef, base, where := s.t.folded(name, u.operands()[0], u.loops)
		return u.finish(coef, base, where, dims)
	}
	refuse("no rule says what a reduction by %s does", how)
	return nil
}

// gathered has the digits that ranks held in front of a dimension.
func (s *side) gathered(p *piece, atoms []int, d int) *piece {
	out := *p
	out.dims, out.held = slices.Clone(p.dims), slices.Clone(p.held)
	var front []digits.Digit
	for _, a := range atoms {
		front = append(front, p.held[a])
		out.held[a] = digits.Repeated(s.g.Atoms[a].Size)
	}
	out.dims[d] = digits.Joined(append(front, p.dims[d]...))
	return &out
}

// shard gives the first digits of a dimension to the ranks.
func (s *side) shard(p *piece, atoms []int, d int) *piece {
	var by []int64
	for _, a := range atoms {
		by = append(by, s.g.Atoms[a].Size)
	}
	p = s.t.divisible(p, d, by)
	out := *p
	out.dims, out.held = slices.Clone(p.dims), slices.Clone(p.held)
	l := p.dims[d]
	for _, a := range atoms {
		taken, rest, ok := digits.Leading(l, s.g.Atoms[a].Size)
		if !ok || len(taken) != 1 {
			panic(digits.Uneven{})
		}
		if l = rest; taken[0].Dim == digits.None {
			continue
		}
		if out.held[a].Dim != digits.None {
			refuse("ranks take pieces of what they have pieces of already")
		}
		out.held[a] = taken[0]
	}
	out.dims[d] = digits.Joined(l)
	return &out
}

// exchanged swaps what ranks hold with the first digits of dimension 0.
func (s *side) exchanged(p *piece, atoms []int) *piece {
	out := *p
	out.dims, out.held = slices.Clone(p.dims), slices.Clone(p.held)
	l := p.dims[0]
	var front []digits.Digit
	for _, a := range atoms {
		taken, rest, ok := digits.Leading(l, s.g.Atoms[a].Size)
		if !ok || len(taken) != 1 {
			panic(digits.Uneven{})
		}
		front = append(front, p.held[a])
		out.held[a], l = taken[0], rest
	}
	out.dims[0] = digits.Joined(append(front, l...))
	return &out
}

// permuted is a permutation of ranks that is one of their digits.
func (s *side) permuted(p *piece, atoms []int, pairs []int64) *piece {
	n, sizes := 1, make([]int, len(atoms))
	for i, a := range atoms {
		sizes[i] = int(s.g.Atoms[a].Size)
		n *= sizes[i]
	}
	from := slices.Repeat([]int{-1}, n)
	for i := 0; i+1 < len(pairs); i += 2 {
		from[pairs[i+1]] = int(pairs[i])
	}
	if q, ok := s.further(p, atoms, from); ok {
		return q
	}
	unit := func(k int) int { // the member whose only digit other than 0 is a 1 in place k
		out := 1
		for _, m := range sizes[k+1:] {
			out *= m
		}
		return out
	}
	to := make([]int, len(atoms)) // by digit of the receiver: that of the sender
	for k := range atoms {
		src := from[unit(k)]
		if to[k] = slices.IndexFunc(indices(len(atoms)), func(j int) bool { return unit(j) == src }); to[k] < 0 || sizes[to[k]] != sizes[k] {
			return s.shuffled(p, atoms, from)
		}
	}
	for i, src := range from {
		want := 0
		for k := range atoms {
			want += i / unit(k) % sizes[k] * unit(to[k])
		}
		if src != want {
			return s.shuffled(p, atoms, from)
		}
	}
	out := *p
	out.held = slices.Clone(p.held)
	for k, a := range atoms {
		out.held[a] = p.held[atoms[to[k]]]
	}
	return &out
}

// further is what each member of a group has from the one so many further on, or so many further
// on than 0 less its number, and zeros where there is none: where members are digits of a tensor,
// a view of it.
func (s *side) further(p *piece, atoms, from []int) (out *piece, ok bool) {
	for _, turn := range []int{1, -1} {
		if by, ok := turned(from, turn); ok && (by != 0 || turn < 0) {
			if ok = digits.Attempt(func() (ok bool) {
				out, ok = s.turned(p, atoms, turn, by)
				return ok
			}); ok {
				return out, true
			}
		}
	}
	return nil, false
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

// turned is what members of a group have from those that are turn times their number further on.
func (s *side) turned(p *piece, atoms []int, turn, by int) (*piece, bool) {
	var ranks []digits.Digit
	total := int64(1)
	for _, a := range atoms {
		ranks = digits.Add(ranks, p.held[a])
		total *= s.g.Atoms[a].Size
	}
	if len(ranks) != 1 || ranks[0].Dim == digits.None || ranks[0].Size != total {
		return nil, false
	}
	v := view{arg: arg{base: p.base, coef: p.coef}, inner: ranks[0], off: int64(by), dil: 1, fill: &arg{base: s.t.one}}
	for _, l := range p.dims {
		for _, y := range l {
			v.axes = append(v.axes, axis{y.Size, y, 0})
		}
	}
	held := len(v.axes)
	step := int64(turn) * ranks[0].Size
	for a, y := range p.held {
		v.axes = append(v.axes, axis{y.Size, y, 0})
		if slices.Contains(atoms, a) {
			v.axes[held+a].at = digits.Repeated(y.Size)
		}
	}
	for _, a := range atoms {
		step /= p.held[a].Size
		v.axes[held+a].coef = step
	}
	c, e, where := s.t.view(v)
	out := &piece{base: e, coef: c}
	k := 0
	for _, l := range p.dims {
		out.dims = append(out.dims, digits.Flat(where[k:k+len(l)]))
		k += len(l)
	}
	out.held = digits.Singles(where[held:])
	out.check()
	return out, true
}

// shuffled is what members of a group have from others, by number, in any order: of -1 zeros.
func (s *side) shuffled(p *piece, atoms, from []int) *piece {
	q := *p
	q.coef, q.held = 1, slices.Clone(p.held)
	u := &use{s: s, t: s.t, in: []*piece{&q}, held: make([]int, s.atoms())}
	dims := make([][]int, len(p.dims))
	for d := range dims {
		dims[d] = u.one(0, d)
	}
	var had []digits.Digit
	b := &spec{kind: block, text: "permute " + fmt.Sprint(from)}
	for _, a := range atoms {
		had = append(had, p.held[a])
		q.held[a] = digits.Repeated(s.g.Atoms[a].Size)
		b.own = append(b.own, s.g.Atoms[a].Size)
	}
	u.ranks()
	u.inner(0, had)
	b.args, b.loops = u.operands(), u.loops
	coef, base, where := s.t.blockOf(b)
	for i, a := range atoms {
		u.held[a] = len(u.loops) + i
	}
	return u.finish(coef*p.coef, base, where, dims)
}
