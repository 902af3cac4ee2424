package windows

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// adaptiveMaxPool is the largest element of each of windows that divide the last dimensions
// as evenly as may be, and its place in these, flat. If they are not of one size all get as
// many taps as the largest; what the others lack is the element in front again.
func adaptiveMaxPool(c *call) error {
	x := c.Tensor("self")
	t, err := c.Trace.TypeOf(0)
	if err = cmp.Or(c.Err, err); err != nil {
		return err
	}
	have, want := x.Type().Shape(), t.Shape()
	n := 2
	if c.Target == "aten.adaptive_max_pool3d.default" {
		n = 3
	}
	front := len(have) - n
	if front < 0 || len(want) != len(have) || none(have) || none(want) || c.NumResults != 2 {
		return traced.ErrForm
	}
	p := pooling{in: have[front:], out: want[front:], front: front, padding: make([]int64, n), dilation: slices.Repeat([]int64{1}, n)}
	even := true
	in, out := sizes(p.in), sizes(p.out)
	for d, size := range in {
		even = even && size%out[d] == 0
		p.kernel = append(p.kernel, size/out[d])
	}
	if p.stride = p.kernel; even {
		return c.largest(x, p, ir.I64, c.flatIndices)
	}
	at := [][]float64{{0}} // window -> places of its taps
	for d := range in {
		if out[d] > in[d] || out[d] > maxTaps/int64(len(at)*len(at[0])) || in[d] > maxTaps/int64(len(at)*len(at[0])) {
			return traced.ErrForm
		}
		at = withTaps(at, in[d], out[d])
	}
	windows, taps := int64(len(at)), int64(len(at[0]))
	places := c.numbers(ir.I64, slices.Concat(at...), windows*taps)
	planes := have[:front].NumElems()
	flat := c.Reshaped(x, ir.Shape{planes, ir.D(intmath.Product(in))})
	all := c.Reshaped(c.Make(ir.OpIndex, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(1)}), flat, places), ir.Shape{planes, ir.D(windows), ir.D(taps)})
	tap := c.Reshaped(c.largestTap(all), ir.Shape{planes, ir.D(windows)})
	base := c.With(ir.OpMul, c.Counting(windows), float64(taps))
	place := c.Make(ir.OpIndex, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), places, c.Make(ir.OpAdd, nil, tap, base))
	return c.Settle(c.Reshaped(c.Over(ir.OpAmax, all, false, 2), want), c.Reshaped(place, want))
}

// largestTap is which of the taps along the last of three dimensions is the largest, with that dimension kept.
func (c *call) largestTap(taps *ir.Value) *ir.Value {
	p := pooling{kernel: []int64{traced.SizeAt(taps, 2)}, dilation: []int64{1}, front: 2}
	return c.Make(ir.OpReduceWindow, p.windowsOf("argmax", []int64{0, 0}, []int64{1}, nil), taps)
}

// withTaps adds a dimension, of size in and divided in out, to windows.
func withTaps(at [][]float64, in, out int64) (next [][]float64) {
	begin := func(o int64) int64 { return o * in / out }
	end := func(o int64) int64 { return ((o+1)*in + out - 1) / out }
	most := int64(0)
	for o := range out {
		most = max(most, end(o)-begin(o))
	}
	for _, outer := range at {
		for o := range out {
			var taps []float64
			for _, row := range outer {
				for k := range most {
					taps = append(taps, row*float64(in)+float64(min(begin(o)+k, end(o)-1)))
				}
			}
			next = append(next, taps)
		}
	}
	return next
}

// placedBackward adds each window's gradient where its largest element was.
func placedBackward(c *call) error {
	dy, x, at := c.Tensor("grad_output"), c.Tensor("self"), c.Tensor("indices")
	if c.Err != nil {
		return c.Err
	}
	n := 2
	if strings.Contains(c.Target, "pool3d") {
		n = 3
	}
	in, out := x.Type().Shape(), dy.Type().Shape()
	front := len(in) - n
	if front < 0 || len(out) != len(in) || !in[:front].Equal(out[:front]) || !at.Type().Shape().Equal(out) {
		return traced.ErrForm
	}
	rows := in[:front].NumElems()
	flat := func(v *ir.Value, s ir.Shape) *ir.Value { return c.Reshaped(v, ir.Shape{rows, s[front:].NumElems()}) }
	acc := traced.AccType(dy.Type().DType())
	zero := c.Full(attr.Int(0), acc, ir.Shape{rows, in[front:].NumElems()})
	sum := c.Make(ir.OpScatter, traced.DimAttr(1).With("reduce", attr.String("add")), zero, flat(c.In(ir.I64, at), out), flat(c.In(acc, dy), out))
	return c.Settle(c.Reshaped(sum, in))
}

// adaptive is how windows divide the last dimensions as evenly as may be: as a pool if all
// are of one size, else along each dimension by itself, with how many elements each has.
func (c *call) adaptive(x, y ir.Shape) (p pooling, from []source, counts *ir.Value) {
	n := c.resampledDims()
	if p.front = len(x) - n; p.front < 0 || len(y) != len(x) || !x[:p.front].Equal(y[:p.front]) || none(x) || none(y) {
		c.Err = traced.ErrForm
		return p, nil, nil
	}
	p.in, p.out = x[p.front:], y[p.front:]
	p.padding, p.dilation = make([]int64, n), slices.Repeat([]int64{1}, n)
	even, each := true, []float64{1}
	in, out := sizes(p.in), sizes(p.out)
	for d, size := range in {
		even = even && size%out[d] == 0
		p.kernel, p.stride = append(p.kernel, size/out[d]), append(p.stride, size/out[d])
	}
	if even {
		return p, nil, nil
	}
	for d, size := range in {
		if out[d] > maxTaps/int64(len(each)) || size/out[d]+2 > maxTaps/out[d] {
			c.Err = traced.ErrForm
			return p, nil, nil
		}
		s := source{beyond: true}
		var lengths []int64
		for o := range out[d] {
			lengths = append(lengths, ((o+1)*size+out[d]-1)/out[d]-o*size/out[d])
		}
		s.taps = int(slices.Max(lengths))
		var next []float64
		for _, e := range each {
			for _, l := range lengths {
				next = append(next, e*float64(l))
			}
		}
		each = next
		for o, l := range lengths {
			for t := range int64(s.taps) {
				at := size
				if t < l {
					at = int64(o)*size/out[d] + t
				}
				s.at = append(s.at, at)
			}
		}
		from = append(from, s)
	}
	return p, from, c.numbers(ir.F32, each, out...)
}

func adaptivePool(c *call) error {
	x := c.Tensor("self")
	t, err := c.Trace.TypeOf(0)
	if c.Err != nil || err != nil {
		return cmp.Or(c.Err, err)
	}
	if front := t.Rank() - c.resampledDims(); front >= 0 && front <= x.Type().Rank() && openImage(x.Type().Shape()[front:], t) {
		return c.adaptiveOpen(x, x, t, front, false)
	}
	p, from, counts := c.adaptive(x.Type().Shape(), t.Shape())
	if c.Err != nil {
		return c.Err
	}
	if !t.DType().IsFloat() {
		return traced.ErrForm
	}
	acc := traced.AccType(t.DType())
	if from == nil {
		sum := c.Helper(ir.OpReduceWindow, p.forward("sum"), retyped(t, acc), x)
		return c.EmitErr(ir.OpDiv, traced.Scalar(attr.Int(intmath.Product(p.kernel))), sum)
	}
	x = c.In(acc, x)
	for d := len(from) - 1; d >= 0; d-- {
		x = c.gathered(x, p.front+d, from[d])
	}
	return c.Settle(c.In(t.DType(), c.Make(ir.OpDiv, nil, x, counts)))
}

func adaptivePoolBackward(c *call) error {
	dy, x := c.Tensor("grad_output"), c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	if front := x.Type().Rank() - c.resampledDims(); front >= 0 && openImage(x.Type().Shape()[front:], x.Type()) {
		return c.adaptiveOpen(dy, x, dy.Type(), front, true)
	}
	p, from, counts := c.adaptive(x.Type().Shape(), dy.Type().Shape())
	if c.Err != nil {
		return c.Err
	}
	dt := x.Type().DType()
	if !dt.IsFloat() {
		return traced.ErrForm
	}
	dy = c.In(traced.AccType(dt), dy)
	if from == nil {
		return p.backward(c, c.With(ir.OpDiv, dy, float64(intmath.Product(p.kernel))))
	}
	dy = c.Make(ir.OpDiv, nil, dy, counts)
	for d := len(from) - 1; d >= 0; d-- {
		dy = c.scattered(dy, p.front+d, traced.Constant(p.in[d]), from[d])
	}
	return c.Settle(c.In(dt, dy))
}

// openImage reports whether a size of an image is open, of an operator whose result has floats.
func openImage(image ir.Shape, t ir.Type) bool {
	_, ok := image.Static()
	return !ok && t.DType().IsFloat()
}

// adaptiveOpen averages images of open sizes, or spreads the gradient of averages back: along one dimension after the
// other by a matrix of the weights that elements have in windows.
func (c *call) adaptiveOpen(v, x *ir.Value, y ir.Type, front int, back bool) error {
	if y.Rank() != x.Type().Rank() || !y.Shape()[:front].Equal(x.Type().Shape()[:front]) {
		return traced.ErrForm
	}
	dt := traced.AccType(x.Type().DType())
	v = c.In(dt, v)
	for d := front; d < y.Rank() && c.Err == nil; d++ {
		in, out := x.Type().Shape()[d], y.Shape()[d]
		o, i := c.Unsqueezed(c.Places(out), 1), c.Unsqueezed(c.Places(in), 0)
		first := c.By(ir.OpFloorDivide, c.By(ir.OpMul, o, in), out)
		end := c.By(ir.OpFloorDivide, c.By(ir.OpAdd, c.By(ir.OpMul, c.With(ir.OpAdd, o, 1), in), out.Sub(ir.D(1))), out)
		inside := c.Make(ir.OpLogicalAnd, nil, c.Make(ir.OpGe, nil, i, first), c.Make(ir.OpLt, nil, i, end))
		w := c.Make(ir.OpDiv, nil, c.In(dt, inside), c.In(dt, c.Sub(end, first)))
		if !back {
			w = c.Permuted(w, 1, 0)
		}
		order := exchangedWith(d, y.Rank())
		v = c.Permuted(v, order...) // the dimension is the last one
		shape := slices.Clone(v.Type().Shape())
		last := len(shape) - 1
		rows := c.Reshaped(v, ir.Shape{shape[:last].NumElems(), shape[last]})
		shape[last] = w.Type().Shape()[1]
		v = c.Permuted(c.Reshaped(c.Make(ir.OpMatmul, nil, rows, w), shape), order...)
	}
	return c.Settle(v)
}

// exchangedWith lists dimensions with one and the last exchanged.
func exchangedWith(d, rank int) (order []int64) {
	for k := range rank {
		order = append(order, int64(k))
	}
	order[d], order[rank-1] = order[rank-1], order[d]
	return order
}
