package device

import (
	"fmt"
	"slices"

	rt "github.com/seed-ee968945/concert/runtime"
)

// piece is the window lo <= index < hi of dimension dim of t.
func piece(t rt.Tensor, dim int, lo, hi int64) rt.Tensor {
	t.Strides = t.StridesOrDense()
	t.Shape = slices.Clone(t.Shape)
	t.Off += lo * t.Strides[dim] * int64(t.DType.Size())
	t.Shape[dim] = hi - lo
	return t
}

// dense is a row-major tensor of t's type and shape at a place.
func dense(t rt.Tensor, off int64) rt.Tensor {
	return rt.Tensor{Off: off, DType: t.DType, Shape: t.Shape}
}

// memoryOrder sorts the dimensions of t by descending stride and reports whether t
// fills its span without gaps or repeats. Dimensions of one element count as nothing.
func memoryOrder(t rt.Tensor) (order []int, full bool) {
	strides := t.StridesOrDense()
	for i, n := range t.Shape {
		if n != 1 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(max(strides[b]-strides[a], -1), 1)) })
	want := int64(1)
	for i := len(order) - 1; i >= 0; i-- {
		if strides[order[i]] != want {
			return order, false
		}
		want *= t.Shape[order[i]]
	}
	return order, true
}

// rowsOutermost reports whether each index of dimension 0 is a run of bytes, the runs one
// behind the other.
func rowsOutermost(t rt.Tensor) bool {
	order, full := memoryOrder(t)
	return full && (len(order) == 0 || order[0] == 0)
}

// alike reports whether two tensors of one shape fill their spans with their elements
// in the same order, so that one is a plain copy of the other's bytes.
func alike(a, b rt.Tensor) bool {
	oa, fa := memoryOrder(a)
	ob, fb := memoryOrder(b)
	return fa && fb && slices.Equal(oa, ob)
}

// rows cuts a gather or scatter along dimension dim into runs of bytes: large is the
// tensor of the whole subgroup, small one rank's. In memory both are `count` runs of
// small's inner bytes, in large with the runs of n ranks side by side. It reports
// false if memory is not laid out so.
func rows(small, large rt.Tensor, dim int) (count, bytes int64, ok bool) {
	if small.NumElems() == 0 {
		return 0, 0, true
	}
	// With a size of one in small, the order of large decides.
	ol, fl := memoryOrder(large)
	_, fs := memoryOrder(small)
	if !fl || !fs {
		return 0, 0, false
	}
	os := slices.DeleteFunc(slices.Clone(ol), func(i int) bool { return small.Shape[i] == 1 })
	if got, _ := memoryOrder(small); !slices.Equal(got, os) {
		return 0, 0, false
	}
	count, bytes = 1, int64(small.DType.Size())
	at := slices.Index(ol, dim)
	for i, k := range ol {
		if i < at {
			count *= small.Shape[k]
		} else {
			bytes *= small.Shape[k]
		}
	}
	return count, bytes, true
}

// sameWindow reports whether both name the same elements in the same order.
func sameWindow(a, b rt.Tensor) bool {
	return a.Off == b.Off && a.SameType(b) && slices.Equal(a.StridesOrDense(), b.StridesOrDense())
}

type span struct {
	lo, hi int64
	i      int
	out    bool
}

// spans lists what a collective touches, by start.
func spans(c *rt.Collective) []span {
	list := make([]span, 0, 2*len(c.Ins))
	for k, ts := range [][]rt.Tensor{c.Ins, c.Outs} {
		for i := range ts {
			if lo, hi, _ := ts[i].Span(); lo < hi {
				list = append(list, span{lo, hi, i, k == 1})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b span) int { return int(min(max(a.lo-b.lo, -1), 1)) })
	return list
}

// overlaps checks that no two results share bytes, and reports whether a result
// shares bytes with an operand so that writing one would disturb the other: all_reduce
// and broadcast alone may have a result in the place of its operand.
func overlaps(c *rt.Collective) (inPlace bool, err error) {
	list := spans(c)
	for i, a := range list {
		for _, b := range list[i+1:] {
			if b.lo >= a.hi {
				break
			}
			switch {
			case a.out && b.out:
				return false, fmt.Errorf("results %v and %v overlap", c.Outs[a.i], c.Outs[b.i])
			case a.out == b.out:
			case (c.Op == rt.AllReduce || c.Op == rt.Broadcast) && a.i == b.i && sameWindow(c.Ins[a.i], c.Outs[a.i]):
			default:
				inPlace = true
			}
		}
	}
	return inPlace, nil
}
