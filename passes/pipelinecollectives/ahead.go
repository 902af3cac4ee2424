package pipelinecollectives

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/internal/loops"
)

// startable finds collectives that the iteration before theirs can start, as what they send follows from
// counters and from what no iteration changes: rows of stacked weights that are gathered.
func (l *loop) startable() []*ir.Node {
	if _, in := l.decides(); !l.known(in) {
		return nil // whether there is a next iteration is known at the end of this one
	}
	early, counted := make([]bool, l.body.NumValueIDs()), make([]bool, l.body.NumValueIDs())
	for i, n := range l.body.Inputs() {
		early[n.Result(0).ID()] = i >= len(l.counters) || l.counters[i]
		counted[n.Result(0).ID()] = i < len(l.counters)
	}
	var out []*ir.Node
	for _, n := range l.body.Order() {
		if n.Op() == ir.OpInput || n.Op() == ir.OpReturn || !l.mayMove(n) {
			continue
		}
		all, counts := true, false
		for _, a := range n.Args() {
			all, counts = all && early[a.ID()], counts || counted[a.ID()]
		}
		for _, v := range n.Results() {
			early[v.ID()], counted[v.ID()] = all, counts
		}
		if n.Op().IsCollective() && all && counts && waitOf(n) != nil && l.mayMove(waitOf(n)) {
			out = append(out, n)
		}
	}
	return out
}

// startAhead has each iteration start collectives for the next one: what they bring is carried. The
// first iteration's start before the loop, and the last iteration comes after it.
//
//	loop n: w = gather(row(i)); use(w)  =>  w = gather(row(0)); loop n-1: v = gather(row(i+1)); use(w); w = v; end; use(w)
func (l *loop) startAhead(comms []*ir.Node) *ir.Node {
	body, in := l.body, l.body.Inputs()
	carried := l.n.Carried()
	var brought, counting []*ir.Value
	end := map[*ir.Value]bool{}
	for _, c := range comms {
		for _, v := range waitOf(c).Results() {
			brought, end[v] = append(brought, v), true
		}
	}
	for k, v := range body.Return().Args() {
		if l.counters[k] {
			counting = append(counting, v)
		}
	}
	rest := dependencies(body, body.Return().Args(), end, true)
	brought = slices.DeleteFunc(brought, func(v *ir.Value) bool { return !readBy(v, append(rest, body.Return())) }) // other than on the way to others
	count := dependencies(body, counting, nil, false)
	fetch := dependencies(body, brought, nil, false)
	x := l.widen(types(brought), ".ahead")

	now := loops.Iteration{Func: x.body, Now: x.inputMap(body, x.body)}
	now.Copy(count)
	soon := loops.Iteration{Func: x.body, Now: x.inputMap(body, x.body)}
	for k, v := range body.Return().Args() {
		if l.counters[k] {
			soon.Now[in[k].Result(0)] = soon.As(now.Now[v], in[k].Result(0).Type())
		}
	}
	var waits []*ir.Node
	for _, n := range fetch {
		if n.Op() == ir.OpWaitTensor && !slices.ContainsFunc(n.Results(), func(v *ir.Value) bool { return readBy(v, fetch) }) {
			waits = append(waits, n)
		} else {
			soon.Copy([]*ir.Node{n})
		}
	}
	for i, v := range brought {
		now.Now[v] = x.extra(x.body)[i]
	}
	now.Copy(slices.DeleteFunc(slices.Clone(rest), func(n *ir.Node) bool { return slices.Contains(count, n) }))
	soon.Copy(waits)
	x.leave(slices.Concat(now.Of(body.Return().Args()), soon.Of(brought)))
	l.loopAgain(x, count)

	begin := l.n.Prev()
	first := loops.Iteration{Func: l.f, At: l.n, From: l.n, Known: loops.Numbers(body, l.first), Now: map[*ir.Value]*ir.Value{}}
	first.Begin(body, l.n.Args())
	first.Copy(fetch)
	n := x.place(l.n.Args()[:carried], first.Of(brought))
	final := loops.Iteration{Func: l.f, At: l.n, From: l.n, Known: loops.Numbers(body, l.last), Now: map[*ir.Value]*ir.Value{}}
	final.Begin(body, slices.Concat(n.Results()[:carried], l.n.Args()[carried:]))
	for i, v := range brought {
		final.Now[v] = n.Result(carried + i)
	}
	final.Copy(rest)
	x.finish(begin, final.Of(body.Return().Args()))
	return n
}

// loopAgain fills the condition of a loop whose iterations ask whether there is an iteration behind the next.
func (l *loop) loopAgain(x *next, count []*ir.Node) {
	decide, _ := l.decides()
	step := loops.Iteration{Func: x.cond, Now: map[*ir.Value]*ir.Value{}}
	now := x.inputMap(l.cond, x.cond)
	for i, n := range l.body.Inputs() {
		step.Now[n.Result(0)] = now[l.cond.Inputs()[i].Result(0)]
	}
	step.Copy(count)
	ask := loops.Iteration{Func: x.cond, Now: now}
	for k, v := range l.body.Return().Args() {
		if in := l.cond.Inputs()[k].Result(0); l.counters[k] {
			ask.Now[in] = ask.As(step.Now[v], in.Type())
		}
	}
	ask.Copy(decide)
	x.cond.Append(ir.NodeSpec{Op: ir.OpReturn, Args: ask.Of(l.cond.Return().Args())})
}

func types(vals []*ir.Value) []ir.Type {
	var out []ir.Type
	for _, v := range vals {
		out = append(out, v.Type())
	}
	return out
}

// readBy reports whether some of these nodes reads v.
func readBy(v *ir.Value, nodes []*ir.Node) bool {
	return slices.ContainsFunc(v.Uses(), func(u ir.Use) bool { return slices.Contains(nodes, u.Node) })
}
