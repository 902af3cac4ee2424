package index

import "slices"

// Extent is a size along one dimension, in elements.
type Extent struct {
	N    int64  // the size, or an upper bound if it is dynamic
	Name string // of the variable that has a dynamic size, else empty
}

// HasDynamic reports whether one of the sizes is dynamic.
func HasDynamic(shape []Extent) bool {
	return slices.ContainsFunc(shape, func(s Extent) bool { return s.Name != "" })
}

// Fixed are sizes that are numbers.
func Fixed(shape []int64) []Extent {
	out := make([]Extent, len(shape))
	for i, n := range shape {
		out[i] = Extent{N: n}
	}
	return out
}

// Size is a size as an index.
func (x *Builder) Size(s Extent) Expr {
	if s.Name == "" {
		return Constant(s.N)
	}
	if x.key[s.Name] == nil {
		x.key[s.Name] = x.NewAtom(s.Name, s.N, 1, x.top)
	}
	return x.key[s.Name].Expr()
}

// Ravel is the row-major position of the index at in a tensor of this shape.
func (x *Builder) Ravel(at []Expr, shape []Extent) Expr {
	e, n := Expr{}, int64(1)
	if HasDynamic(shape) {
		for d, s := range shape {
			e = x.Times(e, s).Add(1, at[d])
		}
		return e
	}
	for d := len(shape) - 1; d >= 0; d-- {
		e = e.Add(n, at[d])
		n *= shape[d].N
	}
	return e
}

// Count is the number of elements of a shape.
func (x *Builder) Count(shape []Extent) Expr {
	e := Constant(1)
	for _, s := range shape {
		e = x.Times(e, s)
	}
	return e
}

// Unravel is the index of row-major position e in a tensor of this shape.
func (x *Builder) Unravel(e Expr, shape []Extent) []Expr {
	at := make([]Expr, len(shape))
	first := slices.IndexFunc(shape, func(s Extent) bool { return s.N > 1 })
	for d := len(shape) - 1; d >= 0; d-- {
		switch {
		case shape[d].N <= 1:
		case d == first: // all dimensions before it have one element
			at[d] = e
			e = Expr{}
		default:
			e, at[d] = x.divided(e, shape[d])
		}
	}
	return at
}

// UnravelOuterFirst is Unravel of a position that is divided by the sizes of the outer dimensions
// first: of dimensions that are neighbours in memory the remainders are then one remainder again.
func (x *Builder) UnravelOuterFirst(e Expr, shape []Extent) []Expr {
	if HasDynamic(shape) {
		return x.Unravel(e, shape)
	}
	at, n := make([]Expr, len(shape)), int64(1)
	for _, s := range shape {
		n *= s.N
	}
	for d, s := range shape {
		if s.N > 1 {
			n /= s.N
			at[d], e = x.DivMod(e, n)
		}
	}
	return at
}

// Dot is the offset of the index at under the given strides, in elements.
func Dot(at []Expr, strides []int64) Expr {
	e := Expr{}
	for d, s := range strides {
		if s != 0 {
			e = e.Add(s, at[d])
		}
	}
	return e
}
