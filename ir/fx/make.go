package fx

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
)

// What decompositions are written with: operations whose types follow from their operands.
// After an error they return a tensor of rank 0, and the error stays in err; who asks for
// sizes looks at err first.

// make adds a helper of the type that the type rule gives.
func (c *call) make(op ir.Op, attrs attr.List, args ...*ir.Value) *ir.Value {
	types := make([]ir.Type, len(args))
	for i, a := range args {
		types[i] = a.Type()
	}
	ts, err := ir.Infer(op, nil, attrs, types)
	if err == nil && len(ts) != 1 {
		err = errForm
	}
	if err != nil {
		if c.err == nil {
			c.err = c.fail("args", "arguments", "%s: %v", c.n.Target, err)
		}
		return c.none()
	}
	return c.helper(op, attrs, ts[0], args...)
}

// none is what an operation gives after an error.
func (c *call) none() *ir.Value { return c.filled(attr.Int(0), dtype.F32) }

// with is op of a tensor and a number.
func (c *call) with(op ir.Op, x *ir.Value, n float64) *ir.Value {
	if x.Type().DType().IsFloat() {
		return c.make(op, scalar(attr.Float(n)), x)
	}
	return c.make(op, scalar(attr.Int(int64(n))), x)
}

// filled is a tensor of one number.
func (c *call) filled(v attr.Value, dt ir.DType, shape ...int64) *ir.Value {
	return c.helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: v}), ir.Tensor(dt, shape...))
}

// counting is 0, 1, ... as i64[n].
func (c *call) counting(n int64) *ir.Value { return c.helper(ir.OpIota, nil, ir.Tensor(ir.I64, n)) }

// dense is x in row-major order.
func (c *call) dense(x *ir.Value) *ir.Value { return c.laidOut(x, like(x, x.Type().DType())) }

// shaped is x, in row-major order, in another shape.
func (c *call) shaped(x *ir.Value, shape ...int64) *ir.Value {
	return c.helper(ir.OpView, nil, ir.Tensor(x.Type().DType(), shape...), c.dense(x))
}

// permuted is x with its dimensions in another order.
func (c *call) permuted(x *ir.Value, dims ...int64) *ir.Value {
	return c.make(ir.OpPermute, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(dims...)}), x)
}

// flat is x as one dimension.
func (c *call) flat(x *ir.Value) *ir.Value { return c.shaped(x, count(static(x))) }

// slice is x from start to end along d.
func (c *call) slice(x *ir.Value, d int, start, end int64) *ir.Value {
	return c.make(ir.OpSlice, dimAttr(int64(d)).With("start", attr.Int(start)).With("end", attr.Int(end)), x)
}

// unsqueezed has dimensions of one element before the dimensions in ds, one by one.
func (c *call) unsqueezed(x *ir.Value, ds ...int64) *ir.Value {
	for _, d := range ds {
		x = c.make(ir.OpUnsqueeze, dimAttr(d), x)
	}
	return x
}

// over is a reduction over dims, all if there are none.
func (c *call) over(op ir.Op, x *ir.Value, keep bool, dims ...int64) *ir.Value {
	var l attr.List
	if len(dims) > 0 {
		l = l.With("dims", attr.Ints(dims...))
	}
	if keep {
		l = l.With("keepdim", attr.Bool(true))
	}
	return c.make(op, l, x)
}

func count(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
}

// broadcast is x in a shape to which it broadcasts.
func (c *call) broadcast(x *ir.Value, shape []int64) (*ir.Value, bool) {
	from, old := static(x), x.Type().Strides()
	if slices.Equal(from, shape) {
		return x, true
	}
	lead := len(shape) - len(from)
	if lead < 0 {
		return x, false
	}
	strides := make([]int64, len(shape))
	for d, n := range from {
		switch {
		case n == shape[lead+d]:
			strides[lead+d] = old[d]
		case n != 1:
			return x, false
		}
	}
	return c.helper(ir.OpExpand, nil, ir.Tensor(x.Type().DType(), shape...).WithStrides(strides), x), true
}

// settle ends a decomposition whose results are there: the first gets the traced name, and
// all get the declared layouts.
func (c *call) settle(vals ...*ir.Value) error {
	if c.err != nil {
		return c.err
	}
	ts, err := c.types()
	if err != nil {
		return err
	}
	if len(ts) != len(vals) {
		return c.fail("out", "results", "%s gives %d results, out lists %d", c.n.Target, len(vals), len(ts))
	}
	for i, v := range vals {
		if !v.Type().Shape().Equal(ts[i].Shape()) {
			return c.fail("out", "type", "result %d is %s, the arguments give %s", i, ts[i], v.Type())
		}
		if v = c.in(ts[i].DType(), v); i > 0 {
			v = c.laidOut(v, ts[i])
		}
		vals[i] = v
	}
	if c.named(vals[0], ts[0]) {
		st := &c.im.nodes[c.i]
		st.vals, st.root = vals, storage{node: c.i}
		return nil
	}
	return c.finish(ir.OpClone, nil, vals[:1], vals[1:]...)
}

// named gives the helper that computes v the traced name, cost and layout, if nobody
// reads it yet.
func (c *call) named(v *ir.Value, t ir.Type) bool {
	n, fn := v.Def(), c.im.fn
	if n.Op().IsView() || len(n.Results()) != 1 || n.Meta().Str(MetaHelper, "") != c.n.Name || len(v.Uses()) > 0 {
		return false
	}
	fn.SetType(v, t)
	meta := attr.List(nil)
	if name := textName(c.n.Name, "node"); fn.Rename(n, name) != c.n.Name {
		meta = meta.With(MetaName, attr.String(c.n.Name))
	}
	fn.SetMeta(n, meta)
	switch {
	case c.n.NoMs:
		fn.SetCost(n, math.NaN())
	case !c.free:
		fn.SetCost(n, c.n.Ms)
	}
	return true
}
