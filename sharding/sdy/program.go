// Package sdy reads StableHLO programs with annotations of the sdy dialect into graphs of
// package sharding, and prints the inferred shardings.
//
// program.go walks functions, flow.go the operations through which data flows from region
// to region, rules.go and its neighbours have the rule of each operation of StableHLO, and
// print.go prints the result.
//
// Not implemented: splitting constants by use, and the reshards and collectives that
// Shardy inserts after propagation.
package sdy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// Options say how a program becomes a graph.
type Options struct {
	Conserve bool // rules let nothing pass where data would move
	Pipeline bool // as Shardy's whole pipeline: constraints hold for what they are of, calls pass, shardings are closed
	Joined   bool // all calls of a function are sharded alike: there is one copy of it
}

// Program is a module as propagation sees it.
type Program struct {
	Graph sharding.Graph
	Funcs []*Function
	m     *mlir.Module
	opt   Options
	table map[string]maker
	mesh  []*sharding.Mesh
	edges bool // the text has no edges of its own
	steps []pending
	funcs map[string][]*Function // by name in the text: the copies, one for each call

	grouped []*binding // in the order of the text
	members []place    // of groups whose shardings conflict: each has a constraint

	copies    bool // calls have copies of what they call
	funcEdges bool // the text has edges between functions
}

// Function is a function of a program, or a call's copy of one.
type Function struct {
	Name    string // the text's, or for another copy one that is made of it
	Args    []int  // values
	Results []int
	Lines   []Line
	args    []*binding
	returns []*binding
	calls   []call // of it
	f       *mlir.Func
}

// Line is an operation of a function, those of regions behind the one that holds them.
type Line struct {
	Op       *mlir.Operation // nil of a constraint on a member of a group
	Defines  []mlir.Use
	Number   int // of the text
	Depth    int
	Uses     []mlir.Use
	Results  []int
	Sharding string // that an operation without results states
	Rule     *sharding.Rule
	callee   *Function
	manual   []*sharding.Manual // of operands, then results
	values   []int
}

// binding is a value of the text: several may stand for one of the graph.
type binding struct {
	id   int
	uses int
	def  *mlir.Operation
	from *binding // the first operand of a slice
	use  mlir.Use
	flow bool // an edge's
	feed []string
	pins []*sharding.Sharding // of constraints that hold for it
	of   *binding             // of a member of a group: what its constraint is of
	at   place
}

// place is where the text names a value: as a result of an operation or an argument of a block.
type place struct {
	in  any
	use mlir.Use
}

// scope finds bindings by name.
type scope struct {
	names map[mlir.Use]*binding
	up    *scope
}

func (s *scope) find(u mlir.Use) *binding {
	for ; s != nil; s = s.up {
		if b, ok := s.names[u]; ok {
			return b
		}
	}
	return nil
}

func (s *scope) inner() *scope { return &scope{map[mlir.Use]*binding{}, s} }

// pending is a step whose values are known once the program is read.
type pending struct {
	step     sharding.Step
	operands []*binding
	results  []*binding
	subject  *subject
	line     *Function // and the line, by number
	at       int
}

// call is a use of a function.
type call struct {
	args, results []*binding
}

// Load makes a graph of a module. The error is a *diag.Finding with a place.
func Load(m *mlir.Module, opt Options) (*Program, error) {
	if err := older(m); err != nil {
		return nil, err
	}
	p, err := load(m, opt, nil)
	if err == nil {
		if l := p.conflicts(); l != nil {
			return load(m, opt, l)
		}
	}
	return p, err
}

// load is Load with constraints on members of groups.
func load(m *mlir.Module, opt Options, members []place) (*Program, error) {
	p := &Program{m: m, opt: opt, table: table(), edges: true, funcs: map[string][]*Function{}, members: members}
	for _, o := range m.Others {
		if o.Name != "sdy.mesh" {
			continue
		}
		if err := p.addMesh(o); err != nil {
			return nil, err
		}
	}
	for _, f := range m.Funcs {
		if f.Body != nil && hasEdges(f.Body) {
			p.edges = false
		}
	}
	if err := p.functions(); err != nil {
		return nil, err
	}
	p.results()
	if opt.Pipeline || p.funcEdges {
		p.callEdges()
	}
	if opt.Pipeline {
		p.constrain()
	}
	for i := range p.steps {
		if err := p.finish(&p.steps[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func hasEdges(b *mlir.Block) bool {
	for _, o := range b.Ops {
		if o.Name == "sdy.data_flow_edge" {
			return true
		}
		for _, r := range o.Regions {
			if hasEdges(r) {
				return true
			}
		}
	}
	return false
}

func (p *Program) addMesh(o *mlir.Operation) error {
	name, ok := o.Attr("sym_name")
	body, ok2 := o.Attr("mesh")
	if f := o.Flags; !ok && len(f) > 1 {
		name, body, ok, ok2 = f[0], f[1], true, true
	}
	if !ok || !ok2 {
		return p.m.ErrorAt(o, 0, "a mesh has a name and axes")
	}
	text, at := p.m.Inside(body)
	m, err := sharding.ParseMesh("<" + text + ">")
	if err != nil {
		return p.textError(err, at-1)
	}
	m.Name = name.Text
	p.mesh = append(p.mesh, m)
	return nil
}

// textError is an error in a text that starts at a place of the file.
func (p *Program) textError(err error, at int) error {
	var t *sharding.TextError
	if errors.As(err, &t) {
		return p.m.ErrorAt(nil, at+t.At, "%s", t.Msg)
	}
	return p.m.ErrorAt(nil, at, "%v", err)
}

func (p *Program) meshes(name string) (*sharding.Mesh, bool) {
	for _, m := range p.mesh {
		if m.Name == name {
			return m, true
		}
	}
	return nil, false
}

// intern gives a mesh that stands in a sharding the name of an equal one.
func (p *Program) intern(s *sharding.Sharding) *sharding.Sharding {
	if s.Mesh.Name != "" {
		return s
	}
	for _, m := range p.mesh {
		if m.String() == s.Mesh.String() {
			s.Mesh = m
			return s
		}
	}
	s.Mesh.Name = "mesh"
	for i := 0; ; i++ {
		if _, taken := p.meshes(s.Mesh.Name); !taken {
			break
		}
		s.Mesh.Name = fmt.Sprintf("mesh_%d", i)
	}
	p.mesh = append(p.mesh, s.Mesh)
	return s
}

// shardings are those of a list: <@mesh, [...]>, <@mesh, [...]>.
func (p *Program) shardings(text string, at int) ([]*sharding.Sharding, error) {
	var out []*sharding.Sharding
	for {
		rest := strings.TrimPrefix(strings.TrimLeft(text, " \t\r\n,"), "#sdy.sharding")
		at += len(text) - len(rest)
		if text = rest; text == "" {
			return out, nil
		}
		s, n, err := sharding.Parse(text, p.meshes)
		if err != nil {
			return nil, p.textError(err, at)
		}
		if s = p.intern(s); p.opt.Pipeline {
			s.DropSmall()
		}
		out = append(out, s)
		text, at = text[n:], at+n
	}
}

// single is a sharding whose brackets an attribute is.
func (p *Program) single(a mlir.Attr) (*sharding.Sharding, error) {
	text, at := p.m.Inside(a)
	l, err := p.shardings("<"+text+">", at-1)
	if err == nil && len(l) != 1 {
		err = p.m.ErrorAt(nil, at, "want one sharding")
	}
	if err != nil {
		return nil, err
	}
	return l[0], nil
}

// list are the shardings of a list in brackets, which the attribute's own may hold.
func (p *Program) list(a mlir.Attr) ([]*sharding.Sharding, error) {
	text, at := p.m.Inside(a)
	if t := strings.TrimSpace(text); strings.HasPrefix(t, "[") && strings.HasSuffix(t, "]") {
		at += strings.Index(text, "[") + 1
		text = t[1 : len(t)-1]
	}
	return p.shardings(text, at)
}

// value makes a value of a type.
func (p *Program) value(name string, t mlir.Type, s *sharding.Sharding) int {
	v := sharding.Value{Name: name, Sharding: s}
	if t.Tensor {
		v.Shape = t.Shape
	}
	p.Graph.Values = append(p.Graph.Values, v)
	return len(p.Graph.Values) - 1
}

// load reads a function, or one more copy of it.
func (p *Program) load(f *mlir.Func) (*Function, error) {
	fn := &Function{Name: p.name(f.Name), f: f}
	p.Funcs = append(p.Funcs, fn)
	p.funcs[f.Name] = append(p.funcs[f.Name], fn)
	top := (&scope{}).inner()
	for _, a := range f.Args {
		var s *sharding.Sharding
		if x, ok := a.Attrs.Get("sdy.sharding"); ok {
			var err error
			if s, err = p.single(x); err != nil {
				return nil, err
			}
		}
		b := &binding{id: p.value("%"+a.Name, a.Type, s), use: mlir.Use{Name: a.Name}}
		b.at = place{f, b.use}
		top.names[b.use] = b
		fn.args = append(fn.args, b)
		fn.Args = append(fn.Args, b.id)
	}
	for i, t := range f.Results {
		var s *sharding.Sharding
		if x, ok := f.ResultAttr(i, "sdy.sharding"); ok {
			var err error
			if s, err = p.single(x); err != nil {
				return nil, err
			}
		}
		fn.Results = append(fn.Results, p.value(fmt.Sprintf("result %d of @%s", i, f.Name), t, s))
	}
	if f.Body == nil {
		return fn, nil
	}
	for _, at := range slices.Backward(p.members) {
		if at.in == f {
			p.member(fn, top, at, 0)
		}
	}
	var err error
	fn.returns, err = p.block(fn, f.Body, top, 0)
	return fn, err
}

// block reads operations, and returns what the last one hands out.
func (p *Program) block(fn *Function, b *mlir.Block, in *scope, depth int) ([]*binding, error) {
	for _, o := range b.Ops {
		args := make([]*binding, len(o.Uses()))
		for i, u := range o.Uses() {
			if args[i] = in.find(u); args[i] == nil {
				return nil, p.m.ErrorAt(o, 0, "there is no value %%%s", u.Name)
			}
			args[i].uses++
			args[i].feed = append(args[i].feed, o.Name)
		}
		if strings.HasSuffix(o.Name, ".return") {
			return args, nil
		}
		if err := p.operation(fn, o, args, in, depth); err != nil {
			return nil, err
		}
		for _, at := range p.members {
			if at.in == o {
				p.member(fn, in, at, depth)
			}
		}
	}
	return nil, nil
}

// operation reads one operation.
func (p *Program) operation(fn *Function, o *mlir.Operation, args []*binding, in *scope, depth int) error {
	x := &visit{p: p, fn: fn, o: o, args: args, in: in, depth: depth}
	if err := x.define(); err != nil {
		return err
	}
	switch o.Name {
	case "sdy.data_flow_edge":
		return nil
	case "sdy.func_data_flow_edge":
		p.funcEdges = true
		return nil
	case "sdy.sharding_group":
		return x.group()
	case "stablehlo.while", "stablehlo.case", "stablehlo.if", "stablehlo.optimization_barrier":
		return x.branches()
	case "sdy.manual_computation":
		return x.manual()
	case "func.call":
		return x.call()
	}
	if err := x.step(); err != nil {
		return err
	}
	return x.bodies()
}

// results relates what functions return to their results: of main, or of those that
// nothing calls.
func (p *Program) results() {
	main, both := p.m.Func("main"), sharding.Both
	for _, fn := range p.Funcs {
		if main != nil && fn.f != main || len(fn.calls) > 0 {
			continue
		}
		for i, b := range fn.returns {
			if i < len(fn.Results) && b != nil {
				v := &p.Graph.Values[b.id]
				p.Graph.Returns = append(p.Graph.Returns, sharding.Step{
					Op: "return", Rule: sharding.Identity(v.Shape, 1, 1), Operands: []int{b.id}, Results: []int{fn.Results[i]}, Edge: true, Allowed: &both,
				})
			}
		}
	}
}

// finish makes a pending step one of the graph.
func (p *Program) finish(x *pending) error {
	st := &x.step
	for _, b := range x.operands {
		st.Operands = append(st.Operands, b.id)
		if b.uses > 1 && len(p.Graph.Values[b.id].Shape) > 0 {
			st.MultiUse = true
		}
	}
	for _, b := range x.results {
		st.Results = append(st.Results, b.id)
	}
	if x.subject != nil {
		rule, err := p.rule(x.subject, x.operands, x.results)
		if err != nil {
			return err
		}
		st.Rule = rule
		x.line.Lines[x.at].Rule = rule
	} else {
		st.MultiUse = false // an edge's operand has the edge for its only use
	}
	if st.Rule != nil {
		p.Graph.Steps = append(p.Graph.Steps, *st)
	}
	return nil
}
