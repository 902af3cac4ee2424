package fx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
)

// call is one traced operator being imported: its arguments, bound to the
// parameters of the operator's signature. The first error of an accessor sticks
// in err, so that an operator can read all of its arguments and check once.
type call struct {
	im     *importer
	n      *Node
	i      int32
	args   pyVal
	kwargs pyVal
	target string // without the prefix torch.ops

	params []string
	bound  []*pyVal
	inArgs []bool // bound from args, else from kwargs

	unsized     bool    // known for sizes that are numbers only
	free        bool    // the cost went to a helper
	shares      int     // bound by arithmetic among its nodes, which share the cost; 0 where there is one node
	operandRoot storage // storage of the first tensor operand read
	hasRoot     bool
	err         error
}

// errForm says that an operator is known, but not in the form it has here; the
// node becomes an opaque call.
var errForm = fmt.Errorf("unknown form")

func (c *call) fail(field, rule, format string, args ...any) *Error {
	return c.im.file.errorf(c.n.Name, field, rule, format, args...)
}

// failAt is fail with a column in the text of args or kwargs.
func (c *call) failAt(field string, col int, rule, format string, args ...any) *Error {
	e := c.fail(field, rule, format, args...)
	e.text, e.pos, e.size = c.n.Args, textPos(c.n.Args, col), 1
	if field == "kwargs" {
		e.text, e.pos = c.n.Kwargs, textPos(c.n.Kwargs, col)
	}
	return e
}

// textPos is the position of a 1-based byte column of a text that may have several lines.
func textPos(text string, col int) diag.Pos {
	return diag.NewSource("", text).PosAt(min(max(col-1, 0), len(text)))
}

// ignored lists keywords that say where and how a result is stored, which the
// node's out says already.
func ignored(key string) bool {
	switch key {
	case "dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "out_dtype":
		return true
	}
	return false
}

// bind matches arguments to parameters: names separated by blanks, those after
// '*' by keyword only. A leading '?' is not needed: absent arguments read as None.
func (c *call) bind(signature string) error {
	c.params = c.params[:0]
	positional := -1
	for _, p := range strings.Fields(signature) {
		if p == "*" {
			positional = len(c.params)
			continue
		}
		c.params = append(c.params, p)
	}
	if positional < 0 {
		positional = len(c.params)
	}
	if len(c.args.list) > positional {
		return errForm
	}
	c.bound = make([]*pyVal, len(c.params))
	c.inArgs = make([]bool, len(c.params))
	for k := range c.args.list {
		c.bound[k], c.inArgs[k] = &c.args.list[k], true
	}
	for k, key := range c.kwargs.kw {
		v := &c.kwargs.list[k]
		p := slices.Index(c.params, key)
		switch {
		case p >= 0 && c.bound[p] != nil:
			return c.failAt("kwargs", int(v.col), "arguments", "%q is given twice", key)
		case p >= 0:
			c.bound[p] = v
		case !ignored(key) && v.kind != pyNone:
			return errForm
		}
	}
	return nil
}

// arg returns the argument of a parameter, nil if absent or None.
func (c *call) arg(param string) *pyVal {
	k := slices.Index(c.params, param)
	if k < 0 || c.bound[k] == nil || c.bound[k].kind == pyNone {
		return nil
	}
	return c.bound[k]
}

// stick notes an error about an argument.
func (c *call) stick(param string, v *pyVal, format string, args ...any) {
	if c.err != nil {
		return
	}
	msg := param + ": " + fmt.Sprintf(format, args...)
	if v == nil {
		c.err = c.fail("args", "arguments", "%s", msg)
		return
	}
	field := "args"
	if k := slices.Index(c.params, param); k >= 0 && !c.inArgs[k] {
		field = "kwargs"
	}
	c.err = c.failAt(field, int(v.col), "arguments", "%s", msg)
}

func (c *call) want(param, what string, v *pyVal) {
	if v == nil {
		c.stick(param, nil, "expected %s, the argument is missing", what)
	} else {
		c.stick(param, v, "expected %s, found %s", what, v.kind)
	}
}

// value returns the tensor that a name stands for.
func (c *call) value(v *pyVal) (*ir.Value, error) {
	if d := c.im.sizeOf(v); d != nil {
		return c.counted(*d), nil
	}
	vals, st, err := c.values(v)
	if err != nil {
		return nil, err
	}
	if len(vals) != 1 {
		return nil, c.failAt("args", int(v.col), "operand", "%q has %d results; a getitem picks one", clip(v.s), len(vals))
	}
	if !c.hasRoot {
		c.operandRoot, c.hasRoot = st.root, true
	}
	return vals[0], nil
}

// values returns the tensors that a name stands for now.
func (c *call) values(v *pyVal) ([]*ir.Value, *state, error) {
	st := &c.im.nodes[c.im.index[v.s]]
	if err := c.im.checkOverwritten(c, v, st); err != nil {
		return nil, nil, err
	}
	fl := st.flight
	if fl == nil {
		return st.vals, st, nil
	}
	if fl.wait == nil {
		return nil, nil, c.failAt("args", int(v.col), "async", "%q is still in flight; wait for it first", clip(v.s))
	}
	if st.item == allItems {
		return fl.wait.Results(), st, nil
	}
	return fl.wait.Results()[st.item : st.item+1], st, nil
}

// tensor returns the operand of a parameter.
func (c *call) tensor(param string) *ir.Value {
	v := c.arg(param)
	if v == nil || v.kind != pyName {
		c.want(param, "a tensor", v)
		return nil
	}
	x, err := c.value(v)
	if err != nil && c.err == nil {
		c.err = err
	}
	return x
}

// selfAlong is operand self and the dimension along which an op works that has no meaning
// for a tensor of rank 0.
func (c *call) selfAlong(def int64) (x *ir.Value, d int64, err error) {
	if x = c.tensor("self"); c.err != nil {
		return nil, 0, c.err
	}
	if x.Type().Rank() == 0 {
		return nil, 0, errForm
	}
	d = c.dim("dim", def, x.Type().Rank())
	return x, d, c.err
}

func (c *call) isTensor(param string) bool {
	v := c.arg(param)
	return v != nil && v.kind == pyName
}

// listOf returns the elements of a list argument, nil if absent.
func (c *call) listOf(param string) []pyVal {
	v := c.arg(param)
	if v == nil {
		return nil
	}
	if v.kind != pyList && v.kind != pyTuple {
		c.want(param, "a list", v)
		return nil
	}
	return v.list
}

// tensors returns the operands of a list parameter.
func (c *call) tensors(param string) []*ir.Value {
	v := c.arg(param)
	if v == nil {
		c.want(param, "a list of tensors", v)
	}
	list := c.listOf(param)
	out := make([]*ir.Value, 0, len(list))
	for k := range list {
		if list[k].kind != pyName {
			c.want(param, "a tensor", &list[k])
			return nil
		}
		x, err := c.value(&list[k])
		if err != nil {
			if c.err == nil {
				c.err = err
			}
			return nil
		}
		out = append(out, x)
	}
	return out
}

// int returns an integer argument, or def if absent.
func (c *call) int(param string, def int64) int64 {
	v := c.arg(param)
	switch {
	case v == nil:
		return def
	case v.kind != pyInt:
		c.want(param, "an integer", v)
	}
	return v.i
}

// need returns an integer argument that must be present.
func (c *call) need(param string) int64 {
	if c.arg(param) == nil {
		c.want(param, "an integer", nil)
	}
	return c.int(param, 0)
}

// ints returns an integer list; a single integer is a list of one; nil if absent.
func (c *call) ints(param string) []int64 {
	v := c.arg(param)
	if v == nil {
		return nil
	}
	if v.kind == pyInt {
		return []int64{v.i}
	}
	list := c.listOf(param)
	out := make([]int64, 0, len(list))
	for k := range list {
		if list[k].kind != pyInt {
			c.want(param, "an integer", &list[k])
			return nil
		}
		out = append(out, list[k].i)
	}
	return out
}

func (c *call) bool(param string, def bool) bool {
	v := c.arg(param)
	switch {
	case v == nil:
		return def
	case v.kind != pyBool && v.kind != pyInt:
		c.want(param, "True or False", v)
	}
	return v.i != 0
}

// num returns a number argument as an attribute that keeps integers apart from
// floats; truth values are 0 and 1.
func (c *call) num(param string) (attr.Value, bool) {
	v := c.arg(param)
	if v == nil {
		return attr.Value{}, false
	}
	switch v.kind {
	case pyInt, pyBool:
		return attr.Int(v.i), true
	case pyFloat:
		return attr.Float(v.f), true
	}
	c.want(param, "a number", v)
	return attr.Value{}, false
}

func (c *call) str(param string) string {
	v := c.arg(param)
	if v == nil || v.kind != pyStr {
		c.want(param, "a string", v)
		return ""
	}
	return v.s
}

// strOr is a string argument, or what stands for one that is absent.
func (c *call) strOr(param, def string) string {
	if c.arg(param) == nil {
		return def
	}
	return c.str(param)
}

// dim normalises a dimension of a tensor of that rank, which may count from the
// end. A scalar counts as one dimension.
func (c *call) dim(param string, def int64, rank int) int64 {
	return c.normDim(param, c.int(param, def), rank)
}

func (c *call) normDim(param string, d int64, rank int) int64 {
	r := int64(max(rank, 1))
	if d < -r || d >= r {
		c.stick(param, c.arg(param), "dimension %d is outside the %d dimensions", d, rank)
		return 0
	}
	if d < 0 {
		d += r
	}
	return d
}

// dims normalises a list of dimensions; nil if absent or empty.
func (c *call) dims(param string, rank int) []int64 {
	list := slices.Clone(c.ints(param))
	if len(list) > maxRank {
		c.stick(param, c.arg(param), "%d dimensions are more than a tensor has", len(list))
		return nil
	}
	for k, d := range list {
		list[k] = c.normDim(param, d, rank)
	}
	return list
}

// static returns the sizes of a tensor, for operators that are imported through them.
func static(v *ir.Value) []int64 { return sizesOf(v.Type()) }

// sizeAt returns the size of one dimension, as static does of all.
func sizeAt(v *ir.Value, d int64) int64 {
	n, ok := v.Type().Shape()[d].Const()
	if !ok {
		panic(unsized{})
	}
	return n
}

// sizesOf returns the sizes of a type. Where one is known at run time only, the node is
// imported in another way: it panics with unsized, which build recovers.
func sizesOf(t ir.Type) []int64 {
	s, ok := t.Shape().Static()
	if !ok {
		panic(unsized{})
	}
	return s
}

// types converts the node's out.
func (c *call) types() ([]ir.Type, error) {
	out := make([]ir.Type, len(c.n.Out))
	for i := range c.n.Out {
		t, err := c.tensorType(i)
		if err != nil {
			return nil, err
		}
		out[i] = t
	}
	return out, nil
}

// maxElems bounds element counts, as the verifier does.
const maxElems = int64(1) << 50

func (c *call) tensorType(i int) (ir.Type, error) {
	t := &c.n.Out[i]
	dt, ok := parseDType(t.DType)
	if !ok {
		return ir.Type{}, c.fail("out", "type", "result %d has element type %q, which concert does not have", i, clip(t.DType))
	}
	if t.Dims != nil || t.Steps != nil {
		return c.sizedType(i, dt)
	}
	if len(t.Shape) != len(t.Stride) || len(t.Shape) > maxRank {
		return ir.Type{}, c.fail("out", "type", "result %d has %d dimensions and %d strides", i, len(t.Shape), len(t.Stride))
	}
	total, reach := int64(1), int64(0)
	for k, d := range t.Shape {
		st := t.Stride[k]
		switch {
		case d < 0:
			return ir.Type{}, c.fail("out", "type", "dimension %d of result %d is negative: %d", k, i, d)
		case st < 0:
			return ir.Type{}, c.fail("out", "type", "stride %d of result %d is negative: %d", k, i, st)
		case d > 0 && total > maxElems/d, d > 1 && (st > maxElems || (d-1) > maxElems/max(st, 1)):
			return ir.Type{}, c.fail("out", "type", "result %d holds or spans more than 2^50 elements", i)
		}
		total *= d
		if d > 1 {
			reach += (d - 1) * st
		}
	}
	if reach > maxElems {
		return ir.Type{}, c.fail("out", "type", "result %d holds or spans more than 2^50 elements", i)
	}
	return ir.Tensor(dt, t.Shape...).WithStrides(t.Stride), nil
}

// emit adds the node that stands for the traced node: its name, results and cost.
func (c *call) emit(op ir.Op, attrs, meta attr.List, args ...*ir.Value) (*ir.Node, error) {
	ts, err := c.types()
	if err != nil {
		return nil, err
	}
	if want := op.Info().NumResults; want >= 0 && len(ts) != want {
		return nil, c.fail("out", "results", "%s gives %d results, out lists %d", c.n.Target, want, len(ts))
	}
	if op == ir.OpSplit && len(ts) == 0 {
		return nil, c.fail("out", "results", "%s gives at least one result, out lists none", c.n.Target)
	}
	n := c.append(op, attrs, meta, ts, nil, args)
	st := &c.im.nodes[c.i]
	st.vals = n.Results()
	st.root = storage{node: c.i}
	if n.Effects()&ir.EffectAlias != 0 && len(args) > 0 {
		st.root = c.operandRoot
	}
	return n, nil
}

// append adds an IR node under the traced node's name.
func (c *call) append(op ir.Op, attrs, meta attr.List, ts []ir.Type, group *ir.Group, args []*ir.Value) *ir.Node {
	name := textName(c.n.Name, "node")
	if name != c.n.Name || c.im.fn.Lookup(name) != nil {
		meta = meta.With(MetaName, attr.String(c.n.Name))
	}
	s := ir.NodeSpec{Op: op, Name: name, Args: args, Results: ts, Group: group, Attrs: attrs, Meta: meta, Cost: c.n.Ms}
	switch c.n.Kind {
	case KindCompute, KindMemory, KindCollective:
		s.HasCost = !c.free && !c.n.NoMs
		if s.HasCost && c.shares > 0 {
			s.Cost = c.share(op)
		}
	default:
		s.HasCost = c.n.Ms != 0
	}
	return c.im.fn.Append(s)
}

// helper adds a node that the trace does not have but the IR needs. A copy among
// them carries the traced node's cost.
func (c *call) helper(op ir.Op, attrs attr.List, t ir.Type, args ...*ir.Value) *ir.Value {
	s := ir.NodeSpec{Op: op, Name: textName(c.n.Name, "node") + ".h", Args: args, Results: []ir.Type{t},
		Attrs: attrs, Meta: attr.Make(attr.Attr{Key: MetaHelper, Val: attr.String(c.n.Name)}), HasCost: !op.IsView()}
	switch {
	case c.shares > 0 && !op.IsView():
		s.Cost, s.HasCost = c.share(op), !c.n.NoMs
	case op == ir.OpClone:
		s.Cost, s.HasCost, c.free = c.n.Ms, !c.n.NoMs, true
	}
	return c.im.fn.Append(s).Result(0)
}

// share is what of the traced node's cost one of the nodes has that stand for it: those
// bound by arithmetic have equal parts.
func (c *call) share(op ir.Op) float64 {
	if op.Class() == ir.ClassCompute {
		return c.n.Ms / float64(c.shares)
	}
	return 0
}
