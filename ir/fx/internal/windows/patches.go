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
	xs, ok := x.Type().Shape().Static()
	ws, ok2 := w.Type().Shape().Static()
	if !ok || !ok2 || s.transposed || s.groups != 1 || len(xs) < 3 || xs[1]%8 == 0 || !x.Type().Contiguous() || !y.Contiguous() {
		return false
	}
	taps := int64(1)
	for d, k := range ws[2:] {
		if k < 1 || k != s.stride[d] || s.padding[d] != 0 || s.dilation[d] != 1 && k > 1 || xs[2+d]%k != 0 || xs[2+d] == 0 {
			return false
		}
		taps *= k
	}
	return taps > 1
}

// cut gives the patches of x, [n, places, channels * taps].
func (s sliding) cut(c *call, x *ir.Value) *ir.Value {
	xs := traced.Static(x)
	rank := len(xs) - 2
	split, order := slices.Clone(xs[:2]), []int64{0}
	places, taps := int64(1), int64(1)
	for d, k := range s.stride {
		split, order = append(split, xs[2+d]/k, k), append(order, int64(2+2*d))
		places, taps = places*(xs[2+d]/k), taps*k
	}
	order = append(order, 1)
	for d := range rank {
		order = append(order, int64(3+2*d))
	}
	return c.Shaped(c.Permuted(c.Shaped(x, split...), order...), xs[0], places, xs[1]*taps)
}

// ofPatches is the convolution as a matmul of w with the patches of x, [n, rows, places].
func (s sliding) ofPatches(c *call, x, w *ir.Value) *ir.Value {
	p, rows := s.cut(c, x), traced.Static(w)[0]
	if c.Err != nil {
		return c.None()
	}
	ps := traced.Static(p)
	w = c.Shaped(w, 1, rows, ps[2])
	w = c.Helper(ir.OpExpand, nil, ir.Tensor(w.Type().DType(), ps[0], rows, ps[2]).WithStrides([]int64{0, ps[2], 1}), w)
	return c.Make(ir.OpMatmul, nil, w, c.Permuted(p, 0, 2, 1))
}

// weightOfPatches is the gradient of the weights from that of the result, [rows, channels * taps].
func (s sliding) weightOfPatches(c *call, dy, x *ir.Value) *ir.Value {
	p := s.cut(c, x)
	if c.Err != nil {
		return c.None()
	}
	ps, rows := traced.Static(p), traced.Static(dy)[1]
	places := ps[0] * ps[1]
	rank := dy.Type().Rank()
	if dy.Type().Contiguous() {
		dy = c.Shaped(c.Permuted(dy, exchanged(rank)...), rows, places)
	} else { // mostly with its channels last
		order := []int64{0}
		for d := 2; d < rank; d++ {
			order = append(order, int64(d))
		}
		dy = c.Permuted(c.Shaped(c.Permuted(dy, append(order, 1)...), places, rows), 1, 0)
	}
	return c.Make(ir.OpMatmul, nil, dy, c.Shaped(p, places, ps[2]))
}
