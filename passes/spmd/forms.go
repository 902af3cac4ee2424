package spmd

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
)

// This file has values in the layouts that they were brought into.

// form is a value in a layout.
type form struct {
	layout
	v *ir.Value
}

// value is a tensor of the global function.
type value struct {
	tensor
	dt    ir.DType
	forms []form // the first one is what defines it
	want  layout // by propagation
	vary  set    // ranks along these atoms have tensors of their own
	uses  int
	full  *ir.Node // that makes it of one number, in any layout
	param bool     // or a view of one
	of    *value   // that it is a view of, or converted from to a wider type
	view  *choice  // how
}

// take gives a value of the function what was made for it.
func (p *partitioner) take(v *ir.Value, y *value) {
	have := p.vals[v.ID()]
	have.forms, have.vary = y.forms, y.vary
	p.settle(have)
}

// settle takes from what is wanted the atoms that no layout may name.
func (p *partitioner) settle(y *value) {
	for d, atoms := range y.want.dims {
		y.want = p.g.with(y.want, d, y.shape[d], while(atoms, func(a int8) bool { return y.vary&(1<<a) == 0 }))
	}
	y.want.sum &^= y.vary
}

// across brings a value from a mesh to another: pieces change places where there are as
// many, else it is gathered on the one and cut on the other.
func (p *partitioner) across(t tensor, v *ir.Value, from, to placed) *ir.Value {
	same := true
	for d := range t.shape {
		same = same && from.pad[d] == to.pad[d] && from.g.size(from.dims[d]) == to.g.size(to.dims[d])
	}
	if same && from.sum|to.sum == 0 {
		pairs := from.g.pairs(from.layout, to.g, to.layout)
		return p.waited(ir.OpCollectivePermute, p.group(from.g, from.g.rest(nil)), ir.A("pairs", pairs), v)
	}
	v = p.bring(from.g, t, v, from.layout, whole(t.shape))
	return p.bring(to.g, t, v, whole(t.shape), to.layout)
}

// bring brings a value from a layout to another.
func (p *partitioner) bring(g *grid, t tensor, v *ir.Value, from, to layout) *ir.Value {
	if (from.inParts() || to.inParts()) && !from.equal(to) {
		for _, h := range g.hops(t, from, to) {
			v = p.view(v, g.local(h.from)...)
			v = p.bring(g, h.tensor, v, h.from, h.to)
		}
		return p.view(v, g.local(to)...)
	}
	moves, _ := g.plan(t, from, to)
	for _, m := range moves {
		v = p.emitter.moved(g, t, v, from, m)
		p.cost += m.cost
		if m.kind != cuts {
			p.moves++
			p.moved += (m.cost - latency) / perByte
		}
		from = m.to
	}
	return v
}

// nearest is the form from which a layout is reached most cheaply, -1 if it is made anew, and
// what that costs.
func (p *partitioner) nearest(y *value, to layout) (best int, cost int64) {
	if y.full != nil {
		return -1, launch
	}
	best = -2
	for i, f := range y.forms {
		if f.sum == 0 && to.sum != 0 || f.sum&to.sum != to.sum {
			continue
		}
		_, c := p.g.plan(y.tensor, f.layout, to)
		if best == -2 || c < cost {
			best, cost = i, c
		}
	}
	if l, own, ok := p.lifted(y, to); ok && cost >= latency {
		if _, c := p.nearest(y.of, l); c+own <= cost {
			return -1, c + own
		}
	}
	return best, cost
}

// lifted is the layout of what a value is a view of, or was converted from, that gives the value a
// layout, and what the view or conversion costs beside that.
func (p *partitioner) lifted(y *value, to layout) (l layout, cost int64, ok bool) {
	if y.of == nil || to.sum != 0 {
		return layout{}, 0, false
	}
	c := *y.view
	k := p.g.project(to, c.rule.Results[0], c.rule)
	c.atoms, c.parts, c.args, c.outs = k.atoms, k.parts, nil, nil
	w := rowOf(c.n.Op())
	p.legal(&c, w, 0)
	p.lay(&c, w)
	if w.extra != nil {
		cost = w.extra(p, &c)
	}
	if widens(c.n) {
		cost += launch + (p.g.bytes(y.of.tensor, c.args[0])+p.g.bytes(y.tensor, to))/perMemory
	}
	return c.args[0], cost, c.outs[0].equal(to)
}

// get is a value in a layout.
func (p *partitioner) get(y *value, to layout) *ir.Value {
	if p.err != nil {
		return nil
	}
	best, _ := p.nearest(y, to)
	if best < 0 {
		return p.anew(y, to)
	}
	f := y.forms[best]
	if f.equal(to) {
		return f.v
	}
	moves, _ := p.g.plan(y.tensor, f.layout, to)
	for _, m := range moves {
		v := p.bring(p.g, y.tensor, f.v, f.layout, m.to)
		f = form{m.to, v}
		y.forms = append(y.forms, f)
	}
	if !f.equal(to) { // in parts
		f = form{to, p.bring(p.g, y.tensor, f.v, f.layout, to)}
		y.forms = append(y.forms, f)
	}
	return f.v
}

// anew makes a value in a layout: of a number, or of what it is a view of or was converted from.
func (p *partitioner) anew(y *value, to layout) *ir.Value {
	for _, f := range y.forms {
		if f.equal(to) {
			return f.v
		}
	}
	t := ir.Tensor(y.dt, p.g.local(to)...)
	if y.full != nil {
		v := p.one(ir.OpFull, y.full.Attrs(), nil, t)
		y.forms = append(y.forms, form{to, v})
		return v
	}
	l, _, ok := p.lifted(y, to)
	if !ok {
		p.err = fmt.Errorf("spmd: %%%s: parts of a sum are asked of what is none", p.from.Name())
		return nil
	}
	c := *y.view
	c.args, c.outs = []layout{l}, []layout{to}
	v := p.compute(&c, rowOf(c.n.Op()), []*ir.Value{p.get(y.of, l)}, []ir.Type{t})
	if p.err != nil {
		return nil
	}
	y.forms = append(y.forms, form{to, v[0]})
	return v[0]
}
