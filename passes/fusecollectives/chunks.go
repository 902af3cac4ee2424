package fusecollectives

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// cutter makes the chunks of a region in one function.
type cutter struct {
	ctx      *passes.Context
	f        *ir.Func
	r        *region
	bounds   []int64                    // where chunks of a run begin and end
	made     map[ir.ValueID][]*ir.Value // by value of the region: its chunks
	cuts     map[cutKey]*ir.Value       // pieces of values from outside
	unpriced bool                       // something is not known to cost anything
	err      error
}

type cutKey struct {
	v     ir.ValueID
	t     track
	chunk int
}

// cut computes a region in chunks. It reports whether all that it made has a cost.
func cut(ctx *passes.Context, f *ir.Func, r *region, chunks int) (priced bool, err error) {
	c := &cutter{ctx: ctx, f: f, r: r, made: map[ir.ValueID][]*ir.Value{}, cuts: map[cutKey]*ir.Value{}}
	c.bounds = bounds(r.rows, int64(chunks))
	for _, id := range r.nodes {
		c.node(f.NodeByID(id))
	}
	for _, id := range r.nodes {
		c.leave(f.NodeByID(id))
	}
	if c.err != nil {
		return false, c.err
	}
	for i := len(r.nodes) - 1; i >= 0; i-- {
		f.Remove(f.NodeByID(r.nodes[i]))
	}
	return !c.unpriced, nil
}

// tile is the rows of a matmul that a multiprocessor makes at once.
const tile = 128

// bounds are where so many chunks of rows begin, and the end: at multiples of a power of two,
// up to that of tiles, so that chunks fill tiles and end where heads do. Each has two rows.
func bounds(rows, chunks int64) []int64 {
	align := int64(1)
	for align < tile && 2*align*chunks <= rows {
		align *= 2
	}
	var out []int64
	for k := range chunks {
		out = append(out, (2*rows*k+chunks*align)/(2*chunks*align)*align)
	}
	return append(out, rows)
}

func (c *cutter) size(k int) int64 { return c.bounds[k+1] - c.bounds[k] }

// node makes the chunks of a node where it stands.
func (c *cutter) node(n *ir.Node) {
	fl := c.r.flows[n.ID()]
	for k := range len(c.bounds) - 1 {
		args := make([]*ir.Value, len(n.Args()))
		for i, a := range n.Args() {
			args[i] = c.operand(n, a, fl.args[i], k)
		}
		var want []ir.Type
		for i, v := range n.Results() {
			if !v.Type().IsAsync() {
				want = append(want, fl.outs[i].piece(v.Type(), c.size(k)))
			}
		}
		m := c.insert(n, n, ir.NodeSpec{Op: n.Op(), Name: fmt.Sprintf("%s.%d", n.Name(), k), Args: args, Group: n.Group(), Attrs: n.Attrs(), Meta: n.Meta().Without(passes.MembersKey)}, want)
		if m == nil {
			return
		}
		for i, v := range n.Results() {
			c.made[v.ID()] = append(c.made[v.ID()], m.Result(i))
		}
		c.price(m, n, float64(c.size(k))/float64(c.r.rows))
	}
}

// operand is what chunk k of n reads of a.
func (c *cutter) operand(n *ir.Node, a *ir.Value, t track, k int) *ir.Value {
	if made, ok := c.made[a.ID()]; ok {
		return made[k]
	}
	if t.dim < 0 || c.err != nil {
		return a
	}
	key := cutKey{a.ID(), t, k}
	if v := c.cuts[key]; v != nil {
		return v
	}
	v, d := a, t.dim
	if t.runs > 1 {
		whole := cutKey{a.ID(), t, -1}
		if v = c.cuts[whole]; v == nil {
			v = c.view(n, c.rowMajor(n, a), c.apart(a.Type(), t, c.r.rows))
			c.cuts[whole] = v
		}
		d++
	}
	v = c.one(n, ir.OpSlice, ir.A("dim", int64(d), "end", c.bounds[k+1]*t.each, "start", c.bounds[k]*t.each), v)
	if t.runs > 1 {
		v = c.view(n, c.rowMajor(n, v), t.piece(a.Type(), c.size(k)))
	}
	c.cuts[key] = v
	return v
}

// apart is a type with the runs in a dimension of their own.
func (c *cutter) apart(t ir.Type, tr track, rows int64) ir.Type {
	shape := append(ir.Shape(nil), t.Shape()[:tr.dim]...)
	shape = append(shape, ir.D(tr.runs), ir.D(rows*tr.each))
	return ir.TensorOf(t.DType(), append(shape, t.Shape()[tr.dim+1:]...))
}

// rowMajor is v, copied if it does not lie in row-major order.
func (c *cutter) rowMajor(at *ir.Node, v *ir.Value) *ir.Value {
	if c.err != nil || v.Type().Contiguous() {
		return v
	}
	return c.one(at, ir.OpClone, nil, v)
}

func (c *cutter) view(at *ir.Node, v *ir.Value, t ir.Type) *ir.Value {
	if c.err != nil || v.Type().Shape().Equal(t.Shape()) {
		return v
	}
	return c.result(c.insert(at, nil, ir.NodeSpec{Op: ir.OpView, Name: at.Name() + ".view", Args: []*ir.Value{v}}, []ir.Type{t}), v)
}

// one makes an operation on values from outside of a chunk.
func (c *cutter) one(at *ir.Node, op ir.Op, attrs ir.Attrs, args ...*ir.Value) *ir.Value {
	if c.err != nil {
		return args[0]
	}
	m := c.insert(at, nil, ir.NodeSpec{Op: op, Name: at.Name() + "." + op.Name(), Args: args, Attrs: attrs}, nil)
	if m != nil && deps.Launches(m) {
		c.known(m)
	}
	return c.result(m, args[0])
}

// known notes what nothing is known to cost.
func (c *cutter) known(m *ir.Node) {
	if costs := c.ctx.Costs(); costs != nil {
		if _, ok := costs.NodeMs(m); ok {
			return
		}
	}
	c.unpriced = true
}

func (c *cutter) result(m *ir.Node, or *ir.Value) *ir.Value {
	if m == nil {
		return or
	}
	return m.Result(0)
}

// insert makes a node before at, from is what it stands for if not at. What does not fit is a
// mistake of the table of rules.
func (c *cutter) insert(at, from *ir.Node, spec ir.NodeSpec, want []ir.Type) *ir.Node {
	if c.err != nil {
		return nil
	}
	types := make([]ir.Type, len(spec.Args))
	for i, a := range spec.Args {
		types[i] = a.Type()
	}
	got, err := ir.Infer(spec.Op, spec.Group, spec.Attrs, types, want...)
	if err != nil {
		c.err = fmt.Errorf("fuse-collectives: a chunk of %%%s: %w", at.Name(), err)
		return nil
	}
	spec.Results, spec.Pos, spec.From = got, at.Pos(), []*ir.Node{at}
	if from != nil {
		spec.From = []*ir.Node{from}
	}
	return c.f.InsertBefore(at, spec)
}

// price gives a chunk its part of the cost attached to the whole: as the cost model has it of
// both, or else by their rows.
func (c *cutter) price(m, whole *ir.Node, share float64) {
	ms, ok := whole.Cost()
	if !ok {
		return
	}
	if costs := c.ctx.Costs(); costs != nil {
		part, known := costs.NodeMs(m)
		c.f.SetCost(whole, noCost)
		all, too := costs.NodeMs(whole)
		c.f.SetCost(whole, ms)
		if known && too && all > 0 {
			share = part / all
		}
	}
	c.f.SetCost(m, min(ms*share, ir.MaxCost))
}

// leave puts the chunks of what others read together again.
func (c *cutter) leave(n *ir.Node) {
	for i, v := range n.Results() {
		outside := false
		for _, u := range v.Uses() {
			_, in := c.r.flows[u.Node.ID()]
			outside = outside || !in
		}
		if !outside || c.err != nil || v.Type().IsAsync() {
			continue
		}
		t := c.r.flows[n.ID()].outs[i]
		parts, d := c.made[v.ID()], t.dim
		if t.runs > 1 {
			parts = nil
			for k, p := range c.made[v.ID()] {
				parts = append(parts, c.view(n, c.rowMajor(n, p), c.apart(v.Type(), t, c.size(k))))
			}
			d++
		}
		whole := c.view(n, c.one(n, ir.OpCat, ir.A("dim", int64(d)), parts...), ir.TensorOf(v.Type().DType(), v.Type().Shape()))
		if c.err == nil && !whole.Type().Equal(v.Type()) {
			m := c.f.InsertBefore(n, ir.NodeSpec{Op: ir.OpClone, Name: n.Name() + ".clone", Args: []*ir.Value{whole}, Results: []ir.Type{v.Type()}, Pos: n.Pos(), From: []*ir.Node{n}})
			c.known(m)
			whole = m.Result(0)
		}
		if c.err != nil {
			return
		}
		for _, u := range append([]ir.Use(nil), v.Uses()...) {
			if _, in := c.r.flows[u.Node.ID()]; !in {
				c.f.SetArg(u.Node, u.Index, whole)
			}
		}
		if len(n.Results()) == 1 {
			name := n.Name()
			c.f.Rename(n, name+".whole")
			c.f.Rename(whole.Def(), name)
		}
	}
}
