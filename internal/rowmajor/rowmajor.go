// Package rowmajor knows the layout that tensors have unless something else is said,
// wherever layouts are described: row by row without gaps.
package rowmajor

import "slices"

// Strides returns the strides, in elements, of a tensor that lies row by row without
// gaps. Sizes of zero count as one, so that the strides of an empty tensor are
// those of a tensor with elements.
func Strides(shape []int64) []int64 {
	s := make([]int64, len(shape))
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= max(shape[i], 1)
	}
	return s
}

// Distinct returns the shape of a tensor without what repeats: dimensions that were
// expanded, by a stride of 0, have one index.
func Distinct(shape, strides []int64) []int64 {
	d := slices.Clone(shape)
	for i, s := range strides {
		if s == 0 && d[i] > 1 {
			d[i] = 1
		}
	}
	return d
}

// Is reports whether a tensor with these strides, one for each dimension, lies
// row by row without gaps. Strides of dimensions of one element do not matter.
func Is(shape, strides []int64) bool {
	want := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] == 1 {
			continue
		}
		if strides[i] != want {
			return false
		}
		want *= shape[i]
	}
	return true
}
