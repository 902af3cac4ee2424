package types

import "slices"

// Disjoint reports whether tensors that begin p and q elements behind one place have no element in
// common. It compares them as boxes in one grid, such as columns of a matrix: the strides of both, each
// a multiple of the next, are its dimensions. False where they are no boxes.
func Disjoint(a, b Type, p, q int64) bool {
	var strides []int64
	for _, t := range []Type{a, b} {
		st := t.Strides()
		if st == nil {
			return false
		}
		strides = append(strides, st...)
	}
	slices.Sort(strides)
	strides = slices.Compact(strides)
	slices.Reverse(strides)
	x, ok := box(a, p, strides)
	y, ok2 := box(b, q, strides)
	if !ok || !ok2 {
		return false
	}
	for d := range x {
		if x[d].start >= y[d].end || y[d].start >= x[d].end {
			return true
		}
	}
	return false
}

type interval struct{ start, end int64 }

// box is where a tensor lies in a grid: an interval for each stride, and its place within the
// last one.
func box(t Type, at int64, strides []int64) ([]interval, bool) {
	sizes, ok := t.Shape().Static()
	if !ok || len(strides) == 0 || slices.Min(strides) < 1 {
		return nil, false
	}
	var out []interval
	for k, s := range strides {
		n := int64(1)
		for d, st := range t.Strides() {
			if st == s && sizes[d] != 1 {
				if n != 1 {
					return nil, false
				}
				n = sizes[d]
			}
		}
		start := at / s
		at %= s
		if k > 0 && (strides[k-1]%s != 0 || start+n > strides[k-1]/s) {
			return nil, false
		}
		out = append(out, interval{start, start + n})
	}
	return append(out, interval{at, at + 1}), true
}
