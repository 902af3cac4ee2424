package types

import (
	"fmt"
	"slices"
)

// indexShape is the result shape of x indexed at dims by index tensors: the
// broadcast index shape stands where the dims stood if they are adjacent, else first.
func indexShape(x Type, dims []int64, idx []Type) (Shape, error) {
	if len(dims) != len(idx) {
		return nil, fmt.Errorf("%d dims for %d index tensors", len(dims), len(idx))
	}
	adjacent := true
	for i, d := range dims {
		if d < 0 || d >= int64(x.Rank()) || i > 0 && d <= dims[i-1] {
			return nil, fmt.Errorf("dims %v are not ascending dimensions of %s", dims, x)
		}
		adjacent = adjacent && (i == 0 || d == dims[i-1]+1)
		if !idx[i].dt.IsInt() {
			return nil, fmt.Errorf("index tensor %d has element type %s, want an integer type", i, idx[i].dt)
		}
	}
	is, err := broadcastShapes(idx)
	if err != nil {
		return nil, err
	}
	var out Shape
	if !adjacent {
		out = append(out, is...)
	}
	for i, d := range x.shape {
		at := slices.Index(dims, int64(i))
		if at == 0 && adjacent {
			out = append(out, is...)
		}
		if at < 0 {
			out = append(out, d)
		}
	}
	return out, nil
}

func inferIndex(c *operands) ([]Type, error) {
	s, err := indexShape(c.args[0], c.attrs.Ints("dims"), c.args[1:])
	if err != nil {
		return nil, err
	}
	return []Type{TensorOf(c.args[0].dt, s)}, nil
}

func inferIndexPut(c *operands) ([]Type, error) {
	x := c.args[0]
	s, err := indexShape(x, c.attrs.Ints("dims"), c.args[2:])
	if err != nil {
		return nil, err
	}
	b, err := broadcastShapes([]Type{TensorOf(x.dt, s), c.args[1]})
	if err != nil {
		return nil, err
	}
	if !b.Equal(s) {
		return nil, fmt.Errorf("values %s do not broadcast to the indexed shape %s", c.args[1], s)
	}
	return []Type{TensorOf(x.dt, x.shape)}, nil
}

func inferGather(c *operands) ([]Type, error) {
	x, idx := c.args[0], c.args[1]
	if _, err := c.dim(max(x.Rank(), 1)); err != nil {
		return nil, err
	}
	if x.Rank() != idx.Rank() || !idx.dt.IsInt() {
		return nil, fmt.Errorf("gather takes an integer index of as many dimensions as operand 0, got %s and %s", x, idx)
	}
	return []Type{TensorOf(x.dt, idx.shape)}, nil
}

func inferEmbedding(c *operands) ([]Type, error) {
	w, idx := c.args[0], c.args[1]
	if w.Rank() != 2 || !idx.dt.IsInt() {
		return nil, fmt.Errorf("embedding takes a matrix and integers, got %s and %s", w, idx)
	}
	return []Type{TensorOf(w.dt, append(slices.Clone(idx.shape), w.shape[1]))}, nil
}
