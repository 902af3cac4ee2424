package reorder

import (
	"strconv"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// sink-waits moves every wait down to the first node that needs its tensors, or
// that may change what is still in flight. Views of the tensors come along,
// since they cost nothing and would otherwise count as a use; so does, with
// carry=light, what only converts or copies them.
//
// It is raise-starts upside down: a slot is the position of the fixed node in
// front of which a node will stand; step 1 runs backward and takes the smallest
// slot of the successors, step 2 forward and lets a carried node go no further
// down than its wait does. A wait whose tensors nobody reads goes to the end.
// Waits do not constrain each other; collectives do not move. Linear.
func SinkWaits() passes.Pass {
	return passes.Pass{
		Name: "sink-waits",
		Doc:  "Moves waits as late as the first use of what they wait for.",
		Options: []passes.Option{
			{Name: "limit", Kind: passes.KindInt, Default: "0", Doc: "most launches and waits that a wait is moved across, 0 for any number; bounds what is in flight"},
			{Name: "carry", Kind: passes.KindString, Default: "views", Choices: []string{"light", "views", "none"}, Doc: "what moves down with a wait that it reads: pure memory-bound operations, views only, nothing"},
		},
		Stats: append([]passes.Stat{
			{Name: "sunk", Doc: "waits that moved across a launch or another wait"},
			{Name: "moves", Doc: "launches and waits that waits moved across, added up"},
		}, moverStats()...),
		OrderOnly: true,
		Run:       runSinkWaits,
	}
}

func runSinkWaits(ctx *passes.Context, f *ir.Func) error {
	m, err := newMover(ctx, f)
	if err != nil {
		return err
	}
	carried := m.carriedDown(carriable(ctx.Str("carry")))
	m.latest(carried)
	m.noLater(carried)
	return m.finish(m.emitDown(), ctx.Int("limit"), func(n *ir.Node) bool { return n.Op() == ir.OpWaitTensor }, "sunk")
}

// carriedDown marks the nodes that may move with a wait.
func (m *mover) carriedDown(can func(*ir.Node) bool) []bool {
	carried := make([]bool, len(m.d.Nodes))
	for i, v := range m.d.Nodes {
		if !carried[i] && v.Op() != ir.OpWaitTensor {
			continue
		}
		for _, u := range m.d.Succ.At(int32(i)) {
			if can(m.d.Nodes[u]) && m.d.Limit(int32(i), u) == passes.LimitData {
				carried[u] = true
			}
		}
	}
	return carried
}

// latest is step 1.
func (m *mover) latest(carried []bool) {
	limit := int32(min(m.ctx.Int("limit"), int64(len(m.d.Nodes))))
	end := int32(len(m.d.Nodes)) - 1
	for i := end; i >= 0; i-- {
		v := m.d.Nodes[i]
		wait := v.Op() == ir.OpWaitTensor
		if !wait && !carried[i] {
			continue
		}
		e, why, reason := end, int32(-1), passes.LimitNone
		for _, u := range m.d.Succ.At(i) {
			if m.slot[u] < e || m.slot[u] == e && why < 0 {
				e, why, reason = m.slot[u], m.why[u], m.d.Limit(i, u)
			}
		}
		if wait {
			if limit > 0 {
				if k := m.withinLimitDown(i, limit); k < e {
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

// withinLimitDown returns the latest slot with at most limit launches and waits
// between i and it.
func (m *mover) withinLimitDown(i, limit int32) int32 {
	lo, hi := i, int32(len(m.work))-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if m.work[mid-1]-m.work[i] <= limit {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// noLater is step 2.
func (m *mover) noLater(carried []bool) {
	for i, v := range m.d.Nodes {
		if v.Op() == ir.OpWaitTensor {
			m.moved[i] = m.slot[i] > int32(i)
			continue
		}
		if !carried[i] {
			continue
		}
		need := int32(i)
		for _, p := range m.d.Pred.At(int32(i)) {
			if carried[p] || m.d.Nodes[p].Op() == ir.OpWaitTensor {
				need = max(need, m.slot[p])
			}
		}
		m.slot[i], m.moved[i] = need, need > int32(i)
	}
}

// emitDown is step 3.
func (m *mover) emitDown() []int32 {
	at := m.bySlot()
	order := make([]int32, 0, len(m.d.Nodes))
	for i := range int32(len(m.d.Nodes)) {
		order = append(order, at.at(i+1)...)
		if !m.moved[i] {
			order = append(order, i)
		}
	}
	return order
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
