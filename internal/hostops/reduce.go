package hostops

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// acc is the set of accumulator types.
type acc interface {
	float64 | int64 | uint64
}

// fold is an associative operation on accumulators.
type fold[A acc] struct {
	init A
	// row folds xs into a, in order.
	row func(a A, xs []A) A
	// column folds xs[i] into as[i].
	column func(as, xs []A)
}

// reduction is one row of what runReduction can do.
type reduction struct {
	f    fold[float64]
	i    fold[int64]
	u    *fold[uint64] // nil: the bits of i
	mean bool          // divide by the number of elements at the end; the result is a float
	// init, if it is set, gives what elements of a type begin with.
	init func(dtype.DType) (int64, float64)
}

// of is the reduction of elements of a type.
func (r reduction) of(t dtype.DType) reduction {
	if r.init != nil {
		r.i.init, r.f.init = r.init(t)
		r.u = &fold[uint64]{uint64(r.i.init), r.u.row, r.u.column}
	}
	return r
}

func sumFold[A acc]() fold[A] {
	return fold[A]{
		row: func(a A, xs []A) A {
			for _, x := range xs {
				a += x
			}
			return a
		},
		column: addTo[A],
	}
}

func foldOf[A acc](init A, f func(a, b A) A) fold[A] {
	return fold[A]{
		init: init,
		row: func(a A, xs []A) A {
			for _, x := range xs {
				a = f(a, x)
			}
			return a
		},
		column: func(as, xs []A) {
			for i, x := range xs {
				as[i] = f(as[i], x)
			}
		},
	}
}

func addTo[A acc](as, xs []A) {
	xs = xs[:len(as)]
	for i := range as {
		as[i] += xs[i]
	}
}

func maxOf[A acc](a, b A) A { return max(a, b) }
func minOf[A acc](a, b A) A { return min(a, b) }
func mulOf[A acc](a, b A) A { return a * b }

var (
	redSum  = reduction{f: sumFold[float64](), i: sumFold[int64]()}
	redMean = reduction{f: sumFold[float64](), mean: true}
	redProd = reduction{f: foldOf(1, mulOf[float64]), i: foldOf(1, mulOf[int64])}
	redMax  = reduction{f: foldOf(0, maxOf[float64]), i: foldOf(0, maxOf[int64]), u: new(foldOf(0, maxOf[uint64])), init: least}
	redMin  = reduction{f: foldOf(0, minOf[float64]), i: foldOf(0, minOf[int64]), u: new(foldOf(0, minOf[uint64])), init: largest}
)

// The largest of no elements is the least number that a type has, and the least of none the
// largest, as in XLA: sizes may be 0 at run time, and a device cannot refuse them in a step.
func least(t dtype.DType) (int64, float64) {
	i, _ := t.Range()
	f, _ := t.Ends()
	return i, f
}

func largest(t dtype.DType) (int64, float64) {
	_, i := t.Range()
	_, f := t.Ends()
	return i, f
}

// runReduction reduces over attribute dims (absent: all) with or without keepdim.
func runReduction(r reduction) func(*call) (job, error) {
	return func(c *call) (job, error) {
		out, x := &c.outs[0], &c.ins[0]
		dims := c.dimsAttr("dims", len(x.Shape))
		keep := c.boolAttr("keepdim", false)
		if c.bad != nil {
			return nil, c.bad
		}
		s, err := c.splitDims(dims, keep)
		if err != nil {
			return nil, err
		}
		if r.mean && !out.DType.IsFloat() {
			return nil, c.outErr(0, ErrDType, "a mean is a float, not %v", out.DType)
		}
		dom := domainOf(out.DType, x.DType)
		r := r.of(x.DType)
		if r.mean || !dom.isInt() {
			var finish func(float64) float64
			if scale := float64(s.count); r.mean {
				finish = func(a float64) float64 { return a / scale }
			}
			return reduceIn(c, s, r.f, finish), nil
		}
		if dom == domU64 && r.u != nil {
			return reduceIn(c, s, *r.u, nil), nil
		}
		return reduceIn(c, s, r.i, nil), nil
	}
}

// split separates the dimensions of operand 0 into those that stay and those that
// are reduced.
type split struct {
	kept  *nest // cursors: result, operand
	gone  *nest // cursor: operand, relative to a kept position
	count int64 // elements per result
}

// splitDims checks the result's shape against operand 0 without dims (ascending).
func (c *call) splitDims(dims []int, keep bool) (split, error) {
	out, x := &c.outs[0], &c.ins[0]
	var want, shape, goneShape, so, sx, sg []int64
	for d, n := range x.Shape {
		if slices.Contains(dims, d) {
			goneShape, sg = append(goneShape, n), append(sg, x.Strides[d])
			if keep {
				want = append(want, 1)
			}
			continue
		}
		if o := len(want); o < len(out.Strides) {
			so = append(so, out.Strides[o])
		}
		want, shape, sx = append(want, n), append(shape, n), append(sx, x.Strides[d])
	}
	if !slices.Equal(want, out.Shape) {
		return split{}, c.outErr(0, ErrShape, "%v, but operand %v without dimensions %v gives %v", out.Shape, x.Shape, dims, want)
	}
	count, _ := numel(goneShape)
	return split{
		kept:  newNest(shape, true, cursor{out.Offset, so}, cursor{x.Offset, sx}),
		gone:  newNest(goneShape, false, cursor{0, sg}),
		count: count,
	}, nil
}

// reduceIn folds the elements of each result in row-major order of the reduced
// dimensions, and passes each result to finish, if that is set. Where the operand is denser
// along the dimensions that stay, it folds a chunk of results at once, which reads memory in
// order; the order of the operations on each result, and so its bits, are the same.
func reduceIn[A acc](c *call, s split, f fold[A], finish func(A) A) job {
	out, x := &c.outs[0], &c.ins[0]
	columns := s.count > 1 && s.kept.dims[len(s.kept.dims)-1] >= 8 && absU(s.kept.inner(1)) < absU(s.gone.inner(0))
	maxRun, maxGone, along := int64(1), int64(chunk), s.gone.inner(0)
	if columns {
		maxRun, maxGone, along = chunk, 1, s.kept.inner(1)
	}
	e := elementsOf[A](x, along)
	part := func(m *memory, lo, hi int64) {
		sums, xs := take[A](m, maxRun), take[A](m, chunk)
		kept, gone := s.kept.walk(m, maxRun), s.gone.walk(m, maxGone)
		for kept.from(lo, hi); kept.next(); {
			as := sums[:kept.n]
			for i := range as {
				as[i] = f.init
			}
			for gone.from(0, s.count); gone.next(); {
				at := kept.off[1] + gone.off[0]
				if columns {
					f.column(as, e.at(at, kept.n, xs))
				} else {
					as[0] = f.row(as[0], e.at(at, gone.n, xs))
				}
			}
			if finish != nil {
				for i := range as {
					as[i] = finish(as[i])
				}
			}
			store(out, kept.off[0], s.kept.inner(0), as)
		}
	}
	return func() error { parallel(s.kept.size(), 2*s.count, part); return nil }
}

// runArgmax writes the index of the largest element along attribute dim, or of
// the flattened operand if dim is absent. Of equal elements the first wins; NaN
// counts as largest.
func runArgmax(c *call) error {
	out, x := &c.outs[0], &c.ins[0]
	var dims []int
	if c.attrs.Has("dim") {
		dims = []int{c.dimAttr(0, len(x.Shape))}
	} else {
		dims = c.dimsAttr("dims", len(x.Shape))
	}
	keep := c.boolAttr("keepdim", false)
	if c.bad != nil {
		return c.bad
	}
	if !out.DType.IsInt() {
		return c.outErr(0, ErrDType, "indices are integers, not %v", out.DType)
	}
	s, err := c.splitDims(dims, keep)
	if err != nil {
		return err
	}
	if s.count == 0 && out.NumElems() > 0 {
		return c.inErr(0, ErrShape, "no argmax of an empty range in %v", x.Shape)
	}
	switch domainOf(x.DType) {
	case domI64:
		argmaxIn[int64](c, s)
	case domU64:
		argmaxIn[uint64](c, s)
	default:
		argmaxIn[float64](c, s)
	}
	return nil
}

func argmaxIn[A acc](c *call, s split) {
	out, x := &c.outs[0], &c.ins[0]
	xs := make([]A, chunk)
	s.kept.each(0, s.kept.size(), 1, func(off []int64, _ int64) {
		var best A
		at, pos := int64(-1), int64(0)
		s.gone.each(0, s.count, chunk, func(g []int64, m int64) {
			load(xs[:m], x, off[1]+g[0], s.gone.inner(0))
			for i, v := range xs[:m] {
				if at < 0 || v > best || v != v && best == best {
					best, at = v, pos+int64(i)
				}
			}
			pos += m
		})
		store(out, off[0], 1, []int64{at})
	})
}

// lanes walks a tensor along one dimension: each lane is the elements that differ
// in that dimension only.
type lanes struct {
	n      int64   // elements per lane
	others *nest   // one cursor per tensor, at the start of a lane
	step   []int64 // stride along the lane per tensor
}

// lanesOf pairs tensors that agree in every dimension but dim.
func lanesOf(dim int, ts ...*Tensor) lanes {
	var l lanes
	var shape []int64
	cur := make([]cursor, len(ts))
	for i, t := range ts {
		cur[i].base = t.Offset
		if len(t.Shape) == 0 {
			l.step = append(l.step, 1)
			continue
		}
		l.step = append(l.step, t.Strides[dim])
		cur[i].stride = slices.Delete(slices.Clone(t.Strides), dim, dim+1)
		shape = slices.Delete(slices.Clone(t.Shape), dim, dim+1)
	}
	l.n = 1
	if t := ts[0]; len(t.Shape) > 0 {
		l.n = t.Shape[dim]
	}
	l.others = newNest(shape, true, cur...)
	return l
}

// sameShape checks that the result has the shape of operand 0.
func (c *call) sameShape() error {
	if !slices.Equal(c.outs[0].Shape, c.ins[0].Shape) {
		return c.outErr(0, ErrShape, "%v, want the operand's %v", c.outs[0].Shape, c.ins[0].Shape)
	}
	return nil
}

// runCumsum sums from the start along attribute dim.
func runCumsum(c *call) error {
	out, x := &c.outs[0], &c.ins[0]
	dim := c.dimAttr(0, len(x.Shape))
	if c.bad != nil {
		return c.bad
	}
	if err := c.sameShape(); err != nil {
		return err
	}
	l := lanesOf(dim, out, x)
	if domainOf(out.DType, x.DType).isInt() {
		cumsumIn[int64](c, l)
	} else {
		cumsumIn[float64](c, l)
	}
	return nil
}

func cumsumIn[A acc](c *call, l lanes) {
	xs := make([]A, chunk)
	l.others.each(0, l.others.size(), 1, func(off []int64, _ int64) {
		var sum A
		for i := int64(0); i < l.n; i += chunk {
			b := xs[:min(chunk, l.n-i)]
			load(b, &c.ins[0], off[1]+i*l.step[1], l.step[1])
			for j, v := range b {
				sum += v
				b[j] = sum
			}
			store(&c.outs[0], off[0]+i*l.step[0], l.step[0], b)
		}
	})
}

// runSoftmax computes softmax or log_softmax along attribute dim (default: the
// last). The maximum is subtracted first; everything is in float64 and rounded once.
func runSoftmax(c *call) error {
	out, x := &c.outs[0], &c.ins[0]
	dim := c.dimAttr(-1, len(x.Shape))
	if c.bad != nil {
		return c.bad
	}
	if !out.DType.IsFloat() {
		return c.outErr(0, ErrDType, "a softmax is a float, not %v", out.DType)
	}
	if err := c.sameShape(); err != nil {
		return err
	}
	l := lanesOf(dim, out, x)
	isLog := c.op == "log_softmax"
	parallel(l.others.size(), 16*l.n, func(m *memory, lo, hi int64) {
		xs := take[float64](m, l.n)
		l.others.each(lo, hi, 1, func(off []int64, _ int64) {
			load(xs, x, off[1], l.step[1])
			softmax(xs, isLog)
			store(out, off[0], l.step[0], xs)
		})
	})
	return nil
}

// softmax replaces xs by its softmax, or the logarithm of it.
func softmax(xs []float64, isLog bool) {
	m := math.Inf(-1)
	for _, v := range xs {
		m = max(m, v)
	}
	sum := 0.0
	for i, v := range xs {
		e := math.Exp(v - m)
		sum += e
		if isLog {
			xs[i] = v - m
		} else {
			xs[i] = e
		}
	}
	log := math.Log(sum)
	for i := range xs {
		if isLog {
			xs[i] -= log
		} else {
			xs[i] /= sum
		}
	}
}
