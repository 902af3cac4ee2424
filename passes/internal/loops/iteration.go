package loops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
)

// Iteration is a copy of a loop's body, or of a part of it.
type Iteration struct {
	Func  *ir.Func                      // that it becomes part of
	At    *ir.Node                      // the node in front of which it stands, nil for the end
	From  *ir.Node                      // what copies in another function are made from
	Known map[*ir.Value]*hostops.Tensor // of values of the body; look-up only
	Now   map[*ir.Value]*ir.Value       // the iteration's value for one of the body; look-up only

	writes *ir.Writes            // of the body, nil until they are asked for
	nodes  map[*ir.Node]*ir.Node // the iteration's node for an ordered one of the body; look-up only
}

// Copy copies what the iteration computes, with the order-only edges within it.
func (r *Iteration) Copy(nodes []*ir.Node) {
	for _, n := range nodes {
		if n.Op() == ir.OpInput || n.Op() == ir.OpReturn {
			continue
		}
		if v := r.row(n); v != nil {
			r.Now[n.Result(0)] = v
			continue
		}
		s := n.Spec()
		for i, a := range s.Args {
			s.Args[i] = r.Now[a]
		}
		if s.Beside = n.Func() == r.Func; !s.Beside {
			s.From = r.from()
		}
		for _, o := range n.After() {
			if o = r.nodes[o]; o != nil {
				s.After = append(s.After, o)
			}
		}
		c := r.Func.InsertBefore(r.At, s)
		if n.Ordered() {
			if r.nodes == nil {
				r.nodes = map[*ir.Node]*ir.Node{}
			}
			r.nodes[n] = c
		}
		for i, v := range n.Results() {
			r.Now[v] = c.Result(i)
		}
	}
}

func (r *Iteration) from() []*ir.Node {
	if r.From == nil {
		return nil
	}
	return []*ir.Node{r.From}
}

// row is a read or a write of one row at a position that is known: a slice, or a slice_scatter.
// Nil of everything else.
func (r *Iteration) row(n *ir.Node) *ir.Value {
	put := n.Op() == ir.OpIndexPut && !n.Attrs().Bool("accumulate", false) && len(n.Args()) == 3
	if !put && (n.Op() != ir.OpIndex || len(n.Args()) != 2) || len(n.Results()) != 1 {
		return nil
	}
	at, dims := r.Known[n.Arg(len(n.Args())-1)], n.Attrs().Ints("dims")
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
	x := r.Now[n.Arg(0)]
	if put {
		part := r.Now[n.Arg(1)]
		if !part.Type().Shape().Equal(append(ir.Dims(1), want.Shape()[1:]...)) || !x.Type().Shape().Equal(want.Shape()) {
			return nil
		}
		return r.insert(ir.OpSliceScatter, attrs, want, x, part)
	}
	if r.writes == nil {
		r.writes = ir.FindWrites(n.Func())
	}
	if r.writes.Written(n.Result(0)) { // a slice would have the table written
		return nil
	}
	t, err := ir.Infer(ir.OpSlice, nil, attrs, []ir.Type{x.Type()})
	if err != nil {
		return nil
	}
	if t[0].Equal(want) {
		return r.insert(ir.OpSlice, attrs, want, x)
	}
	dense := ir.TensorOf(want.DType(), t[0].Shape())
	for _, from := range []ir.Type{t[0], dense} { // as it lies in the table, or else packed
		v, err := ir.Infer(ir.OpView, nil, ir.Attrs{}, []ir.Type{from}, want)
		if err == nil && v[0].Equal(want) {
			part := r.As(r.insert(ir.OpSlice, attrs, t[0], x), from)
			if want.Equal(from) {
				return part
			}
			return r.insert(ir.OpView, ir.Attrs{}, want, part)
		}
	}
	return nil
}

// As is a value in the layout of a type.
func (r *Iteration) As(v *ir.Value, t ir.Type) *ir.Value {
	if v.Type().Equal(t) {
		return v
	}
	return r.insert(ir.OpClone, ir.Attrs{}, t, v)
}

// Begin gives the inputs of a body their values.
func (r *Iteration) Begin(body *ir.Func, vals []*ir.Value) {
	for i, in := range body.Inputs() {
		r.Now[in.Result(0)] = r.As(vals[i], in.Result(0).Type())
	}
}

// Replace puts values in place of a loop's results. The caller, or who writes in place, must
// not get one storage twice.
func (r *Iteration) Replace(n *ir.Node, vals []*ir.Value) {
	writes := ir.FindWrites(r.Func)
	for k, v := range n.Results() {
		x := r.As(vals[k], v.Type())
		if writes.Written(v) || writes.Written(x) || ir.Returned(v) && (ir.FromCaller(x) || ir.Returned(ir.StorageOf(x))) {
			x = r.insert(ir.OpClone, ir.Attrs{}, v.Type(), x)
		}
		r.Func.ReplaceUses(v, x)
	}
	r.Func.Remove(n)
}

func (r *Iteration) insert(o ir.Op, attrs ir.Attrs, t ir.Type, args ...*ir.Value) *ir.Value {
	s := ir.NodeSpec{Op: o, Args: args, Results: []ir.Type{t}, Attrs: attrs, From: r.from()}
	if r.From != nil {
		s.Pos = r.From.Pos()
	}
	return r.Func.InsertBefore(r.At, s).Result(0)
}

// Of are the iteration's values for those of the body.
func (r *Iteration) Of(vals []*ir.Value) []*ir.Value {
	out := make([]*ir.Value, len(vals))
	for i, v := range vals {
		out[i] = r.Now[v]
	}
	return out
}
