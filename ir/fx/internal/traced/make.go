package traced

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
)

// What decompositions are written with: operations whose types follow from their operands.
// After an error they return a tensor of rank 0, and the error stays in Err; who asks for
// sizes looks at Err first.

// Make adds a helper of the type that the type rule gives.
func (c *Call) Make(op ir.Op, attrs attr.List, args ...*ir.Value) *ir.Value {
	return c.MakeAs(op, nil, attrs, args)[0]
}

// MakeAs is Make on a group, of types that the rule leaves open and of any number of results.
func (c *Call) MakeAs(op ir.Op, group *ir.Group, attrs attr.List, args []*ir.Value, want ...ir.Type) []*ir.Value {
	types := make([]ir.Type, len(args))
	for i, a := range args {
		types[i] = a.Type()
	}
	ts, err := ir.Infer(op, group, attrs, types, want...)
	if err == nil && len(ts) == 0 {
		err = ErrForm
	}
	if err != nil {
		if c.Err == nil {
			c.open(types...)
			c.Err = c.Fail("args", "arguments", "%s: %v", c.Target, err)
		}
		return slices.Repeat([]*ir.Value{c.None()}, max(len(ts), 1))
	}
	return c.Helpers(op, attrs, ts, args...)
}

// Emitter makes what package decompose emits helpers of the traced node.
type Emitter struct{ *Call }

// Op appends an operation.
func (e Emitter) Op(op ir.Op, group *ir.Group, attrs ir.Attrs, args []*ir.Value, types ...ir.Type) []*ir.Value {
	return e.MakeAs(op, group, attrs, args, types...)
}

// None is what an operation gives after an error.
func (c *Call) None() *ir.Value { return c.Filled(attr.Int(0), dtype.F32) }

// With is op of a tensor and a number.
func (c *Call) With(op ir.Op, x *ir.Value, n float64) *ir.Value {
	if x.Type().DType().IsFloat() {
		return c.Make(op, Scalar(attr.Float(n)), x)
	}
	return c.Make(op, Scalar(attr.Int(int64(n))), x)
}

// Filled is a tensor of one number.
func (c *Call) Filled(v attr.Value, dt ir.DType, shape ...int64) *ir.Value {
	return c.Helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: v}), ir.Tensor(dt, shape...))
}

// Full is Filled of sizes that may be open.
func (c *Call) Full(v attr.Value, dt ir.DType, shape ir.Shape) *ir.Value {
	return c.Helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: v}), ir.TensorOf(dt, shape))
}

// Counting is 0, 1, ... as i64[n].
func (c *Call) Counting(n int64) *ir.Value { return c.Places(ir.D(n)) }

// Places is Counting of a size that may be open.
func (c *Call) Places(n ir.Dim) *ir.Value {
	return c.Helper(ir.OpIota, nil, ir.TensorOf(ir.I64, ir.Shape{n}))
}

// dense is x in row-major order.
func (c *Call) dense(x *ir.Value) *ir.Value { return c.LaidOut(x, Like(x, x.Type().DType())) }

// Shaped is x, in row-major order, in another shape.
func (c *Call) Shaped(x *ir.Value, shape ...int64) *ir.Value { return c.Reshaped(x, ir.Dims(shape...)) }

// Reshaped is Shaped of sizes that may be open.
func (c *Call) Reshaped(x *ir.Value, shape ir.Shape) *ir.Value {
	return c.Helper(ir.OpView, nil, ir.TensorOf(x.Type().DType(), shape), c.dense(x))
}

// Permuted is x with its dimensions in another order.
func (c *Call) Permuted(x *ir.Value, dims ...int64) *ir.Value {
	return c.Make(ir.OpPermute, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(dims...)}), x)
}

// Flat is x as one dimension.
func (c *Call) Flat(x *ir.Value) *ir.Value {
	return c.Reshaped(x, ir.Shape{x.Type().Shape().NumElems()})
}

// Slice is x from start to end along d.
func (c *Call) Slice(x *ir.Value, d int, start, end int64) *ir.Value {
	if !Placed(x, d, start) {
		return c.SizedPiece(x, int64(d), ir.D(start), ir.D(end-start), 1)
	}
	return c.Make(ir.OpSlice, DimAttr(int64(d)).With("start", attr.Int(start)).With("end", attr.Int(end)), x)
}

// Unsqueezed has dimensions of one element before the dimensions in ds, one by one.
func (c *Call) Unsqueezed(x *ir.Value, ds ...int64) *ir.Value {
	for _, d := range ds {
		x = c.Make(ir.OpUnsqueeze, DimAttr(d), x)
	}
	return x
}

// Over is a reduction over dims, all if there are none.
func (c *Call) Over(op ir.Op, x *ir.Value, keep bool, dims ...int64) *ir.Value {
	var l attr.List
	if len(dims) > 0 {
		l = l.With("dims", attr.Ints(dims...))
	}
	if keep {
		l = l.With("keepdim", attr.Bool(true))
	}
	return c.Make(op, l, x)
}

// Broadcast is x in a shape to which it broadcasts.
func (c *Call) Broadcast(x *ir.Value, shape ir.Shape) (*ir.Value, bool) {
	from := x.Type().Shape()
	if from.Equal(shape) {
		return x, true
	}
	ts, err := ir.Infer(ir.OpExpand, nil, nil, []ir.Type{x.Type()}, ir.TensorOf(x.Type().DType(), shape))
	if err != nil {
		return x, false
	}
	return c.Helper(ir.OpExpand, nil, ts[0], x), true
}

// Settle ends a decomposition whose results are there: the first gets the traced name, and
// all get the declared layouts.
func (c *Call) Settle(vals ...*ir.Value) error {
	if c.Err != nil {
		return c.Err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if len(ts) != len(vals) {
		return c.Fail("out", "results", "%s gives %d results, out lists %d", c.Target, len(vals), len(ts))
	}
	for i, v := range vals {
		if c.Lines && ts[i].Rank() != v.Type().Rank() && v.Type().Shape().NumElems().Equal(ir.D(1)) {
			v = c.Reshaped(v, ts[i].Shape())
		}
		if !v.Type().Shape().Equal(ts[i].Shape()) {
			c.open(v.Type(), ts[i])
			return c.Fail("out", "type", "result %d is %s, the arguments give %s", i, ts[i], v.Type())
		}
		if v = c.In(ts[i].DType(), v); i > 0 {
			v = c.LaidOut(v, ts[i])
		}
		vals[i] = v
	}
	if c.named(vals[0], ts[0]) {
		c.Results, c.View = vals, false
		return nil
	}
	return c.Finish(ir.OpClone, nil, vals[:1], vals[1:]...)
}

// named gives the helper that computes v the traced name, cost and layout, if nobody
// reads it yet.
func (c *Call) named(v *ir.Value, t ir.Type) bool {
	n, fn := v.Def(), c.Func
	if n.Op().IsView() || len(n.Results()) != 1 || n.Meta().Str(MetaHelper, "") != c.Name || len(v.Uses()) > 0 {
		return false
	}
	fn.SetType(v, t)
	meta := attr.List(nil)
	if name := TextName(c.Name, "node"); fn.Rename(n, name) != c.Name {
		meta = meta.With(MetaName, attr.String(c.Name))
	}
	fn.SetMeta(n, meta)
	switch {
	case c.NoMs:
		fn.SetCost(n, math.NaN())
	case !c.Charged:
		fn.SetCost(n, c.Ms)
	}
	return true
}

// Finish ends a decomposition: the traced node's name and cost go to the first value's
// node, made by op here; the others are helpers.
func (c *Call) Finish(op ir.Op, attrs attr.List, args []*ir.Value, others ...*ir.Value) error {
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if c.Lines && c.Err == nil {
		return c.Settle(append([]*ir.Value{c.Make(op, attrs, args...)}, others...)...)
	}
	if len(ts) != 1+len(others) {
		return c.Fail("out", "results", "%s gives %d results, out lists %d", c.Target, 1+len(others), len(ts))
	}
	n := c.Append(op, attrs, nil, ts[:1], nil, args)
	c.Results, c.View = append(slices.Clone(n.Results()), others...), op.IsView()
	for k, v := range others {
		if !v.Type().Equal(ts[k+1]) {
			return c.Fail("out", "type", "result %d is %s, the arguments give %s", k+1, ts[k+1], v.Type())
		}
	}
	return nil
}

// Like is a contiguous type of x's shape.
func Like(x *ir.Value, dt ir.DType) ir.Type { return ir.TensorOf(dt, x.Type().Shape()) }

// In converts x, where it is of another element type.
func (c *Call) In(dt ir.DType, x *ir.Value) *ir.Value {
	if x.Type().DType() == dt {
		return x
	}
	return c.Helper(ir.OpConvert, nil, Like(x, dt), x)
}

// Scalar is the attribute of a number that stands for an operand.
func Scalar(v attr.Value) attr.List { return attr.Make(attr.Attr{Key: "scalar", Val: v}) }

// LaidOut is x in the type's layout.
func (c *Call) LaidOut(x *ir.Value, t ir.Type) *ir.Value {
	if x.Type().Equal(t) {
		return x
	}
	return c.Helper(ir.OpClone, nil, t, x)
}

// DimAttr is the attribute of the dimension along which an op works.
func DimAttr(d int64) attr.List { return attr.List{{Key: "dim", Val: attr.Int(d)}} }

// AccType is the type in which sums of a type are kept: those of integers wrap in theirs.
func AccType(dt ir.DType) ir.DType {
	if dt.IsFloat() && dt.Size() < 4 {
		return ir.F32
	}
	return dt
}

// Add is a + b.
func (c *Call) Add(a, b *ir.Value) *ir.Value { return c.Make(ir.OpAdd, nil, a, b) }

// Sub is a - b.
func (c *Call) Sub(a, b *ir.Value) *ir.Value { return c.Make(ir.OpSub, nil, a, b) }

// Mul is the product of a and all of bs.
func (c *Call) Mul(a *ir.Value, bs ...*ir.Value) *ir.Value {
	for _, b := range bs {
		a = c.Make(ir.OpMul, nil, a, b)
	}
	return a
}

// Rest is 1 - x.
func (c *Call) Rest(x *ir.Value) *ir.Value {
	return c.With(ir.OpAdd, c.Make(ir.OpNeg, nil, x), 1)
}
