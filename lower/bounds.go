package lower

import (
	"errors"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
	"github.com/seed-ee968945/concert/program"
)

// atBounds turns an elementwise operation whose sizes are known at run time into the
// launch of a kernel for the largest sizes: a kernel's text needs numbers. What all
// operands and the result have in common is one row-major shape, so that element i of
// the memory of one follows from element i of the others; elements past the sizes of a
// run follow from what lies there and are read by nobody. It reports whether it did:
// the tensors must be all of their buffers, which are laid out for the bounds.
func (l *lowering) atBounds(n *ir.Node) (bool, error) {
	if !n.Op().Info().Elementwise || len(n.Results()) != 1 {
		return false, nil
	}
	shape := n.Result(0).Type().Shape()
	count := int64(1)
	for _, d := range shape {
		b, ok := l.p.Bound(d)
		if !ok {
			return false, nil
		}
		count *= b
	}
	flat := func(v *ir.Value) (program.Tensor, bool) {
		t, w := v.Type(), l.lay.Windows(v)
		ok := !t.IsAsync() && t.Contiguous() && t.Shape().Equal(shape) && w[0].Offset == 0 &&
			count*int64(t.DType().Size()) <= l.lay.Buffers[w[0].Buffer].Bytes
		return program.Tensor{Buffer: w[0].Buffer, DType: t.DType(), Shape: []dim.Dim{dim.New(count)}}, ok
	}
	// The same operation on vectors of that many elements.
	f := ir.NewModule(1).AddFunc(l.f.Name)
	s := ir.NodeSpec{Op: n.Op(), Name: n.Name(), Attrs: n.Attrs(), Results: []ir.Type{ir.Tensor(n.Result(0).Type().DType(), count)}}
	given := map[*ir.Value]*ir.Value{} // of n -> of s; look-up only
	tensor := map[*ir.Value]program.Tensor{}
	for _, a := range n.Args() {
		t, ok := flat(a)
		if !ok {
			return false, nil
		}
		if given[a] == nil {
			given[a] = f.Append(ir.NodeSpec{Op: ir.OpInput, Name: a.Def().Name(), Results: []ir.Type{ir.Tensor(t.DType, count)}}).Result(0)
			tensor[given[a]] = t
		}
		s.Args = append(s.Args, given[a])
	}
	out, ok := flat(n.Result(0))
	if !ok {
		return false, nil
	}
	m := f.Append(s)
	f.Append(ir.NodeSpec{Op: ir.OpReturn, Args: m.Results()})
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return false, err
	}
	k := program.Kernel{Name: l.nextKernel()}
	c, err := cudagen.Generate(k.Name, st, []*ir.Node{m})
	if err != nil || len(c.Outs) != 1 {
		if err == nil || errors.Is(err, cudagen.ErrUnsupported) {
			return false, nil
		}
		return false, err
	}
	in := program.Instr{Kind: program.Launch, Event: -1, Group: -1, Op: program.OpFused, Node: n.Name(), Outs: []program.Tensor{out}}
	param := map[*ir.Value]int{} // look-up only
	for i, v := range c.Ins {
		param[v] = i
		in.Ins = append(in.Ins, tensor[v])
	}
	vector := func(v *ir.Value, at int) program.BodyTensor {
		return program.BodyTensor{Param: at, DType: v.Type().DType(), Shape: []int64{count}}
	}
	step := program.BodyStep{Op: n.Op().Name(), Attrs: n.Attrs(), Node: n.Name(), Outs: []program.BodyTensor{vector(m.Result(0), len(c.Ins))}}
	for _, v := range s.Args {
		at, ok := param[v]
		if !ok {
			return false, nil
		}
		step.Ins = append(step.Ins, vector(v, at))
	}
	k.Body = []program.BodyStep{step}
	k.Source, k.Grid, k.Block = c.Body, c.Grid, int64(c.Block)
	in.Attrs = attr.Make(attr.Attr{Key: program.KernelKey, Val: attr.String(l.share(k))})
	l.emit(in)
	return true, nil
}
