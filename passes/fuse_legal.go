package passes

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// What one kernel can compute. Without reductions a thread computes single
// elements of the results, so that all results need as many; everything inside is
// an expression of an index, and data movement is another index. With reductions a
// kernel walks rows: all fold the same dimensions of the same shape, and what
// follows from a fold is read at the row at hand only. Where sizes are known at run
// time only, they count at their bounds, and each row of the results follows from its
// own, or all is elementwise on tensors of one shape. The rules are those of
// lower/cudagen, which refuses what breaks them; a test there generates every
// region that this pass forms in random programs.

// fusable reports whether n may belong to a region at all.
func fusable(n *ir.Node) bool {
	i := n.Op().Info()
	if i.Class != ir.ClassMemory || !n.Pure() || len(n.Results()) != 1 {
		return false
	}
	switch n.Op() {
	case ir.OpFull, ir.OpIota, ir.OpClone, ir.OpCat, ir.OpGather, ir.OpIndex, ir.OpEmbedding:
	case ir.OpScatter, ir.OpSliceScatter, ir.OpIndexPut, ir.OpIndexAdd:
		if !pulled(n) && !updatesRows(n) {
			return false
		}
	default:
		if _, ok := folds(n); !ok && !i.Elementwise {
			return false
		}
	}
	for _, v := range append(slices.Clone(n.Args()), n.Results()...) {
		if v.Type().IsAsync() || slices.Contains(sizesOf(v), 0) {
			return false
		}
	}
	return !sized(n) || i.Elementwise || rowsApart(n) || updatesRows(n)
}

// updatesRows reports whether n updates rows of the first dimension at positions of a
// number that is known at run time only.
func updatesRows(n *ir.Node) bool {
	var index *ir.Value
	switch n.Op() {
	case ir.OpIndexAdd:
		if n.Attrs().Int("dim", 0) != 0 {
			return false
		}
		index = n.Arg(1)
	case ir.OpIndexPut:
		if dims := n.Attrs().Ints("dims"); len(dims) != 1 || dims[0] != 0 {
			return false
		}
		index = n.Arg(2)
	default:
		return false
	}
	return sized(n) && index.Type().Rank() == 1 && index.Type().Contiguous()
}

// oneUpdate reports whether nodes are an update of rows, with elementwise operations and
// constants that nobody else reads in front of it and elementwise ones of its shape
// behind it.
func oneUpdate(nodes []*ir.Node) bool {
	at := slices.IndexFunc(nodes, updatesRows)
	if at < 0 {
		return false
	}
	root := nodes[at]
	r := &regionShape{member: map[*ir.Node]bool{}}
	for _, n := range nodes {
		r.member[n] = true
	}
	index := root.Arg(1)
	if root.Op() == ir.OpIndexPut {
		index = root.Arg(2)
	}
	if r.member[index.Def()] {
		return false
	}
	follows := map[*ir.Node]bool{root: true} // look-up only
	for _, n := range nodes {
		if n != root && !n.Op().Info().Elementwise && n.Op() != ir.OpFull {
			return false
		}
		if slices.ContainsFunc(n.Args(), func(a *ir.Value) bool { return follows[a.Def()] }) {
			follows[n] = true
		}
		if follows[n] && !n.Result(0).Type().Shape().Equal(root.Result(0).Type().Shape()) || !follows[n] && r.escapes(n.Result(0)) {
			return false
		}
	}
	return true
}

// sized reports whether a size of n's operands or results is known at run time only.
func sized(n *ir.Node) bool {
	has := func(v *ir.Value) bool { _, ok := v.Type().Shape().Static(); return !ok }
	return slices.ContainsFunc(n.Args(), has) || slices.ContainsFunc(n.Results(), has)
}

// rowsApart reports whether row i of n's result follows from row i of operands of a
// number of rows that is known at run time only, whatever that is.
func rowsApart(n *ir.Node) bool {
	fixed := func(v *ir.Value, d int64) bool { // size d of v is a number
		if d < 0 {
			d += int64(v.Type().Rank())
		}
		if d < 0 || d >= int64(v.Type().Rank()) {
			return false
		}
		_, ok := v.Type().Shape()[d].Const()
		return ok
	}
	switch n.Op() {
	case ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze, ir.OpAlias, ir.OpClone, ir.OpFull, ir.OpIota:
		return true
	case ir.OpCat, ir.OpGather:
		return fixed(n.Arg(0), n.Attrs().Int("dim", 0))
	case ir.OpEmbedding:
		return fixed(n.Arg(0), 0)
	case ir.OpIndex:
		dims := n.Attrs().Ints("dims")
		return len(dims) > 0 && !slices.ContainsFunc(dims, func(d int64) bool { return !fixed(n.Arg(0), d) })
	}
	if gone, ok := folds(n); ok {
		for d, g := range gone {
			if g && !fixed(n.Arg(0), int64(d)) {
				return false
			}
		}
		_, static := n.Arg(0).Type().Shape().Static()
		return !static
	}
	return n.Op().Info().Elementwise
}

// oneRow reports whether nodes of sizes that are known at run time only can be one
// kernel that walks rows: there is one such size, it is size 0 of every tensor that has
// one, all results among them, and each row follows from its own.
func oneRow(nodes []*ir.Node) bool {
	var rows *ir.Dim
	r := &regionShape{member: map[*ir.Node]bool{}}
	for _, n := range nodes {
		r.member[n] = true
	}
	for _, n := range nodes {
		if !rowsApart(n) {
			return false
		}
		for _, v := range append(slices.Clone(n.Args()), n.Results()...) {
			shape := v.Type().Shape()
			if _, ok := shape.Static(); ok {
				if v.Def() == n && !n.Op().IsView() && r.escapes(v) {
					return false
				}
				continue
			}
			if rows == nil {
				rows = &shape[0]
			}
			if _, ok := shape[1:].Static(); !ok || !shape[0].Equal(*rows) {
				return false
			}
		}
	}
	return true
}

// oneVector reports whether nodes of sizes that are known at run time only can be one
// kernel: all elementwise on row-major tensors of one shape, or on single elements.
func oneVector(nodes []*ir.Node) bool {
	var count *ir.Dim
	for _, n := range nodes {
		view := n.Op() == ir.OpView || n.Op() == ir.OpSqueeze || n.Op() == ir.OpUnsqueeze || n.Op() == ir.OpAlias
		if !view && !n.Op().Info().Elementwise || len(n.Results()) != 1 {
			return false
		}
		t := n.Result(0).Type()
		if all := t.Shape().NumElems(); count == nil {
			count = &all
		} else if !count.Equal(all) {
			return false
		}
		for _, a := range n.Args() {
			alike := a.Type().Contiguous() && (view || a.Type().Shape().Equal(t.Shape()))
			if !alike && !a.Type().Shape().NumElems().Equal(ir.D(1)) {
				return false
			}
		}
	}
	r := &regionShape{member: map[*ir.Node]bool{}}
	for _, n := range nodes {
		r.member[n] = true
	}
	return slices.ContainsFunc(nodes, func(n *ir.Node) bool { return !n.Op().IsView() && r.escapes(n.Result(0)) })
}

// pulled reports whether every element of what n writes at positions can find its
// values by itself, at no more cost than reading them: a slice, one index for each
// line, or rows of the first dimension that blocks can list.
func pulled(n *ir.Node) bool {
	for _, v := range append(slices.Clone(n.Args()), n.Results()...) {
		if _, ok := v.Type().Shape().Static(); !ok {
			return false
		}
	}
	const places = 8192
	shape := sizesOf(n.Arg(0))
	switch n.Op() {
	case ir.OpSliceScatter:
		return n.Attrs().Int("step", 1) == 1
	case ir.OpScatter:
		d := n.Attrs().Int("dim", 0)
		if d < 0 || d >= int64(len(shape)) {
			return false
		}
		want := slices.Clone(shape)
		want[d] = 1
		return slices.Equal(sizesOf(n.Arg(1)), want)
	case ir.OpIndexPut:
		dims := n.Attrs().Ints("dims")
		return len(dims) == 1 && dims[0] == 0 && count64(sizesOf(n.Arg(2))) <= places
	case ir.OpIndexAdd:
		return n.Attrs().Int("dim", 0) == 0 && count64(sizesOf(n.Arg(1))) <= places
	}
	return false
}

// listsRows reports whether blocks list the positions that n writes at.
func listsRows(n *ir.Node) bool { return n.Op() == ir.OpIndexPut || n.Op() == ir.OpIndexAdd }

// rowsFit checks the nodes that list rows: one at most, whose positions lie in
// memory, and as large as the results. Walks over rows have no lists.
func (r *regionShape) rowsFit(nodes []*ir.Node, count int64) bool {
	lists := 0
	for _, n := range nodes {
		if !listsRows(n) {
			continue
		}
		lists++
		index := n.Arg(1)
		if n.Op() == ir.OpIndexPut {
			index = n.Arg(2)
		}
		for _, m := range nodes {
			// What is wider belongs to its readers: it would be written for their sake.
			if v := m.Result(0); !m.Op().IsView() && r.escapes(v) && v.Type().DType().Size() > n.Result(0).Type().DType().Size() {
				return false
			}
		}
		if lists > 1 || r.shape != nil || r.member[throughViews(index)] || count64(sizesOf(n.Result(0))) != count {
			return false
		}
	}
	return true
}

// folds reports which dimensions of its operand n reduces, if it is a reduction.
func folds(n *ir.Node) ([]bool, bool) {
	if len(n.Args()) != 1 {
		return nil, false
	}
	rank := n.Arg(0).Type().Rank()
	gone := make([]bool, rank)
	var dims []int64
	switch n.Op() {
	case ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		dims = n.Attrs().Ints("dims")
		if len(dims) == 0 {
			for d := range rank {
				dims = append(dims, int64(d))
			}
		}
	case ir.OpArgmax, ir.OpSoftmax, ir.OpLogSoftmax:
		dims = []int64{n.Attrs().Int("dim", -1)}
	default:
		return nil, false
	}
	for _, d := range dims {
		if d < 0 {
			d += int64(rank)
		}
		if d < 0 || d >= int64(rank) {
			return nil, false
		}
		gone[d] = true
	}
	return gone, true
}

// costly reports whether computing an element of n again costs more than reading it.
func costly(n *ir.Node) bool {
	switch n.Op() {
	case ir.OpExp, ir.OpLog, ir.OpTanh, ir.OpSigmoid, ir.OpSilu, ir.OpGelu, ir.OpSin, ir.OpCos, ir.OpPow:
		return true
	}
	return false
}

// when says at which index a value of a region can be had.
type when uint8

const (
	anywhere when = iota // it follows from operands alone
	perRow               // it follows from a fold and has one element for each row
	perCell              // it follows from a fold and has one for each element that is folded
)

// regionShape is what a region walks over.
type regionShape struct {
	member map[*ir.Node]bool // look-up only
	kind   map[*ir.Value]when
	shape  []int64 // what is folded; nil without reductions
	gone   []bool
	ones   []int64 // shape with 1 for the folded dimensions
	rows   int64
	cells  int64
}

// oneKernel reports whether the nodes, in program order and with the views between
// them, can be one kernel that is worth it.
func oneKernel(nodes []*ir.Node) bool {
	if slices.ContainsFunc(nodes, sized) && !oneRow(nodes) {
		return oneVector(nodes) || oneUpdate(nodes)
	}
	r := &regionShape{member: map[*ir.Node]bool{}, kind: map[*ir.Value]when{}}
	for _, n := range nodes {
		r.member[n] = true
		if gone, ok := folds(n); ok && !r.sameFold(sizesOf(n.Arg(0)), gone) {
			return false
		}
	}
	// One block for each row or for a few: a long fold of few rows would leave most
	// of the machine idle, and what joined it, too.
	if r.shape != nil && (r.rows == r.cells || r.rows < 64 && r.cells > 1<<16) {
		return false
	}
	for _, n := range nodes {
		if !r.place(n) {
			return false
		}
	}
	return r.resultsFit(nodes)
}

func (r *regionShape) sameFold(shape []int64, gone []bool) bool {
	if r.shape != nil {
		return slices.Equal(r.shape, shape) && slices.Equal(r.gone, gone)
	}
	r.shape, r.gone, r.ones, r.rows, r.cells = shape, gone, slices.Clone(shape), 1, 1
	for d, n := range shape {
		r.cells *= n
		if gone[d] {
			r.ones[d] = 1
		} else {
			r.rows *= n
		}
	}
	return true
}

// place decides when n's results can be had; false if they cannot.
func (r *regionShape) place(n *ir.Node) bool {
	late := slices.ContainsFunc(n.Args(), func(a *ir.Value) bool { return r.kind[a] != anywhere })
	if _, ok := folds(n); ok {
		a := n.Arg(0)
		if late && (r.kind[a] != perCell || !slices.Equal(sizesOf(a), r.shape)) {
			return false
		}
		r.kind[n.Result(0)] = perRow
		if n.Op() == ir.OpSoftmax || n.Op() == ir.OpLogSoftmax {
			r.kind[n.Result(0)] = perCell
		}
		return true
	}
	if n.Op() == ir.OpAsStrided {
		return !r.member[throughViews(n.Arg(0))]
	}
	if !late {
		return true
	}
	out := sizesOf(n.Result(0))
	switch {
	case n.Op() == ir.OpGather:
		a := n.Arg(0)
		d := n.Attrs().Int("dim", 0)
		if d < 0 {
			d += int64(len(r.shape))
		}
		if r.kind[a] != perCell || r.kind[n.Arg(1)] != anywhere || !slices.Equal(sizesOf(a), r.shape) || !slices.Equal(out, r.ones) || d >= int64(len(r.gone)) || !r.gone[d] {
			return false
		}
		r.kind[n.Result(0)] = perRow
		return true
	case n.Op() == ir.OpView, n.Op() == ir.OpSqueeze, n.Op() == ir.OpUnsqueeze, n.Op() == ir.OpAlias:
		r.kind[n.Result(0)] = r.kind[n.Arg(0)]
		return true
	case n.Op() == ir.OpExpand, n.Op() == ir.OpClone, n.Op().Info().Elementwise:
		return r.broadcasts(n, out)
	}
	return false
}

// broadcasts places an operation whose operands are read at the result's index.
func (r *regionShape) broadcasts(n *ir.Node, out []int64) bool {
	for _, a := range n.Args() {
		s := sizesOf(a)
		switch k := r.kind[a]; {
		case k == anywhere:
		case slices.Equal(s, out):
			r.kind[n.Result(0)] = k
		case k == perRow && slices.Equal(s, r.ones) && slices.Equal(out, r.shape):
			r.kind[n.Result(0)] = perCell
		default:
			return false
		}
	}
	return true
}

// resultsFit checks what has to be written, and that nothing costly is computed
// more often than it has elements.
func (r *regionShape) resultsFit(nodes []*ir.Node) bool {
	count := int64(-1)
	for _, n := range nodes {
		if n.Op().IsView() || !r.escapes(n.Result(0)) {
			continue
		}
		c := count64(sizesOf(n.Result(0)))
		switch {
		case r.shape != nil:
			if c != r.rows && c != r.cells {
				return false
			}
		case count >= 0 && c != count:
			return false
		}
		count = c
	}
	if count < 0 || !r.rowsFit(nodes, count) {
		return false // all of it is dead, or positions cannot be listed
	}
	if r.shape != nil {
		count = r.cells
	}
	for _, n := range nodes {
		if n.Op().IsView() || !costly(n) || r.kind[n.Result(0)] != anywhere {
			continue
		}
		if c := count64(sizesOf(n.Result(0))); c < count && !(r.shape != nil && c == r.rows) {
			return false
		}
	}
	return true
}

// escapes reports whether v, or a view of it in the region, is read outside.
func (r *regionShape) escapes(v *ir.Value) bool {
	for _, u := range v.Uses() {
		if !r.member[u.Node] {
			return true
		}
		if u.Node.Op().IsView() && slices.ContainsFunc(u.Node.Results(), r.escapes) {
			return true
		}
	}
	return false
}

// sizesOf are the sizes of v, those known at run time only at their bounds.
func sizesOf(v *ir.Value) []int64 {
	if s, ok := v.Type().Shape().Static(); ok {
		return s
	}
	out := make([]int64, v.Type().Rank())
	for d, n := range v.Type().Shape() {
		out[d] = v.Def().Func().Module().Bound(n)
	}
	return out
}

func count64(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}
