package fx

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
)

// convolutionOps are PyTorch's convolution, plain or transposed, and its gradients. All are
// the one operation of the IR: the gradient of the input, which is what a transposed
// convolution computes, walks the gradient of the result with its elements as far apart as
// the windows were, and the gradient of the weights walks the input with the gradient of the
// result as the window, batch and channels exchanged.
var convolutionOps = []row{
	{"aten.convolution.default", "input weight bias stride padding dilation transposed output_padding groups", convolution},
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
		l := slices.Clone(c.ints(param))
		if len(l) == 1 {
			l = slices.Repeat(l, max(rank, 1))
		}
		if c.err == nil && (len(l) != rank || slices.ContainsFunc(l, func(n int64) bool { return n < low || n > maxWindow })) {
			c.stick(param, c.arg(param), "want %d numbers from %d to %d", rank, low, maxWindow)
		}
		return l
	}
	s := sliding{read("stride", 1), read("padding", 0), read("dilation", 1), c.bool("transposed", false), c.int("groups", 1)}
	if c.err == nil && s.groups < 1 {
		c.stick("groups", c.arg("groups"), "%d groups", s.groups)
	}
	return s
}

// maxWindow bounds what windows are made of, so that sums of products stay integers.
const maxWindow = 1 << 28

// exchanged lists dimensions with the first two exchanged.
func exchanged(rank int) []int64 {
	out := []int64{1, 0}
	for d := 2; d < rank; d++ {
		out = append(out, int64(d))
	}
	return out
}

// product is a convolution of the IR: its attributes and operands.
type product struct {
	attrs attr.List
	args  []*ir.Value
}

func (c *call) convolutionOf(t ir.Type, p product) *ir.Value {
	if c.err != nil {
		return c.none()
	}
	return c.helper(ir.OpConvolution, p.attrs, t, p.args...)
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
	return product{windowed(s.stride, pads, nil, s.dilation, false, s.groups, 1), []*ir.Value{x, w}}
}

// ofInput is the gradient of the input, which has the given sizes, from that of the result.
func (s sliding) ofInput(c *call, dy, w *ir.Value, in []int64) product {
	if c.err != nil {
		return product{}
	}
	ws, q := static(w), static(dy)[2:]
	var pads []int64
	for d, p := range s.padding {
		reach := (ws[2+d] - 1) * s.dilation[d]
		low := reach - p
		pads = append(pads, low, in[d]+reach-(q[d]-1)*s.stride[d]-1-low)
	}
	if g := s.groups; g == 1 {
		w = c.permuted(w, exchanged(len(ws))...)
	} else {
		parts := append([]int64{g, ws[0] / g, ws[1]}, ws[2:]...)
		order := []int64{0, 2, 1}
		for d := 3; d < len(parts); d++ {
			order = append(order, int64(d))
		}
		w = c.shaped(c.permuted(c.shaped(w, parts...), order...), append([]int64{g * ws[1], ws[0] / g}, ws[2:]...)...)
	}
	return product{windowed(nil, pads, s.stride, s.dilation, true, s.groups, 1), []*ir.Value{dy, w}}
}

// ofWeight is the gradient of the weights, which have the given sizes, with their first two
// dimensions exchanged.
func (s sliding) ofWeight(c *call, dy, x *ir.Value, w []int64) product {
	if c.err != nil {
		return product{}
	}
	in, q := static(x)[2:], static(dy)[2:]
	var pads []int64
	for d, p := range s.padding {
		pads = append(pads, p, (w[2+d]-1)*s.dilation[d]+(q[d]-1)*s.stride[d]+1-in[d]-p)
	}
	order := exchanged(len(w))
	return product{windowed(s.dilation, pads, nil, s.stride, false, 1, s.groups), []*ir.Value{c.permuted(x, order...), c.permuted(dy, order...)}}
}

func convolution(c *call) error {
	x, w := c.tensor("input"), c.tensor("weight")
	if c.err != nil {
		return c.err
	}
	s := c.sliding(x.Type().Rank() - 2)
	t, err := c.tensorType(0)
	if err != nil {
		return err
	}
	if c.err != nil || t.Rank() != x.Type().Rank() || w.Type().Rank() != x.Type().Rank() {
		return c.misfit()
	}
	p := s.plain(x, w)
	if s.transposed {
		if static(w)[0]%s.groups != 0 {
			return c.misfit()
		}
		out := sizesOf(t)
		p = s.ofInput(c, x, w, out[2:])
	}
	if !c.isTensor("bias") {
		if c.err != nil {
			return c.err
		}
		return c.emitErr(ir.OpConvolution, p.attrs, p.args...)
	}
	// PyTorch adds the bias to what is rounded already.
	c.shares = 1
	y := c.convolutionOf(t, p)
	ones := slices.Repeat([]int64{1}, t.Rank()-1)
	ones[0] = static(w)[0]
	if s.transposed {
		ones[0] = static(w)[1] * s.groups
	}
	b := c.tensor("bias")
	if c.err != nil {
		return c.err
	}
	return c.emitErr(ir.OpAdd, nil, y, c.shaped(b, ones...))
}

// misfit says that operands do not fit each other, unless something else is wrong.
func (c *call) misfit() error {
	if c.err == nil {
		c.stick("", nil, "the operands of %s do not fit each other", c.target)
	}
	return c.err
}

func convolutionBackward(c *call) error {
	dy, x, w := c.tensor("grad_output"), c.tensor("input"), c.tensor("weight")
	if c.err != nil {
		return c.err
	}
	rank := x.Type().Rank()
	s := c.sliding(rank - 2)
	var items []int
	mask := c.listOf("output_mask")
	for i := range mask {
		if mask[i].kind == pyBool && mask[i].i != 0 {
			items = append(items, i)
		}
	}
	ts, err := c.types()
	if err != nil {
		return err
	}
	if c.err != nil || len(mask) != 3 || w.Type().Rank() != rank || dy.Type().Rank() != rank || static(w)[0]%s.groups != 0 {
		return c.misfit()
	}
	if len(ts) != len(items) || len(items) == 0 {
		return c.fail("out", "results", "%s gives %d results, out lists %d", c.n.Target, len(items), len(ts))
	}
	c.im.nodes[c.i].items = items
	for _, i := range items {
		if i < 2 {
			c.shares++
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
	exchange := func(t ir.Type) ir.Type {
		st, shape := slices.Clone(t.Strides()), slices.Clone(t.Shape())
		st[0], st[1], shape[0], shape[1] = st[1], st[0], shape[1], shape[0]
		return ir.TensorOf(t.DType(), shape).WithStrides(st)
	}
	ofInput := func() product {
		if s.transposed {
			return s.plain(dy, w)
		}
		return s.ofInput(c, dy, w, static(x)[2:])
	}
	ofWeight := func() product {
		if s.transposed {
			return s.ofWeight(c, x, dy, static(w))
		}
		return s.ofWeight(c, dy, x, static(w))
	}
	var others []*ir.Value
	for k := 1; k < len(items); k++ {
		switch items[k] {
		case 1:
			others = append(others, c.make(ir.OpPermute, swap, c.convolutionOf(exchange(ts[k]), ofWeight())))
		case 2:
			if c.err == nil {
				others = append(others, c.helper(ir.OpSum, sums, ts[k], dy))
			}
		}
	}
	var err error
	switch items[0] {
	case 0:
		if p := ofInput(); c.err == nil {
			err = c.finish(ir.OpConvolution, p.attrs, p.args, others...)
		}
	case 1:
		if y := c.convolutionOf(exchange(ts[0]), ofWeight()); c.err == nil {
			c.free = true
			err = c.finish(ir.OpPermute, swap, []*ir.Value{y}, others...)
		}
	case 2:
		err = c.finish(ir.OpSum, sums, []*ir.Value{dy})
	}
	if c.err != nil {
		return c.err
	}
	c.im.nodes[c.i].root = storage{node: c.i}
	return err
}

// convolutionText writes a convolution that PyTorch has: of windows from their front over an
// operand as it is, with as much padding behind as in front.
func convolutionText(n *ir.Node, x []string, put func(string, ...string) bool) bool {
	a, rank := n.Attrs(), n.Arg(0).Type().Rank()-2
	if a.Has(window.BaseKey) || a.Has(window.ReverseKey) || a.Int("batch_groups", 1) != 1 || rank < 1 {
		return false
	}
	list := func(key string, def int64) string {
		l := a.Ints(key)
		if l == nil {
			l = slices.Repeat([]int64{def}, rank)
		}
		return "[" + pyInts(l...) + "]"
	}
	pads := make([]int64, rank)
	for i, p := range a.Ints(window.PaddingKey) {
		if i%2 == 0 {
			pads[i/2] = p
		} else if p != pads[i/2] || p < 0 {
			return false
		}
	}
	return put("aten.convolution.default", x[0], x[1], "None", list(window.StridesKey, 1), "["+pyInts(pads...)+"]",
		list(window.DilationKey, 1), "False", "["+pyInts(make([]int64, rank)...)+"]", pyInts(a.Int("groups", 1)))
}
