package export

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// This file writes what goes by indices. They lie along the last dimension of one tensor,
// where StableHLO wants them: one for each dimension of the operand that is indexed.

// vectors joins indices of one shape to vectors, and counts negative ones from the end.
func (e *emitter) vectors(idx []val, shape, dims, size []int64, wrap bool) val {
	parts := make([]val, len(idx))
	for i, v := range idx {
		v = e.broadcast(e.to(v, ir.I64), shape)
		if wrap {
			back := e.simple("stablehlo.add", v, e.whole(size[dims[i]], ir.I64, shape))
			v = e.choose(e.compare("LT", v, e.whole(0, ir.I64, shape)), back, v)
		}
		parts[i] = e.reshape(v, append(slices.Clone(shape), 1))
	}
	return e.concatenate(parts, len(shape))
}

// placing says where dimensions of indices stand among the others: in the place of those
// that are indexed if these are neighbours, else in front.
type placing struct {
	dims   []int64 // indexed
	rest   []int64 // sizes of the others
	window []int64 // their places in the result
	shape  []int64 // of the result
}

func place(x val, dims, idx []int64) placing {
	p := placing{dims: dims}
	n := int64(len(dims))
	adjacent := dims[n-1]-dims[0] == n-1
	front := 0
	for d, size := range x.shape {
		if slices.Contains(dims, int64(d)) {
			continue
		}
		p.rest = append(p.rest, size)
		if adjacent && int64(d) < dims[0] {
			front++
		}
	}
	p.shape = slices.Concat(p.rest[:front], idx, p.rest[front:])
	for i := range p.rest {
		if i >= front {
			i += len(idx)
		}
		p.window = append(p.window, int64(i))
	}
	return p
}

// gather takes elements, or slices along dimensions that are not indexed.
func (e *emitter) gather(x val, dims []int64, idx []val, shape []int64) val {
	return e.taken(x, place(x, dims, shape), e.vectors(idx, shape, dims, x.shape, false))
}

func (e *emitter) taken(x val, p placing, at val) val {
	sizes := slices.Clone(x.shape)
	for _, d := range p.dims {
		sizes[d] = 1
	}
	attrs := fmt.Sprintf("dimension_numbers = #stablehlo.gather<offset_dims = [%s], collapsed_slice_dims = [%s], start_index_map = [%s], index_vector_dim = %d>, indices_are_sorted = false, slice_sizes = %s",
		ints(p.window), ints(p.dims), ints(p.dims), len(at.shape)-1, array(sizes))
	return e.generic("stablehlo.gather", attrs, "", []val{x, at}, []val{of(x.dt, p.shape)})[0]
}

// scattered is a tensor with updates combined into it by an operation, or put in the place
// of what is there.
func (e *emitter) scattered(op string, x val, p placing, at, updates val) val {
	attrs := fmt.Sprintf("indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [%s], inserted_window_dims = [%s], scatter_dims_to_operand_dims = [%s], index_vector_dim = %d>, unique_indices = false",
		ints(p.window), ints(p.dims), ints(p.dims), len(at.shape)-1)
	region := body(op, x.dt)
	if op == "" {
		t := typeText(x.dt, nil)
		region = fmt.Sprintf("    ^bb0(%%.a: %s, %%.b: %s):\n      stablehlo.return %%.b : %s\n", t, t, t)
	}
	return e.generic("stablehlo.scatter", attrs, region, []val{x, at, updates}, []val{of(x.dt, x.shape)})[0]
}

// common is the shape that indices broadcast to.
func common(idx []val) []int64 {
	var out []int64
	for _, v := range idx {
		s := slices.Clone(v.shape)
		if len(s) < len(out) {
			s, out = out, s
		}
		off := len(s) - len(out)
		for i, n := range out {
			if s[off+i] == 1 {
				s[off+i] = n
			}
		}
		out = s
	}
	return out
}

func index(e *emitter, vs []val) val {
	dims, shape := e.node.Attrs().Ints("dims"), common(vs[1:])
	return e.taken(vs[0], place(vs[0], dims, shape), e.vectors(vs[1:], shape, dims, vs[0].shape, true))
}

func embedding(e *emitter, vs []val) val { return e.gather(vs[0], []int64{0}, vs[1:], vs[1].shape) }

func indexPut(e *emitter, vs []val) val {
	dims, shape := e.node.Attrs().Ints("dims"), common(vs[2:])
	at := e.vectors(vs[2:], shape, dims, vs[0].shape, true)
	return e.added(vs[0], vs[1], place(vs[0], dims, shape), at, e.node.Attrs().Bool("accumulate", false))
}

// added puts values into a tensor, or adds them to it: then sums are rounded once.
func (e *emitter) added(x, values val, p placing, at val, accumulate bool) val {
	if !accumulate {
		return e.scattered("", x, p, at, e.broadcast(e.to(values, x.dt), p.shape))
	}
	dt := summed(x.dt, values)
	values = e.broadcast(e.to(values, dt), p.shape)
	if e.node.Attrs().Float("alpha", 1) != 1 {
		f := e.node.Attrs().Float("alpha", 1)
		values = e.simple("stablehlo.multiply", values, e.number(f, dt, values.shape))
	}
	return e.to(e.scattered("stablehlo.add", e.to(x, dt), p, at, values), x.dt)
}

func indexAdd(e *emitter, vs []val) val {
	d := []int64{e.node.Attrs().Int("dim", 0)}
	at := e.vectors(vs[1:2], vs[1].shape, d, vs[0].shape, false)
	return e.added(vs[0], vs[2], place(vs[0], d, vs[1].shape), at, true)
}

// coordinates are those of each element that an index tensor of x's rank picks along dim:
// its own, but for that one.
func (e *emitter) coordinates(idx val, dim int) []val {
	out := make([]val, len(idx.shape))
	for d := range out {
		if out[d] = idx; d != dim {
			out[d] = e.iota(ir.I64, idx.shape, d)
		}
	}
	return out
}

// ranked is a tensor of at least one dimension.
func (e *emitter) ranked(v val) val {
	if len(v.shape) == 0 {
		return e.reshape(v, []int64{1})
	}
	return v
}

func every(rank int) []int64 {
	out := make([]int64, rank)
	for d := range out {
		out[d] = int64(d)
	}
	return out
}

func gatherAlong(e *emitter, vs []val) val {
	x, idx := e.ranked(vs[0]), e.ranked(vs[1])
	at := e.coordinates(idx, int(e.node.Attrs().Int("dim", 0)))
	return e.reshape(e.gather(x, every(len(x.shape)), at, idx.shape), e.shape(0))
}

func scatterAlong(e *emitter, vs []val) val {
	x, idx := e.ranked(vs[0]), e.ranked(vs[1])
	dims := every(len(x.shape))
	at := e.vectors(e.coordinates(idx, int(e.node.Attrs().Int("dim", 0))), idx.shape, dims, x.shape, false)
	dt, op := x.dt, ""
	if how := e.node.Attrs().Str("reduce", ""); how != "" {
		op = map[string]string{"add": "stablehlo.add", "sum": "stablehlo.add", "multiply": "stablehlo.multiply", "prod": "stablehlo.multiply",
			"amax": "stablehlo.maximum", "amin": "stablehlo.minimum"}[how]
		if dt = summed(x.dt, x); op == "" {
			e.failf("reduce=%q", how)
		}
	}
	var src val
	if len(vs) == 3 {
		src = e.ranked(vs[2])
		for d, n := range idx.shape {
			src = e.slice(src, d, 0, n, 1)
		}
		src = e.to(src, dt)
	} else {
		src = e.to(e.filled("value", x.dt, idx.shape), dt)
	}
	out := e.scattered(op, e.to(x, dt), place(x, dims, idx.shape), at, src)
	return e.reshape(e.to(out, x.dt), e.shape(0))
}

// topk of the largest is an operation of chlo along the last dimension; the smallest are
// the first of what is sorted.
func topk(e *emitter, vs []val) []val {
	attrs := e.node.Attrs()
	x := e.ranked(vs[0])
	d, k := int(attrs.Int("dim", 0)), attrs.Int("k", 0)
	from := x.dt
	if from == ir.Bool {
		x = e.to(x, ir.U8)
	}
	last := len(x.shape) - 1
	order := every(len(x.shape))
	order = append(slices.Delete(order, d, d+1), int64(d))
	x = e.transpose(x, order)
	shape := slices.Clone(x.shape)
	shape[last] = k
	var best, at val
	if attrs.Bool("largest", true) {
		out := e.several([]val{of(x.dt, shape), of(ir.I32, shape)}, "chlo.top_k(", x, fmt.Sprintf(", k = %d) : %s -> (%s, %s)", k, x.typ(), typeText(x.dt, shape), typeText(ir.I32, shape)))
		best, at = out[0], e.to(out[1], ir.I64)
	} else {
		best, at = e.sorted(x, last)
		best, at = e.slice(best, last, 0, k, 1), e.slice(at, last, 0, k, 1)
	}
	back := make([]int64, len(order))
	for i, o := range order {
		back[o] = int64(i)
	}
	return []val{e.reshape(e.to(e.transpose(best, back), from), e.shape(0)), e.reshape(e.transpose(at, back), e.shape(1))}
}

// sorted are the elements along a dimension in ascending order, NaN last, and where they were.
func (e *emitter) sorted(x val, dim int) (values, places val) {
	at := e.iota(ir.I64, x.shape, dim)
	t, p, kind := typeText(x.dt, nil), typeText(ir.I64, nil), e.kind(x.dt)
	region := fmt.Sprintf(`    ^bb0(%%.a: %[1]s, %%.b: %[1]s, %%.i: %[2]s, %%.j: %[2]s):
      %%.less = stablehlo.compare LT, %%.a, %%.b, %[3]s : (%[1]s, %[1]s) -> tensor<i1>
      %%.some = stablehlo.compare EQ, %%.a, %%.a, %[3]s : (%[1]s, %[1]s) -> tensor<i1>
      %%.none = stablehlo.compare NE, %%.b, %%.b, %[3]s : (%[1]s, %[1]s) -> tensor<i1>
      %%.before = stablehlo.and %%.some, %%.none : tensor<i1>
      %%.r = stablehlo.or %%.less, %%.before : tensor<i1>
      stablehlo.return %%.r : tensor<i1>
`, t, p, kind)
	out := e.generic("stablehlo.sort", fmt.Sprintf("dimension = %d : i64, is_stable = true", dim), region, []val{x, at}, []val{x, at})
	return out[0], out[1]
}
