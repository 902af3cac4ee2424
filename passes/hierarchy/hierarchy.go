// Package hierarchy has pass hierarchy: it splits collectives over several NVLink domains into
// collectives within domains and between them.
package hierarchy

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// Pass takes collectives whose group has several ranks in each of several NVLink domains
// apart, where that costs less:
//
//	all_gather      between domains, then within them
//	reduce_scatter  within, then between
//	all_reduce      reduce_scatter within, all_reduce between, all_gather within
//	all_to_all      within, then between
//
// Between domains a rank talks to the ranks that have its place in theirs: its rail. Each
// byte then crosses the network as often as it has to and no more, where a flat ring sends
// all of them out of every domain, and the steps are as many as domains have ranks and as
// there are domains, not their product. Each part is a collective of its own, on the stream
// of its group, so that later passes hide it, and join it with others of its group.
//
// Gathers and exchanges give every bit as before. Sums are rounded to their type once
// within the domain, which adds by ascending place in the group, and once between, which adds by
// ascending domain: the same on all ranks, and another order than the flat collective states,
// so the option reassociate has to allow it for floats.
//
// What a collective leaves in flight, what something writes in place, uneven exchanges and
// tensors with symbolic sizes stay as they are. The algorithms are those of NCCL's and MPI's
// hierarchical collectives; the layouts are chosen so that gathers and scatters need no copies.
func Pass() passes.Pass {
	return passes.Pass{
		Name: "hierarchy",
		Doc:  "Takes collectives over several NVLink domains apart into collectives within and between domains.",
		Options: []passes.Option{
			{Name: "reassociate", Kind: passes.KindBool, Default: "false", Doc: "also sums and products of floats, which then round once within domains and once between"},
			{Name: "domain", Kind: passes.KindInt, Default: "0", Doc: "ranks of an NVLink domain; 0: what the cost model's machine has"},
			{Name: "when", Kind: passes.KindString, Default: "cheaper", Choices: []string{"cheaper", "always"}, Doc: "take apart what costs less by the cost model, or everything"},
		},
		Stats: []passes.Stat{
			{Name: "taken-apart", Doc: "collectives taken apart"},
			{Name: "kept", Doc: "collectives that could be, and cost more"},
			{Name: "bytes-between-before", Doc: "bytes that leave domains, by rank that sends most, before the pass: of rings as many as the ring sends"},
			{Name: "bytes-between-after", Doc: "the same after it"},
		},
		Reassociates: "reassociate",
		Run:          run,
	}
}

func run(ctx *passes.Context, f *ir.Func) error {
	h := &hierarchy{ctx: ctx, f: f, size: int(ctx.Int("domain")), splits: map[*ir.Group]*split{}, declared: map[*ir.Group]*ir.Group{}, writes: ir.FindWrites(f)}
	if h.size == 0 {
		h.size = ctx.DomainSize()
	}
	if h.size < 2 {
		return nil
	}
	for _, n := range slices.Clone(f.Order()) {
		ctx.Tick()
		if n.Op().IsCollective() && n.Group() != nil {
			h.try(n)
		}
	}
	return nil
}

// hierarchy is the state of one run on one function.
type hierarchy struct {
	ctx    *passes.Context
	f      *ir.Func
	size   int                  // of a domain
	splits map[*ir.Group]*split // look-up only; nil for groups that are none
	// declared are the module's groups in place of those of splits; look-up only
	declared map[*ir.Group]*ir.Group
	writes   *ir.Writes
	made     []*ir.Node // of the rewrite under way
}

// try takes n apart if it can be and that pays.
func (h *hierarchy) try(n *ir.Node) {
	s := h.split(n.Group())
	if s == nil || !h.legal(n) {
		return
	}
	if !h.ctx.Enable(n.Name()) {
		return
	}
	wait := n.Result(0).Uses()[0].Node
	h.made = h.made[:0]
	out := h.parts(n, wait, s)
	for k, v := range out {
		if v == nil || !v.Type().Equal(wait.Result(k).Type()) {
			h.undo()
			return
		}
	}
	if out == nil {
		h.undo()
		return
	}
	before, after, priced := h.prices(n)
	record := passes.CommRecord{Node: n.Name(), Comm: n.Name(), Group: n.Group().Name, Ms: before,
		Detail: fmt.Sprintf("%d domains of %d ranks: %.4f ms in %d collectives, %.4f in one", s.domains, s.ranks, after, h.collectives(), before)}
	if h.ctx.Str("when") == "cheaper" && !(priced && after < before) {
		h.undo()
		h.ctx.Count("kept", 1)
		record.Limit = passes.LimitCost
		h.ctx.Record(record)
		return
	}
	h.ctx.Count("bytes-between-before", s.between(n, h.bytes))
	for _, c := range h.made {
		if c.Op().IsCollective() && c.Group() == s.rail {
			h.ctx.Count("bytes-between-after", s.between(c, h.bytes))
		}
	}
	h.charge(n, before)
	h.declare()
	record.Limit = passes.LimitNone
	h.ctx.Record(record)
	h.ctx.Count("taken-apart", 1)
	h.replace(n, wait, out)
}

// legal reports whether n may be taken apart: one wait reads it here, nothing writes what
// it reads or gives, no order-only edge and no call that communicates would have to
// move with its parts.
func (h *hierarchy) legal(n *ir.Node) bool {
	uses := n.Result(0).Uses()
	if len(uses) != 1 || uses[0].Node.Op() != ir.OpWaitTensor || n.Ordered() || uses[0].Node.Ordered() || len(n.Args()) != len(n.DeclaredArgs()) {
		return false
	}
	wait := uses[0].Node
	if slices.ContainsFunc(n.Args(), hasDynamicSize) {
		return false
	}
	if slices.ContainsFunc(n.Args(), h.writes.Written) || slices.ContainsFunc(wait.Results(), h.writes.Written) {
		return false
	}
	for at := n.Next(); at != wait; at = at.Next() {
		if at.Communicates() && !at.Op().IsCollective() {
			return false
		}
	}
	switch n.Op() {
	case ir.OpAllReduce, ir.OpReduceScatter:
		for _, a := range n.Args() {
			if !h.mayReorder(n.Reduction(), a.Type().DType()) {
				return false
			}
		}
		return true
	case ir.OpAllToAll:
		return !n.Attrs().Has("in_splits")
	}
	return n.Op() == ir.OpAllGather
}

// hasDynamicSize reports whether a tensor has a dynamic size: no equation says
// then that the parts give what the whole does.
func hasDynamicSize(v *ir.Value) bool {
	_, static := v.Type().Shape().Static()
	return !static
}

// mayReorder reports whether reductions of that type may be made in another order.
func (h *hierarchy) mayReorder(r ir.Reduction, dt ir.DType) bool {
	switch {
	case r == ir.Min || r == ir.Max:
		return true
	case dt.IsInt():
		return r != ir.Avg
	}
	return dt.IsFloat() && h.ctx.Bool("reassociate")
}

// bytes is the size of a type, symbols at their hints.
func (h *hierarchy) bytes(t ir.Type) int64 { return h.f.Module().Hint(t.Bytes()) }

// collectives counts those of the rewrite under way.
func (h *hierarchy) collectives() int {
	count := 0
	for _, n := range h.made {
		if n.Op().IsCollective() {
			count++
		}
	}
	return count
}

// prices is what n costs and what the parts do, one after the other, by the cost model;
// false if it does not know them all.
func (h *hierarchy) prices(n *ir.Node) (before, after float64, ok bool) {
	if h.ctx.Costs() == nil {
		return 0, 0, false
	}
	before, ok = h.comm(n)
	for _, c := range h.made {
		if c.Op().IsCollective() {
			ms, known := h.comm(c)
			after, ok = after+ms, ok && known
		} else {
			after += h.ctx.Cost(c)
		}
	}
	return before, after, ok
}

func (h *hierarchy) comm(n *ir.Node) (float64, bool) {
	size := int64(0)
	for k, t := range n.Result(0).Type().Tensors() {
		size += max(h.bytes(n.Arg(k).Type()), h.bytes(t))
	}
	return h.ctx.Costs().CommMs(n.Op(), n.Group(), n.Reduction(), size)
}

// charge gives the parts the cost that is attached to n, in proportion to what the cost model
// says of both; without one the model goes on.
func (h *hierarchy) charge(n *ir.Node, before float64) {
	attached, ok := n.Cost()
	if !ok || !(before > 0) {
		return
	}
	for _, c := range h.made {
		if ms, known := 0.0, false; c.Op().IsCollective() {
			if ms, known = h.comm(c); known {
				h.f.SetCost(c, min(ms*attached/before, ir.MaxCost))
			}
		}
	}
}
