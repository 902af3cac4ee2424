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
// many taps as the largest; what the others lack is their first element again.
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
	tap := c.Make(ir.OpArgmax, traced.DimAttr(2), all)
	base := c.With(ir.OpMul, c.Counting(windows), float64(taps))
	place := c.Make(ir.OpIndex, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), places, c.Make(ir.OpAdd, nil, tap, base))
	return c.Settle(c.Reshaped(c.Over(ir.OpAmax, all, false, 2), want), c.Reshaped(place, want))
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
					tap := row*float64(in) + float64(begin(o)+k)
					if begin(o)+k >= end(o) {
						tap = outer[0]*float64(in) + float64(begin(o))
					}
					taps = append(taps, tap)
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
