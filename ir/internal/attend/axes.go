package attend

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// factor is a part of a dimension: indices below size, step elements apart in the root.
type factor struct{ size, step int64 }

// axes say where the elements of a value lie in the dense tensor behind its views and copies.
type axes struct {
	root *ir.Value
	dims [][]factor // by dimension, the outermost factor first; sizes of 1 are left out
}

// sizes are the static sizes of a value; nil where one is not known.
func sizes(v *ir.Value) []int64 {
	s, ok := v.Type().Shape().Static()
	if !ok || v.Type().IsAsync() {
		return nil
	}
	return s
}

// neutral reports whether a node only moves elements, or copies them.
func neutral(n *ir.Node) bool {
	switch n.Op() {
	case ir.OpView, ir.OpPermute, ir.OpClone, ir.OpAlias, ir.OpExpand:
		return true
	}
	return false
}

// axesOf follows a value to the tensor that it is a view or a copy of.
func axesOf(v *ir.Value) axes {
	n := v.Def()
	if !neutral(n) || sizes(v) == nil || sizes(n.Arg(0)) == nil {
		return whole(v)
	}
	a := axesOf(n.Arg(0))
	to := sizes(v)
	switch n.Op() {
	case ir.OpPermute:
		dims := make([][]factor, 0, len(a.dims))
		for _, d := range n.Attrs().Ints("dims") {
			dims = append(dims, a.dims[d])
		}
		return axes{a.root, dims}
	case ir.OpView:
		if dims, ok := regrouped(slices.Concat(a.dims...), to); ok {
			return axes{a.root, dims}
		}
		return whole(v)
	case ir.OpExpand:
		from := sizes(n.Arg(0))
		dims := make([][]factor, len(to))
		for i := range to {
			k := i - (len(to) - len(from))
			switch {
			case k >= 0 && from[k] == to[i]:
				dims[i] = a.dims[k]
			case to[i] > 1:
				dims[i] = []factor{{to[i], 0}}
			}
		}
		return axes{a.root, dims}
	}
	return a
}

// whole are the axes of a value that is its own root.
func whole(v *ir.Value) axes {
	shape := sizes(v)
	a := axes{root: v, dims: make([][]factor, len(shape))}
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 {
			a.dims[i] = []factor{{shape[i], step}}
		}
		step *= shape[i]
	}
	return a
}

// regrouped puts factors in their order into dimensions of a shape.
func regrouped(fs []factor, shape []int64) ([][]factor, bool) {
	out := make([][]factor, len(shape))
	for i, n := range shape {
		for n > 1 {
			if len(fs) == 0 {
				return nil, false
			}
			f := fs[0]
			switch {
			case n%f.size == 0:
				fs = fs[1:]
			case f.size%n == 0: // its outer part
				fs = slices.Concat([]factor{{f.size / n, f.step}}, fs[1:])
				f = factor{n, f.step * (f.size / n)}
			default:
				return nil, false
			}
			n /= f.size
			out[i] = append(out[i], f)
		}
		out[i] = merged(out[i])
	}
	return out, len(fs) == 0
}

// merged joins neighbours that are one run.
func merged(fs []factor) []factor {
	var out []factor
	for _, f := range fs {
		if k := len(out) - 1; k >= 0 && out[k].step == f.size*f.step {
			out[k] = factor{out[k].size * f.size, f.step}
			continue
		}
		out = append(out, f)
	}
	return out
}

// matrix is an operand or result of a product as [batch..., rows, columns].
type matrix struct {
	v          *ir.Value
	batch      []factor // of all leading dimensions
	rows, cols []factor
	root       *ir.Value
	swap       bool // rows are the last dimension of v
}

// matrixOf reads a value as a matrix; swap takes its last two dimensions the other way around.
func matrixOf(v *ir.Value, swap bool) (matrix, bool) {
	a := axesOf(v)
	n := len(a.dims)
	if n < 2 {
		return matrix{}, false
	}
	m := matrix{v: v, batch: merged(slices.Concat(a.dims[:n-2]...)), rows: a.dims[n-2], cols: a.dims[n-1], root: a.root, swap: swap}
	if swap {
		m.rows, m.cols = m.cols, m.rows
	}
	return m, true
}

// same reports whether two matrices have the same elements.
func (m matrix) same(o matrix) bool {
	return m.root == o.root && slices.Equal(m.batch, o.batch) && slices.Equal(m.rows, o.rows) && slices.Equal(m.cols, o.cols)
}

// split cuts the batch into factors of given sizes.
func (m matrix) split(to []int64) ([]factor, bool) {
	dims, ok := regrouped(m.batch, to)
	var out []factor
	for i, d := range dims {
		switch {
		case len(d) == 1:
			out = append(out, d[0])
		case to[i] == 1:
			out = append(out, factor{1, 0})
		default:
			return nil, false
		}
	}
	return out, ok
}

// viewed is a matrix as [b, h, rows, cols], a view of its root; nil if it is none.
func (m matrix) viewed(w *writer, b, h int64) *ir.Value {
	batch, ok := m.split([]int64{b, h})
	if !ok || len(m.rows) > 1 || len(m.cols) > 1 || !m.root.Type().Contiguous() {
		return nil
	}
	all := batch
	for _, l := range [][]factor{m.rows, m.cols} {
		if len(l) == 0 {
			l = []factor{{1, 0}}
		}
		all = append(all, l...)
	}
	order := []int{0, 1, 2, 3}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(all[y].step, all[x].step) })
	shape, back, step := make([]int64, 4), make([]int64, 4), int64(1)
	for i := 3; i >= 0; i-- {
		f := all[order[i]]
		if f.size != 1 && f.step != step {
			return nil
		}
		shape[i], back[order[i]] = f.size, int64(i)
		step *= f.size
	}
	n := intmath.Product(sizes(m.root))
	if n != step {
		return nil
	}
	return w.permute(w.view(m.root, shape), back)
}
