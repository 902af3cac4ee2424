package hostops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
)

func intsValue(ds ...int) attr.Value {
	l := make([]int64, len(ds))
	for i, d := range ds {
		l[i] = int64(d)
	}
	return attr.Ints(l...)
}

// atLeast1 views a tensor of rank 0 as one of shape [1].
func atLeast1(t Tensor) Tensor {
	if len(t.Shape) == 0 {
		t.Shape, t.Strides = []int64{1}, []int64{1}
	}
	return t
}

// pointing checks an index operand of gather or scatter against the tensor it
// points into: equal ranks, and no larger in the other dimensions.
func (c *call) pointing(operand int, idx, x *Tensor, dim int) error {
	if !isIndexType(idx.DType) {
		return c.inErr(operand, ErrDType, "indices are integers, not %v", idx.DType)
	}
	if len(idx.Shape) != len(x.Shape) {
		return c.inErr(operand, ErrShape, "indices %v have another rank than %v", idx.Shape, x.Shape)
	}
	for d := range x.Shape {
		if d != dim && idx.Shape[d] > x.Shape[d] {
			return c.inErr(operand, ErrShape, "indices %v are larger than %v in dimension %d", idx.Shape, x.Shape, d)
		}
	}
	return nil
}

// lined returns a cursor over the indices' space that moves t in every dimension but dim.
func lined(t *Tensor, dim int) cursor {
	s := slices.Clone(t.Strides)
	s[dim] = 0
	return cursor{t.Offset, s}
}

// runGather picks, for every element of index (operand 1), the element of operand 0
// at the same coordinates except for that in attribute dim, which the index gives.
// Indices must not be negative.
func runGather(c *call) error {
	out, x, idx := atLeast1(c.outs[0]), atLeast1(c.ins[0]), atLeast1(c.ins[1])
	dim := c.dimAttr(0, len(x.Shape))
	if c.bad != nil {
		return c.bad
	}
	if err := c.sameType(0); err != nil {
		return err
	}
	if err := c.pointing(1, &idx, &x, dim); err != nil {
		return err
	}
	if !slices.Equal(out.Shape, idx.Shape) {
		return c.outErr(0, ErrShape, "%v, want that of the indices, %v", out.Shape, idx.Shape)
	}
	w := newNest(idx.Shape, true, cursorOf(&out), cursorOf(&idx), lined(&x, dim))
	buf := make([]int64, chunk)
	size, stride, elem := x.Shape[dim], x.Strides[dim], x.DType.Size()
	var err error
	w.each(0, w.size(), chunk, func(off []int64, n int64) {
		load(buf[:n], &idx, off[1], w.inner(1))
		for i, v := range buf[:n] {
			if v < 0 || v >= size {
				err = c.badIndex(1, v, dim, size)
				continue
			}
			k := int64(i)
			copyRun(out.Data, off[0]+k*w.inner(0), 1, x.Data, off[2]+k*w.inner(2)+v*stride, 1, 1, elem)
		}
	})
	return err
}

func (c *call) badIndex(operand int, v int64, dim int, size int64) error {
	return c.inErr(operand, ErrIndex, "an index is %d, but dimension %d has size %d", v, dim, size)
}

// scatterFn combines what is there with what comes.
type scatterFn[T num] func(old, new T) T

func scatterFnOf[T num](name string) (scatterFn[T], bool) {
	switch name {
	case "":
		return func(_, new T) T { return new }, true
	case "add", "sum":
		return func(old, new T) T { return old + new }, true
	case "multiply", "prod":
		return func(old, new T) T { return old * new }, true
	case "amax":
		return func(old, new T) T { return max(old, new) }, true
	case "amin":
		return func(old, new T) T { return min(old, new) }, true
	}
	return nil, false
}

// runScatter writes src (operand 2, or attribute value) into operand 0 at the
// places that gather would read. Without attribute reduce the last value for a
// place, in row-major order of the indices, wins; with reduce (add, sum, multiply,
// prod, amax, amin) values combine in that order and the result is rounded once.
func runScatter(c *call) error {
	out, x, idx := atLeast1(c.outs[0]), atLeast1(c.ins[0]), atLeast1(c.ins[1])
	dim := c.dimAttr(0, len(x.Shape))
	value, reduce := c.numAttr("value"), c.strAttr("reduce", "")
	if c.bad != nil {
		return c.bad
	}
	if value.Set == (len(c.ins) == 3) {
		return c.fail(ErrArity, "want either a third operand or attribute value")
	}
	if err := c.sameType(0); err != nil {
		return err
	}
	if !slices.Equal(out.Shape, x.Shape) {
		return c.outErr(0, ErrShape, "%v, want the operand's %v", out.Shape, x.Shape)
	}
	if err := c.pointing(1, &idx, &x, dim); err != nil {
		return err
	}
	if len(c.ins) == 3 {
		if err := c.sameType(2); err != nil {
			return err
		}
		src := atLeast1(c.ins[2])
		if len(src.Shape) != len(idx.Shape) {
			return c.inErr(2, ErrShape, "%v has another rank than the indices %v", src.Shape, idx.Shape)
		}
		for d := range src.Shape {
			if idx.Shape[d] > src.Shape[d] {
				return c.inErr(2, ErrShape, "%v is smaller than the indices %v in dimension %d", src.Shape, idx.Shape, d)
			}
		}
	}
	switch domainOf(out.DType) {
	case domF64:
		return scatterIn[float64](c, out, x, idx, dim, value, reduce)
	case domF32:
		return scatterIn[float32](c, out, x, idx, dim, value, reduce)
	case domU64:
		return scatterIn[uint64](c, out, x, idx, dim, value, reduce)
	}
	return scatterIn[int64](c, out, x, idx, dim, value, reduce)
}

func scatterIn[T num](c *call, out, x, idx Tensor, dim int, value attr.Number, reduce string) error {
	f, ok := scatterFnOf[T](reduce)
	if !ok {
		return c.fail(ErrAttr, "reduce=%q, want add, sum, multiply, prod, amax or amin", reduce)
	}
	all, err := loadAll[T](c, &x)
	if err != nil {
		return err
	}
	dense := Tensor{Shape: x.Shape, Strides: RowMajor(x.Shape)}
	cur := []cursor{cursorOf(&idx), lined(&dense, dim)}
	var src Tensor
	if !value.Set {
		src = atLeast1(c.ins[2])
		cur = append(cur, cursorOf(&src))
	}
	w := newNest(idx.Shape, false, cur...)
	at, vals := make([]int64, chunk), make([]T, chunk)
	for i := range vals {
		vals[i] = as[T](value)
	}
	size, stride := x.Shape[dim], dense.Strides[dim]
	w.each(0, w.size(), chunk, func(off []int64, n int64) {
		load(at[:n], &idx, off[0], w.inner(0))
		if !value.Set {
			load(vals[:n], &src, off[2], w.inner(2))
		}
		for i, v := range at[:n] {
			if v < 0 || v >= size {
				err = c.badIndex(1, v, dim, size)
				continue
			}
			o := off[1] + int64(i)*w.inner(1) + v*stride
			all[o] = f(all[o], vals[i])
		}
	})
	if err != nil {
		return err
	}
	storeAll(&out, all)
	return nil
}
