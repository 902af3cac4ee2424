// Package layout analyses how the tensors of a copy or a collective are in memory: the order of
// dimensions, contiguous byte ranges, and overlap.
package layout

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Piece is the window lo <= index < hi of dimension dim of t.
func Piece(t rt.Tensor, dim int, lo, hi int64) rt.Tensor {
	t.Strides = t.StridesOrDense()
	t.Shape = slices.Clone(t.Shape)
	t.Off += lo * t.Strides[dim] * int64(t.DType.Size())
	t.Shape[dim] = hi - lo
	return t
}

// Dense is a row-major tensor of t's type and shape at a place.
func Dense(t rt.Tensor, off int64) rt.Tensor {
	return rt.Tensor{Off: off, DType: t.DType, Shape: t.Shape}
}

// MemoryOrder sorts the dimensions of t by descending stride and reports whether t
// fills its span without gaps or repeats. Dimensions of one element count as nothing.
func MemoryOrder(t rt.Tensor) (order []int, full bool) {
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

// RowsOutermost reports whether each index of dimension 0 is a run of bytes, the runs one
// behind the other.
func RowsOutermost(t rt.Tensor) bool {
	order, full := MemoryOrder(t)
	return full && (len(order) == 0 || order[0] == 0)
}

// Alike reports whether two tensors of one shape fill their spans with their elements
// in the same order, so that one is a plain copy of the other's bytes.
func Alike(a, b rt.Tensor) bool {
	oa, fa := MemoryOrder(a)
	ob, fb := MemoryOrder(b)
	return fa && fb && slices.Equal(oa, ob)
}

// Rows cuts a gather or scatter along dimension dim into runs of bytes: large is the
// tensor of the whole subgroup, small one rank's. In memory both are `count` runs of
// small's inner bytes, in large with the runs of n ranks side by side. It reports
// false if memory is not laid out so.
func Rows(small, large rt.Tensor, dim int) (count, bytes int64, ok bool) {
	if small.NumElems() == 0 {
		return 0, 0, true
	}
	// With a size of one in small, the order of large decides.
	ol, fl := MemoryOrder(large)
	_, fs := MemoryOrder(small)
	if !fl || !fs {
		return 0, 0, false
	}
	os := slices.DeleteFunc(slices.Clone(ol), func(i int) bool { return small.Shape[i] == 1 })
	if got, _ := MemoryOrder(small); !slices.Equal(got, os) {
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

// span is bytes Lo to Hi of operand, or result, number I.
type span struct {
	Lo, Hi int64
	I      int
	Out    bool
}

// Spans lists what a collective touches, by start.
func Spans(c *rt.Collective) []span {
	list := make([]span, 0, 2*len(c.Ins))
	for k, ts := range [][]rt.Tensor{c.Ins, c.Outs} {
		for i := range ts {
			if lo, hi, _ := ts[i].Span(); lo < hi {
				list = append(list, span{lo, hi, i, k == 1})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b span) int { return int(min(max(a.Lo-b.Lo, -1), 1)) })
	return list
}

// Overlaps checks that no two results share bytes, and reports whether a result
// shares bytes with an operand so that writing one would disturb the other: all_reduce
// and broadcast alone may have a result in the place of its operand.
func Overlaps(c *rt.Collective) (inPlace bool, err error) {
	list := Spans(c)
	for i, a := range list {
		for _, b := range list[i+1:] {
			if b.Lo >= a.Hi {
				break
			}
			switch {
			case a.Out && b.Out:
				return false, fmt.Errorf("results %v and %v overlap", c.Outs[a.I], c.Outs[b.I])
			case a.Out == b.Out:
			case (c.Op == rt.AllReduce || c.Op == rt.Broadcast) && a.I == b.I && sameWindow(c.Ins[a.I], c.Outs[a.I]):
			default:
				inPlace = true
			}
		}
	}
	return inPlace, nil
}

// InMemoryOrder sorts a tensor's dimensions as they are in memory, and its row-major data
// with them: what is contiguous is one copy to the device, however its indices run.
func InMemoryOrder(t rt.Tensor, data []byte) (rt.Tensor, []byte, error) {
	order, _ := MemoryOrder(t)
	strides, dense := t.StridesOrDense(), hostops.RowMajor(t.Shape)
	laid := rt.Tensor{Off: t.Off, DType: t.DType, Strides: []int64{}}
	var from []int64
	for _, k := range order {
		laid.Shape, laid.Strides, from = append(laid.Shape, t.Shape[k]), append(laid.Strides, strides[k]), append(from, dense[k])
	}
	out := make([]byte, len(data))
	err := hostops.Copy(hostops.Tensor{DType: t.DType, Shape: laid.Shape, Strides: hostops.RowMajor(laid.Shape), Data: out},
		hostops.Tensor{DType: t.DType, Shape: laid.Shape, Strides: from, Data: data})
	return laid, out, err
}

// Runs cuts a tensor into runs of elements that are contiguous in memory and in
// row-major order: how many elements each has, and where each starts, in bytes of the
// arena and in elements of the row-major order.
func Runs(t rt.Tensor) (run int64, each func(func(off, i int64))) {
	strides, inner := t.StridesOrDense(), len(t.Shape)
	run = 1
	for inner > 0 && (t.Shape[inner-1] == 1 || strides[inner-1] == run) {
		run *= t.Shape[inner-1]
		inner--
	}
	return run, func(f func(off, i int64)) {
		at := make([]int64, inner)
		for i := int64(0); i < t.NumElems(); i += run {
			off := int64(0)
			for k, x := range at {
				off += x * strides[k]
			}
			f(t.Off+off*int64(t.DType.Size()), i)
			for k := inner - 1; k >= 0; k-- {
				if at[k]++; at[k] < t.Shape[k] {
					break
				}
				at[k] = 0
			}
		}
	}
}

// MaxDims is how many dimensions the copy kernel can describe.
const MaxDims = 8

var errTooManyDims = fmt.Errorf("a copy of more than %d dimensions", MaxDims)

// Merge gives counts and strides of a copy in elements, innermost last, after merging
// dimensions that both tensors walk alike.
func Merge(dst, src rt.Tensor) (shape, to, from []int64, err error) {
	ds, ss := dst.StridesOrDense(), src.StridesOrDense()
	for i, n := range dst.Shape {
		if n == 1 {
			continue
		}
		if k := len(shape) - 1; k >= 0 && to[k] == ds[i]*n && from[k] == ss[i]*n {
			shape[k], to[k], from[k] = shape[k]*n, ds[i], ss[i]
			continue
		}
		shape, to, from = append(shape, n), append(to, ds[i]), append(from, ss[i])
	}
	if len(shape) > MaxDims {
		return nil, nil, nil, errTooManyDims
	}
	return shape, to, from, nil
}
