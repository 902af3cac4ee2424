package spmd

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// splitAddmms makes a matmul and a sum of every addmm. Where the dimension is cut along which a matmul adds
// up, its parts come together before the sum, which adds the other operand once.
func splitAddmms(f *ir.Func) {
	for _, n := range slices.Clone(f.Order()) {
		if n.Op() != ir.OpAddmm || n.Attrs().Float("alpha", 1) != 1 || n.Attrs().Float("beta", 1) != 1 {
			continue
		}
		r, c, name := n.Result(0), n.Arg(0), n.Name()
		if c.Type().DType() != r.Type().DType() {
			continue
		}
		product := n.Spec()
		product.Op, product.Args, product.Attrs, product.Meta = ir.OpMatmul, n.Args()[1:], ir.Attrs{}, ir.Attrs{}
		product.Results = []ir.Type{ir.TensorOf(r.Type().DType(), r.Type().Shape())}
		sum := ir.NodeSpec{Op: ir.OpAdd, Name: name, Args: []*ir.Value{f.InsertBefore(n, product).Result(0), c}, Results: []ir.Type{r.Type()}, Meta: n.Meta(), Pos: n.Pos(), From: []*ir.Node{n}}
		s := f.InsertBefore(n, sum)
		f.ReplaceUses(r, s.Result(0))
		f.Remove(n)
		f.Rename(s, name)
	}
}
