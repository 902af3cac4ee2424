// Package fuse has pass fuse, which forms regions that become one kernel each, and pass add-slack,
// which uses the memory that fusion saves to add slack to the schedule.
package fuse

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/sim"
)

// Pass finds regions of operations that one kernel can compute: chains of
// elementwise operations, reductions with what leads to them and what follows
// from them, data movement that is only another index, and siblings that read the
// same tensors.
//
// # What a region is
//
// A region is an annotation, fusion=ID, on nodes that stand next to each other.
// The nodes stay. Thus the interpreter and the host device run what they ran
// before, with the same roundings, and need to know nothing; whoever launches
// kernels takes the run of nodes with one ID as the body of one launch. A region
// operation with a body of its own would say the same and ask every reader of the
// IR for a second kind of function. That a region is consecutive also makes it
// convex: nothing that depends on one of its nodes comes before another.
//
// Tensors that only the region reads never reach memory. A region's operands and
// results live together: all results are written before the last operand is free.
//
// # What is fused
//
// The nodes are walked in program order. Each is joined with the regions of its
// operands, nearest first, then readers of one tensor are joined. A join moves
// what stands between the two regions out of the way, at best in front, else
// behind, and is kept if
//
//   - one kernel can compute the joined region (package internal/fusion),
//   - operations with effects and communication keep their order,
//   - the makespan, as the simulator has it, is not longer than before the pass:
//     moving a computation behind a wait, or a start behind a computation, can
//     take away what hides a collective. Regions count as the sum of their nodes,
//     which is more than they will take;
//   - the peak of live memory is not higher than before the pass, neither as the
//     nodes stand, nor with each region as one launch.
//
// With kernels=true regions are judged as the kernels that they become: a region
// takes as much of its nodes' time as it keeps of their memory traffic, no join
// may make the makespan longer than it was before that join (one that takes a
// computation from beside a collective: not even if the region saved nothing,
// cover.go), and only the peak with regions as launches counts. Then chains
// and siblings are tried until nothing is left to join, and so are small launches
// that follow each other, since every launch has a beginning and an end in which
// memory waits; and numbers that cost less to compute than to read (constants,
// conversions to wider types) are computed by every reader for itself. At the end regions
// compute again what another would have to write for them, where that moves less (recompute.go).
//
// With excess-precision=true nodes of a region change: see widenIntermediates.
//
// An attempt that one kernel could compute costs a walk over the stretch of the order
// that the two regions stand in, farApart nodes at most, and a walk to its end where
// something in the stretch gets later (window.go).
func Pass() passes.Pass {
	return passes.Pass{
		Name:    "fuse",
		Regions: true,
		Doc:     "Marks regions of elementwise operations, reductions and data movement that one kernel can compute, and makes them consecutive.",
		Options: []passes.Option{
			{Name: "nodes", Kind: passes.KindInt, Default: "64", Doc: "most launches in a region, 0 for any number"},
			{Name: "siblings", Kind: passes.KindBool, Default: "true", Doc: "also join regions that only read the same tensor"},
			{Name: "kernels", Kind: passes.KindBool, Default: "false", Doc: "evaluate regions as the kernels that they become, not as their nodes"},
			{Name: "excess-precision", Kind: passes.KindBool, Default: "false", Doc: "keep 16-bit floats in float32 between the operations of a region, and round them where they are stored"},
		},
		Stats: []passes.Stat{
			{Name: "regions", Doc: "regions of two launches or more"},
			{Name: "fused", Doc: "launches in them"},
			{Name: "saved-launches", Doc: "launches that are no longer needed"},
			{Name: "saved-bytes", Doc: "bytes of tensors that are no longer written, symbols at their bounds"},
			{Name: "copied", Doc: "constants and conversions that a second reader computes for itself"},
			{Name: "again", Doc: "results of regions that others compute for themselves and nobody writes"},
			{Name: "kept", Doc: "results that others in their region read without rounding, with excess-precision=true"},
			{Name: "refused-time", Doc: "joins given up since the makespan would grow"},
			{Name: "refused-overlap", Doc: "joins given up since a collective would be hidden by less, with kernels=true"},
			{Name: "refused-memory", Doc: "joins given up since the peak would grow"},
		},
		ExcessPrecision: "excess-precision",
		Run:             runFuse,
	}
}

// farApart is the longest stretch that two regions may stand in to be joined.
const farApart = 1 << 13

// slack is what the order of additions may change in a makespan.
const slack = 1e-12

// fuser is the state of one run. Nodes are numbered as in deps.
type fuser struct {
	ctx   *passes.Context
	d     *deps.Func
	order []int32 // position -> node
	pos   []int32 // node -> position
	unit  []int32 // node -> the region that it belongs to, -1 for none
	unitN [][]int32
	mem   *unitMemory

	kernels bool
	alone   []float64 // node -> milliseconds by itself
	bound   []bool    // node -> it communicates or has other effects
	parting parting   // scratch of arrange
	win     *window   // judges joins

	time      float64 // makespan that no join may exceed
	peak      int64   // the same for live memory with regions as launches
	nodesPeak int64   // and with every node by itself
	limit     int     // most launches of a region
}

func runFuse(ctx *passes.Context, f *ir.Func) error {
	u, err := newFuser(ctx, f)
	if err != nil {
		return err
	}
	for {
		before := u.regions()
		u.chains()
		if ctx.Bool("siblings") {
			u.siblings()
		}
		if !u.kernels {
			break
		}
		u.neighbours()
		if u.regions() == before {
			break
		}
	}
	if err := f.SetOrder(u.d.Permuted(u.order)); err != nil {
		return err
	}
	u.annotate(f)
	if ctx.Bool("excess-precision") { // first, so that what is computed again is the same number
		widenIntermediates(ctx, f)
	}
	if u.kernels {
		recompute(ctx, f, u.limit)
	}
	return nil
}

// newFuser prepares a function whose launches each stand alone.
func newFuser(ctx *passes.Context, f *ir.Func) (*fuser, error) {
	kernels := ctx.Bool("kernels")
	ctx.Count("copied", 0)
	if kernels {
		copyCheap(ctx, f, ir.FindWrites(f))
	}
	d, err := deps.Analyze(ctx, f)
	if err != nil {
		return nil, err
	}
	n := len(d.Nodes)
	u := &fuser{ctx: ctx, d: d, order: d.InputOrder(), pos: d.InputOrder(), unit: make([]int32, n), mem: newUnitMemory(d), limit: int(ctx.Int("nodes")), kernels: kernels, alone: slices.Clone(d.Dur), bound: make([]bool, n)}
	for i, v := range d.Nodes {
		u.unit[i], u.bound[i] = -1, !v.Pure()
		if v.Meta().Has(passes.FusionKey) {
			f.SetMeta(v, v.Meta().Without(passes.FusionKey)) // regions are decided anew
		}
		if fusion.Fusable(v) {
			u.unit[i] = int32(len(u.unitN))
			u.unitN = append(u.unitN, []int32{int32(i)})
		}
	}
	t, err := sim.Evaluate(d.Model, u.order, nil)
	if err != nil {
		return nil, err
	}
	u.time, u.nodesPeak = t.Makespan, t.Peak
	u.peak = u.mem.peak(u.order, u.unit)
	u.win = newWindow(u)
	return u, nil
}

// regions is how many launches are left of those that can be joined.
func (u *fuser) regions() int {
	n := 0
	for _, l := range u.unitN {
		if len(l) > 0 {
			n++
		}
	}
	return n
}

// chains joins every node with the regions of its operands.
func (u *fuser) chains() {
	for i := range int32(len(u.d.Nodes)) {
		if u.unit[i] < 0 {
			continue
		}
		var from []int32
		for _, a := range u.d.Nodes[i].Args() {
			p := u.d.Pos[a.Viewed().Def().ID()]
			if u.unit[p] >= 0 && !slices.Contains(from, p) {
				from = append(from, p)
			}
		}
		slices.SortFunc(from, func(a, b int32) int { return int(u.pos[b] - u.pos[a]) })
		for _, p := range from {
			u.try(p, i)
		}
	}
}

// siblings joins each reader of a tensor with the one before it.
func (u *fuser) siblings() {
	for _, n := range u.d.Nodes {
		for _, r := range n.Results() {
			var readers []int32
			for _, use := range r.Uses() {
				if p := u.d.Pos[use.Node.ID()]; u.unit[p] >= 0 && !slices.Contains(readers, p) {
					readers = append(readers, p)
				}
			}
			slices.SortFunc(readers, func(a, b int32) int { return int(u.pos[a] - u.pos[b]) })
			const many = 32 // a constant that everything reads joins nobody
			if len(readers) > many {
				continue
			}
			for k := 1; k < len(readers); k++ {
				u.try(readers[k-1], readers[k])
			}
		}
	}
}

// try joins the regions of two nodes if they may be joined.
func (u *fuser) try(a, b int32) {
	u.ctx.Tick()
	x, y := u.unit[a], u.unit[b]
	if x == y {
		return
	}
	launches := slices.Concat(u.unitN[x], u.unitN[y])
	slices.SortFunc(launches, func(p, q int32) int { return int(u.pos[p] - u.pos[q]) })
	if u.limit > 0 && len(launches) > u.limit {
		return
	}
	members := u.withViews(launches)
	nodes := make([]*ir.Node, len(members))
	for i, m := range members {
		nodes[i] = u.d.Nodes[m]
	}
	if !fusion.SingleKernel(nodes) || !u.ctx.Enable(u.d.Nodes[b].Name()) {
		return
	}
	lo, hi := u.pos[members[0]], u.pos[members[len(members)-1]]+1
	if hi-lo > farApart {
		return
	}
	was := slices.Clone(u.order[lo:hi])
	unitWas := make([]int32, len(members))
	for i, m := range members {
		unitWas[i], u.unit[m] = u.unit[m], x
	}
	u.win.advance(hi)
	apart, joined := bytesMoved(nodes)
	durWas := u.fuseDurations(launches, apart, joined)
	for _, down := range []bool{true, false} {
		moved, ok := u.arrange(members, lo, hi, down)
		if !ok {
			continue
		}
		u.place(lo, moved)
		if u.kernels && apart <= littleMoved && u.exposes(was, moved) && !u.hides(launches, durWas, lo, hi) {
			u.ctx.Count("refused-overlap", 1)
			u.place(lo, was)
			continue
		}
		if u.allowed(lo, hi) {
			u.unitN[x], u.unitN[y] = launches, nil
			return
		}
		u.place(lo, was)
		if slices.Equal(was, moved) {
			break
		}
	}
	for i, m := range members {
		u.unit[m] = unitWas[i]
	}
	for i, m := range launches {
		u.d.Dur[m] = durWas[i]
	}
}

// fuseDurations sets the durations of a region's launches to their shares of what its
// kernel takes, and returns what they were. A kernel takes as much of the time as is left
// of the memory traffic.
func (u *fuser) fuseDurations(launches []int32, apart, joined int64) []float64 {
	was := make([]float64, len(launches))
	share := 1.0
	if u.kernels && apart > 0 {
		share = float64(joined) / float64(apart)
	}
	for i, m := range launches {
		was[i] = u.d.Dur[m]
		if u.kernels {
			u.d.Dur[m] = u.alone[m] * share
		}
	}
	return was
}

func (u *fuser) place(lo int32, nodes []int32) {
	copy(u.order[lo:], nodes)
	for i, v := range nodes {
		u.pos[v] = lo + int32(i)
	}
}

// allowed checks time and memory of the order at hand, which a join has changed in
// lo..hi-1, if only in what is one launch, and keeps it if it may.
func (u *fuser) allowed(lo, hi int32) bool {
	memory, time := u.win.try(lo, hi)
	switch {
	case !memory:
		u.ctx.Count("refused-memory", 1)
	case !time:
		u.ctx.Count("refused-time", 1)
	default:
		u.win.keep(lo, hi)
		return true
	}
	return false
}

// withViews adds the views through which launches read each other, in program order.
func (u *fuser) withViews(launches []int32) []int32 {
	out := slices.Clone(launches)
	in := map[int32]bool{} // look-up only
	if slices.ContainsFunc(launches, func(m int32) bool { return slices.ContainsFunc(u.d.Nodes[m].Args(), isView) }) {
		for _, m := range launches {
			in[m] = true
		}
	}
	for _, m := range launches {
		for _, a := range u.d.Nodes[m].Args() {
			if !isView(a) || !in[u.d.Pos[a.Viewed().Def().ID()]] {
				continue
			}
			for n := a.Def(); n.Op().IsView(); n = n.Arg(0).Def() {
				if p := u.d.Pos[n.ID()]; !in[p] {
					in[p] = true
					out = append(out, p)
				}
			}
		}
	}
	slices.SortFunc(out, func(p, q int32) int { return int(u.pos[p] - u.pos[q]) })
	return out
}

func isView(v *ir.Value) bool { return v.Def().Op().IsView() }

// arrange returns the nodes at lo..hi-1 with the members next to each other: what
// does not depend on a member in front and the rest behind (down), or what a
// member depends on in front and the rest behind. Other regions stay whole. It
// fails if a member depends on a node that has to come after, or if effects would
// change their order.
func (u *fuser) arrange(members []int32, lo, hi int32, down bool) ([]int32, bool) {
	m := &u.parting
	m.reset(u, lo, hi)
	for _, v := range members {
		m.state[u.pos[v]-lo] = joins
	}
	if !m.descendants() || !down && !m.ancestors() {
		return nil, false
	}
	out, last := make([]int32, 0, hi-lo), []int32(nil)
	for i, s := range m.state {
		v := u.order[lo+int32(i)]
		switch {
		case s == joins:
		case s == goesFirst || s == stays && down:
			out = append(out, v)
		default:
			last = append(last, v)
		}
	}
	out = append(append(out, members...), last...)
	return out, u.sameEffects(u.order[lo:hi], out)
}

// sameEffects reports whether what communicates or has other effects, and waits,
// stand in the same order in both lists.
func (u *fuser) sameEffects(a, b []int32) bool {
	i := 0
	for _, v := range a {
		if !u.bound[v] {
			continue
		}
		for !u.bound[b[i]] {
			i++
		}
		if b[i] != v {
			return false
		}
		i++
	}
	return true
}

// annotate numbers the regions and marks their nodes.
func (u *fuser) annotate(f *ir.Func) {
	next, last := int64(-1), int32(-1)
	for _, v := range u.order {
		x := u.unit[v]
		if x < 0 || len(u.unitN[x]) < 2 {
			continue
		}
		n := u.d.Nodes[v]
		if x != last {
			next, last = next+1, x
			u.ctx.Count("regions", 1)
			u.ctx.Count("fused", float64(len(u.unitN[x])))
			u.ctx.Count("saved-launches", float64(len(u.unitN[x])-1))
		}
		f.SetMeta(n, n.Meta().With(passes.FusionKey, attr.Int(next)))
	}
	saved := u.mem.inside(u.unit)
	u.ctx.Count("saved-bytes", float64(saved))
	for _, s := range []string{"regions", "fused", "saved-launches", "refused-time", "refused-overlap", "refused-memory"} {
		u.ctx.Count(s, 0)
	}
}
