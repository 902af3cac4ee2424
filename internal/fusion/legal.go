package fusion

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// What one kernel can compute. Without reductions a thread computes single
// elements of the results, so that all results need as many; everything inside is
// an expression of an index, and data movement is another index. With reductions a
// kernel walks rows: all fold the same dimensions of the same shape, and what
// follows from a fold is read at the row at hand only. Where sizes are known at run
// time only, they count at their bounds, and each row of the results follows from its
// own, or all is elementwise on tensors of one shape. Package lower/cudagen writes a kernel
// for whatever these rules allow: tests there generate every region that pass fuse forms
// in random programs and in traced steps.

// Fusable reports whether n may belong to a region at all.
func Fusable(n *ir.Node) bool {
	i := n.Op().Info()
	if i.Class != ir.ClassMemory || !n.Pure() || len(n.Results()) != 1 {
		return false
	}
	switch n.Op() {
	case ir.OpFull, ir.OpIota, ir.OpClone, ir.OpCat, ir.OpGather, ir.OpIndex, ir.OpEmbedding:
	case ir.OpScatter, ir.OpSliceScatter, ir.OpIndexPut, ir.OpIndexAdd:
		if _, ok := UpdatesSizedRows(n); !ok && !gatherForm(n) {
			return false
		}
	case ir.OpCumsum:
		return false // one thread walks what is a row here
	default:
		if _, ok := ReducedDims(n); !ok && !i.Elementwise {
			return false
		}
	}
	if Check(n, 1) != nil || empty(n) {
		return false
	}
	_, updates := UpdatesSizedRows(n)
	return !UsesDynamicSize(n) || i.Elementwise || RowsIndependent(n) || updates
}

// empty reports whether an operand or a result of n has no elements.
func empty(n *ir.Node) bool {
	none := func(v *ir.Value) bool { return slices.Contains(Sizes(v), 0) }
	return slices.ContainsFunc(n.Args(), none) || slices.ContainsFunc(n.Results(), none)
}

// gatherForm reports whether every element of what n writes at positions can find its
// values by itself, at no more cost than reading them: a slice, one index for each
// line, or rows of the first dimension that blocks can list.
func gatherForm(n *ir.Node) bool {
	if UsesDynamicSize(n) {
		return false
	}
	shape := Sizes(n.Arg(0))
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
		return slices.Equal(Sizes(n.Arg(1)), want)
	}
	index, ok := UpdatesRows(n)
	return ok && intmath.Product(Sizes(index)) <= MostPlaces
}

// rowsFit checks the nodes that list rows: one at most, whose positions lie in
// memory, and as large as the results. Walks over rows have no lists.
func (r *regionShape) rowsFit(nodes []*ir.Node, count int64) bool {
	lists := 0
	for _, n := range nodes {
		index, ok := UpdatesRows(n)
		if !ok {
			continue
		}
		lists++
		for _, m := range nodes {
			// What is wider belongs to its readers: it would be written for their sake.
			if v := m.Result(0); r.Writes(m) && v.Type().DType().Size() > n.Result(0).Type().DType().Size() {
				return false
			}
		}
		if lists > 1 || r.shape != nil || !r.Given(index) || intmath.Product(Sizes(n.Result(0))) != count {
			return false
		}
	}
	return true
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
	Region
	kind  map[*ir.Value]when
	shape []int64 // what is folded; nil without reductions
	gone  []bool
	ones  []int64 // shape with 1 for the folded dimensions
	rows  int64
	cells int64
}

// SingleKernel reports whether the nodes, in program order and with the views between
// them, can be one kernel that is worth it.
func SingleKernel(nodes []*ir.Node) bool {
	if slices.ContainsFunc(nodes, func(n *ir.Node) bool { return n.Op().IsView() && empty(n) }) {
		return false
	}
	if slices.ContainsFunc(nodes, UsesDynamicSize) {
		if _, no := RowSize(nodes); no != nil {
			_, vector := VectorSize(nodes)
			_, update := SoleUpdate(nodes)
			return vector == nil || update == nil
		}
	}
	r := &regionShape{Region: Of(nodes), kind: map[*ir.Value]when{}}
	for _, n := range nodes {
		if gone, ok := ReducedDims(n); ok && !r.sameFold(Sizes(n.Arg(0)), gone) {
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
	return r.resultsFit(nodes) && r.bounded(nodes)
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
	if _, ok := ReducedDims(n); ok {
		a := n.Arg(0)
		if late && (r.kind[a] != perCell || !slices.Equal(Sizes(a), r.shape)) {
			return false
		}
		r.kind[n.Result(0)] = perRow
		if n.Op() == ir.OpSoftmax || n.Op() == ir.OpLogSoftmax {
			r.kind[n.Result(0)] = perCell
		}
		return true
	}
	if n.Op() == ir.OpAsStrided {
		return r.Given(n.Arg(0))
	}
	if !late {
		return true
	}
	out := Sizes(n.Result(0))
	switch {
	case n.Op() == ir.OpGather:
		a := n.Arg(0)
		d := n.Attrs().Int("dim", 0)
		if d < 0 {
			d += int64(len(r.shape))
		}
		if r.kind[a] != perCell || r.kind[n.Arg(1)] != anywhere || !slices.Equal(Sizes(a), r.shape) || !slices.Equal(out, r.ones) || d >= int64(len(r.gone)) || !r.gone[d] {
			return false
		}
		r.kind[n.Result(0)] = perRow
		return true
	case Reshapes(n):
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
		s := Sizes(a)
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
		if !r.Writes(n) {
			continue
		}
		c := intmath.Product(Sizes(n.Result(0)))
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
		if n.Op().IsView() || !n.Op().Info().Costly || r.kind[n.Result(0)] != anywhere {
			continue
		}
		if c := intmath.Product(Sizes(n.Result(0))); c < count && !(r.shape != nil && c == r.rows) {
			return false
		}
	}
	return true
}

// Sizes are those of v, dynamic ones at their bounds.
func Sizes(v *ir.Value) []int64 {
	if s, ok := v.Type().Shape().Static(); ok {
		return s
	}
	out := make([]int64, v.Type().Rank())
	for d, n := range v.Type().Shape() {
		out[d] = v.Def().Func().Module().Bound(n)
	}
	return out
}
