package hostops

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// runTopk writes the k = size of the results' dimension dim largest (or, with
// largest=false, smallest) elements of each lane and their indices, i64.
//
// The results are sorted whatever attribute sorted says, best first. Of equal
// elements the one with the lower index comes first and is preferred; PyTorch
// leaves that open. NaN counts as larger than every number.
func runTopk(c *call) error {
	vals, pos, x := atLeast1(c.outs[0]), atLeast1(c.outs[1]), atLeast1(c.ins[0])
	dim := c.dimAttr(-1, len(x.Shape))
	largest := c.boolAttr("largest", true)
	if c.bad != nil {
		return c.bad
	}
	if err := c.sameType(0); err != nil {
		return err
	}
	if pos.DType != dtype.I64 {
		return c.outErr(1, ErrDType, "indices are i64, not %v", pos.DType)
	}
	if len(vals.Shape) != len(x.Shape) {
		return c.outErr(0, ErrShape, "%v, want rank %d", c.outs[0].Shape, len(x.Shape))
	}
	k := vals.Shape[dim]
	if c.attrs.Has("k") && c.intAttr("k", 0) != k && c.bad == nil {
		c.bad = c.fail(ErrAttr, "k=%d, but the result has %d elements in dimension %d", c.intAttr("k", 0), k, dim)
	}
	if c.bad != nil {
		return c.bad
	}
	want := slices.Clone(x.Shape)
	want[dim] = k
	if k > x.Shape[dim] || !slices.Equal(vals.Shape, want) {
		return c.outErr(0, ErrShape, "%v does not hold the best of dimension %d of %v", c.outs[0].Shape, dim, c.ins[0].Shape)
	}
	if !slices.Equal(pos.Shape, want) {
		return c.outErr(1, ErrShape, "%v, want %v", c.outs[1].Shape, want)
	}
	switch domainOf(x.DType) {
	case domI64:
		topkIn[int64](&vals, &pos, &x, dim, k, largest)
	case domU64:
		topkIn[uint64](&vals, &pos, &x, dim, k, largest)
	default:
		topkIn[float64](&vals, &pos, &x, dim, k, largest)
	}
	return nil
}

// candidate is an element of a lane and its index.
type candidate[A acc] struct {
	v  A
	at int64
}

// topkIn keeps the best k candidates of each lane in a heap whose root is the worst
// of them: O(n log k) time, O(k) space.
func topkIn[A acc](vals, pos, x *Tensor, dim int, k int64, largest bool) {
	up := -1 // what comes of a greater one
	if !largest {
		up = 1
	}
	better := func(a, b candidate[A]) int {
		switch {
		case a.v > b.v:
			return up
		case a.v < b.v:
			return -up
		case a.v == b.v || a.v != a.v && b.v != b.v:
			return cmp.Compare(a.at, b.at)
		case a.v != a.v: // NaN goes above everything
			return up
		}
		return -up
	}
	// All three tensors agree in every other dimension.
	l := lanesOf(dim, vals, pos, x)
	n := x.Shape[dim]
	heap := make([]candidate[A], 0, k)
	buf := make([]A, chunk)
	best, at := make([]A, k), make([]int64, k)
	l.others.each(0, l.others.size(), 1, func(off []int64, _ int64) {
		heap = heap[:0]
		for i := int64(0); i < n && k > 0; i += chunk {
			b := buf[:min(chunk, n-i)]
			load(b, x, off[2]+i*l.step[2], l.step[2])
			for j, v := range b {
				cand := candidate[A]{v, i + int64(j)}
				if int64(len(heap)) < k {
					heap = append(heap, cand)
					if k < n { // or all stay
						siftUp(heap, better)
					}
				} else if better(cand, heap[0]) < 0 {
					heap[0] = cand
					siftDown(heap, better)
				}
			}
		}
		slices.SortFunc(heap, better)
		for i, cand := range heap {
			best[i], at[i] = cand.v, cand.at
		}
		store(vals, off[0], l.step[0], best)
		store(pos, off[1], l.step[1], at)
	})
}

// siftUp restores the heap after an append: no parent is better than its child.
func siftUp[A acc](h []candidate[A], better func(a, b candidate[A]) int) {
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if better(h[p], h[i]) > 0 {
			return
		}
		h[p], h[i] = h[i], h[p]
		i = p
	}
}

// siftDown restores the heap after the root changed.
func siftDown[A acc](h []candidate[A], better func(a, b candidate[A]) int) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && better(h[c+1], h[c]) > 0 {
			c++
		}
		if better(h[i], h[c]) > 0 {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
