package spmd

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// This file has operations whose pieces take rows of other ranks (halo.go): slices and what is
// joined, and windows that slide along a dimension.

// reaches is what a rank's pieces of the results take of operand i along dimension d, one for
// each time that it is read. False where they do not begin at places that are affine in the
// rank.
type reaches func(p *partitioner, c *choice, i, d int) ([]reach, bool)

// exchanged is what it costs to take what reaches say of operands' cut dimensions.
func exchanged(of reaches) func(p *partitioner, c *choice) int64 {
	return func(p *partitioner, c *choice) int64 {
		cost := int64(0)
		for i, v := range c.n.Args() {
			y, l := p.vals[v.ID()], c.args[i]
			for d := range l.dims {
				if len(l.dims[d]) == 0 {
					continue
				}
				list, ok := of(p, c, i, d)
				if !ok {
					return impossible
				}
				for _, w := range list {
					if k, _ := p.g.halo(l, d, y.shape[d], w).cost(p.g, y.tensor, l, w.count); y.full == nil && !p.how.near {
						cost += k
					}
				}
			}
		}
		return cost
	}
}

// impossible is the price of what cannot be done.
const impossible = 1 << 60

// takes is what a rank takes of operand i.
func (p *partitioner) takes(c *choice, i, d int, v *ir.Value, w reach) *ir.Value {
	y := p.vals[c.n.Arg(i).ID()]
	if y.full == nil || w.fill != nil {
		return p.taken(v, y.tensor, c.args[i], d, w)
	}
	shape := p.g.local(c.args[i])
	shape[d] = w.count
	return p.one(ir.OpFull, y.full.Attrs(), nil, ir.Tensor(y.dt, shape...))
}

// sliding reports factors along which windows lie, or rows are taken.
func sliding(n *ir.Node, r *sharding.Rule, f int) bool {
	for _, v := range n.Results() {
		if slices.Contains(shapeOf(v), 0) {
			return false
		}
	}
	switch n.Op() {
	case ir.OpCat, ir.OpSplit:
		return attrDim(n, r, f)
	case ir.OpReduceWindow:
		if !folds(n) {
			return false
		}
	}
	return r.Factors[f].Kind == sharding.Permutation
}

// folds reports whether a number stands for what a window does not see.
func folds(n *ir.Node) bool {
	return len(n.Args()) == 1 && n.Attrs().Str("reduce", "") != "argmax" && n.Result(0).Type().DType() != ir.Bool
}

// pinned reports factors along which windows move where no number stands for what they do not see.
func pinned(n *ir.Node, r *sharding.Rule, f int) bool {
	for d := range r.Operands[0] {
		if along(r, 0, d, f) && moving(n, d) && !folds(n) {
			return true
		}
	}
	return false
}

// rowsOf are what slices, and pieces of a split, take.
func rowsOf(p *partitioner, c *choice, i, d int) (out []reach, ok bool) {
	a, at := c.n.Attrs(), int64(0)
	if d != int(a.Int("dim", 0)) {
		return nil, true
	}
	n := p.vals[c.n.Arg(0).ID()].shape[d]
	for k, v := range c.n.Results() {
		first, step, size := at, int64(1), p.vals[v.ID()].shape[d]
		if c.n.Op() == ir.OpSlice {
			first, step = a.Int("start", 0), a.Int("step", 1)
		}
		if at += size; size != n {
			m := p.g.local(c.outs[k])[d]
			out = append(out, reach{first: first, step: m * step, count: (m-1)*step + 1})
		}
	}
	return out, true
}

// sliced is a slice, or the pieces of a split.
func sliced(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	a := c.n.Attrs()
	d := int(a.Int("dim", 0))
	if len(c.args[0].dims[d]) == 0 {
		return p.op(c.n.Op(), nil, a, args, types...)
	}
	list, _ := rowsOf(p, c, 0, d)
	if len(list) == 0 { // all of it
		return []*ir.Value{p.one(ir.OpSlice, ir.A("dim", int64(d)), args)}
	}
	var out []*ir.Value
	for _, w := range list {
		v := p.takes(c, 0, d, args[0], w)
		if step := a.Int("step", 1); step > 1 && w.count > 1 && c.n.Op() == ir.OpSlice {
			v = p.one(ir.OpSlice, ir.A("dim", int64(d), "start", int64(0), "end", w.count, "step", step), []*ir.Value{v})
		}
		out = append(out, v)
	}
	return out
}

// joinedOf is what a rank's piece of operands that are joined takes of each.
func joinedOf(p *partitioner, c *choice, i, d int) ([]reach, bool) {
	if d != int(c.n.Attrs().Int("dim", 0)) {
		return nil, true
	}
	at := int64(0)
	for _, v := range c.n.Args()[:i] {
		at += p.vals[v.ID()].shape[d]
	}
	m := p.g.local(c.outs[0])[d]
	return []reach{{first: -at, step: m, count: m}}, true
}

// concatenated joins operands: of each place a rank takes the row of the operand that lies there.
func concatenated(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	d := int(c.n.Attrs().Int("dim", 0))
	l := c.outs[0]
	if len(l.dims[d]) == 0 {
		return p.op(c.n.Op(), nil, c.n.Attrs(), args, types...)
	}
	end := p.vals[c.n.Result(0).ID()].shape[d]
	shape := slices.Repeat([]int64{1}, len(l.dims)-d)
	var out *ir.Value
	for i := len(args) - 1; i >= 0 && p.err == nil; i-- {
		n := p.vals[c.n.Arg(i).ID()].shape[d]
		if n == 0 {
			continue
		}
		list, _ := joinedOf(p, c, i, d)
		v := p.takes(c, i, d, args[i], list[0])
		if out == nil {
			out = v
		} else if p.err == nil {
			in := p.one(ir.OpLt, ir.A("scalar", float64(end)), []*ir.Value{p.positions(l, d)})
			shape[0] = shapeOf(in)[0]
			out = p.one(ir.OpWhere, nil, []*ir.Value{p.view(in, shape...), v, out})
		}
		end -= n
	}
	return []*ir.Value{out}
}

// slid is the window of an operation along dimension d of its operand 0.
func slid(n *ir.Node, d int) (window.Dim, bool) {
	at, sizes := d, n.Attrs().Ints("window")
	if n.Op() == ir.OpConvolution {
		at, sizes = d-2, shapeOf(n.Arg(1))[2:]
	}
	l, err := window.Parse(n.Attrs().Ints, sizes)
	if err != nil || at < 0 {
		return window.Dim{}, false
	}
	return l[at], true
}

// windowed is what a rank's windows take of operand 0 along dimension d, and the window that
// slides over that. Elements stand Base places apart, so that pieces must begin at elements.
// Where the places in a window are cut (tap), each rank has some of them.
func windowed(p *partitioner, c *choice, d int) (w window.Dim, r reach, ok bool) {
	w, ok = slid(c.n, d)
	m := p.g.local(c.outs[0])[d]
	step := m * w.Stride
	low := w.Low
	if c.n.Op() == ir.OpConvolution && len(c.args[1].dims[d]) > 0 {
		all := w.Size
		w.Size = p.g.local(c.args[1])[d]
		if step = w.Size * w.Dilation; w.Reverse {
			low -= (all - w.Size) * w.Dilation
			step = -step
		}
	}
	if !ok || step%w.Base != 0 || w.Size == 0 {
		return w, r, false
	}
	first := -low
	if first%w.Base != 0 { // to the next element
		first += w.Base - (first%w.Base+w.Base)%w.Base
	}
	last := (m-1)*w.Stride + w.Reach() - 1 // place of the last one that counts
	w.Low = first + low
	r = reach{first: first / w.Base, step: step / w.Base, count: max((last-w.Low)/w.Base, 0) + 1}
	w.High = last - w.Low - (r.count-1)*w.Base
	return w, r, true
}

// windowsOf are what windows take.
func windowsOf(p *partitioner, c *choice, i, d int) ([]reach, bool) {
	if _, ok := scanned(c.n, d); ok || i > 0 || c.n.Op() == ir.OpConvolution && d < 2 || c.n.Op() == ir.OpReduceWindow && !moving(c.n, d) {
		return nil, true
	}
	_, r, ok := windowed(p, c, d)
	return []reach{r}, ok
}

// moving reports whether a window does anything along a dimension.
func moving(n *ir.Node, d int) bool {
	w, ok := slid(n, d)
	return ok && (w.Size != 1 || w.Stride != 1 || w.Low != 0 || w.High != 0 || w.Base != 1)
}

// convolved is a convolution, or a fold of windows, along dimensions that may be cut.
func convolved(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	p.mask(c, row{reduce: ir.Sum}, args)
	a, first, fill := c.n.Attrs(), 2, any(0.0)
	if c.n.Op() == ir.OpConvolution {
		a = grouped(p, c)
	} else {
		first, fill = 0, neutral(string(folding(c.n)), args[0].Type().DType())
	}
	padding, sizes := slices.Clone(a.Ints(window.PaddingKey)), slices.Clone(a.Ints("window"))
	if padding == nil {
		padding = make([]int64, 2*(len(c.args[0].dims)-first))
	}
	cut := false
	var scans []int
	for d := first; d < len(c.args[0].dims); d++ {
		l, n := c.args[0], p.vals[c.n.Arg(0).ID()]
		if len(l.dims[d]) == 0 || c.n.Op() == ir.OpReduceWindow && !moving(c.n, d) {
			continue
		}
		low, high := &padding[2*(d-first)], &padding[2*(d-first)+1]
		if s, ok := scanned(c.n, d); ok {
			if s.back && l.uneven(d, n.shape[d]) {
				args[0] = p.masked(args[0], l, d, n.shape[d], fill)
			}
			w := s.part(p.g.local(l)[d])
			sizes[d], *low, *high, cut, scans = w.Size, w.Low, w.High, true, append(scans, d)
			continue
		}
		w, r, ok := windowed(p, c, d)
		if !ok || p.err != nil {
			continue
		}
		r.fill, cut = fill, true
		args[0] = p.taken(args[0], n.tensor, l, d, r)
		*low, *high = w.Low, w.High
	}
	if cut {
		a = a.With(window.PaddingKey, ir.A("padding", padding)[0].Val)
	}
	if scans != nil {
		a = a.With("window", ir.A("window", sizes)[0].Val)
	}
	out := p.one(c.n.Op(), a, args, types...)
	for _, d := range scans {
		s, _ := scanned(c.n, d)
		out = p.passed(out, c.outs[0], d, s)
	}
	return []*ir.Value{out}
}

// inWindow are the factors of a convolution's window and of where it stands that cannot be cut:
// those beside the first one of a dimension, and of a window whose operand is shorter.
func inWindow(n *ir.Node, r *sharding.Rule, f int) bool {
	x, w := r.Operands[0], r.Operands[1]
	for d := 2; d < len(x); d++ {
		for i, g := range x[d] {
			if g == f {
				return i > 0 || r.Factors[f].Kind == sharding.Reduction && r.Factors[f].Size != shapeOf(n.Arg(1))[d]
			}
		}
		if slices.Contains(w[d], f) {
			return true
		}
	}
	for d := 2; d < len(x); d++ {
		if slices.Contains(r.Results[0][d], f) {
			return true
		}
	}
	return false
}
