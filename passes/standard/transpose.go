package standard

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// transposed makes the transpose n of a matmul's result, which nobody else reads, the matmul of
// the transposed operands in each other's place: the same sums. Matmuls read either layout at the same
// speed; what computes element by element reads its operands side by side, and may then write in
// place. So that is done where there is such a reader, or a copy, which goes; and where none depends on
// the layout.
func (c *canonicalizer) transposed(n *ir.Node) {
	m := n.Arg(0).Def()
	if m.Op() != ir.OpMatmul || !isTranspose(n) || len(m.Result(0).Uses()) != 1 || n.Ordered() || m.Ordered() || c.writes.Written(m.Result(0)) {
		return
	}
	out := ir.TensorOf(n.Result(0).Type().DType(), n.Result(0).Type().Shape())
	gains := false
	for _, u := range n.Result(0).Uses() {
		if !acceptsLayout(u.Node, n.Result(0), out) {
			return
		}
		gains = gains || u.Node.Op().Info().Elementwise || u.Node.Op() == ir.OpClone
	}
	if !gains || !c.ctx.Enable(n.Name()) {
		return
	}
	a, ok := c.transposedValue(m.Arg(1), m)
	b, ok2 := c.transposedValue(m.Arg(0), m)
	if !ok || !ok2 {
		return
	}
	c.ctx.Count("transposed", 1)
	var copies []*ir.Node
	for _, u := range n.Result(0).Uses() {
		if r := u.Node.Result(0); u.Node.Op() == ir.OpClone && r.Type().Equal(out) && !u.Node.Ordered() && !c.writes.Written(r) && !ir.Returned(r) {
			copies = append(copies, u.Node)
		}
	}
	t := c.f.InsertBefore(m, ir.NodeSpec{Op: ir.OpMatmul, Name: m.Name(), Args: []*ir.Value{a, b}, Results: []ir.Type{out}, Attrs: m.Attrs(), Pos: m.Pos(), From: []*ir.Node{m, n}})
	c.f.ReplaceUses(n.Result(0), t.Result(0))
	for _, k := range copies {
		c.f.ReplaceUses(k.Result(0), t.Result(0))
		c.f.Remove(k)
	}
	name := m.Name()
	c.f.Remove(n)
	c.f.Remove(m)
	c.f.Rename(t, name)
}

// isTranspose reports whether a permute exchanges the last two dimensions and nothing else.
func isTranspose(n *ir.Node) bool {
	if n.Op() != ir.OpPermute {
		return false
	}
	d := slices.Clone(n.Attrs().Ints("dims"))
	k := len(d)
	if k < 2 {
		return false
	}
	d[k-2], d[k-1] = d[k-1], d[k-2]
	return slices.IsSorted(d)
}

// transposedValue is v with its last two dimensions exchanged.
func (c *canonicalizer) transposedValue(v *ir.Value, at *ir.Node) (*ir.Value, bool) {
	if n := v.Def(); isTranspose(n) && !n.Ordered() {
		return n.Arg(0), true
	}
	dims := make([]int64, v.Type().Rank())
	for i := range dims {
		dims[i] = int64(i)
	}
	k := len(dims)
	dims[k-2], dims[k-1] = dims[k-1], dims[k-2]
	attrs := ir.A("dims", dims)
	got, err := ir.Infer(ir.OpPermute, nil, attrs, []ir.Type{v.Type()})
	if err != nil {
		return nil, false
	}
	return c.f.InsertBefore(at, ir.NodeSpec{Op: ir.OpPermute, Name: at.Name(), Args: []*ir.Value{v}, Results: got, Attrs: attrs, Pos: at.Pos(), From: []*ir.Node{at}}).Result(0), true
}

// acceptsLayout reports whether n gives the same results if its operand v is of type t, which differs
// in its layout. Bodies have inputs of theirs, and who is called may look at it.
func acceptsLayout(n *ir.Node, v *ir.Value, t ir.Type) bool {
	if n.Op() == ir.OpReturn || n.Op().IsView() || n.Op().IsCollective() || len(n.Op().Info().Bodies) > 0 || n.Op() == ir.OpCall || !n.Pure() || len(n.Results()) != 1 {
		return false
	}
	var args []ir.Type
	for _, a := range n.Args() {
		if a == v {
			args = append(args, t)
		} else {
			args = append(args, a.Type())
		}
	}
	want := n.Result(0).Type()
	got, err := ir.Infer(n.Op(), nil, n.Attrs(), args, want)
	return err == nil && got[0].Equal(want)
}
