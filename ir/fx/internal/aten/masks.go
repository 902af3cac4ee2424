package aten

import (
	"cmp"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// How much of a mask holds is known when the program runs: it sets a symbol, and the indices of
// what holds, in row-major order, are as many. Memory is laid out for the symbol's maximum.

// masked is how many dimensions a mask chooses from; 0 for indices.
func masked(x *ir.Value) int {
	if x.Type().DType() != ir.Bool {
		return 0
	}
	return max(1, x.Type().Rank())
}

// unmasked has the indices of what holds for each mask in a list, which has a mask of some
// dimensions as many times. shape is what is indexed so, or is broadcast to that.
func (c *call) unmasked(dims []int64, idx []*ir.Value, shape ir.Shape) []*ir.Value {
	behind, last := c.Tensor("self").Type().Rank()-len(dims), int(dims[len(dims)-1])
	if last-int(dims[0]) == len(dims)-1 { // side by side: dimensions in front of them stay there
		behind -= int(dims[0])
	}
	at := len(shape) - 1 - behind
	if behind < 0 || at < 0 {
		c.Err = traced.ErrForm
		return nil
	}
	out := slices.Clone(idx)
	for k := 0; k < len(idx) && c.Err == nil; k++ {
		if n := masked(idx[k]); n > 0 {
			copy(out[k:], c.holding(idx[k], idx[k], shape[at]))
			k += n - 1
		}
	}
	return out
}

// holding lists the indices of what holds in a mask, in one tensor of size elements for each dimension.
// The trace may have the same size for whatever is made of the same tensor.
func (c *call) holding(mask, of *ir.Value, size ir.Dim) []*ir.Value {
	if mask.Type().Rank() == 0 {
		c.Err = traced.ErrForm
	}
	if c.Err != nil {
		return nil
	}
	shape := mask.Type().Shape()
	n := shape.NumElems()
	_, most, bounded := c.Trace.Bounds(n)
	symbol, ok := "", false
	if bounded && most > 0 {
		symbol, ok = c.Trace.Reads(size, of, most)
	}
	if !ok {
		c.Err = traced.ErrForm
		return nil
	}
	flat := c.Flat(mask)
	ones := c.In(ir.I64, flat)
	if symbol != "" {
		total := c.Over(ir.OpSum, ones, true, 0)
		c.Helper(ir.OpReadSize, attr.List(nil).With(ir.SymbolsKey, attr.Strings(symbol)), ir.Tensor(ir.I64, 1), total)
	}
	there := c.SizedPiece(c.compacted(flat, ones, n, 0), 0, ir.D(1), size, 1)
	out := make([]*ir.Value, len(shape))
	for d := range shape {
		out[d] = there
		if d < len(shape)-1 {
			out[d] = c.withSize(ir.OpFloorDivide, out[d], ir.Shape(shape[d+1:]).NumElems())
		}
		if d > 0 {
			out[d] = c.withSize(ir.OpRemainder, out[d], shape[d])
		}
	}
	return out
}

// withSize is an operation on integers and a size.
func (c *call) withSize(op ir.Op, x *ir.Value, size ir.Dim) *ir.Value {
	if n, ok := size.Const(); ok {
		return c.With(op, x, float64(n))
	}
	return c.Make(op, nil, x, c.Counted(size))
}

// compacted lists the places where a flat mask holds, which is ones as numbers, the first size of them, behind
// one element; fill stands for those that there are not. What does not hold is written to the element in front.
func (c *call) compacted(mask, ones *ir.Value, size ir.Dim, fill int64) *ir.Value {
	n := mask.Type().Shape()[0]
	to, length := c.Make(ir.OpCumsum, traced.DimAttr(0), ones), size.Add(ir.D(1))
	if !size.Equal(n) { // and the rest to one behind
		to, length = c.withSize(ir.OpMinimum, to, length), length.Add(ir.D(1))
	}
	to = c.Make(ir.OpWhere, nil, mask, to, c.Filled(attr.Int(0), ir.I64))
	first := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)})
	return c.Make(ir.OpIndexPut, first, c.Full(attr.Int(fill), ir.I64, ir.Shape{length}), c.Places(n), to)
}

// nonzero lists the indices of what is not zero, a row for each.
func nonzero(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	t, err := c.Trace.TypeOf(0)
	if err != nil {
		return err
	}
	if t.Rank() != 2 {
		return traced.ErrForm
	}
	mask := x
	if x.Type().DType() != ir.Bool {
		mask = c.With(ir.OpNe, x, 0)
	}
	columns := c.holding(mask, x, t.Shape()[0])
	if c.Err != nil {
		return c.Err
	}
	for k := range columns {
		columns[k] = c.Unsqueezed(columns[k], 1)
	}
	return c.Settle(c.Make(ir.OpCat, traced.DimAttr(1), columns...))
}

// maskedSelect lists the elements where a mask holds.
func maskedSelect(c *call) error {
	x, mask := c.Tensor("self"), c.Tensor("mask")
	t, err := c.Trace.TypeOf(0)
	switch {
	case c.Err != nil:
		return c.Err
	case err != nil:
		return err
	case t.Rank() != 1 || mask.Type().DType() != ir.Bool:
		return traced.ErrForm
	}
	both, err := ir.Infer(ir.OpWhere, nil, nil, []ir.Type{mask.Type(), x.Type(), x.Type()})
	if err != nil {
		return traced.ErrForm
	}
	x, fine := c.Broadcast(x, both[0].Shape())
	mask, also := c.Broadcast(mask, both[0].Shape())
	if !fine || !also {
		return traced.ErrForm
	}
	idx := c.holding(c.Flat(mask), c.Tensor("mask"), t.Shape()[0])
	if c.Err != nil {
		return c.Err
	}
	return c.EmitErr(ir.OpIndex, attr.List(nil).With("dims", attr.Ints(0)), c.Flat(x), idx[0])
}

// unique lists the different elements, in order or as they come, with the place of each element's in the list
// and how many there are, if they are asked for. What is no number is different from everything.
func unique(consecutive bool) func(c *call) error {
	return func(c *call) error {
		x := c.Tensor("self")
		ts, err := c.Types()
		if err = cmp.Or(c.Err, err); err != nil {
			return err
		}
		if len(ts) != 3 || ts[0].Rank() != 1 || c.Arg("dim") != nil || traced.Empty(x) {
			return traced.ErrForm
		}
		line, n, size := c.Flat(x), x.Type().Shape().NumElems(), ts[0].Shape()
		count := traced.Constant(n)
		order := c.Counting(count)
		if !consecutive {
			all := c.firstSorted(line, 0, n, false)
			line, order = all[0], all[1]
		}
		first := c.Filled(attr.Int(1), ir.Bool, 1)
		if count > 1 {
			first = c.Make(ir.OpCat, traced.DimAttr(0), first, c.Make(ir.OpNe, nil, c.Slice(line, 0, 1, count), c.Slice(line, 0, 0, count-1)))
		}
		dims := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)})
		at := c.holding(first, first, size[0])
		if c.Err != nil {
			return c.Err
		}
		out := []*ir.Value{c.Make(ir.OpIndex, dims, line, at[0])}
		which := c.With(ir.OpSub, c.Make(ir.OpCumsum, traced.DimAttr(0), c.In(ir.I64, first)), 1)
		for i, asked := range []string{"return_inverse", "return_counts"} {
			t := ts[i+1]
			switch {
			case !c.Bool(asked, false):
				out = append(out, c.Full(attr.Int(0), t.DType(), t.Shape()))
			case i == 0:
				put := c.Make(ir.OpIndexPut, dims, c.Full(attr.Int(0), ir.I64, ir.Shape{n}), which, order)
				out = append(out, c.Reshaped(put, x.Type().Shape()))
			default:
				out = append(out, c.Make(ir.OpIndexAdd, traced.DimAttr(0), c.Full(attr.Int(0), ir.I64, size), which, c.Full(attr.Int(1), ir.I64, ir.Shape{n})))
			}
		}
		return c.Settle(out...)
	}
}
