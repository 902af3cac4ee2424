package symm

import (
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// DType is an element type.
type DType = dtype.DType

// The element types.
const (
	F64  = dtype.F64
	F32  = dtype.F32
	F16  = dtype.F16
	BF16 = dtype.BF16
	I64  = dtype.I64
	I32  = dtype.I32
	I8   = dtype.I8
	U8   = dtype.U8
	Bool = dtype.Bool
	I16  = dtype.I16
	U16  = dtype.U16
	U32  = dtype.U32
	U64  = dtype.U64

	F8E5M2        = dtype.F8E5M2
	F8E4M3        = dtype.F8E4M3
	F8E3M4        = dtype.F8E3M4
	F8E4M3FN      = dtype.F8E4M3FN
	F8E5M2FNUZ    = dtype.F8E5M2FNUZ
	F8E4M3FNUZ    = dtype.F8E4M3FNUZ
	F8E4M3B11FNUZ = dtype.F8E4M3B11FNUZ
	F8E8M0FNU     = dtype.F8E8M0FNU
)

// Buffer is a dense tensor in memory of a rank's device: an address aligned to its
// elements, and how many there are. It is a value and owns nothing.
type Buffer struct {
	At    driver.Ptr
	Count uint64 // elements
	DType DType
}

// Bytes is the size of the buffer.
func (b Buffer) Bytes() uint64 { return b.Count * uint64(b.DType.Size()) }

// String gives type, count and address.
func (b Buffer) String() string { return fmt.Sprintf("%v[%d] at %#x", b.DType, b.Count, uint64(b.At)) }

// Slice is count elements from element at on.
func (b Buffer) Slice(at, count uint64) (Buffer, error) {
	if at > b.Count || count > b.Count-at {
		return Buffer{}, Invalid(b.String(), "[%d, +%d) exceeds its %d elements", at, count, b.Count)
	}
	return Buffer{At: b.At + driver.Ptr(at*uint64(b.DType.Size())), Count: count, DType: b.DType}, nil
}

// As is the same bytes as elements of another type, which must fill them.
func (b Buffer) As(t DType) (Buffer, error) {
	size := uint64(t.Size())
	if size == 0 || b.Bytes()%size != 0 || uint64(b.At)%size != 0 {
		return Buffer{}, Invalid(b.String(), "its %d bytes are no elements of %v", b.Bytes(), t)
	}
	return Buffer{At: b.At, Count: b.Bytes() / size, DType: t}, nil
}

// Into is an operand that is read from b and written to dst.
func (b Buffer) Into(dst Buffer) Operand { return Operand{Src: b, Dst: dst} }

// InPlace is an operand whose result takes the place of b; see the collectives for what
// that means for each.
func (b Buffer) InPlace() Operand { return Operand{Src: b, Dst: b} }

// Operand is one tensor of a collective: what this rank gives and what it gets.
type Operand struct{ Src, Dst Buffer }

// Check says what is wrong with a buffer by itself: nil for one that can be read and
// written.
func (b Buffer) Check() error {
	size := uint64(b.DType.Size())
	switch {
	case size == 0:
		return fmt.Errorf("element type %v", b.DType)
	case b.Count > math.MaxInt64/size || uint64(b.At) > math.MaxUint64-b.Bytes():
		return fmt.Errorf("%d elements of %v at %#x do not fit in memory", b.Count, b.DType, uint64(b.At))
	case b.Count > 0 && b.At == 0:
		return fmt.Errorf("%d elements of %v without an address", b.Count, b.DType)
	case uint64(b.At)%size != 0:
		return fmt.Errorf("%#x is not aligned to an element of %v", uint64(b.At), b.DType)
	}
	return nil
}

// End is the address behind the buffer.
func (b Buffer) End() driver.Ptr { return b.At + driver.Ptr(b.Bytes()) }

func (b Buffer) overlaps(o Buffer) bool { return b.At < o.End() && o.At < b.End() }

// Holds reports whether n bytes at an address are in the rank's symmetric memory.
func (r *Rank) Holds(at driver.Ptr, bytes uint64) bool {
	lo := r.World.Addr(r.ID, 0)
	return at >= lo && r.World.mapped(uint64(at-lo), bytes)
}

// Symmetric reports whether all of b is in the rank's symmetric memory, where
// collectives reach peers without packets and Peer finds the same buffer on others.
func (r *Rank) Symmetric(b Buffer) bool {
	return r != nil && b.Check() == nil && r.Holds(b.At, b.Bytes())
}

// Buffer is count elements of this rank's symmetric memory from an offset on that
// World.Alloc gave.
func (r *Rank) Buffer(off uint64, t DType, count uint64) (Buffer, error) {
	if err := r.usable(); err != nil {
		return Buffer{}, err
	}
	b := Buffer{At: r.World.Addr(r.ID, off), Count: count, DType: t}
	if why := b.Check(); why != nil {
		return Buffer{}, Invalid("symmetric memory", "%s", why)
	}
	if !r.Holds(b.At, b.Bytes()) {
		return Buffer{}, Invalid("symmetric memory", "[%d, +%d) exceeds its %d bytes", off, b.Bytes(), r.World.stride)
	}
	return b, nil
}
