package fx

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// Sizes that tensors hold: PyTorch's unbacked symbols, and what the trace takes for granted of
// them.

// readSize imports a size that is the only element of a tensor.
func (c *node) readSize() error {
	d, err := ir.ParseDim(c.n.Size)
	if err != nil {
		return c.Fail("size", "size", "%v", err)
	}
	if err := c.Bind("self"); err != nil {
		return c.Fail("args", "arguments", "%s takes a tensor", pytext.Clip(c.n.Target))
	}
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	names := d.Symbols(nil)
	if _, ok := d.Const(); !ok && (len(names) != 1 || !d.Equal(ir.Sym(names[0]))) {
		return c.Fail("size", "size", "a tensor holds the value of one symbol, not of %s", d)
	}
	if err := c.known("size", d); err != nil {
		return err
	}
	if t := x.Type(); t.IsAsync() || !t.Shape().NumElems().Equal(ir.D(1)) || !t.DType().IsInt() || t.DType() == ir.Bool {
		return c.Fail("args", "arguments", "%s is no integer", t)
	}
	if len(names) == 1 {
		one := x
		if x.Type().Rank() != 1 {
			one = c.Helper(ir.OpView, nil, ir.Tensor(x.Type().DType(), 1), x)
		}
		c.Helper(ir.OpReadSize, attr.List(nil).With(ir.SymbolsKey, attr.Strings(names...)), ir.Tensor(ir.I64, 1), one)
	}
	d = c.im.settled(d)
	c.im.nodes[c.i].size = &d
	return nil
}

// A maskCount is the symbol that is the number of what holds in a mask, or in whatever it is made of.
type maskCount struct {
	of     *ir.Value
	symbol string
}

// Reads takes d for the number of what holds in a mask of most elements, which of is or is made to. It
// gives the symbol that is to be read there, empty if it has been. A size that is known from elsewhere is
// checked against what is read. ok is false for a size that nothing decides.
func (c *node) Reads(d ir.Dim, of *ir.Value, most int64) (symbol string, ok bool) {
	names := d.Symbols(nil)
	open := slices.IndexFunc(names, func(s string) bool { return !c.decided(s) })
	if open >= 0 {
		if !d.Equal(ir.Sym(names[open])) {
			return "", false
		}
		c.im.counts = append(c.im.counts, maskCount{of, names[open]})
		return names[open], true
	}
	i := slices.IndexFunc(c.im.counts, func(n maskCount) bool { return n.of == of })
	if i < 0 {
		symbol = traced.TextName(c.n.Name+"_count", "")
		for c.im.m.Symbol(symbol) != nil {
			symbol += "_"
		}
		hint, _ := d.Eval(func(name string) (int64, bool) { return c.im.m.Symbol(name).Hint, true })
		i = len(c.im.counts)
		c.im.m.AddSymbol(symbol, min(max(hint, 0), most), 0, most)
		c.im.counts = append(c.im.counts, maskCount{of, symbol})
	}
	count := ir.Sym(c.im.counts[i].symbol)
	c.im.check(d.Sub(count))
	c.im.check(count.Sub(d))
	return symbol, true
}

// decided reports whether a symbol is given, or has been read before this node.
func (c *node) decided(symbol string) bool {
	if slices.ContainsFunc(c.im.counts, func(n maskCount) bool { return n.symbol == symbol }) || c.im.given(symbol) {
		return true
	}
	return slices.ContainsFunc(c.im.file.Nodes[:c.i], func(n Node) bool { return n.Kind == KindSize && n.Size == symbol })
}

// given reports whether an input has a symbol among its sizes, or is its value.
func (im *importer) given(symbol string) bool {
	for i := range im.file.Nodes {
		n := &im.file.Nodes[i]
		if n.Kind != KindInput && !(n.Kind == KindSize && len(n.Inputs) == 0) {
			continue
		}
		if d, err := ir.ParseDim(n.Size); n.Size != "" && err == nil && slices.Contains(d.Symbols(nil), symbol) {
			return true
		}
		for k := range n.Out {
			for _, d := range n.Out[k].shape() {
				if slices.Contains(d.Symbols(nil), symbol) {
					return true
				}
			}
		}
	}
	return false
}

// tracedShape is the shape of a node that gives one tensor, which may be in flight.
func (c *node) tracedShape(param string) (ir.Shape, bool) {
	v := c.Arg(param)
	if v == nil || v.Kind != pytext.Name {
		return nil, false
	}
	out := c.im.file.Nodes[c.im.index[v.Text]].Out
	if len(out) != 1 {
		return nil, false
	}
	return out[0].shape(), true
}

// settled is a size as the checks say it to be: a number where it is one, or else another size
// that it equals.
func (im *importer) settled(d ir.Dim) ir.Dim {
	for _, zero := range im.zeros {
		if _, ok := d.Const(); ok {
			break
		}
		for _, z := range []ir.Dim{zero, ir.D(0).Sub(zero)} {
			if n, ok := d.Sub(z).Const(); ok {
				return ir.D(n)
			}
		}
		d = d.Given(zero)
	}
	return d
}

// settle makes sizes of traced tensors what they are.
func (im *importer) settle() {
	if im.zeros == nil {
		return
	}
	all := func(ns []int64, ds []ir.Dim) ([]int64, []ir.Dim) {
		out := slices.Clone(ds)
		for k := range out {
			out[k] = im.settled(ds[k])
		}
		if fixed, ok := ir.Shape(out).Static(); ok && ds != nil {
			return fixed, nil
		}
		return ns, out
	}
	f := *im.file // the caller's stays as it is
	im.file, f.Nodes = &f, slices.Clone(f.Nodes)
	for i := range f.Nodes {
		n := &f.Nodes[i]
		n.Out = slices.Clone(n.Out)
		for k := range n.Out {
			t := &n.Out[k]
			order, dense := denseOrder(t.Dims, t.Steps)
			t.Shape, t.Dims = all(t.Shape, t.Dims)
			t.Stride, t.Steps = all(t.Stride, t.Steps)
			if dense && t.Dims != nil { // no stride may be a product of other sizes than the shape's
				t.Stride, t.Steps = nil, stridesIn(order, t.Dims)
			}
		}
	}
}

// denseOrder lists the dimensions of a tensor from the innermost outwards, if each stride is the number of elements
// of those further in.
func denseOrder(shape, strides []ir.Dim) (order []int, ok bool) {
	if shape == nil || len(strides) != len(shape) {
		return nil, false
	}
	next := ir.D(1)
	for range shape {
		d := -1
		for i := range shape { // of equal strides the one of size 1 lies inside
			if strides[i].Equal(next) && !slices.Contains(order, i) && (d < 0 || shape[i].Equal(ir.D(1))) {
				d = i
			}
		}
		if d < 0 {
			return nil, false
		}
		order, next = append(order, d), next.Mul(shape[d])
	}
	return order, true
}

// stridesIn are the strides of a shape whose dimensions lie in that order, from the innermost outwards.
func stridesIn(order []int, shape []ir.Dim) []ir.Dim {
	strides, next := make([]ir.Dim, len(shape)), ir.D(1)
	for _, d := range order {
		strides[d], next = next, next.Mul(shape[d])
	}
	return strides
}
