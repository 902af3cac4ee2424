package windows

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// fractionalPool gives the largest elements of windows, and their places, that begin in steps which
// a random number of each dimension of each channel decides.
func fractionalPool(c *call) error {
	x, samples := c.Tensor("self"), c.Tensor("random_samples")
	kernel, size := c.Ints("kernel_size"), c.Ints("output_size")
	if c.Err != nil {
		return c.Err
	}
	in, n := traced.Static(x), len(size)
	front := len(in) - n
	if front < 1 || n < 2 || len(kernel) != n || slices.Contains(in, 0) || !slices.Equal(traced.Static(samples), []int64{intmath.Product(in[:front-1]), in[front-1], int64(n)}) {
		return traced.ErrForm
	}
	rows, flat, stride := intmath.Product(in[:front]), intmath.Product(in[front:]), int64(1)
	samples = c.Shaped(samples, rows, int64(n))
	var places *ir.Value // [rows, out..., kernel...]
	for d := n - 1; d >= 0; d-- {
		from, k, out := in[front+d], kernel[d], size[d]
		if k < 1 || out < 1 || k+out-1 > from || out*k > maxTaps {
			return traced.ErrForm
		}
		column := int64(d)
		if n == 2 { // the first is of the width
			column = 1 - column
		}
		begin := c.begins(c.Slice(samples, 1, column, column+1), from, k, out)
		shape := slices.Repeat([]int64{1}, 1+2*n)
		shape[0], shape[1+d] = rows, out
		taps := slices.Repeat([]int64{1}, n-d)
		taps[0] = k
		at := c.Add(c.Shaped(begin, shape...), c.Shaped(c.Counting(k), taps...))
		at = c.With(ir.OpMul, at, float64(stride))
		if stride *= from; places != nil {
			at = c.Add(places, at)
		}
		places = at
	}
	if c.Err != nil {
		return c.Err
	}
	each, taps := intmath.Product(size), intmath.Product(kernel)
	places = c.Shaped(places, rows, each*taps)
	tapped := c.Shaped(c.Make(ir.OpGather, traced.DimAttr(1), c.Shaped(x, rows, flat), places), rows, each, taps)
	first := c.largestTap(tapped)
	index := c.Make(ir.OpGather, traced.DimAttr(2), c.Shaped(places, rows, each, taps), first)
	shape := slices.Concat(in[:front], size)
	return cmp.Or(c.Err, c.Settle(c.Shaped(c.Over(ir.OpAmax, tapped, false, 2), shape...), c.Shaped(index, shape...)))
}

// begins is where windows begin, i64 [rows, out], from samples [rows, 1], rounded as PyTorch does in
// their type.
func (c *call) begins(sample *ir.Value, in, kernel, out int64) *ir.Value {
	last := c.Filled(attr.Int(in-kernel), ir.I64, traced.Static(sample)...)
	if out == 1 {
		return last
	}
	dt := sample.Type().DType()
	quotient := c.With(ir.OpDiv, c.Filled(attr.Int(in-kernel), dt), float64(out-1))
	whole := func(v *ir.Value) *ir.Value { return c.In(ir.I64, c.Mul(v, quotient)) }
	steps := c.Sub(whole(c.Add(sample, c.In(dt, c.Counting(out-1)))), whole(sample))
	return c.Make(ir.OpCat, traced.DimAttr(1), steps, last)
}
