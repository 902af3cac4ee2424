package standard

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// narrowMatmul lets a matmul of 16-bit floats that were widened to f32 read them as they are: it
// makes its sums in f32 by itself. Where nobody reads the result but a conversion back to
// their type, it rounds, too, as the conversion did. Both are exact, and units for 16-bit
// floats are many times as fast as those for f32. Views and copies between stay.
func (c *canonicalizer) narrowMatmul(n *ir.Node) {
	r := n.Result(0)
	x, ok := c.widened(n.Arg(0))
	y, ok2 := c.widened(n.Arg(1))
	if !ok || !ok2 || r.Type().DType() != ir.F32 || x.dtype() != y.dtype() || c.writes.Written(r) || n.Ordered() || !c.ctx.Enable(n.Name()) {
		return
	}
	a, ok := c.reapply(x.moves, x.from, n)
	b, ok2 := c.reapply(y.moves, y.from, n)
	if !ok || !ok2 {
		return
	}
	c.ctx.Count("narrowed", 1)
	name := n.Name()
	dt, out, end := ir.F32, []*ir.Node(nil), r
	if moves, back, ok := c.rounded(r, x.dtype()); ok {
		dt, out, end = x.dtype(), moves, back
	}
	m := c.f.InsertBefore(n, ir.NodeSpec{Op: ir.OpMatmul, Name: n.Name(), Args: []*ir.Value{a, b}, Results: []ir.Type{r.Type().WithDType(dt)}, Attrs: n.Attrs(), Pos: n.Pos(), From: []*ir.Node{n}})
	v := m.Result(0)
	if end != r {
		// Views of a result that is as it was hold for it in another type, too.
		v, _ = c.reapply(out, v, end.Def())
		if !v.Type().Equal(end.Type()) {
			v = c.f.InsertBefore(end.Def(), ir.NodeSpec{Op: ir.OpClone, Name: end.Def().Name(), Args: []*ir.Value{v}, Results: []ir.Type{end.Type()}, Pos: end.Def().Pos(), From: []*ir.Node{end.Def()}}).Result(0)
		}
	}
	c.f.ReplaceUses(end, v)
	for _, gone := range append(chainTo(out, end, r), n) {
		c.f.Remove(gone)
	}
	c.f.Rename(m, name)
}

// chainTo lists what makes end of v through moves, users before what they read.
func chainTo(moves []*ir.Node, end, v *ir.Value) []*ir.Node {
	if end == v {
		return nil
	}
	nodes := append(slices.Clone(moves), end.Def())
	slices.Reverse(nodes)
	return nodes
}

// wide is a tensor of 16-bit floats, and how its f32 form is seen: the operations in the order in
// which they are applied.
type wide struct {
	from  *ir.Value
	moves []*ir.Node
}

func (w wide) dtype() ir.DType { return w.from.Type().DType() }

// widened finds what v was converted to f32 from.
func (c *canonicalizer) widened(v *ir.Value) (wide, bool) {
	var moves []*ir.Node
	for onlyMoves(v.Def()) {
		moves = append(moves, v.Def())
		v = v.Def().Arg(0)
	}
	slices.Reverse(moves)
	n := v.Def()
	if n.Op() != ir.OpConvert || v.Type().DType() != ir.F32 {
		return wide{}, false
	}
	from := n.Arg(0)
	if dt := from.Type().DType(); dt != ir.BF16 && dt != ir.F16 || c.writes.Written(from) || c.writes.Written(v) {
		return wide{}, false
	}
	return wide{from, moves}, true
}

// rounded follows the only use of a matmul's result to its conversion to dt.
func (c *canonicalizer) rounded(v *ir.Value, dt ir.DType) (moves []*ir.Node, back *ir.Value, ok bool) {
	for len(v.Uses()) == 1 {
		n := v.Uses()[0].Node
		if n.Op() == ir.OpConvert && !n.Ordered() {
			back = n.Result(0)
			return moves, back, back.Type().DType() == dt
		}
		if !onlyMoves(n) {
			break
		}
		moves = append(moves, n)
		v = n.Result(0)
	}
	return nil, nil, false
}

// onlyMoves reports whether n gives its operand's elements in another order, of whatever type they are.
func onlyMoves(n *ir.Node) bool {
	return (n.Op().IsView() && n.Op() != ir.OpAsStrided || n.Op() == ir.OpClone) && len(n.Results()) == 1 && len(n.Args()) == 1 && !n.Ordered()
}

// reapply makes v pass through operations that another tensor of its shape passes through. False where
// its layout does not allow a view: then nothing is made that anybody reads.
func (c *canonicalizer) reapply(moves []*ir.Node, v *ir.Value, at *ir.Node) (*ir.Value, bool) {
	dt := v.Type().DType()
	for _, n := range moves {
		want := n.Result(0).Type().WithDType(dt)
		got, err := ir.Infer(n.Op(), nil, n.Attrs(), []ir.Type{v.Type()}, want)
		if err != nil {
			return nil, false
		}
		v = c.f.InsertBefore(at, ir.NodeSpec{Op: n.Op(), Name: n.Name(), Args: []*ir.Value{v}, Results: got, Attrs: n.Attrs(), Pos: n.Pos(), From: []*ir.Node{n}}).Result(0)
	}
	return v, true
}
