package equiv

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// Elements of products, of reductions and of what goes along a dimension are made of lines of
// their operands, of which few enough are compared in small tensors.

// maxLines bounds the elements of terms where lines are looked into.
const maxLines = 1 << 16

// ofLines reports whether elements of an opaque term are made of lines.
func ofLines(t *term) bool {
	if t.types == nil {
		return false
	}
	switch t.op {
	case ir.OpMatmul, ir.OpAddmm, ir.OpSoftmax, ir.OpLogSoftmax, ir.OpCumsum, ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		return !slices.ContainsFunc(t.types, func(x ir.Type) bool { _, ok := x.Shape().Static(); return !ok })
	}
	return false
}

// line makes elements of the lines that they are made of, in order.
func (e *elements) line(t *term, out []elemID, args [][]elemID) bool {
	if slices.ContainsFunc(args, func(x []elemID) bool { return x == nil }) {
		return false
	}
	shape, _ := t.types[0].Shape().Static()
	h := element{kind: elemOp, op: t.op, dt: t.dt, text: e.text(t.head)}
	index := make([]int64, len(shape))
	for i := range out {
		rest := int64(i)
		for d := len(shape) - 1; d >= 0; d-- {
			index[d], rest = rest%shape[d], rest/shape[d]
		}
		lines := make([][]int64, len(args))
		for k, x := range args {
			lines[k] = []int64{-1}
			for _, j := range operandLine(t, k, index) {
				lines[k] = append(lines[k], int64(at(x, j)))
			}
		}
		if t.op == ir.OpMatmul || t.op == ir.OpAddmm { // products of numbers commute
			slices.SortFunc(lines[len(lines)-2:], slices.Compare)
		}
		list := slices.Concat(lines...)
		if d := int(t.attrs.Int("dim", -1)); d >= 0 { // the place in the line counts
			list = append(list, index[d])
		}
		out[i] = e.intern(h, list...)
	}
	return true
}

// operandLine lists the elements of operand k that the element of t at an index is made of.
func operandLine(t *term, k int, index []int64) []int64 {
	shape, _ := t.types[k+1].Shape().Static()
	along := make([]bool, len(shape)) // all of the dimension
	from := make([]int64, len(shape))
	switch factor := k - (len(t.args) - 2); {
	case t.op == ir.OpMatmul || t.op == ir.OpAddmm:
		lead := len(index) - len(shape)
		for d := range shape {
			if d+lead >= 0 && shape[d] > 1 {
				from[d] = index[d+lead]
			}
		}
		if factor >= 0 {
			along[len(shape)-1-factor] = true
		}
	case t.attrs.Has("dim"):
		copy(from, index)
		along[t.attrs.Int("dim", 0)] = true
	default:
		dims, n := t.attrs.Ints("dims"), 0
		for d := range shape {
			along[d] = !t.attrs.Has("dims") || slices.Contains(dims, int64(d))
			if kept := len(index) == len(shape); !along[d] || kept {
				if !along[d] {
					from[d] = index[n]
				}
				n++
			}
		}
	}
	list := []int64{0}
	for d, n := range shape {
		var next []int64
		for _, i := range list {
			if !along[d] {
				next = append(next, i*n+from[d])
				continue
			}
			for j := range n {
				next = append(next, i*n+j)
			}
		}
		list = next
	}
	return list
}
