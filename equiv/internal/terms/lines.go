package terms

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv/internal/index"
	"github.com/seed-ee968945/concert/equiv/internal/lines"
	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/ir"
)

// Elements of products, of reductions and of what goes along a dimension are made of lines of
// their operands, of which few enough are compared in small tensors.

// maxLines bounds the elements of terms where lines are looked into.
const maxLines = 1 << 16

// operation is an opaque term as one.
func (t *term) operation() lines.Operation {
	return lines.Operation{Op: t.op, Attrs: t.attrs, Types: t.types}
}

// ofLines reports whether the elements of an opaque term are, and how many they are is known.
func ofLines(t *term) bool {
	return t.types != nil && lines.Made(t.op) && !slices.ContainsFunc(t.types, func(x ir.Type) bool { _, ok := x.Shape().Static(); return !ok })
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
		all := make([][]int64, len(args))
		for k, x := range args {
			all[k] = []int64{-1}
			for _, j := range t.operation().Line(k, index) {
				all[k] = append(all[k], int64(at(x, j)))
			}
		}
		list := t.operation().List(all)
		if d := int(t.attrs.Int("dim", -1)); d >= 0 { // the place in the line counts
			list = append(list, index[d])
		}
		out[i] = e.Intern(h, list...)
	}
	return true
}

// line is the element of a value that is made of lines at an index: of elements of the operands at
// what of the index counts in them, and at all of the dimensions that do not.
func (p *indexed) line(v *Value, r int, at []index.Index) scalar.ID {
	op := lines.Operation{Op: v.Op, Attrs: v.Attrs, Types: []ir.Type{v.Type}}
	for _, a := range v.Args {
		op.Types = append(op.Types, p.z.vals.all[a].Type)
	}
	all := make([][]int64, len(v.Args))
	for k, a := range v.Args {
		of, sizes := p.along(op, k, at)
		all[k] = []int64{-1, int64(p.e.Text(fmt.Sprint(sizes))), sized(r, sizes...)}
		for _, i := range of {
			x := p.at(a, r, i)
			if x == unknown {
				return unknown
			}
			all[k] = append(all[k], int64(x))
		}
	}
	list := op.List(all)
	if d := int(v.Attrs.Int("dim", -1)); d >= 0 { // the place in the line counts
		list = append(list, int64(p.e.Text(at[d].String())))
	}
	return p.e.Intern(p.e.Head(v.Op, v.Type.DType(), v.Attrs.String()), list...)
}

// along lists the indices in operand k that the element of the result at an index is made of, and the sizes
// of the dimensions that are counted through, each by a variable that is not in the index.
func (p *indexed) along(op lines.Operation, k int, at []index.Index) (all [][]index.Index, sizes []ir.Dim) {
	shape := op.Types[k+1].Shape()
	of := make([]*index.Index, len(shape))
	level := 1 // of lines in lines
	for d, i := range at {
		if e := op.RowsOf(k, d); op.ByRows(d) && e >= 0 {
			of[e] = &at[d]
		}
		for _, label := range p.Labels(i) {
			level = max(level, 1+strings.Count(label, "/"))
		}
	}
	all = [][]index.Index{nil}
	for e, n := range shape {
		along := []index.Index{{}}
		switch {
		case of[e] != nil:
			along[0] = *of[e]
		case !n.Equal(ir.D(1)):
			sizes = append(sizes, n)
			along = p.Counting(fmt.Sprint(strings.Repeat("/", level), len(sizes)), n)
		}
		all = index.Product(all, along)
	}
	return all, sizes
}
