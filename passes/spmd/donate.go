package spmd

import (
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// This file has results that take the place of inputs.

// replace lets results of which nothing is said lie as the inputs whose place they take: others could
// not take it.
func replace(f *ir.Func, x *sharding.Function) {
	for _, n := range f.Inputs() {
		k := n.Attrs().Int(ir.DonateKey, -1)
		s := x.Graph.Values[n.Result(0).ID()].Sharding
		if k < 0 || s == nil || s.Mesh.Maximal() {
			continue
		}
		y := &x.Graph.Values[x.Results[k]]
		if y.Sharding == nil && x.Graph.Values[f.Return().Arg(int(k)).ID()].Sharding == nil {
			y.Sharding = late(s)
		}
	}
}

// donated has results take the place of inputs as before: none is the input itself but the one that
// takes its place, which is no other input, and lies row by row if its own does. An input of another size keeps its place.
func (p *partitioner) donated(outs []*ir.Value) {
	for _, in := range p.to.Inputs() {
		k, x := in.Attrs().Int(ir.DonateKey, -1), in.Result(0)
		if k < 0 || p.err != nil {
			continue
		}
		for i, v := range outs {
			own, is := i == int(k), v.Viewed() == x
			if own && !is && v.Viewed().Def().Op() == ir.OpInput || is && !own {
				outs[i] = p.one(ir.OpClone, nil, []*ir.Value{v})
			}
		}
		if x.Type().Contiguous() {
			outs[k] = p.contiguous(outs[k])
		}
		if p.err == nil && !x.Type().Equal(outs[k].Type()) {
			p.to.SetAttrs(in, in.Attrs().Without(ir.DonateKey))
		}
	}
}
