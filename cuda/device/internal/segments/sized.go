package segments

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Table is what a kernel reads of an exchange whose sizes tensors hold, for operand k: addresses of the pieces of
// operand and result, and their bytes. most are the bounds of the pieces.
func Table(c *rt.Collective, k int, base driver.Ptr) (list []dim.Dim, most [2][]coll.Piece, err error) {
	in, out := c.Ins[k], c.Outs[k]
	row := int64(in.DType.Size()) * intmath.Product(in.Shape[1:])
	from, to := &c.Dynamic.Ins[k], &c.Dynamic.Outs[k]
	inner := slices.Concat(from.Shape[1:], to.Shape[1:])
	if from.Strides != nil || to.Strides != nil || slices.ContainsFunc(inner, func(e dim.Dim) bool { _, ok := e.Eval(c.Dynamic.Value(nil)); return !ok }) {
		return nil, most, fmt.Errorf("%s of rows that are not contiguous: %w", c.Name(), rt.ErrUnsupported)
	}
	if bits.Len64(uint64(row)) > 40 {
		return nil, most, fmt.Errorf("%s: rows of %d bytes", c.Name(), row)
	}
	var table [4][kernels.MaxRanks]dim.Dim
	for i, q := range [...]struct {
		t      rt.Tensor
		splits []dim.Dim
		bounds []int64
	}{{in, c.Dynamic.InSplits[k], c.InSplits[k]}, {out, c.Dynamic.OutSplits[k], c.OutSplits[k]}} {
		first := base + driver.Ptr(q.t.Off)
		at := dim.New(int64(first))
		for r, n := range q.splits {
			bytes := n.Mul(dim.New(row))
			table[i][r], table[2+i][r] = at, bytes
			at = at.Add(bytes)
			most[i] = append(most[i], coll.Piece{At: first, Bytes: uint64(q.bounds[r] * row)})
		}
	}
	return slices.Concat(table[0][:], table[1][:], table[2][:], table[3][:]), most, nil
}
