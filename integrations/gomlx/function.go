package gomlx

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/notimplemented"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// value is a result, a parameter or a constant.
type value struct {
	f     *function
	name  string
	shape shapes.Shape
}

// unfit is a result and why it cannot have the sharding that was asked for.
type unfit struct {
	result int
	err    error
}

// function is a function or a closure.
type function struct {
	notimplemented.Function
	n        *builder
	parent   *function
	name     string
	params   []*value
	lines    []string
	outs     []*value
	returned bool
	drawn    map[string]*value // constants of random numbers, see random.go

	// Of main.
	inputs          []string // names as the caller gave them
	specs, outSpecs []*compute.ShardingSpec
	unfit           []unfit // results with shardings that they cannot have
	alias           []int   // by parameter: the result that takes its place, or -1
}

func newFunction(n *builder, parent *function, name string) *function {
	f := &function{n: n, parent: parent, name: name}
	f.ErrFn = func(op compute.OpType) error {
		return errors.Wrapf(compute.ErrNotImplemented, "concert: %s, in computation %q", op, n.name)
	}
	return f
}

func (f *function) Name() string             { return f.name }
func (f *function) Builder() compute.Builder { return f.n }

func (f *function) Parent() compute.Function {
	if f.parent == nil {
		return nil
	}
	return f.parent
}

func (f *function) Closure() (compute.Function, error) {
	if err := f.open(); err != nil {
		return nil, err
	}
	return newFunction(f.n, f, ""), nil
}

// open is an error once the function has returned.
func (f *function) open() error {
	switch {
	case f.n.done:
		return errors.Errorf("concert: computation %q is compiled", f.n.name)
	case f.returned:
		return errors.Errorf("concert: function %q has returned", f.name)
	}
	return nil
}

func (f *function) Shape(v compute.Value) (shapes.Shape, error) { return f.n.OpShape(v) }

func (f *function) Parameter(name string, shape shapes.Shape, sharding *compute.ShardingSpec) (compute.Value, error) {
	if err := f.open(); err != nil {
		return nil, err
	}
	if err := supported(shape); err != nil {
		return nil, err
	}
	if err := f.n.checkSpec(fmt.Sprintf("parameter %q", name), shape, sharding); err != nil {
		return nil, err
	}
	v := &value{f, f.n.fresh(), shape.Clone()}
	f.params, f.inputs, f.specs = append(f.params, v), append(f.inputs, name), append(f.specs, sharding)
	return v, nil
}

func supported(s shapes.Shape) error {
	if !s.Ok() || s.IsTuple() {
		return errors.Errorf("concert: the shape %s is not valid", s)
	}
	if s.IsDynamic() {
		return errors.Wrapf(compute.ErrNotImplemented, "concert: the dynamic shape %s", s)
	}
	if _, ok := elementTypes[s.DType]; !ok {
		return errors.Wrapf(compute.ErrNotImplemented, "concert: element type %s", s.DType)
	}
	return nil
}

func (f *function) Constant(flat any, dims ...int) (compute.Value, error) {
	if err := f.open(); err != nil {
		return nil, err
	}
	t := reflect.TypeOf(flat)
	if t == nil || t.Kind() != reflect.Slice {
		return nil, errors.Errorf("concert: Constant of a %T, want a slice", flat)
	}
	if slices.ContainsFunc(dims, func(n int) bool { return n < 0 }) {
		return nil, errors.Errorf("concert: Constant of dimensions %v", dims)
	}
	shape := shapes.Make(dtypes.FromGoType(t.Elem()), dims...)
	if err := supported(shape); err != nil {
		return nil, err
	}
	data := dtypes.UnsafeByteSliceFromAny(flat)
	if want := shape.Size() * int(shape.DType.Size()); len(data) != want {
		return nil, errors.Errorf("concert: %d bytes for a constant of shape %s", len(data), shape)
	}
	return f.constant(data, shape), nil
}

// constant adds a constant, from its little-endian bytes.
func (f *function) constant(data []byte, shape shapes.Shape) *value {
	text := ""
	switch {
	case shape.Size() == 0:
	case shape.DType == dtypes.Bool: // MLIR packs the bits of booleans: write them out
		text = booleans(data, shape.Dimensions)
	default:
		text = `"0x` + strings.ToUpper(hex.EncodeToString(data)) + `"`
	}
	v := &value{f, f.n.fresh(), shape}
	f.lines = append(f.lines, fmt.Sprintf("%s = stablehlo.constant dense<%s> : %s", v.name, text, typeText(shape)))
	return v
}

func booleans(data []byte, dims []int) string {
	if len(dims) == 0 {
		return fmt.Sprint(data[0] != 0)
	}
	each := len(data) / dims[0]
	parts := make([]string, dims[0])
	for i := range parts {
		parts[i] = booleans(data[i*each:(i+1)*each], dims[1:])
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (f *function) Return(outputs []compute.Value, shardings []*compute.ShardingSpec) error {
	if err := f.open(); err != nil {
		return err
	}
	outs, err := f.values(outputs)
	if err != nil {
		return err
	}
	if len(shardings) > 0 && len(shardings) != len(outs) {
		return errors.Errorf("concert: %d results with %d shardings", len(outs), len(shardings))
	}
	specs := make([]*compute.ShardingSpec, len(outs))
	for i, s := range shardings {
		if err := f.n.checkSpec(fmt.Sprintf("result %d", i), outs[i].shape, s); err != nil {
			f.unfit = append(f.unfit, unfit{i, err})
		}
		specs[i] = s
	}
	f.outs, f.outSpecs, f.returned = outs, specs, true
	return nil
}

// values are the operands of an operation of f: its own, or those of its parents.
func (f *function) values(vs []compute.Value) ([]*value, error) {
	out := make([]*value, len(vs))
	for i, x := range vs {
		v, ok := x.(*value)
		if !ok || v == nil {
			return nil, errors.Errorf("concert: operand %d, %v, is no value of this backend", i, x)
		}
		at := f
		for at != nil && at != v.f {
			at = at.parent
		}
		if at == nil {
			return nil, errors.Errorf("concert: operand %d belongs to another function, %q", i, v.f.name)
		}
		out[i] = v
	}
	return out, nil
}

// emit adds a line: format's first verb is the names of the results.
func (f *function) emit(results []shapes.Shape, format string, args ...any) ([]*value, error) {
	if err := f.open(); err != nil {
		return nil, err
	}
	outs := make([]*value, len(results))
	for i, s := range results {
		if err := supported(s); err != nil {
			return nil, err
		}
		s = s.Clone()
		if !slices.ContainsFunc(s.AxisNames, func(name string) bool { return name != "" }) {
			s.AxisNames = nil // as shapes without names have them
		}
		outs[i] = &value{f, f.n.fresh(), s}
	}
	left := ""
	if len(outs) == 1 {
		left = outs[0].name + " = "
	} else if len(outs) > 1 { // %a:2 = ..., whose results are %a#0 and %a#1
		base := outs[0].name
		left = fmt.Sprintf("%s:%d = ", base, len(outs))
		for i, v := range outs {
			v.name = fmt.Sprintf("%s#%d", base, i)
		}
	}
	f.lines = append(f.lines, left+fmt.Sprintf(format, args...))
	return outs, nil
}

// one is emit of an operation with one result.
func (f *function) one(result shapes.Shape, format string, args ...any) (*value, error) {
	vs, err := f.emit([]shapes.Shape{result}, format, args...)
	if err != nil {
		return nil, err
	}
	return vs[0], nil
}

func (f *function) Call(callee compute.Function, inputs ...compute.Value) ([]compute.Value, error) {
	g, ok := callee.(*function)
	if !ok || g.n != f.n || g.parent != nil || !g.returned {
		return nil, errors.New("concert: what is called is a function of the same computation that has returned")
	}
	in, err := f.values(inputs)
	if err != nil {
		return nil, err
	}
	if len(in) != len(g.params) {
		return nil, errors.Errorf("concert: function %q takes %d values, not %d", g.name, len(g.params), len(in))
	}
	for i, v := range in {
		if !v.shape.Equal(g.params[i].shape) {
			return nil, errors.Errorf("concert: parameter %d of function %q is %s, not %s", i, g.name, g.params[i].shape, v.shape)
		}
	}
	var results []shapes.Shape
	for _, o := range g.outs {
		results = append(results, o.shape)
	}
	outs, err := f.emit(results, "call @%s(%s) : (%s) -> (%s)", symbol(g.name), names(in), types(in), types(g.outs))
	return anys(outs), err
}

func anys(vs []*value) []compute.Value {
	out := make([]compute.Value, len(vs))
	for i, v := range vs {
		out[i] = v
	}
	return out
}

// body is a closure's text as a region of an operation of f.
func (f *function) body(c compute.Function) (*function, string, error) {
	g, ok := c.(*function)
	if !ok || g.parent != f || !g.returned {
		return nil, "", errors.New("concert: a body is a closure of the same function that has returned")
	}
	params := make([]string, len(g.params))
	for i, p := range g.params {
		params[i] = p.name + ": " + typeText(p.shape)
	}
	label := ""
	if len(params) > 0 {
		label = "^bb0(" + strings.Join(params, ", ") + "):\n"
	}
	return g, fmt.Sprintf("{\n%s%s\nstablehlo.return %s : %s\n}", label, strings.Join(g.lines, "\n"), names(g.outs), types(g.outs)), nil
}

// If runs one of two branches.
func (f *function) If(pred compute.Value, onTrue, onFalse compute.Function) ([]compute.Value, error) {
	p, err := f.values([]compute.Value{pred})
	if err != nil {
		return nil, err
	}
	if !p[0].shape.IsScalar() || p[0].shape.DType != dtypes.Bool {
		return nil, errors.Errorf("concert: If of %s: a condition is a scalar boolean", p[0].shape)
	}
	var results [2][]shapes.Shape
	var texts [2]string
	for i, c := range []compute.Function{onTrue, onFalse} {
		var g *function
		if g, texts[i], err = f.body(c); err != nil {
			return nil, err
		}
		if len(g.params) > 0 {
			return nil, errors.New("concert: a branch of If is a closure without parameters")
		}
		results[i] = shapesOf(g.outs)
	}
	if !slices.EqualFunc(results[0], results[1], shapes.Shape.Equal) {
		return nil, errors.Errorf("concert: the branches of If return %v and %v", results[0], results[1])
	}
	outs, err := f.emit(results[0], "\"stablehlo.if\"(%s) (%s, %s) : (%s) -> (%s)", names(p), texts[0], texts[1], types(p), types(onTrue.(*function).outs))
	return anys(outs), err
}

// While runs body as long as cond holds. Both may read values of f and of functions around it.
func (f *function) While(cond, body compute.Function, initialState ...compute.Value) ([]compute.Value, error) {
	in, err := f.values(initialState)
	if err != nil {
		return nil, err
	}
	if len(in) == 0 {
		return nil, errors.New("concert: While without a state")
	}
	state := shapesOf(in)
	c, condText, err := f.body(cond)
	if err != nil {
		return nil, err
	}
	b, bodyText, err := f.body(body)
	if err != nil {
		return nil, err
	}
	for _, g := range []*function{c, b} {
		if got := shapesOf(g.params); !slices.EqualFunc(got, state, shapes.Shape.Equal) {
			return nil, errors.Errorf("concert: a closure of While takes %v, the state is %v", got, state)
		}
	}
	if len(c.outs) != 1 || !c.outs[0].shape.IsScalar() || c.outs[0].shape.DType != dtypes.Bool {
		return nil, errors.Errorf("concert: the condition of While returns %v, want a scalar boolean", shapesOf(c.outs))
	}
	if got := shapesOf(b.outs); !slices.EqualFunc(got, state, shapes.Shape.Equal) {
		return nil, errors.Errorf("concert: the body of While returns %v, the state is %v", got, state)
	}
	outs, err := f.emit(state, "\"stablehlo.while\"(%s) (%s, %s) : (%s) -> (%s)", names(in), condText, bodyText, types(in), types(in))
	return anys(outs), err
}

func shapesOf(vs []*value) []shapes.Shape {
	var out []shapes.Shape
	for _, v := range vs {
		out = append(out, v.shape)
	}
	return out
}
