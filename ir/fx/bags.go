package fx

import (
	"math"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
)

// bagOps sum what belongs together: rows of bags, elements of bins.
var bagOps = []row{
	{"aten._embedding_bag.default aten._embedding_bag_forward_only.default",
		"weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx", embeddingBag},
	{"aten._embedding_bag_backward.default",
		"grad indices offsets offset2bag bag_size maximum_indices num_weights scale_grad_by_freq mode sparse per_sample_weights padding_idx", embeddingBagBackward},
	{"aten._embedding_bag_dense_backward.default",
		"grad indices offset2bag bag_size maximum_indices num_weights scale_grad_by_freq mode per_sample_weights padding_idx", embeddingBagBackward},
	{"aten.embedding_dense_backward.default", "grad_output indices num_weights padding_idx scale_grad_by_freq", embeddingBackward},
	{"aten.histc.default", "self bins min max", histogram},
}

// column is x, of one dimension, as [n,1].
func (c *call) column(x *ir.Value) *ir.Value {
	t := x.Type()
	return c.helper(ir.OpUnsqueeze, dimAttr(1), ir.Tensor(t.DType(), sizeAt(x, 0), 1).WithStrides([]int64{t.Strides()[0], 1}), x)
}

// accType is the type in which sums of a type are kept: those of integers wrap in theirs.
func accType(dt ir.DType) ir.DType {
	if dt.IsFloat() && dt.Size() < 4 {
		return dtype.F32
	}
	return dt
}

// bagMode reads what both directions share: whether a bag's mean is asked for.
func (c *call) bagMode() (mean bool) {
	mode := c.int("mode", 0)
	if c.err == nil && (mode != 0 && mode != 1 || c.bool("scale_grad_by_freq", false) || c.bool("sparse", false) || c.isTensor("per_sample_weights") && mode != 0) {
		c.err = errForm // the largest of a bag, and gradients divided by frequencies
	}
	return mode == 1
}

// embeddingBag gives the sums or means of bags, the bag of each index, the sizes of bags,
// and nothing in the place of the positions of largest elements.
func embeddingBag(c *call) error {
	w, indices, offsets := c.tensor("weight"), c.tensor("indices"), c.tensor("offsets")
	mean := c.bagMode()
	pad := c.int("padding_idx", -1)
	if c.err != nil {
		return c.err
	}
	ts, err := c.types()
	if err != nil {
		return err
	}
	if len(ts) != 4 || w.Type().Rank() != 2 || indices.Type().Rank() != 1 || offsets.Type().Rank() != 1 || ts[0].Rank() != 2 {
		return errForm
	}
	out := sizesOf(ts[0])
	n, bags, width := sizeAt(indices, 0), out[0], out[1]
	if c.bool("include_last_offset", false) && sizeAt(offsets, 0) == bags+1 {
		t := offsets.Type()
		offsets = c.helper(ir.OpSlice, dimAttr(0).With("start", attr.Int(0)).With("end", attr.Int(bags)), ir.Tensor(t.DType(), bags).WithStrides(t.Strides()), offsets)
	}
	if sizeAt(offsets, 0) != bags {
		return errForm
	}
	bag, each := c.bagOf(offsets, n, bags)
	rows := c.helper(ir.OpEmbedding, nil, ir.Tensor(w.Type().DType(), n, width), w, indices)
	dt, acc := ts[0].DType(), ts[0].DType()
	if mean || c.isTensor("per_sample_weights") {
		acc = accType(dt)
	}
	rows = c.in(acc, rows)
	if c.isTensor("per_sample_weights") {
		rows = c.helper(ir.OpMul, nil, like(rows, acc), rows, c.column(c.tensor("per_sample_weights")))
	}
	one := c.filled(attr.Int(1), ir.I64, n)
	if pad >= 0 {
		padding := c.helper(ir.OpEq, scalar(attr.Int(pad)), ir.Tensor(ir.Bool, n), indices)
		rows = c.helper(ir.OpWhere, nil, like(rows, acc), c.column(padding), c.filled(attr.Int(0), acc), rows)
		one = c.helper(ir.OpConvert, nil, ir.Tensor(ir.I64, n), c.helper(ir.OpLogicalNot, nil, ir.Tensor(ir.Bool, n), padding))
	}
	size := c.helper(ir.OpIndexAdd, dimAttr(0), ir.Tensor(ir.I64, bags), c.filled(attr.Int(0), ir.I64, bags), bag, one)
	var sum *ir.Value
	if each > 0 {
		rows = c.helper(ir.OpView, nil, ir.Tensor(acc, bags, each, width), rows)
		sum = c.helper(ir.OpSum, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(1)}), ir.Tensor(acc, bags, width), rows)
	} else {
		sum = c.helper(ir.OpIndexAdd, dimAttr(0), ir.Tensor(acc, bags, width), c.filled(attr.Int(0), acc, bags, width), bag, rows)
	}
	if mean {
		some := c.helper(ir.OpMaximum, scalar(attr.Int(1)), ir.Tensor(ir.I64, bags), size)
		sum = c.helper(ir.OpDiv, nil, ir.Tensor(acc, bags, width), sum, c.column(c.in(acc, some)))
	}
	which := c.in(ts[1].DType(), bag)
	if s := sizesOf(ts[1]); !ts[1].Shape().Equal(bag.Type().Shape()) {
		which = c.filled(attr.Int(0), ts[1].DType(), s...) // nobody asked for it
	}
	largest := sizesOf(ts[3])
	return c.settle(sum, which, size, c.filled(attr.Int(0), ts[3].DType(), largest...))
}

// bagOf gives the bag of each of n indices: how many offsets lie at it or in front of it,
// less one. Where all bags are equally large, their size is returned, too.
func (c *call) bagOf(offsets *ir.Value, n, bags int64) (bag *ir.Value, each int64) {
	d := offsets.Def()
	if step := d.Attrs().Int("step", 1); d.Op() == ir.OpIota && d.Attrs().Int("start", 0) == 0 && step > 0 && n == bags*step {
		at := c.helper(ir.OpIota, nil, ir.Tensor(ir.I64, n))
		return c.helper(ir.OpFloorDivide, scalar(attr.Int(step)), ir.Tensor(ir.I64, n), at), step
	}
	marks := c.helper(ir.OpIndexAdd, dimAttr(0), ir.Tensor(ir.I64, n+1), c.filled(attr.Int(0), ir.I64, n+1), offsets, c.filled(attr.Int(1), ir.I64, bags))
	sums := c.helper(ir.OpCumsum, dimAttr(0), ir.Tensor(ir.I64, n+1), marks)
	sums = c.helper(ir.OpSlice, dimAttr(0).With("start", attr.Int(0)).With("end", attr.Int(n)), ir.Tensor(ir.I64, n), sums)
	return c.helper(ir.OpSub, scalar(attr.Int(1)), ir.Tensor(ir.I64, n), sums), 0
}

// embeddingBagBackward adds each bag's gradient to the rows of its indices.
func embeddingBagBackward(c *call) error {
	grad, indices, bag, size := c.tensor("grad"), c.tensor("indices"), c.tensor("offset2bag"), c.tensor("bag_size")
	mean := c.bagMode()
	if c.err != nil {
		return c.err
	}
	if grad.Type().Rank() != 2 || indices.Type().Rank() != 1 || !bag.Type().Shape().Equal(indices.Type().Shape()) {
		return errForm
	}
	dt, n, width := grad.Type().DType(), sizeAt(indices, 0), sizeAt(grad, 1)
	acc := dt
	if mean || c.isTensor("per_sample_weights") {
		acc = accType(dt)
	}
	grad = c.in(acc, grad)
	if mean {
		some := c.helper(ir.OpMaximum, scalar(attr.Int(1)), like(size, size.Type().DType()), size)
		grad = c.helper(ir.OpDiv, nil, like(grad, acc), grad, c.column(c.in(acc, some)))
	}
	rows := c.helper(ir.OpIndex, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), ir.Tensor(acc, n, width), grad, bag)
	if c.isTensor("per_sample_weights") {
		rows = c.helper(ir.OpMul, nil, like(rows, acc), rows, c.column(c.tensor("per_sample_weights")))
	}
	return c.rowGradient(rows, indices)
}

// embeddingBackward adds gradients to the rows of their indices.
func embeddingBackward(c *call) error {
	grad, indices := c.tensor("grad_output"), c.tensor("indices")
	if c.bool("scale_grad_by_freq", false) {
		return errForm
	}
	if c.err != nil {
		return c.err
	}
	shape := static(grad)
	if len(shape) == 0 {
		return errForm
	}
	return c.rowGradient(c.shaped(grad, count(static(indices)), shape[len(shape)-1]), c.flat(indices))
}

// rowGradient adds rows to zeros at positions, of which one may not count.
func (c *call) rowGradient(rows, indices *ir.Value) error {
	n, pad := c.need("num_weights"), c.int("padding_idx", -1)
	if c.err != nil {
		return c.err
	}
	if n < 0 || n > maxElems {
		return errForm
	}
	acc, s := rows.Type().DType(), static(rows)
	if pad >= 0 {
		padding := c.helper(ir.OpEq, scalar(attr.Int(pad)), like(indices, ir.Bool), indices)
		rows = c.helper(ir.OpWhere, nil, like(rows, acc), c.column(padding), c.filled(attr.Int(0), acc), rows)
	}
	t, err := c.tensorType(0)
	if err != nil {
		return err
	}
	zero := c.filled(attr.Int(0), acc, n, s[1])
	if acc == t.DType() {
		return c.emitErr(ir.OpIndexAdd, dimAttr(0), zero, indices, rows)
	}
	return c.emitErr(ir.OpConvert, nil, c.helper(ir.OpIndexAdd, dimAttr(0), ir.Tensor(acc, n, s[1]), zero, indices, rows))
}

// histogram counts the elements in bins of equal width; the last bin has its upper end.
// Where no range is given it is that of the elements.
func histogram(c *call) error {
	x, bins := c.tensor("self"), c.int("bins", 100)
	var ends [2]attr.Value
	for i, p := range []string{"min", "max"} {
		ends[i] = attr.Int(0)
		if v, ok := c.num(p); ok {
			ends[i] = v
		}
	}
	if c.err != nil {
		return c.err
	}
	low, _ := ends[0].AsFloat()
	high, _ := ends[1].AsFloat()
	if bins < 1 || bins > math.MaxInt32 || !(low <= high) || math.IsInf(high-low, 0) {
		c.stick("bins", c.arg("bins"), "%d bins from %v to %v", bins, low, high)
		return c.err
	}
	n, dt := count(static(x)), x.Type().DType()
	x = c.flat(x)
	of, span := ir.Tensor(dt, n), ir.Tensor(dt)
	first, last := c.filled(ends[0], dt), c.filled(ends[1], dt)
	if low == high {
		if n == 0 {
			return errForm
		}
		first, last = c.helper(ir.OpAmin, nil, span, x), c.helper(ir.OpAmax, nil, span, x)
		same := c.helper(ir.OpEq, nil, ir.Tensor(ir.Bool), first, last)
		wider := func(op ir.Op, x *ir.Value) *ir.Value {
			return c.helper(ir.OpWhere, nil, span, same, c.helper(op, scalar(attr.Int(1)), span, x), x)
		}
		first, last = wider(ir.OpSub, first), wider(ir.OpAdd, last)
	}
	within := c.helper(ir.OpLogicalAnd, nil, ir.Tensor(ir.Bool, n), c.helper(ir.OpGe, nil, ir.Tensor(ir.Bool, n), x, first), c.helper(ir.OpLe, nil, ir.Tensor(ir.Bool, n), x, last))
	at := c.helper(ir.OpMul, scalar(attr.Int(bins)), of, c.helper(ir.OpSub, nil, of, x, first))
	width := c.helper(ir.OpSub, nil, span, last, first)
	if dt.IsFloat() {
		at = c.helper(ir.OpDiv, nil, of, at, width)
	} else {
		at = c.helper(ir.OpTruncDivide, nil, of, at, width)
	}
	at = c.helper(ir.OpWhere, nil, of, within, at, c.filled(attr.Int(0), dt))
	at = c.helper(ir.OpMinimum, scalar(attr.Int(bins-1)), ir.Tensor(ir.I64, n), c.in(ir.I64, at))
	count := c.helper(ir.OpIndexAdd, dimAttr(0), ir.Tensor(ir.I64, bins), c.filled(attr.Int(0), ir.I64, bins), at, c.in(ir.I64, within))
	return c.emitErr(ir.OpConvert, nil, count)
}
