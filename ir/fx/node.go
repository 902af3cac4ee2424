package fx

import (
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// node is one traced node being imported. It is the trace that its call reads.
type node struct {
	*traced.Call
	im *importer
	n  *Node
	i  int32

	operandRoot storage // storage of the first tensor operand read
	hasRoot     bool
}

// newNode is node i of the file, whose texts are yet to be parsed.
func (im *importer) newNode(i int32) *node {
	n := &im.file.Nodes[i]
	c := &node{im: im, n: n, i: i}
	c.Call = &traced.Call{Trace: c, Func: im.fn, Name: n.Name, Target: n.Target, Operator: strings.TrimPrefix(n.Target, "torch.ops."),
		Class: classOf(n.Kind), Ms: n.Ms, NoMs: n.NoMs, NumResults: len(n.Out)}
	return c
}

// classOf is the class that a kind says; that of inputs for what is no operator.
func classOf(kind string) ir.Class {
	for c := ir.ClassInput; c <= ir.ClassWait; c++ {
		if c.String() == kind {
			return c
		}
	}
	return ir.ClassInput
}

// emit adds the node that stands for the traced node.
func (c *node) emit(op ir.Op, attrs, meta attr.List, args ...*ir.Value) (*ir.Node, error) {
	n, err := c.Call.Emit(op, attrs, meta, args...)
	if err == nil {
		c.keep()
	}
	return n, err
}

// keep makes the traced name stand for what the call gave.
func (c *node) keep() {
	st := &c.im.nodes[c.i]
	st.vals, st.items, st.root = c.Results, c.Items, storage{node: c.i}
	if c.View {
		st.root = c.operandRoot
	}
}

func (c *node) Errorf(field string, col int, rule, msg string) error {
	e := c.im.file.errorf(c.n.Name, field, rule, "%s", msg)
	if col > 0 {
		text := c.n.Args
		if field == "kwargs" {
			text = c.n.Kwargs
		}
		e.text, e.pos, e.size = text, textPos(text, col), 1
	}
	return e
}

// textPos is the position of a 1-based byte column of a text that may have several lines.
func textPos(text string, col int) diag.Pos {
	return diag.NewSource("", text).PosAt(min(max(col-1, 0), len(text)))
}

func (c *node) SizeOf(v *pytext.Value) *ir.Dim { return c.im.sizeOf(v) }

func (c *node) Open(v *pytext.Value) bool { return c.im.open(v) }

func (c *node) Require(d ir.Dim) { c.im.check(d) }

func (c *node) Bounds(d ir.Dim) (least, most int64, ok bool) {
	r, ok := c.im.m.Bounds(d)
	return r.Min, r.Max, ok
}

func (c *node) Declared(i int) (dtype string, shape ir.Shape) {
	return c.n.Out[i].DType, c.n.Out[i].shape()
}

// values returns the tensors that a name stands for now.
func (c *node) values(v *pytext.Value) ([]*ir.Value, *state, error) {
	st := &c.im.nodes[c.im.index[v.Text]]
	if err := c.im.checkOverwritten(c, v, st); err != nil {
		return nil, nil, err
	}
	fl := st.flight
	if fl == nil {
		return st.vals, st, nil
	}
	if fl.wait == nil {
		return nil, nil, c.FailAt("args", int(v.Col), "async", "%q is still in flight; wait for it first", pytext.Clip(v.Text))
	}
	if st.item == allItems {
		return fl.wait.Results(), st, nil
	}
	return fl.wait.Results()[st.item : st.item+1], st, nil
}

// Value returns the tensor that a name stands for.
func (c *node) Value(v *pytext.Value) (*ir.Value, error) {
	if d := c.im.sizeOf(v); d != nil {
		return c.Counted(*d), nil
	}
	if f := c.im.nodes[c.im.index[v.Text]].float; f != nil {
		return c.counted(f), nil
	}
	vals, st, err := c.values(v)
	if err != nil {
		return nil, err
	}
	if len(vals) != 1 {
		return nil, c.FailAt("args", int(v.Col), "operand", "%q has %d results; a getitem picks one", pytext.Clip(v.Text), len(vals))
	}
	if !c.hasRoot {
		c.operandRoot, c.hasRoot = st.root, true
	}
	return vals[0], nil
}

func (c *node) TypeOf(i int) (ir.Type, error) {
	t := &c.n.Out[i]
	dt, ok := pytext.ParseDType(t.DType)
	if !ok {
		return ir.Type{}, c.Fail("out", "type", "result %d has element type %q, which concert does not have", i, pytext.Clip(t.DType))
	}
	if t.Dims != nil || t.Steps != nil {
		return c.sizedType(i, dt)
	}
	if len(t.Shape) != len(t.Stride) || len(t.Shape) > traced.MaxRank {
		return ir.Type{}, c.Fail("out", "type", "result %d has %d dimensions and %d strides", i, len(t.Shape), len(t.Stride))
	}
	total, reach := int64(1), int64(0)
	for k, d := range t.Shape {
		st := t.Stride[k]
		switch {
		case d < 0:
			return ir.Type{}, c.Fail("out", "type", "dimension %d of result %d is negative: %d", k, i, d)
		case st < 0:
			return ir.Type{}, c.Fail("out", "type", "stride %d of result %d is negative: %d", k, i, st)
		case d > 0 && total > traced.MaxElems/d, d > 1 && (st > traced.MaxElems || (d-1) > traced.MaxElems/max(st, 1)):
			return ir.Type{}, c.Fail("out", "type", "result %d holds or spans more than 2^50 elements", i)
		}
		total *= d
		if d > 1 {
			reach += (d - 1) * st
		}
	}
	if reach > traced.MaxElems {
		return ir.Type{}, c.Fail("out", "type", "result %d holds or spans more than 2^50 elements", i)
	}
	return ir.Tensor(dt, t.Shape...).WithStrides(t.Stride), nil
}
