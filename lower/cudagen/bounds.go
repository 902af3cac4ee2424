package cudagen

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// Kernels of form.go for sizes at their bounds, which end where the sizes at hand do.

// limits are what a kernel for bounds has to know to stop earlier.
type limits struct {
	rows   ir.Dim // size 0 of all results, over the parameters' names
	sizes  []ir.Dim
	vector bool // elements behind the last one may be computed, if they are not written
	single bool // tensors need not lie as loads of several elements want them
}

// rowwise makes the kernel of a region in which size 0 of every tensor, if it is no
// number, is one size that is known at run time only, and row i of the results follows
// from row i of such operands: it is that of known sizes for as many rows as there can
// be, and stops at the last one.
func rowwise(name string, r *region, sizes []ir.Dim) (*Kernel, error) {
	if len(sizes) != 1 {
		return nil, unsupported(r.nodes[0], "several sizes known at run time only")
	}
	rows := sizes[0]
	bound := ir.D(r.nodes[0].Func().Module().Bound(rows))
	typ := func(v *ir.Value) (ir.Type, bool) {
		shape := v.Type().Shape()
		if _, ok := shape.Static(); ok {
			return v.Type(), true
		}
		if _, ok := shape[1:].Static(); !ok || !shape[0].Equal(rows) {
			return ir.Type{}, false
		}
		shape = slices.Clone(shape)
		shape[0] = bound
		return ir.TensorOf(v.Type().DType(), shape), true
	}
	elementwise := true
	for _, n := range r.nodes {
		if !rowsApart(n) {
			return nil, unsupported(n, "rows of its result depend on other rows, or on how many there are")
		}
		elementwise = elementwise && (n.Op().Info().Elementwise || n.Op().IsView())
	}
	for _, v := range r.outs {
		if _, ok := v.Type().Shape().Static(); ok {
			return nil, unsupported(v.Def(), "its result has no rows of unknown number")
		}
	}
	return atBounds(name, r, typ, &limits{rows: ir.Sym(sizeName(0)), sizes: sizes, vector: elementwise})
}

// rowsApart reports whether row i of n's results follows from row i of operands of
// an unknown number of rows, whatever that number is.
func rowsApart(n *ir.Node) bool {
	fixed := func(v *ir.Value, d int) bool { // size d of v is a number
		if d < 0 {
			d += v.Type().Rank()
		}
		if d < 0 || d >= v.Type().Rank() {
			return false
		}
		_, ok := v.Type().Shape()[d].Const()
		return ok
	}
	d := int(n.Attrs().Int("dim", 0))
	switch n.Op() {
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze, ir.OpAlias, ir.OpClone, ir.OpFull, ir.OpIota:
		return true
	case ir.OpCat, ir.OpGather, ir.OpScatter, ir.OpSliceScatter:
		return fixed(n.Arg(0), d)
	case ir.OpEmbedding:
		return fixed(n.Arg(0), 0)
	case ir.OpIndex:
		dims := n.Attrs().Ints("dims")
		return len(dims) > 0 && !slices.ContainsFunc(dims, func(d int64) bool { return !fixed(n.Arg(0), int(d)) })
	case ir.OpCumsum:
		return false // one thread walks what is a row here
	}
	if gone, ok := reduces(n); ok {
		if _, ok := n.Arg(0).Type().Shape().Static(); ok {
			return false // rows of another number
		}
		for d, g := range gone {
			if g && !fixed(n.Arg(0), d) {
				return false
			}
		}
		return true
	}
	return n.Op().Info().Elementwise
}

// flat makes the kernel of a region of elementwise operations on tensors of one shape,
// scalars beside them: what is elementwise works on vectors.
func flat(name string, r *region, sizes []ir.Dim) (*Kernel, error) {
	shape := r.outs[0].Type().Shape()
	module := r.nodes[0].Func().Module()
	count := module.Bound(shape.NumElems())
	for _, n := range r.nodes {
		if t := n.Result(0).Type(); !n.Op().Info().Elementwise && !reshapes(n) || !t.Contiguous() || !t.Shape().NumElems().Equal(shape.NumElems()) {
			return nil, unsupported(n, "not elementwise on row-major tensors of one shape")
		}
		for _, a := range n.Args() {
			alike := a.Type().Contiguous() && (reshapes(n) || a.Type().Shape().Equal(n.Result(0).Type().Shape()))
			if !alike && !a.Type().Shape().NumElems().Equal(ir.D(1)) {
				return nil, unsupported(n, "%s is not of the shape of the result", a)
			}
		}
	}
	typ := func(v *ir.Value) (ir.Type, bool) {
		if v.Type().Shape().NumElems().Equal(ir.D(1)) {
			return ir.Tensor(v.Type().DType(), 1), true
		}
		return ir.Tensor(v.Type().DType(), count), true
	}
	return atBounds(name, r, typ, &limits{rows: named(shape, sizes), sizes: sizes, vector: true})
}

// reshapes reports whether n is a view of all of its operand in the same order.
func reshapes(n *ir.Node) bool {
	return n.Op() == ir.OpView || n.Op() == ir.OpSqueeze || n.Op() == ir.OpUnsqueeze || n.Op() == ir.OpAlias
}

// atBounds writes the kernel of a region whose tensors have the types that typ says,
// false for none that will do, and ends it at the limits.
func atBounds(name string, r *region, typ func(*ir.Value) (ir.Type, bool), lim *limits) (*Kernel, error) {
	f := ir.NewModule(1).AddFunc("f")
	at := map[*ir.Value]*ir.Value{} // of the region -> of f; look-up only
	of := map[*ir.Value]*ir.Value{} // back
	var nodes []*ir.Node
	for _, n := range r.nodes {
		s := ir.NodeSpec{Op: n.Op(), Name: n.Name(), Attrs: n.Attrs()}
		for _, a := range n.Args() {
			if at[a] == nil {
				t, ok := typ(a)
				if !ok {
					return nil, unsupported(n, "%s is %s", a, a.Type())
				}
				at[a] = f.Append(ir.NodeSpec{Op: ir.OpInput, Name: a.Def().Name(), Results: []ir.Type{t}}).Result(0)
				of[at[a]] = a
				lim.single = lim.single || !r.aligned(a, 16)
			}
			s.Args = append(s.Args, at[a])
		}
		for _, v := range n.Results() {
			t, ok := typ(v)
			if !ok || t.Shape().NumElems().Equal(ir.D(0)) {
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
	k, err := generate(name, st, nodes, lim)
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
