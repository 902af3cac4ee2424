package pipeline_test

import (
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// TestLaterPasses runs the pipelines of both devices behind the cut, proved, and compares with
// the stages as they were cut.
func TestLaterPasses(t *testing.T) {
	l := tiny(2, 2, 1, ir.F64)
	l.Layers = 2
	step, err := l.Ranks()
	if err != nil {
		t.Fatal(err)
	}
	m, _ := cut(t, step, "stages=2,micro-batches=2")
	inputs, err := interp.RandomInputs(step, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for r := range inputs {
		for i, n := range step.Inputs() {
			if n.Role() == ir.RoleData {
				x, err := interp.FromFloats(ir.I64, make([]float64, 2*len(inputs[r][i].Float64s())), 2, 4)
				if err != nil {
					t.Fatal(err)
				}
				inputs[r][i] = x
			}
		}
	}
	in := spread(t, m, step, inputs)
	want, err := interp.RunStages(t.Context(), m, m.Stages()[0], in, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"default", "cuda"} {
		p, err := standard.Table().Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		c := m.Clone()
		mgr := passes.Manager{Costs: cost.Default(), Validate: passes.ValidateAlways}
		if _, err := mgr.Run(c, p); err != nil {
			t.Fatal(err)
		}
		got, err := interp.RunStages(t.Context(), c, c.Stages()[0], in, interp.Options{Poison: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := same(got, want, 1e-13); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
