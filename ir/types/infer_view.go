package types

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// strided is a layout being derived.
type strided struct {
	shape   Shape
	strides []dim.Dim
}

func layoutOf(t Type) strided {
	return strided{slices.Clone(t.shape), slices.Clone(t.SymbolicStrides())}
}

func (s strided) typ(dt dtype.DType) Type {
	return TensorOf(dt, s.shape).WithSymbolicStrides(s.strides)
}

// inferView derives the strides of a reshape without copying, by the rule that
// PyTorch's view follows: neighbouring old dimensions that form one run of
// memory may be regrouped, others may not.
func inferView(c *operands) ([]Type, error) {
	w, err := c.wantType()
	if err != nil {
		return nil, err
	}
	x := c.args[0]
	have, want := x.shape.NumElems(), w.shape.NumElems()
	_, fixed := have.Sub(want).Const() // else the verifier asks for checks
	if !have.Equal(want) && (fixed || !x.Contiguous()) {
		return nil, fmt.Errorf("view of %s as %s changes the number of elements", x.shape, w.shape)
	}
	if x.Contiguous() {
		return []Type{TensorOf(x.dt, w.shape)}, nil
	}
	st := viewStrides(x.shape, x.strides, w.shape)
	if st == nil {
		return nil, fmt.Errorf("%s cannot be viewed as %s without a copy; clone it first", x, w.shape)
	}
	return []Type{TensorOf(x.dt, w.shape).WithSymbolicStrides(st)}, nil
}

// viewStrides returns the strides of shape to over the storage of (old, strides), or nil if none exist.
func viewStrides(old Shape, strides []dim.Dim, to Shape) []dim.Dim {
	one := dim.New(1)
	if slices.ContainsFunc(old, dim.New(0).Equal) {
		return dim.RowMajor(to)
	}
	out := make([]dim.Dim, len(to))
	j := len(to) - 1
	i := len(old) - 1
	for i >= 0 {
		// A run of old dimensions, innermost stride base, n elements.
		base, n := strides[i], old[i]
		for i > 0 && (old[i-1].Equal(one) || strides[i-1].Equal(n.Mul(base)) || n.Equal(one)) {
			if n.Equal(one) {
				base = strides[i-1]
			}
			i--
			n = n.Mul(old[i])
		}
		i--
		run := one
		for ; j >= 0 && (!run.Equal(n) || to[j].Equal(one)); j-- {
			out[j] = run.Mul(base)
			run = run.Mul(to[j])
		}
		if !run.Equal(n) {
			return nil
		}
	}
	for ; j >= 0; j-- {
		if !to[j].Equal(one) {
			return nil
		}
		out[j] = one
	}
	return out
}

func inferPermute(c *operands) ([]Type, error) {
	x := c.args[0]
	dims := c.attrs.Ints("dims")
	if len(dims) != x.Rank() {
		return nil, fmt.Errorf("%d dims for %d dimensions", len(dims), x.Rank())
	}
	in, out := layoutOf(x), strided{}
	seen := make([]bool, len(dims))
	for _, d := range dims {
		if d < 0 || d >= int64(len(dims)) || seen[d] {
			return nil, fmt.Errorf("dims %v are not a permutation of 0..%d", dims, len(dims)-1)
		}
		seen[d] = true
		out.shape, out.strides = append(out.shape, in.shape[d]), append(out.strides, in.strides[d])
	}
	return []Type{out.typ(x.dt)}, nil
}

func inferExpand(c *operands) ([]Type, error) {
	w, err := c.wantType()
	if err != nil {
		return nil, err
	}
	x := c.args[0]
	lead := w.Rank() - x.Rank()
	if lead < 0 {
		return nil, fmt.Errorf("expand of %s to fewer dimensions %s", x.shape, w.shape)
	}
	for i, d := range x.shape {
		if !d.Equal(w.shape[lead+i]) && !d.Equal(dim.New(1)) {
			return nil, fmt.Errorf("expand of %s to %s changes dimension %d, which is not 1", x.shape, w.shape, i)
		}
	}
	if w.shape.Equal(x.shape) {
		return []Type{x}, nil
	}
	in, st := x.SymbolicStrides(), make([]dim.Dim, w.Rank())
	for i := range st {
		if i >= lead && x.shape[i-lead].Equal(w.shape[i]) {
			st[i] = in[i-lead]
		}
	}
	return []Type{TensorOf(x.dt, w.shape).WithSymbolicStrides(st)}, nil
}

// cut returns the type of a piece of dimension d, every step-th of its elements.
func cut(x Type, d int, size dim.Dim, step int64) Type {
	l := layoutOf(x)
	l.shape[d], l.strides[d] = size, l.strides[d].Mul(dim.New(step))
	return l.typ(x.dt)
}

func inferSlice(c *operands) ([]Type, error) {
	d, size, err := c.sliced()
	if err != nil {
		return nil, err
	}
	return []Type{cut(c.args[0], d, size, c.attrs.Int("step", 1))}, nil
}

// sliced is the dimension of operand 0 of which a slice takes some, and how many.
func (c *operands) sliced() (d int, size dim.Dim, _ error) {
	x := c.args[0]
	d, err := c.dim(x.Rank())
	if err != nil {
		return 0, size, err
	}
	start, step := c.attrs.Int("start", 0), c.attrs.Int("step", 1)
	if step < 1 || start < 0 || c.attrs.Int("end", 0) < 0 {
		return 0, size, fmt.Errorf("start=%d end=%d step=%d: start and end must not be negative and step must be positive", start, c.attrs.Int("end", 0), step)
	}
	n := x.shape[d]
	end := n
	if c.attrs.Has("end") {
		end = dim.New(c.attrs.Int("end", 0))
	}
	size = end.Sub(dim.New(start)).Add(dim.New(step - 1)).Div(step)
	if sn, ok := n.Const(); ok {
		e, ok := end.Const()
		if !ok || e > sn || start > e {
			return 0, size, fmt.Errorf("slice %d..%s is outside dimension %d of size %s", start, end, d, n)
		}
		size = dim.New(0)
		if start < e {
			size = dim.New((e-start-1)/step + 1)
		}
	}
	return d, size, nil
}

// inferSliceScatter gives the type of operand 0, a slice of which operand 1 replaces.
func inferSliceScatter(c *operands) ([]Type, error) {
	d, size, err := c.sliced()
	if err != nil {
		return nil, err
	}
	x, part := c.args[0], c.args[1]
	want := slices.Clone(x.shape)
	want[d] = size
	if !part.shape.Equal(want) || part.dt != x.dt {
		return nil, fmt.Errorf("operand 1 is %s, the slice is %s", part, TensorOf(x.dt, want))
	}
	return []Type{TensorOf(x.dt, x.shape)}, nil
}

func inferSplit(c *operands) ([]Type, error) {
	x := c.args[0]
	d, err := c.dim(x.Rank())
	if err != nil {
		return nil, err
	}
	sum := dim.New(0)
	var out []Type
	for _, n := range c.attrs.Ints("sizes") {
		if n < 0 {
			return nil, fmt.Errorf("negative size %d", n)
		}
		sum = sum.Add(dim.New(n))
		out = append(out, cut(x, d, dim.New(n), 1))
	}
	if !x.shape[d].Equal(sum) {
		return nil, fmt.Errorf("sizes add up to %s, dimension %d has %s", sum, d, x.shape[d])
	}
	return out, nil
}

func inferSqueeze(c *operands) ([]Type, error) {
	x := c.args[0]
	l := layoutOf(x)
	out := strided{}
	for _, d := range c.attrs.Ints("dims") {
		if d < 0 || d >= int64(x.Rank()) {
			return nil, fmt.Errorf("dimension %d is outside the %d dimensions", d, x.Rank())
		}
	}
	for i, n := range l.shape {
		if slices.Contains(c.attrs.Ints("dims"), int64(i)) && n.Equal(dim.New(1)) {
			continue
		}
		out.shape, out.strides = append(out.shape, n), append(out.strides, l.strides[i])
	}
	return []Type{out.typ(x.dt)}, nil
}

func inferUnsqueeze(c *operands) ([]Type, error) {
	x := c.args[0]
	d, err := c.dim(x.Rank() + 1)
	if err != nil {
		return nil, err
	}
	l := layoutOf(x)
	l.shape, l.strides = slices.Insert(l.shape, d, dim.New(1)), slices.Insert(l.strides, d, dim.New(1))
	return []Type{l.typ(x.dt)}, nil
}

func inferSelect(c *operands) ([]Type, error) {
	x := c.args[0]
	d, err := c.dim(x.Rank())
	if err != nil {
		return nil, err
	}
	i := c.attrs.Int("index", 0)
	if n, ok := x.shape[d].Const(); i < 0 || ok && i >= n {
		return nil, fmt.Errorf("index=%d is outside dimension %d of size %s", i, d, x.shape[d])
	}
	l := layoutOf(x)
	l.shape, l.strides = slices.Delete(l.shape, d, d+1), slices.Delete(l.strides, d, d+1)
	return []Type{l.typ(x.dt)}, nil
}

func inferAlias(c *operands) ([]Type, error) { return []Type{c.args[0]}, nil }

func inferAsStrided(c *operands) ([]Type, error) {
	w, err := c.wantType()
	if err != nil {
		return nil, err
	}
	x := c.args[0]
	if w.dt != x.dt {
		return nil, fmt.Errorf("as_strided keeps the element type %s", x.dt)
	}
	sizes, ok := w.shape.Static()
	xs, ok2 := x.shape.Static()
	ws, st := w.Strides(), x.Strides()
	if !ok || !ok2 || ws == nil || st == nil {
		return nil, fmt.Errorf("as_strided needs static sizes and strides")
	}
	offset := c.attrs.Int("offset", 0)
	need, ok := Reach(sizes, ws)
	have, ok2 := Reach(xs, st)
	switch {
	case !ok || !ok2:
		return nil, fmt.Errorf("as_strided of %s as %s reaches past 2^50 elements", x, w)
	case offset < 0 || offset > have-need:
		return nil, fmt.Errorf("as_strided reaches element %s of a storage of %d", dim.New(offset).Add(dim.New(need)), have)
	}
	return []Type{w}, nil
}
