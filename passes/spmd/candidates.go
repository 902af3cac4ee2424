package spmd

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// This file has the ways to cut an operation's factors among which the cheapest is chosen.

// cutting is a way to cut factors.
type cutting struct {
	atoms [][]int8
	parts [][]part
	bytes int64 // of the tensor that lies so
}

// candidates are ways to give factors atoms: as each tensor lies or is wanted, alone and with
// what the others add, with another factor in the place of one that cannot be cut, and none.
func (p *partitioner) candidates(n *ir.Node, rule *sharding.Rule, w row) []cutting {
	seeds := p.seeds(n, rule)
	out := []cutting{{atoms: make([][]int8, len(rule.Factors)), parts: make([][]part, len(rule.Factors))}}
	keep := func(c cutting) {
		same := func(o cutting) bool {
			return slices.EqualFunc(o.atoms, c.atoms, slices.Equal) && slices.EqualFunc(o.parts, c.parts, slices.Equal)
		}
		if !slices.ContainsFunc(out, same) {
			out = append(out, c)
		}
	}
	for _, s := range seeds {
		keep(s)
		all := cutting{atoms: slices.Clone(s.atoms), parts: slices.Clone(s.parts)}
		used := setOf(slices.Concat(all.atoms...))
		for _, o := range seeds {
			for f, l := range o.atoms {
				if len(all.atoms[f]) == 0 && setOf(l)&used == 0 {
					all.atoms[f], all.parts[f], used = l, o.parts[f], used|setOf(l)
				}
			}
		}
		keep(all)
		p.instead(n, rule, w, all, keep)
	}
	return out
}

// instead gives the atoms of factors that cannot be cut to each other one that can.
func (p *partitioner) instead(n *ir.Node, rule *sharding.Rule, w row, c cutting, keep func(cutting)) {
	for f, l := range c.atoms {
		if len(l) == 0 || c.parts[f] != nil || rule.Factors[f].Kind != sharding.NeedReplication && w.cuts(n, rule, f) {
			continue
		}
		for o := range rule.Factors {
			if rule.Factors[o].Kind != sharding.PassThrough || len(c.atoms[o]) > 0 || !w.cuts(n, rule, o) || rule.Factors[o].Size%p.g.size(l) != 0 {
				continue
			}
			moved := cutting{atoms: slices.Clone(c.atoms), parts: slices.Clone(c.parts)}
			moved.atoms[f], moved.atoms[o] = nil, l
			keep(moved)
		}
	}
}

// seeds are the ways in which tensors of an operation lie or are wanted, the largest first.
func (p *partitioner) seeds(n *ir.Node, rule *sharding.Rule) []cutting {
	var seeds []cutting
	add := func(y *value, l layout, t sharding.Tensor) {
		if l.split() == 0 {
			return
		}
		c := p.g.project(l, t, rule)
		c.bytes = y.bytes
		for _, k := range y.shape {
			c.bytes *= k
		}
		seeds = append(seeds, c)
	}
	for i, v := range n.Args() {
		y := p.vals[v.ID()]
		add(y, y.forms[0].layout, rule.Operands[i])
		if len(y.forms) > 1 || !y.want.equal(y.forms[0].layout) {
			add(y, y.want, rule.Operands[i])
		}
	}
	for i, v := range n.Results() {
		y := p.vals[v.ID()]
		add(y, y.want, rule.Results[i])
	}
	slices.SortStableFunc(seeds, func(a, b cutting) int { return int(min(1, max(-1, b.bytes-a.bytes))) })
	return seeds
}

// project takes a layout from dimensions to factors: the atoms of a dimension go to its
// factors from the major one on, as long as they divide, and those of its parts to the factors
// that these are.
func (g *grid) project(l layout, t sharding.Tensor, r *sharding.Rule) cutting {
	out := cutting{atoms: make([][]int8, len(r.Factors)), parts: make([][]part, len(r.Factors))}
	for d, factors := range t {
		atoms, parts := l.dims[d], l.of(d)
		if len(factors) == 1 {
			out.atoms[factors[0]], out.parts[factors[0]] = atoms, parts
			continue
		}
		if parts == nil {
			parts = []part{{l.pad[d], len(atoms)}}
		}
		have := parts[0]
		parts = parts[1:]
		for _, f := range factors {
			left := r.Factors[f].Size
			if left == 1 {
				continue
			}
			if have.size == 1 && len(parts) > 0 {
				have, parts = parts[0], parts[1:]
			}
			if have.size%left != 0 && have.n > 0 && (f != factors[len(factors)-1] || len(parts) > 0) {
				break
			}
			have.size = max(1, have.size/left)
			for have.n > 0 && left%g.atoms[atoms[0]].size == 0 {
				left /= g.atoms[atoms[0]].size
				out.atoms[f], atoms, have.n = append(out.atoms[f], atoms[0]), atoms[1:], have.n-1
			}
			if left > 1 && have.n > 0 {
				break
			}
		}
	}
	return out
}
