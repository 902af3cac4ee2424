package fx

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
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
	{"aten.max.dim", "self dim keepdim", largest},
	{"aten.sort.default", "self dim descending", sorted},
	{"aten.sort.stable", "self * stable dim descending", sorted},
	{"aten.logical_xor.default", "self other", differ},
	{"aten.isnan.default", "self", isNaN},
	{"aten.isinf.default", "self", isInf},
	{"aten.hardtanh.default", "self min_val max_val", hardtanh},
	{"aten.leaky_relu.default", "self negative_slope", leakyRelu},
	{"aten.elu.default", "self alpha scale input_scale", elu},
	{"aten.constant_pad_nd.default", "self pad value", pad},
	{"aten.select_scatter.default", "self src dim index", selectScatter},
	{"aten.unbind.int", "self dim", unbind},
	{"aten.repeat.default", "self repeats", repeat},
}

// finish ends a decomposition: the traced node's name and cost go to the first value's
// node, made by op here; the others are helpers.
func (c *call) finish(op ir.Op, attrs attr.List, args []*ir.Value, others ...*ir.Value) error {
	ts, err := c.types()
	if err != nil {
		return err
	}
	if len(ts) != 1+len(others) {
		return c.fail("out", "results", "%s gives %d results, out lists %d", c.n.Target, 1+len(others), len(ts))
	}
	n := c.append(op, attrs, nil, ts[:1], nil, args)
	st := &c.im.nodes[c.i]
	st.vals, st.root = append(slices.Clone(n.Results()), others...), storage{node: c.i}
	if op.IsView() {
		st.root = c.operandRoot
	}
	for k, v := range others {
		if !v.Type().Equal(ts[k+1]) {
			return c.fail("out", "type", "result %d is %s, the arguments give %s", k+1, ts[k+1], v.Type())
		}
	}
	return nil
}

func scalar(v attr.Value) attr.List { return attr.Make(attr.Attr{Key: "scalar", Val: v}) }

// like is a contiguous type of x's shape.
func like(x *ir.Value, dt ir.DType) ir.Type { return ir.TensorOf(dt, x.Type().Shape()) }

// in converts x, where it is of another element type.
func (c *call) in(dt ir.DType, x *ir.Value) *ir.Value {
	if x.Type().DType() == dt {
		return x
	}
	return c.helper(ir.OpConvert, nil, like(x, dt), x)
}

func steps(c *call) error {
	n, start, step := c.sizes("length"), c.int("start", 0), c.int("step", 1)
	if n == nil {
		c.want("length", "an integer", c.arg("length"))
	}
	if c.err == nil && len(c.n.Out) == 1 && !c.n.Out[0].shape().Equal(n) {
		return c.fail("out", "type", "result 0 has shape %s, the arguments give %s", c.n.Out[0].shape(), n)
	}
	return c.emitErr(ir.OpIota, attr.Make(attr.Attr{Key: "start", Val: attr.Int(start)}, attr.Attr{Key: "step", Val: attr.Int(step)}))
}

// reduced reads dim and keepdim: the attributes of the reduction, and of one that keeps
// the dimensions, with its shape and the number of elements that it joins.
func (c *call) reduced(x *ir.Value) (l, kept attr.List, shape ir.Shape, count ir.Dim) {
	if c.err != nil {
		return nil, nil, nil, count
	}
	shape, count = slices.Clone(x.Type().Shape()), ir.D(1)
	var dims []int64
	if v := c.arg("dim"); v != nil {
		dims = c.dims("dim", len(shape))
	}
	if len(shape) == 0 {
		dims = nil
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
	if slices.Contains(c.params, "keepdim") && c.bool("keepdim", false) {
		l = kept
	}
	return l, kept, shape, count
}

// moments are the mean with its dimensions kept, and the squares of distances from it.
// They are computed in single precision at least, as PyTorch does.
func (c *call) moments() (x, mean, squares *ir.Value, l, kept attr.List, over attr.List) {
	x = c.tensor("self")
	l, kept, shape, count := c.reduced(x)
	correction := attr.Int(1)
	if v, ok := c.num("correction"); ok {
		correction = v
	}
	if slices.Contains(c.params, "unbiased") && !c.bool("unbiased", true) {
		correction = attr.Int(0)
	}
	if c.err != nil {
		return
	}
	if !x.Type().DType().IsFloat() {
		c.err = errForm
		return
	}
	joined, ok := count.Const()
	if !ok {
		panic(unsized{})
	}
	f, _ := correction.AsFloat()
	acc := x.Type().DType()
	if acc.Size() < 4 {
		acc = dtype.F32
	}
	x = c.in(acc, x)
	mean = c.helper(ir.OpMean, kept, ir.TensorOf(acc, shape), x)
	away := c.helper(ir.OpSub, nil, like(x, acc), x, mean)
	squares = c.helper(ir.OpMul, nil, like(x, acc), away, away)
	return x, mean, squares, l, kept, scalar(attr.Float(math.Max(0, float64(joined)-f)))
}

func variance(c *call) error {
	_, _, squares, l, _, over := c.moments()
	if c.err != nil {
		return c.err
	}
	t, err := c.tensorType(0)
	if err != nil {
		return err
	}
	sum := c.helper(ir.OpSum, l, ir.TensorOf(squares.Type().DType(), t.Shape()), squares)
	return c.finish(ir.OpDiv, over, []*ir.Value{sum})
}

func varMean(c *call) error {
	x, mean, squares, l, _, over := c.moments()
	if c.err != nil {
		return c.err
	}
	ts, err := c.types()
	if err != nil {
		return err
	}
	if len(ts) != 2 {
		return c.fail("out", "results", "var_mean gives 2 results, out lists %d", len(ts))
	}
	acc := x.Type().DType()
	sum := c.helper(ir.OpSum, l, ir.TensorOf(acc, ts[0].Shape()), squares)
	if ts[1].Rank() != mean.Type().Rank() {
		mean = c.helper(ir.OpView, nil, ir.TensorOf(acc, ts[1].Shape()), mean)
	}
	return c.finish(ir.OpDiv, over, []*ir.Value{sum}, c.in(ts[1].DType(), mean))
}

// truth reduces truth values.
func truth(op ir.Op) func(c *call) error {
	return func(c *call) error {
		x := c.tensor("self")
		l, _, _, _ := c.reduced(x)
		if c.err != nil {
			return c.err
		}
		if x.Type().DType() != ir.Bool {
			x = c.helper(ir.OpNe, scalar(attr.Int(0)), like(x, ir.Bool), x)
		}
		return c.emitErr(op, l, x)
	}
}

// largest gives the largest elements along a dimension and where the first of each is.
func largest(c *call) error {
	x, d, err := c.selfAlong(0)
	if err != nil {
		return err
	}
	ts, err := c.types()
	if err != nil {
		return err
	}
	at, l := dimAttr(d), attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(d)})
	if c.bool("keepdim", false) {
		at, l = at.With("keepdim", attr.Bool(true)), l.With("keepdim", attr.Bool(true))
	}
	if c.err != nil {
		return c.err
	}
	if len(ts) != 2 {
		return c.fail("out", "results", "max gives 2 results, out lists %d", len(ts))
	}
	index := c.helper(ir.OpArgmax, at, ir.TensorOf(ir.I64, ts[1].Shape()), x)
	return c.finish(ir.OpAmax, l, []*ir.Value{x}, index)
}

// sorted takes all elements in order. The order of equal elements is that of the operand,
// so that a stable sort is the same.
func sorted(c *call) error {
	x, d, err := c.selfAlong(-1)
	if err != nil {
		return err
	}
	l := dimAttr(d).With("k", attr.Int(sizeAt(x, d)))
	if !c.bool("descending", false) {
		l = l.With("largest", attr.Bool(false))
	}
	return c.emitErr(ir.OpTopk, l, x)
}

func differ(c *call) error {
	a, b := c.tensor("self"), c.tensor("other")
	if c.err != nil {
		return c.err
	}
	if a.Type().DType() != ir.Bool {
		a = c.helper(ir.OpNe, scalar(attr.Int(0)), like(a, ir.Bool), a)
	}
	if b.Type().DType() != ir.Bool {
		b = c.helper(ir.OpNe, scalar(attr.Int(0)), like(b, ir.Bool), b)
	}
	return c.emitErr(ir.OpNe, nil, a, b)
}

func isNaN(c *call) error {
	x := c.tensor("self")
	return c.emitErr(ir.OpNe, nil, x, x)
}

func isInf(c *call) error {
	x := c.tensor("self")
	if c.err != nil {
		return c.err
	}
	x = c.helper(ir.OpAbs, nil, like(x, x.Type().DType()), x)
	return c.emitErr(ir.OpEq, scalar(attr.Float(math.Inf(1))), x)
}

func hardtanh(c *call) error {
	low, high := attr.Int(-1), attr.Int(1)
	if v, ok := c.num("min_val"); ok {
		low = v
	}
	if v, ok := c.num("max_val"); ok {
		high = v
	}
	return c.emitErr(ir.OpClamp, attr.Make(attr.Attr{Key: "max", Val: high}, attr.Attr{Key: "min", Val: low}), c.tensor("self"))
}

func leakyRelu(c *call) error {
	x, slope := c.tensor("self"), attr.Float(0.01)
	if v, ok := c.num("negative_slope"); ok {
		slope = v
	}
	if c.err != nil {
		return c.err
	}
	dt := x.Type().DType()
	above := c.helper(ir.OpGt, scalar(attr.Int(0)), like(x, ir.Bool), x)
	return c.emitErr(ir.OpWhere, nil, above, x, c.helper(ir.OpMul, scalar(slope), like(x, dt), x))
}

// elu is scale*x above 0, else scale*alpha*(exp(input_scale*x) - 1), in single precision.
func elu(c *call) error {
	x := c.tensor("self")
	factor := map[string]float64{"alpha": 1, "scale": 1, "input_scale": 1}
	for _, p := range []string{"alpha", "scale", "input_scale"} {
		if v, ok := c.num(p); ok {
			factor[p], _ = v.AsFloat()
		}
	}
	if c.err != nil {
		return c.err
	}
	acc := x.Type().DType()
	if acc.Size() < 4 {
		acc = dtype.F32
	}
	x = c.in(acc, x)
	mul := func(x *ir.Value, f float64) *ir.Value {
		if f == 1 {
			return x
		}
		return c.helper(ir.OpMul, scalar(attr.Float(f)), like(x, acc), x)
	}
	above := c.helper(ir.OpGt, scalar(attr.Int(0)), like(x, ir.Bool), x)
	below := c.helper(ir.OpExpm1, nil, like(x, acc), mul(x, factor["input_scale"]))
	return c.emitErr(ir.OpWhere, nil, above, mul(x, factor["scale"]), mul(below, factor["alpha"]*factor["scale"]))
}

// pad writes the operand into constants, a dimension after the other from the last on;
// negative padding takes elements away.
func pad(c *call) error {
	x, pads := c.tensor("self"), c.ints("pad")
	value, ok := c.num("value")
	if !ok {
		value = attr.Int(0)
	}
	if c.err != nil {
		return c.err
	}
	rank := x.Type().Rank()
	if len(pads)%2 != 0 || len(pads) > 2*rank {
		c.stick("pad", c.arg("pad"), "%d numbers do not pad %d dimensions at both ends", len(pads), rank)
		return c.err
	}
	dt := x.Type().DType()
	for k := 0; k < len(pads); k += 2 {
		d := int64(rank - 1 - k/2)
		shape := slices.Clone(static(x))
		start, end := max(0, -pads[k]), shape[d]-max(0, -pads[k+1])
		if max(pads[k], pads[k+1], -pads[k], -pads[k+1]) > maxElems || start > end {
			c.stick("pad", c.arg("pad"), "padding %d and %d of dimension %d, which has %d elements", pads[k], pads[k+1], d, shape[d])
			return c.err
		}
		at := func(start, end int64) attr.List {
			return dimAttr(d).With("start", attr.Int(start)).With("end", attr.Int(end))
		}
		if start > 0 || end < shape[d] {
			strides := x.Type().Strides()
			shape[d] = end - start
			x = c.helper(ir.OpSlice, at(start, end), ir.Tensor(dt, shape...).WithStrides(strides), x)
		}
		low, high := max(0, pads[k]), max(0, pads[k+1])
		if low == 0 && high == 0 {
			continue
		}
		shape[d] += low + high
		full := c.helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: value}), ir.Tensor(dt, shape...))
		x = c.helper(ir.OpSliceScatter, at(low, shape[d]-high), ir.Tensor(dt, shape...), full, x)
	}
	return c.emitErr(ir.OpClone, nil, x)
}

func selectScatter(c *call) error {
	x, src := c.tensor("self"), c.tensor("src")
	if c.err != nil {
		return c.err
	}
	if x.Type().Rank() == 0 {
		return errForm
	}
	d, i := c.dim("dim", 0, x.Type().Rank()), c.need("index")
	if c.err != nil {
		return c.err
	}
	n := sizeAt(x, d)
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		c.stick("index", c.arg("index"), "index %d is outside the %d elements of dimension %d", i, n, d)
		return c.err
	}
	src = c.make(ir.OpUnsqueeze, dimAttr(d), src)
	if c.err != nil {
		return c.err
	}
	return c.emitErr(ir.OpSliceScatter, dimAttr(d).With("start", attr.Int(i)).With("end", attr.Int(i+1)), x, src)
}

func unbind(c *call) error {
	x, d, err := c.selfAlong(0)
	if err != nil {
		return err
	}
	ts, err := c.types()
	if err != nil {
		return err
	}
	if len(ts) == 0 {
		return errForm
	}
	if n := sizeAt(x, d); int64(len(ts)) != n {
		return c.fail("out", "results", "out lists %d pieces, the arguments give %d", len(ts), n)
	}
	var others []*ir.Value
	for i := 1; i < len(ts); i++ {
		others = append(others, c.helper(ir.OpSelect, dimAttr(d).With("index", attr.Int(int64(i))), ts[i], x))
	}
	return c.finish(ir.OpSelect, dimAttr(d).With("index", attr.Int(0)), []*ir.Value{x}, others...)
}

// repeat puts a dimension of copies before each dimension and copies.
func repeat(c *call) error {
	x, times := c.tensor("self"), c.ints("repeats")
	if c.err != nil {
		return c.err
	}
	shape, dt := static(x), x.Type().DType()
	front := len(times) - len(shape)
	if front < 0 || len(times) > maxRank/2 || slices.ContainsFunc(times, func(n int64) bool { return n < 0 || n > maxElems }) {
		return errForm
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
		x = c.helper(ir.OpClone, nil, like(x, dt), x)
	}
	x = c.helper(ir.OpView, nil, ir.Tensor(dt, ones...), x)
	strides := slices.Clone(x.Type().Strides())
	for d := 0; d < len(strides); d += 2 {
		strides[d] = 0
	}
	x = c.helper(ir.OpExpand, nil, ir.Tensor(dt, many...).WithStrides(strides), x)
	x = c.helper(ir.OpClone, nil, ir.Tensor(dt, many...), x)
	if _, err := c.emit(ir.OpView, nil, nil, x); err != nil {
		return err
	}
	c.im.nodes[c.i].root = storage{node: c.i} // a view of the copy
	return nil
}
