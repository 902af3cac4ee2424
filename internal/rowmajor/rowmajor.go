// Package rowmajor has the default layout of tensors: row-major and contiguous.
package rowmajor

import (
	"cmp"
	"slices"
)

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

// Distinct returns the shape of what memory holds of a tensor: dimensions that were
// expanded, by a stride of 0, have one index. If others share elements too, such as windows
// that slide by less than their length, it is flat: all from the first element to the last.
func Distinct(shape, strides []int64) (held []int64, flat bool) {
	held = slices.Clone(shape)
	var axes []int
	for i, s := range strides {
		if s == 0 && held[i] > 1 {
			held[i] = 1
		}
		if held[i] > 1 {
			axes = append(axes, i)
		}
	}
	abs := func(i int) int64 { return max(strides[i], -strides[i]) }
	slices.SortFunc(axes, func(a, b int) int { return cmp.Compare(abs(a), abs(b)) })
	last := int64(0) // the furthest element so far
	for _, i := range axes {
		flat = flat || abs(i) <= last
		last += abs(i) * (held[i] - 1)
	}
	if !flat || slices.Contains(shape, 0) {
		return held, false
	}
	return []int64{last + 1}, true
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
