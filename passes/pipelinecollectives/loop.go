package pipelinecollectives

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/passes/internal/loops"
)

// loop is a while of a known number of iterations.
type loop struct {
	f          *ir.Func
	n          *ir.Node
	cond, body *ir.Func
	iterations int64
	first      []*hostops.Tensor // what is known of what the first iteration begins with
	last       []*hostops.Tensor // the same of the last
	writes     *ir.Writes        // of the body
	counters   []bool            // by carried operand: it counts, see counts
}

// set is nodes of a function.
type set map[*ir.Node]bool // look-up only

// dependencies is what some values are computed from, up to those where it ends, and what has to run
// anyway if whole is true: in order.
func dependencies(f *ir.Func, vals []*ir.Value, end map[*ir.Value]bool, whole bool) []*ir.Node {
	need := set{}
	want := func(v *ir.Value) {
		if !end[v] {
			need[v.Def()] = true
		}
	}
	for _, v := range vals {
		want(v)
	}
	var out []*ir.Node
	for _, n := range slices.Backward(f.Order()) {
		if n.Op() == ir.OpInput || n.Op() == ir.OpReturn {
			continue
		}
		if need[n] || whole && !n.Pure() && !n.Op().IsCollective() && n.Op() != ir.OpWaitTensor {
			out = append(out, n)
			for _, a := range n.Args() {
				want(a)
			}
		}
	}
	slices.Reverse(out)
	return out
}

// reads are the inputs that nodes and values of a body are computed from directly.
func reads(nodes []*ir.Node, vals []*ir.Value) (in []int) {
	for _, n := range nodes {
		vals = append(vals[:len(vals):len(vals)], n.Args()...)
	}
	for _, v := range vals {
		if v.Def().Op() == ir.OpInput {
			in = append(in, v.Def().At())
		}
	}
	return in
}

// counts finds the counters of a loop: what the next iteration's is follows from this iteration's, and
// from what no iteration changes, by operations on few integers. So an iteration can know them of the next.
func (l *loop) counts() {
	l.counters = make([]bool, l.n.Carried())
	for k := range l.counters {
		l.counters[k] = true
	}
	for again := true; again; {
		again = false
		for k, v := range l.body.Return().Args() {
			if !l.counters[k] {
				continue
			}
			nodes := dependencies(l.body, []*ir.Value{v}, nil, false)
			plain := !slices.ContainsFunc(nodes, func(n *ir.Node) bool { return len(n.Results()) != 1 || n.Ordered() || !loops.Small(n.Result(0)) })
			if !plain || !l.known(reads(nodes, []*ir.Value{v})) || !loops.Integers(v) {
				l.counters[k], again = false, true
			}
		}
	}
}

// known reports whether inputs are counters, or the same in every iteration.
func (l *loop) known(inputs []int) bool {
	return !slices.ContainsFunc(inputs, func(i int) bool { return i < len(l.counters) && !l.counters[i] })
}

// decides are the nodes that decide whether the loop goes on, and the inputs that they read.
func (l *loop) decides() ([]*ir.Node, []int) {
	more := l.cond.Return().Args()
	nodes := dependencies(l.cond, more, nil, false)
	return nodes, reads(nodes, more)
}

// mayMove reports whether a node of the body may run in another iteration than its own, given what it
// reads: it has no effect but to communicate as collectives do, and nothing writes what it reads or gives.
func (l *loop) mayMove(n *ir.Node) bool {
	return (n.Pure() || n.Op().IsCollective() && !n.Ordered()) && n.Op().Info().Bodies == nil && n.Op() != ir.OpCall && n.Op() != ir.OpAsyncCall &&
		!slices.ContainsFunc(slices.Concat(n.Args(), n.Results()), l.writes.Written)
}

// waitOf is the wait of a collective whose tensors can be carried, nil if there is none.
func waitOf(c *ir.Node) *ir.Node {
	if uses := c.Result(0).Uses(); len(uses) == 1 && uses[0].Node.Op() == ir.OpWaitTensor && canCarry(uses[0].Node.Results()) {
		return uses[0].Node
	}
	return nil
}

// canCarry reports whether a loop can carry values as they are.
func canCarry(vals []*ir.Value) bool {
	return !slices.ContainsFunc(vals, func(v *ir.Value) bool { return v.Type().IsAsync() || !v.Type().Contiguous() })
}

// next is the loop that carries more, before the old one: its function has a body and a
// condition of their own, to be filled, whose inputs are what is carried, what is added, and the rest.
type next struct {
	*loop
	body, cond *ir.Func
	added      []ir.Type
}

// widen makes the functions of a loop that carries more.
func (l *loop) widen(added []ir.Type, suffix string) *next {
	x := &next{loop: l, added: added}
	x.body = l.like(l.body, l.body.Name+suffix, added)
	x.cond = l.like(l.cond, l.cond.Name+suffix, added)
	return x
}

// like is a new function with the inputs of another, and more of them behind those that are carried.
func (l *loop) like(f *ir.Func, name string, added []ir.Type) *ir.Func {
	m := l.f.Module()
	base := name
	for i := 2; m.Func(name) != nil; i++ {
		name = fmt.Sprint(base, i)
	}
	out := m.AddFunc(name)
	in, k := f.Inputs(), l.n.Carried()
	declare := func(list []*ir.Node) {
		for _, n := range list {
			s := n.Spec()
			s.From = nil
			out.Append(s)
		}
	}
	declare(in[:k])
	for _, t := range added {
		out.Append(ir.NodeSpec{Op: ir.OpInput, Name: "carried", Results: []ir.Type{t}, Pos: l.n.Pos()})
	}
	declare(in[k:])
	return out
}

// inputMap are the values of a new function's inputs for those of the function that it is like.
func (x *next) inputMap(of, f *ir.Func) map[*ir.Value]*ir.Value {
	out := map[*ir.Value]*ir.Value{}
	for i, n := range of.Inputs() {
		if i >= x.n.Carried() {
			i += len(x.added)
		}
		out[n.Result(0)] = f.Inputs()[i].Result(0)
	}
	return out
}

// extra are the inputs of a new function that are added.
func (x *next) extra(f *ir.Func) []*ir.Value {
	var out []*ir.Value
	for _, n := range f.Inputs()[x.n.Carried():][:len(x.added)] {
		out = append(out, n.Result(0))
	}
	return out
}

// leave ends the new body. What is carried in addition lies nowhere else, as what an iteration may overwrite would be
// handed over as it is.
func (x *next) leave(vals []*ir.Value) {
	seen := map[*ir.Value]bool{} // look-up only
	for i, v := range vals {
		own, add := ir.StorageOf(v), x.n.Carried()
		in := own.Def().Op() == ir.OpInput
		if i < add && in && own.Def().At() >= add && own.Def().At() < add+len(x.added) || i >= add && (in || seen[own]) {
			vals[i] = x.body.Append(ir.NodeSpec{Op: ir.OpClone, Args: []*ir.Value{v}, Results: []ir.Type{v.Type()}}).Result(0)
		}
		seen[own] = true
	}
	x.body.Append(ir.NodeSpec{Op: ir.OpReturn, Args: vals})
}

// place puts the new loop before the old one, with one iteration less.
func (x *next) place(carried, added []*ir.Value) *ir.Node {
	n := x.n
	s := n.Spec()
	k := n.Carried()
	s.Args = slices.Concat(carried, added, n.Args()[k:])
	s.Results = slices.Concat(s.Results, x.added)
	s.Attrs = s.Attrs.With(ir.BodyKey, attr.String(x.body.Name)).With(ir.CondKey, attr.String(x.cond.Name)).With("trips", attr.Int(x.iterations-1))
	return x.f.InsertBefore(n, s)
}

// finish puts values in place of the old loop's results, and removes what nobody needs of
// what has been put there since begin, and of the old loop.
func (x *next) finish(begin *ir.Node, vals []*ir.Value) {
	end := x.n.Next()
	(&loops.Iteration{Func: x.f, At: x.n, From: x.n}).Replace(x.n, vals)
	for n := end.Prev(); n != begin; {
		p := n.Prev()
		if (n.Pure() || n.Op().IsCollective()) && !deps.Used(n) && n.Op() != ir.OpInput && n.Op().Info().Bodies == nil {
			x.f.Remove(n)
		}
		n = p
	}
	m := x.f.Module()
	for _, f := range m.Entries() {
		if f == x.loop.body || f == x.loop.cond { // nobody runs it any more
			m.RemoveFunc(f)
		}
	}
}
