package hostops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
)

// places is where index tensors point: for every element of their broadcast shape
// the sum of index times stride, in row-major order.
type places struct {
	shape []int64
	at    []int64
}

// placesOf evaluates index operands first, first+1, ... for dimensions dims of a
// tensor with the given shape and strides. Negative indices count from the end if
// wrap is set and are errors otherwise.
func (c *call) placesOf(first int, idx []Tensor, dims []int, shape, strides []int64, wrap bool) (places, error) {
	var p places
	for i := range idx {
		if !isIndexType(idx[i].DType) {
			return p, c.inErr(first+i, ErrDType, "indices are integers, not %v", idx[i].DType)
		}
		var ok bool
		if p.shape, ok = broadcastShapes(p.shape, idx[i].Shape); !ok {
			return p, c.inErr(first+i, ErrShape, "indices %v do not broadcast with those before, %v", idx[i].Shape, p.shape)
		}
	}
	n, ok := numel(p.shape)
	if !ok {
		n = -1
	}
	var err error
	if p.at, err = scratch[int64](c, n); err != nil {
		return p, err
	}
	buf := make([]int64, min(n, chunk))
	for i := range idx {
		s, _ := idx[i].broadcast(p.shape)
		size, stride := shape[dims[i]], strides[dims[i]]
		w := newNest(p.shape, false, cursor{idx[i].Offset, s})
		pos := 0
		w.each(0, n, chunk, func(off []int64, m int64) {
			load(buf[:m], &idx[i], off[0], w.inner(0))
			for k, v := range buf[:m] {
				if wrap && v < 0 {
					v += size
				}
				if (v < 0 || v >= size) && err == nil {
					err = c.inErr(first+i, ErrIndex, "element %d is %d, but dimension %d has size %d", pos+k, buf[k], dims[i], size)
					v = 0
				}
				p.at[pos+k] += v * stride
			}
			pos += int(m)
		})
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

func broadcastShapes(a, b []int64) ([]int64, bool) {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	pad := len(a) - len(b)
	for i, d := range b {
		switch {
		case out[pad+i] == 1:
			out[pad+i] = d
		case d != 1 && d != out[pad+i]:
			return a, false
		}
	}
	return out, true
}

// indexed describes x[..., idx0, idx1, ...] as PyTorch lays it out: the shape of
// the indices replaces the indexed dimensions if these are adjacent, and comes
// first if they are not.
type indexed struct {
	dims  []int   // indexed dimensions, ascending
	rest  []int64 // sizes of the other dimensions
	front int     // other dimensions before those of the indices
}

// indexDims reads attribute dims for n index operands; absent means the first n.
func (c *call) indexDims(n int, shape []int64) (indexed, error) {
	x := indexed{}
	list := c.intsAttr("dims")
	if list == nil {
		for d := range n {
			list = append(list, int64(d))
		}
	}
	if c.bad == nil && len(list) != n {
		c.bad = c.fail(ErrAttr, "dims=%v for %d index operands", list, n)
	}
	for i, d := range list {
		x.dims = append(x.dims, c.normDim("dims", d, len(shape)))
		if c.bad == nil && (len(shape) == 0 || i > 0 && x.dims[i] <= x.dims[i-1]) {
			c.bad = c.fail(ErrAttr, "dims=%v must be ascending dimensions of %v", list, shape)
		}
	}
	if c.bad != nil {
		return x, c.bad
	}
	adjacent := x.dims[n-1]-x.dims[0] == n-1
	for d, size := range shape {
		if slices.Contains(x.dims, d) {
			continue
		}
		x.rest = append(x.rest, size)
		if adjacent && d < x.dims[0] {
			x.front++
		}
	}
	return x, nil
}

// resultShape inserts the shape of the indices among the other dimensions.
func (x *indexed) resultShape(idx []int64) []int64 {
	return slices.Concat(x.rest[:x.front], idx, x.rest[x.front:])
}

// without drops the indexed dimensions from strides of the indexed tensor.
func (x *indexed) without(strides []int64) []int64 {
	var s []int64
	for d, v := range strides {
		if !slices.Contains(x.dims, d) {
			s = append(s, v)
		}
	}
	return s
}

// cut separates strides over resultShape into those of the indices and the others.
func (x *indexed) cut(strides []int64, n int) (idx, rest []int64) {
	return strides[x.front : x.front+n], slices.Concat(strides[:x.front], strides[x.front+n:])
}

// forEach calls fn for the runs of every indexed block: t is an element number of
// the tensor laid out like the result (base and strides given), x one of the
// indexed tensor. Blocks come in row-major order of the indices.
func (x *indexed) forEach(p places, base int64, strides []int64, xBase int64, xStrides []int64, fn func(t, tStep, x, xStep, n int64)) {
	idx, rest := x.cut(strides, len(p.shape))
	outer := newNest(p.shape, false, cursor{base, idx})
	inner := newNest(x.rest, true, cursor{0, rest}, cursor{0, x.without(xStrides)})
	size, step, xStep := inner.size(), inner.inner(0), inner.inner(1)
	place := 0
	outer.each(0, outer.size(), 1, func(o []int64, _ int64) {
		at := xBase + p.at[place]
		place++
		if len(inner.dims) == 1 { // one run: no odometer
			if size > 0 {
				fn(o[0], step, at, xStep, size)
			}
			return
		}
		inner.each(0, size, 1<<40, func(r []int64, n int64) { fn(o[0]+r[0], step, at+r[1], xStep, n) })
	})
}

// runIndex is aten.index.Tensor: operand 0 indexed at attribute dims by the others.
func runIndex(c *call) error {
	return takeIndexed(c, &c.ins[0], c.ins[1:], true)
}

// runEmbedding takes rows of the weight (operand 0) at the indices (operand 1).
func runEmbedding(c *call) error {
	if len(c.ins[0].Shape) != 2 {
		return c.inErr(0, ErrShape, "a table of embeddings has two dimensions, not %v", c.ins[0].Shape)
	}
	d := *c
	d.attrs = d.attrs.Without("dims")
	return takeIndexed(&d, &c.ins[0], c.ins[1:], false)
}

func takeIndexed(c *call, x *Tensor, idx []Tensor, wrap bool) error {
	out := &c.outs[0]
	if err := c.sameType(0); err != nil {
		return err
	}
	ix, err := c.indexDims(len(idx), x.Shape)
	if err != nil {
		return err
	}
	p, err := c.placesOf(1, idx, ix.dims, x.Shape, x.Strides, wrap)
	if err != nil {
		return err
	}
	if want := ix.resultShape(p.shape); !slices.Equal(want, out.Shape) {
		return c.outErr(0, ErrShape, "%v, want %v", out.Shape, want)
	}
	size := out.DType.Size()
	ix.forEach(p, out.Offset, out.Strides, x.Offset, x.Strides, func(t, tStep, s, sStep, n int64) {
		copyRun(out.Data, t, tStep, x.Data, s, sStep, n, size)
	})
	return nil
}

// runIndexPut is aten.index_put: operand 0 with values (operand 1) written or, with
// accumulate, added at the indices. Of several values for one place the last in
// row-major order wins; sums are made in that order and rounded once.
func runIndexPut(c *call) error {
	values := &c.ins[1]
	ix, err := c.indexDims(len(c.ins)-2, c.ins[0].Shape)
	if err != nil {
		return err
	}
	if c.boolAttr("accumulate", false) {
		return accumulate(c, ix, values, 1, c.ins[2:], 2, true, attr.Number{}.Or(1))
	}
	if c.bad != nil {
		return c.bad
	}
	out := &c.outs[0]
	if err := c.sameType(1); err != nil {
		return err
	}
	if err := c.sameShape(); err != nil {
		return err
	}
	p, err := c.placesOf(2, c.ins[2:], ix.dims, out.Shape, out.Strides, true)
	if err != nil {
		return err
	}
	strides, err := c.valueStrides(values, 1, ix.resultShape(p.shape))
	if err != nil {
		return err
	}
	if err := c.startFrom(0); err != nil {
		return err
	}
	size := out.DType.Size()
	ix.forEach(p, values.Offset, strides, out.Offset, out.Strides, func(t, tStep, o, oStep, n int64) {
		copyRun(out.Data, o, oStep, values.Data, t, tStep, n, size)
	})
	return nil
}

func (c *call) valueStrides(v *Tensor, operand int, shape []int64) ([]int64, error) {
	s, ok := v.broadcast(shape)
	if !ok {
		return nil, c.inErr(operand, ErrShape, "%v does not broadcast to the indexed %v", v.Shape, shape)
	}
	return s, nil
}

// runIndexAdd adds alpha times slices of src (operand 2) to operand 0 at the
// indices in operand 1, a vector, along attribute dim.
func runIndexAdd(c *call) error {
	x, idx, src := &c.ins[0], &c.ins[1], &c.ins[2]
	dim := c.dimAttr(0, len(x.Shape))
	alpha := c.numAttr("alpha").Or(1)
	if c.bad != nil {
		return c.bad
	}
	if len(x.Shape) == 0 || len(idx.Shape) != 1 {
		return c.inErr(1, ErrShape, "want a vector of indices in a tensor of at least one dimension, got %v in %v", idx.Shape, x.Shape)
	}
	want := slices.Clone(x.Shape)
	want[dim] = idx.Shape[0]
	if !slices.Equal(want, src.Shape) {
		return c.inErr(2, ErrShape, "%v, want %v", src.Shape, want)
	}
	d := *c
	d.attrs = d.attrs.With("dims", intsValue(dim))
	ix, err := d.indexDims(1, x.Shape)
	if err != nil {
		return err
	}
	return accumulate(c, ix, src, 2, c.ins[1:2], 1, false, alpha)
}

// accumulate adds alpha*values to operand 0 at the places of the indices.
func accumulate(c *call, ix indexed, values *Tensor, operand int, idx []Tensor, first int, wrap bool, alpha attr.Number) error {
	if c.bad != nil {
		return c.bad
	}
	out := &c.outs[0]
	if err := c.sameType(0); err != nil {
		return err
	}
	if err := c.sameShape(); err != nil {
		return err
	}
	dense := RowMajor(out.Shape)
	p, err := c.placesOf(first, idx, ix.dims, out.Shape, dense, wrap)
	if err != nil {
		return err
	}
	strides, err := c.valueStrides(values, operand, ix.resultShape(p.shape))
	if err != nil {
		return err
	}
	switch domainOf(out.DType, values.DType) {
	case domF64:
		return accumulateIn(c, ix, p, values, strides, dense, alpha.F)
	case domF32:
		return accumulateIn(c, ix, p, values, strides, dense, float32(alpha.F))
	}
	return accumulateIn(c, ix, p, values, strides, dense, as[int64](alpha))
}

func accumulateIn[T num](c *call, ix indexed, p places, values *Tensor, strides, dense []int64, alpha T) error {
	sums, err := loadAll[T](c, &c.ins[0])
	if err != nil {
		return err
	}
	buf := make([]T, chunk)
	ix.forEach(p, values.Offset, strides, 0, dense, func(t, tStep, o, oStep, n int64) {
		for n > 0 {
			b := buf[:min(n, chunk)]
			load(b, values, t, tStep)
			for i, v := range b {
				sums[o+int64(i)*oStep] += T(alpha * v)
			}
			m := int64(len(b))
			t, o, n = t+m*tStep, o+m*oStep, n-m
		}
	})
	storeAll(&c.outs[0], sums)
	return nil
}

// loadAll widens a whole tensor into a row-major buffer.
func loadAll[T num](c *call, t *Tensor) ([]T, error) {
	buf, err := scratch[T](c, t.NumElems())
	if err != nil {
		return nil, err
	}
	loadInto(buf, t)
	return buf, nil
}

// loadInto widens t, of len(buf) elements, into buf in row-major order.
func loadInto[T num](buf []T, t *Tensor) {
	w := newNest(t.Shape, false, cursorOf(t))
	pos := int64(0)
	w.each(0, w.size(), 1<<40, func(off []int64, n int64) {
		load(buf[pos:pos+n], t, off[0], w.inner(0))
		pos += n
	})
}

// storeAll is the inverse of loadAll.
func storeAll[T num](t *Tensor, buf []T) {
	w := newNest(t.Shape, false, cursorOf(t))
	pos := int64(0)
	w.each(0, w.size(), 1<<40, func(off []int64, n int64) {
		store(t, off[0], w.inner(0), buf[pos:pos+n])
		pos += n
	})
}
