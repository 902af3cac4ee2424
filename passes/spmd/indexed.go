package spmd

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// This file has operations that read or write at places that tensors say. Where what they
// index is cut, a rank reads what is its own and gives zeros for the rest, or writes what is
// its own; where the places are cut and what is written adds up, each rank adds its part, and
// one of them what was there before.

// places are the dimensions that an operation indexes, and the operands that say where.
func places(n *ir.Node) (dims []int64, first int) {
	switch n.Op() {
	case ir.OpIndex:
		return n.Attrs().Ints("dims"), 1
	case ir.OpIndexPut:
		return n.Attrs().Ints("dims"), 2
	case ir.OpEmbedding:
		return []int64{0}, 1
	}
	return []int64{n.Attrs().Int("dim", 0)}, 1
}

// start is where a rank's piece of a dimension begins, as a number.
func (p *partitioner) start(l layout, d int, dt ir.DType) *ir.Value {
	k := p.g.size(l.dims[d])
	all := p.one(ir.OpIota, ir.A("start", int64(0), "step", l.pad[d]/k), nil, ir.Tensor(dt, k))
	mine := p.op(ir.OpShard, p.group(p.g, l.dims[d]), ir.A("dim", int64(0)), []*ir.Value{all})[0]
	return p.view(mine)
}

// own brings places into a rank's piece, and says which lie there. Places behind the end of
// a list of them are no places.
func (p *partitioner) own(c *choice, args []*ir.Value) (in *ir.Value) {
	dims, first := places(c.n)
	and := func(b *ir.Value) {
		if in == nil {
			in = b
		} else {
			in = p.one(ir.OpLogicalAnd, nil, []*ir.Value{in, b})
		}
	}
	for i, d := range dims {
		at := first + i
		x, dt := args[at], args[at].Type().DType()
		zero := p.full(dt, int64(0))
		for k, n := range p.vals[c.n.Arg(at).ID()].shape {
			if p.err == nil && c.args[at].uneven(k, n) {
				shape := slices.Repeat([]int64{1}, len(c.args[at].dims)-k)
				shape[0] = shapeOf(x)[k]
				b := p.view(p.one(ir.OpLt, ir.A("scalar", float64(n)), []*ir.Value{p.positions(c.args[at], k)}), shape...)
				b = p.one(ir.OpExpand, nil, []*ir.Value{b}, ir.Tensor(ir.Bool, shapeOf(x)...))
				x = p.one(ir.OpWhere, nil, []*ir.Value{b, x, zero})
				and(b)
			}
		}
		if l := c.args[0]; len(l.dims[d]) > 0 && p.err == nil {
			size := p.g.local(l)[d]
			if c.n.Op() == ir.OpIndex || c.n.Op() == ir.OpIndexPut { // places below 0 count from the end
				back := p.one(ir.OpAdd, ir.A("scalar", float64(p.vals[c.n.Arg(0).ID()].shape[d])), []*ir.Value{x})
				x = p.one(ir.OpWhere, nil, []*ir.Value{p.one(ir.OpLt, ir.A("scalar", 0.0), []*ir.Value{x}), back, x})
			}
			x = p.one(ir.OpSub, nil, []*ir.Value{x, p.start(l, int(d), dt)})
			low := p.one(ir.OpGe, ir.A("scalar", 0.0), []*ir.Value{x})
			b := p.one(ir.OpLogicalAnd, nil, []*ir.Value{low, p.one(ir.OpLt, ir.A("scalar", float64(size)), []*ir.Value{x})})
			x = p.one(ir.OpWhere, nil, []*ir.Value{b, x, zero})
			and(b)
		}
		args[at] = x
	}
	return in
}

// only keeps elements where a condition holds that stands at dimension d of them.
func (p *partitioner) only(in, v *ir.Value, d, rank int) *ir.Value {
	if in == nil || p.err != nil {
		return v
	}
	shape := slices.Clone(shapeOf(in))
	in = p.view(in, append(shape, slices.Repeat([]int64{1}, rank-d-len(shape))...)...)
	return p.one(ir.OpWhere, nil, []*ir.Value{in, v, p.full(v.Type().DType(), 0.0)})
}

// front is where the places of an operation stand among the dimensions of what they read.
func front(n *ir.Node) int {
	dims, _ := places(n)
	if n.Op() == ir.OpEmbedding || n.Op() == ir.OpGather {
		return 0
	}
	if slices.IsSorted(dims) && dims[len(dims)-1]-dims[0] == int64(len(dims)-1) {
		return int(dims[0])
	}
	return 0
}

// countedOf is what a rank takes of what is read at places that follow each other.
func countedOf(p *partitioner, c *choice, i, d int) ([]reach, bool) {
	if i > 0 || !slices.ContainsFunc(c.rule.Operands[0][d], func(f int) bool { return c.rule.Factors[f].Kind == sharding.Permutation }) {
		return nil, true
	}
	first, step := counting(c.n)
	m := p.g.local(c.outs[0])[d]
	w := reach{first: first, step: m * step, count: (m-1)*step + 1}
	if step < 0 {
		w.first, w.count = first+(m-1)*step, -(m-1)*step+1
	}
	return []reach{w}, true
}

// counting is where places begin that follow each other, and how far they are apart.
func counting(n *ir.Node) (first, step int64) {
	a := n.Arg(1).Def().Attrs()
	return a.Int("start", 0), a.Int("step", 1)
}

// counted reads places that follow each other.
func (p *partitioner) counted(c *choice, d int, v *ir.Value, w reach) *ir.Value {
	v = p.takes(c, 0, d, v, w)
	_, step := counting(c.n)
	if w.count == 1 || step == 1 {
		return v
	}
	begin, m := int64(0), p.g.local(c.outs[0])[d]
	if step < 0 {
		begin = w.count - 1
	}
	at := p.one(ir.OpIota, ir.A("start", begin, "step", step), nil, ir.Tensor(ir.I64, m))
	return p.one(ir.OpIndex, ir.A("dims", []int64{int64(d)}), []*ir.Value{v, at})
}

// strided reports the factor along which slices are replaced that are not one row after the other.
func strided(n *ir.Node, r *sharding.Rule, f int) bool {
	return n.Attrs().Int("step", 1) != 1 && attrDim(n, r, f)
}

// overwritten has other rows in the place of some: each rank those that lie in its piece.
func overwritten(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	d, l := int(c.n.Attrs().Int("dim", 0)), c.args[0]
	if len(l.dims[d]) == 0 {
		return p.op(c.n.Op(), nil, c.n.Attrs(), args, types...)
	}
	count, dt := p.vals[c.n.Arg(1).ID()].shape[d], types[0].DType()
	start := c.n.Attrs().Int("start", 0)
	rows := []*ir.Value{args[1]}
	zeros := func(n int64) []*ir.Value {
		shape := p.g.local(c.args[1])
		if shape[d] = n; n == 0 {
			return nil
		}
		return []*ir.Value{p.full(dt, 0.0, shape...)}
	}
	rows = slices.Concat(zeros(start), rows, zeros(l.pad[d]-start-count))
	v := rows[0]
	if len(rows) > 1 {
		v = p.one(ir.OpCat, ir.A("dim", int64(d)), rows)
	}
	if p.err != nil {
		return []*ir.Value{nil}
	}
	v = p.op(ir.OpShard, p.group(p.g, l.dims[d]), ir.A("dim", int64(d)), []*ir.Value{v})[0]
	at := p.positions(l, d)
	in := p.one(ir.OpGe, ir.A("scalar", float64(start)), []*ir.Value{at})
	in = p.one(ir.OpLogicalAnd, nil, []*ir.Value{in, p.one(ir.OpLt, ir.A("scalar", float64(start+count)), []*ir.Value{at})})
	if p.err != nil {
		return []*ir.Value{nil}
	}
	shape := slices.Repeat([]int64{1}, len(l.dims)-d)
	shape[0] = shapeOf(in)[0]
	return []*ir.Value{p.one(ir.OpWhere, nil, []*ir.Value{p.view(in, shape...), v, args[0]})}
}

// read reads what is a rank's own.
func read(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	for d := range c.args[0].dims {
		if w, _ := countedOf(p, c, 0, d); w != nil && len(c.args[0].dims[d]) > 0 {
			return []*ir.Value{p.counted(c, d, args[0], w[0])}
		}
	}
	in := p.own(c, args)
	out := p.op(c.n.Op(), nil, c.n.Attrs(), args, types...)
	if len(c.cutPlaces()) == 0 {
		return out
	}
	return []*ir.Value{p.only(in, out[0], front(c.n), types[0].Rank())}
}

// cutPlaces are the indexed dimensions that are cut.
func (c *choice) cutPlaces() []int64 {
	dims, _ := places(c.n)
	return slices.DeleteFunc(slices.Clone(dims), func(d int64) bool { return len(c.args[0].dims[d]) == 0 })
}

// added adds what is a rank's own, or its part.
func added(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	in := p.own(c, args)
	values, d := 1, front(c.n)
	if c.n.Op() == ir.OpIndexAdd {
		values, d = 2, int(c.n.Attrs().Int("dim", 0))
	}
	if in != nil && p.err == nil {
		args[values] = p.only(in, args[values], d, len(p.vals[c.n.Result(0).ID()].shape)-len(c.indexed())+len(shapeOf(in)))
	}
	parts := set(0)
	for f, l := range c.atoms {
		if c.rule.Factors[f].Kind == sharding.Reduction {
			parts |= setOf(l)
		}
	}
	if parts != 0 {
		l := layout{dims: [][]int8{parts.list()}, pad: []int64{p.g.size(parts.list())}}
		first := p.one(ir.OpEq, ir.A("scalar", 0.0), []*ir.Value{p.start(l, 0, ir.I64)})
		if p.err == nil {
			args[0] = p.one(ir.OpWhere, nil, []*ir.Value{first, args[0], p.full(args[0].Type().DType(), 0.0)})
		}
	}
	return p.op(c.n.Op(), nil, c.n.Attrs(), args, types...)
}

// indexed are the dimensions that the operation indexes.
func (c *choice) indexed() []int64 {
	dims, _ := places(c.n)
	return dims
}

// replaces reports factors of what is written in the place of something else: the order in
// which ranks would write is none.
func replaces(dims func(*ir.Node, *sharding.Rule, int) bool) func(*ir.Node, *sharding.Rule, int) bool {
	return func(n *ir.Node, r *sharding.Rule, f int) bool {
		if n.Op() == ir.OpIndexAdd || n.Op() == ir.OpIndexPut && n.Attrs().Bool("accumulate", false) {
			return false
		}
		return dims(n, r, f) || r.Factors[f].Kind == sharding.Reduction
	}
}
