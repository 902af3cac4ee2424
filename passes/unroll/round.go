package unroll

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
)

// round is a copy of a loop's body.
type round struct {
	f     *ir.Func                      // that it becomes part of
	at    *ir.Node                      // the node in front of which it stands
	known map[*ir.Value]*hostops.Tensor // of values of the body; look-up only
	now   map[*ir.Value]*ir.Value       // the round's value for one of the body; look-up only
}

// copy copies what the round computes.
func (r *round) copy(nodes []*ir.Node) {
	for _, n := range nodes {
		if n.Op() == ir.OpInput || n.Op() == ir.OpReturn {
			continue
		}
		if v := r.row(n); v != nil {
			r.now[n.Result(0)] = v
			continue
		}
		s := n.Spec()
		for i, a := range s.Args {
			s.Args[i] = r.now[a]
		}
		if n.Func() != r.f {
			s.From = []*ir.Node{r.at}
		}
		c := r.f.InsertBefore(r.at, s)
		for i, v := range n.Results() {
			r.now[v] = c.Result(i)
		}
	}
}

// row is a read or a write of one row at a position that is known: a slice, or a slice_scatter.
// Nil of everything else.
func (r *round) row(n *ir.Node) *ir.Value {
	put := n.Op() == ir.OpIndexPut && !n.Attrs().Bool("accumulate", false) && len(n.Args()) == 3
	if !put && (n.Op() != ir.OpIndex || len(n.Args()) != 2) || len(n.Results()) != 1 {
		return nil
	}
	at, dims := r.known[n.Arg(len(n.Args())-1)], n.Attrs().Ints("dims")
	table, ok := n.Arg(0).Type().Shape().Static()
	if at == nil || at.NumElems() != 1 || !slices.Equal(dims, []int64{0}) || !ok || len(table) == 0 {
		return nil
	}
	k, small := one(at)
	if !small || k < 0 || k >= table[0] {
		return nil
	}
	want := n.Result(0).Type()
	attrs := ir.A("dim", int64(0), "end", k+1, "start", k)
	x := r.now[n.Arg(0)]
	if put {
		part := r.now[n.Arg(1)]
		if !part.Type().Shape().Equal(append(ir.Dims(1), want.Shape()[1:]...)) || !x.Type().Shape().Equal(want.Shape()) {
			return nil
		}
		return r.insert(ir.OpSliceScatter, attrs, want, x, part)
	}
	t, err := ir.Infer(ir.OpSlice, nil, attrs, []ir.Type{x.Type()})
	if err != nil {
		return nil
	}
	if t[0].Equal(want) {
		return r.insert(ir.OpSlice, attrs, want, x)
	}
	if _, err := ir.Infer(ir.OpView, nil, ir.Attrs{}, t, want); err != nil {
		return nil
	}
	return r.insert(ir.OpView, ir.Attrs{}, want, r.insert(ir.OpSlice, attrs, t[0], x))
}

// as is a value in the layout of a type.
func (r *round) as(v *ir.Value, t ir.Type) *ir.Value {
	if v.Type().Equal(t) {
		return v
	}
	return r.insert(ir.OpClone, ir.Attrs{}, t, v)
}

func (r *round) insert(o ir.Op, attrs ir.Attrs, t ir.Type, args ...*ir.Value) *ir.Value {
	return r.f.InsertBefore(r.at, ir.NodeSpec{Op: o, Args: args, Results: []ir.Type{t}, Attrs: attrs, Pos: r.at.Pos(), From: []*ir.Node{r.at}}).Result(0)
}
