package spmd

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// choice is one way to compute an operation on pieces.
type choice struct {
	n     *ir.Node
	rule  *sharding.Rule
	atoms [][]int8 // by factor
	parts [][]part // by factor: what it is cut in; nil of one that is cut as a whole
	sum   set      // operands are parts of sums along these atoms, and so is the result
	args  []layout
	outs  []layout
	work  int64 // what computing costs
	cost  int64 // and bringing tensors into place
}

// tensors are those of a rule: operands, then results.
func tensors(r *sharding.Rule) []sharding.Tensor { return slices.Concat(r.Operands, r.Results) }

// node partitions an operation.
func (p *partitioner) node(n *ir.Node) {
	w := rowOf(n.Op())
	if n.Op() == ir.OpAlias && n.Meta().Has(sharding.Key) {
		x, y := p.vals[n.Arg(0).ID()], p.vals[n.Result(0).ID()]
		y.forms, y.vary = slices.Clone(x.forms), x.vary
		p.settle(y)
		p.get(y, y.want.reduced())
		return
	}
	if x := p.same(n); x != nil {
		x.uses += p.vals[n.Result(0).ID()].uses - 1
		p.vals[n.Result(0).ID()] = x
		return
	}
	vary := set(0)
	for _, v := range n.Args() {
		vary |= p.vals[v.ID()].vary
	}
	if asksRank(n) {
		vary = set(1)<<len(p.g.atoms) - 1
	}
	for _, v := range n.Results() {
		y := p.vals[v.ID()]
		y.vary = vary
		p.settle(y)
	}
	rule, err := sharding.Of(n)
	if err != nil {
		p.err = err
		return
	}
	c := p.choose(n, rule, w, vary)
	p.cost += c.work
	p.emit(c, w)
}

// same is the operand of a node that changes nothing but strides.
func (p *partitioner) same(n *ir.Node) *value {
	if n.Op() != ir.OpView && n.Op() != ir.OpAlias {
		return nil
	}
	x := p.vals[n.Arg(0).ID()]
	if !slices.Equal(x.shape, p.vals[n.Result(0).ID()].shape) {
		return nil
	}
	return x
}

// asksRank reports whether a node runs bodies in which something is among ranks.
func asksRank(n *ir.Node) bool {
	for _, f := range n.Bodies() {
		for _, b := range f.Order() {
			if b.Group() != nil || asksRank(b) {
				return true
			}
		}
	}
	return n.Group() != nil
}

// choose is the cheapest way to compute an operation.
func (p *partitioner) choose(n *ir.Node, rule *sharding.Rule, w row, vary set) *choice {
	var best *choice
	carried := p.carried(n, w)
	for _, k := range p.candidates(n, rule, w) {
		for _, sum := range []set{carried, 0} {
			c := &choice{n: n, rule: rule, sum: sum, atoms: slices.Clone(k.atoms), parts: slices.Clone(k.parts)}
			p.legal(c, w, vary|sum)
			p.lay(c, w)
			if c.cost = p.price(c); best == nil || c.cost < best.cost {
				best = c
			}
			if carried == 0 {
				break
			}
		}
	}
	return best
}

// carried are the atoms along which all operands are partial sums without other readers,
// if the operation may be computed on the parts.
func (p *partitioner) carried(n *ir.Node, w row) set {
	if (w.linear == nil || !w.linear(n)) && !(p.how.narrow && rounds(n)) {
		return 0
	}
	sum := set(0)
	for i, v := range n.Args() {
		y := p.vals[v.ID()]
		f := y.forms[0]
		if len(y.forms) > 1 || y.uses > 1 || f.sum == 0 || f.reduce != string(ir.Sum) || i > 0 && f.sum != sum {
			return 0
		}
		sum = f.sum
	}
	return sum
}

// rounds reports whether an operation rounds to 16-bit floats.
func rounds(n *ir.Node) bool {
	if n.Op() != ir.OpConvert {
		return false
	}
	from, to := n.Arg(0).Type().DType(), n.Result(0).Type().DType()
	return from.IsFloat() && from.Size() > 2 && (to == ir.BF16 || to == ir.F16)
}

// widens reports whether an operation converts to a type of more bytes, in front of which less is
// communicated.
func widens(n *ir.Node) bool {
	return n.Op() == ir.OpConvert && n.Arg(0).Type().DType().Size() < n.Result(0).Type().DType().Size()
}

// roundedLater reports whether nothing reads v's elements but what rounds them, in whatever order they lie.
func roundedLater(v *ir.Value) bool {
	for len(v.Uses()) == 1 {
		n := v.Uses()[0].Node
		if rounds(n) {
			return true
		}
		if !n.Op().IsView() && n.Op() != ir.OpClone || len(n.Results()) != 1 {
			return false
		}
		v = n.Result(0)
	}
	return false
}

// legal takes from factors the atoms by which the operation cannot be cut.
func (p *partitioner) legal(c *choice, w row, without set) {
	n, r, atoms := c.n, c.rule, c.atoms
	c.atoms = make([][]int8, len(atoms))
	used := without
	for f, l := range atoms {
		if !w.cuts(n, r, f) {
			c.parts[f] = nil
			continue
		}
		l = while(l, func(a int8) bool { return used&(1<<a) == 0 })
		if p.g.size(l) > r.Factors[f].Size {
			l = p.dividing(l, r.Factors[f].Size)
		}
		if c.parts[f] != nil && (len(l) < len(atoms[f]) || w.emit != nil && !w.parts || r.Factors[f].Kind != sharding.PassThrough) {
			l, c.parts[f] = nil, nil
		}
		c.atoms[f] = slices.Clone(l)
		used |= setOf(l)
	}
	for again := true; again; {
		again = false
		shorten := func(f int, l []int8) {
			if len(l) < len(c.atoms[f]) {
				c.atoms[f], again = l, true
			}
		}
		for f := range c.atoms {
			if w.even != nil && w.even(n, r, f) {
				shorten(f, p.dividing(c.atoms[f], r.Factors[f].Size))
			}
		}
		for _, t := range tensors(r) {
			for _, factors := range t {
				full := true
				for _, f := range factors {
					if len(factors) == 1 {
						break
					}
					if !full && !w.parts || c.parts[f] != nil {
						shorten(f, nil)
						c.parts[f] = nil
					}
					shorten(f, p.dividing(c.atoms[f], r.Factors[f].Size))
					full = full && p.g.size(c.atoms[f]) == r.Factors[f].Size
				}
			}
		}
	}
}

// dividing are the first atoms that divide a size.
func (p *partitioner) dividing(l []int8, n int64) []int8 {
	return while(l, func(a int8) bool {
		ok := n%p.g.atoms[a].size == 0
		n /= p.g.atoms[a].size
		return ok
	})
}

// lay finds the layouts of operands and results.
func (p *partitioner) lay(c *choice, w row) {
	one := func(v *ir.Value, t sharding.Tensor) layout {
		shape := p.vals[v.ID()].shape
		l := whole(shape)
		for d, factors := range t {
			for _, f := range factors {
				l.dims[d] = append(l.dims[d], c.atoms[f]...)
			}
			if len(factors) == 1 {
				l.cut(d, c.parts[factors[0]])
			} else {
				var parts []part
				for _, f := range factors {
					parts = append(parts, part{c.rule.Factors[f].Size, len(c.atoms[f])})
				}
				l.cut(d, p.g.joined(parts, l.dims[d]))
			}
			l.pad[d] = roundUp(shape[d], p.g.size(l.dims[d]))
		}
		if c.sum != 0 {
			l.sum, l.reduce = c.sum, string(ir.Sum)
		}
		return l
	}
	for i, v := range c.n.Args() {
		c.args = append(c.args, one(v, c.rule.Operands[i]))
	}
	for i, v := range c.n.Results() {
		l := one(v, c.rule.Results[i])
		for f, atoms := range c.atoms {
			in := func(dim []int) bool { return slices.Contains(dim, f) }
			if c.rule.Factors[f].Kind == sharding.Reduction && !slices.ContainsFunc(c.rule.Results[i], in) && len(atoms) > 0 {
				l.sum, l.reduce = l.sum|setOf(atoms), w.reduction(c.n)
			}
		}
		c.outs = append(c.outs, l)
	}
}

// price is what a choice costs: bringing operands into place, computing, and bringing the
// results to where they are wanted.
func (p *partitioner) price(c *choice) int64 {
	cost := int64(0)
	for i, v := range c.n.Args() {
		y := p.vals[v.ID()]
		_, k := p.nearest(y, c.args[i])
		if p.how.still && y.param {
			k *= dear
		}
		cost += k
		c.work += p.g.bytes(y.tensor, c.args[i]) / perMemory
	}
	for i, v := range c.n.Results() {
		y := p.vals[v.ID()]
		if !p.joins(v, c.outs[i]) {
			_, k := p.g.plan(y.tensor, c.outs[i], p.aim(y, c.outs[i]))
			if p.how.narrow && c.outs[i].sum != 0 && roundedLater(v) {
				k /= 2
			}
			cost += k
		}
		c.work += p.g.bytes(y.tensor, c.outs[i]) / perMemory
	}
	if extra := rowOf(c.n.Op()).extra; extra != nil {
		cost += extra(p, c)
	}
	c.work += p.flops(c) / 500
	return cost + c.work
}

// flops are what each rank computes in an operation whose time is not that of its memory traffic.
// The factors of others say which dimensions belong together, not how often something is computed.
func (p *partitioner) flops(c *choice) int64 {
	r := c.rule
	var loops []int // factors
	switch c.n.Op() {
	case ir.OpMatmul, ir.OpAddmm, ir.OpConvolution:
		loops = slices.Concat(slices.Concat(tensors(r)...)...)
	case ir.OpGroupedMatmul: // each row is multiplied in one group
		loops = slices.Concat(slices.Concat(r.Operands[0], r.Results[0])...)
	case ir.OpAttention, ir.OpAttentionBackward:
		q := 0
		if c.n.Op() == ir.OpAttentionBackward {
			q = 1 // after the gradient
		}
		loops = slices.Concat(slices.Concat(r.Operands[q]...), r.Operands[q+1][2])
	default:
		return 0
	}
	slices.Sort(loops)
	flops := int64(2)
	for _, f := range slices.Compact(loops) {
		flops *= (r.Factors[f].Size + p.g.size(c.atoms[f]) - 1) / p.g.size(c.atoms[f])
	}
	return flops
}

// joins reports whether parts of a sum are added to others that lie so, whose reduction is then
// that of both: it is paid for.
func (p *partitioner) joins(v *ir.Value, l layout) bool {
	for l.sum != 0 && len(v.Uses()) == 1 {
		n := v.Uses()[0].Node
		if n.Op() == ir.OpView && len(n.Result(0).Uses()) == 1 { // in front of the sum
			v = n.Result(0)
			continue
		}
		if n.Op() != ir.OpAdd || !both(n) {
			return false
		}
		o := p.vals[n.Arg(1-v.Uses()[0].Index).ID()]
		return len(o.forms) == 1 && o.uses == 1 && o.forms[0].sum == l.sum && o.forms[0].reduce == l.reduce
	}
	return false
}

// aim is the layout in which a result is wanted that lies so: a dimension that is cut further
// than what is wanted of it stays so.
func (p *partitioner) aim(y *value, l layout) layout {
	out := l.reduced()
	taken := set(0)
	further := func(d int) bool {
		n := len(y.want.dims[d])
		return n <= len(l.dims[d]) && slices.Equal(y.want.dims[d], l.dims[d][:n])
	}
	for d := range y.shape {
		if !further(d) {
			taken |= setOf(y.want.dims[d])
			out.pad, out.dims = slices.Clone(out.pad), slices.Clone(out.dims)
			out.dims[d], out.pad[d] = y.want.dims[d], y.want.pad[d]
			out.cut(d, y.want.of(d))
		}
	}
	for d := range y.shape {
		if further(d) && setOf(l.dims[d])&taken != 0 {
			out.dims[d], out.pad[d] = y.want.dims[d], y.want.pad[d]
			out.cut(d, y.want.of(d))
		}
	}
	return out
}

// emit computes the operation on pieces.
func (p *partitioner) emit(c *choice, w row) {
	args := make([]*ir.Value, len(c.args))
	for i, v := range c.n.Args() {
		args[i] = p.get(p.vals[v.ID()], c.args[i])
	}
	var types []ir.Type
	for i, v := range c.n.Results() {
		types = append(types, ir.Tensor(v.Type().DType(), p.g.local(c.outs[i])...))
	}
	outs := p.compute(c, w, args, types)
	if p.err != nil {
		return
	}
	for i, v := range c.n.Results() {
		y := p.vals[v.ID()]
		y.forms = []form{{c.outs[i], outs[i]}}
		switch {
		case c.n.Op() == ir.OpFull:
			y.full = c.n
		case c.n.Op().IsView() && len(c.n.Results()) == 1 && c.n.Op() != ir.OpAsStrided && c.sum == 0:
			y.of, y.view = p.vals[c.n.Arg(0).ID()], c
			y.param = y.of.param
		case widens(c.n) && c.sum == 0:
			y.of, y.view = p.vals[c.n.Arg(0).ID()], c
		}
	}
}

// compute computes the operation on pieces.
func (p *partitioner) compute(c *choice, w row, args []*ir.Value, types []ir.Type) []*ir.Value {
	if p.err != nil {
		return nil
	}
	if w.emit != nil {
		return w.emit(p, c, args, types)
	}
	p.mask(c, w, args)
	return p.op(c.n.Op(), c.n.Group(), c.n.Attrs(), args, types...)
}

// mask puts what does not count into the places of operands behind the ends of what is
// reduced.
func (p *partitioner) mask(c *choice, w row, args []*ir.Value) {
	for i, t := range c.rule.Operands {
		for d, factors := range t {
			f := factors[0]
			n := p.vals[c.n.Arg(i).ID()].shape[d]
			if len(factors) == 1 && c.rule.Factors[f].Kind == sharding.Reduction && c.args[i].uneven(d, n) {
				args[i] = p.masked(args[i], c.args[i], d, n, neutral(w.reduction(c.n), args[i].Type().DType()))
			}
		}
	}
}

// masked has a number where a dimension of n has ended.
func (p *partitioner) masked(v *ir.Value, l layout, d int, n int64, number any) *ir.Value {
	if p.err != nil {
		return v
	}
	at := p.positions(l, d)
	in := p.one(ir.OpLt, ir.A("scalar", float64(n)), []*ir.Value{at})
	shape := slices.Repeat([]int64{1}, len(l.dims)-d)
	shape[0] = shapeOf(v)[d]
	in = p.view(in, shape...)
	return p.one(ir.OpWhere, nil, []*ir.Value{in, v, p.full(v.Type().DType(), number)})
}

// positions are the places in the global tensor of a piece's elements along a dimension.
func (p *partitioner) positions(l layout, d int) *ir.Value {
	v := p.one(ir.OpIota, nil, nil, ir.Tensor(ir.I64, l.pad[d]))
	parts, left := l.of(d), l.dims[d]
	if parts == nil {
		parts = []part{{l.pad[d], len(left)}}
	}
	sizes := make([]int64, len(parts))
	for i, x := range parts {
		sizes[i] = x.size
	}
	v = p.view(v, sizes...)
	for i, x := range parts {
		if x.n > 0 && p.err == nil {
			v = p.op(ir.OpShard, p.group(p.g, left[:x.n]), ir.A("dim", int64(i)), []*ir.Value{v})[0]
		}
		left = left[x.n:]
	}
	return p.view(v, l.pad[d]/p.g.size(l.dims[d]))
}
