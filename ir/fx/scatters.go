package fx

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// scatterOps write a tensor into parts of another.
var scatterOps = []row{
	{"aten.scatter_reduce.two", "self dim index src reduce * include_self", scatterReduce},
	{"aten.index_reduce.default", "self dim index src reduce * include_self", indexReduce},
	{"aten.masked_scatter.default", "self mask source", maskedScatter},
	{"aten.as_strided_scatter.default", "self src size stride storage_offset", stridedScatter},
	{"aten.diagonal_scatter.default", "self src offset dim1 dim2", diagonalScatter},
}

// scatterReduce folds what is written with what is there, or with itself alone.
func scatterReduce(c *call) error {
	x, idx, src := c.tensor("self"), c.tensor("index"), c.tensor("src")
	if c.err != nil {
		return c.err
	}
	if x.Type().Rank() == 0 {
		return errForm
	}
	return c.scatterReduced(x, c.dim("dim", 0, x.Type().Rank()), idx, src)
}

// indexReduce is scatterReduce of whole slices.
func indexReduce(c *call) error {
	x, d, err := c.selfAlong(0)
	idx, src := c.tensor("index"), c.tensor("src")
	if err = cmp.Or(err, c.err); err != nil {
		return err
	}
	shape := static(src)
	if idx.Type().Rank() != 1 || len(shape) != x.Type().Rank() || shape[d] != sizeAt(idx, 0) {
		return errForm
	}
	along := slices.Repeat([]int64{1}, len(shape))
	along[d] = shape[d]
	at, _ := c.broadcast(c.shaped(idx, along...), shape)
	return c.scatterReduced(x, d, at, src)
}

func (c *call) scatterReduced(x *ir.Value, d int64, idx, src *ir.Value) error {
	reduce, own := c.str("reduce"), c.bool("include_self", true)
	dt := x.Type().DType()
	lowest, highest := attr.Float(math.Inf(-1)), attr.Float(math.Inf(1))
	if !dt.IsFloat() {
		lo, hi, ok := intRange(dt)
		if !ok {
			return errForm
		}
		lowest, highest = attr.Int(lo), attr.Int(hi)
	}
	at := dimAttr(d)
	how, ok := map[string]struct {
		name  string
		empty attr.Value
	}{"sum": {"add", attr.Int(0)}, "mean": {"add", attr.Int(0)}, "prod": {"multiply", attr.Int(1)}, "amax": {"amax", lowest}, "amin": {"amin", highest}}[reduce]
	if !ok || c.err != nil {
		return errForm
	}
	start := x
	if !own {
		x = c.make(ir.OpScatter, at.With("value", how.empty), x, idx)
	}
	put := at.With("reduce", attr.String(how.name))
	if reduce != "mean" {
		return c.emitErr(ir.OpScatter, put, x, idx, src)
	}
	acc := accType(dt)
	sum := c.make(ir.OpScatter, put, c.in(acc, x), idx, c.in(acc, src))
	n := attr.Int(0)
	if own {
		n = attr.Int(1)
	}
	times := c.make(ir.OpScatter, put.With("value", attr.Int(1)), c.filled(n, ir.I64, static(start)...), idx)
	times = c.with(ir.OpMaximum, times, 1)
	if dt.IsFloat() {
		return c.settle(c.make(ir.OpDiv, nil, sum, c.in(acc, times)))
	}
	return c.settle(c.make(ir.OpFloorDivide, nil, sum, c.in(acc, times)))
}

// intRange is the range of an integer type of up to 64 bits with a sign.
func intRange(dt ir.DType) (lo, hi int64, ok bool) {
	bits := 8 * dt.Size()
	switch {
	case dt == ir.Bool:
		return 0, 1, true
	case dt.IsUnsigned() && bits < 64:
		return 0, 1<<bits - 1, true
	case dt.IsUnsigned():
		return 0, 0, false
	}
	return -1 << (bits - 1), 1<<(bits-1) - 1, true
}

// maskedScatter gives the elements under a mask those of a source, one by one.
func maskedScatter(c *call) error {
	x, mask, src := c.tensor("self"), c.tensor("mask"), c.tensor("source")
	if c.err != nil {
		return c.err
	}
	shape := static(x)
	mask, ok := c.broadcast(mask, shape)
	if !ok || count(static(src)) == 0 {
		return errForm
	}
	at := c.make(ir.OpCumsum, dimAttr(0), c.in(ir.I64, c.flat(mask)))
	at = c.with(ir.OpMaximum, c.with(ir.OpSub, at, 1), 0)
	under := c.make(ir.OpIndex, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), c.flat(src), c.with(ir.OpMinimum, at, float64(count(static(src))-1)))
	return c.emitErr(ir.OpWhere, nil, mask, c.shaped(under, shape...), x)
}

// stridedScatter writes a tensor where a view of any layout of self would lie.
func stridedScatter(c *call) error {
	x, src, size, stride, offset := c.tensor("self"), c.tensor("src"), c.ints("size"), c.ints("stride"), c.int("storage_offset", 0)
	if c.err != nil {
		return c.err
	}
	shape := static(x)
	n := count(shape)
	if !x.Type().Contiguous() || !slices.Equal(static(src), size) || len(size) != len(stride) || offset < 0 || count(size) > maxElems {
		return errForm
	}
	last, fits := offset, offset < n
	for d, s := range size {
		if stride[d] < 0 {
			return errForm
		}
		if fits = fits && (s < 2 || stride[d] <= (n-1-last)/(s-1)); fits {
			last += (s - 1) * stride[d]
		}
	}
	if count(size) > 0 && !fits {
		c.stick("size", c.arg("size"), "%v elements, %v apart from element %d on, of a storage of %d", size, stride, offset, n)
		return c.err
	}
	if offset == 0 && count(size) == n && ir.Tensor(x.Type().DType(), size...).WithStrides(stride).Contiguous() {
		return c.settle(c.shaped(src, shape...)) // all of it
	}
	return c.settle(c.put(x, src, size, stride, offset))
}

// diagonalScatter writes a tensor where diagonals lie.
func diagonalScatter(c *call) error {
	x, src := c.tensor("self"), c.tensor("src")
	if c.err != nil {
		return c.err
	}
	size, stride, at, err := c.diagonals(like(x, x.Type().DType()))
	if err != nil {
		return err
	}
	if !slices.Equal(static(src), size) {
		return errForm
	}
	return c.settle(c.put(x, src, size, stride, at))
}

// put is x, in row-major order, with src where a view of that layout lies.
func (c *call) put(x, src *ir.Value, size, stride []int64, offset int64) *ir.Value {
	at := c.filled(attr.Int(offset), ir.I64)
	for d, s := range size {
		along := slices.Repeat([]int64{1}, len(size))
		along[d] = s
		at = c.make(ir.OpAdd, nil, at, c.shaped(c.with(ir.OpMul, c.counting(s), float64(stride[d])), along...))
	}
	put := c.make(ir.OpIndexPut, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), c.flat(x), c.flat(src), c.flat(at))
	return c.shaped(put, static(x)...)
}
