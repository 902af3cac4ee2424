package aten

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// scatterOps write a tensor into parts of another.
var scatterOps = []row{
	{"aten.scatter_reduce.two", "self dim index src reduce * include_self", scatterReduce},
	{"aten.index_reduce.default", "self dim index src reduce * include_self", indexReduce},
	{"aten.masked_scatter.default", "self mask source", maskedScatter},
	{"aten.masked_scatter_backward.default", "grad_output mask sizes", maskedScatterBackward},
	{"aten.as_strided_scatter.default", "self src size stride storage_offset", stridedScatter},
	{"aten.diagonal_scatter.default", "self src offset dim1 dim2", diagonalScatter},
}

// scatterReduce folds what is written with what is there, or with itself alone.
func scatterReduce(c *call) error {
	x, idx, src := c.Tensor("self"), c.Tensor("index"), c.Tensor("src")
	if c.Err != nil {
		return c.Err
	}
	return c.scatterReduced(x, c.Dim("dim", 0, x.Type().Rank()), idx, src)
}

// indexReduce is scatterReduce of whole slices.
func indexReduce(c *call) error {
	x, d, err := c.SelfAlong(0)
	idx, src := c.Tensor("index"), c.Tensor("src")
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	shape := src.Type().Shape()
	if idx.Type().Rank() != 1 || len(shape) != x.Type().Rank() || !shape[d].Equal(idx.Type().Shape()[0]) {
		return traced.ErrForm
	}
	along := slices.Repeat(ir.Dims(1), len(shape))
	along[d] = shape[d]
	at, _ := c.Broadcast(c.Reshaped(idx, along), shape)
	return c.scatterReduced(x, d, at, src)
}

func (c *call) scatterReduced(x *ir.Value, d int64, idx, src *ir.Value) error {
	reduce, own := c.Str("reduce"), c.Bool("include_self", true)
	dt := x.Type().DType()
	lowest, highest, ok := extremesOf(dt)
	if !ok {
		return traced.ErrForm
	}
	at := traced.DimAttr(d)
	how, found := map[string]struct {
		name  string
		empty attr.Value
	}{"sum": {"add", attr.Int(0)}, "mean": {"add", attr.Int(0)}, "prod": {"multiply", attr.Int(1)}, "amax": {"amax", lowest}, "amin": {"amin", highest}}[reduce]
	if !found || c.Err != nil {
		return traced.ErrForm
	}
	start := x
	if !own {
		x = c.Make(ir.OpScatter, at.With("value", how.empty), x, idx)
	}
	put := at.With("reduce", attr.String(how.name))
	if reduce != "mean" {
		return c.EmitErr(ir.OpScatter, put, x, idx, src)
	}
	acc := traced.AccType(dt)
	sum := c.Make(ir.OpScatter, put, c.In(acc, x), idx, c.In(acc, src))
	n := attr.Int(0)
	if own {
		n = attr.Int(1)
	}
	times := c.Make(ir.OpScatter, put.With("value", attr.Int(1)), c.Full(n, ir.I64, start.Type().Shape()), idx)
	times = c.With(ir.OpMaximum, times, 1)
	if dt.IsFloat() {
		return c.Settle(c.Make(ir.OpDiv, nil, sum, c.In(acc, times)))
	}
	return c.Settle(c.Make(ir.OpFloorDivide, nil, sum, c.In(acc, times)))
}

// extremesOf are the least and the largest number of a type, of floats the infinities; not of u64, which attributes
// do not hold.
func extremesOf(dt ir.DType) (least, most attr.Value, ok bool) {
	if dt.IsFloat() {
		return attr.Float(math.Inf(-1)), attr.Float(math.Inf(1)), true
	}
	lo, hi := dt.Range()
	return attr.Int(lo), attr.Int(hi), lo < hi
}

// maskedScatter gives the elements under a mask those of a source, one by one.
func maskedScatter(c *call) error {
	x, mask, src := c.Tensor("self"), c.Tensor("mask"), c.Tensor("source")
	if c.Err != nil {
		return c.Err
	}
	ts, err := c.Types()
	if err != nil || len(ts) != 1 {
		return cmp.Or(err, traced.ErrForm)
	}
	shape, n := ts[0].Shape(), src.Type().Shape().NumElems()
	mask, ok := c.Broadcast(mask, shape)
	x, fits := c.Broadcast(x, shape)
	if !ok || !fits || traced.Empty(src) {
		return traced.ErrForm
	}
	c.Trace.Require(n.Sub(ir.D(1)))
	at := c.Make(ir.OpCumsum, traced.DimAttr(0), c.In(ir.I64, c.Flat(mask)))
	at = c.With(ir.OpMaximum, c.With(ir.OpSub, at, 1), 0)
	under := c.Make(ir.OpIndex, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), c.Flat(src), c.By(ir.OpMinimum, at, n.Sub(ir.D(1))))
	return c.EmitErr(ir.OpWhere, nil, mask, c.Reshaped(under, shape), x)
}

// maskedScatterBackward gives the gradients under a mask one by one, zeros behind them.
func maskedScatterBackward(c *call) error {
	grad, mask, sizes := c.Tensor("grad_output"), c.Tensor("mask"), c.Sizes("sizes")
	if c.Err != nil {
		return c.Err
	}
	mask, ok := c.Broadcast(mask, grad.Type().Shape())
	n := sizes.NumElems()
	if k, _ := n.Const(); !ok || k > traced.MaxElems {
		return traced.ErrForm
	}
	// What is not under the mask, or is more than the sizes hold, goes behind the end.
	at := c.With(ir.OpSub, c.Make(ir.OpCumsum, traced.DimAttr(0), c.In(ir.I64, c.Flat(mask))), 1)
	at = c.Make(ir.OpWhere, nil, c.Flat(mask), c.By(ir.OpMinimum, at, n), c.By(ir.OpAdd, c.Filled(attr.Int(0), ir.I64), n))
	put := c.Make(ir.OpIndexPut, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), c.Full(attr.Int(0), grad.Type().DType(), ir.Shape{n.Add(ir.D(1))}), c.Flat(grad), at)
	return c.Settle(c.Reshaped(c.First(put, 0, n), sizes))
}

// stridedScatter writes a tensor where a view of any layout of self would lie.
func stridedScatter(c *call) error {
	x, src, size, stride, offset := c.Tensor("self"), c.Tensor("src"), c.Ints("size"), c.Ints("stride"), c.Int("storage_offset", 0)
	if c.Err != nil {
		return c.Err
	}
	for base := x; c.Arg("storage_offset") != nil && base.Def().Op().IsView(); base = base.Def().Arg(0) {
		if beginsWithin(base) { // the offset counts from the beginning of the storage
			return traced.ErrForm
		}
	}
	shape := traced.Static(x)
	n := intmath.Product(shape)
	if !x.Type().Contiguous() || !slices.Equal(traced.Static(src), size) || len(size) != len(stride) || offset < 0 || intmath.Product(size) > traced.MaxElems {
		return traced.ErrForm
	}
	last, fits := offset, offset < n
	for d, s := range size {
		if stride[d] < 0 {
			return traced.ErrForm
		}
		if fits = fits && (s < 2 || stride[d] <= (n-1-last)/(s-1)); fits {
			last += (s - 1) * stride[d]
		}
	}
	if intmath.Product(size) > 0 && !fits {
		c.Reject("size", c.Arg("size"), "%v elements, %v apart from element %d on, of a storage of %d", size, stride, offset, n)
		return c.Err
	}
	if offset == 0 && intmath.Product(size) == n && ir.Tensor(x.Type().DType(), size...).WithStrides(stride).Contiguous() {
		return c.Settle(c.Shaped(src, shape...)) // all of it
	}
	return c.Settle(c.put(x, src, size, stride, offset))
}

// diagonalScatter writes a tensor where diagonals lie.
func diagonalScatter(c *call) error {
	x, src := c.Tensor("self"), c.Tensor("src")
	if c.Err != nil {
		return c.Err
	}
	if !known(x.Type().Shape()) {
		order, at := c.onDiagonal(x, src.Type().Shape())
		if c.Err != nil {
			return c.Err
		}
		last := int64(len(order))
		put := c.Make(ir.OpIndexPut, attr.List(nil).With("dims", attr.Ints(last-2, last-1)), c.Permuted(x, order...), src, at[0], at[1])
		back := make([]int64, last)
		for k, d := range order {
			back[d] = int64(k)
		}
		return c.Settle(c.Permuted(put, back...))
	}
	size, stride, at, err := c.diagonals(traced.Like(x, x.Type().DType()))
	if err != nil {
		return err
	}
	if !slices.Equal(traced.Static(src), size) {
		return traced.ErrForm
	}
	return c.Settle(c.put(x, src, size, stride, at))
}

// put is x, in row-major order, with src where a view of that layout lies.
func (c *call) put(x, src *ir.Value, size, stride []int64, offset int64) *ir.Value {
	at := c.Filled(attr.Int(offset), ir.I64)
	for d, s := range size {
		along := slices.Repeat([]int64{1}, len(size))
		along[d] = s
		at = c.Make(ir.OpAdd, nil, at, c.Shaped(c.With(ir.OpMul, c.Counting(s), float64(stride[d])), along...))
	}
	put := c.Make(ir.OpIndexPut, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), c.Flat(x), c.Flat(src), c.Flat(at))
	return c.Shaped(put, traced.Static(x)...)
}
