package aten

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// movementOps copy, gather and scatter.
var movementOps = []row{
	{"aten.clone.default aten.contiguous.default aten.lift_fresh_copy.default", "self", unary(ir.OpClone)},
	{"prims.device_put.default", "self device non_blocking", unary(ir.OpClone)},
	{"aten.copy.default aten.fill.Tensor", "self src non_blocking", copyInto},
	{"aten.cat.default", "tensors dim", cat},
	{"aten.index.Tensor aten._unsafe_index.Tensor", "self indices", index},
	{"aten.index_select.default", "self dim index", indexSelect},
	{"aten.index_put.default aten._unsafe_index_put.default", "self indices values accumulate", indexPut},
	{"aten.index_add.default", "self dim index source * alpha", indexAdd},
	{"aten.gather.default", "self dim index * sparse_grad", gather},
	{"aten.scatter.src aten.scatter.value", "self dim index src", scatter},
	{"aten.scatter.reduce aten.scatter.value_reduce", "self dim index src * reduce", scatter},
	{"aten.scatter_add.default", "self dim index src", scatter},
	{"aten.slice_scatter.default", "self src dim start end step", sliceScatter},
	{"aten.embedding.default", "weight indices padding_idx scale_grad_by_freq sparse", embedding},
	{"aten.topk.default", "self k dim largest sorted", topk},
}

// copyInto is the functional copy: the source in the destination's shape and element type.
func copyInto(c *call) error {
	dst, src := c.Tensor("self"), c.Tensor("src")
	if c.Err != nil {
		return c.Err
	}
	src, ok := c.Broadcast(src, dst.Type().Shape())
	switch {
	case !ok:
		return traced.ErrForm
	case dst.Type().DType() != src.Type().DType():
		return c.EmitErr(ir.OpConvert, nil, src)
	}
	return c.EmitErr(ir.OpClone, nil, src)
}

func cat(c *call) error {
	xs := c.Tensors("tensors")
	if c.Err == nil && len(xs) == 0 {
		c.Reject("tensors", c.Arg("tensors"), "the list is empty")
	}
	if c.Err != nil {
		return c.Err
	}
	t, err := c.Trace.TypeOf(0)
	if err != nil {
		return err
	}
	nothing := func(x *ir.Value) bool { // stands beside tensors of any rank
		s, ok := x.Type().Shape().Static()
		return ok && len(s) == 1 && s[0] == 0 && t.Rank() != 1
	}
	if xs = slices.DeleteFunc(xs, nothing); len(xs) == 0 {
		return traced.ErrForm
	}
	for i, x := range xs {
		xs[i] = c.In(t.DType(), x)
	}
	l := traced.DimAttr(c.Dim("dim", 0, xs[0].Type().Rank()))
	fixed := func(t ir.Type) bool { _, ok := t.Shape().Static(); return ok }
	if fixed(t) && slices.ContainsFunc(xs, func(x *ir.Value) bool { return !fixed(x.Type()) }) {
		return c.Settle(c.AsLong(c.Make(ir.OpCat, l, xs...), t.Shape())) // the trace knows the sum of open sizes
	}
	return c.EmitErr(ir.OpCat, l, xs...)
}

// indices reads a list of index tensors with None for whole dimensions.
// A mask among them stands for the indices of what holds in it, as many as shape has
// where the dimensions that they choose from are.
func (c *call) indices(shape func() (ir.Shape, error)) (dims []int64, idx []*ir.Value, err error) {
	list := c.ListOf("indices")
	if len(list) > traced.MaxRank {
		c.Reject("indices", c.Arg("indices"), "%d index tensors are more than a tensor has dimensions", len(list))
	}
	next := int64(0)
	for k := range list {
		switch {
		case c.Err != nil:
			return nil, nil, c.Err
		case list[k].Kind == pytext.None:
			next++
			continue
		case list[k].Kind != pytext.Name:
			c.Want("indices", "a tensor or None", &list[k])
			return nil, nil, c.Err
		}
		x, err := c.Trace.Value(&list[k])
		if err != nil {
			return nil, nil, err
		}
		if x.Type().DType() == ir.U8 { // bytes are a mask, of old
			x = c.In(ir.Bool, x)
		}
		for range max(1, masked(x)) {
			dims, idx, next = append(dims, next), append(idx, x), next+1
		}
	}
	if len(idx) == 0 && c.Err == nil {
		return nil, nil, traced.ErrForm
	}
	if slices.ContainsFunc(idx, func(x *ir.Value) bool { return masked(x) > 0 }) && c.Err == nil {
		if shape == nil {
			return nil, nil, traced.ErrForm
		}
		s, err := shape()
		if err != nil {
			return nil, nil, err
		}
		idx = c.unmasked(dims, idx, s)
	}
	return dims, idx, c.Err
}

func index(c *call) error {
	x := c.Tensor("self")
	dims, idx, err := c.indices(func() (ir.Shape, error) {
		t, err := c.Trace.TypeOf(0)
		return t.Shape(), err
	})
	if err != nil {
		return err
	}
	return c.EmitErr(ir.OpIndex, attr.List(nil).With("dims", attr.Ints(dims...)), append([]*ir.Value{x}, idx...)...)
}

func indexSelect(c *call) error {
	x, idx := c.Tensor("self"), c.Tensor("index")
	if c.Err != nil {
		return c.Err
	}
	if idx.Type().Rank() != 1 {
		return traced.ErrForm
	}
	d := c.Dim("dim", 0, x.Type().Rank())
	return c.EmitErr(ir.OpIndex, attr.List(nil).With("dims", attr.Ints(d)), x, idx)
}

func indexPut(c *call) error {
	x, values := c.Tensor("self"), c.Tensor("values")
	if list := c.ListOf("indices"); len(list) == 1 && list[0].Kind == pytext.Name && c.Err == nil {
		if mask := c.Tensors("indices"); c.Err == nil && shared(x, mask[0], values) {
			return c.putUnder(x, mask[0], values)
		}
	}
	dims, idx, err := c.indices(func() (ir.Shape, error) { return values.Type().Shape(), nil })
	if err != nil {
		return err
	}
	l := attr.List(nil).With("dims", attr.Ints(dims...))
	if c.Bool("accumulate", false) {
		l = l.With("accumulate", attr.Bool(true))
	}
	places := []ir.Type{x.Type()}
	for _, at := range idx {
		places = append(places, at.Type())
	}
	if want, err := ir.Infer(ir.OpIndex, nil, attr.List(nil).With("dims", attr.Ints(dims...)), places); err == nil && c.Err == nil {
		values = c.AsLong(values, want[0].Shape())
	}
	if len(idx) == 1 && slices.Contains(idx[0].Type().Strides(), 0) {
		// Kernels list positions that stand one after the other: an expanded tensor of them is copied.
		idx[0] = c.LaidOut(idx[0], ir.TensorOf(idx[0].Type().DType(), idx[0].Type().Shape()))
	}
	return c.EmitErr(ir.OpIndexPut, l, append([]*ir.Value{x, values}, idx...)...)
}

// shared reports whether all places where a mask of the leading dimensions holds get the same values.
func shared(x, mask, values *ir.Value) bool {
	s, m, v := x.Type().Shape(), mask.Type().Shape(), values.Type().Shape()
	rest := len(s) - len(m)
	return mask.Type().DType() == ir.Bool && rest >= 0 && s[:len(m)].Equal(m) && (len(v) <= rest || len(v) == rest+1 && v[0].Equal(ir.D(1)))
}

// putUnder puts values where a mask holds, if they are shared.
func (c *call) putUnder(x, mask, values *ir.Value) error {
	m, v := mask.Type().Shape(), values.Type().Shape()
	rest := x.Type().Rank() - len(m)
	if len(v) == rest+1 {
		values = c.Reshaped(values, v[1:])
	}
	mask = c.Reshaped(mask, append(slices.Clone(m), slices.Repeat(ir.Dims(1), rest)...))
	put := c.In(x.Type().DType(), values)
	if c.Bool("accumulate", false) {
		put = c.Add(x, put)
	}
	return c.Settle(c.Make(ir.OpWhere, nil, mask, put, x))
}

func indexAdd(c *call) error {
	x, idx, src := c.Tensor("self"), c.Tensor("index"), c.Tensor("source")
	if c.Err != nil {
		return c.Err
	}
	l := traced.DimAttr(c.Dim("dim", 0, x.Type().Rank()))
	if v, ok := c.Num("alpha"); ok {
		if f, _ := v.AsFloat(); f != 1 {
			l = l.With("alpha", v)
		}
	}
	return c.EmitErr(ir.OpIndexAdd, l, x, idx, src)
}

// empty reports whether a tensor is known to have no elements.
func empty(x *ir.Value) bool {
	s, ok := x.Type().Shape().Static()
	return ok && slices.Contains(s, 0)
}

func gather(c *call) error {
	x, idx := c.Tensor("self"), c.Tensor("index")
	if c.Err != nil {
		return c.Err
	}
	if empty(idx) { // of any rank
		return c.Settle(c.Filled(attr.Int(0), x.Type().DType(), traced.Static(idx)...))
	}
	return c.EmitErr(ir.OpGather, traced.DimAttr(c.Dim("dim", 0, x.Type().Rank())), x, idx)
}

func scatter(c *call) error {
	// The two overloads name the last operand src or value.
	x, idx := c.Tensor("self"), c.Tensor("index")
	if c.Err != nil {
		return c.Err
	}
	l := traced.DimAttr(c.Dim("dim", 0, x.Type().Rank()))
	args := []*ir.Value{x, idx}
	if c.IsTensor("src") {
		args = append(args, c.Tensor("src"))
	} else if v, ok := c.Num("src"); ok {
		l = l.With("value", v)
	} else {
		c.Want("src", "a tensor or a number", c.Arg("src"))
	}
	switch {
	case c.Err != nil:
		return c.Err
	case empty(idx): // of any rank
		return c.EmitErr(ir.OpClone, nil, x)
	case c.Target == "aten.scatter_add.default":
		l = l.With("reduce", attr.String("add"))
	case c.Target == "aten.scatter.reduce" || c.Target == "aten.scatter.value_reduce":
		r := c.Str("reduce")
		if c.Err == nil && r != "add" && r != "multiply" {
			return traced.ErrForm
		}
		l = l.With("reduce", attr.String(r))
	}
	return c.EmitErr(ir.OpScatter, l, args...)
}

// sliceAttrs reads dim, start, end and step of a slice of a tensor, with bounds
// that may count from the end and are clamped to the size as Python does.
func (c *call) sliceAttrs(x *ir.Value) attr.List {
	if c.Err != nil {
		return nil
	}
	if x.Type().Rank() == 0 {
		c.Reject("self", c.Arg("self"), "a scalar has no dimension to slice")
		return nil
	}
	d := c.Dim("dim", 0, x.Type().Rank())
	if _, known := x.Type().Shape()[d].Const(); !known {
		return c.SizedSlice(d)
	}
	n := traced.SizeAt(x, d)
	start, end, step := clampTo(c.Int("start", 0), n), clampTo(c.Int("end", math.MaxInt64), n), c.Int("step", 1)
	if step < 1 {
		c.Reject("step", c.Arg("step"), "step %d is not positive", step)
	}
	l := traced.DimAttr(d)
	l = l.With("start", attr.Int(start)).With("end", attr.Int(max(start, end)))
	if step != 1 {
		l = l.With("step", attr.Int(min(step, max(n, 1)))) // a longer step takes the same elements
	}
	return l
}

// clampTo is a bound of a slice of n elements, as Python reads it.
func clampTo(v, n int64) int64 {
	if v < 0 {
		v += n
	}
	return min(max(v, 0), n)
}

func sliceScatter(c *call) error {
	x, src := c.Tensor("self"), c.Tensor("src")
	if c.Err == nil && x.Type().Rank() > 0 && x.Type().Rank() == src.Type().Rank() {
		d := c.Dim("dim", 0, x.Type().Rank())
		n := src.Type().Shape()[d]
		if start, step, ok := c.sizedRange(x, d, n, false); ok {
			at := c.Places(n)
			if step != 1 {
				at = c.With(ir.OpMul, at, float64(step))
			}
			put := attr.List(nil).With("dims", attr.Ints(d))
			return c.Settle(c.Make(ir.OpIndexPut, put, x, c.In(x.Type().DType(), src), c.By(ir.OpAdd, at, start)))
		}
	}
	return c.EmitErr(ir.OpSliceScatter, c.sliceAttrs(x), x, src)
}

func embedding(c *call) error {
	return c.EmitErr(ir.OpEmbedding, nil, c.Tensor("weight"), c.Tensor("indices"))
}

func topk(c *call) error {
	x, d, err := c.SelfAlong(-1)
	if err != nil {
		return err
	}
	if n := c.Trace.SizeOf(c.Arg("k")); n != nil {
		return c.Settle(c.firstSorted(x, d, *n, c.Bool("largest", true))...)
	}
	l := traced.DimAttr(d).With("k", attr.Int(c.Need("k")))
	for _, key := range []string{"largest", "sorted"} {
		if !c.Bool(key, true) {
			l = l.With(key, attr.Bool(false))
		}
	}
	return c.EmitErr(ir.OpTopk, l, x)
}
