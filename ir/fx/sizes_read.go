package fx

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Sizes that tensors hold: PyTorch's unbacked symbols, and what the trace takes for granted of
// them.

// readSize imports a size that is the only element of a tensor.
func (c *call) readSize() error {
	d, err := ir.ParseDim(c.n.Size)
	if err != nil {
		return c.fail("size", "size", "%v", err)
	}
	if err := c.bind("self"); err != nil {
		return c.fail("args", "arguments", "%s takes a tensor", clip(c.n.Target))
	}
	x := c.tensor("self")
	if c.err != nil {
		return c.err
	}
	names := d.Symbols(nil)
	if _, ok := d.Const(); !ok && (len(names) != 1 || !d.Equal(ir.Sym(names[0]))) {
		return c.fail("size", "size", "a tensor holds the value of one symbol, not of %s", d)
	}
	if err := c.known("size", d); err != nil {
		return err
	}
	if t := x.Type(); t.IsAsync() || !t.Shape().NumElems().Equal(ir.D(1)) || !t.DType().IsInt() || t.DType() == ir.Bool {
		return c.fail("args", "arguments", "%s is no integer", t)
	}
	if len(names) == 1 {
		one := x
		if x.Type().Rank() != 1 {
			one = c.helper(ir.OpView, nil, ir.Tensor(x.Type().DType(), 1), x)
		}
		c.helper(ir.OpReadSize, attr.List(nil).With(ir.SymbolsKey, attr.Strings(names...)), ir.Tensor(ir.I64, 1), one)
	}
	d = c.im.settled(d)
	c.im.nodes[c.i].size = &d
	return nil
}

// tracedShape is the shape of a node that gives one tensor, which may be in flight.
func (c *call) tracedShape(param string) (ir.Shape, bool) {
	v := c.arg(param)
	if v == nil || v.kind != pyName {
		return nil, false
	}
	out := c.im.file.Nodes[c.im.index[v.s]].Out
	if len(out) != 1 {
		return nil, false
	}
	return out[0].shape(), true
}

// asLong is x with sizes that are numbers where the operator takes them for these, which it
// broadcasts to: a check of the module.
func (c *call) asLong(x *ir.Value, want ir.Shape) *ir.Value {
	have := x.Type().Shape()
	for d := range have {
		k := d + len(want) - len(have)
		if k < 0 {
			break
		}
		n, number := want[k].Const()
		if _, ok := have[d].Const(); ok || !number || !x.Type().Contiguous() {
			continue
		}
		l := dimAttr(int64(d)).With("end", attr.Int(n))
		ts, err := ir.Infer(ir.OpSlice, nil, l, []ir.Type{x.Type()})
		if err != nil {
			break
		}
		c.im.check(ir.D(n).Sub(have[d]))
		x = c.helper(ir.OpSlice, l, ts[0], x)
	}
	return x
}

// equality is a sum of symbols, without a number, that a check says to be one.
type equality struct {
	sum ir.Dim
	n   int64
}

// equalities are what two checks say together: neither d nor -d is negative.
func equalities(checks []ir.Dim) []equality {
	var out []equality
	for i, d := range checks {
		if !slices.ContainsFunc(checks[:i], func(o ir.Dim) bool { return o.Add(d).Equal(ir.D(0)) }) {
			continue
		}
		n, ok := d.Eval(func(string) (int64, bool) { return 0, true })
		if sum := d.Sub(ir.D(n)); ok && len(sum.Symbols(nil)) > 0 {
			out = append(out, equality{sum, -n}, equality{ir.D(0).Sub(sum), n})
		}
	}
	return out
}

// settled is a size as a number where the checks say that it is one.
func (im *importer) settled(d ir.Dim) ir.Dim {
	if _, ok := d.Const(); ok {
		return d
	}
	for _, e := range im.equal {
		if rest, ok := d.Sub(e.sum).Const(); ok {
			return ir.D(rest + e.n)
		}
	}
	return d
}

// settle makes sizes of traced tensors numbers where they are.
func (im *importer) settle() {
	if im.equal == nil {
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
			t.Shape, t.Dims = all(t.Shape, t.Dims)
			t.Stride, t.Steps = all(t.Stride, t.Steps)
		}
	}
}
