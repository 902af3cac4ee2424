package aten

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// decomposedOps are operators that are exactly others of the op table in a row.
var decomposedOps = []row{
	{"prims.iota.default", "length * start step requires_grad", steps},
	{"aten.var_mean.correction", "self dim * correction keepdim", varMean},
	{"aten.var.correction", "self dim * correction keepdim", variance},
	{"aten.any.default", "self", truth(ir.OpAmax)},
	{"aten.any.dim aten.any.dims", "self dim keepdim", truth(ir.OpAmax)},
	{"aten.all.default", "self", truth(ir.OpAmin)},
	{"aten.all.dim aten.all.dims", "self dim keepdim", truth(ir.OpAmin)},
	{"aten.max.dim", "self dim keepdim", extremum(false)},
	{"aten.min.dim", "self dim keepdim", extremum(true)},
	{"aten.sort.default", "self dim descending", sorted},
	{"aten.sort.stable", "self * stable dim descending", sorted},
	{"aten.kthvalue.default", "self k dim keepdim", kthValue},
	{"aten.logical_xor.default", "self other", differ},
	{"aten.isnan.default", "self", isNaN},
	{"aten.isinf.default", "self", isInf},
	{"aten.hardtanh.default", "self min_val max_val", hardtanh},
	{"aten.leaky_relu.default", "self negative_slope", leakyRelu},
	{"aten.elu.default", "self alpha scale input_scale", elu},
	{"aten.constant_pad_nd.default", "self pad value", pad},
	{"aten.select_scatter.default", "self src dim index", selectScatter},
	{"aten.repeat.default", "self repeats", repeat},
}

func steps(c *call) error {
	n, step := c.Sizes("length"), c.Int("step", 1)
	if from := c.Trace.SizeOf(c.Arg("start")); from != nil && len(n) == 1 && c.Err == nil {
		return c.Settle(c.By(ir.OpAdd, c.With(ir.OpMul, c.Places(n[0]), float64(step)), *from))
	}
	start := c.Int("start", 0)
	if n == nil {
		c.Want("length", "an integer", c.Arg("length"))
	}
	if c.Err == nil && c.NumResults == 1 && !c.Shape(0).Equal(n) {
		return c.Fail("out", "type", "result 0 has shape %s, the arguments give %s", c.Shape(0), n)
	}
	return c.EmitErr(ir.OpIota, attr.Make(attr.Attr{Key: "start", Val: attr.Int(start)}, attr.Attr{Key: "step", Val: attr.Int(step)}))
}

// reduced reads dim and keepdim: the attributes of the reduction, and of one that keeps
// the dimensions, with its shape and the number of elements that it joins.
func (c *call) reduced(x *ir.Value) (l, kept attr.List, shape ir.Shape, count ir.Dim) {
	if c.Err != nil {
		return nil, nil, nil, count
	}
	shape, count = slices.Clone(x.Type().Shape()), ir.D(1)
	var dims []int64
	if v := c.Arg("dim"); v != nil {
		dims = c.Dims("dim", len(shape))
	}
	if len(dims) > 0 {
		l = attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(dims...)})
	}
	for d := range shape {
		if len(dims) == 0 || slices.Contains(dims, int64(d)) {
			count = count.Mul(shape[d])
			shape[d] = ir.D(1)
		}
	}
	kept = l.With("keepdim", attr.Bool(true))
	if slices.Contains(c.Params, "keepdim") && c.Bool("keepdim", false) {
		l = kept
	}
	return l, kept, shape, count
}

// moments are the mean with its dimensions kept, and the squares of distances from it.
// They are computed in single precision at least, as PyTorch does.
func (c *call) moments() (x, mean, squares *ir.Value, l attr.List, joined func(sum *ir.Value) (attr.List, []*ir.Value)) {
	x = c.Tensor("self")
	l, kept, shape, count := c.reduced(x)
	correction := attr.Int(1)
	if v, ok := c.Num("correction"); ok {
		correction = v
	}
	if slices.Contains(c.Params, "unbiased") && !c.Bool("unbiased", true) {
		correction = attr.Int(0)
	}
	if c.Err != nil {
		return
	}
	if !x.Type().DType().IsFloat() {
		c.Err = traced.ErrForm
		return
	}
	f, _ := correction.AsFloat()
	acc := x.Type().DType()
	if acc.Size() < 4 {
		acc = dtype.F32
	}
	x = c.In(acc, x)
	mean = c.Helper(ir.OpMean, kept, ir.TensorOf(acc, shape), x)
	away := c.Helper(ir.OpSub, nil, traced.Like(x, acc), x, mean)
	squares = c.Helper(ir.OpMul, nil, traced.Like(x, acc), away, away)
	return x, mean, squares, l, func(sum *ir.Value) (attr.List, []*ir.Value) {
		if n, ok := count.Const(); ok {
			return traced.Scalar(attr.Float(math.Max(0, float64(n)-f))), []*ir.Value{sum}
		}
		n := c.With(ir.OpMaximum, c.With(ir.OpSub, c.In(dtype.F64, c.Counted(count)), f), 0)
		return nil, []*ir.Value{sum, c.In(acc, n)}
	}
}

func variance(c *call) error {
	_, _, squares, l, joined := c.moments()
	if c.Err != nil {
		return c.Err
	}
	over, args := joined(c.Make(ir.OpSum, l, squares))
	return c.Finish(ir.OpDiv, over, args)
}

func varMean(c *call) error {
	x, mean, squares, l, joined := c.moments()
	if c.Err != nil {
		return c.Err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if len(ts) != 2 {
		return c.Fail("out", "results", "var_mean gives 2 results, out lists %d", len(ts))
	}
	acc := x.Type().DType()
	over, args := joined(c.Make(ir.OpSum, l, squares))
	if ts[1].Rank() != mean.Type().Rank() {
		mean = c.Helper(ir.OpView, nil, ir.TensorOf(acc, ts[1].Shape()), mean)
	}
	return c.Finish(ir.OpDiv, over, args, c.In(ts[1].DType(), mean))
}

// truth reduces truth values.
func truth(op ir.Op) func(c *call) error {
	return func(c *call) error {
		x := c.Tensor("self")
		l, _, _, _ := c.reduced(x)
		if c.Err != nil {
			return c.Err
		}
		if x.Type().DType() != ir.Bool {
			x = c.Helper(ir.OpNe, traced.Scalar(attr.Int(0)), traced.Like(x, ir.Bool), x)
		}
		if strings.HasSuffix(c.Operator, ".dims") && c.Arg("dim") != nil && len(c.Ints("dim")) == 0 {
			return c.EmitErr(ir.OpConvert, nil, x) // over no dimension
		}
		return c.EmitErr(op, l, x)
	}
}

// extremum gives the largest or smallest elements along a dimension and where the first of each is.
func extremum(least bool) func(c *call) error {
	return func(c *call) error {
		x, d, err := c.SelfAlong(0)
		at := traced.DimAttr(d)
		keep := c.Bool("keepdim", false)
		if keep {
			at = at.With("keepdim", attr.Bool(true))
		}
		if err = cmp.Or(err, c.Err); err != nil {
			return err
		}
		if least {
			return c.Settle(c.Over(ir.OpAmin, x, keep, d), c.Make(ir.OpArgmax, at, c.reversed(x)))
		}
		return c.Settle(c.Over(ir.OpAmax, x, keep, d), c.Make(ir.OpArgmax, at, x))
	}
}

func differ(c *call) error {
	a, b := c.Tensor("self"), c.Tensor("other")
	if c.Err != nil {
		return c.Err
	}
	if a.Type().DType() != ir.Bool {
		a = c.Helper(ir.OpNe, traced.Scalar(attr.Int(0)), traced.Like(a, ir.Bool), a)
	}
	if b.Type().DType() != ir.Bool {
		b = c.Helper(ir.OpNe, traced.Scalar(attr.Int(0)), traced.Like(b, ir.Bool), b)
	}
	return c.EmitErr(ir.OpNe, nil, a, b)
}

func isNaN(c *call) error {
	x := c.Tensor("self")
	return c.EmitErr(ir.OpNe, nil, x, x)
}

func isInf(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	x = c.Helper(ir.OpAbs, nil, traced.Like(x, x.Type().DType()), x)
	return c.EmitErr(ir.OpEq, traced.Scalar(attr.Float(math.Inf(1))), x)
}

func hardtanh(c *call) error {
	low, high := attr.Int(-1), attr.Int(1)
	if v, ok := c.Num("min_val"); ok {
		low = v
	}
	if v, ok := c.Num("max_val"); ok {
		high = v
	}
	return c.EmitErr(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: high}, attr.Attr{Key: "min", Val: low}), c.Tensor("self"))
}

func leakyRelu(c *call) error {
	x, slope := c.Tensor("self"), attr.Float(0.01)
	if v, ok := c.Num("negative_slope"); ok {
		slope = v
	}
	if c.Err != nil {
		return c.Err
	}
	dt := x.Type().DType()
	above := c.Helper(ir.OpGt, traced.Scalar(attr.Int(0)), traced.Like(x, ir.Bool), x)
	return c.EmitErr(ir.OpWhere, nil, above, x, c.Helper(ir.OpMul, traced.Scalar(slope), traced.Like(x, dt), x))
}

// elu is scale*x above 0, else scale*alpha*(exp(input_scale*x) - 1), in single precision.
func elu(c *call) error {
	x := c.Tensor("self")
	factor := map[string]float64{"alpha": 1, "scale": 1, "input_scale": 1}
	for _, p := range []string{"alpha", "scale", "input_scale"} {
		if v, ok := c.Num(p); ok {
			factor[p], _ = v.AsFloat()
		}
	}
	if c.Err != nil {
		return c.Err
	}
	acc := x.Type().DType()
	if acc.Size() < 4 {
		acc = dtype.F32
	}
	x = c.In(acc, x)
	mul := func(x *ir.Value, f float64) *ir.Value {
		if f == 1 {
			return x
		}
		return c.Helper(ir.OpMul, traced.Scalar(attr.Float(f)), traced.Like(x, acc), x)
	}
	above := c.Helper(ir.OpGt, traced.Scalar(attr.Int(0)), traced.Like(x, ir.Bool), x)
	below := c.Helper(ir.OpExpm1, nil, traced.Like(x, acc), mul(x, factor["input_scale"]))
	return c.EmitErr(ir.OpWhere, nil, above, mul(x, factor["scale"]), mul(below, factor["alpha"]*factor["scale"]))
}

// pad writes the operand into constants, a dimension after the other from the last on;
// negative padding takes elements away.
func pad(c *call) error {
	x, pads := c.Tensor("self"), c.Ints("pad")
	value, ok := c.Num("value")
	if !ok {
		value = attr.Int(0)
	}
	if c.Err != nil {
		return c.Err
	}
	rank := x.Type().Rank()
	if len(pads)%2 != 0 || len(pads) > 2*rank {
		c.Reject("pad", c.Arg("pad"), "%d numbers do not pad %d dimensions at both ends", len(pads), rank)
		return c.Err
	}
	dt := x.Type().DType()
	for k := 0; k < len(pads); k += 2 {
		d := int64(rank - 1 - k/2)
		if !known(x.Type().Shape()) {
			x = c.padOpen(x, d, pads[k], pads[k+1], value)
			continue
		}
		shape := slices.Clone(traced.Static(x))
		start, end := max(0, -pads[k]), shape[d]-max(0, -pads[k+1])
		if max(pads[k], pads[k+1], -pads[k], -pads[k+1]) > traced.MaxElems || start > end {
			c.Reject("pad", c.Arg("pad"), "padding %d and %d of dimension %d, which has %d elements", pads[k], pads[k+1], d, shape[d])
			return c.Err
		}
		at := func(start, end int64) attr.List {
			return traced.DimAttr(d).With("start", attr.Int(start)).With("end", attr.Int(end))
		}
		if start > 0 || end < shape[d] {
			strides := x.Type().Strides()
			shape[d] = end - start
			x = c.Helper(ir.OpSlice, at(start, end), ir.Tensor(dt, shape...).WithStrides(strides), x)
		}
		low, high := max(0, pads[k]), max(0, pads[k+1])
		if low == 0 && high == 0 {
			continue
		}
		shape[d] += low + high
		full := c.Helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: value}), ir.Tensor(dt, shape...))
		x = c.Helper(ir.OpSliceScatter, at(low, shape[d]-high), ir.Tensor(dt, shape...), full, x)
	}
	return c.EmitErr(ir.OpClone, nil, x)
}

// padOpen pads a dimension of a tensor some of whose sizes are known at run time only.
func (c *call) padOpen(x *ir.Value, d, low, high int64, value attr.Value) *ir.Value {
	n := x.Type().Shape()[d].Add(ir.D(low + high))
	var parts []*ir.Value
	for i, k := range []int64{low, 0, high} {
		if i == 1 {
			parts = append(parts, x)
		} else if k > 0 {
			shape := slices.Clone(x.Type().Shape())
			shape[d] = ir.D(k)
			parts = append(parts, c.Full(value, x.Type().DType(), shape))
		}
	}
	if len(parts) > 1 {
		x = c.Make(ir.OpCat, traced.DimAttr(d), parts...)
	}
	if low < 0 || high < 0 {
		x = c.Piece(x, d, ir.D(-min(low, 0)), n)
	}
	return x
}

func selectScatter(c *call) error {
	x, src := c.Tensor("self"), c.Tensor("src")
	if c.Err != nil {
		return c.Err
	}
	if x.Type().Rank() == 0 {
		return traced.ErrForm
	}
	d, i := c.Dim("dim", 0, x.Type().Rank()), c.Need("index")
	if c.Err != nil {
		return c.Err
	}
	size := x.Type().Shape()[d]
	n, ok := size.Const()
	if i < 0 {
		i += n
	}
	src = c.Make(ir.OpUnsqueeze, traced.DimAttr(d), src)
	if !ok && c.Err == nil {
		at := size
		if i >= 0 {
			at = ir.D(i + 1)
		} else {
			at = size.Add(ir.D(i + 1))
		}
		c.Trace.Require(size.Sub(at))
		c.Trace.Require(at.Sub(ir.D(1)))
		place := c.With(ir.OpSub, c.Counted(at), 1)
		return c.Settle(c.Make(ir.OpIndexPut, attr.List(nil).With("dims", attr.Ints(d)), x, c.In(x.Type().DType(), src), c.Unsqueezed(place, 0)))
	}
	if i < 0 || i >= n {
		c.Reject("index", c.Arg("index"), "index %d is outside the %d elements of dimension %d", i, n, d)
		return c.Err
	}
	if c.Err != nil {
		return c.Err
	}
	return c.EmitErr(ir.OpSliceScatter, traced.DimAttr(d).With("start", attr.Int(i)).With("end", attr.Int(i+1)), x, src)
}

func unbind(c *call) error {
	x, d, err := c.SelfAlong(0)
	if err != nil {
		return err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if len(ts) == 0 {
		return traced.ErrForm
	}
	if n := traced.SizeAt(x, d); int64(len(ts)) != n {
		return c.Fail("out", "results", "out lists %d pieces, the arguments give %d", len(ts), n)
	}
	at := func(i int) attr.List { return traced.DimAttr(d).With("index", attr.Int(int64(i))) }
	var items []*ir.Value
	if !traced.Placed(x, int(d), 1) {
		for i := range ts {
			items = append(items, c.one(x, d, ir.D(int64(i))))
		}
		return c.pieces(items...)
	}
	if c.Copies {
		for i := range ts {
			items = append(items, c.Make(ir.OpSelect, at(i), x))
		}
		return c.Settle(items...)
	}
	for i := 1; i < len(ts); i++ {
		items = append(items, c.Helper(ir.OpSelect, at(i), ts[i], x))
	}
	return c.Finish(ir.OpSelect, at(0), []*ir.Value{x}, items...)
}

// repeat puts a dimension of copies before each dimension and copies.
func repeat(c *call) error {
	x, open := c.Tensor("self"), c.Sizes("repeats")
	if c.Err != nil {
		return c.Err
	}
	times, ok := open.Static()
	if !ok || !known(x.Type().Shape()) {
		return c.repeatOpen(x, open)
	}
	shape, dt := traced.Static(x), x.Type().DType()
	front := len(times) - len(shape)
	if front < 0 || len(times) > traced.MaxRank/2 || slices.ContainsFunc(times, func(n int64) bool { return n < 0 || n > traced.MaxElems }) {
		return traced.ErrForm
	}
	var ones, many []int64
	for d, n := range times {
		size := int64(1)
		if d >= front {
			size = shape[d-front]
		}
		ones, many = append(ones, 1, size), append(many, n, size)
	}
	if !x.Type().Contiguous() {
		x = c.Helper(ir.OpClone, nil, traced.Like(x, dt), x)
	}
	x = c.Helper(ir.OpView, nil, ir.Tensor(dt, ones...), x)
	strides := slices.Clone(x.Type().Strides())
	for d := 0; d < len(strides); d += 2 {
		strides[d] = 0
	}
	x = c.Helper(ir.OpExpand, nil, ir.Tensor(dt, many...).WithStrides(strides), x)
	x = c.Helper(ir.OpClone, nil, ir.Tensor(dt, many...), x)
	if _, err := c.Emit(ir.OpView, nil, nil, x); err != nil {
		return err
	}
	c.View = false // a view of the copy
	return nil
}

// repeatOpen takes elements again and again where a size is known at run time only.
func (c *call) repeatOpen(x *ir.Value, times ir.Shape) error {
	front := len(times) - x.Type().Rank()
	if front < 0 || len(times) > traced.MaxRank/2 {
		return traced.ErrForm
	}
	x = c.Unsqueezed(x, make([]int64, front)...)
	for d, k := range times {
		n := x.Type().Shape()[d]
		if c.Err != nil || k.Equal(ir.D(1)) {
			continue
		}
		at := c.By(ir.OpRemainder, c.Places(n.Mul(k)), n)
		x = c.Make(ir.OpIndex, attr.List(nil).With("dims", attr.Ints(int64(d))), x, at)
	}
	return c.Settle(x)
}
