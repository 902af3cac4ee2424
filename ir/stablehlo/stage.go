package stablehlo

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// value is what a name of the text stands for.
type value struct {
	typ     mlir.Type
	v       *ir.Value     // in stage
	lit     *mlir.Literal // of a constant; v is made where it is used
	tuple   []*value
	parts   int // values in a tuple, and in those that it is of
	stage   *stage
	sources []Source // by rank: a result of interpreter.run_parallel
	ranks   []int64  // what an integer is on each rank that depends on nothing else; nil if that is not known
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

	caps     *captures   // of the body of a while or a case
	captured []*ir.Value // its inputs for them, as far as it has any
	bodies   int         // of a root: how many there are
}

// Op appends an operation. What does not fit is an error at the operation of the text.
func (s *stage) Op(o ir.Op, g *ir.Group, attrs ir.Attrs, args []*ir.Value, types ...ir.Type) []*ir.Value {
	im := s.im
	if im.nodes++; im.nodes > maxNodes+len(im.m.Source.Text)/4 && im.failed == nil {
		im.failed = fmt.Errorf("more than %d operations where each of the text is taken apart, or again", maxNodes)
	}
	var ts []ir.Type
	for _, a := range args {
		ts = append(ts, a.Type())
	}
	got, err := ir.Infer(o, g, attrs, ts, types...)
	for i := range min(len(got), len(types)) {
		if err == nil && !got[i].SameTensor(types[i]) {
			err = fmt.Errorf("it is declared as %s, the operands give %s", types[i], got[i])
		}
	}
	if err != nil && im.failed == nil {
		im.failed = err
	}
	if s.fb == nil {
		return s.to.Op(o, g, attrs, args, types...)
	}
	fb := s.fb
	if im.op != nil {
		fb = fb.Origin(im.position(im.op))
	}
	if im.op != nil && len(im.op.Results) == 1 && mlir.Letter(im.op.Results[0].Name[0]) {
		fb = fb.Named(im.op.Results[0].Name)
	}
	return fb.Op(o, g, attrs, args, types...)
}

// Position is where an operation stands in the text that it was imported from: the origin
// of its nodes ([ir.Node.Origins]), which passes keep.
type Position struct {
	File      string
	Line, Col int32
	Location  string // where the text itself came from, as loc(...) in it says
}

// String is FILE:LINE:COLUMN.
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col) }

// position is that of an operation; one is made for all of its nodes.
func (im *importer) position(o *mlir.Operation) *Position {
	if im.at == nil || im.placed != o {
		p := im.m.Source.PosAt(o.At)
		loc := o.Location
		if name, ok := strings.CutPrefix(loc, "#"); ok {
			if a, ok := im.m.Alias[name]; ok && a.Kind == mlir.KindOpaque {
				loc = im.m.Source.Text[a.Start:a.End]
			}
		}
		im.at, im.placed = &Position{im.m.Source.Name, p.Line, p.Col, loc}, o
	}
	return im.at
}

// begin starts a stage.
func (im *importer) begin(name string, world int) {
	b := ir.NewBuilder(world)
	im.cur = &stage{im: im, index: len(im.stages), b: b, fb: b.Func(name), world: world, have: map[*value]*ir.Value{}, at: map[*ir.Value]int{}}
	im.stages = append(im.stages, im.cur)
}

// argument declares an argument of the function as an input.
func (im *importer) argument(a mlir.Arg, i int) (*value, error) {
	t, err := im.tensorType(a.Type)
	if err != nil {
		return nil, mlir.ErrorAt(im.m.Source, a.At, 1, "stablehlo", "%v", err)
	}
	v := im.cur.fb.Input(a.Name, t)
	im.args = append(im.args, v)
	im.cur.feeds = append(im.cur.feeds, Feed{Arg: i})
	return im.value(v), nil
}

// tensorType is the type of concert that a tensor type stands for.
func (im *importer) tensorType(t mlir.Type) (ir.Type, error) {
	if !t.Tensor {
		return ir.Type{}, fmt.Errorf("%s is no tensor", t)
	}
	dt, err := mlir.ElementType(t.Elem)
	if err != nil {
		return ir.Type{}, err
	}
	for _, d := range t.Shape {
		if d < 0 {
			return ir.Type{}, fmt.Errorf("the shape of %s is not known", t)
		}
	}
	if _, ok := mlir.NumElements(t.Shape); !ok {
		return ir.Type{}, fmt.Errorf("%s is too large", t)
	}
	return ir.Tensor(dt, t.Shape...), nil
}

// value wraps a value of the current stage.
func (im *importer) value(v *ir.Value) *value {
	return &value{typ: typeOf(v), v: v, stage: im.cur}
}

// typeOf is the type of a value in MLIR's terms.
func typeOf(v *ir.Value) mlir.Type {
	if v.Type().IsAsync() {
		return future
	}
	shape, _ := v.Type().Shape().Static()
	return mlir.Type{Tensor: true, Elem: mlir.ElementName(v.Type().DType()), Shape: shape}
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
	} else if s.caps != nil {
		var err error
		if out, err = s.capture(v); err != nil {
			return nil, err
		}
	} else if s.fb == nil {
		var err error
		if out, err = s.outside(v); err != nil {
			return nil, err
		}
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

// outside is a number that the body of an operation reads of what stands around it.
func (s *stage) outside(v *value) (*ir.Value, error) {
	im := s.im
	if len(v.typ.Shape) != 0 {
		return nil, im.errorf("the body of an operation reads %s from outside of it: only single numbers are supported", v.typ)
	}
	switch to := s.to.(type) {
	case *ir.FuncBuilder: // of one who only looks at the body
		t, err := im.tensorType(v.typ)
		if err != nil {
			return nil, im.errorf("%v", err)
		}
		return to.Input("outside", t), nil
	case *stage:
		if to.fb == nil || to.caps != nil || im.stages[to.index] == to {
			defer func() { im.cur = s }()
			im.cur = to
			return im.ir(v)
		}
	}
	return nil, im.errorf("op not supported: a loop whose body reads a value from outside of the operation")
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
func (im *importer) constant(l *mlir.Literal) (*ir.Value, error) {
	t := ir.Tensor(l.DType, l.Shape...)
	if l.Splat {
		if a, ok := number(l); ok {
			return im.emit(ir.OpFull, ir.A("value", a), nil, t)
		}
		one, err := im.constant(&mlir.Literal{DType: l.DType, Data: l.Data})
		if err != nil {
			return nil, err
		}
		return im.emit(ir.OpExpand, nil, []*ir.Value{one}, t)
	}
	if len(l.Data) > maxConstant && im.cur.caps != nil {
		return im.cur.capture(literalValue(l))
	}
	if len(l.Data) > maxConstant && im.cur.fb != nil {
		v := im.cur.fb.Parameter("constant", t)
		if im.global != nil {
			annotated(v, im.global.Replicated(len(l.Shape)))
		}
		im.cur.feeds = append(im.cur.feeds, Feed{Arg: -1, Ranks: []Source{{Literal: l}}})
		return v, nil
	}
	return im.emit(ir.OpConstant, ir.A("data", base64.StdEncoding.EncodeToString(l.Data)), nil, t)
}

// number is the element of a splat as an attribute, where an attribute has it exactly.
func number(l *mlir.Literal) (any, bool) {
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
	return im.errorf("%s: %v", im.op.Name, err)
}
