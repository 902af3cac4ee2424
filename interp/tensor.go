package interp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// Tensor is a dense row-major tensor: what goes into and comes out of the
// interpreter, whatever the layout of the value that it stands for.
type Tensor struct {
	DType ir.DType
	Shape []int64 // sizes, outermost first; empty for a single number
	Data  []byte  // NumElems elements of DType.Size bytes, little-endian
}

// NewTensor returns a tensor of zeros. It fails if the element type is invalid, a
// size negative, or the whole larger than 2^40 bytes.
func NewTensor(dt ir.DType, shape ...int64) (Tensor, error) {
	t, err := hostops.New(dt, shape...)
	if err != nil {
		return Tensor{}, fmt.Errorf("interp: %w", err)
	}
	return Tensor{DType: dt, Shape: t.Shape, Data: t.Data}, nil
}

// Element is the set of Go types that have an element type of their own.
type Element interface {
	float64 | float32 | int64 | int32 | int16 | int8 | uint64 | uint32 | uint16 | uint8 | bool
}

// FromSlice returns a tensor of the element type that corresponds to T. It fails
// if vals does not hold as many elements as the shape asks for.
func FromSlice[T Element](vals []T, shape ...int64) (Tensor, error) {
	var dt ir.DType
	switch any(vals).(type) {
	case []float64:
		dt = dtype.F64
	case []float32:
		dt = dtype.F32
	case []int64:
		dt = dtype.I64
	case []int32:
		dt = dtype.I32
	case []int16:
		dt = dtype.I16
	case []int8:
		dt = dtype.I8
	case []uint64:
		dt = dtype.U64
	case []uint32:
		dt = dtype.U32
	case []uint16:
		dt = dtype.U16
	case []uint8:
		dt = dtype.U8
	case []bool:
		dt = dtype.Bool
	}
	t, err := NewTensor(dt, shape...)
	if err != nil {
		return t, err
	}
	if n := t.NumElems(); n != int64(len(vals)) {
		return Tensor{}, fmt.Errorf("interp: %d numbers for a tensor %v of %d elements", len(vals), shape, n)
	}
	if _, err := binary.Encode(t.Data, binary.LittleEndian, vals); err != nil {
		return Tensor{}, fmt.Errorf("interp: %w", err)
	}
	return t, nil
}

// FromFloats returns a tensor of any element type from float64 numbers, each
// rounded once. It fails if vals does not hold as many elements as the shape
// asks for.
func FromFloats(dt ir.DType, vals []float64, shape ...int64) (Tensor, error) {
	t, err := FromSlice(vals, shape...)
	if err != nil {
		return t, err
	}
	return t.Convert(dt)
}

// Fill returns a tensor in which every element is v, rounded to dt. The error says that the
// element type or the shape is none.
func Fill(dt ir.DType, v float64, shape ...int64) (Tensor, error) {
	t, err := NewTensor(dt, shape...)
	if err != nil {
		return t, err
	}
	one, err := FromFloats(dt, []float64{v})
	if err != nil {
		return Tensor{}, err
	}
	for i := 0; i < len(t.Data); i += len(one.Data) {
		copy(t.Data[i:], one.Data)
	}
	return t, nil
}

// Check reports a malformed tensor: an invalid element type, a negative size, or
// data of another length than the shape asks for.
func (t Tensor) Check() error {
	n := int64(1)
	for _, d := range t.Shape {
		if d < 0 || d > 0 && n > math.MaxInt64/8/d {
			return fmt.Errorf("interp: shape %v is not a shape", t.Shape)
		}
		n *= d
	}
	if !t.DType.Valid() {
		return fmt.Errorf("interp: element type %s", t.DType)
	}
	if want := n * int64(t.DType.Size()); want != int64(len(t.Data)) {
		return fmt.Errorf("interp: a tensor %s needs %d bytes, has %d", t.typeText(), want, len(t.Data))
	}
	return nil
}

// NumElems is the number of elements.
func (t Tensor) NumElems() int64 {
	return intmath.Product(t.Shape)
}

// Clone returns a copy that shares nothing with t.
func (t Tensor) Clone() Tensor {
	return Tensor{DType: t.DType, Shape: slices.Clone(t.Shape), Data: bytes.Clone(t.Data)}
}

// Convert returns the same numbers in another element type, each rounded once. The error says
// that t is malformed, or dt no element type.
func (t Tensor) Convert(dt ir.DType) (Tensor, error) {
	if err := t.Check(); err != nil {
		return Tensor{}, err
	}
	out, err := NewTensor(dt, t.Shape...)
	if err != nil {
		return out, err
	}
	if dt == t.DType {
		copy(out.Data, t.Data)
		return out, nil
	}
	if err := hostops.Run("convert", nil, []hostops.Tensor{out.host()}, []hostops.Tensor{t.host()}); err != nil {
		return Tensor{}, fmt.Errorf("interp: %w", err)
	}
	return out, nil
}

// Float64s returns the elements as float64 in row-major order, exactly but for
// i64 and u64 beyond 2^53; bool gives 0 and 1. It returns nil for a malformed tensor.
func (t Tensor) Float64s() []float64 {
	return elements[float64](t, dtype.F64)
}

// Int64s returns the elements as int64 in row-major order: floats truncated, bool
// as 0 and 1, u64 wrapped. It returns nil for a malformed tensor.
func (t Tensor) Int64s() []int64 {
	return elements[int64](t, dtype.I64)
}

// elements converts a tensor to the element type of T; nil for a malformed one.
func elements[T Element](t Tensor, dt ir.DType) []T {
	c, err := t.Convert(dt)
	if err != nil {
		return nil
	}
	out := make([]T, c.NumElems())
	if _, err := binary.Decode(c.Data, binary.LittleEndian, out); err != nil {
		return nil
	}
	return out
}

// Finite reports whether no element is infinite or NaN.
func (t Tensor) Finite() bool {
	if !t.DType.IsFloat() {
		return true
	}
	for _, v := range t.Float64s() {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// Uniform reports whether the tensor has elements and they are one number, which it
// returns. Zeros of both signs are one number. O(elements), without memory.
func (t Tensor) Uniform() (x float64, ok bool) {
	size := t.DType.Size()
	if t.Check() != nil || len(t.Data) == 0 {
		return 0, false
	}
	if bytes.Equal(t.Data[size:], t.Data[:len(t.Data)-size]) {
		return Tensor{DType: t.DType, Shape: []int64{1}, Data: t.Data[:size]}.Float64s()[0], true
	}
	sign := byte(0) // what may be set in the last byte of a zero
	if t.DType.IsFloat() {
		sign = 0x80
	}
	for i, b := range t.Data {
		if b != 0 && (b != sign || i%size != size-1) {
			return 0, false
		}
	}
	return 0, true
}

// maxPrinted bounds the numbers that String shows.
const maxPrinted = 64

// String returns the type and the first numbers: f32[2,2] [1 2 3 4].
func (t Tensor) String() string {
	if err := t.Check(); err != nil {
		return "<" + err.Error() + ">"
	}
	var vals any
	cut, typ := "", t.typeText()
	if n := t.NumElems(); n > maxPrinted {
		t = Tensor{DType: t.DType, Shape: []int64{maxPrinted}, Data: t.Data[:maxPrinted*t.DType.Size()]}
		cut = fmt.Sprintf(" and %d more", n-maxPrinted)
	}
	switch {
	case t.DType.IsFloat():
		vals = t.Float64s()
	case t.DType == dtype.U64:
		vals = elements[uint64](t, dtype.U64)
	default:
		vals = t.Int64s()
	}
	return fmt.Sprintf("%s %v%s", typ, vals, cut)
}

func (t Tensor) typeText() string { return ir.Tensor(t.DType, t.Shape...).String() }

// host returns the tensor as the kernels see it; the bytes are shared.
func (t Tensor) host() hostops.Tensor {
	return hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: hostops.RowMajor(t.Shape), Data: t.Data}
}
