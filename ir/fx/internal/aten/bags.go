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

// bagOps sum what belongs together: rows of bags, elements of bins.
var bagOps = []row{
	{"aten._embedding_bag.default aten._embedding_bag_forward_only.default",
		"weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx", embeddingBag},
	{"aten._embedding_bag_backward.default",
		"grad indices offsets offset2bag bag_size maximum_indices num_weights scale_grad_by_freq mode sparse per_sample_weights padding_idx", embeddingBagBackward},
	{"aten._embedding_bag_dense_backward.default",
		"grad indices offset2bag bag_size maximum_indices num_weights scale_grad_by_freq mode per_sample_weights padding_idx", embeddingBagBackward},
	{"aten._embedding_bag_per_sample_weights_backward.default", "grad weight indices offsets offset2bag mode padding_idx", bagWeightsBackward},
	{"aten.embedding_dense_backward.default", "grad_output indices num_weights padding_idx scale_grad_by_freq", embeddingBackward},
	{"aten.histc.default", "self bins min max", histogram},
}

// What is asked for of a bag, as PyTorch numbers it.
const (
	bagSum     = 0
	bagMean    = 1
	bagLargest = 2
)

// bagMode reads what both directions share: what is asked for of a bag.
func (c *call) bagMode() int64 {
	mode := c.Int("mode", bagSum)
	if c.Err == nil && (mode < bagSum || mode > bagLargest || c.Bool("sparse", false) || c.IsTensor("per_sample_weights") && mode != bagSum) {
		c.Err = traced.ErrForm
	}
	return mode
}

// embeddingBag gives the sums, means or largest elements of bags, the bag of each index, the
// sizes of bags, and the rows of the largest elements, if they are asked for.
func embeddingBag(c *call) error {
	w, indices, offsets := c.Tensor("weight"), c.Tensor("indices"), c.Tensor("offsets")
	mode := c.bagMode()
	pad := c.Int("padding_idx", -1)
	if c.Err != nil {
		return c.Err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if len(ts) != 4 || w.Type().Rank() != 2 || indices.Type().Rank() != 1 || offsets.Type().Rank() != 1 || ts[0].Rank() != 2 {
		return traced.ErrForm
	}
	out := ts[0].Shape()
	n, bags, width := indices.Type().Shape(), out[:1], out[1]
	if offsets = c.beginnings(offsets, bags[0], c.Bool("include_last_offset", false)); offsets == nil {
		return traced.ErrForm
	}
	bag, each := c.bagOf(offsets, n[0], bags[0])
	rows := c.Make(ir.OpEmbedding, nil, w, indices)
	if c.Err != nil {
		return c.Err
	}
	dt, acc := ts[0].DType(), ts[0].DType()
	if mode == bagMean || c.IsTensor("per_sample_weights") {
		acc = traced.AccType(dt)
	}
	rows = c.In(acc, rows)
	if c.IsTensor("per_sample_weights") {
		rows = c.Helper(ir.OpMul, nil, traced.Like(rows, acc), rows, c.Unsqueezed(c.Tensor("per_sample_weights"), 1))
	}
	one := c.Full(attr.Int(1), ir.I64, n)
	if pad >= 0 {
		padding := c.With(ir.OpEq, indices, float64(pad))
		nothing := attr.Int(0)
		if mode == bagLargest {
			nothing = attr.Float(math.Inf(-1))
		}
		rows = c.Helper(ir.OpWhere, nil, traced.Like(rows, acc), c.Unsqueezed(padding, 1), c.Filled(nothing, acc), rows)
		one = c.In(ir.I64, c.Make(ir.OpLogicalNot, nil, padding))
	}
	size := c.Make(ir.OpIndexAdd, traced.DimAttr(0), c.Full(attr.Int(0), ir.I64, bags), bag, one)
	which := c.In(ts[1].DType(), bag)
	if !ts[1].Shape().Equal(bag.Type().Shape()) {
		which = c.Full(attr.Int(0), ts[1].DType(), ts[1].Shape()) // it was not requested
	}
	if mode == bagLargest {
		top, at := c.largestOfBags(rows, indices, bag, size)
		return c.Settle(top, which, size, at)
	}
	var sum *ir.Value
	if each > 0 {
		sum = c.Over(ir.OpSum, c.Reshaped(rows, ir.Shape{bags[0], ir.D(each), width}), false, 1)
	} else {
		sum = c.Make(ir.OpIndexAdd, traced.DimAttr(0), c.Full(attr.Int(0), acc, out), bag, rows)
	}
	if mode == bagMean {
		sum = c.Make(ir.OpDiv, nil, sum, c.Unsqueezed(c.In(acc, c.With(ir.OpMaximum, size, 1)), 1))
	}
	return c.Settle(sum, which, size, c.Full(attr.Int(0), ts[3].DType(), ts[3].Shape()))
}

// beginnings are the offsets of so many bags without the end of the last one, which may come after
// them; nil if they are not as many.
func (c *call) beginnings(offsets *ir.Value, bags ir.Dim, end bool) *ir.Value {
	t := offsets.Type()
	switch {
	case t.Rank() != 1:
		return nil
	case end && t.Shape()[0].Equal(bags.Add(ir.D(1))):
		return c.First(offsets, 0, bags)
	case t.Shape()[0].Equal(bags):
		return offsets
	}
	return nil
}

// largestOfBags gives the largest elements of bags, zeros of those without rows, and which
// rows of the weight they come from: of equal ones the first.
func (c *call) largestOfBags(rows, indices, bag, size *ir.Value) (top, at *ir.Value) {
	s := rows.Type().Shape()
	n, out := s[0], ir.Shape{size.Type().Shape()[0], s[1]}
	if n.Equal(ir.D(0)) {
		return c.Full(attr.Int(0), rows.Type().DType(), out), c.Full(attr.Int(0), ir.I64, out)
	}
	along := func(v *ir.Value) *ir.Value { w, _ := c.Broadcast(c.Unsqueezed(v, 1), s); return w }
	fold := func(how string, from attr.Value, x *ir.Value) *ir.Value {
		return c.Make(ir.OpScatter, traced.DimAttr(0).With("reduce", attr.String(how)), c.Full(from, x.Type().DType(), out), along(bag), x)
	}
	dims := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)})
	top = fold("amax", attr.Float(math.Inf(-1)), rows)
	hit := c.Make(ir.OpEq, nil, rows, c.Make(ir.OpIndex, dims, top, bag))
	hit = c.Make(ir.OpLogicalOr, nil, hit, c.Make(ir.OpNe, nil, rows, rows))
	last := c.Most(n) - 1
	first := fold("amin", attr.Int(last), c.Make(ir.OpWhere, nil, hit, along(c.Places(n)), c.Filled(attr.Int(last), ir.I64)))
	if _, ok := n.Const(); !ok { // bags without rows have none
		first = c.Make(ir.OpMinimum, nil, first, c.Counted(n.Sub(ir.D(1))))
	}
	empty := c.Unsqueezed(c.With(ir.OpEq, size, 0), 1)
	none := func(x *ir.Value) *ir.Value {
		return c.Make(ir.OpWhere, nil, empty, c.Filled(attr.Int(0), x.Type().DType()), x)
	}
	return none(top), none(c.In(ir.I64, c.Make(ir.OpIndex, dims, indices, first)))
}

// bagOf gives the bag of each of n indices: how many offsets lie at it or in front of it,
// less one; what lies in front of all is in the first. Where all bags are equally large, their size is returned, too.
func (c *call) bagOf(offsets *ir.Value, n, bags ir.Dim) (bag *ir.Value, each int64) {
	d := offsets.Def()
	if step := d.Attrs().Int("step", 1); d.Op() == ir.OpIota && d.Attrs().Int("start", 0) == 0 && step > 0 && n.Equal(bags.Mul(ir.D(step))) {
		return c.With(ir.OpFloorDivide, c.Places(n), float64(step)), step
	}
	marks := c.Make(ir.OpIndexAdd, traced.DimAttr(0), c.Full(attr.Int(0), ir.I64, ir.Shape{n.Add(ir.D(1))}), offsets, c.Full(attr.Int(1), ir.I64, ir.Shape{bags}))
	sums := c.First(c.Make(ir.OpCumsum, traced.DimAttr(0), marks), 0, n)
	return c.With(ir.OpMaximum, c.With(ir.OpSub, sums, 1), 0), 0
}

// embeddingBagBackward adds each bag's gradient to the rows of its indices.
func embeddingBagBackward(c *call) error {
	grad, indices, bag, size := c.Tensor("grad"), c.Tensor("indices"), c.Tensor("offset2bag"), c.Tensor("bag_size")
	mode := c.bagMode()
	if c.Err != nil {
		return c.Err
	}
	if mode == bagLargest {
		return c.largestBackward(grad, size)
	}
	if grad.Type().Rank() != 2 || indices.Type().Rank() != 1 {
		return traced.ErrForm
	}
	if bag = c.bagsOfGradient(grad, indices, bag); bag == nil {
		return cmp.Or(c.Err, traced.ErrForm)
	}
	acc := grad.Type().DType()
	if mode == bagMean || c.IsTensor("per_sample_weights") {
		acc = traced.AccType(acc)
	}
	grad = c.In(acc, grad)
	if mode == bagMean {
		some := c.Helper(ir.OpMaximum, traced.Scalar(attr.Int(1)), traced.Like(size, size.Type().DType()), size)
		grad = c.Helper(ir.OpDiv, nil, traced.Like(grad, acc), grad, c.Unsqueezed(c.In(acc, some), 1))
	}
	rows := c.Make(ir.OpIndex, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), grad, bag)
	if c.IsTensor("per_sample_weights") {
		rows = c.Helper(ir.OpMul, nil, traced.Like(rows, acc), rows, c.Unsqueezed(c.Tensor("per_sample_weights"), 1))
	}
	return c.rowGradient(rows, indices)
}

// bagsOfGradient are the bags of all indices: what forward handed on, or of the offsets; nil if they are not as many.
func (c *call) bagsOfGradient(grad, indices, bag *ir.Value) *ir.Value {
	if slices.Contains(c.Params, "offsets") && bag.Type().Shape().Equal(ir.Dims(0)) { // PyTorch's CPU leaves it out
		offsets, bags := c.Tensor("offsets"), grad.Type().Shape()[0]
		if c.Err != nil {
			return nil
		}
		if offsets = c.beginnings(offsets, bags, true); offsets == nil {
			return nil
		}
		bag, _ = c.bagOf(offsets, indices.Type().Shape()[0], bags)
	}
	if !bag.Type().Shape().Equal(indices.Type().Shape()) {
		return nil
	}
	return bag
}

// bagWeightsBackward is the gradient of each index's weight: the product of its row and its bag's gradient.
func bagWeightsBackward(c *call) error {
	grad, w, indices, bag := c.Tensor("grad"), c.Tensor("weight"), c.Tensor("indices"), c.Tensor("offset2bag")
	mode, pad := c.Int("mode", bagSum), c.Int("padding_idx", -1)
	if c.Err != nil {
		return c.Err
	}
	if mode != bagSum || grad.Type().Rank() != 2 || w.Type().Rank() != 2 || indices.Type().Rank() != 1 {
		return traced.ErrForm
	}
	if bag = c.bagsOfGradient(grad, indices, bag); bag == nil {
		return cmp.Or(c.Err, traced.ErrForm)
	}
	acc := traced.AccType(grad.Type().DType())
	rows := func(x, at *ir.Value) *ir.Value {
		return c.In(acc, c.Make(ir.OpIndex, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), x, at))
	}
	each := c.Over(ir.OpSum, c.Make(ir.OpMul, nil, rows(grad, bag), rows(w, indices)), false, 1)
	if pad >= 0 {
		each = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, indices, float64(pad)), c.Filled(attr.Int(0), acc), each)
	}
	return c.Settle(c.In(grad.Type().DType(), each))
}

// largestBackward adds each element's gradient to the row that it comes from.
func (c *call) largestBackward(grad, size *ir.Value) error {
	at, n := c.Tensor("maximum_indices"), c.Need("num_weights")
	if c.Err != nil {
		return c.Err
	}
	s := grad.Type().Shape()
	if len(s) != 2 || !at.Type().Shape().Equal(s) || n < 1 || n > traced.MaxElems {
		return traced.ErrForm
	}
	acc := traced.AccType(grad.Type().DType())
	grad = c.Make(ir.OpWhere, nil, c.Unsqueezed(c.With(ir.OpEq, size, 0), 1), c.Filled(attr.Int(0), acc), c.In(acc, grad))
	return c.Settle(c.Make(ir.OpScatter, traced.DimAttr(0).With("reduce", attr.String("add")), c.Full(attr.Int(0), acc, ir.Shape{ir.D(n), s[1]}), c.In(ir.I64, at), grad))
}

// embeddingBackward adds gradients to the rows of their indices.
func embeddingBackward(c *call) error {
	grad, indices := c.Tensor("grad_output"), c.Tensor("indices")
	if c.Err != nil {
		return c.Err
	}
	shape := grad.Type().Shape()
	if len(shape) == 0 {
		return traced.ErrForm
	}
	return c.rowGradient(c.Reshaped(grad, ir.Shape{indices.Type().Shape().NumElems(), shape[len(shape)-1]}), c.Flat(indices))
}

// rowGradient adds rows to zeros at positions, of which one may not count.
func (c *call) rowGradient(rows, indices *ir.Value) error {
	n, pad := c.Need("num_weights"), c.Int("padding_idx", -1)
	if c.Err != nil {
		return c.Err
	}
	if n < 0 || n > traced.MaxElems {
		return traced.ErrForm
	}
	if c.Bool("scale_grad_by_freq", false) { // each row by how often it is looked up
		dims := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)})
		times := c.Make(ir.OpIndexAdd, traced.DimAttr(0), c.Filled(attr.Int(0), ir.I64, n), indices, c.Full(attr.Int(1), ir.I64, indices.Type().Shape()))
		rows = c.In(traced.AccType(rows.Type().DType()), rows)
		rows = c.Make(ir.OpDiv, nil, rows, c.Unsqueezed(c.In(rows.Type().DType(), c.Make(ir.OpIndex, dims, times, indices)), 1))
	}
	acc, wide := rows.Type().DType(), traced.SizeAt(rows, 1)
	if pad >= 0 {
		padding := c.Helper(ir.OpEq, traced.Scalar(attr.Int(pad)), traced.Like(indices, ir.Bool), indices)
		rows = c.Helper(ir.OpWhere, nil, traced.Like(rows, acc), c.Unsqueezed(padding, 1), c.Filled(attr.Int(0), acc), rows)
	}
	t, err := c.Trace.TypeOf(0)
	if err != nil {
		return err
	}
	zero := c.Filled(attr.Int(0), acc, n, wide)
	if acc == t.DType() {
		return c.EmitErr(ir.OpIndexAdd, traced.DimAttr(0), zero, indices, rows)
	}
	return c.EmitErr(ir.OpConvert, nil, c.Helper(ir.OpIndexAdd, traced.DimAttr(0), ir.Tensor(acc, n, wide), zero, indices, rows))
}

// histogram counts the elements in bins of equal width; the last bin has its upper end.
// Where no range is given it is that of the elements.
func histogram(c *call) error {
	x, bins := c.Tensor("self"), c.Int("bins", 100)
	var ends [2]attr.Value
	for i, p := range []string{"min", "max"} {
		ends[i] = attr.Int(0)
		if v, ok := c.Num(p); ok {
			ends[i] = v
		}
	}
	if c.Err != nil {
		return c.Err
	}
	low, _ := ends[0].AsFloat()
	high, _ := ends[1].AsFloat()
	if bins < 1 || bins > math.MaxInt32 || !(low <= high) || math.IsInf(high-low, 0) {
		c.Reject("bins", c.Arg("bins"), "%d bins from %v to %v", bins, low, high)
		return c.Err
	}
	n, dt := intmath.Product(traced.Static(x)), x.Type().DType()
	x = c.Flat(x)
	of, span := ir.Tensor(dt, n), ir.Tensor(dt)
	first, last := c.Filled(ends[0], dt), c.Filled(ends[1], dt)
	if low == high {
		if n == 0 {
			return traced.ErrForm
		}
		first, last = c.Helper(ir.OpAmin, nil, span, x), c.Helper(ir.OpAmax, nil, span, x)
		same := c.Helper(ir.OpEq, nil, ir.Tensor(ir.Bool), first, last)
		wider := func(op ir.Op, x *ir.Value) *ir.Value {
			return c.Helper(ir.OpWhere, nil, span, same, c.Helper(op, traced.Scalar(attr.Int(1)), span, x), x)
		}
		first, last = wider(ir.OpSub, first), wider(ir.OpAdd, last)
	}
	within := c.Helper(ir.OpLogicalAnd, nil, ir.Tensor(ir.Bool, n), c.Helper(ir.OpGe, nil, ir.Tensor(ir.Bool, n), x, first), c.Helper(ir.OpLe, nil, ir.Tensor(ir.Bool, n), x, last))
	at := c.Helper(ir.OpMul, traced.Scalar(attr.Int(bins)), of, c.Helper(ir.OpSub, nil, of, x, first))
	width := c.Helper(ir.OpSub, nil, span, last, first)
	if dt.IsFloat() {
		at = c.Helper(ir.OpDiv, nil, of, at, width)
	} else {
		at = c.Helper(ir.OpTruncDivide, nil, of, at, width)
	}
	at = c.Helper(ir.OpWhere, nil, of, within, at, c.Filled(attr.Int(0), dt))
	at = c.Helper(ir.OpMinimum, traced.Scalar(attr.Int(bins-1)), ir.Tensor(ir.I64, n), c.In(ir.I64, at))
	count := c.Helper(ir.OpIndexAdd, traced.DimAttr(0), ir.Tensor(ir.I64, bins), c.Filled(attr.Int(0), ir.I64, bins), at, c.In(ir.I64, within))
	return c.EmitErr(ir.OpConvert, nil, count)
}
