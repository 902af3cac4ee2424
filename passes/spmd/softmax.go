package spmd

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// This file has what a cross entropy does along classes of which each rank has some: a softmax
// whose ranks tell each other the largest number and the sum of each row, and ones that each
// rank writes where a row's class is its own.

// normalized is a softmax, or its logarithm, along a dimension that may be cut.
func normalized(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	d := int(c.n.Attrs().Int("dim", 0))
	l := c.args[0]
	if len(l.dims[d]) == 0 {
		return p.op(c.n.Op(), nil, c.n.Attrs(), args, types...)
	}
	x, dt := args[0], types[0].DType()
	wide := dt
	if dt.Size() < ir.F32.Size() {
		wide = ir.F32
	}
	terms := wide
	if dt == ir.BF16 && c.n.Op() == ir.OpLogSoftmax { // which has all powers of e that f32 has, and the largest, 1, is exact
		terms = dt
	}
	if n := p.vals[c.n.Arg(0).ID()].shape[d]; l.uneven(d, n) && p.err == nil {
		x = p.masked(x, l, d, n, neutral(string(ir.Max), x.Type().DType()))
	}
	shape := p.g.local(l)
	row := slices.Clone(shape)
	row[d] = 1
	pair := func(o ir.Op, a, b *ir.Value, dt ir.DType) *ir.Value {
		return p.one(o, nil, []*ir.Value{a, b}, ir.Tensor(dt, shape...))
	}
	of := func(o ir.Op, how ir.Reduction, v *ir.Value, dt ir.DType) *ir.Value {
		v = p.one(o, ir.A("dims", []int64{int64(d)}, "keepdim", true), []*ir.Value{v}, ir.Tensor(dt, row...))
		return p.waited(ir.OpAllReduce, p.group(p.g, l.dims[d]), ir.A("reduce", string(how)), v)
	}
	less := pair(ir.OpSub, x, of(ir.OpAmax, ir.Max, x, dt), wide) // so that x need not live on
	e := p.one(ir.OpExp, nil, []*ir.Value{less}, ir.Tensor(terms, shape...))
	sum := of(ir.OpSum, ir.Sum, e, wide)
	if c.n.Op() == ir.OpSoftmax {
		return []*ir.Value{pair(ir.OpDiv, e, sum, dt)}
	}
	return []*ir.Value{pair(ir.OpSub, less, p.one(ir.OpLog, nil, []*ir.Value{sum}), dt)}
}

// telling is what it costs that ranks tell each other the numbers of each row.
func telling(p *partitioner, c *choice) int64 {
	d := int(c.n.Attrs().Int("dim", 0))
	l := c.args[0]
	if len(l.dims[d]) == 0 {
		return 0
	}
	y := p.vals[c.n.Arg(0).ID()]
	rows := tensor{slices.Clone(y.shape), int64(ir.F32.Size())}
	rows.shape[d] = 1
	return 2 * p.g.reduce(rows, p.g.with(l, d, 1, nil), setOf(l.dims[d])).cost
}

// written writes along a dimension that each rank has whole, or compares places.
func written(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	d := int(c.n.Attrs().Int("dim", 0))
	if len(c.args[0].dims[d]) > 0 {
		return []*ir.Value{p.marked(c, d, args)}
	}
	for k, n := range p.vals[c.n.Arg(1).ID()].shape {
		if c.args[1].uneven(k, n) {
			args[1] = p.masked(args[1], c.args[1], k, n, int64(0))
		}
	}
	return p.op(c.n.Op(), nil, c.n.Attrs(), args, types...)
}

// marked writes one element of each row, which is the one whose place its index is.
func (p *partitioner) marked(c *choice, d int, args []*ir.Value) *ir.Value {
	shape := slices.Repeat([]int64{1}, len(c.args[0].dims)-d)
	if p.err != nil {
		return nil
	}
	shape[0] = shapeOf(args[0])[d]
	at := p.positions(c.args[0], d)
	if dt := args[1].Type().DType(); p.err == nil && dt != at.Type().DType() {
		at = p.one(ir.OpConvert, nil, []*ir.Value{at}, ir.Tensor(dt, shapeOf(at)...))
	}
	here := p.one(ir.OpEq, nil, []*ir.Value{p.view(at, shape...), args[1]})
	base, dt := args[0], args[0].Type().DType()
	if y := p.vals[c.n.Arg(0).ID()]; y.full != nil {
		base = p.full(dt, y.full.Attrs().Float("value", 0))
	}
	if len(args) < 3 {
		args = append(args, p.full(dt, c.n.Attrs().Float("value", 0)))
	}
	return p.one(ir.OpWhere, nil, []*ir.Value{here, args[2], base})
}

// crooked reports factors along which a scatter cannot be cut: of dimensions in which its
// operands differ, but for that of the indices if there is one of each row, which replaces.
func crooked(n *ir.Node, r *sharding.Rule, f int) bool {
	d := int(n.Attrs().Int("dim", 0))
	single := !n.Attrs().Has("reduce")
	for k := range r.Operands[0] {
		at := r.Operands[1][k]
		if k == d {
			single = single && len(at) == 1 && r.Factors[at[0]].Size == 1
		} else if same := slices.Equal(at, r.Operands[0][k]); !same {
			single = false
			if along(r, 0, k, f) {
				return true
			}
		}
	}
	return along(r, 0, d, f) && !single || r.Factors[f].Kind != sharding.PassThrough
}
