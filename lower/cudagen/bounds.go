package cudagen

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
)

// Kernels of form.go for sizes at their bounds, which stop at the actual sizes.

// limits are what a kernel for bounds has to know to stop earlier.
type limits struct {
	rows   ir.Dim   // rows, or elements of vectors, over the parameters' names; their bound is size 0 of all tensors
	sizes  []ir.Dim // that are parameters
	vector bool     // elements after the last one may be computed, if they are not written
	single bool     // some tensor may not be aligned for vector loads
}

// rowwise makes the kernel of a region in which every tensor, if not all of its sizes are
// numbers, has one number of rows that is known at run time only, and row i of the results follows
// from row i of such operands: it is that of known sizes for as many rows as there can
// be, and stops at the last one. Dimension 0 has all rows, and others that count rows have size 1.
func rowwise(name string, r *region) (*Kernel, error) {
	rows, no := fusion.RowSize(r.nodes)
	if no != nil {
		return nil, refused(no)
	}
	bound := ir.D(r.nodes[0].Func().Module().Bound(rows))
	typ := func(v *ir.Value) ir.Type {
		if !fusion.HasDynamicSize(v) {
			return v.Type()
		}
		shape, strides := slices.Clone(v.Type().Shape()), slices.Clone(v.Type().SymbolicStrides())
		k := fusion.RowDims(v)
		strides[0] = strides[k-1]
		for d := range k {
			shape[d] = ir.D(1)
		}
		shape[0] = bound
		return ir.TensorOf(v.Type().DType(), shape).WithSymbolicStrides(strides)
	}
	root := slices.IndexFunc(r.outs, fusion.HasDynamicSize)
	count := r.named(r.outs[root].Type().Shape()[:fusion.RowDims(r.outs[root])])
	elementwise := true
	for _, n := range r.nodes {
		elementwise = elementwise && (n.Op().Info().Elementwise || n.Op().IsView())
	}
	return atBounds(name, r, typ, &limits{rows: count, sizes: r.sizes, vector: elementwise})
}

// flatElementwise makes the kernel of a region of elementwise operations on tensors of one shape,
// and scalars: what is elementwise works on vectors.
func flatElementwise(name string, r *region) (*Kernel, error) {
	shape := r.outs[0].Type().Shape()
	module := r.nodes[0].Func().Module()
	count := module.Bound(shape.NumElems())
	if _, no := fusion.VectorSize(r.nodes); no != nil {
		return nil, refused(no)
	}
	typ := func(v *ir.Value) ir.Type {
		if v.Type().Shape().NumElems().Equal(ir.D(1)) {
			return ir.Tensor(v.Type().DType(), 1)
		}
		return ir.Tensor(v.Type().DType(), count)
	}
	return atBounds(name, r, typ, &limits{rows: r.named(shape), sizes: r.sizes, vector: true})
}

// atBounds writes the kernel of a region whose tensors have the types that typ says, and
// ends it at the limits.
func atBounds(name string, r *region, typ func(*ir.Value) ir.Type, lim *limits) (*Kernel, error) {
	f := ir.NewModule(1).AddFunc("f")
	at := map[*ir.Value]*ir.Value{} // of the region -> of f; look-up only
	of := map[*ir.Value]*ir.Value{} // back
	var nodes []*ir.Node
	for _, n := range r.nodes {
		s := ir.NodeSpec{Op: n.Op(), Name: n.Name(), Attrs: n.Attrs()}
		for _, a := range n.Args() {
			if at[a] == nil {
				at[a] = f.Append(ir.NodeSpec{Op: ir.OpInput, Name: a.Def().Name(), Results: []ir.Type{typ(a)}}).Result(0)
				of[at[a]] = a
				lim.single = lim.single || !r.aligned(a, 16)
			}
			s.Args = append(s.Args, at[a])
		}
		for _, v := range n.Results() {
			t := typ(v)
			if t.Shape().NumElems().Equal(ir.D(0)) {
				return nil, unsupported(n, "%s is %s", v, v.Type())
			}
			s.Results = append(s.Results, t)
		}
		m := f.Append(s)
		for i, v := range n.Results() {
			at[v], of[m.Result(i)] = m.Result(i), v
		}
		nodes = append(nodes, m)
	}
	back := ir.NodeSpec{Op: ir.OpReturn}
	for _, v := range r.outs {
		back.Args = append(back.Args, at[v])
	}
	f.Append(back)
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return nil, err
	}
	b, err := newRegion(st, nodes)
	if err != nil {
		return nil, err
	}
	for _, v := range r.shared {
		b.shared = append(b.shared, at[v])
	}
	k, err := generateRegion(name, b, lim)
	if err != nil {
		return nil, err
	}
	k.Sizes = lim.sizes
	for _, list := range [2][]*ir.Value{k.Ins, k.Outs} {
		for i, v := range list {
			list[i] = of[v]
		}
	}
	return k, nil
}
