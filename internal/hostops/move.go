package hostops

import (
	"bytes"
	"errors"
	"iter"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/rowmajor"
)

// Copy copies src to dst: equal element types, equal shapes, any strides.
func Copy(dst, src Tensor) error {
	c := &call{op: "copy", outs: []Tensor{dst}, ins: []Tensor{src}}
	if err := c.validate(); err != nil {
		return err
	}
	copied, err := runClone(c)
	if err != nil {
		return err
	}
	return copied()
}

// ErrRepeats refuses numbers for a tensor that repeats elements, such as a view that was
// expanded or windows that overlap: memory has one place for all of them.
var ErrRepeats = errors.New("its layout holds one element for several indices, whose numbers differ")

// Distinct returns what a tensor with these strides holds of x, which lies in row-major
// order: where the strides repeat an element, all of x's must be the same, and count once.
// Its shape is that of rowmajor.Distinct.
func Distinct(x Tensor, strides []int64) (Tensor, error) {
	shape, flat := rowmajor.Distinct(x.Shape, strides)
	if slices.Equal(shape, x.Shape) {
		return x, nil
	}
	if flat {
		return flatten(x, strides, shape[0])
	}
	first := x
	first.Shape = shape
	out, err := New(x.DType, shape...)
	if err != nil {
		return out, err
	}
	if err := Copy(out, first); err != nil {
		return out, err
	}
	repeated, all := out, x
	repeated.Shape, repeated.Strides = x.Shape, slices.Clone(out.Strides)
	for i, s := range strides {
		if s == 0 {
			repeated.Strides[i] = 0
		}
	}
	all.Data = make([]byte, len(x.Data))
	if err := Copy(all, repeated); err != nil {
		return out, err
	}
	if !bytes.Equal(all.Data, x.Data) {
		return out, ErrRepeats
	}
	return out, nil
}

// flatten lays out x, which is in row-major order, over n places.
func flatten(x Tensor, strides []int64, n int64) (Tensor, error) {
	out, err := New(x.DType, n)
	if err != nil {
		return out, err
	}
	size := int64(x.DType.Size())
	has := make([]bool, n)
	for i, at := range layoutOf(x.Shape, strides) {
		to, from := out.Data[at*size:][:size], x.Data[i*size:][:size]
		if has[at] && !bytes.Equal(to, from) {
			return out, ErrRepeats
		}
		copy(to, from)
		has[at] = true
	}
	return out, nil
}

// Agree makes x, which lies in row-major order, one that Distinct takes: what a tensor with
// these strides has in one place gets the number of the first.
func Agree(x Tensor, strides []int64) {
	shape, _ := rowmajor.Distinct(x.Shape, strides)
	if slices.Equal(shape, x.Shape) || x.NumElems() == 0 {
		return
	}
	size, span := int64(x.DType.Size()), int64(1)
	for d, s := range strides {
		span += max(s, -s) * (x.Shape[d] - 1)
	}
	first := make([]int64, span) // and one
	for i, at := range layoutOf(x.Shape, strides) {
		if first[at] == 0 {
			first[at] = i + 1
		}
		copy(x.Data[i*size:][:size], x.Data[(first[at]-1)*size:])
	}
}

// layoutOf lists the elements of a tensor in row-major order, and where its strides put each,
// counted from the lowest.
func layoutOf(shape, strides []int64) iter.Seq2[int64, int64] {
	return func(yield func(i, at int64) bool) {
		n, at := int64(1), int64(0)
		for d, s := range strides {
			n *= shape[d]
			at -= min(s, 0) * (shape[d] - 1)
		}
		index := make([]int64, len(shape))
		for i := int64(0); i < n && yield(i, at); i++ {
			for d := len(index) - 1; d >= 0; d-- {
				if index[d]++; index[d] < shape[d] {
					at += strides[d]
					break
				}
				at -= strides[d] * (shape[d] - 1)
				index[d] = 0
			}
		}
	}
}

// CopyRange copies n elements from src, starting at its row-major index srcAt, to
// dst, starting at its row-major index dstAt. The element types must be equal; the
// shapes and strides may differ. It is what collectives that deal in chunks of the
// flattened tensor are made of.
func CopyRange(dst Tensor, dstAt int64, src Tensor, srcAt, n int64) error {
	c := &call{op: "copy", outs: []Tensor{dst}, ins: []Tensor{src}}
	if err := c.validate(); err != nil {
		return err
	}
	if err := c.sameType(0); err != nil {
		return err
	}
	if n < 0 || dstAt < 0 || dstAt > dst.NumElems()-n {
		return c.outErr(0, ErrBounds, "no range of %d elements at %d in %v", n, dstAt, dst.Shape)
	}
	if srcAt < 0 || srcAt > src.NumElems()-n {
		return c.inErr(0, ErrBounds, "no range of %d elements at %d in %v", n, srcAt, src.Shape)
	}
	if slices.Equal(dst.Shape, src.Shape) && dstAt == srcAt {
		w := newNest(dst.Shape, false, cursorOf(&dst), cursorOf(&src))
		copyNest(nil, w, &dst, &src, srcAt, srcAt+n)
		return nil
	}
	// The runs of both sides differ: for each run of dst, walk the runs of src.
	wd, ws := newNest(dst.Shape, false, cursorOf(&dst)), newNest(src.Shape, false, cursorOf(&src))
	at := srcAt
	size := dst.DType.Size()
	wd.each(dstAt, dstAt+n, 1<<20, func(d []int64, m int64) {
		to := d[0]
		ws.each(at, at+m, m, func(s []int64, k int64) {
			copyRun(dst.Data, to, wd.inner(0), src.Data, s[0], ws.inner(0), k, size)
			to += k * wd.inner(0)
		})
		at += m
	})
	return nil
}

// sameType checks that operand i has the element type of result 0; moving data never
// converts it.
func (c *call) sameType(i int) error {
	if a, b := c.outs[0].DType, c.ins[i].DType; a != b {
		return c.inErr(i, ErrDType, "%v, but result 0 is %v", b, a)
	}
	return nil
}

func runClone(c *call) (job, error) {
	if err := c.sameType(0); err != nil {
		return nil, err
	}
	if err := c.sameShape(); err != nil {
		return nil, err
	}
	return copying(&c.outs[0], &c.ins[0]), nil
}

// runBitcast copies elements as they are into a result of another type of their size.
func runBitcast(c *call) (job, error) {
	out, x := c.outs[0], &c.ins[0]
	if out.DType.Size() != x.DType.Size() || out.DType == dtype.Bool || x.DType == dtype.Bool {
		return nil, c.outErr(0, ErrDType, "cannot bitcast %v to %v", x.DType, out.DType)
	}
	if err := c.sameShape(); err != nil {
		return nil, err
	}
	return copying(&out, x), nil
}

// copying is a copy between checked tensors of one shape and element type.
func copying(dst, src *Tensor) job {
	w := newNest(dst.Shape, true, cursorOf(dst), cursorOf(src))
	part := func(m *memory, lo, hi int64) { copyNest(m, w, dst, src, lo, hi) }
	return func() error { within(part, 0, w.size()); return nil }
}

// copyAll makes such a copy.
func copyAll(dst, src *Tensor) { copying(dst, src)() }

func copyNest(m *memory, w *nest, dst, src *Tensor, lo, hi int64) {
	size := dst.DType.Size()
	sd, ss := w.inner(0), w.inner(1)
	k := w.walk(m, 1<<40)
	for k.from(lo, hi); k.next(); {
		copyRun(dst.Data, k.off[0], sd, src.Data, k.off[1], ss, k.n, size)
	}
}

// copyRun moves n elements of size bytes between two strided runs.
func copyRun(dst []byte, do, ds int64, src []byte, so, ss, n int64, size int) {
	d, s := int(do)*size, int(so)*size
	if ds == 1 && ss == 1 || n == 1 {
		copy(dst[d:d+int(n)*size], src[s:s+int(n)*size])
		return
	}
	dStep, sStep := int(ds)*size, int(ss)*size
	switch size {
	case 1:
		for range n {
			dst[d] = src[s]
			d, s = d+dStep, s+sStep
		}
	case 2:
		for range n {
			le.PutUint16(dst[d:], le.Uint16(src[s:]))
			d, s = d+dStep, s+sStep
		}
	case 4:
		for range n {
			le.PutUint32(dst[d:], le.Uint32(src[s:]))
			d, s = d+dStep, s+sStep
		}
	default:
		for range n {
			le.PutUint64(dst[d:], le.Uint64(src[s:]))
			d, s = d+dStep, s+sStep
		}
	}
}

// runCat joins the operands along attribute dim. As in PyTorch an operand of shape
// [0] is skipped whatever the rank of the others.
func runCat(c *call) (job, error) {
	out := c.outs[0]
	dim := c.dimAttr(0, len(out.Shape))
	if c.bad != nil {
		return nil, c.bad
	}
	if len(out.Shape) == 0 {
		return nil, c.outErr(0, ErrShape, "cannot join tensors of rank 0")
	}
	at := int64(0)
	var parts []job
	for i := range c.ins {
		x := &c.ins[i]
		if err := c.sameType(i); err != nil {
			return nil, err
		}
		if len(x.Shape) == 1 && x.Shape[0] == 0 {
			continue
		}
		if len(x.Shape) != len(out.Shape) {
			return nil, c.inErr(i, ErrShape, "%v, but the result is %v", x.Shape, out.Shape)
		}
		for d := range x.Shape {
			if d != dim && x.Shape[d] != out.Shape[d] {
				return nil, c.inErr(i, ErrShape, "%v differs from the result's %v in dimension %d", x.Shape, out.Shape, d)
			}
		}
		if x.Shape[dim] > out.Shape[dim]-at {
			return nil, c.inErr(i, ErrShape, "%v at %d goes beyond the result's %v in dimension %d", x.Shape, at, out.Shape, dim)
		}
		part, err := out.Narrow(dim, at, at+x.Shape[dim])
		if err != nil {
			return nil, err
		}
		parts = append(parts, copying(&part, x))
		at += x.Shape[dim]
	}
	if at != out.Shape[dim] {
		return nil, c.outErr(0, ErrShape, "%v, but the operands have %d elements together in dimension %d", out.Shape, at, dim)
	}
	return func() error {
		for _, part := range parts {
			part()
		}
		return nil
	}, nil
}

// runSliceScatter writes src (operand 1) over x[start:end:step] of dimension dim.
// start and end count from the end if negative and are clamped, as in Python.
func runSliceScatter(c *call) error {
	out, src := c.outs[0], &c.ins[1]
	dim := c.dimAttr(0, len(out.Shape))
	start, end, step := c.intAttr("start", 0), c.intAttr("end", 1<<62), c.intAttr("step", 1)
	if c.bad != nil {
		return c.bad
	}
	if step < 1 {
		return c.fail(ErrAttr, "step=%d, want at least 1", step)
	}
	if len(out.Shape) == 0 {
		return c.outErr(0, ErrShape, "a tensor of rank 0 has no slices")
	}
	if err := c.startFrom(0); err != nil {
		return err
	}
	if err := c.sameType(1); err != nil {
		return err
	}
	size := out.Shape[dim]
	start = clampIndex(start, size)
	end = max(clampIndex(end, size), start)
	n := int64(0)
	if end > start {
		n = (end-start-1)/step + 1
	}
	window := out
	window.Shape, window.Strides = slices.Clone(out.Shape), slices.Clone(out.Strides)
	window.Shape[dim] = n
	window.Offset += start * out.Strides[dim]
	if n > 1 { // else the product could overflow and is not used
		window.Strides[dim] *= step
	}
	if !slices.Equal(window.Shape, src.Shape) {
		return c.inErr(1, ErrShape, "%v, but the slice is %v", src.Shape, window.Shape)
	}
	copyAll(&window, src)
	return nil
}

func clampIndex(i, size int64) int64 {
	if i < 0 {
		i += size
	}
	return max(0, min(i, size))
}

// startFrom fills the result with operand i, of the same shape and type, unless
// they are the same memory.
func (c *call) startFrom(i int) error {
	if err := c.sameType(i); err != nil {
		return err
	}
	if !slices.Equal(c.outs[0].Shape, c.ins[i].Shape) {
		return c.inErr(i, ErrShape, "%v, but the result is %v", c.ins[i].Shape, c.outs[0].Shape)
	}
	copyAll(&c.outs[0], &c.ins[i])
	return nil
}

// isIndexType reports whether tensors of this type may hold indices.
// PyTorch's masks of u8 are masks in the IR, too.
func isIndexType(d dtype.DType) bool { return d.IsInt() }
