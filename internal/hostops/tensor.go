package hostops

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/rowmajor"
)

// Tensor is a strided window on a byte buffer. Element (i0, i1, ...) lies at
// element number Offset + i0*Strides[0] + i1*Strides[1] + ... of Data, little-endian.
// Strides may be 0 (a broadcast operand) or negative; Data need not be aligned.
type Tensor struct {
	DType   dtype.DType
	Shape   []int64
	Strides []int64 // elements, one per dimension
	Offset  int64   // elements
	Data    []byte
}

// New returns a tensor of zeros in row-major order. It returns an error if the
// element type is invalid, or a dimension negative, or the size beyond 2^40 bytes.
func New(d dtype.DType, shape ...int64) (Tensor, error) {
	t := Tensor{DType: d, Shape: slices.Clone(shape), Strides: RowMajor(shape)}
	n, ok := numel(shape)
	if !d.Valid() || !ok || n > 1<<40/int64(d.Size()) {
		return Tensor{}, &Error{Op: "new", Kind: ErrShape, Operand: -1, Result: -1, Msg: fmt.Sprintf("cannot make a tensor %v%v", d, shape)}
	}
	t.Data = make([]byte, n*int64(d.Size()))
	return t, nil
}

// RowMajor returns the strides, in elements, of a dense tensor of this shape.
func RowMajor(shape []int64) []int64 { return rowmajor.Strides(shape) }

// NumElems is the number of elements; 0 if the shape is malformed.
func (t Tensor) NumElems() int64 {
	n, _ := numel(t.Shape)
	return n
}

// Narrow returns the window start <= index < end of dimension dim, without copying.
func (t Tensor) Narrow(dim int, start, end int64) (Tensor, error) {
	if dim < 0 || dim >= len(t.Shape) || dim >= len(t.Strides) || start < 0 || end < start || end > t.Shape[dim] {
		return Tensor{}, &Error{Op: "narrow", Kind: ErrShape, Operand: 0, Result: -1,
			Msg: fmt.Sprintf("no range [%d, %d) in dimension %d of %v", start, end, dim, t.Shape)}
	}
	t.Shape = slices.Clone(t.Shape)
	t.Shape[dim] = end - start
	t.Offset += start * t.Strides[dim]
	return t, nil
}

// String describes the type of t, not its contents.
func (t Tensor) String() string {
	return fmt.Sprintf("%v%v strides %v offset %d in %d bytes", t.DType, t.Shape, t.Strides, t.Offset, len(t.Data))
}

// numel multiplies the dimensions; false if one is negative or the product overflows.
func numel(shape []int64) (int64, bool) {
	n := int64(1)
	zero := false
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, false
		}
		n = int64(lo)
	}
	if zero {
		return 0, true
	}
	return n, true
}

// check reports whether t can be read: the kind and text of the first fault, or nil.
func (t *Tensor) check() (msg string, kind error) {
	if !t.DType.Valid() {
		return fmt.Sprintf("invalid element type %v", t.DType), ErrDType
	}
	if len(t.Shape) != len(t.Strides) {
		return fmt.Sprintf("shape %v has %d dimensions, strides %v have %d", t.Shape, len(t.Shape), t.Strides, len(t.Strides)), ErrShape
	}
	n, ok := numel(t.Shape)
	if !ok {
		return fmt.Sprintf("shape %v has a negative dimension or too many elements", t.Shape), ErrShape
	}
	if n == 0 {
		return "", nil
	}
	lo, hi, ok := t.span()
	if !ok || lo < 0 || hi >= int64(len(t.Data))/int64(t.DType.Size()) {
		return t.String(), ErrBounds
	}
	return "", nil
}

// span returns the lowest and highest element number that a tensor with elements
// touches; false on overflow.
func (t *Tensor) span() (lo, hi int64, ok bool) {
	const limit = math.MaxInt64 / 4 // far beyond any buffer; sums below it cannot overflow
	lo, hi = t.Offset, t.Offset
	if lo < -limit || hi > limit {
		return 0, 0, false
	}
	for i, d := range t.Shape {
		h, l := bits.Mul64(uint64(d-1), absU(t.Strides[i]))
		if h != 0 || l > limit {
			return 0, 0, false
		}
		if t.Strides[i] < 0 {
			lo -= int64(l)
		} else {
			hi += int64(l)
		}
		if hi > limit || lo < -limit {
			return 0, 0, false
		}
	}
	return lo, hi, true
}

func absU(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// checkWritable reports whether distinct indices of a checked tensor reach
// distinct elements as far as is cheap to tell: no broadcast dimension, and not
// more indices than elements in the span.
func (t *Tensor) checkWritable() (msg string, kind error) {
	n := t.NumElems()
	if n == 0 {
		return "", nil
	}
	for i, d := range t.Shape {
		if d > 1 && t.Strides[i] == 0 {
			return fmt.Sprintf("a result cannot have stride 0 in dimension %d of %v", i, t.Shape), ErrShape
		}
	}
	if lo, hi, _ := t.span(); n > hi-lo+1 {
		return fmt.Sprintf("elements of a result overlap: %v", t), ErrShape
	}
	return "", nil
}

// broadcast returns the strides of t as an operand of the given shape, aligned
// right; false if t does not broadcast to it.
func (t *Tensor) broadcast(shape []int64) ([]int64, bool) {
	pad := len(shape) - len(t.Shape)
	if pad < 0 {
		return nil, false
	}
	s := make([]int64, len(shape))
	for i, d := range t.Shape {
		switch {
		case d == shape[pad+i]:
			s[pad+i] = t.Strides[i]
		case d != 1:
			return nil, false
		}
	}
	return s, true
}
