package windows

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// poolOps are folds of windows and their gradients. That of a largest element goes where it
// was: of all windows that an element lies in, those count for which it has the place that
// the index tells.
var poolOps = []row{
	{"aten.max_pool1d.default aten.max_pool2d.default aten.max_pool3d.default", "self kernel_size stride padding dilation ceil_mode", maxPool},
	{"aten.max_pool2d_with_indices.default aten.max_pool3d_with_indices.default", "self kernel_size stride padding dilation ceil_mode", maxPoolIndices},
	{"prims._low_memory_max_pool_with_offsets.default prims._low_memory_max_pool2d_with_offsets.default", "self kernel_size stride padding dilation ceil_mode", maxPoolOffsets},
	{"prims._low_memory_max_pool_offsets_to_indices.default", "offsets kernel_size input_size stride padding dilation", offsetsToIndices},
	{"prims._low_memory_max_pool2d_offsets_to_indices.default", "offsets kernel_width input_width stride padding", offsetsOfImage},
	{"aten.max_pool2d_with_indices_backward.default aten.max_pool3d_with_indices_backward.default",
		"grad_output self kernel_size stride padding dilation ceil_mode indices", maxPoolBackward},
	{"aten.avg_pool1d.default aten.avg_pool2d.default aten.avg_pool3d.default", "self kernel_size stride padding ceil_mode count_include_pad divisor_override", avgPool},
	{"aten.adaptive_avg_pool1d.default aten._adaptive_avg_pool2d.default aten._adaptive_avg_pool3d.default", "self output_size", adaptivePool},
	{"aten._adaptive_avg_pool2d_backward.default aten._adaptive_avg_pool3d_backward.default", "grad_output self", adaptivePoolBackward},
	{"aten.adaptive_max_pool2d.default aten.adaptive_max_pool3d.default", "self output_size", adaptiveMaxPool},
	{"aten.adaptive_max_pool2d_backward.default aten.adaptive_max_pool3d_backward.default", "grad_output self indices", placedBackward},
	{"aten.fractional_max_pool2d.default aten.fractional_max_pool3d.default", "self kernel_size output_size random_samples", fractionalPool},
	{"aten.fractional_max_pool2d_backward.default aten.fractional_max_pool3d_backward.default", "grad_output self kernel_size output_size indices", placedBackward},
	{"aten.avg_pool2d_backward.default aten.avg_pool3d_backward.default", "grad_output self kernel_size stride padding ceil_mode count_include_pad divisor_override", avgPoolBackward},
}

// pooling is how windows slide over the last dimensions, whose sizes are in before and out
// behind.
type pooling struct {
	kernel, stride, padding, dilation []int64
	in, out                           ir.Shape
	front                             int  // dimensions before
	ceil                              bool // windows may reach beyond the padding
}

// pooling reads how the windows of a tensor of shape in slide that give one of shape out.
func (c *call) pooling(in, out ir.Shape) (p pooling) {
	read := func(param string, low int64, def []int64) []int64 {
		l := slices.Clone(c.Ints(param))
		if len(l) == 0 {
			l = slices.Clone(def)
		}
		if len(l) == 1 {
			l = slices.Repeat(l, max(len(def), 1))
		}
		if c.Err == nil && (len(def) > 0 && len(l) != len(def) || len(l) == 0 || slices.ContainsFunc(l, func(n int64) bool { return n < low || n > maxWindow })) {
			c.Reject(param, c.Arg(param), "want a number from %d to %d for each dimension of the window", low, maxWindow)
		}
		return l
	}
	if c.Err != nil {
		return p
	}
	rank := 2
	switch {
	case len(c.Ints("kernel_size")) > 1:
		rank = len(c.Ints("kernel_size"))
	case slices.Contains([]string{"aten.avg_pool1d.default", "aten.max_pool1d.default"}, c.Target):
		rank = 1
	case slices.Contains([]string{"aten.avg_pool3d.default", "aten.max_pool3d.default"}, c.Target):
		rank = 3
	}
	p.kernel = read("kernel_size", 1, slices.Repeat([]int64{1}, rank))
	p.stride = read("stride", 1, p.kernel)
	p.padding, p.dilation = slices.Repeat([]int64{0}, rank), slices.Repeat([]int64{1}, rank)
	if slices.Contains(c.Params, "padding") {
		p.padding = read("padding", 0, p.padding)
	}
	if slices.Contains(c.Params, "dilation") {
		p.dilation = read("dilation", 1, p.dilation)
	}
	p.ceil = slices.Contains(c.Params, "ceil_mode") && c.Bool("ceil_mode", false)
	if p.front = len(in) - rank; c.Err == nil && (p.front < 0 || len(out) != len(in) || none(in) || none(out)) {
		c.Err = traced.ErrForm
	}
	if c.Err == nil {
		p.in, p.out = in[p.front:], out[p.front:]
	}
	if rank < 2 && slices.ContainsFunc(c.Params, func(s string) bool { return s == "indices" || s == "offsets" }) {
		c.Err = traced.ErrForm
	}
	return p
}

// none reports whether a size is zero.
func none(s ir.Shape) bool { return slices.ContainsFunc(s, ir.D(0).Equal) }

// windowsOf makes the attributes of a fold of windows of the last dimensions.
func (p pooling) windowsOf(how string, pads, stride, base []int64) attr.List {
	full := func(l []int64, each int, of int64) []int64 {
		return append(slices.Repeat([]int64{of}, each*p.front), l...)
	}
	l := windowed(full(stride, 1, 1), full(pads, 2, 0), full(base, 1, 1), full(p.dilation, 1, 1), false, 1, 1)
	return l.With("reduce", attr.String(how)).With("window", attr.Ints(full(p.kernel, 1, 1)...))
}

// forward folds the windows: as many as there are, whatever lies after the last.
func (p pooling) forward(how string) attr.List {
	var pads []int64
	for d, low := range p.padding {
		high, ok := p.out[d].Sub(ir.D(1)).Mul(ir.D(p.stride[d])).Add(ir.D((p.kernel[d]-1)*p.dilation[d] + 1 - low)).Sub(p.in[d]).Const()
		if !ok { // that rounds down to as many windows
			if high = low; p.ceil {
				high += p.stride[d] - 1
			}
		}
		pads = append(pads, low, high)
	}
	return p.windowsOf(how, pads, p.stride, nil)
}

// backward emits sums, for each element, of what the windows have that it lies in: those of args, a gradient and perhaps
// places.
func (p pooling) backward(c *call, args ...*ir.Value) error {
	var pads []int64
	more, base := false, slices.Clone(p.stride)
	for d := range p.kernel {
		reach := (p.kernel[d] - 1) * p.dilation[d]
		low := reach - p.padding[d]
		rest := p.in[d].Add(ir.D(reach - low)).Sub(p.out[d].Mul(ir.D(p.stride[d])))
		if _, ok := p.out[d].Const(); !ok { // of no elements there are no places apart
			for i := range args {
				args[i] = c.apart(args[i], int64(p.front+d), p.stride[d])
			}
			base[d] = 1
		} else {
			rest = rest.Add(ir.D(p.stride[d] - 1))
		}
		high, open := c.high(rest)
		pads, more = append(pads, low, high), more || open
	}
	l := p.windowsOf("sum", pads, slices.Repeat([]int64{1}, len(p.kernel)), base)
	if !more || c.Err != nil {
		return c.EmitErr(ir.OpReduceWindow, l, args...)
	}
	y := c.Make(ir.OpReduceWindow, l, args...)
	for d, n := range p.in {
		y = c.First(y, int64(p.front+d), n)
	}
	return c.Settle(y)
}

func maxPool(c *call) error {
	x, _, p, err := c.pool()
	if err != nil {
		return err
	}
	return c.EmitErr(ir.OpReduceWindow, p.forward("max"), x)
}

// pool is the operand, the result and the windows of a pool.
func (c *call) pool() (x *ir.Value, t ir.Type, p pooling, err error) {
	x = c.Tensor("self")
	if t, err = c.Trace.TypeOf(0); c.Err == nil && err == nil {
		p = c.pooling(x.Type().Shape(), t.Shape())
	}
	if err = cmp.Or(c.Err, err); err == nil && p.ceil {
		got, infer := ir.Infer(ir.OpReduceWindow, nil, p.forward("max"), []ir.Type{x.Type()})
		if infer != nil || !got[0].Shape().Equal(t.Shape()) {
			err = traced.ErrForm // the last window is dropped for some sizes
		}
	}
	return x, t, p, err
}

// maxPoolPlaces emits the largest elements and what others gives of their places.
func (c *call) maxPoolPlaces(dt ir.DType, others func(p pooling, places *ir.Value) *ir.Value) error {
	x, _, p, err := c.pool()
	if err != nil {
		return err
	}
	return c.largest(x, p, dt, others)
}

// largest is maxPoolPlaces of given windows.
func (c *call) largest(x *ir.Value, p pooling, dt ir.DType, others func(p pooling, places *ir.Value) *ir.Value) error {
	if n := c.NumResults; n != 2 {
		return c.Fail("out", "results", "%s gives 2 results, out lists %d", c.Target, n)
	}
	t, err := c.Trace.TypeOf(1)
	if err != nil {
		return err
	}
	if len(p.kernel) < 2 {
		return traced.ErrForm
	}
	places := others(p, c.Fitted(ir.OpReduceWindow, p.forward("argmax"), retyped(t, dt), x))
	if c.Err != nil {
		return c.Err
	}
	if t, err = c.Trace.TypeOf(0); err != nil {
		return err
	}
	if y := c.Longer(ir.OpReduceWindow, p.forward("max"), t, []*ir.Value{x}); y != nil {
		return c.Settle(y, places)
	}
	return c.Finish(ir.OpReduceWindow, p.forward("max"), []*ir.Value{x}, places)
}

// retyped is t in another element type.
func retyped(t ir.Type, dt ir.DType) ir.Type {
	return ir.TensorOf(dt, t.Shape()).WithStrides(t.Strides())
}

func maxPoolOffsets(c *call) error {
	return c.maxPoolPlaces(ir.I8, func(_ pooling, places *ir.Value) *ir.Value { return places })
}

func maxPoolIndices(c *call) error { return c.maxPoolPlaces(ir.I64, c.flatIndices) }

// flatIndices is the places in windows as indices into the last dimensions, flat.
func (c *call) flatIndices(p pooling, places *ir.Value) *ir.Value {
	v, last := c.indicesOf(p, places)
	return c.Helper(ir.OpAdd, nil, v.Type(), v, last)
}

// eachWith is an elementwise operation with a number.
func (c *call) eachWith(op ir.Op, x *ir.Value, n int64) *ir.Value {
	return c.Helper(op, traced.Scalar(attr.Int(n)), x.Type(), x)
}

// each is eachWith of a size.
func (c *call) each(op ir.Op, x *ir.Value, n ir.Dim) *ir.Value {
	if n, ok := n.Const(); ok {
		return c.eachWith(op, x, n)
	}
	return c.Helper(op, nil, x.Type(), x, c.Counted(n))
}

// origin is where windows begin along dimension d, as a tensor that broadcasts.
func (c *call) origin(p pooling, d int) *ir.Value {
	shape := slices.Repeat(ir.Dims(1), len(p.out)-d)
	shape[0] = p.out[d]
	start := attr.Make(attr.Attr{Key: "start", Val: attr.Int(-p.padding[d])}, attr.Attr{Key: "step", Val: attr.Int(p.stride[d])})
	return c.Reshaped(c.Helper(ir.OpIota, start, ir.TensorOf(ir.I64, ir.Shape{p.out[d]})), shape)
}

// indicesOf is the places in windows as indices into the last dimensions, flat: two terms
// to be added. There are two dimensions at least.
func (c *call) indicesOf(p pooling, places *ir.Value) (v, last *ir.Value) {
	t := places.Type()
	rest := places
	stride := ir.D(1)
	for d := len(p.kernel) - 1; d >= 0; d-- {
		tap := rest
		if d > 0 {
			tap = c.eachWith(ir.OpFmod, rest, p.kernel[d])
			rest = c.eachWith(ir.OpTruncDivide, rest, p.kernel[d])
		}
		at := c.Helper(ir.OpAdd, nil, t, c.eachWith(ir.OpMul, tap, p.dilation[d]), c.origin(p, d))
		at = c.each(ir.OpMul, at, stride)
		stride = stride.Mul(p.in[d])
		switch {
		case d == 0:
			v = at
		case last == nil:
			last = at
		default:
			last = c.Helper(ir.OpAdd, nil, t, last, at)
		}
	}
	return v, last
}

func offsetsToIndices(c *call) error {
	x := c.Tensor("offsets")
	size := c.Sizes("input_size")
	if c.Err != nil {
		return c.Err
	}
	out := x.Type().Shape()
	if len(size) > len(out) {
		return traced.ErrForm
	}
	in := append(slices.Clone(out[:len(out)-len(size)]), size...)
	p := c.pooling(in, out)
	if c.Err != nil {
		return c.Err
	}
	if len(size) != len(p.kernel) {
		return traced.ErrForm
	}
	v, last := c.indicesOf(p, c.In(ir.I64, x))
	return c.EmitErr(ir.OpAdd, nil, v, last)
}

// offsetsOfImage is offsetsToIndices of two dimensions, of which the first ones' sizes say
// nothing about indices.
func offsetsOfImage(c *call) error {
	x, width, wide := c.Tensor("offsets"), c.Need("kernel_width"), c.Sizes("input_width")
	p := pooling{kernel: []int64{1, width}, in: append(ir.Dims(1), wide...), stride: c.Ints("stride"), padding: c.Ints("padding"), dilation: []int64{1, 1}}
	if c.Err != nil {
		return c.Err
	}
	s := x.Type().Shape()
	if len(s) < 2 || len(p.stride) != 2 || len(p.padding) != 2 || width < 1 || len(wide) != 1 || c.Never(wide[0]) {
		return traced.ErrForm
	}
	p.out = s[len(s)-2:]
	v, last := c.indicesOf(p, c.In(ir.I64, x))
	return c.EmitErr(ir.OpAdd, nil, v, last)
}

func maxPoolBackward(c *call) error {
	dy, x, at := c.Tensor("grad_output"), c.Tensor("self"), c.Tensor("indices")
	if c.Err != nil {
		return c.Err
	}
	p := c.pooling(x.Type().Shape(), dy.Type().Shape())
	if c.Err != nil {
		return c.Err
	}
	at = c.In(ir.I64, at)
	t := at.Type()
	// The place counted from the window's end, as it lies under the windows of the sum.
	var place *ir.Value
	total := int64(1)
	for d, k := range p.kernel {
		i := c.each(ir.OpTruncDivide, at, p.in[d+1:].NumElems())
		if d > 0 {
			i = c.each(ir.OpFmod, i, p.in[d])
		}
		tap := c.eachWith(ir.OpTruncDivide, c.Helper(ir.OpSub, nil, t, i, c.origin(p, d)), p.dilation[d])
		if place != nil {
			tap = c.Helper(ir.OpAdd, nil, t, c.eachWith(ir.OpMul, place, k), tap)
		}
		place = tap
		total *= k
	}
	if c.Err != nil {
		return c.Err
	}
	place = c.Helper(ir.OpSub, traced.Scalar(attr.Int(total-1)).With("reverse", attr.Bool(true)), t, place)
	return p.backward(c, dy, place)
}

// divisors are what sums of windows are divided by: a number, or a tensor of them where
// windows differ.
func (c *call) divisors(p pooling) (n attr.List, v *ir.Value) {
	if c.Arg("divisor_override") != nil {
		return traced.Scalar(attr.Int(c.Int("divisor_override", 1))), nil
	}
	padded := c.Bool("count_include_pad", true)
	same, count := true, int64(1)
	q := p
	q.front, q.in = 0, nil
	for d, k := range p.kernel {
		// Padding that counts are elements; windows may reach beyond it.
		in := p.in[d]
		if padded {
			in = in.Add(ir.D(2 * p.padding[d]))
		}
		q.in = append(q.in, in)
		beyond := p.out[d].Sub(ir.D(1)).Mul(ir.D(p.stride[d])).Add(ir.D(k - p.padding[d]*2)).Sub(p.in[d])
		n, ok := beyond.Const()
		same = same && (ok && n <= 0 || !ok && !p.ceil) && (padded || p.padding[d] == 0)
		count *= k
	}
	if same {
		return traced.Scalar(attr.Int(count)), nil
	}
	if padded {
		q.padding = slices.Repeat([]int64{0}, len(q.kernel))
	}
	ones := c.Helper(ir.OpFull, attr.Make(attr.Attr{Key: "value", Val: attr.Float(1)}), ir.TensorOf(ir.F32, q.in))
	return nil, c.Helper(ir.OpReduceWindow, q.forward("sum"), ir.TensorOf(ir.F32, p.out), ones)
}

// divided is x over the divisors of its windows.
func (c *call) divided(p pooling, t ir.Type, x *ir.Value) *ir.Value {
	n, v := c.divisors(p)
	if c.Err != nil {
		return nil
	}
	if v == nil {
		return c.Helper(ir.OpDiv, n, t, x)
	}
	return c.Helper(ir.OpDiv, nil, t, x, v)
}

func avgPool(c *call) error {
	x, t, p, err := c.pool()
	if err != nil {
		return err
	}
	if !t.DType().IsFloat() {
		return traced.ErrForm
	}
	sum := c.Fitted(ir.OpReduceWindow, p.forward("sum"), retyped(t, traced.AccType(t.DType())), x)
	n, v := c.divisors(p)
	if v == nil {
		return c.EmitErr(ir.OpDiv, n, sum)
	}
	return c.EmitErr(ir.OpDiv, nil, sum, v)
}

func avgPoolBackward(c *call) error {
	dy, x := c.Tensor("grad_output"), c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	p := c.pooling(x.Type().Shape(), dy.Type().Shape())
	if c.Err != nil {
		return c.Err
	}
	y := c.divided(p, retyped(dy.Type(), traced.AccType(dy.Type().DType())), dy)
	if c.Err != nil {
		return c.Err
	}
	return p.backward(c, y)
}
