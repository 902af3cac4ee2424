// Package types has tensor types, shapes and layouts, and type inference for operations. Package
// ir re-exports its names for users of graphs.
package types

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/rowmajor"
	"github.com/seed-ee968945/concert/internal/text"
)

// Shape is the list of a tensor's dimensions, outermost first. A Shape is
// immutable once it is part of a Type.
type Shape []dim.Dim

// Dims returns a static shape.
func Dims(sizes ...int64) Shape {
	s := make(Shape, len(sizes))
	for i, n := range sizes {
		s[i] = dim.New(n)
	}
	return s
}

// Static returns the sizes, or false if a dimension is symbolic.
func (s Shape) Static() ([]int64, bool) {
	out := make([]int64, len(s))
	for i, d := range s {
		n, ok := d.Const()
		if !ok {
			return nil, false
		}
		out[i] = n
	}
	return out, true
}

// NumElems is the product of the dimensions.
func (s Shape) NumElems() dim.Dim {
	p := dim.New(1)
	for _, d := range s {
		p = p.Mul(d)
	}
	return p
}

// Equal reports whether both shapes are the same, symbolically.
func (s Shape) Equal(t Shape) bool { return slices.EqualFunc(s, t, dim.Dim.Equal) }

// String returns [d0,d1,...].
func (s Shape) String() string { return string(s.appendText(nil)) }

func (s Shape) appendText(b []byte) []byte {
	b = append(b, '[')
	for i, d := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.AppendText(b)
	}
	return append(b, ']')
}

// Type is the type of a value: a tensor, or the async result of a collective,
// which carries one or more tensors that are still in flight. Types are
// immutable values; compare them with Equal.
//
// # Sizes and layouts
//
// What the verifier accepts (rules dimensions, layout and range) holds for every value
// of the symbols, each from its Min to its Max (runtime.SymbolError), independently of each
// other and of other ranks.
//
//   - No size is negative. A size may be 0: an empty tensor has no elements, whatever its
//     strides, and no place: a view without elements counts as lying where its operand
//     does. Operations on it are legal and do nothing.
//   - Tensors have at most 2^50 elements, sizes of 0 counted as 1, and their last element
//     lies at most 2^50 elements behind the first, so that no sum of bytes overflows.
//   - Strides are not negative. They may depend on symbols, as sizes do.
//   - Results of operations may have any strides that nest (each larger than what lies
//     within it), also with gaps: each element has a place of its own. Results of
//     collectives are row-major.
//   - Views lie as their operand says, and elements may share a place in them (expand,
//     as_strided). So they may in inputs, which the caller has laid out, and in results of
//     calls that alias; but no call writes such an operand.
//   - A storage reaches from its first to its last element (Extent). Gaps belong to it, and
//     nobody reads or writes them.
//   - The splits of an all_to_all are not negative. Pieces of symbolic dimensions (slice,
//     select, topk, equal parts of an all_to_all) are within them, or the runtime refuses
//     the values (Node.Needs, runtime.SizeError). They begin at a place that is known when
//     the program is compiled.
type Type struct {
	dt      dtype.DType
	shape   Shape
	strides []dim.Dim // in elements; nil means row-major without gaps
	async   []Type    // non-nil exactly for async types, whose other fields are zero
}

// Tensor returns a row-major tensor type of a static shape.
func Tensor(dt dtype.DType, sizes ...int64) Type { return Type{dt: dt, shape: Dims(sizes...)} }

// TensorOf returns a row-major tensor type; the shape may have symbolic dimensions.
func TensorOf(dt dtype.DType, shape Shape) Type { return Type{dt: dt, shape: shape} }

// Async returns the type of a collective's result that carries ts.
func Async(ts ...Type) Type { return Type{async: slices.Clone(ts)} }

// WithStrides returns the tensor type with the given element strides. Strides
// that describe the row-major layout are dropped, so that equal layouts compare
// equal. t is returned unchanged where strides are not one for each dimension.
func (t Type) WithStrides(strides []int64) Type { return t.WithSymbolicStrides(Dims(strides...)) }

// WithSymbolicStrides is WithStrides for strides that may depend on symbols.
func (t Type) WithSymbolicStrides(strides []dim.Dim) Type {
	if len(strides) != len(t.shape) {
		return t
	}
	if sameLayout(t.shape, strides, dim.RowMajor(t.shape)) {
		t.strides = nil
		return t
	}
	// The stride of a dimension of one element means nothing; one spelling makes
	// equal layouts compare equal.
	t.strides = slices.Clone(strides)
	for i := len(t.shape) - 1; i >= 0; i-- {
		if !t.shape[i].Equal(dim.New(1)) {
			continue
		}
		t.strides[i] = dim.New(1)
		if i+1 < len(t.shape) {
			t.strides[i] = t.shape[i+1].Mul(t.strides[i+1])
		}
	}
	return t
}

// WithDType returns the tensor type with another element type.
func (t Type) WithDType(dt dtype.DType) Type { t.dt = dt; return t }

// IsAsync reports whether t is an async type.
func (t Type) IsAsync() bool { return t.async != nil }

// Elems returns the tensors that an async type carries. The caller must not change the list.
func (t Type) Elems() []Type { return t.async }

// DType is the element type of a tensor type; Invalid for async types.
func (t Type) DType() dtype.DType { return t.dt }

// Shape is the shape of a tensor type. The caller must not change it.
func (t Type) Shape() Shape { return t.shape }

// Rank is the number of dimensions.
func (t Type) Rank() int { return len(t.shape) }

// Contiguous reports whether the layout is row-major without gaps.
func (t Type) Contiguous() bool { return t.strides == nil }

// Strides returns the element strides of a tensor type, also of a contiguous one; nil
// if one that counts depends on a symbol.
func (t Type) Strides() []int64 {
	if t.strides == nil {
		if sizes, ok := t.shape.Static(); ok {
			return rowmajor.Strides(sizes)
		}
	}
	out := make([]int64, len(t.shape))
	for i, s := range t.SymbolicStrides() {
		n, ok := s.Const()
		if !ok && !t.shape[i].Equal(dim.New(1)) {
			return nil
		}
		if out[i] = n; t.strides == nil {
			out[i] = max(n, 1) // within a dimension without elements
		}
	}
	return out
}

// Static reports whether all sizes and strides of a tensor are numbers.
func (t Type) Static() bool {
	symbolic := func(d dim.Dim) bool { _, ok := d.Const(); return !ok }
	return !slices.ContainsFunc(t.shape, symbolic) && !slices.ContainsFunc(t.strides, symbolic)
}

// SymbolicStrides returns the element strides of a tensor type, also of a contiguous one.
func (t Type) SymbolicStrides() []dim.Dim {
	if t.strides != nil {
		return t.strides
	}
	return dim.RowMajor(t.shape)
}

// NonOverlapping reports whether every element of a tensor is known to have a place of its own.
// It errs to false for strides that do not nest, and where a symbolic dimension lies
// within another whose stride does not grow with it.
func (t Type) NonOverlapping() bool {
	if t.strides == nil || slices.ContainsFunc(t.shape, dim.New(0).Equal) {
		return true
	}
	var axes []int
	for i, n := range t.shape {
		if !n.Equal(dim.New(1)) {
			axes = append(axes, i)
		}
	}
	last := dim.New(0) // the furthest element so far
	for len(axes) > 0 {
		next, least := -1, dim.Dim{}
		for k, i := range axes {
			beyond := t.strides[i].Sub(last).Sub(dim.New(1))
			if beyond.NotNegative() && (next < 0 || least.Sub(beyond).NotNegative()) {
				next, least = k, beyond
			}
		}
		if next < 0 {
			return false
		}
		i := axes[next]
		last = last.Add(t.strides[i].Mul(t.shape[i].Sub(dim.New(1))))
		axes = slices.Delete(axes, next, next+1)
	}
	return true
}

// Distinct is the number of elements, those that a stride of zero repeats counted once.
func (t Type) Distinct() dim.Dim {
	if t.strides == nil {
		return t.shape.NumElems()
	}
	n := dim.New(1)
	for i, s := range t.strides {
		if !s.Equal(dim.New(0)) {
			n = n.Mul(t.shape[i])
		}
	}
	return n
}

// Bytes is numel * element size, summed over the tensors of an async type. It
// is symbolic when a dimension is. Strides do not count; see Extent.
func (t Type) Bytes() dim.Dim {
	if t.async != nil {
		sizes := make([]dim.Dim, len(t.async))
		for i, e := range t.async {
			sizes[i] = e.Bytes()
		}
		return dim.Sum(sizes...)
	}
	return t.shape.NumElems().Mul(dim.New(int64(t.dt.Size())))
}

// Extent is the number of bytes from the first element of a tensor to the last, both
// included: those of a storage with this layout. With symbolic sizes it may be less than
// 0 for values that leave no elements.
func (t Type) Extent() dim.Dim {
	if t.strides == nil {
		return t.Bytes()
	}
	n := dim.New(1)
	sizes, ok := t.shape.Static()
	if strides := t.Strides(); ok && strides != nil {
		c, ok := Reach(sizes, strides)
		if !ok {
			c = math.MaxInt64 // which the verifier does not accept
		}
		n = dim.New(c)
	} else {
		for i, d := range t.shape {
			if d.Equal(dim.New(0)) {
				return dim.New(0)
			}
			n = n.Add(d.Sub(dim.New(1)).Mul(t.strides[i]))
		}
	}
	return n.Mul(dim.New(int64(t.dt.Size())))
}

// Reach is one past the last element of a layout, counted from its first, 0 without
// elements; false if a stride is negative or the layout reaches past MaxElems.
func Reach(sizes, strides []int64) (int64, bool) {
	n := int64(1)
	for i, s := range sizes {
		if s > 1 && (strides[i] < 0 || strides[i] > MaxElems/(s-1)) {
			return 0, false
		}
		if s > 1 {
			n += (s - 1) * strides[i]
		}
		if n > MaxElems {
			return 0, false
		}
	}
	if slices.Contains(sizes, 0) {
		return 0, true
	}
	return n, true
}

// Equal reports whether two types are the same, layout included.
func (t Type) Equal(u Type) bool {
	return t.dt == u.dt && t.shape.Equal(u.shape) && slices.EqualFunc(t.strides, u.strides, dim.Dim.Equal) &&
		(t.async == nil) == (u.async == nil) && slices.EqualFunc(t.async, u.async, Type.Equal)
}

// SameTensor reports whether two tensor types have equal element type and shape, whatever their layout.
func (t Type) SameTensor(u Type) bool {
	return t.async == nil && u.async == nil && t.dt == u.dt && t.shape.Equal(u.shape)
}

// String returns the text form: bf16[256,4096], f32[64,8:1,64] with strides
// after the colon, async bf16[8], async(bf16[8], f32[4]).
func (t Type) String() string { return string(t.AppendText(nil)) }

// AppendText appends the text form.
func (t Type) AppendText(b []byte) []byte {
	switch {
	case len(t.async) == 1:
		return t.async[0].AppendText(append(b, "async "...))
	case t.async != nil:
		b = append(b, "async("...)
		for i, e := range t.async {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = e.AppendText(b)
		}
		return append(b, ')')
	}
	return text.AppendTensor(b, t.dt, t.shape, t.strides)
}

// AppendKey appends what tells types apart, as part of a key of a map: for plain tensors shorter than their text.
func (t Type) AppendKey(b []byte) []byte {
	if t.IsAsync() || !t.Contiguous() {
		return append(t.AppendText(append(b, 0)), 0)
	}
	b = append(b, byte(t.dt), byte(len(t.shape)))
	for _, d := range t.shape {
		n, ok := d.Const()
		if !ok {
			n = -1
		}
		if b = binary.AppendVarint(b, n); !ok {
			b = append(d.AppendText(b), 0)
		}
	}
	return b
}

// sameLayout compares strides where they matter: in dimensions of more than one
// element, and not at all in an empty tensor.
func sameLayout(s Shape, a, b []dim.Dim) bool {
	if slices.ContainsFunc(s, dim.New(0).Equal) {
		return true
	}
	for i, n := range s {
		if !n.Equal(dim.New(1)) && !a[i].Equal(b[i]) {
			return false
		}
	}
	return true
}

// Tensors lists the tensor types in t: t itself, or what an async type carries.
func (t Type) Tensors() []Type {
	if t.IsAsync() {
		return t.async
	}
	return []Type{t}
}

// MaxElems bounds element counts and reaches, so that sizes in bytes never overflow.
const MaxElems = int64(1) << 50
