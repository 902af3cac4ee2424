package fx

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// symmOperator finds the products that carry a collective, and the collectives overlapped with products, of
// PyTorch's symmetric memory. They become the collective, its wait and the products: what runs
// beside what is decided here by passes, such as fuse-collectives.
func symmOperator(target string) (signature string, build func(c *node) error, ok bool) {
	switch target {
	case "symm_mem.fused_all_gather_matmul.default":
		return "A_shard Bs gather_dim group_name * return_A", gatherMatmul, true
	case "symm_mem.fused_all_gather_scaled_matmul.default":
		return "A_shard Bs A_scale B_scales gather_dim group_name biases result_scales out_dtypes use_fast_accum", gatherMatmul, true
	case "symm_mem.fused_matmul_reduce_scatter.default":
		return "A B reduce_op scatter_dim group_name", matmulScatter, true
	case "symm_mem.fused_scaled_matmul_reduce_scatter.default":
		return "A B A_scale B_scale reduce_op orig_scatter_dim scatter_dim_after_maybe_reshape group_name output_shape bias result_scale out_dtype use_fast_accum", matmulScatter, true
	case "symm_mem._low_contention_all_gather.default":
		return "tensor group_name", lowContention, true
	case "symm_mem._low_contention_reduce_scatter.default":
		return "tensor reduce_op group_name", lowContention, true
	}
	return "", nil, false
}

// ranks is the group of a collective that is part of another operator.
func (c *node) ranks() *ir.Group {
	g, err := c.group(collectiveForm{})
	if err != nil && c.Err == nil {
		c.Err = err
	}
	return g
}

// reduces says whether the reduction is one of the IR's.
func (c *node) reduces() bool { return ir.Reduction(c.Str("reduce_op")).Valid() }

// communicate is a collective along dimension d, with its wait.
func (c *node) communicate(op ir.Op, g *ir.Group, d int64, x *ir.Value) *ir.Value {
	if c.Err != nil {
		return c.None()
	}
	var l attr.List
	if op.Info().Reduces {
		l = l.With("reduce", attr.String(c.Str("reduce_op")))
	}
	x = c.first(x, d)
	ts, err := ir.Infer(op, g, l, []ir.Type{x.Type()})
	if err != nil {
		c.Err = c.Fail("args", "arguments", "%s: %v", c.n.Target, err)
		return c.None()
	}
	spec := ir.NodeSpec{Op: op, Name: traced.TextName(c.n.Name, "node") + ".h", Args: []*ir.Value{x}, Group: g, Results: ts, Attrs: l,
		Meta: attr.Make(attr.Attr{Key: traced.MetaHelper, Val: attr.String(c.n.Name)})}
	start := c.im.fn.Append(spec).Result(0)
	return c.back(c.Helper(ir.OpWaitTensor, nil, start.Type().Elems()[0], start), d)
}

// settled ends an operator whose results are there.
func (c *node) settled(vals ...*ir.Value) error {
	err := c.Settle(vals...)
	if err == nil {
		c.keep()
	}
	return err
}

// first is x with dimension d in front of the others, in row-major order.
func (c *node) first(x *ir.Value, d int64) *ir.Value {
	if d != 0 {
		dims := []int64{d}
		for i := range int64(x.Type().Rank()) {
			if i != d {
				dims = append(dims, i)
			}
		}
		x = c.Permuted(x, dims...)
	}
	return c.LaidOut(x, traced.Like(x, x.Type().DType()))
}

// back moves the first dimension to d.
func (c *node) back(x *ir.Value, d int64) *ir.Value {
	if d == 0 {
		return x
	}
	var dims []int64
	for i := range int64(x.Type().Rank()) {
		if i > 0 {
			dims = append(dims, i)
		}
	}
	return c.Permuted(x, slices.Insert(dims, int(d), 0)...)
}

// weights are what rows are multiplied by. Those of 8 bits have a scale, and maybe a bias and a
// scale of the result.
type weights struct {
	b, scale, bias, result *ir.Value
}

// fits says whether rows of k can be multiplied so.
func (p *weights) fits(k int64) bool {
	b := traced.Static(p.b)
	if len(b) != 2 || b[0] != k {
		return false
	}
	for v, most := range map[*ir.Value]int64{p.scale: b[1], p.bias: b[1], p.result: 1} {
		if v == nil {
			continue
		}
		if n := intmath.Product(traced.Static(v)); n != 1 && n != most {
			return false // scales of blocks
		}
	}
	return true
}

// rows multiplies the rows of x, of any rank, where scale is one number for all of them or one
// for each, nil where they are not scaled. A product of scaled numbers is rounded once, when it
// has been scaled: BF16 has all of their values, and the sums are F32.
func (c *node) rows(x, scale *ir.Value, p weights, t ir.DType) *ir.Value {
	if c.Err != nil {
		return c.None()
	}
	shape := traced.Static(x)
	k := shape[len(shape)-1]
	shape[len(shape)-1] = traced.Static(p.b)[1]
	m, n := intmath.Product(shape[:len(shape)-1]), shape[len(shape)-1]
	x = c.Shaped(x, m, k)
	if scale == nil {
		return c.Shaped(c.Make(ir.OpMatmul, nil, x, p.b), shape...)
	}
	y := c.Helper(ir.OpMatmul, nil, ir.Tensor(dtype.F32, m, n), c.In(dtype.BF16, x), c.In(dtype.BF16, p.b))
	y = c.scaled(c.scaled(y, scale, m, 1), p.scale, 1, n)
	if p.bias != nil {
		y = c.Make(ir.OpAdd, nil, y, c.In(dtype.F32, p.bias))
	}
	if p.result != nil {
		y = c.scaled(y, p.result, 1, 1)
	}
	return c.Shaped(c.In(t, y), shape...)
}

// scaled is y times a scale for each row or column, or one number.
func (c *node) scaled(y, scale *ir.Value, rows, cols int64) *ir.Value {
	if intmath.Product(traced.Static(scale)) == 1 {
		rows, cols = 1, 1
	}
	return c.Make(ir.OpMul, nil, y, c.Shaped(c.In(dtype.F32, scale), rows, cols))
}

// item is a tensor of a list that may hold None, and nil for that.
func (c *node) item(param string, k int) *ir.Value {
	list := c.ListOf(param)
	if k >= len(list) || list[k].Kind == pytext.None {
		return nil
	}
	x, err := c.Value(&list[k])
	if err != nil && c.Err == nil {
		c.Err = err
	}
	return x
}

// optional is a tensor, and nil for None.
func (c *node) optional(param string) *ir.Value {
	if !c.IsTensor(param) {
		return nil
	}
	return c.Tensor(param)
}

// gatherMatmul gathers A along a dimension, and multiplies its rows by each of Bs. The results are
// the gathered A, or None, and a list.
func gatherMatmul(c *node) error {
	a, bs, d, g := c.Tensor("A_shard"), c.Tensors("Bs"), c.Need("gather_dim"), c.ranks()
	scaled := slices.Contains(c.Params, "A_scale")
	var scale *ir.Value
	var all []weights
	for k, b := range bs {
		p := weights{b: b}
		if scaled {
			p = weights{b, c.item("B_scales", k), c.item("biases", k), c.item("result_scales", k)}
		}
		all = append(all, p)
	}
	if scaled {
		scale = c.Tensor("A_scale")
	}
	ts, err := c.Types()
	if c.Err != nil || err != nil {
		return cmp.Or(c.Err, err)
	}
	lists := 1
	if !c.Bool("return_A", true) {
		lists = 0
	}
	full := traced.Static(a)
	last := len(full) - 1
	if d < 0 || int(d) > last || last < 1 || len(bs) == 0 || len(ts) != lists+len(bs) {
		return traced.ErrForm
	}
	full[d] *= int64(g.Size())
	for _, p := range all {
		if !p.fits(full[last]) || scaled && p.scale == nil {
			return traced.ErrForm
		}
	}
	sharded := scaled && rowWise(scale, traced.Static(a)) && int(d) < last
	if scaled && !sharded && intmath.Product(traced.Static(scale)) != 1 && !rowWise(scale, full) {
		return traced.ErrForm
	}
	c.Shares = len(bs)
	whole := c.communicate(ir.OpAllGather, g, d, a)
	if sharded {
		scale = c.communicate(ir.OpAllGather, g, d, scale)
	}
	vals := []*ir.Value{whole}[:lists]
	// Rows that lie as they were gathered are multiplied where they lie.
	front := d
	if int(d) == last {
		front = 0
	}
	x := c.first(whole, front)
	if scaled && intmath.Product(traced.Static(scale)) > 1 {
		scale = c.first(scale, front)
	}
	for k, p := range all {
		vals = append(vals, c.back(c.rows(x, scale, p, ts[lists+k].DType()), front))
	}
	if err := c.settled(vals...); err != nil {
		return err
	}
	c.im.nodes[c.i].lists = 1 + lists
	return nil
}

// rowWise says whether a scale has a number for each row of a tensor.
func rowWise(scale *ir.Value, shape []int64) bool {
	s := traced.Static(scale)
	last := len(shape) - 1
	return len(s) == len(shape) && slices.Equal(s[:last], shape[:last]) && s[last] == 1
}

// matmulScatter multiplies and gives each rank its piece of the sum of all products.
func matmulScatter(c *node) error {
	a, b, g := c.Tensor("A"), c.Tensor("B"), c.ranks()
	p, dim := weights{b: b}, "scatter_dim"
	var scale *ir.Value
	if slices.Contains(c.Params, "A_scale") {
		scale, dim = c.Tensor("A_scale"), "orig_scatter_dim"
		p = weights{b, c.Tensor("B_scale"), c.optional("bias"), c.optional("result_scale")}
	}
	d := c.Need(dim)
	ts, err := c.Types()
	if c.Err != nil || err != nil {
		return cmp.Or(c.Err, err)
	}
	in := traced.Static(a)
	last := len(in) - 1
	if last < 1 || len(ts) != 1 || !p.fits(in[last]) || !c.reduces() {
		return traced.ErrForm
	}
	shape := append(slices.Clone(in[:last]), traced.Static(b)[1])
	front := int64(0)
	if scale != nil {
		if n := intmath.Product(traced.Static(scale)); n != 1 && n != intmath.Product(in[:last]) {
			return traced.ErrForm
		}
		if c.Arg("output_shape") != nil {
			if shape = c.Ints("output_shape"); c.Err != nil {
				return c.Err
			}
		}
	} else if int(d) < last {
		front = d
	}
	if d < 0 || int(d) >= len(shape) || intmath.Product(shape) != intmath.Product(in[:last])*traced.Static(b)[1] {
		return traced.ErrForm
	}
	c.Shares = 1
	var y *ir.Value
	if scale != nil {
		y = c.Shaped(c.rows(a, scale, p, ts[0].DType()), shape...)
	} else {
		y = c.back(c.rows(c.first(a, front), nil, p, ts[0].DType()), front)
	}
	return c.settled(c.communicate(ir.OpReduceScatter, g, d, y))
}

// lowContention is a collective along the first dimension that leaves the multiprocessors alone
// as far as it can: a matter of what runs it.
func lowContention(c *node) error {
	x, g := c.Tensor("tensor"), c.ranks()
	op := ir.OpAllGather
	if len(c.Params) == 3 {
		op = ir.OpReduceScatter
	}
	if c.Err != nil {
		return c.Err
	}
	if op.Info().Reduces && !c.reduces() {
		return traced.ErrForm
	}
	return c.settled(c.communicate(op, g, 0, x))
}
