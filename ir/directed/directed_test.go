package directed_test

import (
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/directed"
	"gonum.org/v1/gonum/graph/topo"
)

// The view has the nodes and edges of the function, each once, and gonum can sort it.
func TestDirected(t *testing.T) {
	m, err := ir.Parse("mlp.ir", `world 2
group @tp = [[0, 1]]

func @mlp(%x: f32[4,8], %w: f32[8,4]) -> (f32[4,4]) {
  %h = matmul %x, %w : f32[4,4]
  %r = add %h, %h : f32[4,4]
  return %r
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	d := directed.Of(f)
	if d.Nodes().Len() != len(f.Order()) {
		t.Errorf("%d nodes, want %d", d.Nodes().Len(), len(f.Order()))
	}
	h, r := int64(f.Lookup("h").ID()), int64(f.Lookup("r").ID())
	if d.From(h).Len() != 1 || !d.HasEdgeFromTo(h, r) || d.HasEdgeFromTo(r, h) || !d.HasEdgeBetween(r, h) {
		t.Error("the edge of a twice used operand must be there once, in one direction")
	}
	if d.Node(-1) != nil || d.Node(99) != nil || d.From(99).Len() != 0 {
		t.Error("unknown ids must be empty")
	}
	sorted, err := topo.SortStabilized(d, nil)
	if err != nil || len(sorted) != len(f.Order()) {
		t.Errorf("gonum sorts %d nodes: %v", len(sorted), err)
	}
}
