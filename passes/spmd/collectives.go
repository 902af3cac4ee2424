package spmd

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// This file has what a function says itself of its ranks: collectives and pieces, such as
// those of manual computations. Where a group is of ranks along atoms, nothing need be done
// at once: what is gathered are pieces of a tensor that lies along them, what is reduced are
// parts of a sum, and a rank's piece is what it has of a tensor that is cut so.

// apart is a layout for a value in which atoms are free, and what is cut divides.
func (p *partitioner) apart(y *value, atoms set, d int) layout {
	l := y.forms[0].layout.reduced().clone()
	if y.forms[0].sum&atoms != 0 || len(y.forms) > 1 {
		l = y.want.reduced().clone()
	}
	for k := range l.dims {
		keep := while(l.dims[k], func(a int8) bool { return atoms&(1<<a) == 0 })
		l = p.g.with(l, k, y.shape[k], slices.Clone(keep))
		if k == d && l.pad[k] != y.shape[k] {
			l = p.g.with(l, k, y.shape[k], nil)
		}
	}
	return l
}

// collective takes a collective apart, and remembers what its wait gives.
func (p *partitioner) collective(n *ir.Node) {
	atoms, ok := p.g.find(n.Group().Ranks)
	_, uneven := n.Attrs().Get("in_splits")
	for i, v := range n.Args() {
		x := p.vals[v.ID()]
		y := newValue(n.Result(0).Type().Elems()[i])
		y.vary = x.vary
		switch {
		case ok && n.Op() == ir.OpAllGather:
			p.gathered(x, y, atoms, int(n.Attrs().Int("dim", 0)))
		case ok && n.Op() == ir.OpAllReduce && x.dt != ir.Bool:
			p.reduced(x, y, atoms, string(n.Reduction()))
		case ok && n.Op() == ir.OpReduceScatter && x.dt != ir.Bool:
			sum := &value{tensor: x.tensor, dt: x.dt, vary: x.vary}
			p.reduced(x, sum, atoms, string(n.Reduction()))
			p.cutAlong(sum, y, atoms, int(n.Attrs().Int("dim", 0)), whole(y.shape))
		default:
			all := p.get(x, whole(x.shape))
			if p.err != nil {
				return
			}
			a := p.op(n.Op(), n.Group(), n.Attrs(), []*ir.Value{all}, ir.Async(n.Result(0).Type().Elems()[i]))
			y.forms = []form{{whole(y.shape), p.op(ir.OpWaitTensor, nil, nil, a)[0]}}
			if y.vary |= setOf(atoms); !ok || uneven {
				y.vary = set(1)<<len(p.g.atoms) - 1
			}
			if ok && (n.Op() == ir.OpAllReduce || n.Op() == ir.OpAllGather || n.Op() == ir.OpBroadcast) {
				y.vary = x.vary &^ setOf(atoms)
			}
		}
		p.flying[n.ID()] = append(p.flying[n.ID()], y)
	}
}

// gathered is a tensor of which each rank along atoms has a piece.
func (p *partitioner) gathered(x, y *value, atoms []int8, d int) {
	l := p.apart(x, setOf(atoms), d)
	v := p.get(x, l)
	out := l.clone()
	out.dims[d], out.pad[d] = slices.Concat(atoms, l.dims[d]), y.shape[d]
	y.forms, y.vary = []form{{out, v}}, x.vary&^setOf(atoms)
}

// reduced is the reduction of what ranks along atoms have.
func (p *partitioner) reduced(x, y *value, atoms []int8, reduce string) {
	l := p.apart(x, setOf(atoms), -1)
	v := p.get(x, l)
	l.sum, l.reduce = setOf(atoms), reduce
	y.forms, y.vary = []form{{l, v}}, x.vary&^setOf(atoms)
}

// cutAlong is each rank's piece along atoms.
func (p *partitioner) cutAlong(x, y *value, atoms []int8, d int, want layout) {
	l := whole(x.shape)
	for k := range want.dims {
		keep := while(want.dims[k], func(a int8) bool { return (setOf(atoms)|x.vary)&(1<<a) == 0 })
		if k == d {
			if x.shape[k]%p.g.size(slices.Concat(atoms, keep)) != 0 {
				keep = nil
			}
			keep = slices.Concat(atoms, keep)
		}
		l = p.g.with(l, k, x.shape[k], slices.Clone(keep))
	}
	v := p.get(x, l)
	l = l.clone()
	l.dims[d], l.pad[d] = l.dims[d][len(atoms):], y.shape[d]
	y.forms, y.vary = []form{{l, v}}, x.vary|setOf(atoms)
}

// piece is a rank's piece of a tensor.
func (p *partitioner) piece(n *ir.Node) {
	x, y := p.vals[n.Arg(0).ID()], newValue(n.Result(0).Type())
	atoms, ok := p.g.find(n.Group().Ranks)
	if ok && setOf(atoms)&x.vary == 0 {
		p.cutAlong(x, y, atoms, int(n.Attrs().Int("dim", 0)), p.vals[n.Result(0).ID()].want)
	} else {
		all := p.get(x, whole(x.shape))
		y.forms = []form{{whole(y.shape), p.op(ir.OpShard, n.Group(), n.Attrs(), []*ir.Value{all})[0]}}
		if y.vary = x.vary | setOf(atoms); !ok {
			y.vary = set(1)<<len(p.g.atoms) - 1
		}
	}
	p.take(n.Result(0), y)
}
