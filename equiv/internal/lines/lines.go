// Package lines determines which operand elements an element of a matmul, a reduction or a scan
// depends on.
package lines

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Operation is one operation, with the types of its result and of its operands.
type Operation struct {
	Op    ir.Op
	Attrs attr.List
	Types []ir.Type
}

// Made reports whether elements of an operation's result are made of lines of its operands.
func Made(op ir.Op) bool {
	switch op {
	case ir.OpMatmul, ir.OpAddmm, ir.OpSoftmax, ir.OpLogSoftmax, ir.OpCumsum, ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		return true
	}
	return false
}

// List is one list of the lines of all operands, which it sorts where their order does not count.
func (o Operation) List(lines [][]int64) []int64 {
	if o.Op == ir.OpMatmul || o.Op == ir.OpAddmm { // products of numbers commute
		slices.SortFunc(lines[len(lines)-2:], slices.Compare)
	}
	return slices.Concat(lines...)
}

// factor is which of two factors operand k of a product is, less than 0 for none.
func (o Operation) factor(k int) int { return k - (len(o.Types) - 3) }

// Line lists the elements of operand k that the element of the result at an index is made of. Sizes are numbers.
func (o Operation) Line(k int, index []int64) []int64 {
	shape, _ := o.Types[k+1].Shape().Static()
	along := make([]bool, len(shape)) // all of the dimension
	from := make([]int64, len(shape))
	switch factor := o.factor(k); {
	case o.Op == ir.OpMatmul || o.Op == ir.OpAddmm:
		lead := len(index) - len(shape)
		for d := range shape {
			if d+lead >= 0 && shape[d] > 1 {
				from[d] = index[d+lead]
			}
		}
		if factor >= 0 {
			along[len(shape)-1-factor] = true
		}
	case o.Attrs.Has("dim"):
		copy(from, index)
		along[o.Attrs.Int("dim", 0)] = true
	default:
		dims, n := o.Attrs.Ints("dims"), 0
		for d := range shape {
			along[d] = !o.Attrs.Has("dims") || slices.Contains(dims, int64(d))
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

// ByRows reports whether elements of the result at an index of dimension d are made of
// operands' elements at that index alone: see RowsOf.
func (o Operation) ByRows(d int) bool {
	switch o.Op {
	case ir.OpMatmul, ir.OpAddmm:
		return true
	case ir.OpSoftmax, ir.OpLogSoftmax, ir.OpCumsum:
		return d != int(o.Attrs.Int("dim", 0))
	case ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		return o.RowsOf(0, d) >= 0
	}
	return false
}

// RowsOf is the dimension of operand k that dimension d of the result counts along, -1 if
// each element is made of all of the operand.
func (o Operation) RowsOf(k, d int) int {
	shape := o.Types[k+1].Shape()
	switch o.Op {
	case ir.OpMatmul, ir.OpAddmm:
		if factor := o.factor(k); factor >= 0 { // batches count in both
			if d == len(shape)-1-factor {
				return -1
			}
			return d
		}
		d -= o.Types[0].Rank() - len(shape)
		if d < 0 || shape[d].Equal(ir.D(1)) {
			return -1
		}
		return d
	case ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		dims := o.Attrs.Ints("dims")
		if !o.Attrs.Has("dims") {
			return -1
		}
		if o.Types[0].Rank() == len(shape) {
			if slices.Contains(dims, int64(d)) {
				return -1
			}
			return d
		}
		for e := range shape {
			if slices.Contains(dims, int64(e)) {
				continue
			}
			if d == 0 {
				return e
			}
			d--
		}
		return -1
	}
	return d
}
