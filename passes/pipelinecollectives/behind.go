package pipelinecollectives

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/internal/loops"
)

// deferrable finds collectives that the iteration behind theirs can run, as what follows from what they bring goes
// into results of the loop that no iteration reads: gradients that are reduced and stored.
func (l *loop) deferrable() []*ir.Node {
	_, asked := l.decides()
	var out []*ir.Node
	for _, c := range l.body.Order() {
		if !c.Op().IsCollective() || waitOf(c) == nil {
			continue
		}
		if s, free := l.follow([]*ir.Node{c}); free && l.stores(s, asked) && canCarry(l.cut(s)) {
			out = append(out, c)
		}
	}
	return out
}

// follow is what is computed from the results of nodes, they included, and whether all of it may move.
func (l *loop) follow(nodes []*ir.Node) (s set, free bool) {
	s, free = set{}, true
	for todo := nodes; len(todo) > 0; {
		n := todo[len(todo)-1]
		if todo = todo[:len(todo)-1]; s[n] || n.Op() == ir.OpReturn {
			continue
		}
		s[n], free = true, free && l.mayMove(n)
		for _, v := range n.Results() {
			for _, u := range v.Uses() {
				todo = append(todo, u.Node)
			}
		}
	}
	return s, free
}

// stored says which results of an iteration nodes give.
func (l *loop) stored(nodes set) []bool {
	out := make([]bool, l.n.Carried())
	for k, v := range l.body.Return().Args() {
		out[k] = nodes[v.Def()]
	}
	return out
}

// stores reports whether these nodes store anything that nobody else reads, nor the condition, which
// reads the inputs that are asked for.
func (l *loop) stores(nodes set, asked []int) bool {
	stored := l.stored(nodes)
	for k, is := range stored {
		if !is {
			continue
		}
		for _, u := range l.body.Inputs()[k].Result(0).Uses() {
			if !nodes[u.Node] {
				return false
			}
		}
		if slices.Contains(asked, k) {
			return false
		}
	}
	return slices.Contains(stored, true)
}

// rematerializable reports whether a value is made anew for nodes that run an iteration later: it is the same in
// every iteration, and costs nothing.
func (l *loop) rematerializable(v *ir.Value) bool {
	n := v.Def()
	if n.Op() == ir.OpInput {
		return n.At() >= l.n.Carried()
	}
	return l.mayMove(n) && n.Pure() && (n.Op().IsView() || loops.Few(v)) && !slices.ContainsFunc(n.Args(), func(a *ir.Value) bool { return !l.rematerializable(a) })
}

// cut are the values that nodes read of the rest of their iteration, in order.
func (l *loop) cut(nodes set) (out []*ir.Value) {
	stored := l.stored(nodes)
	for _, n := range l.body.Order() {
		if !nodes[n] {
			continue
		}
		for _, a := range n.Args() {
			if in := a.Def(); nodes[in] || in.Op() == ir.OpInput && in.At() < len(stored) && stored[in.At()] || l.rematerializable(a) || slices.Contains(out, a) {
				continue
			}
			out = append(out, a)
		}
	}
	return out
}

// storeBehind has each iteration run the collectives of the one before, which hands over what they
// send. The first iteration comes before the loop, and the last one's collectives behind it.
//
//	loop n: g = grad(i); store(reduce(g), i)  =>  g = grad(0); loop n-1: store(reduce(g), i-1); g = grad(i); end; store(reduce(g), n-1)
func (l *loop) storeBehind(comms []*ir.Node) *ir.Node {
	nodes, _ := l.follow(slices.Clone(comms))
	body, ret := l.body, l.body.Return().Args()
	carried := l.n.Carried()
	cut, stored := l.cut(nodes), l.stored(nodes)
	var start, end, rest []*ir.Node
	var kept, moved []*ir.Value
	given := map[*ir.Value]bool{}
	for _, v := range cut {
		given[v] = true
	}
	for k, v := range ret {
		if stored[k] {
			moved = append(moved, v)
		} else {
			kept = append(kept, v)
		}
	}
	rest = dependencies(body, slices.Concat(kept, cut), nil, true)
	brought := set{}
	for _, n := range dependencies(body, moved, given, false) {
		if brought[n] = n.Op() == ir.OpWaitTensor || slices.ContainsFunc(n.Args(), func(a *ir.Value) bool { return brought[a.Def()] }); brought[n] {
			end = append(end, n)
		} else {
			start = append(start, n)
		}
	}
	x := l.widen(types(cut), ".behind")

	late := loops.Iteration{Func: x.body, Now: x.inputMap(body, x.body)}
	for i, v := range cut {
		late.Now[v] = x.extra(x.body)[i]
	}
	now := loops.Iteration{Func: x.body, Now: x.inputMap(body, x.body)}
	late.Copy(start)
	now.Copy(rest)
	late.Copy(end)
	x.leave(slices.Concat(pickByFlag(stored, late.Of(ret), now.Of(ret)), now.Of(cut)))
	ask := loops.Iteration{Func: x.cond, Now: x.inputMap(l.cond, x.cond)}
	decide, _ := l.decides()
	ask.Copy(decide)
	x.cond.Append(ir.NodeSpec{Op: ir.OpReturn, Args: ask.Of(l.cond.Return().Args())})

	begin := l.n.Prev()
	first := loops.Iteration{Func: l.f, At: l.n, From: l.n, Known: loops.Numbers(body, l.first), Now: map[*ir.Value]*ir.Value{}}
	first.Begin(body, l.n.Args())
	first.Copy(rest)
	n := x.place(pickByFlag(stored, l.n.Args(), first.Of(ret)), first.Of(cut))
	final := loops.Iteration{Func: l.f, At: l.n, From: l.n, Known: loops.Numbers(body, l.last), Now: map[*ir.Value]*ir.Value{}}
	final.Begin(body, slices.Concat(n.Results()[:carried], l.n.Args()[carried:]))
	for i, v := range cut {
		final.Now[v] = n.Result(carried + i)
	}
	final.Copy(slices.Concat(start, end))
	x.finish(begin, pickByFlag(stored, final.Of(ret), n.Results()))
	return n
}

// pickByFlag takes a value of the one list or of the other.
func pickByFlag(which []bool, a, b []*ir.Value) []*ir.Value {
	out := make([]*ir.Value, len(which))
	for k, is := range which {
		if out[k] = b[k]; is {
			out[k] = a[k]
		}
	}
	return out
}
