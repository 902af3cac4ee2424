package traced

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Types are those of the results.
func (c *Call) Types() ([]ir.Type, error) {
	out := make([]ir.Type, c.NumResults)
	for i := range out {
		t, err := c.Trace.TypeOf(i)
		if err != nil {
			return nil, err
		}
		if c.Pieces {
			t = ir.TensorOf(t.DType(), t.Shape())
		}
		out[i] = t
	}
	return out, nil
}

// Shape is the declared shape of result i.
func (c *Call) Shape(i int) ir.Shape {
	_, shape := c.Trace.Declared(i)
	return shape
}

// Bounds of a tensor: its elements, as the verifier has it, and its dimensions, PyTorch's own.
const (
	MaxElems = int64(1) << 50
	MaxRank  = 64
)

// Emit adds the node that stands for the traced node: its name, results and cost.
func (c *Call) Emit(op ir.Op, attrs, meta attr.List, args ...*ir.Value) (*ir.Node, error) {
	ts, err := c.Types()
	if err != nil {
		return nil, err
	}
	if want := op.Info().NumResults; want >= 0 && len(ts) != want {
		return nil, c.Fail("out", "results", "%s gives %d results, out lists %d", c.Target, want, len(ts))
	}
	if op == ir.OpSplit && len(ts) == 0 {
		return nil, c.Fail("out", "results", "%s gives at least one result, out lists none", c.Target)
	}
	if c.Copies && op.IsView() {
		return nil, c.copied(op, attrs, ts, args)
	}
	switch {
	case op.IsView():
		ts = c.viewed(op, attrs, ts, args)
	case len(ts) == 1 && len(args) > 0:
		if y := c.Longer(op, attrs, ts[0], args); y != nil {
			return nil, c.Settle(y)
		}
	}
	if c.Lines {
		return nil, c.lined(op, attrs, ts, args)
	}
	n := c.Append(op, attrs, meta, ts, nil, args)
	c.Results, c.View = n.Results(), n.Effects()&ir.EffectAlias != 0 && len(args) > 0
	return n, nil
}

// viewed are the types of a view. Where strides are open those of the operand may be others than the trace has: what
// would be a view that begins at a size is a copy.
func (c *Call) viewed(op ir.Op, attrs attr.List, ts []ir.Type, args []*ir.Value) []ir.Type {
	open := func(t ir.Type) bool { return t.Strides() == nil }
	if op == ir.OpAsStrided || len(args) != 1 || !open(args[0].Type()) && !slices.ContainsFunc(ts, open) {
		return ts
	}
	got, err := ir.Infer(op, nil, attrs, []ir.Type{args[0].Type()}, ts...)
	if err != nil || !slices.EqualFunc(got, ts, func(a, b ir.Type) bool { return a.DType() == b.DType() && a.Shape().Equal(b.Shape()) }) {
		return ts
	}
	return got
}

// Longer emits an operation that gives open sizes where the trace knows them to be numbers, and takes so many elements;
// nil if it gives what the trace has.
func (c *Call) Longer(op ir.Op, attrs attr.List, t ir.Type, args []*ir.Value) *ir.Value {
	types := make([]ir.Type, len(args))
	for i, a := range args {
		types[i] = a.Type()
	}
	got, err := ir.Infer(op, nil, attrs, types, ir.TensorOf(t.DType(), t.Shape()))
	if err != nil || len(got) != 1 || got[0].Shape().Equal(t.Shape()) || got[0].Rank() != t.Rank() {
		return nil
	}
	for d, n := range got[0].Shape() {
		_, known := n.Const()
		if _, number := t.Shape()[d].Const(); !n.Equal(t.Shape()[d]) && (known || !number) {
			return nil
		}
	}
	y := c.AsLong(c.Helper(op, attrs, got[0].WithDType(t.DType()), args...), t.Shape())
	return c.LaidOut(y, ir.TensorOf(t.DType(), t.Shape()))
}

// Fitted is a helper of a type that the trace has.
func (c *Call) Fitted(op ir.Op, attrs attr.List, t ir.Type, args ...*ir.Value) *ir.Value {
	if y := c.Longer(op, attrs, t, args); y != nil {
		return y
	}
	return c.Helper(op, attrs, t, args...)
}

// lined ends an operator on lines.
func (c *Call) lined(op ir.Op, attrs attr.List, ts []ir.Type, args []*ir.Value) error {
	types := make([]ir.Type, len(args))
	for i, a := range args {
		types[i] = a.Type()
	}
	got, err := ir.Infer(op, nil, attrs, types)
	if err != nil || len(got) != len(ts) {
		return Unknown(cmp.Or(err, ErrForm))
	}
	for i := range got {
		got[i] = ir.TensorOf(ts[i].DType(), got[i].Shape())
	}
	return c.Settle(slices.Clone(c.Helpers(op, attrs, got, args...))...)
}

// copied ends an operator whose results are copies of a view's, which has its own strides.
func (c *Call) copied(op ir.Op, attrs attr.List, ts []ir.Type, args []*ir.Value) error {
	var want []ir.Type
	switch op {
	case ir.OpView, ir.OpExpand:
		want = ts
	case ir.OpAsStrided:
		want = []ir.Type{ts[0].WithStrides(c.Ints("stride"))}
	}
	types := make([]ir.Type, len(args))
	for i, a := range args {
		types[i] = a.Type()
	}
	got, err := ir.Infer(op, nil, attrs, types, want...)
	if err = cmp.Or(c.Err, err); err != nil {
		return Unknown(err)
	}
	return c.Settle(slices.Clone(c.Helpers(op, attrs, got, args...))...)
}

// Append adds an IR node under the traced node's name.
func (c *Call) Append(op ir.Op, attrs, meta attr.List, ts []ir.Type, group *ir.Group, args []*ir.Value) *ir.Node {
	name := TextName(c.Name, "node")
	if name != c.Name || c.Func.Lookup(name) != nil {
		meta = meta.With(MetaName, attr.String(c.Name))
	}
	s := ir.NodeSpec{Op: op, Name: name, Args: args, Results: ts, Group: group, Attrs: attrs, Meta: meta, Cost: c.Ms}
	switch c.Class {
	case ir.ClassCompute, ir.ClassMemory, ir.ClassCollective:
		s.HasCost = !c.Charged && !c.NoMs
		if s.HasCost && c.Shares > 0 {
			s.Cost = c.share(op)
		}
	default:
		s.HasCost = c.Ms != 0
	}
	return c.Func.Append(s)
}

// Helper adds a node that the trace does not have but the IR needs. A copy among
// them carries the traced node's cost.
func (c *Call) Helper(op ir.Op, attrs attr.List, t ir.Type, args ...*ir.Value) *ir.Value {
	return c.Helpers(op, attrs, []ir.Type{t}, args...)[0]
}

// Helpers is helper of an op with several results.
func (c *Call) Helpers(op ir.Op, attrs attr.List, ts []ir.Type, args ...*ir.Value) []*ir.Value {
	s := ir.NodeSpec{Op: op, Name: TextName(c.Name, "node") + ".h", Args: args, Results: ts,
		Attrs: attrs, Meta: attr.Make(attr.Attr{Key: MetaHelper, Val: attr.String(c.Name)}), HasCost: !op.IsView()}
	switch {
	case c.Shares > 0 && !op.IsView():
		s.Cost, s.HasCost = c.share(op), !c.NoMs
	case op == ir.OpClone:
		s.Cost, s.HasCost, c.Charged = c.Ms, !c.NoMs, true
	}
	return c.Func.Append(s).Results()
}

// share is what of the traced node's cost one of the nodes has that stand for it: those
// bound by arithmetic have equal parts.
func (c *Call) share(op ir.Op) float64 {
	if op.Class() == ir.ClassCompute {
		return c.Ms / float64(c.Shares)
	}
	return 0
}

// EmitErr adds the node unless reading its arguments failed.
func (c *Call) EmitErr(op ir.Op, attrs attr.List, args ...*ir.Value) error {
	if c.Err != nil {
		return c.Err
	}
	_, err := c.Emit(op, attrs, nil, args...)
	return err
}
