package sdy

import (
	"slices"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// group puts the operand into a group; groups that share a value are one.
func (x *visit) group() error {
	a, ok := x.o.Attr("group_id")
	l, err := x.p.m.Ints(a)
	if !ok || err != nil || len(l) != 1 || len(x.args) != 1 || l[0] < 0 || l[0] > 1<<40 {
		return x.p.m.ErrorAt(x.o, 0, "want a value and its group_id, from 0")
	}
	values := x.p.Graph.Values
	v, id := &values[x.args[0].id], int(l[0])+1
	if old := v.Group; old != 0 && old != id {
		for i := range values {
			if values[i].Group == old {
				values[i].Group = id
			}
		}
	}
	v.Group = id
	x.p.grouped = append(x.p.grouped, x.args[0])
	for i := range values {
		if values[i].Group == id && !slices.Equal(values[i].Shape, v.Shape) {
			return x.p.m.ErrorAt(x.o, 0, "values of group %d have several shapes", l[0])
		}
	}
	return nil
}

// conflicts are the members of groups of which several shardings are stated, in the order
// in which they join.
func (p *Program) conflicts() []place {
	first, bad := map[int]*sharding.Sharding{}, map[int]bool{}
	for _, b := range p.grouped {
		v := &p.Graph.Values[b.id]
		if v.Sharding.Free() {
			continue
		}
		if s := first[v.Group]; s == nil {
			first[v.Group] = v.Sharding
		} else if !s.Equal(v.Sharding) {
			bad[v.Group] = true
		}
	}
	var out []place
	for _, b := range p.grouped {
		if bad[p.Graph.Values[b.id].Group] && b.at.in != nil && !slices.Contains(out, b.at) {
			out = append(out, b.at)
		}
	}
	return out
}

// member puts an open constraint between a value and all that use it, which joins the group
// in the value's stead.
func (p *Program) member(fn *Function, in *scope, at place, depth int) {
	b := in.names[at.use]
	v := p.Graph.Values[b.id]
	use := mlir.Use{Name: at.use.Name + ".group", Index: at.use.Index}
	c := &binding{use: use, of: b}
	c.id = len(p.Graph.Values)
	b.uses++
	value := sharding.Value{Name: name(use), Shape: v.Shape}
	if m := v.Sharding; m != nil {
		value.Sharding = sharding.Open(m.Mesh, len(v.Shape))
	}
	p.Graph.Values = append(p.Graph.Values, value)
	in.names[at.use] = c
	p.steps = append(p.steps, pending{operands: []*binding{b}, results: []*binding{c}, step: sharding.Step{
		Op: "sdy.sharding_constraint", Rule: sharding.Identity(v.Shape, 1, 1), Elementwise: true, Class: sharding.Through,
	}})
	fn.Lines = append(fn.Lines, Line{Defines: []mlir.Use{use}, Uses: []mlir.Use{b.use}, Results: []int{c.id}, Depth: depth})
}

// origin is the value that the text names.
func (b *binding) origin() *binding {
	if b.of != nil {
		return b.of
	}
	return b
}
