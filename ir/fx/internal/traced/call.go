// Package traced represents one traced operator during import: its arguments, bound to a
// signature and checked, and the nodes made for it.
package traced

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
)

// The annotations of nodes that an import makes.
const (
	MetaName   = "fx"     // the traced name, where the IR's name differs
	MetaHelper = "helper" // the traced node that an added node belongs to
)

// Trace is the graph that a call stands in.
type Trace interface {
	Value(v *pytext.Value) (*ir.Value, error)                          // the tensor that a name stands for
	SizeOf(v *pytext.Value) *ir.Dim                                    // the number that a name stands for; nil if that is none
	Open(v *pytext.Value) bool                                         // whether a name stands for a number that is known at run time only
	Declared(i int) (dtype string, shape ir.Shape)                     // what the trace says of result i
	TypeOf(i int) (ir.Type, error)                                     // the type of result i
	Require(d ir.Dim)                                                  // the program is for sizes that leave d at 0 or more
	Bounds(d ir.Dim) (least, most int64, ok bool)                      // of what d may be
	Reads(d ir.Dim, of *ir.Value, most int64) (symbol string, ok bool) // whether d may be the number of what holds in a mask of most elements, and the symbol that is to be set to it, empty if it is set
	Errorf(field string, col int, rule, msg string) error              // about a field, at a 1-based column of its text, or 0
}

// Call is one traced operator being imported: its arguments, bound to the
// parameters of the operator's signature, and the nodes that stand for it. The first error
// of an accessor sticks in Err, so that an operator can read all of its arguments and check once.
type Call struct {
	Trace      Trace
	Func       *ir.Func
	Name       string // of the traced node
	Target     string // its operator, as the trace has it
	Operator   string // the same without the prefix torch.ops
	Class      ir.Class
	Ms         float64 // cost in milliseconds
	NoMs       bool    // the cost is not known
	NumResults int     // as the trace declares them
	Args       pytext.Value
	Kwargs     pytext.Value

	Params []string // of the signature, which Run binds
	bound  []*pytext.Value
	inArgs []bool // bound from args, else from kwargs

	Complex func(name string) bool // whether a name stands for pairs; nil if no operand or result is complex

	Unsized bool // known for sizes that are numbers only
	Charged bool // the cost went to a helper
	Shares  int  // bound by arithmetic among its nodes, which share the cost; 0 where there is one node

	Results []*ir.Value // what the traced name stands for
	Items   []int       // places of results in the result tuple, where that holds more than tensors; nil for others
	View    bool        // the results share the storage of the first operand read
	Lines   bool        // scalars among the operands and results are lines of one element
	Copies  bool        // what views give is wanted as copies
	Pieces  bool        // results are copies, in row-major order, of what the trace has views of
	Err     error
}

// ErrForm says that an operator is known, but not in the form it has here; the
// node becomes an opaque call.
var ErrForm = fmt.Errorf("unknown form")

// Unknown is ErrForm with the reason.
func Unknown(err error) error { return fmt.Errorf("%w: %w", ErrForm, err) }

// Fail is an error about a field of the node.
func (c *Call) Fail(field, rule, format string, args ...any) error {
	return c.Trace.Errorf(field, 0, rule, fmt.Sprintf(format, args...))
}

// FailAt is fail with a 1-based column in the text of args or kwargs.
func (c *Call) FailAt(field string, col int, rule, format string, args ...any) error {
	return c.Trace.Errorf(field, col, rule, fmt.Sprintf(format, args...))
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

// Bind matches arguments to parameters: names separated by blanks, those after
// '*' by keyword only. A leading '?' is not needed: absent arguments read as None.
func (c *Call) Bind(signature string) error {
	c.Params = c.Params[:0]
	positional := -1
	for _, p := range strings.Fields(signature) {
		if p == "*" {
			positional = len(c.Params)
			continue
		}
		c.Params = append(c.Params, p)
	}
	if positional < 0 {
		positional = len(c.Params)
	}
	if len(c.Args.List) > positional {
		return ErrForm
	}
	c.bound = make([]*pytext.Value, len(c.Params))
	c.inArgs = make([]bool, len(c.Params))
	for k := range c.Args.List {
		c.bound[k], c.inArgs[k] = &c.Args.List[k], true
	}
	for k, key := range c.Kwargs.Keys {
		v := &c.Kwargs.List[k]
		p := slices.Index(c.Params, key)
		switch {
		case p >= 0 && c.bound[p] != nil:
			return c.FailAt("kwargs", int(v.Col), "arguments", "%q is given twice", key)
		case p >= 0:
			c.bound[p] = v
		case !ignored(key) && v.Kind != pytext.None:
			return ErrForm
		}
	}
	return nil
}

// Arg returns the argument of a parameter, nil if absent or None.
func (c *Call) Arg(param string) *pytext.Value {
	k := slices.Index(c.Params, param)
	if k < 0 || c.bound[k] == nil || c.bound[k].Kind == pytext.None {
		return nil
	}
	return c.bound[k]
}

// Reject notes an error about an argument.
func (c *Call) Reject(param string, v *pytext.Value, format string, args ...any) {
	if c.Err != nil {
		return
	}
	msg := param + ": " + fmt.Sprintf(format, args...)
	if v == nil {
		c.Err = c.Fail("args", "arguments", "%s", msg)
		return
	}
	field := "args"
	if k := slices.Index(c.Params, param); k >= 0 && !c.inArgs[k] {
		field = "kwargs"
	}
	c.Err = c.FailAt(field, int(v.Col), "arguments", "%s", msg)
}

// Want notes that an argument is not what the operator takes.
func (c *Call) Want(param, what string, v *pytext.Value) {
	if v == nil {
		c.Reject(param, nil, "expected %s, the argument is missing", what)
	} else {
		c.Reject(param, v, "expected %s, found %s", what, v.Kind)
	}
}

// Tensor returns the operand of a parameter.
func (c *Call) Tensor(param string) *ir.Value {
	v := c.Arg(param)
	if v == nil || v.Kind != pytext.Name {
		c.Want(param, "a tensor", v)
		return nil
	}
	x, err := c.Trace.Value(v)
	if err != nil && c.Err == nil {
		c.Err = err
	}
	if c.Lines && c.Err == nil && x.Type().Rank() == 0 {
		x = c.Shaped(x, 1)
	}
	return x
}

// IsScalar reports whether an argument is a tensor without dimensions.
func (c *Call) IsScalar(param string) bool {
	if !c.IsTensor(param) {
		return false
	}
	x := c.Tensor(param)
	return c.Err == nil && x.Type().Rank() == 0
}

// SelfAlong is operand self and the dimension along which an op works.
func (c *Call) SelfAlong(def int64) (x *ir.Value, d int64, err error) {
	if x = c.Tensor("self"); c.Err != nil {
		return nil, 0, c.Err
	}
	d = c.Dim("dim", def, x.Type().Rank())
	return x, d, c.Err
}

// IsTensor reports whether an argument is a tensor.
func (c *Call) IsTensor(param string) bool {
	v := c.Arg(param)
	return v != nil && v.Kind == pytext.Name
}

// ListOf returns the elements of a list argument, nil if absent.
func (c *Call) ListOf(param string) []pytext.Value {
	v := c.Arg(param)
	if v == nil {
		return nil
	}
	if v.Kind != pytext.List && v.Kind != pytext.Tuple {
		c.Want(param, "a list", v)
		return nil
	}
	return v.List
}

// Tensors returns the operands of a list parameter.
func (c *Call) Tensors(param string) []*ir.Value {
	v := c.Arg(param)
	if v == nil {
		c.Want(param, "a list of tensors", v)
	}
	list := c.ListOf(param)
	out := make([]*ir.Value, 0, len(list))
	for k := range list {
		if list[k].Kind != pytext.Name {
			c.Want(param, "a tensor", &list[k])
			return nil
		}
		x, err := c.Trace.Value(&list[k])
		if err != nil {
			if c.Err == nil {
				c.Err = err
			}
			return nil
		}
		out = append(out, x)
	}
	return out
}

// Int returns an integer argument, or def if absent.
func (c *Call) Int(param string, def int64) int64 {
	v := c.Arg(param)
	switch {
	case v == nil:
		return def
	case v.Kind != pytext.Int:
		c.closed(v)
		c.Want(param, "an integer", v)
	}
	return v.Int
}

// closed leaves an operator that is imported through a number which is known at run time only.
func (c *Call) closed(v *pytext.Value) {
	if c.Trace.Open(v) {
		panic(unsized{})
	}
}

// Need returns an integer argument that must be present.
func (c *Call) Need(param string) int64 {
	if c.Arg(param) == nil {
		c.Want(param, "an integer", nil)
	}
	return c.Int(param, 0)
}

// Ints returns an integer list; a single integer is a list of one; nil if absent.
func (c *Call) Ints(param string) []int64 {
	v := c.Arg(param)
	if v == nil {
		return nil
	}
	if v.Kind == pytext.Int {
		return []int64{v.Int}
	}
	list := c.ListOf(param)
	out := make([]int64, 0, len(list))
	for k := range list {
		if list[k].Kind != pytext.Int {
			c.closed(&list[k])
			c.Want(param, "an integer", &list[k])
			return nil
		}
		out = append(out, list[k].Int)
	}
	return out
}

// Bool returns a truth value, or def if absent.
func (c *Call) Bool(param string, def bool) bool {
	v := c.Arg(param)
	switch {
	case v == nil:
		return def
	case v.Kind != pytext.Bool && v.Kind != pytext.Int:
		c.Want(param, "True or False", v)
	}
	return v.Int != 0
}

// Num returns a number argument as an attribute that keeps integers apart from
// floats; truth values are 0 and 1.
func (c *Call) Num(param string) (attr.Value, bool) {
	v := c.Arg(param)
	if v == nil {
		return attr.Value{}, false
	}
	switch v.Kind {
	case pytext.Int, pytext.Bool:
		return attr.Int(v.Int), true
	case pytext.Float:
		return attr.Float(v.Float), true
	}
	c.closed(v)
	c.Want(param, "a number", v)
	return attr.Value{}, false
}

// Mask reads a list of n truth values.
func (c *Call) Mask(param string, n int) []bool {
	list := c.ListOf(param)
	out := make([]bool, len(list))
	for i := range list {
		if list[i].Kind != pytext.Bool && list[i].Kind != pytext.Int {
			c.Want(param, "True or False", &list[i])
			return nil
		}
		out[i] = list[i].Int != 0
	}
	if len(out) != n && c.Err == nil {
		c.Reject(param, c.Arg(param), "%d truth values, want %d", len(out), n)
		return nil
	}
	return out
}

// Str returns a string argument that must be present.
func (c *Call) Str(param string) string {
	v := c.Arg(param)
	if v == nil || v.Kind != pytext.Str {
		c.Want(param, "a string", v)
		return ""
	}
	return v.Text
}

// StrOr is a string argument, or what stands for one that is absent.
func (c *Call) StrOr(param, def string) string {
	if c.Arg(param) == nil {
		return def
	}
	return c.Str(param)
}

// Dim normalises a dimension of a tensor of that rank, which may count from the
// end. A scalar counts as one dimension.
func (c *Call) Dim(param string, def int64, rank int) int64 {
	return c.NormDim(param, c.Int(param, def), rank)
}

// NormDim is Dim of a number.
func (c *Call) NormDim(param string, d int64, rank int) int64 {
	r := int64(max(rank, 1))
	if d < -r || d >= r {
		c.Reject(param, c.Arg(param), "dimension %d is outside the %d dimensions", d, rank)
		return 0
	}
	if d < 0 {
		d += r
	}
	return d
}

// Dims normalises a list of dimensions; nil if absent or empty.
func (c *Call) Dims(param string, rank int) []int64 {
	list := slices.Clone(c.Ints(param))
	if len(list) > MaxRank {
		c.Reject(param, c.Arg(param), "%d dimensions are more than a tensor has", len(list))
		return nil
	}
	for k, d := range list {
		list[k] = c.NormDim(param, d, rank)
	}
	return list
}

// TextName turns a name into one of the text form: letters, digits, '_', '.' and '$'.
func TextName(s, empty string) string {
	if s == "" {
		return empty
	}
	ok := func(c byte) bool { return c < 0x80 && (pytext.NameByte(c) || c == '.' || c == '$') }
	for i := 0; i < len(s); i++ {
		if ok(s[i]) {
			continue
		}
		b := []byte(s)
		for j := range b {
			if !ok(b[j]) {
				b[j] = '_'
			}
		}
		return string(b)
	}
	return s
}
