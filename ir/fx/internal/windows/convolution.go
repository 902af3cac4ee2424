package windows

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// convolutionOps are PyTorch's convolution, plain or transposed, and its gradients. All are
// the one operation of the IR: the gradient of the input, which is what a transposed
// convolution computes, walks the gradient of the result with its elements as far apart as
// the windows were, and the gradient of the weights walks the input with the gradient of the
// result as the window, batch and channels exchanged.
var convolutionOps = []row{
	{"aten.convolution.default", "input weight bias stride padding dilation transposed output_padding groups", convolution},
	{"aten._convolution.default", "input weight bias stride padding dilation transposed output_padding groups benchmark deterministic cudnn_enabled allow_tf32", convolution},
	{"aten.convolution_backward.default", "grad_output input weight bias_sizes stride padding dilation transposed output_padding groups output_mask", convolutionBackward},
}

// sliding is how the window of a convolution moves, a number for each dimension.
type sliding struct {
	stride, padding, dilation []int64
	transposed                bool
	groups                    int64
}

// sliding reads the numbers for windows of so many dimensions.
func (c *call) sliding(rank int) sliding {
	read := func(param string, low int64) []int64 {
		l := slices.Clone(c.Ints(param))
		if len(l) == 1 {
			l = slices.Repeat(l, max(rank, 1))
		}
		if c.Err == nil && (len(l) != rank || slices.ContainsFunc(l, func(n int64) bool { return n < low || n > maxWindow })) {
			c.Reject(param, c.Arg(param), "want %d numbers from %d to %d", rank, low, maxWindow)
		}
		return l
	}
	s := sliding{read("stride", 1), read("padding", 0), read("dilation", 1), c.Bool("transposed", false), c.Int("groups", 1)}
	if c.Err == nil && s.groups < 1 {
		c.Reject("groups", c.Arg("groups"), "%d groups", s.groups)
	}
	return s
}

// maxWindow bounds what windows are made of, so that sums of products stay integers.
const maxWindow = 1 << 28

// sizes are those that are known.
func sizes(s ir.Shape) (out []int64) {
	for _, d := range s {
		out = append(out, traced.Constant(d))
	}
	return out
}

// exchanged lists dimensions with the first two exchanged.
func exchanged(rank int) []int64 {
	out := []int64{1, 0}
	for d := 2; d < rank; d++ {
		out = append(out, int64(d))
	}
	return out
}

// product is a convolution of the IR: its attributes and operands. Where sizes are open it may give more elements than
// are asked for.
type product struct {
	attrs attr.List
	args  []*ir.Value
	more  bool
}

func (c *call) convolutionOf(t ir.Type, p product) *ir.Value {
	if c.Err != nil {
		return c.None()
	}
	return c.Fitted(ir.OpConvolution, p.attrs, t, p.args...)
}

// windowed makes the attributes of a convolution; those of no effect are left out.
func windowed(stride, padding, base, dilation []int64, reverse bool, groups, batches int64) attr.List {
	var l attr.List
	put := func(key string, v []int64, def int64) {
		if slices.ContainsFunc(v, func(n int64) bool { return n != def }) {
			l = l.With(key, attr.Ints(v...))
		}
	}
	put(window.StridesKey, stride, 1)
	put(window.PaddingKey, padding, 0)
	put(window.BaseKey, base, 1)
	put(window.DilationKey, dilation, 1)
	if reverse {
		put(window.ReverseKey, slices.Repeat([]int64{1}, len(padding)/2), 0)
	}
	if groups > 1 {
		l = l.With("groups", attr.Int(groups))
	}
	if batches > 1 {
		l = l.With("batch_groups", attr.Int(batches))
	}
	return l
}

// plain is the convolution of x with w.
func (s sliding) plain(x, w *ir.Value) product {
	var pads []int64
	for _, p := range s.padding {
		pads = append(pads, p, p)
	}
	return product{attrs: windowed(s.stride, pads, nil, s.dilation, false, s.groups, 1), args: []*ir.Value{x, w}}
}

// back is the gradient of a transposed convolution's input, which has the given sizes: plain, without windows that begin where
// the result is padded.
func (s sliding) back(dy, w *ir.Value, in ir.Shape) product {
	var pads []int64
	kernel := traced.Static(w)[2:]
	for d, n := range dy.Type().Shape()[2:] {
		more := traced.Constant(n.Sub(in[d].Mul(ir.D(s.stride[d])))) + 2*s.padding[d] - s.dilation[d]*(kernel[d]-1) - 1 + s.stride[d]
		pads = append(pads, s.padding[d], s.padding[d]-more/s.stride[d]*s.stride[d])
	}
	return product{attrs: windowed(s.stride, pads, nil, s.dilation, false, s.groups, 1), args: []*ir.Value{dy, w}}
}

// apart is x with its elements along d so far apart, and zeros between and behind them.
func (c *call) apart(x *ir.Value, d int64, step int64) *ir.Value {
	if step == 1 {
		return x
	}
	shape := x.Type().Shape()
	zeros := slices.Insert(slices.Clone(shape), int(d)+1, ir.D(step-1))
	x = c.Make(ir.OpCat, traced.DimAttr(d+1), c.Unsqueezed(x, d+1), c.Full(attr.Int(0), x.Type().DType(), zeros))
	shape = slices.Clone(shape)
	shape[d] = shape[d].Mul(ir.D(step))
	return c.Reshaped(x, shape)
}

// high is the padding behind that a size says. Of an open one that differs by its remainder it is the greatest, which
// gives more elements.
func (c *call) high(n ir.Dim) (most int64, more bool) {
	if n, ok := n.Const(); ok {
		return n, false
	}
	return c.Most(n), true
}

// ofInput is the gradient of the input, which has the given sizes, from that of the result.
func (s sliding) ofInput(c *call, dy, w *ir.Value, in ir.Shape) product {
	if c.Err != nil {
		return product{}
	}
	ws, q := traced.Static(w), dy.Type().Shape()[2:]
	var pads []int64
	more, base := false, slices.Clone(s.stride)
	for d, p := range s.padding {
		reach := (ws[2+d] - 1) * s.dilation[d]
		low := reach - p
		rest := in[d].Add(ir.D(reach - low)).Sub(q[d].Mul(ir.D(s.stride[d])))
		if _, ok := q[d].Const(); !ok { // of no elements there are no places apart
			dy, base[d] = c.apart(dy, int64(2+d), s.stride[d]), 1
		} else {
			rest = rest.Add(ir.D(s.stride[d] - 1))
		}
		high, open := c.high(rest)
		pads, more = append(pads, low, high), more || open
	}
	if g := s.groups; g == 1 {
		w = c.Permuted(w, exchanged(len(ws))...)
	} else {
		parts := append([]int64{g, ws[0] / g, ws[1]}, ws[2:]...)
		order := []int64{0, 2, 1}
		for d := 3; d < len(parts); d++ {
			order = append(order, int64(d))
		}
		w = c.Shaped(c.Permuted(c.Shaped(w, parts...), order...), append([]int64{g * ws[1], ws[0] / g}, ws[2:]...)...)
	}
	return product{windowed(nil, pads, base, s.dilation, true, s.groups, 1), []*ir.Value{dy, w}, more}
}

// ofWeight is the gradient of the weights, which have the given sizes, with their first two
// dimensions exchanged. Batches and images of open sizes are as large as they may ever be, with zeros.
func (s sliding) ofWeight(c *call, dy, x *ir.Value, w []int64) product {
	if c.Err != nil {
		return product{}
	}
	for d := range x.Type().Rank() {
		x, dy = c.Padded(x, int64(d), attr.Int(0)), c.Padded(dy, int64(d), attr.Int(0))
	}
	in, q := sizes(x.Type().Shape()[2:]), sizes(dy.Type().Shape()[2:])
	var pads []int64
	for d, p := range s.padding {
		pads = append(pads, p, (w[2+d]-1)*s.dilation[d]+(q[d]-1)*s.stride[d]+1-in[d]-p)
	}
	order := exchanged(len(w))
	return product{attrs: windowed(s.dilation, pads, nil, s.stride, false, 1, s.groups), args: []*ir.Value{c.Permuted(x, order...), c.Permuted(dy, order...)}}
}

func convolution(c *call) error {
	x, w := c.Tensor("input"), c.Tensor("weight")
	if c.Err != nil {
		return c.Err
	}
	s := c.sliding(x.Type().Rank() - 2)
	t, err := c.Trace.TypeOf(0)
	if err != nil {
		return err
	}
	if c.Err != nil || t.Rank() != x.Type().Rank() || w.Type().Rank() != x.Type().Rank() {
		return c.misfit()
	}
	p := s.plain(x, w)
	if s.transposed {
		if traced.Static(w)[0]%s.groups != 0 {
			return c.misfit()
		}
		if p = s.ofInput(c, x, w, t.Shape()[2:]); p.more {
			return traced.ErrForm
		}
	}
	patches := c.Err == nil && s.patches(x, w, t)
	if !c.IsTensor("bias") {
		if c.Err != nil {
			return c.Err
		}
		if patches {
			c.Shares, c.Charged = 1, true
			err := c.EmitErr(ir.OpView, nil, s.ofPatches(c, x, w))
			c.View = false
			return err
		}
		return c.EmitErr(ir.OpConvolution, p.attrs, p.args...)
	}
	// PyTorch adds the bias to what is rounded already.
	c.Shares = 1
	var y *ir.Value
	if patches {
		y = c.Helper(ir.OpView, nil, t, s.ofPatches(c, x, w))
	} else {
		y = c.convolutionOf(t, p)
	}
	ones := slices.Repeat([]int64{1}, t.Rank()-1)
	ones[0] = traced.Static(w)[0]
	if s.transposed {
		ones[0] = traced.Static(w)[1] * s.groups
	}
	b := c.Tensor("bias")
	if c.Err != nil {
		return c.Err
	}
	return c.EmitErr(ir.OpAdd, nil, y, c.Shaped(b, ones...))
}

// misfit says that operands do not fit each other, unless something else is wrong.
func (c *call) misfit() error {
	if c.Err == nil {
		c.Reject("", nil, "the operands of %s do not fit each other", c.Target)
	}
	return c.Err
}

func convolutionBackward(c *call) error {
	dy, x, w := c.Tensor("grad_output"), c.Tensor("input"), c.Tensor("weight")
	if c.Err != nil {
		return c.Err
	}
	rank := x.Type().Rank()
	s := c.sliding(rank - 2)
	var items []int
	mask := c.ListOf("output_mask")
	for i := range mask {
		if mask[i].Kind == pytext.Bool && mask[i].Int != 0 {
			items = append(items, i)
		}
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if c.Err != nil || len(mask) != 3 || w.Type().Rank() != rank || dy.Type().Rank() != rank || traced.Static(w)[0]%s.groups != 0 {
		return c.misfit()
	}
	if len(ts) != len(items) || len(items) == 0 {
		return c.Fail("out", "results", "%s gives %d results, out lists %d", c.Target, len(items), len(ts))
	}
	c.Items = items
	for _, i := range items {
		if i < 2 {
			c.Shares++
		}
	}
	return c.gradients(s, items, ts, dy, x, w)
}

// gradients emits those of convolution_backward that are asked for.
func (c *call) gradients(s sliding, items []int, ts []ir.Type, dy, x, w *ir.Value) error {
	order := exchanged(x.Type().Rank())
	swap := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(order...)})
	over := []int64{0}
	for d := 2; d < x.Type().Rank(); d++ {
		over = append(over, int64(d))
	}
	sums := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(over...)})
	exchange := func(t ir.Type) ir.Type { // of weights
		st, shape := slices.Clone(t.Strides()), slices.Clone(t.Shape())
		st[0], st[1], shape[0], shape[1] = st[1], st[0], shape[1], shape[0]
		return ir.TensorOf(t.DType(), shape).WithStrides(st)
	}
	ofInput := func() product {
		if s.transposed {
			return s.back(dy, w, x.Type().Shape()[2:])
		}
		return s.ofInput(c, dy, w, x.Type().Shape()[2:])
	}
	// The gradient of the weights, but for its last operation.
	ofWeight := func(t ir.Type) (ir.Op, attr.List, *ir.Value) {
		if s.patches(x, w, t) {
			return ir.OpView, nil, s.weightOfPatches(c, dy, x)
		}
		p := s.ofWeight
		if s.transposed {
			return ir.OpPermute, swap, c.convolutionOf(exchange(t), p(c, x, dy, traced.Static(w)))
		}
		return ir.OpPermute, swap, c.convolutionOf(exchange(t), p(c, dy, x, traced.Static(w)))
	}
	var others []*ir.Value
	for k := 1; k < len(items); k++ {
		switch items[k] {
		case 1:
			op, attrs, v := ofWeight(ts[k])
			others = append(others, c.MakeAs(op, nil, attrs, []*ir.Value{v}, ts[k])[0])
		case 2:
			if c.Err == nil {
				others = append(others, c.Helper(ir.OpSum, sums, ts[k], dy))
			}
		}
	}
	var err error
	switch items[0] {
	case 0:
		p := ofInput()
		if c.Err == nil && p.more {
			y := c.MakeAs(ir.OpConvolution, nil, p.attrs, p.args, ts[0])[0]
			for d, n := range x.Type().Shape()[2:] {
				y = c.First(y, int64(2+d), n)
			}
			return c.Settle(append([]*ir.Value{y}, others...)...)
		}
		if c.Err == nil {
			err = c.Finish(ir.OpConvolution, p.attrs, p.args, others...)
		}
	case 1:
		if op, attrs, v := ofWeight(ts[0]); c.Err == nil {
			c.Charged = true
			err = c.Finish(op, attrs, []*ir.Value{v}, others...)
		}
	case 2:
		err = c.Finish(ir.OpSum, sums, []*ir.Value{dy})
	}
	if c.Err != nil {
		return c.Err
	}
	c.View = false
	return err
}

// ConvolutionText writes a convolution that PyTorch has: of windows from their front over an
// operand as it is, with as much padding behind as in front.
func ConvolutionText(n *ir.Node, x []string, put func(string, ...string) bool) bool {
	a, rank := n.Attrs(), n.Arg(0).Type().Rank()-2
	if a.Has(window.BaseKey) || a.Has(window.ReverseKey) || a.Int("batch_groups", 1) != 1 || rank < 1 {
		return false
	}
	list := func(key string, def int64) string {
		l := a.Ints(key)
		if l == nil {
			l = slices.Repeat([]int64{def}, rank)
		}
		return "[" + pytext.FormatInts(l...) + "]"
	}
	pads := make([]int64, rank)
	for i, p := range a.Ints(window.PaddingKey) {
		if i%2 == 0 {
			pads[i/2] = p
		} else if p != pads[i/2] || p < 0 {
			return false
		}
	}
	return put("aten.convolution.default", x[0], x[1], "None", list(window.StridesKey, 1), "["+pytext.FormatInts(pads...)+"]",
		list(window.DilationKey, 1), "False", "["+pytext.FormatInts(make([]int64, rank)...)+"]", pytext.FormatInts(a.Int("groups", 1)))
}
