package stablehlo

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// Bounds of what inlining makes of a text.
const (
	maxCalls = 100
	maxNodes = 1 << 21
)

// value is what a name of the text stands for.
type value struct {
	typ     Type
	v       *ir.Value // in stage
	lit     *Literal  // of a constant; v is made where it is used
	tuple   []*value
	stage   *stage
	sources []Source // by rank: a result of interpreter.run_parallel
}

// scope has the values of a block; names of blocks around it are seen, too.
type scope struct {
	vals map[string][]*value
	up   *scope
}

func (s *scope) find(name string) []*value {
	for ; s != nil; s = s.up {
		if v, ok := s.vals[name]; ok {
			return v
		}
	}
	return nil
}

// stage is a function that is being built, or the body of an operation, which is made of
// operations of whatever function it is applied in.
type stage struct {
	im     *importer
	index  int
	b      *ir.Builder
	fb     *ir.FuncBuilder   // nil of a body
	to     decompose.Emitter // of a body
	world  int
	feeds  []Feed
	outs   []*ir.Value
	groups []*ir.Group
	have   map[*value]*ir.Value // values of other stages, and literals
	at     map[*ir.Value]int    // place among outs
}

// Op appends an operation. What does not fit is an error at the operation of the text.
func (s *stage) Op(o ir.Op, g *ir.Group, attrs ir.Attrs, args []*ir.Value, types ...ir.Type) []*ir.Value {
	im := s.im
	if im.nodes++; im.nodes > maxNodes && im.failed == nil {
		im.failed = fmt.Errorf("more than %d operations where functions are inlined", maxNodes)
	}
	var ts []ir.Type
	for _, a := range args {
		ts = append(ts, a.Type())
	}
	if _, err := ir.Infer(o, g, attrs, ts, types...); err != nil && im.failed == nil {
		im.failed = err
	}
	if s.fb == nil {
		return s.to.Op(o, g, attrs, args, types...)
	}
	fb := s.fb
	if im.op != nil && len(im.op.results) == 1 && letter(im.op.results[0].name[0]) {
		fb = fb.Named(im.op.results[0].name)
	}
	return fb.Op(o, g, attrs, args, types...)
}

// importer makes a plan of a module.
type importer struct {
	m      *Module
	rules  map[string]rule
	plan   *Plan
	stages []*stage
	cur    *stage
	scope  *scope
	op     *op // being imported, for errors
	calls  []*Func
	nodes  int
	fault  error // of a body, in its own place
	failed error // of an operation that was appended; reported at the operation of the text
	branch bool  // what is imported stands in a branch that other ranks may not take
	vector bool  // the body of a region is computed on whole tensors

	replicas, partitions int
}

// errorf makes an error about the operation that is being imported.
func (im *importer) errorf(format string, args ...any) error {
	at, n := im.m.at, 1
	if im.op != nil {
		at, n = im.op.at, len(im.op.name)
	}
	return errorAt(im.m.src, at, n, "stablehlo", format, args...)
}

// Import makes a plan of a function: main, or one without arguments. The error is a
// *diag.Finding with the operation's place, or the verifier's.
func (m *Module) Import(f *Func) (*Plan, error) {
	im, outs, err := m.imported(f)
	if err != nil {
		return nil, err
	}
	for _, o := range flatten(outs) {
		s, err := im.source(o, 0)
		if err != nil {
			return nil, err
		}
		im.plan.Outs = append(im.plan.Outs, s)
	}
	return im.finish()
}

// imported imports a function and all that it calls, and returns its results.
func (m *Module) imported(f *Func) (*importer, []*value, error) {
	im := &importer{m: m, rules: rules(), plan: &Plan{}, replicas: 1, partitions: 1}
	var err error
	if im.replicas, err = m.count("mhlo.num_replicas"); err != nil {
		return nil, nil, err
	}
	if im.partitions, err = m.count("mhlo.num_partitions"); err != nil {
		return nil, nil, err
	}
	if f.body == nil {
		return nil, nil, errorAt(m.src, f.at, 1, "stablehlo", "function @%s has no body", f.Name)
	}
	if im.replicas*im.partitions > ir.MaxWorld {
		return nil, nil, errorAt(m.src, m.at, 1, "stablehlo", "%d replicas of %d partitions", im.replicas, im.partitions)
	}
	im.begin(f.Name, im.replicas*im.partitions)
	manual, err := im.manual(f)
	if err != nil {
		return nil, nil, err
	}
	var args []*value
	for i, a := range f.Args {
		if s, ok := a.attrs.Get("sdy.sharding"); ok && manual {
			if a.Type, err = im.local(a.Type, im.m.inside(s)); err != nil {
				return nil, nil, err
			}
		}
		v, err := im.argument(a, i)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, v)
	}
	outs, err := im.call(f, args)
	return im, outs, err
}

// count reads an attribute of the module that is a number of ranks.
func (m *Module) count(name string) (int, error) {
	a, ok := m.attrs.Get(name)
	if !ok {
		return 1, nil
	}
	n, err := m.integer(a)
	if err != nil {
		return 0, err
	}
	if n < 1 || n > ir.MaxWorld {
		return 0, errorAt(m.src, a.at, 1, "stablehlo", "%s = %d", name, n)
	}
	return int(n), nil
}

// flatten lists the tensors of values.
func flatten(vs []*value) []*value {
	var out []*value
	for _, v := range vs {
		switch {
		case v.typ.Tensor:
			out = append(out, v)
		case v.tuple != nil:
			out = append(out, flatten(v.tuple)...)
		}
	}
	return out
}

// begin starts a stage.
func (im *importer) begin(name string, world int) {
	b := ir.NewBuilder(world)
	im.cur = &stage{im: im, index: len(im.stages), b: b, fb: b.Func(name), world: world, have: map[*value]*ir.Value{}, at: map[*ir.Value]int{}}
	im.stages = append(im.stages, im.cur)
}

// argument declares an argument of the function as an input.
func (im *importer) argument(a Arg, i int) (*value, error) {
	t, err := im.tensorType(a.Type)
	if err != nil {
		return nil, errorAt(im.m.src, a.at, 1, "stablehlo", "%v", err)
	}
	v := im.cur.fb.Input(a.Name, t)
	im.cur.feeds = append(im.cur.feeds, Feed{Arg: i})
	return im.value(v), nil
}

// tensorType is the type of concert that a tensor type stands for.
func (im *importer) tensorType(t Type) (ir.Type, error) {
	if !t.Tensor {
		return ir.Type{}, fmt.Errorf("%s is no tensor", t)
	}
	dt, err := elementType(t.Elem)
	if err != nil {
		return ir.Type{}, err
	}
	for _, d := range t.Shape {
		if d < 0 {
			return ir.Type{}, fmt.Errorf("the shape of %s is not known", t)
		}
	}
	if _, ok := elements(t.Shape); !ok {
		return ir.Type{}, fmt.Errorf("%s is too large", t)
	}
	return ir.Tensor(dt, t.Shape...), nil
}

// value wraps a value of the current stage.
func (im *importer) value(v *ir.Value) *value {
	return &value{typ: typeOf(v), v: v, stage: im.cur}
}

// typeOf is the type of a value in MLIR's terms.
func typeOf(v *ir.Value) Type {
	shape, _ := v.Type().Shape().Static()
	return Type{Tensor: true, Elem: elementName(v.Type().DType()), Shape: shape}
}

// elementName is MLIR's name of an element type.
func elementName(dt ir.DType) string {
	switch {
	case dt == ir.Bool:
		return "i1"
	case dt.IsUnsigned():
		return "ui" + dt.String()[1:]
	}
	return dt.String()
}

// ir returns a value of the current stage: constants are made, and what another stage
// computes is an input.
func (im *importer) ir(v *value) (*ir.Value, error) {
	s := im.cur
	if v.v != nil && v.stage == s {
		return v.v, nil
	}
	if have := s.have[v]; have != nil {
		return have, nil
	}
	if !v.typ.Tensor {
		return nil, im.errorf("a value of type %s in the place of a tensor", v.typ)
	}
	var out *ir.Value
	if v.lit != nil {
		var err error
		if out, err = im.constant(v.lit); err != nil {
			return nil, err
		}
	} else if s.fb == nil {
		return nil, im.errorf("the body of an operation reads a value from outside of it")
	} else {
		t, err := im.tensorType(v.typ)
		if err != nil {
			return nil, im.errorf("%v", err)
		}
		src, err := im.source(v, 0)
		if err != nil {
			return nil, err
		}
		out = s.fb.Input("carried", t)
		s.feeds = append(s.feeds, Feed{Arg: -1, Ranks: []Source{src}})
	}
	s.have[v] = out
	return out, nil
}

// source says where a rank's tensor of a value lies once the stages have run.
func (im *importer) source(v *value, rank int) (Source, error) {
	switch {
	case v.lit != nil:
		return Source{Literal: v.lit}, nil
	case v.sources != nil:
		return v.sources[min(rank, len(v.sources)-1)], nil
	case v.v == nil:
		return Source{}, im.errorf("a value of type %s in the place of a tensor", v.typ)
	}
	s := v.stage
	at, ok := s.at[v.v]
	if !ok {
		at = len(s.outs)
		s.at[v.v], s.outs = at, append(s.outs, v.v)
	}
	return Source{Stage: s.index, Rank: rank, Output: at}, nil
}

// maxConstant is how many bytes the text of a function holds; what is larger is an input.
const maxConstant = 64 << 10

// constant makes a literal a value of the current stage.
func (im *importer) constant(l *Literal) (*ir.Value, error) {
	t := ir.Tensor(l.DType, l.Shape...)
	if l.Splat {
		if a, ok := number(l); ok {
			return im.emit(ir.OpFull, ir.A("value", a), nil, t)
		}
		one, err := im.constant(&Literal{DType: l.DType, Data: l.Data})
		if err != nil {
			return nil, err
		}
		return im.emit(ir.OpExpand, nil, []*ir.Value{one}, t)
	}
	if len(l.Data) > maxConstant && im.cur.fb != nil {
		v := im.cur.fb.Parameter("constant", t)
		im.cur.feeds = append(im.cur.feeds, Feed{Arg: -1, Ranks: []Source{{Literal: l}}})
		return v, nil
	}
	return im.emit(ir.OpConstant, ir.A("data", base64.StdEncoding.EncodeToString(l.Data)), nil, t)
}

// number is the element of a splat as an attribute, where an attribute has it exactly.
func number(l *Literal) (any, bool) {
	if !l.DType.IsFloat() {
		n := dtype.LoadInt(l.DType, l.Data)
		return n, l.DType != ir.U64 || n >= 0
	}
	f := dtype.LoadFloat(l.DType, l.Data)
	again := make([]byte, len(l.Data))
	dtype.StoreFloat(l.DType, again, f)
	return f, slices.Equal(again, l.Data) && !math.IsNaN(f)
}

// emit appends a node of one result; what does not fit is an error at the operation.
func (im *importer) emit(o ir.Op, attrs ir.Attrs, args []*ir.Value, types ...ir.Type) (*ir.Value, error) {
	vs, err := im.emitAll(o, nil, attrs, args, types...)
	if err != nil {
		return nil, err
	}
	return vs[0], nil
}

// emitAll appends a node and returns its results, in a list that is the caller's.
func (im *importer) emitAll(o ir.Op, g *ir.Group, attrs ir.Attrs, args []*ir.Value, types ...ir.Type) ([]*ir.Value, error) {
	vs := im.cur.Op(o, g, attrs, args, types...)
	return slices.Clone(vs), im.check()
}

// check reports what an operation that was appended is refused for.
func (im *importer) check() error {
	err := im.failed
	if im.failed = nil; err == nil {
		return nil
	}
	return im.errorf("%s: %v", im.op.name, err)
}

// call runs a function's body on values: it is inlined.
func (im *importer) call(f *Func, args []*value) ([]*value, error) {
	if f.body == nil {
		return nil, im.errorf("function @%s has no body", f.Name)
	}
	if len(args) != len(f.Args) {
		return nil, im.errorf("@%s takes %d arguments, got %d", f.Name, len(f.Args), len(args))
	}
	if slices.Contains(im.calls, f) {
		return nil, im.errorf("@%s calls itself", f.Name)
	}
	if len(im.calls) >= maxCalls {
		return nil, im.errorf("calls nest deeper than %d", maxCalls)
	}
	for i, a := range f.Args {
		if !im.vector && len(im.calls) > 0 && !sameType(a.Type, args[i].typ) {
			return nil, im.errorf("argument %d of @%s is %s, got %s", i, f.Name, a.Type, args[i].typ)
		}
	}
	defer func(s *scope, o *op) { im.scope, im.op = s, o }(im.scope, im.op)
	im.calls = append(im.calls, f)
	im.scope = nil // what follows sees none of the caller's names
	out, err := im.block(f.body, f.Args, args)
	im.calls = im.calls[:len(im.calls)-1]
	if err == nil && len(out) != len(f.Results) {
		err = im.errorf("@%s returns %d values, declares %d", f.Name, len(out), len(f.Results))
	}
	return out, err
}

// sameType reports whether types of values are equal. Types that are no tensors are not
// looked into: they say nothing.
func sameType(a, b Type) bool {
	return !a.Tensor || !b.Tensor || a.Elem == b.Elem && slices.Equal(a.Shape, b.Shape) || slices.Contains(a.Shape, -1)
}

// block imports the operations of a block whose arguments are values, and returns what its
// last operation returns.
func (im *importer) block(b *block, args []Arg, vals []*value) ([]*value, error) {
	if len(args) != len(vals) {
		return nil, im.errorf("a block of %d arguments gets %d values", len(args), len(vals))
	}
	im.scope = &scope{vals: map[string][]*value{}, up: im.scope}
	defer func(s *scope) { im.scope = s }(im.scope.up)
	for i, a := range args {
		im.scope.vals[a.Name] = []*value{vals[i]}
	}
	for _, o := range b.ops {
		im.op = o
		in, err := im.operands(o)
		if err != nil {
			return nil, err
		}
		switch o.name {
		case "func.return", "stablehlo.return", "sdy.return":
			return in, nil
		}
		out, err := im.operation(o, in)
		if err != nil {
			return nil, err
		}
		im.op = o
		if err := im.define(o, out); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// operands are the values that an operation reads.
func (im *importer) operands(o *op) ([]*value, error) {
	var in []*value
	for _, r := range o.operands {
		vs := im.scope.find(r.name)
		if r.index >= len(vs) {
			what := "%" + r.name
			if r.index > 0 {
				what = fmt.Sprintf("%s#%d", what, r.index)
			}
			return nil, errorAt(im.m.src, r.at, len(what), "stablehlo", "%s is not defined here", what)
		}
		in = append(in, vs[r.index])
	}
	return in, nil
}

// define names the results of an operation, whose types must be those declared.
func (im *importer) define(o *op, out []*value) error {
	if n := o.numResults(); n != len(out) {
		return im.errorf("%s gives %d results, %d are named", o.name, len(out), n)
	}
	for i, v := range out {
		if !im.vector && i < len(o.outs) && o.name != "sdy.manual_computation" && !sameType(o.outs[i], v.typ) {
			return im.errorf("result %d of %s is %s, declared as %s", i, o.name, v.typ, o.outs[i])
		}
	}
	for _, r := range o.results {
		im.scope.vals[r.name], out = out[:r.count:r.count], out[r.count:]
	}
	return nil
}

// operation imports one operation.
func (im *importer) operation(o *op, in []*value) ([]*value, error) {
	if v := im.fold(o, in); v != nil {
		return []*value{v}, nil
	}
	f, ok := im.rules[o.name]
	if !ok {
		return nil, im.errorf("op not supported: %s", o.name)
	}
	if im.vector && !f.vector {
		return nil, im.errorf("op not supported: %s in a body that is computed on whole tensors", o.name)
	}
	if f.args >= 0 && len(in) != f.args {
		return nil, im.errorf("%s takes %d operands, got %d", o.name, f.args, len(in))
	}
	return f.run(im, o, in)
}

// finish ends all stages.
func (im *importer) finish() (*Plan, error) {
	for _, s := range im.stages {
		s.fb.Return(s.outs...)
		m, err := s.b.Finish()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", im.m.src.Name, err)
		}
		f := m.Funcs()[0]
		if n := len(f.Inputs()); n != len(s.feeds) {
			return nil, errors.New("stablehlo: an input without a feed")
		}
		im.plan.Stages = append(im.plan.Stages, &Stage{Module: m, Func: f, Feeds: s.feeds})
	}
	return im.plan, nil
}
