package equiv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/ir"
)

// Elements of products, of reductions and of what goes along a dimension are made of lines of
// their operands, of which few enough are compared in small tensors.

// maxLines bounds the elements of terms where lines are looked into.
const maxLines = 1 << 16

// madeOfLines reports whether elements of an operation's result are made of lines.
func madeOfLines(op ir.Op) bool {
	switch op {
	case ir.OpMatmul, ir.OpAddmm, ir.OpSoftmax, ir.OpLogSoftmax, ir.OpCumsum, ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		return true
	}
	return false
}

// ofLines reports whether the elements of an opaque term are, and how many they are is known.
func ofLines(t *term) bool {
	return t.types != nil && madeOfLines(t.op) && !slices.ContainsFunc(t.types, func(x ir.Type) bool { _, ok := x.Shape().Static(); return !ok })
}

// line makes elements of the lines that they are made of, in order.
func (e *elements) line(t *term, out []scalar.ID, args [][]scalar.ID) bool {
	if slices.ContainsFunc(args, func(x []scalar.ID) bool { return x == nil }) {
		return false
	}
	shape, _ := t.types[0].Shape().Static()
	h := e.Head(t.op, t.dt, t.head)
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
		list := listed(t.op, lines)
		if d := int(t.attrs.Int("dim", -1)); d >= 0 { // the place in the line counts
			list = append(list, index[d])
		}
		out[i] = e.Intern(h, list...)
	}
	return true
}

// listed is one list of the lines of all operands.
func listed(op ir.Op, lines [][]int64) []int64 {
	if op == ir.OpMatmul || op == ir.OpAddmm { // products of numbers commute
		slices.SortFunc(lines[len(lines)-2:], slices.Compare)
	}
	return slices.Concat(lines...)
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

// line is the element of a value that is made of lines at an index: of elements of the operands at
// what of the index counts in them, and at all of the dimensions that do not.
func (p *indexed) line(v *value, r int, at []index) scalar.ID {
	t := term{op: v.op, attrs: v.attrs, types: []ir.Type{v.typ}, args: make([]termID, len(v.args))}
	for _, a := range v.args {
		t.types = append(t.types, p.z.p.values[a].typ)
	}
	lines := make([][]int64, len(v.args))
	for k, a := range v.args {
		of, sizes := p.along(&t, k, at)
		lines[k] = []int64{-1, int64(p.e.Text(fmt.Sprint(sizes))), sized(r, sizes...)}
		for _, i := range of {
			x := p.at(a, r, i)
			if x == unknown {
				return unknown
			}
			lines[k] = append(lines[k], int64(x))
		}
	}
	list := listed(v.op, lines)
	if d := int(v.attrs.Int("dim", -1)); d >= 0 { // the place in the line counts
		list = append(list, int64(p.e.Text(at[d].text())))
	}
	return p.e.Intern(p.e.Head(v.op, v.typ.DType(), v.attrs.String()), list...)
}

// along lists the indices in operand k that the element of t at an index is made of, and the sizes
// of the dimensions that are counted through, each by a variable that is not in the index.
func (p *indexed) along(t *term, k int, at []index) (all [][]index, sizes []ir.Dim) {
	shape := t.types[k+1].Shape()
	of := make([]*index, len(shape))
	level := 1 // of lines in lines
	for d, i := range at {
		if e := rowsOf(t, k, d); byRows(t, d) && e >= 0 {
			of[e] = &at[d]
		}
		for _, c := range i.of {
			level = max(level, 1+strings.Count(p.labels[c.v], "/"))
		}
	}
	all = [][]index{nil}
	for e, n := range shape {
		along := []index{{}}
		switch {
		case of[e] != nil:
			along[0] = *of[e]
		case !n.Equal(ir.D(1)):
			sizes = append(sizes, n)
			along = p.counting(fmt.Sprint(strings.Repeat("/", level), len(sizes)), n)
		}
		var next [][]index
		for _, x := range all {
			for _, i := range along {
				next = append(next, append(slices.Clip(x), i))
			}
		}
		all = next
	}
	return all, sizes
}
