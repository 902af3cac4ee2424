package types

import (
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/window"
)

// windows are how many windows there are along a dimension of n elements. Where n is not
// known, a window must fit whatever it is: the number would be negative. Of no elements
// base dilation makes no places, which is no expression of n.
func windows(w window.Dim, n dim.Dim) (dim.Dim, error) {
	if c, ok := n.Const(); ok || w.Size == 0 {
		return dim.New(w.Count(c)), nil
	}
	r, ok := n.Bounds(func(string) (dim.Range, bool) { return dim.Range{Max: math.MaxInt32}, true })
	if w.Base > 1 && (!ok || r.Min < 1) {
		return dim.Dim{}, fmt.Errorf("base_dilation=%d of a size %s, which may be 0: no expression says how many windows there are", w.Base, n)
	}
	span := n.Sub(dim.New(1)).Mul(dim.New(w.Base)).Add(dim.New(1 + w.Low + w.High - w.Reach()))
	return span.Div(w.Stride).Add(dim.New(1)), nil
}

// parts divides d by n, which must leave no remainder.
func parts(d dim.Dim, n int64) (dim.Dim, bool) {
	if n < 1 {
		return dim.Dim{}, false
	}
	q := d.Div(n)
	return q, q.Mul(dim.New(n)).Equal(d)
}

func inferConvolution(c *operands) ([]Type, error) {
	x, w := c.args[0], c.args[1]
	if x.Rank() < 2 || w.Rank() != x.Rank() {
		return nil, fmt.Errorf("convolution takes [batch, channels, ...] and [rows, channels, ...] of as many dimensions, got %s and %s", x, w)
	}
	sizes, ok := w.shape[2:].Static()
	if !ok {
		return nil, fmt.Errorf("the window %s has a size that is not constant", w)
	}
	dims, err := window.Parse(c.attrs.Ints, sizes)
	if err != nil {
		return nil, err
	}
	groups, batches := c.attrs.Int("groups", 1), c.attrs.Int("batch_groups", 1)
	if groups < 1 || batches < 1 || groups > 1 && batches > 1 {
		return nil, fmt.Errorf("groups=%d and batch_groups=%d: want positive numbers, one of them 1", groups, batches)
	}
	channels, ok := parts(x.shape[1], groups)
	if !ok || !channels.Equal(w.shape[1]) {
		return nil, fmt.Errorf("%s channels in %d groups do not fit the window's %s", x.shape[1], groups, w.shape[1])
	}
	batch, ok := parts(x.shape[0], batches)
	if !ok {
		return nil, fmt.Errorf("a batch of %s is not %d groups", x.shape[0], batches)
	}
	if _, ok := parts(w.shape[0], groups*batches); !ok {
		return nil, fmt.Errorf("%s rows are not %d groups", w.shape[0], groups*batches)
	}
	out := Shape{batch, w.shape[0]}
	for d, k := range dims {
		n, err := windows(k, x.shape[2+d])
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	dt, err := promote(x.dt, w.dt)
	if err != nil {
		return nil, err
	}
	return []Type{TensorOf(c.dtypeOr(dt), out)}, nil
}

func inferReduceWindow(c *operands) ([]Type, error) {
	x, sizes := c.args[0], c.attrs.Ints("window")
	if len(sizes) != x.Rank() {
		return nil, fmt.Errorf("a window of %d dimensions for %s", len(sizes), x)
	}
	dims, err := window.Parse(c.attrs.Ints, sizes)
	if err != nil {
		return nil, err
	}
	taps := int64(1)
	for _, k := range sizes {
		if taps *= max(k, 1); taps > 1<<31 {
			return nil, fmt.Errorf("a window of more than 2^31 places")
		}
	}
	var out Shape
	for d, k := range dims {
		n, err := windows(k, x.shape[d])
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	dt := x.dt
	switch how := c.attrs.Str("reduce", ""); how {
	case "sum", "product", "min", "max":
		if len(c.args) > 1 && (!c.args[1].dt.IsInt() || !c.args[1].shape.Equal(x.shape)) {
			return nil, fmt.Errorf("operand 1 is %s, want integers of shape %s", c.args[1], x.shape)
		}
	case "argmax":
		if dt = dtype.I64; len(c.args) > 1 {
			return nil, fmt.Errorf("argmax takes one operand")
		}
		if c.dtypeOr(dt).IsFloat() {
			return nil, fmt.Errorf("places are integers, not %s", c.dtypeOr(dt))
		}
	default:
		return nil, fmt.Errorf("reduce=%q is none of sum, product, min, max and argmax", how)
	}
	return []Type{TensorOf(c.dtypeOr(dt), out)}, nil
}
