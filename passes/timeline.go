package passes

import (
	"github.com/seed-ee968945/concert/ir"
)

// timeline is the time of one order by the rules of package sim, kept per node so
// that passes can say what each collective costs.
type timeline struct {
	makespan float64   // milliseconds
	stall    []float64 // NodeID of a wait -> milliseconds for which it blocks the compute stream
	end      []float64 // NodeID of a collective -> when it has finished
}

// nodeCosts returns the time of every node by NodeID.
func nodeCosts(ctx *Context, f *ir.Func) []float64 {
	ms := make([]float64, f.NumNodeIDs())
	for _, n := range f.Order() {
		ms[n.ID()] = ctx.Cost(n)
	}
	return ms
}

// newTimeline judges an order in linear time. ms is indexed by NodeID.
func newTimeline(f *ir.Func, order []*ir.Node, ms []float64) *timeline {
	t := &timeline{stall: make([]float64, f.NumNodeIDs()), end: make([]float64, f.NumNodeIDs())}
	free := make([]float64, len(f.Module().Groups()))
	now, last := 0.0, 0.0
	for _, n := range order {
		id := n.ID()
		switch n.Op().Class() {
		case ir.ClassCollective:
			g := n.Group().Index()
			free[g] = max(now, free[g]) + ms[id]
			t.end[id] = free[g]
			last = max(last, free[g])
		case ir.ClassWait:
			// The end of a collective that an input holds is unknown; it counts as finished.
			if e := t.end[n.Arg(0).Def().ID()]; e > now {
				t.stall[id] = e - now
				now = e
			}
		default:
			now += ms[id]
		}
	}
	t.makespan = max(now, last)
	return t
}

// waitOf returns the wait of a collective, or nil if it leaves the function in flight.
func waitOf(start *ir.Node) *ir.Node {
	for _, u := range start.Result(0).Uses() {
		if u.Node.Op() == ir.OpWaitTensor {
			return u.Node
		}
	}
	return nil
}

// exposed is the stall at the wait of a collective.
func (t *timeline) exposed(start *ir.Node) float64 {
	if w := waitOf(start); w != nil {
		return t.stall[w.ID()]
	}
	return 0
}
