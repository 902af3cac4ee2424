package sdy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// visit is the reading of one operation.
type visit struct {
	p       *Program
	fn      *Function
	o       *mlir.Operation
	args    []*binding
	in      *scope
	depth   int
	results []*binding
	line    int // of the function
}

// given are the shardings that an operation states of its results.
func (x *visit) given() ([]*sharding.Sharding, error) {
	p, o := x.p, x.o
	if a, ok := o.Attr("sdy.sharding", "sharding", "out_sharding"); ok {
		if text, _ := p.m.Inside(a); strings.HasPrefix(strings.TrimSpace(text), "[") {
			return p.list(a)
		}
		s, err := p.single(a)
		return []*sharding.Sharding{s}, err
	}
	if strings.HasPrefix(o.Name, "sdy.") {
		for _, f := range o.Flags {
			if text, _ := p.m.Inside(f); strings.HasPrefix(strings.TrimSpace(text), "@") || strings.HasPrefix(strings.TrimSpace(text), "mesh") {
				s, err := p.single(f)
				return []*sharding.Sharding{s}, err
			}
		}
	}
	return nil, nil
}

// define makes the values of the results, and the operation's line.
func (x *visit) define() error {
	p, o := x.p, x.o
	given, err := x.given()
	if err != nil {
		return err
	}
	defines := o.Defines()
	for i, u := range defines {
		var s *sharding.Sharding
		if i < len(given) {
			s = given[i]
		}
		b := &binding{def: o, use: u, at: place{o, u}}
		if strings.HasSuffix(o.Name, "data_flow_edge") && len(x.args) == 1 { // another name for its operand
			b.id, b.flow = x.args[0].id, true
			if s != nil {
				p.Graph.Values[b.id].Sharding = s
			}
		} else {
			if i >= len(o.ResultTypes()) {
				return p.m.ErrorAt(o, 0, "%s does not declare the type of result %d", o.Name, i)
			}
			name := "%" + u.Name
			if len(defines) > 1 {
				name += fmt.Sprintf("#%d", u.Index)
			}
			b.id = p.value(name, o.ResultTypes()[i], s)
		}
		if o.Name == "stablehlo.slice" && len(x.args) == 1 {
			b.from = x.args[0]
		}
		x.in.names[u] = b
		x.results = append(x.results, b)
	}
	x.line = len(x.fn.Lines)
	l := Line{Op: o, Defines: defines, Number: p.m.LineOf(o), Depth: x.depth}
	for _, b := range x.args {
		l.Uses = append(l.Uses, b.use)
	}
	for _, b := range x.results {
		l.Results = append(l.Results, b.id)
	}
	if len(defines) == 0 {
		for i, s := range given {
			if i > 0 {
				l.Sharding += ", "
			}
			l.Sharding += s.String()
		}
	}
	x.fn.Lines = append(x.fn.Lines, l)
	return nil
}

// edge adds a step along which data flows.
func (x *visit) edge(op string, sources []*binding, to *binding, manual *sharding.Manual) {
	shape := x.p.Graph.Values[to.id].Shape
	for _, b := range sources {
		if len(x.p.Graph.Values[b.id].Shape) != len(shape) {
			return // tokens
		}
	}
	to.flow = true
	x.p.steps = append(x.p.steps, pending{operands: sources, results: []*binding{to}, step: sharding.Step{
		Op: op, Line: x.p.m.LineOf(x.o), Rule: sharding.Identity(shape, len(sources), 1), Class: sharding.Through, Manual: manual, Edge: true,
	}})
}

// edged reports whether a value has an edge: all have, or those that the text names.
func (x *visit) edged(b *binding) bool {
	if x.p.edges {
		return true
	}
	found := false
	eachOp(x.fn.f.Body, func(o *mlir.Operation) {
		if o.Name == "sdy.data_flow_edge" && len(o.Uses()) == 1 && o.Uses()[0] == b.use {
			found = true
		}
	})
	return found
}

func eachOp(b *mlir.Block, visit func(o *mlir.Operation)) {
	for _, o := range b.Ops {
		visit(o)
		for _, r := range o.Regions {
			eachOp(r, visit)
		}
	}
}

// branches is an operation whose regions' results are its own: what flows into a loop is,
// too, and the arguments of its regions are the same value.
func (x *visit) branches() error {
	sources := make([][]*binding, len(x.results))
	loop := x.o.Name == "stablehlo.while"
	if loop || x.o.Name == "stablehlo.optimization_barrier" {
		if len(x.args) != len(x.results) {
			return x.p.m.ErrorAt(x.o, 0, "%d operands for %d results", len(x.args), len(x.results))
		}
		for i, b := range x.args {
			sources[i] = append(sources[i], b)
		}
	}
	for n, r := range x.o.Regions {
		in := x.in.inner()
		if loop && len(r.Args) != len(x.results) {
			return x.p.m.ErrorAt(x.o, 0, "%d arguments for %d results", len(r.Args), len(x.results))
		}
		for i, a := range r.Args {
			if loop {
				in.names[mlir.Use{Name: a.Name}] = &binding{id: x.results[i].id, flow: true, use: mlir.Use{Name: a.Name}}
			}
		}
		outs, err := x.p.block(x.fn, r, in, x.depth+1)
		if err != nil {
			return err
		}
		if loop && n == 0 {
			continue // the condition
		}
		if len(outs) != len(x.results) {
			return x.p.m.ErrorAt(x.o, 0, "a region of %d results for %d", len(outs), len(x.results))
		}
		for i, b := range outs {
			sources[i] = append(sources[i], b)
		}
	}
	for i, b := range x.results {
		if x.edged(b) {
			x.edge("edge of "+x.o.Name, sources[i], b, nil)
		}
	}
	return nil
}

// bodies reads regions without data flow, such as that of a reduction: nothing passes into them.
func (x *visit) bodies() error {
	for _, r := range x.o.Regions {
		in := x.in.inner()
		for _, a := range r.Args {
			u := mlir.Use{Name: a.Name}
			in.names[u] = &binding{id: x.p.value("%"+a.Name, a.Type, nil), use: u}
		}
		if _, err := x.p.block(x.fn, r, in, x.depth+1); err != nil {
			return err
		}
	}
	return nil
}

// manual is a computation on each device's pieces along its manual axes.
func (x *visit) manual() error {
	p := x.p
	var lists [2][]*sharding.Sharding
	for i, name := range []string{"in_shardings", "out_shardings"} {
		a, ok := x.o.Attr(name)
		if !ok {
			return p.m.ErrorAt(x.o, 0, "a manual computation without %s", name)
		}
		var err error
		if lists[i], err = p.list(a); err != nil {
			return err
		}
	}
	if len(x.o.Regions) != 1 || len(x.o.Regions[0].Args) != len(x.args) || len(lists[0]) != len(x.args) || len(lists[1]) != len(x.results) {
		return p.m.ErrorAt(x.o, 0, "a manual computation of %d operands and %d results wants a body with as many arguments, and a sharding of each", len(x.args), len(x.results))
	}
	axes, err := x.manualAxes()
	if err != nil {
		return err
	}
	if p.opt.Pipeline {
		for _, s := range slices.Concat(lists[0], lists[1]) {
			s.Reserve(axes)
		}
	}
	body, in := x.o.Regions[0], x.in.inner()
	l := &x.fn.Lines[x.line]
	for i, a := range body.Args {
		m := &sharding.Manual{Outer: lists[0][i], Axes: axes, In: true}
		b := &binding{id: p.value("%"+a.Name, a.Type, m.Erase(lists[0][i])), use: mlir.Use{Name: a.Name}}
		b.at = place{body, b.use}
		in.names[b.use] = b
		l.manual, l.values = append(l.manual, m), append(l.values, b.id)
		outer := x.args[i].origin()
		outer.pins = append(outer.pins, lists[0][i])
		if x.edged(b) {
			x.edge("edge into sdy.manual_computation", x.args[i:i+1], b, m)
		}
	}
	for _, at := range slices.Backward(p.members) {
		if at.in == body {
			p.member(x.fn, in, at, x.depth+1)
		}
	}
	outs, err := p.block(x.fn, body, in, x.depth+1)
	if err != nil {
		return err
	}
	if len(outs) != len(x.results) {
		return p.m.ErrorAt(x.o, 0, "a body of %d results for %d", len(outs), len(x.results))
	}
	l = &x.fn.Lines[x.line]
	for i, b := range x.results {
		m := &sharding.Manual{Outer: lists[1][i], Axes: axes}
		p.Graph.Values[b.id].Sharding = lists[1][i]
		l.manual, l.values = append(l.manual, m), append(l.values, b.id)
		if x.edged(b) {
			x.edge("edge out of sdy.manual_computation", outs[i:i+1], b, m)
		}
	}
	return nil
}

// manualAxes are the names of the axes that the body does not see.
func (x *visit) manualAxes() ([]string, error) {
	a, ok := x.o.Attr("manual_axes")
	if !ok {
		return nil, nil
	}
	text, _ := x.p.m.Inside(a)
	var out []string
	for _, f := range strings.FieldsFunc(text, func(r rune) bool {
		return r == ',' || r == ' ' || r == '\n' || r == '<' || r == '>' || r == '{' || r == '}'
	}) {
		if len(f) < 3 || f[0] != '"' || f[len(f)-1] != '"' {
			return nil, x.p.m.ErrorAt(x.o, 0, "manual_axes: want names in quotes")
		}
		out = append(out, f[1:len(f)-1])
	}
	return out, nil
}

// step is an operation with a rule of its own, or none.
func (x *visit) step() error {
	s := &subject{m: x.p.m, op: x.o, conserve: x.p.opt.Conserve}
	st := sharding.Step{Op: x.o.Name, Line: x.p.m.LineOf(x.o)}
	name := strings.TrimPrefix(x.o.Name, "stablehlo.")
	switch {
	case x.o.Name == "sdy.sharding_constraint", name == "sdy.propagation_barrier", slices.Contains(elementwise, name):
		st.Elementwise, st.Class = true, sharding.Through
	case name == "reshape", name == "transpose":
		st.Class = sharding.Through
	case name == "dynamic_slice", name == "dynamic_update_slice":
		st.Class = sharding.Slicing
	case name == "broadcast_in_dim":
		st.Class = sharding.Broadcast
	case name == "custom_call" && (s.target() == "MoveToDevice" || s.target() == "MoveToHost"):
		st.Class = sharding.Through
	case name == "bitcast_convert":
		in, out := x.p.Graph.Values[x.args[0].id].Shape, x.p.Graph.Values[x.results[0].id].Shape
		if slices.Equal(in, out) {
			st.Elementwise, st.Class = true, sharding.Through
		}
	}
	if name == "sdy.sharding_constraint" && len(x.results) == 1 && len(x.args) == 1 {
		if sh := x.p.Graph.Values[x.results[0].id].Sharding; sh != nil {
			b := x.args[0].origin()
			b.pins = append(b.pins, sh)
		}
	}
	if name == "sdy.propagation_barrier" {
		d := sharding.NoDirection
		if a, ok := x.o.Attr("allowed_direction"); ok {
			d = map[string]sharding.Direction{"FORWARD": sharding.Forward, "BACKWARD": sharding.Backward, "BOTH": sharding.Both}[a.Text]
		}
		st.Allowed = &d
	}
	x.p.steps = append(x.p.steps, pending{step: st, operands: x.args, results: x.results, subject: s, line: x.fn, at: x.line})
	return nil
}
