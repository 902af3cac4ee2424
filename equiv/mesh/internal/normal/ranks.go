package normal

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// This file has tensors whose digits move between dimensions and ranks.

// Place is a tensor that all ranks have as each has a piece of it, by the atoms along each dimension;
// where it does not divide, the last pieces reach over its end.
func (m *Mesh) Place(p *Tensor, atoms [][]int) *Tensor {
	for d, l := range atoms {
		n, pieces := digits.Places(p.Dims[d]), int64(1)
		for _, a := range l {
			pieces *= m.atoms[a]
		}
		if n%pieces != 0 {
			p = m.t.pad(p, d, (n+pieces-1)/pieces*pieces)
		}
	}
	for d, l := range atoms {
		p = m.Shard(p, l, d)
	}
	return p
}

// VariesAlong reports whether ranks that differ in atoms have other elements.
func (p *Tensor) VariesAlong(atoms []int) bool {
	return slices.ContainsFunc(atoms, func(a int) bool { return p.Atoms[a].Dim != digits.None })
}

// clone is a tensor whose dimension and ranks are to change.
func (p *Tensor) clone() *Tensor {
	return &Tensor{p.base, p.coef, slices.Clone(p.Dims), slices.Clone(p.Atoms)}
}

// AllGather has the digits that ranks held in front of a dimension.
func (m *Mesh) AllGather(p *Tensor, atoms []int, d int) *Tensor {
	out := p.clone()
	var front []digits.Digit
	for _, a := range atoms {
		front = append(front, p.Atoms[a])
		out.Atoms[a] = digits.Repeated(m.atoms[a])
	}
	out.Dims[d] = digits.Joined(append(front, p.Dims[d]...))
	return out.unflatten()
}

// Shard gives the first digits of a dimension to the ranks.
func (m *Mesh) Shard(p *Tensor, atoms []int, d int) *Tensor {
	p = m.divisible(p, atoms, d)
	out := p.clone()
	l := p.Dims[d]
	for _, a := range atoms {
		var first digits.Digit
		if first, l = leading(l, m.atoms[a]); first.Dim == digits.None {
			continue
		}
		if out.Atoms[a].Dim != digits.None {
			Unsupported("ranks take shards of what is sharded over them already")
		}
		out.Atoms[a] = first
	}
	out.Dims[d] = digits.Joined(l)
	return out
}

// divisible is a tensor whose dimension can be cut by atoms.
func (m *Mesh) divisible(p *Tensor, atoms []int, d int) *Tensor {
	var by []int64
	for _, a := range atoms {
		by = append(by, m.atoms[a])
	}
	return m.t.divisible(p, d, by)
}

// leading is the first digit of a list, of n places, and what comes after it.
func leading(l []digits.Digit, n int64) (first digits.Digit, rest []digits.Digit) {
	taken, rest, ok := digits.Leading(l, n)
	if !ok || len(taken) != 1 {
		panic(digits.Uneven{})
	}
	return taken[0], rest
}

// AllToAll swaps what ranks hold with the first digits of a dimension.
func (m *Mesh) AllToAll(p *Tensor, atoms []int, d int) *Tensor {
	p = m.divisible(p, atoms, d)
	out := p.clone()
	l := p.Dims[d]
	var front []digits.Digit
	for _, a := range atoms {
		front = append(front, p.Atoms[a])
		out.Atoms[a], l = leading(l, m.atoms[a])
	}
	out.Dims[d] = digits.Joined(append(front, l...))
	return out.unflatten()
}

// SwapAtoms is what ranks have whose atoms are others: of each, the one that it was.
func (m *Mesh) SwapAtoms(p *Tensor, atoms, were []int) *Tensor {
	out := p.clone()
	for k, a := range atoms {
		out.Atoms[a] = p.Atoms[were[k]]
	}
	return out
}

// Shift is what members of a group have from those that are turn times their number and some more
// further on, and zeros where there is none: where members are digits of a tensor, a view of it. False
// where they are none.
func (m *Mesh) Shift(p *Tensor, atoms []int, turn, by int) (out *Tensor, ok bool) {
	var ranks []digits.Digit
	total := int64(1)
	for _, a := range atoms {
		ranks = digits.Add(ranks, p.Atoms[a])
		total *= m.atoms[a]
	}
	if len(ranks) != 1 || ranks[0].Dim == digits.None || ranks[0].Size != total {
		return nil, false
	}
	held := make([]axis, len(p.Atoms))
	for a, y := range p.Atoms {
		held[a] = axis{y.Size, y, 0}
	}
	step := int64(turn) * total
	for _, a := range atoms {
		step /= m.atoms[a]
		held[a] = axis{m.atoms[a], digits.Repeated(m.atoms[a]), step}
	}
	v := view{arg: arg{base: p.base, coef: p.coef}, inner: ranks[0], off: int64(by), dil: 1, fill: &arg{base: m.t.one}}
	return out, digits.Attempt(func() bool {
		out = m.t.viewOf(p, v, -1, nil, held)
		return true
	})
}

// Shuffle is what members of a group have from others, by number, in any order: of -1 zeros.
func (m *Mesh) Shuffle(p *Tensor, atoms, from []int) *Tensor {
	q := p.clone()
	o := m.Op(q)
	dims := make([][]int, len(p.Dims))
	for d := range dims {
		dims[d] = o.Parallel(0, d)
	}
	var had []digits.Digit
	b := &spec{kind: generic, text: "permute " + fmt.Sprint(from)}
	for _, a := range atoms {
		had = append(had, p.Atoms[a])
		q.Atoms[a] = digits.Repeated(m.atoms[a])
		b.own = append(b.own, m.atoms[a])
	}
	o.ranks()
	o.Inner(0, had)
	o.args[0].coef = 1
	b.args, b.loops = o.operands(), o.loops
	coef, base, where := m.t.genericOf(b)
	for i, a := range atoms {
		o.atoms[a] = len(o.loops) + i
	}
	return o.finish(coef*p.coef, base, where, dims)
}
