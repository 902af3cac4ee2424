package fx

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// movementOps copy, gather and scatter.
var movementOps = []row{
	{"aten.clone.default aten.contiguous.default aten.lift_fresh_copy.default", "self", unary(ir.OpClone)},
	{"aten.copy.default", "self src non_blocking", copyInto},
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

func dimAttr(d int64) attr.List { return attr.List{{Key: "dim", Val: attr.Int(d)}} }

// copyInto is the functional copy: the source in the destination's shape and element type.
func copyInto(c *call) error {
	dst, src := c.tensor("self"), c.tensor("src")
	if c.err != nil {
		return c.err
	}
	src, ok := c.broadcast(src, static(dst))
	switch {
	case !ok:
		return errForm
	case dst.Type().DType() != src.Type().DType():
		return c.emitErr(ir.OpConvert, nil, src)
	}
	return c.emitErr(ir.OpClone, nil, src)
}

func cat(c *call) error {
	xs := c.tensors("tensors")
	if c.err == nil && len(xs) == 0 {
		c.stick("tensors", c.arg("tensors"), "the list is empty")
	}
	if c.err != nil {
		return c.err
	}
	t, err := c.tensorType(0)
	if err != nil {
		return err
	}
	nothing := func(x *ir.Value) bool { // stands beside tensors of any rank
		s, ok := x.Type().Shape().Static()
		return ok && len(s) == 1 && s[0] == 0 && t.Rank() != 1
	}
	if xs = slices.DeleteFunc(xs, nothing); len(xs) == 0 {
		return errForm
	}
	for i, x := range xs {
		xs[i] = c.in(t.DType(), x)
	}
	return c.emitErr(ir.OpCat, dimAttr(c.dim("dim", 0, xs[0].Type().Rank())), xs...)
}

// indices reads a list of index tensors with None for whole dimensions.
func (c *call) indices() (dims []int64, idx []*ir.Value, err error) {
	list := c.listOf("indices")
	if len(list) > maxRank {
		c.stick("indices", c.arg("indices"), "%d index tensors are more than a tensor has dimensions", len(list))
	}
	for k := range list {
		switch {
		case c.err != nil:
			return nil, nil, c.err
		case list[k].kind == pyNone:
			continue
		case list[k].kind != pyName:
			c.want("indices", "a tensor or None", &list[k])
			return nil, nil, c.err
		}
		x, err := c.value(&list[k])
		if err != nil {
			return nil, nil, err
		}
		if x.Type().DType() == ir.Bool {
			return nil, nil, errForm // a mask: the shape depends on the data
		}
		dims, idx = append(dims, int64(k)), append(idx, x)
	}
	if len(idx) == 0 && c.err == nil {
		return nil, nil, errForm
	}
	return dims, idx, c.err
}

func index(c *call) error {
	x := c.tensor("self")
	dims, idx, err := c.indices()
	if err != nil {
		return err
	}
	return c.emitErr(ir.OpIndex, attr.List(nil).With("dims", attr.Ints(dims...)), append([]*ir.Value{x}, idx...)...)
}

func indexSelect(c *call) error {
	x, idx := c.tensor("self"), c.tensor("index")
	if c.err != nil {
		return c.err
	}
	if x.Type().Rank() == 0 || idx.Type().Rank() != 1 {
		return errForm
	}
	d := c.dim("dim", 0, x.Type().Rank())
	return c.emitErr(ir.OpIndex, attr.List(nil).With("dims", attr.Ints(d)), x, idx)
}

func indexPut(c *call) error {
	x, values := c.tensor("self"), c.tensor("values")
	dims, idx, err := c.indices()
	if err != nil {
		return err
	}
	l := attr.List(nil).With("dims", attr.Ints(dims...))
	if c.bool("accumulate", false) {
		l = l.With("accumulate", attr.Bool(true))
	}
	places := []ir.Type{x.Type()}
	for _, at := range idx {
		places = append(places, at.Type())
	}
	if want, err := ir.Infer(ir.OpIndex, nil, attr.List(nil).With("dims", attr.Ints(dims...)), places); err == nil && c.err == nil {
		values = c.asLong(values, want[0].Shape())
	}
	return c.emitErr(ir.OpIndexPut, l, append([]*ir.Value{x, values}, idx...)...)
}

func indexAdd(c *call) error {
	x, idx, src := c.tensor("self"), c.tensor("index"), c.tensor("source")
	if c.err != nil {
		return c.err
	}
	if x.Type().Rank() == 0 {
		return errForm
	}
	l := dimAttr(c.dim("dim", 0, x.Type().Rank()))
	if v, ok := c.num("alpha"); ok {
		if f, _ := v.AsFloat(); f != 1 {
			l = l.With("alpha", v)
		}
	}
	return c.emitErr(ir.OpIndexAdd, l, x, idx, src)
}

func gather(c *call) error {
	x, idx := c.tensor("self"), c.tensor("index")
	if c.err != nil {
		return c.err
	}
	return c.emitErr(ir.OpGather, dimAttr(c.dim("dim", 0, x.Type().Rank())), x, idx)
}

func scatter(c *call) error {
	// The two overloads name the last operand src or value.
	x, idx := c.tensor("self"), c.tensor("index")
	if c.err != nil {
		return c.err
	}
	if x.Type().Rank() == 0 {
		return errForm
	}
	l := dimAttr(c.dim("dim", 0, x.Type().Rank()))
	args := []*ir.Value{x, idx}
	if c.isTensor("src") {
		args = append(args, c.tensor("src"))
	} else if v, ok := c.num("src"); ok {
		l = l.With("value", v)
	} else {
		c.want("src", "a tensor or a number", c.arg("src"))
	}
	switch {
	case c.err != nil:
		return c.err
	case c.target == "aten.scatter_add.default":
		l = l.With("reduce", attr.String("add"))
	case c.target == "aten.scatter.reduce" || c.target == "aten.scatter.value_reduce":
		r := c.str("reduce")
		if c.err == nil && r != "add" && r != "multiply" {
			return errForm
		}
		l = l.With("reduce", attr.String(r))
	}
	return c.emitErr(ir.OpScatter, l, args...)
}

// sliceAttrs reads dim, start, end and step of a slice of a tensor, with bounds
// that may count from the end and are clamped to the size as Python does.
func (c *call) sliceAttrs(x *ir.Value) attr.List {
	if c.err != nil {
		return nil
	}
	if x.Type().Rank() == 0 {
		c.stick("self", c.arg("self"), "a scalar has no dimension to slice")
		return nil
	}
	d := c.dim("dim", 0, x.Type().Rank())
	if _, known := x.Type().Shape()[d].Const(); !known {
		return c.sizedSlice(d)
	}
	n := sizeAt(x, d)
	clampTo := func(v int64) int64 {
		if v < 0 {
			v += n
		}
		return min(max(v, 0), n)
	}
	start, end, step := clampTo(c.int("start", 0)), clampTo(c.int("end", math.MaxInt64)), c.int("step", 1)
	if step < 1 {
		c.stick("step", c.arg("step"), "step %d is not positive", step)
	}
	l := dimAttr(d)
	l = l.With("start", attr.Int(start)).With("end", attr.Int(max(start, end)))
	if step != 1 {
		l = l.With("step", attr.Int(min(step, max(n, 1)))) // a longer step takes the same elements
	}
	return l
}

func sliceScatter(c *call) error {
	x, src := c.tensor("self"), c.tensor("src")
	return c.emitErr(ir.OpSliceScatter, c.sliceAttrs(x), x, src)
}

func embedding(c *call) error {
	return c.emitErr(ir.OpEmbedding, nil, c.tensor("weight"), c.tensor("indices"))
}

func topk(c *call) error {
	x, d, err := c.selfAlong(-1)
	if err != nil {
		return err
	}
	l := dimAttr(d).With("k", attr.Int(c.need("k")))
	for _, key := range []string{"largest", "sorted"} {
		if !c.bool(key, true) {
			l = l.With(key, attr.Bool(false))
		}
	}
	return c.emitErr(ir.OpTopk, l, x)
}
