package runtime

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/rowmajor"
)

// DType is the element type of a tensor.
type DType = dtype.DType

// The element types, repeated here for emitted code.
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

// Attrs are the attributes of a launch.
type Attrs = attr.List

// A builds attributes from alternating names and values. A value is an int or
// int64, a float64, a bool, a string, a DType, a []int64 or []int, or a
// []string. Anything else, or an odd count, makes a list whose only attribute is
// named "!malformed", which every kernel call of this package refuses: emitted
// code stays one call per line without a panic or an error result.
func A(kv ...any) Attrs { return attr.Of(kv...) }

const malformed = attr.Malformed

// Dims is a list of dimensions or strides, in elements.
type Dims = []int64

// Ts is a list of tensors.
type Ts = []Tensor

// Tensor is a window on the arena. The same value names the same window of every
// rank's arena.
type Tensor struct {
	Off     int64 // bytes from the start of the module's part of the arena to element (0, 0, ...)
	DType   DType
	Shape   []int64
	Strides []int64 // elements; nil: row-major without gaps
}

// C is a row-major tensor without gaps.
func C(off int64, d DType, shape ...int64) Tensor { return Tensor{Off: off, DType: d, Shape: shape} }

// S is a tensor with strides.
func S(off int64, d DType, shape, strides Dims) Tensor {
	return Tensor{Off: off, DType: d, Shape: shape, Strides: strides}
}

// NumElems is the number of elements, 0 if a dimension is negative or the
// product overflows.
func (t Tensor) NumElems() int64 {
	n, _ := numElems(t.Shape)
	return n
}

// Bytes is the size of the elements: NumElems times the size of one.
func (t Tensor) Bytes() int64 { return t.NumElems() * int64(t.DType.Size()) }

// String describes t as "bf16[4, 8] at 512".
func (t Tensor) String() string {
	s := fmt.Sprintf("%v%v at %d", t.DType, t.Shape, t.Off)
	if t.Strides != nil && !slices.Equal(t.Strides, rowmajor.Strides(t.Shape)) {
		s += fmt.Sprintf(" strides %v", t.Strides)
	}
	return s
}

// At returns t moved by off bytes.
func (t Tensor) At(off int64) Tensor {
	t.Off += off
	return t
}

// StridesOrDense returns the strides, computing those of a dense tensor.
func (t Tensor) StridesOrDense() []int64 {
	if t.Strides != nil {
		return t.Strides
	}
	return rowmajor.Strides(t.Shape)
}

// sameElements reports whether tensors of one type are the same elements of the arena.
func (t Tensor) sameElements(u Tensor) bool {
	return t.Off == u.Off && (t.Strides == nil && u.Strides == nil || slices.Equal(t.StridesOrDense(), u.StridesOrDense()))
}

// Dense reports whether t is row-major without gaps.
func (t Tensor) Dense() bool {
	return t.Strides == nil || rowmajor.Is(t.Shape, t.Strides)
}

// distinct is what memory holds of t: dimensions that were expanded, by a stride of 0, have
// one index, and where windows overlap it is all that t spans, in one dimension.
func (t Tensor) distinct() Tensor {
	shape, flat := rowmajor.Distinct(t.Shape, t.Strides)
	if lo, _, err := t.Span(); flat && err == nil {
		return C(lo, t.DType, shape...)
	}
	t.Shape = shape
	return t
}

// Span returns the half-open range of arena bytes that t's elements are in, or
// an error if t is malformed. An empty tensor has an empty span.
func (t Tensor) Span() (lo, hi int64, err error) {
	size := int64(t.DType.Size())
	n, ok := numElems(t.Shape)
	switch {
	case !t.DType.Valid():
		return 0, 0, fmt.Errorf("invalid element type %v", t.DType)
	case !ok:
		return 0, 0, fmt.Errorf("shape %v has a negative dimension or too many elements", t.Shape)
	case t.Strides != nil && len(t.Strides) != len(t.Shape):
		return 0, 0, fmt.Errorf("shape %v with strides %v", t.Shape, t.Strides)
	case n == 0:
		return t.Off, t.Off, nil
	}
	var down, up int64 // elements
	if t.Strides == nil {
		up = n - 1
	}
	for i, s := range t.Strides {
		h, l := bits.Mul64(uint64(t.Shape[i]-1), uint64(max(s, -s)))
		if s == math.MinInt64 || h != 0 || l > 1<<56 {
			return 0, 0, fmt.Errorf("stride %d is out of range", s)
		}
		if s < 0 {
			down += int64(l)
		} else {
			up += int64(l)
		}
		if up > 1<<57 || down > 1<<57 {
			return 0, 0, fmt.Errorf("strides %v are out of range", t.Strides)
		}
	}
	if up+1 > math.MaxInt64/2/size {
		return 0, 0, fmt.Errorf("%v is too large", t)
	}
	return t.Off - down*size, t.Off + (up+1)*size, nil
}

// part is piece i of the n equal pieces of t along dimension d.
func (t Tensor) part(d, i, n int) (Tensor, error) {
	if d < 0 || d >= len(t.Shape) || n < 1 || i < 0 || i >= n || t.Shape[d]%int64(n) != 0 {
		return t, fmt.Errorf("tensor %v has no piece %d of %d along dimension %d", t, i, n, d)
	}
	t.Strides = t.StridesOrDense()
	t.Shape = slices.Clone(t.Shape)
	t.Shape[d] /= int64(n)
	if t.NumElems() > 0 { // else the piece is empty, and the place of t will do
		t.Off += int64(i) * t.Shape[d] * t.Strides[d] * int64(t.DType.Size())
	}
	return t, nil
}

// SameType reports whether t and u have the same element type and shape.
func (t Tensor) SameType(u Tensor) bool { return t.DType == u.DType && slices.Equal(t.Shape, u.Shape) }

// numElems multiplies dimensions; false if one is negative or the product is
// past 2^56.
func numElems(shape []int64) (int64, bool) {
	n, zero := int64(1), false
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		if n > (1<<56)/d {
			return 0, false
		}
		n *= d
	}
	if zero {
		n = 0
	}
	return n, true
}

// Group partitions the ranks of the world into subgroups. Collectives on it run
// in every subgroup at once; each rank finds its own at run time.
type Group struct {
	Name  string
	Ranks [][]int // ascending within a subgroup is usual but not required: the order is the order of reduction

	// CrossStage says that this rank's subgroup has ranks of several stages, each of which comes to
	// the collectives in an order of its own among all that it does. Modules need not say it.
	CrossStage bool
}

// Find returns the subgroup that rank is in and its position there, or nil.
func (g Group) Find(rank int) (members []int, pos int) {
	for _, m := range g.Ranks {
		if i := slices.Index(m, rank); i >= 0 {
			return m, i
		}
	}
	return nil, -1
}

// Check reports whether g partitions the ranks 0 to world-1 into subgroups of
// equal size.
func (g Group) Check(world int) error { return g.check(world, true) }

// check is Check; of stages a group need not have all ranks.
func (g Group) check(world int, whole bool) error {
	seen := make([]bool, world)
	n := 0
	for _, m := range g.Ranks {
		if len(m) != len(g.Ranks[0]) {
			return fmt.Errorf("group %q: subgroups of %d and %d ranks", g.Name, len(g.Ranks[0]), len(m))
		}
		for _, r := range m {
			if r < 0 || r >= world {
				return fmt.Errorf("group %q: rank %d of a world of %d", g.Name, r, world)
			}
			if seen[r] {
				return fmt.Errorf("group %q: rank %d appears twice", g.Name, r)
			}
			seen[r] = true
			n++
		}
	}
	if whole && n != world {
		return fmt.Errorf("group %q: has %d of the world's %d ranks", g.Name, n, world)
	}
	return nil
}

// Equal reports whether both have the same name and subgroups.
func (g Group) Equal(h Group) bool {
	return g.Name == h.Name && slices.EqualFunc(g.Ranks, h.Ranks, slices.Equal)
}
