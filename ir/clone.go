package ir

import (
	"maps"
	"slices"
)

// Clone returns a deep copy of the module. Node and value ids are kept.
func (m *Module) Clone() *Module {
	c := m.cloneOf(m.funcs)
	for _, s := range m.stages {
		d := *s
		if s.Group != nil {
			d.Group = c.groups[s.Group.index]
		}
		c.stages = append(c.stages, &d)
	}
	return c
}

// Clone returns a deep copy of f in a module of its own, which has the functions that its nodes
// run, and else the groups, symbols and checks of f's. Node and value ids are kept. If f is a stage,
// its copy keeps to what the other stages do, though it stands alone.
func (f *Func) Clone() *Func {
	all := []*Func{f}
	for i := 0; i < len(all); i++ {
		for _, n := range all[i].Order() {
			for _, b := range n.Bodies() {
				if b != nil && !slices.Contains(all, b) {
					all = append(all, b)
				}
			}
		}
	}
	c := f.mod.cloneOf(all).funcs[0]
	if c.cutFrom == nil {
		c.cutFrom, _ = f.mod.StagesOf(f)
	}
	return c
}

// cloneOf is a copy of the module with some of its functions, without stages.
func (m *Module) cloneOf(funcs []*Func) *Module {
	c := NewModule(m.World)
	c.source = m.source
	for _, g := range m.groups {
		d := *g
		c.addGroup(&d)
	}
	for _, s := range m.syms {
		d := *s
		c.addSymbol(&d)
	}
	c.checks = slices.Clone(m.checks)
	for _, f := range funcs {
		c.funcs = append(c.funcs, f.clone(c))
	}
	return c
}

func (f *Func) clone(m *Module) *Func {
	c := &Func{Name: f.Name, mod: m, nodes: make([]*Node, len(f.nodes)), values: make([]*Value, len(f.values)),
		names: make(map[string]*Node, len(f.names)), suffix: maps.Clone(f.suffix), version: f.version, pos: f.pos, cutFrom: f.cutFrom}
	for i, v := range f.values {
		if v != nil {
			d := *v
			d.uses = make([]Use, len(v.uses))
			c.values[i] = &d
		}
	}
	for i, n := range f.nodes {
		if n == nil {
			continue
		}
		d := *n
		d.fn = c
		if n.group != nil {
			d.group = m.groups[n.group.index]
		}
		d.args = make([]*Value, len(n.args))
		d.argUse = append([]int32(nil), n.argUse...)
		d.results = make([]*Value, len(n.results))
		c.nodes[i] = &d
		c.names[d.name] = &d
		for j, v := range n.results {
			d.results[j] = c.values[v.id]
			d.results[j].def = &d
			if v.base != nil {
				d.results[j].base = c.values[v.base.id]
			}
		}
	}
	for i, n := range f.nodes {
		if n == nil {
			continue
		}
		d := c.nodes[i]
		for j, v := range n.args {
			d.args[j] = c.values[v.id]
			d.args[j].uses[d.argUse[j]] = Use{d, j}
		}
	}
	for i, n := range f.nodes {
		if n != nil && n.Ordered() {
			c.nodes[i].after, c.nodes[i].before = n.cloneOrder(c.nodes)
		}
	}
	order := make([]*Node, 0, len(f.nodes))
	for _, n := range f.Order() {
		d := c.nodes[n.id]
		d.prev, d.next, d.at = c.last, nil, int32(len(order))
		if c.last != nil {
			c.last.next = d
		} else {
			c.first = d
		}
		c.last = d
		order = append(order, d)
	}
	c.order, c.orderOK = order, true
	return c
}
