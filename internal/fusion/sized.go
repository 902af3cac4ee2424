package fusion

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// MostPlaces is how many positions a block can list in shared memory.
const MostPlaces = 11000

// UpdatesRows reports whether n writes, or adds, whole rows of dimension 0 at positions
// that stand one after the other in one tensor, which it returns: blocks can list those
// that are theirs.
func UpdatesRows(n *ir.Node) (index *ir.Value, ok bool) {
	switch n.Op() {
	case ir.OpIndexAdd:
		index, ok = n.Arg(1), fromFront(n.Attrs().Int("dim", 0), n.Arg(0).Type().Rank()) == 0
	case ir.OpIndexPut:
		dims := n.Attrs().Ints("dims")
		index, ok = n.Arg(2), len(n.Args()) == 3 && len(dims) == 1 && fromFront(dims[0], n.Arg(0).Type().Rank()) == 0
	}
	if !ok || !index.Type().Contiguous() {
		return nil, false
	}
	return index, true
}

// UpdatesSizedRows is UpdatesRows where sizes are dynamic: positions are
// then a list, and there may be any number of them.
func UpdatesSizedRows(n *ir.Node) (index *ir.Value, ok bool) {
	index, ok = UpdatesRows(n)
	return index, ok && UsesDynamicSize(n) && index.Type().Rank() == 1
}

// RowSize returns the number of rows of the nodes, which is known at run time only, if a kernel can
// walk them row by row: every tensor with dynamic sizes, all results among them, has as many
// (RowDims), as far apart as each other, and each follows from its own. O(values and uses).
func RowSize(nodes []*ir.Node) (ir.Dim, *Refusal) {
	r := Of(nodes)
	var rows *ir.Dim
	for _, n := range nodes {
		for _, list := range [2][]*ir.Value{n.Args(), n.Results()} {
			for _, v := range list {
				if !HasDynamicSize(v) {
					continue
				}
				count := v.Type().Shape()[:RowDims(v)].NumElems()
				if rows == nil {
					rows = &count
				}
				if !count.Equal(*rows) || !evenRows(v) {
					return ir.Dim{}, refuse(n, "%s is %s: only the number of rows, one for all, may be known at run time only", v, v.Type())
				}
			}
		}
		if !RowsIndependent(n) {
			return ir.Dim{}, refuse(n, "rows of its result depend on other rows, or on how many there are")
		}
		other := func(v *ir.Value) bool { return HasDynamicSize(v) && RowDims(v) != RowDims(n.Result(0)) }
		if !Reshapes(n) && slices.ContainsFunc(n.Args(), other) {
			return ir.Dim{}, refuse(n, "rows of an operand are counted by other dimensions than those of its result")
		}
		if !Reshapes(n) && slices.ContainsFunc(n.Args(), func(v *ir.Value) bool { return !HasDynamicSize(v) && variesByRow(n, v) }) {
			return ir.Dim{}, refuse(n, "an operand of known sizes has other elements for some rows than for others")
		}
		if r.Writes(n) && slices.ContainsFunc(n.Results(), func(v *ir.Value) bool { return !HasDynamicSize(v) && r.Escapes(v) }) {
			return ir.Dim{}, refuse(n, "its result has no rows of unknown number")
		}
	}
	if rows == nil {
		return ir.Dim{}, refuse(nodes[0], "all sizes are known")
	}
	return *rows, nil
}

// variesByRow reports whether rows of n's result that several dimensions count may see different parts
// of its operand v, whose sizes are all known: what the rows' number alone does not tell.
func variesByRow(n *ir.Node, v *ir.Value) bool {
	out, shape := n.Result(0), v.Type().Shape()
	k := RowDims(out)
	switch {
	case k < 2 || v.Type().Rank() == 0:
		return false
	case n.Op() == ir.OpEmbedding:
		return false // a table, of which positions choose rows
	case n.Op() == ir.OpIndex:
		for i, d := range n.Attrs().Ints("dims") {
			if d != int64(i) {
				return true
			}
		}
		return false
	case !n.Op().Info().Elementwise:
		return true
	}
	for d, size := range shape {
		if d+out.Type().Rank()-len(shape) < k && !size.Equal(ir.D(1)) {
			return true
		}
	}
	return false
}

// evenRows reports whether v's rows are a number of elements apart, and laid out alike by numbers.
func evenRows(v *ir.Value) bool {
	k := RowDims(v)
	if k == 0 || v.Type().Contiguous() {
		return k > 0
	}
	strides, shape := v.Type().SymbolicStrides(), v.Type().Shape()
	for d := range k - 1 {
		if !strides[d].Equal(strides[d+1].Mul(shape[d+1])) {
			return false
		}
	}
	return !slices.ContainsFunc(strides[k-1:], func(s ir.Dim) bool { _, ok := s.Const(); return !ok })
}

// VectorSize returns the number of elements of every result if a kernel can see the nodes
// as operations on vectors: all elementwise on row-major tensors of one shape, or on
// single elements, and somebody reads what they compute. O(values and uses).
func VectorSize(nodes []*ir.Node) (ir.Dim, *Refusal) {
	r := Of(nodes)
	var count *ir.Dim
	writes := false
	for _, n := range nodes {
		t := n.Result(0).Type()
		all := t.Shape().NumElems()
		if count == nil {
			count = &all
		}
		if !n.Op().Info().Elementwise && !Reshapes(n) || len(n.Results()) != 1 || !t.Contiguous() || !count.Equal(all) {
			return ir.Dim{}, refuse(n, "not elementwise on row-major tensors of one shape")
		}
		for _, a := range n.Args() {
			alike := a.Type().Contiguous() && (Reshapes(n) || a.Type().Shape().Equal(t.Shape()))
			if !alike && !a.Type().Shape().NumElems().Equal(ir.D(1)) {
				return ir.Dim{}, refuse(n, "%s is not of the shape of the result", a)
			}
		}
		writes = writes || r.Writes(n)
	}
	if !writes {
		return ir.Dim{}, refuse(nodes[0], "nobody reads what is computed")
	}
	return *count, nil
}

// SoleUpdate returns the update of rows, see UpdatesSizedRows, that the nodes are about:
// elementwise operations and constants that nobody else reads lead to what it updates
// and to its values, and elementwise operations of its shape follow from it. Its positions
// are in memory. O(values and uses).
func SoleUpdate(nodes []*ir.Node) (*ir.Node, *Refusal) {
	at := slices.IndexFunc(nodes, func(n *ir.Node) bool { _, ok := UpdatesSizedRows(n); return ok })
	if at < 0 {
		return nil, refuse(nodes[0], "sizes known at run time only, in a region that is neither of rows nor elementwise")
	}
	r, root := Of(nodes), nodes[at]
	shape := root.Result(0).Type().Shape()
	if index, _ := UpdatesRows(root); r.Has(index.Def()) {
		return nil, refuse(root, "%s is computed in the same region", index)
	}
	follows := map[*ir.Node]bool{root: true} // look-up only
	for _, n := range nodes {
		if n == root {
			continue
		}
		if !n.Op().Info().Elementwise && n.Op() != ir.OpFull {
			return nil, refuse(n, "not elementwise, beside an update of rows")
		}
		follows[n] = slices.ContainsFunc(n.Args(), func(a *ir.Value) bool { return follows[a.Def()] })
		switch {
		case follows[n] && !n.Result(0).Type().Shape().Equal(shape):
			return nil, refuse(n, "it follows from an update of rows of another shape")
		case !follows[n] && r.Writes(n):
			return nil, refuse(n, "others than an update of rows read it")
		}
	}
	return root, nil
}
