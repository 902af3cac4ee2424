package normal

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// Gather are elements of a tensor along a dimension, by numbers, in the same place of the others.
func (m *Mesh) Gather(p, at *Tensor, d int) *Tensor {
	o := m.Op(p, at)
	dims := make([][]int, len(p.Dims))
	for e := range dims {
		if e == d {
			dims[e] = o.Parallel(1, e)
		} else {
			dims[e] = o.Align([]int{e, e}, false)
		}
	}
	o.Inner(0, p.Dims[d])
	return o.Generic(Lookup, dims, nil)
}

// ScatterAdd is zero but for the rows of a tensor, from dimension d on, that are added at the places that
// numbers say, of n.
func (m *Mesh) ScatterAdd(rows, at *Tensor, d int, n int64) *Tensor {
	if p := m.scatterShardedRows(rows, at, d, n); p != nil {
		return p
	}
	return m.scatterAdd(rows, at, d, n)
}

func (m *Mesh) scatterAdd(rows, at *Tensor, d int, n int64) *Tensor {
	for k := len(at.Dims) - 1; k >= 0; k-- { // what goes to one place is summed before
		if digits.Places(at.Dims[k]) > 1 && !slices.ContainsFunc(at.Dims[k], func(g digits.Digit) bool { return g.Dim != digits.None }) {
			rows, at = m.Reduce(Sum, rows, []int{d + k}, nil), at.WithDims(slices.Delete(slices.Clone(at.Dims), k, k+1))
		}
	}
	o := m.Op(rows, at)
	for k := range at.Dims {
		o.Align([]int{d + k, k}, true)
	}
	var dims [][]int
	for e := range len(rows.Dims) - len(at.Dims) + 1 {
		switch {
		case e < d:
			dims = append(dims, o.Parallel(0, e))
		case e > d:
			dims = append(dims, o.Parallel(0, e-1+len(at.Dims)))
		default:
			dims = append(dims, []int{Own(0)})
		}
	}
	return o.Generic(nameScatterAdd, dims, []int64{n})
}
