// Package reorder has the passes that move collectives and waits without a global
// schedule: raise-starts, sink-waits and reorder-comms.
package reorder

import (
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/sim"
)

// raise-starts moves every collective up to the latest node that it has to stand
// behind: a node that produces its operands, an effect that keeps its place, or
// the collective before it. Views and light memory operations that only prepare
// operands (a convert, a scale, a cat) come along; matmuls, waits and
// opaque calls do not move.
//
// Nodes fall into three sorts: starts, carried nodes (light, and needed by a
// start through light nodes only) and fixed nodes. A node's slot is the position
// of the fixed node behind which it will stand.
//
//  1. Forward: the earliest slot of a carried node or start is the largest of its
//     predecessors', where a fixed node's is its own position; a start's is also
//     not below the start's before it.
//  2. Backward: a carried node goes no further up than its users need: its slot
//     is the smallest of its users', or its own position if that is smaller.
//  3. Nodes are emitted by slot; at one slot the fixed node first, then those
//     that moved there, in their old order.
//
// Every edge between moved nodes points from a slot to the same or a later one,
// and at one slot the old order holds, so the result is legal. Each step is
// linear. Since a start never moves down, collectives keep their order.
func RaiseStarts() passes.Pass {
	return passes.Pass{
		Name: "raise-starts",
		Doc:  "Moves collectives as early as data dependences and collective order allow.",
		Options: []passes.Option{
			{Name: "limit", Kind: passes.KindInt, Default: "0", Doc: "most launches and waits that a collective is moved across, 0 for any number; bounds what is in flight"},
			optOrder,
			{Name: "carry", Kind: passes.KindString, Default: "light", Choices: []string{"light", "views", "none"}, Doc: "what moves up with a collective that reads it: pure memory-bound operations, views only, nothing"},
		},
		Stats: append([]passes.Stat{
			{Name: "raised", Doc: "collectives that moved across a launch or a wait"},
			{Name: "moves", Doc: "launches and waits that collectives moved across, added up"},
		}, moverStats()...),
		OrderOnly: true,
		Run:       runRaiseStarts,
	}
}

// optOrder is the option of all passes that move collectives.
var optOrder = passes.Option{Name: "order", Kind: passes.KindString, Default: "strict", Choices: []string{"strict", "group"},
	Doc: "which collectives keep their order of issue: strict, all of them; group, those of one group"}

// moverStats are statistics that raise-starts and sink-waits have besides what they move.
func moverStats() []passes.Stat {
	return []passes.Stat{
		{Name: "carried", Doc: "nodes that moved along"},
		{Name: "exposed-before-ms", Doc: "time for which the compute stream blocks at waits, before the pass"},
		{Name: "exposed-after-ms", Doc: "the same after the pass"},
		{Name: "peak-before-bytes", Doc: "largest live memory before the pass"},
		{Name: "peak-after-bytes", Doc: "largest live memory after the pass"},
	}
}

// mover is the state that raise-starts and sink-waits share.
type mover struct {
	ctx   *passes.Context
	f     *ir.Func
	d     *deps.Func
	slot  []int32        // node -> slot
	why   []int32        // node -> the fixed node that its slot comes from
	limit []passes.Limit // node -> what kind of reason that is
	moved []bool
	work  []int32 // node -> launches and waits at positions up to it
}

func newMover(ctx *passes.Context, f *ir.Func) (*mover, error) {
	d, err := deps.Analyze(ctx, f)
	if err != nil {
		return nil, err
	}
	n := len(d.Nodes)
	m := &mover{ctx: ctx, f: f, d: d, slot: make([]int32, n), why: make([]int32, n), limit: make([]passes.Limit, n), moved: make([]bool, n), work: make([]int32, n)}
	count := int32(0)
	for i, v := range d.Nodes {
		if deps.Launches(v) || v.Op().Class() == ir.ClassWait {
			count++
		}
		m.work[i] = count
		m.slot[i], m.why[i] = int32(i), int32(i)
	}
	return m, nil
}

// carriable returns the predicate that option carry names.
func carriable(option string) func(n *ir.Node) bool {
	switch option {
	case "light":
		return deps.Light
	case "views":
		return func(n *ir.Node) bool { return n.Op().IsView() }
	}
	return func(*ir.Node) bool { return false }
}

func runRaiseStarts(ctx *passes.Context, f *ir.Func) error {
	m, err := newMover(ctx, f)
	if err != nil {
		return err
	}
	carried := m.carriedUp(carriable(ctx.Str("carry")))
	m.earliest(carried)
	m.noFurther(carried)
	order := m.emitUp()
	return m.finish(order, ctx.Int("limit"), func(n *ir.Node) bool { return n.Op().IsCollective() }, "raised")
}

// carriedUp marks the nodes that may move with a start.
func (m *mover) carriedUp(can func(*ir.Node) bool) []bool {
	carried := make([]bool, len(m.d.Nodes))
	for i := int32(len(m.d.Nodes)) - 1; i >= 0; i-- {
		if !carried[i] && !m.d.Nodes[i].Op().IsCollective() {
			continue
		}
		for _, p := range m.d.Pred.At(i) {
			if can(m.d.Nodes[p]) {
				carried[p] = true
			}
		}
	}
	return carried
}

// earliest is step 1.
func (m *mover) earliest(carried []bool) {
	strict := m.ctx.Str("order") == "strict"
	limit := int32(min(m.ctx.Int("limit"), int64(len(m.d.Nodes))))
	last := make([]int32, len(m.f.Module().Groups())+1) // per group the last start; at the end that of all
	for i := range last {
		last[i] = -1
	}
	floor := m.d.Inputs - 1
	for i, v := range m.d.Nodes {
		i := int32(i)
		start := v.Op().IsCollective()
		if !start && !carried[i] {
			continue
		}
		e, why, reason := floor, int32(-1), passes.LimitNone
		for _, p := range m.d.Pred.At(i) {
			if m.slot[p] > e || m.slot[p] == e && why < 0 {
				e, why, reason = m.slot[p], m.why[p], m.d.Limit(p, i)
			}
		}
		if start {
			g := v.Group().Index()
			if strict {
				g = len(last) - 1
			}
			// Also a collective at the same slot is what it cannot pass.
			if p := last[g]; p >= 0 && m.slot[p] >= e {
				e, why, reason = m.slot[p], p, passes.LimitCollective
			}
			last[g] = i
			if limit > 0 {
				if k := m.withinLimit(i, limit); k > e {
					e, why, reason = k, -1, passes.LimitDistance
				}
			}
			if !m.ctx.Enable(v.Name()) {
				e, why, reason = i, -1, passes.LimitDisabled
			}
		}
		m.slot[i], m.why[i], m.limit[i] = e, why, reason
	}
}

// withinLimit returns the earliest slot with at most limit launches between it and i.
func (m *mover) withinLimit(i, limit int32) int32 {
	lo, hi := int32(0), i // the first position whose count is high enough
	for lo < hi {
		mid := (lo + hi) / 2
		if m.work[i]-m.work[mid] <= limit {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// noFurther is step 2.
func (m *mover) noFurther(carried []bool) {
	for i := int32(len(m.d.Nodes)) - 1; i >= 0; i-- {
		if m.d.Nodes[i].Op().IsCollective() {
			m.moved[i] = m.slot[i] < i
			continue
		}
		if !carried[i] {
			continue
		}
		need := i
		for _, u := range m.d.Succ.At(i) {
			if carried[u] || m.d.Nodes[u].Op().IsCollective() {
				need = min(need, m.slot[u])
			}
		}
		m.slot[i], m.moved[i] = need, need < i
	}
}

// emitUp is step 3.
func (m *mover) emitUp() []int32 {
	at := m.bySlot()
	order := append(make([]int32, 0, len(m.d.Nodes)), at.at(0)...)
	for i := range int32(len(m.d.Nodes)) {
		if !m.moved[i] {
			order = append(order, i)
		}
		order = append(order, at.at(i+1)...)
	}
	return order
}

// bySlot lists the moved nodes by slot, each list in the old order; the first list is of
// slot -1, before everything.
func (m *mover) bySlot() lists {
	var slots, vals []int32
	for i := range m.d.Nodes {
		if m.moved[i] {
			slots, vals = append(slots, m.slot[i]), append(vals, int32(i))
		}
	}
	n := len(m.d.Nodes) + 1
	off := make([]int32, n+1)
	for k := range slots {
		slots[k]++
		off[slots[k]+1]++
	}
	for i := range n {
		off[i+1] += off[i]
	}
	out := make([]int32, len(vals))
	next := append([]int32(nil), off[:n]...)
	for k, s := range slots {
		out[next[s]] = vals[k]
		next[s]++
	}
	return lists{off, out}
}

// finish sets the new order, records what happened to the nodes that main
// selects (starts or waits) and counts.
func (m *mover) finish(order []int32, limit int64, main func(*ir.Node) bool, stat string) error {
	ctx, d := m.ctx, m.d
	before, err := sim.Evaluate(d.Model, d.InputOrder(), nil)
	if err != nil {
		return err
	}
	after, err := sim.Evaluate(d.Model, order, nil)
	if err != nil {
		return err
	}
	newWork := make([]int32, len(order)) // node -> launches and waits up to its new place
	count := int32(0)
	for _, v := range order {
		if deps.Launches(d.Nodes[v]) || d.Kind[v] == sim.Wait {
			count++
		}
		newWork[v] = count
	}
	for i, v := range d.Nodes {
		if !main(v) {
			if m.moved[i] && newWork[i] != m.work[i] {
				ctx.Count("carried", 1)
			}
			continue
		}
		r := passes.CommRecord{Node: v.Name(), Comm: v.Name(), Limit: m.limit[i], Moves: int(abs32(newWork[i] - m.work[i]))}
		start := v
		if v.Op() == ir.OpWaitTensor {
			start = v.Arg(0).Def()
			r.Comm = start.Name()
		}
		s := d.Pos[start.ID()]
		if start.Group() != nil {
			r.Group = start.Group().Name
		}
		r.Ms = d.Dur[s]
		r.ExposedBefore, r.ExposedAfter = d.Exposed(before, s), d.Exposed(after, s)
		switch {
		case r.Limit == passes.LimitDistance:
			r.Detail = itoa(limit) + " launches and waits"
		case m.why[i] >= 0 && m.why[i] != int32(i):
			r.Detail = d.Nodes[m.why[i]].Name()
		}
		ctx.Record(r)
		if r.Moves > 0 {
			ctx.Count(stat, 1)
			ctx.Count("moves", float64(r.Moves))
		}
		ctx.Count("exposed-before-ms", r.ExposedBefore)
		ctx.Count("exposed-after-ms", r.ExposedAfter)
	}
	ctx.Count("peak-before-bytes", float64(before.Peak))
	ctx.Count("peak-after-bytes", float64(after.Peak))
	return m.f.SetOrder(d.Permuted(order))
}

func abs32(v int32) int32 { return max(v, -v) }

// lists is a dense table of int32 lists.
type lists struct {
	off []int32
	val []int32
}

func (l *lists) at(i int32) []int32 { return l.val[l.off[i]:l.off[i+1]] }
