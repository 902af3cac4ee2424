package fx

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// logSumExp is the logarithm of the sum of exponentials over dimensions.
func logSumExp(c *call) error {
	x, dims, keep := c.tensor("self"), c.arg("dim"), c.bool("keepdim", false)
	if c.err != nil {
		return c.err
	}
	if !x.Type().DType().IsFloat() || dims == nil {
		return errForm
	}
	ds := c.dims("dim", x.Type().Rank())
	if c.err != nil {
		return c.err
	}
	if x.Type().Rank() == 0 {
		ds = nil
	}
	x = c.in(accType(x.Type().DType()), x)
	high := c.over(ir.OpAmax, x, true, ds...)
	zero := c.filled(attr.Int(0), high.Type().DType())
	endless := c.with(ir.OpEq, c.make(ir.OpAbs, nil, high), math.Inf(1))
	high = c.make(ir.OpWhere, nil, endless, zero, high)
	sum := c.make(ir.OpLog, nil, c.over(ir.OpSum, c.make(ir.OpExp, nil, c.make(ir.OpSub, nil, x, high)), true, ds...))
	sum = c.make(ir.OpAdd, nil, sum, high)
	if !keep && c.err == nil {
		t, err := c.tensorType(0)
		if err != nil {
			return err
		}
		s := sizesOf(t)
		sum = c.shaped(sum, s...)
	}
	return c.settle(sum)
}

// normalized reads the trailing dimensions that a layer norm is over, and the shapes of
// its statistics and of one row.
func (c *call) normalized(x *ir.Value) (dims []int64, kept, row []int64) {
	row = c.ints("normalized_shape")
	if c.err != nil {
		return nil, nil, nil
	}
	s := static(x)
	lead := len(s) - len(row)
	if lead < 0 || len(row) == 0 || !slices.Equal(s[lead:], row) || !x.Type().DType().IsFloat() {
		c.err = errForm
		return nil, nil, nil
	}
	kept = slices.Clone(s)
	for d := lead; d < len(s); d++ {
		dims, kept[d] = append(dims, int64(d)), 1
	}
	return dims, kept, row
}

// layerNorm gives the normalised tensor, means, and inverses of standard deviations, in
// single precision at least.
func layerNorm(c *call) error {
	x := c.tensor("input")
	if c.err != nil {
		return c.err
	}
	dims, _, _ := c.normalized(x)
	eps, ok := c.num("eps")
	if !ok {
		c.want("eps", "a number", c.arg("eps"))
	}
	if c.err != nil {
		return c.err
	}
	small, _ := eps.AsFloat()
	acc := accType(x.Type().DType())
	x = c.in(acc, x)
	mean := c.over(ir.OpMean, x, true, dims...)
	away := c.make(ir.OpSub, nil, x, mean)
	variance := c.over(ir.OpMean, c.make(ir.OpMul, nil, away, away), true, dims...)
	rstd := c.make(ir.OpRsqrt, nil, c.with(ir.OpAdd, variance, small))
	y := c.make(ir.OpMul, nil, away, rstd)
	for _, p := range []struct {
		name string
		op   ir.Op
	}{{"weight", ir.OpMul}, {"bias", ir.OpAdd}} {
		if c.isTensor(p.name) {
			y = c.make(p.op, nil, y, c.in(acc, c.tensor(p.name)))
		}
	}
	return c.settle(y, mean, rstd)
}

// layerNormBackward gives the gradients of the operand, of the weights and of the bias,
// as many as are asked for.
func layerNormBackward(c *call) error {
	grad, x, mean, rstd := c.tensor("grad_out"), c.tensor("input"), c.tensor("mean"), c.tensor("rstd")
	if c.err != nil {
		return c.err
	}
	dims, kept, row := c.normalized(x)
	if c.err != nil {
		return c.err
	}
	acc := accType(x.Type().DType())
	grad, x = c.in(acc, grad), c.in(acc, x)
	mean, rstd = c.shaped(c.in(acc, mean), kept...), c.shaped(c.in(acc, rstd), kept...)
	norm := c.make(ir.OpMul, nil, c.make(ir.OpSub, nil, x, mean), rstd)
	scaled := grad
	if c.isTensor("weight") {
		scaled = c.make(ir.OpMul, nil, grad, c.in(acc, c.tensor("weight")))
	}
	a := c.over(ir.OpMean, scaled, true, dims...)
	b := c.over(ir.OpMean, c.make(ir.OpMul, nil, scaled, norm), true, dims...)
	dx := c.make(ir.OpSub, nil, c.make(ir.OpSub, nil, scaled, a), c.make(ir.OpMul, nil, norm, b))
	all := []*ir.Value{c.make(ir.OpMul, nil, dx, rstd), c.make(ir.OpMul, nil, grad, norm), grad}
	var outer []int64
	for d := range len(kept) - len(row) {
		outer = append(outer, int64(d))
	}
	var out []*ir.Value
	var items []int
	for i, asked := range c.mask("output_mask", 3) {
		if !asked || i == 1 && !c.isTensor("weight") || i == 2 && !c.isTensor("bias") {
			continue
		}
		if i > 0 && len(outer) > 0 {
			all[i] = c.over(ir.OpSum, all[i], false, outer...)
		}
		out, items = append(out, all[i]), append(items, i)
	}
	if c.err != nil {
		return c.err
	}
	c.im.nodes[c.i].items = items
	return c.settle(out...)
}

// mask reads a list of n truth values.
func (c *call) mask(param string, n int) []bool {
	list := c.listOf(param)
	out := make([]bool, len(list))
	for i := range list {
		if list[i].kind != pyBool && list[i].kind != pyInt {
			c.want(param, "True or False", &list[i])
			return nil
		}
		out[i] = list[i].i != 0
	}
	if len(out) != n && c.err == nil {
		c.stick(param, c.arg(param), "%d truth values, want %d", len(out), n)
		return nil
	}
	return out
}

// distance folds differences along the last dimension by the p-norm.
func (c *call) distance(x *ir.Value, p float64) *ir.Value {
	d := int64(x.Type().Rank() - 1)
	x = c.make(ir.OpAbs, nil, x)
	switch {
	case p == 0:
		return c.over(ir.OpSum, c.in(x.Type().DType(), c.with(ir.OpNe, x, 0)), false, d)
	case p == 1:
		return c.over(ir.OpSum, x, false, d)
	case p == 2:
		return c.make(ir.OpSqrt, nil, c.over(ir.OpSum, c.make(ir.OpMul, nil, x, x), false, d))
	case math.IsInf(p, 1):
		return c.over(ir.OpAmax, x, false, d)
	}
	return c.with(ir.OpPow, c.over(ir.OpSum, c.with(ir.OpPow, x, p), false, d), 1/p)
}

// norm reads p.
func (c *call) norm() float64 {
	v, ok := c.num("p")
	p, _ := v.AsFloat()
	if !ok || !(p >= 0) {
		c.stick("p", c.arg("p"), "expected a number of 0 or more")
	}
	return p
}

func distances(c *call) error {
	a, b, p := c.tensor("x1"), c.tensor("x2"), c.norm()
	if c.err != nil {
		return c.err
	}
	ra, rb := int64(a.Type().Rank()), int64(b.Type().Rank())
	if ra < 2 || rb < 2 || !a.Type().DType().IsFloat() || static(a)[ra-1] == 0 {
		return errForm
	}
	return c.settle(c.distance(c.make(ir.OpSub, nil, c.unsqueezed(a, ra-1), c.unsqueezed(b, rb-2)), p))
}

// pairDistances are those of each row and the later ones.
func pairDistances(c *call) error {
	x, p := c.tensor("self"), c.norm()
	if c.err != nil {
		return c.err
	}
	s := static(x)
	if len(s) != 2 || s[1] == 0 || !x.Type().DType().IsFloat() || s[0] > 1<<15 {
		return errForm
	}
	n := s[0]
	all := c.flat(c.distance(c.make(ir.OpSub, nil, c.unsqueezed(x, 1), c.unsqueezed(x, 0)), p))
	var rows []*ir.Value
	for i := range max(n-1, 0) {
		if i >= 512 {
			return errForm // the pairs are put together row by row
		}
		rows = append(rows, c.slice(all, 0, i*n+i+1, (i+1)*n))
	}
	if len(rows) == 0 {
		return errForm
	}
	return c.settle(c.make(ir.OpCat, dimAttr(0), rows...))
}

// columnsToImage adds up patches where they lie in an image.
func columnsToImage(c *call) error {
	x := c.tensor("self")
	var two [5][]int64
	for i, p := range []string{"output_size", "kernel_size", "dilation", "padding", "stride"} {
		two[i] = c.ints(p)
		if len(two[i]) != 2 && c.err == nil {
			return errForm
		}
	}
	if c.err != nil {
		return c.err
	}
	s := static(x)
	var places, wide [2]int64
	for d := range 2 {
		size, k, gap, padding, step := two[0][d], two[1][d], two[2][d], two[3][d], two[4][d]
		if min(size, k, gap, step) < 1 || padding < 0 || max(size, k, gap, padding, step) > 1<<20 {
			return errForm
		}
		wide[d] = size + 2*padding
		places[d] = (wide[d]-gap*(k-1)-1)/step + 1
	}
	kernel := two[1][0] * two[1][1]
	if len(s) < 2 || len(s) > 3 || min(places[0], places[1]) < 1 || s[len(s)-1] != places[0]*places[1] || s[len(s)-2]%kernel != 0 {
		return errForm
	}
	planes := count(s) / (kernel * places[0] * places[1])
	// where element (k0, k1, p0, p1) of a plane's patches lies in the padded plane
	at := c.filled(attr.Int(0), ir.I64)
	for d := range 2 {
		scale := int64(1)
		if d == 0 {
			scale = wide[1]
		}
		k, p := []int64{1, 1, 1, 1}, []int64{1, 1, 1, 1}
		k[d], p[2+d] = two[1][d], places[d]
		at = c.make(ir.OpAdd, nil, at, c.shaped(c.with(ir.OpMul, c.counting(two[1][d]), float64(two[2][d]*scale)), k...))
		at = c.make(ir.OpAdd, nil, at, c.shaped(c.with(ir.OpMul, c.counting(places[d]), float64(two[4][d]*scale)), p...))
	}
	dt := x.Type().DType()
	image := c.make(ir.OpIndexAdd, dimAttr(1), c.filled(attr.Int(0), dt, planes, wide[0]*wide[1]), c.flat(at), c.shaped(x, planes, kernel*places[0]*places[1]))
	image = c.shaped(image, planes, wide[0], wide[1])
	for d := range 2 {
		image = c.slice(image, 1+d, two[3][d], two[3][d]+two[0][d])
	}
	shape := append(slices.Clone(s[:len(s)-2]), s[len(s)-2]/kernel, two[0][0], two[0][1])
	return c.settle(c.shaped(image, shape...))
}
