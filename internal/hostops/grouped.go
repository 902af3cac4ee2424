package hostops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// runGroupedMatmul multiplies group by group: rows of operand 0 with a matrix for each
// group, or a matrix for each group with columns of operand 1, or the pieces of two
// matrices along their inner dimension. Operand 2 has where each group ends; what lies
// after the last is 0 in the result, or does not count.
func runGroupedMatmul(c *call) error {
	a, b, ends, out := &c.ins[0], &c.ins[1], &c.ins[2], &c.outs[0]
	ra, rb := len(a.Shape), len(b.Shape)
	if min(ra, rb) != 2 || max(ra, rb) > 3 {
		return c.inErr(1, ErrShape, "%v does not multiply with %v by groups", b.Shape, a.Shape)
	}
	if len(ends.Shape) != 1 || ends.DType != dtype.I32 && ends.DType != dtype.I64 {
		return c.inErr(2, ErrShape, "%v%v, want where each group ends", ends.DType, ends.Shape)
	}
	groups := ends.Shape[0]
	if a.Shape[ra-1] != b.Shape[rb-2] || ra == 3 && a.Shape[0] != groups || rb == 3 && b.Shape[0] != groups {
		return c.inErr(1, ErrShape, "%v does not multiply with %v in %d groups", b.Shape, a.Shape, groups)
	}
	m, k, n := a.Shape[ra-2], a.Shape[ra-1], b.Shape[rb-1]
	want, size := []int64{m, n}, m
	switch {
	case ra == rb:
		want, size = []int64{groups, m, n}, k
	case ra == 3:
		size = n
	}
	if !slices.Equal(out.Shape, want) {
		return c.outErr(0, ErrShape, "%v, want %v", out.Shape, want)
	}
	at := make([]int64, groups)
	load(at, ends, ends.Offset, ends.Strides[0])
	low := int64(0)
	for g, high := range append(at, size) {
		if high < low || high > size {
			return c.inErr(2, ErrIndex, "group %d is from %d to %d of %d", g, low, high, size)
		}
		if err := c.group(int64(g), groups, low, high); err != nil {
			return err
		}
		low = high
	}
	return nil
}

// group computes a group from low to high; the one behind all is 0 where it is a part
// of the result.
func (c *call) group(g, groups, low, high int64) error {
	a, b, out := c.ins[0], c.ins[1], c.outs[0]
	ra, rb := len(a.Shape), len(b.Shape)
	if ra == rb && g == groups {
		return nil
	}
	var err error
	narrow := func(t Tensor, dim int) Tensor {
		if err == nil {
			t, err = t.Narrow(dim, low, high)
		}
		return t
	}
	switch {
	case ra == rb:
		a, b, out = narrow(a, 1), narrow(b, 0), matrix(out, g)
	case rb == 3:
		a, out = narrow(a, 0), narrow(out, 0)
	default:
		b, out = narrow(b, 1), narrow(out, 1)
	}
	if err != nil {
		return err
	}
	if g == groups { // nothing to add up
		if a.Shape, b.Shape = slices.Clone(a.Shape), slices.Clone(b.Shape); rb == 3 {
			a.Shape[1], b = 0, Tensor{DType: b.DType, Shape: []int64{0, b.Shape[2]}, Strides: []int64{0, 0}, Data: b.Data}
		} else {
			b.Shape[0], a = 0, Tensor{DType: a.DType, Shape: []int64{a.Shape[1], 0}, Strides: []int64{0, 0}, Data: a.Data}
		}
	} else if rb == 3 {
		b = matrix(b, g)
	} else if ra == 3 {
		a = matrix(a, g)
	}
	product, err := runMatmul(&call{op: c.op, attrs: c.attrs, outs: []Tensor{out}, ins: []Tensor{a, b}})
	if err != nil {
		return err
	}
	return product()
}

// matrix is number g of a batch.
func matrix(t Tensor, g int64) Tensor {
	t.Offset += g * t.Strides[0]
	t.Shape, t.Strides = t.Shape[1:], t.Strides[1:]
	return t
}
