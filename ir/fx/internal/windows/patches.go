package windows

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// patches reports whether a convolution of x with w that gives y is a matmul of patches: its
// windows lie side by side and cover an image whose channels are few. Matrix units take 8
// channels at once, so that convolutions of 3 waste most of what they do, and read with every
// window what the next one reads as well; patches are copied once. The sums have the
// order of the convolution's.
func (s sliding) patches(x *ir.Value, w *ir.Value, y ir.Type) bool {
	if x.Type().Rank() < 3 {
		return false
	}
	xs, ok := x.Type().Shape()[1:].Static()
	ws, ok2 := w.Type().Shape().Static()
	if !ok || !ok2 || s.transposed || s.groups != 1 || xs[0]%8 == 0 || !x.Type().Contiguous() || !y.Contiguous() {
		return false
	}
	taps := int64(1)
	for d, k := range ws[2:] {
		if k < 1 || k != s.stride[d] || s.padding[d] != 0 || s.dilation[d] != 1 && k > 1 || xs[1+d]%k != 0 || xs[1+d] == 0 {
			return false
		}
		taps *= k
	}
	return taps > 1
}

// cut gives the patches of x, [n, places, channels * taps].
func (s sliding) cut(c *call, x *ir.Value) *ir.Value {
	batch, xs := x.Type().Shape()[0], sizes(x.Type().Shape()[1:])
	rank := len(xs) - 1
	split, order := []int64{xs[0]}, []int64{0}
	places, taps := int64(1), int64(1)
	for d, k := range s.stride {
		split, order = append(split, xs[1+d]/k, k), append(order, int64(2+2*d))
		places, taps = places*(xs[1+d]/k), taps*k
	}
	order = append(order, 1)
	for d := range rank {
		order = append(order, int64(3+2*d))
	}
	parts := c.Permuted(c.Reshaped(x, slices.Concat(ir.Shape{batch}, ir.Dims(split...))), order...)
	return c.Reshaped(parts, ir.Shape{batch, ir.D(places), ir.D(xs[0] * taps)})
}

// ofPatches is the convolution as a matmul of w with the patches of x, [n, rows, places].
func (s sliding) ofPatches(c *call, x, w *ir.Value) *ir.Value {
	p, rows := s.cut(c, x), traced.Static(w)[0]
	if c.Err != nil {
		return c.None()
	}
	ps := p.Type().Shape()
	w, _ = c.Broadcast(c.Reshaped(w, ir.Shape{ir.D(1), ir.D(rows), ps[2]}), ir.Shape{ps[0], ir.D(rows), ps[2]})
	return c.Make(ir.OpMatmul, nil, w, c.Permuted(p, 0, 2, 1))
}

// weightOfPatches is the gradient of the weights from that of the result, [rows, channels * taps].
func (s sliding) weightOfPatches(c *call, dy, x *ir.Value) *ir.Value {
	p := s.cut(c, x)
	if c.Err != nil {
		return c.None()
	}
	ps, rows := p.Type().Shape(), dy.Type().Shape()[1]
	places := ps[0].Mul(ps[1])
	rank := dy.Type().Rank()
	if dy.Type().Contiguous() {
		dy = c.Reshaped(c.Permuted(dy, exchanged(rank)...), ir.Shape{rows, places})
	} else { // mostly with its channels last
		order := []int64{0}
		for d := 2; d < rank; d++ {
			order = append(order, int64(d))
		}
		dy = c.Permuted(c.Reshaped(c.Permuted(dy, append(order, 1)...), ir.Shape{places, rows}), 1, 0)
	}
	return c.Make(ir.OpMatmul, nil, dy, c.Reshaped(p, ir.Shape{places, ps[2]}))
}
