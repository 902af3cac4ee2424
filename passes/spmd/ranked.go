package spmd

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// This file has topk and argmax along a sharded dimension: each rank takes the topk of its shard, these
// and their global indices are gathered, and the topk of them is taken. Ties keep the lowest index
// first, since shards are gathered in order.

// few is the factor of the dimension along which topk goes, if not all of it is wanted (a sort).
func few(n *ir.Node, r *sharding.Rule, f int) bool {
	d := int(n.Attrs().Int("dim", 0))
	dt := n.Arg(0).Type().DType()
	return along(r, 0, d, f) && dt != ir.Bool && (!dt.IsFloat() || dt.Size() > 1) && (n.Op() == ir.OpArgmax || !slices.Contains(r.Results[0][d], f))
}

// wanted is how many of the best an operation is for.
func wanted(n *ir.Node) int64 { return n.Attrs().Int("k", 1) }

// finalists is the cost of gathering the topk of each shard.
func finalists(p *partitioner, c *choice) int64 {
	d := int(c.n.Attrs().Int("dim", 0))
	y, l := p.vals[c.n.Arg(0).ID()], c.args[0]
	k := p.g.size(l.dims[d])
	if k == 1 || p.how.near {
		return 0
	}
	rows := tensor{slices.Clone(y.shape), y.bytes + int64(ir.I64.Size())}
	rows.shape[d] = k * min(wanted(c.n), p.g.local(l)[d])
	at := p.g.with(l, d, rows.shape[d], l.dims[d])
	return latency + p.g.gather(rows, at, d, len(l.dims[d])).cost + 3*launch
}

// worst is the padding of a shard: it sorts last, and is never in front of an equal element, whose
// index is lower.
func worst(dt ir.DType, largest bool) any {
	switch {
	case largest:
		return neutral(string(ir.Max), dt)
	case dt.IsFloat():
		return math.NaN()
	}
	return neutral(string(ir.Min), dt)
}

// bestOf is topk or argmax along a dimension that may be sharded.
func bestOf(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	a := c.n.Attrs()
	d, l := int(a.Int("dim", 0)), c.args[0]
	if len(l.dims[d]) == 0 {
		return p.op(c.n.Op(), nil, a, args, types...)
	}
	x, along := args[0], ir.A("dim", int64(d))
	if n := p.vals[c.n.Arg(0).ID()].shape[d]; l.uneven(d, n) {
		x = p.masked(x, l, d, n, worst(x.Type().DType(), a.Bool("largest", true)))
	}
	picked := func(v, places *ir.Value) *ir.Value { return p.one(ir.OpGather, along, []*ir.Value{v, places}) }
	all := func(v *ir.Value) *ir.Value {
		return p.waited(ir.OpAllGather, p.group(p.g, l.dims[d]), along, v)
	}
	values, places := p.best(c.n, x)
	if values == nil {
		values = picked(x, places)
	}
	places = all(p.one(ir.OpAdd, nil, []*ir.Value{places, p.start(l, d, ir.I64)}))
	values, among := p.best(c.n, all(values))
	places = picked(places, among)
	if c.n.Op() == ir.OpTopk {
		return []*ir.Value{values, places}
	}
	return []*ir.Value{p.view(places, p.g.local(c.outs[0])...)}
}

// best is the topk of a shard, or its argmax, which gives the index alone.
func (p *partitioner) best(n *ir.Node, v *ir.Value) (values, places *ir.Value) {
	if p.err != nil {
		return nil, nil
	}
	a := n.Attrs()
	if n.Op() == ir.OpArgmax {
		return nil, p.one(ir.OpArgmax, a.With("keepdim", ir.A("keepdim", true)[0].Val), []*ir.Value{v})
	}
	k := min(wanted(n), shapeOf(v)[a.Int("dim", 0)])
	out := p.op(ir.OpTopk, nil, a.With("k", ir.A("k", k)[0].Val), []*ir.Value{v})
	return out[0], out[1]
}
