// Package passestest has helpers for tests of several passes.
package passestest

import (
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sim"
)

// Latency makes buckets pay: every collective costs one millisecond and a
// little for its bytes, so that two that are bucketed save almost half. Nodes
// without attached costs cost half a millisecond.
type Latency struct{}

// NodeMs implements passes.CostModel.
func (Latency) NodeMs(n *ir.Node) (float64, bool) { return 0.5, true }

// CommMs implements passes.CostModel.
func (Latency) CommMs(_ ir.Op, _ *ir.Group, _ ir.Reduction, size int64) (float64, bool) {
	return 1 + float64(size)*1e-4, true
}

// Bandwidth is a model in which collectives have no latency, so that rewrites pay
// that replace one large collective by smaller ones.
type Bandwidth struct{}

// NodeMs implements passes.CostModel.
func (Bandwidth) NodeMs(*ir.Node) (float64, bool) { return 0, false }

// CommMs implements passes.CostModel.
func (Bandwidth) CommMs(op ir.Op, g *ir.Group, _ ir.Reduction, size int64) (float64, bool) {
	n := float64(g.Size())
	ms := float64(size) * (n - 1) / n * 1e-6
	if op == ir.OpAllReduce {
		ms *= 2
	}
	return ms, true
}

// Evaluate is the timeline of the only function, with Latency for what has no cost
// attached.
func Evaluate(t testing.TB, m *ir.Module) *sim.Timeline {
	t.Helper()
	model, err := sim.FromFunc(m.Funcs()[0], sim.FuncOptions{Ms: func(n *ir.Node) float64 {
		if ms, ok := n.Cost(); ok {
			return ms
		}
		ms, _ := Latency{}.NodeMs(n)
		return ms
	}})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := sim.Evaluate(model, model.InputOrder(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}
