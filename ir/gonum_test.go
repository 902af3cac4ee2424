package ir

import (
	"testing"

	"gonum.org/v1/gonum/graph/topo"
)

// The view has the nodes and edges of the function, each once, and gonum can sort it.
func TestDirected(t *testing.T) {
	m, err := Parse("mlp.ir", mlp)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	d := f.Directed()
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

func TestOpTable(t *testing.T) {
	for _, o := range Ops() {
		i := o.Info()
		if i.Name == "" || i.Doc == "" || i.Types.Doc == "" {
			t.Errorf("op %d (%s) has an empty cell", o, i.Name)
		}
		if got, ok := OpByName(i.Name); !ok || got != o {
			t.Errorf("%s is not found by its name", i.Name)
		}
		if o.IsView() != (i.Effects&EffectAlias != 0 && i.Class != ClassWait) || o.IsCollective() != (i.Effects&EffectCommunicates != 0) {
			t.Errorf("%s: class %s and effects %b disagree", i.Name, i.Class, i.Effects)
		}
		for _, a := range i.Attrs {
			if a.Doc == "" {
				t.Errorf("%s: attribute %s has no doc", i.Name, a.Key)
			}
		}
	}
}
