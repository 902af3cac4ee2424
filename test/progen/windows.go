package progen

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// window draws how a window slides over so many dimensions.
func (g *gen) window(rank int) attr.List {
	draw := func(low, high int64, each int) []int64 {
		out := make([]int64, each*rank)
		for i := range out {
			if out[i] = 1; low < 1 {
				out[i] = 0
			}
			if g.r.IntN(3) == 0 {
				out[i] = low + g.r.Int64N(high-low+1)
			}
		}
		return out
	}
	l := list("padding", draw(-1, 2, 2))
	for _, key := range []string{"strides", "base_dilation", "window_dilation"} {
		if g.r.IntN(2) == 0 {
			l = l.With(key, attr.Ints(draw(1, 3, 1)...))
		}
	}
	if g.r.IntN(3) == 0 {
		l = l.With("reverse", attr.Ints(draw(0, 1, 1)...))
	}
	return l
}

// reduceWindow folds small windows.
func (g *gen) reduceWindow() bool {
	x := g.pick(nil)
	if x == nil {
		return false
	}
	how := []string{"sum", "product", "min", "max", "argmax"}[g.r.IntN(5)]
	l := g.window(x.typ.Rank()).Without("reverse").With("reduce", attr.String(how))
	sizes := make([]int64, x.typ.Rank())
	for d := range sizes {
		sizes[d] = int64(1 + g.r.IntN(3))
	}
	l = l.With("window", attr.Ints(sizes...))
	args := []*value{x}
	if how != "argmax" && g.r.IntN(4) == 0 {
		if i := g.pick(func(v *value) bool { return v.typ.DType().IsInt() && v.typ.Shape().Equal(x.typ.Shape()) }); i != nil {
			args = append(args, i)
		}
	}
	return g.emit(ir.OpReduceWindow, nil, l, args) != nil
}

// convolution slides a small tensor over another, or one over itself.
func (g *gen) convolution() bool {
	x := g.pick(func(v *value) bool { return v.typ.Rank() >= 2 && g.positive(v) })
	if x == nil {
		return false
	}
	sizes, static := x.typ.Shape().Static()
	l := g.window(x.typ.Rank() - 2)
	if !static { // of the batch
		if sizes, static = x.typ.Shape()[1:].Static(); !static {
			return false
		}
		sizes = append([]int64{1}, sizes...)
	}
	if _, ok := x.typ.Shape().Static(); ok && g.r.IntN(4) == 0 {
		l = l.With("batch_groups", attr.Int(sizes[0]))
		return g.emit(ir.OpConvolution, nil, l, []*value{x, x}) != nil
	}
	shape := slices.Clone(sizes)
	shape[0] = int64(1 + g.r.IntN(20))
	if g.r.IntN(3) == 0 {
		l, shape[0], shape[1] = l.With("groups", attr.Int(sizes[1])), sizes[1]*int64(1+g.r.IntN(3)), 1
	}
	for d := 2; d < len(shape); d++ {
		shape[d] = int64(1 + g.r.IntN(3))
	}
	w := g.pick(func(v *value) bool {
		_, err := ir.Infer(ir.OpConvolution, nil, l, []ir.Type{x.typ, v.typ})
		return err == nil
	})
	if w == nil {
		rs := g.emit(ir.OpFull, nil, list("value", 0.5), nil, ir.Tensor(x.typ.DType(), shape...))
		if rs == nil {
			return false
		}
		w = rs[0]
	}
	return g.emit(ir.OpConvolution, nil, l, []*value{x, w}) != nil
}
