package aten

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// logSumExp is the logarithm of the sum of exponentials over dimensions.
func logSumExp(c *call) error {
	x, dims, keep := c.Tensor("self"), c.Arg("dim"), c.Bool("keepdim", false)
	if c.Err != nil {
		return c.Err
	}
	if !x.Type().DType().IsFloat() || dims == nil {
		return traced.ErrForm
	}
	ds := c.Dims("dim", x.Type().Rank())
	if c.Err != nil {
		return c.Err
	}
	x = c.In(traced.AccType(x.Type().DType()), x)
	high := c.Over(ir.OpAmax, x, true, ds...)
	zero := c.Filled(attr.Int(0), high.Type().DType())
	endless := c.With(ir.OpEq, c.Make(ir.OpAbs, nil, high), math.Inf(1))
	high = c.Make(ir.OpWhere, nil, endless, zero, high)
	sum := c.Make(ir.OpLog, nil, c.Over(ir.OpSum, c.Make(ir.OpExp, nil, c.Make(ir.OpSub, nil, x, high)), true, ds...))
	sum = c.Make(ir.OpAdd, nil, sum, high)
	if !keep && c.Err == nil {
		t, err := c.Trace.TypeOf(0)
		if err != nil {
			return err
		}
		sum = c.Reshaped(sum, t.Shape())
	}
	return c.Settle(sum)
}

// distance folds differences along the last dimension by the p-norm.
func (c *call) distance(x *ir.Value, p float64) *ir.Value {
	return c.length(x, p, false, int64(x.Type().Rank()-1))
}

// length is the p-norm over dims, all if there are none. For p=0 what is no number counts as one, as PyTorch
// has it on GPUs; its CPU gives no number.
func (c *call) length(x *ir.Value, p float64, keep bool, dims ...int64) *ir.Value {
	x = c.Make(ir.OpAbs, nil, x)
	switch {
	case p == 0:
		return c.Over(ir.OpSum, c.In(x.Type().DType(), c.With(ir.OpNe, x, 0)), keep, dims...)
	case p == 1:
		return c.Over(ir.OpSum, x, keep, dims...)
	case p == 2:
		return c.Make(ir.OpSqrt, nil, c.Over(ir.OpSum, c.Make(ir.OpMul, nil, x, x), keep, dims...))
	case math.IsInf(p, 1):
		return c.Over(ir.OpAmax, x, keep, dims...)
	case math.IsInf(p, -1):
		return c.Over(ir.OpAmin, x, keep, dims...)
	}
	return c.With(ir.OpPow, c.Over(ir.OpSum, c.With(ir.OpPow, x, p), keep, dims...), 1/p)
}

// vectorNorm computes in the type of the result, in single precision at least.
func vectorNorm(c *call) error {
	x, p := c.Tensor("self"), 2.0
	if v, ok := c.Num("ord"); ok {
		p, _ = v.AsFloat()
	}
	ts, err := c.Types()
	if err != nil || c.Err != nil {
		return cmp.Or(c.Err, err)
	}
	dims, keep := c.Dims("dim", x.Type().Rank()), c.Bool("keepdim", false)
	if c.Err != nil {
		return c.Err
	}
	if len(ts) != 1 || !ts[0].DType().IsFloat() {
		return traced.ErrForm
	}
	return c.Settle(c.length(c.In(traced.AccType(ts[0].DType()), x), p, keep, dims...))
}

// norm reads p.
func (c *call) norm() float64 {
	if c.Arg("p") == nil {
		return 2
	}
	v, ok := c.Num("p")
	p, _ := v.AsFloat()
	if !ok || !(p >= 0) {
		c.Reject("p", c.Arg("p"), "expected a number of 0 or more")
	}
	return p
}

func distances(c *call) error {
	a, b, p := c.Tensor("x1"), c.Tensor("x2"), c.norm()
	if c.Err != nil {
		return c.Err
	}
	ra, rb := int64(a.Type().Rank()), int64(b.Type().Rank())
	if ra < 2 || rb < 2 || !a.Type().DType().IsFloat() || a.Type().Shape()[ra-1].Equal(ir.D(0)) {
		return traced.ErrForm
	}
	return c.Settle(c.distance(c.Make(ir.OpSub, nil, c.Unsqueezed(a, ra-1), c.Unsqueezed(b, rb-2)), p))
}

// pairDistances are those of each row and the later ones.
func pairDistances(c *call) error {
	x, p := c.Tensor("self"), c.norm()
	if c.Err != nil {
		return c.Err
	}
	s := traced.Static(x)
	if len(s) != 2 || s[1] == 0 || !x.Type().DType().IsFloat() || s[0] > 1<<15 {
		return traced.ErrForm
	}
	n := s[0]
	all := c.Flat(c.distance(c.Make(ir.OpSub, nil, c.Unsqueezed(x, 1), c.Unsqueezed(x, 0)), p))
	var rows []*ir.Value
	for i := range max(n-1, 0) {
		if i >= 512 {
			return traced.ErrForm // the pairs are put together row by row
		}
		rows = append(rows, c.Slice(all, 0, i*n+i+1, (i+1)*n))
	}
	if len(rows) == 0 {
		return traced.ErrForm
	}
	return c.Settle(c.Make(ir.OpCat, traced.DimAttr(0), rows...))
}

// columnsToImage adds up patches where they lie in an image.
func columnsToImage(c *call) error {
	x := c.Tensor("self")
	var two [5][]int64
	for i, p := range []string{"output_size", "kernel_size", "dilation", "padding", "stride"} {
		two[i] = c.Ints(p)
		if len(two[i]) != 2 && c.Err == nil {
			return traced.ErrForm
		}
	}
	if c.Err != nil {
		return c.Err
	}
	s := traced.Static(x)
	var places, wide [2]int64
	for d := range 2 {
		size, k, gap, padding, step := two[0][d], two[1][d], two[2][d], two[3][d], two[4][d]
		if min(size, k, gap, step) < 1 || padding < 0 || max(size, k, gap, padding, step) > 1<<20 {
			return traced.ErrForm
		}
		wide[d] = size + 2*padding
		places[d] = (wide[d]-gap*(k-1)-1)/step + 1
	}
	kernel := two[1][0] * two[1][1]
	if len(s) < 2 || len(s) > 3 || min(places[0], places[1]) < 1 || s[len(s)-1] != places[0]*places[1] || s[len(s)-2]%kernel != 0 {
		return traced.ErrForm
	}
	planes := intmath.Product(s) / (kernel * places[0] * places[1])
	// where element (k0, k1, p0, p1) of a plane's patches lies in the padded plane
	at := c.Filled(attr.Int(0), ir.I64)
	for d := range 2 {
		scale := int64(1)
		if d == 0 {
			scale = wide[1]
		}
		k, p := []int64{1, 1, 1, 1}, []int64{1, 1, 1, 1}
		k[d], p[2+d] = two[1][d], places[d]
		at = c.Make(ir.OpAdd, nil, at, c.Shaped(c.With(ir.OpMul, c.Counting(two[1][d]), float64(two[2][d]*scale)), k...))
		at = c.Make(ir.OpAdd, nil, at, c.Shaped(c.With(ir.OpMul, c.Counting(places[d]), float64(two[4][d]*scale)), p...))
	}
	dt := x.Type().DType()
	image := c.Make(ir.OpIndexAdd, traced.DimAttr(1), c.Filled(attr.Int(0), dt, planes, wide[0]*wide[1]), c.Flat(at), c.Shaped(x, planes, kernel*places[0]*places[1]))
	image = c.Shaped(image, planes, wide[0], wide[1])
	for d := range 2 {
		image = c.Slice(image, 1+d, two[3][d], two[3][d]+two[0][d])
	}
	shape := append(slices.Clone(s[:len(s)-2]), s[len(s)-2]/kernel, two[0][0], two[0][1])
	return c.Settle(c.Shaped(image, shape...))
}
