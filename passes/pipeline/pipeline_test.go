package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/llama"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/pipeline"
	"github.com/seed-ee968945/concert/passes/standard"
)

// tiny is a decoder of four layers and a step of that many sequences.
func tiny(batch, data, model int64, dt ir.DType) llama.Step {
	return llama.Step{Layers: 4, Hidden: 8, FFN: 16, Heads: 4, Keys: 2, Head: 4, Vocab: 8, Batch: batch, Seq: 4, Data: data, Model: model, DType: dt}
}

// cut runs the pass on a step.
func cut(t testing.TB, f *ir.Func, options string) (*ir.Module, *passes.Report) {
	t.Helper()
	p, err := standard.Table().Parse("pipeline{" + options + "}")
	if err != nil {
		t.Fatal(err)
	}
	mgr := passes.Manager{Costs: cost.Default(), Validate: passes.ValidateAlways}
	m := f.Module().Clone()
	r, err := mgr.Run(m, p)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// spread gives each rank of a cut step its inputs: those of the rank of the step that it stands
// for, of the same names.
func spread(t testing.TB, m *ir.Module, whole *ir.Func, inputs [][]interp.Tensor) [][]interp.Tensor {
	t.Helper()
	s := m.Stages()[0]
	world := whole.Module().World
	out := make([][]interp.Tensor, m.World)
	for r := range out {
		for _, slot := range interp.InputSlots(m.Func(s.Funcs[s.Index(r)])) {
			found := false
			for i, o := range interp.InputSlots(whole) {
				if o.Name == slot.Name {
					out[r], found = append(out[r], inputs[r%world][i]), true
				}
			}
			if !found {
				t.Fatalf("the step has no input %q", slot.Name)
			}
		}
	}
	return out
}

// collect puts the results of stages where the step has them, by rank of the step.
func collect(m *ir.Module, world int, outs [][]interp.Tensor) [][]interp.Tensor {
	s := m.Stages()[0]
	got := make([][]interp.Tensor, world)
	for r := range outs {
		for i, k := range m.Func(s.Funcs[s.Index(r)]).Return().Meta().Ints(pipeline.MetaPlaces) {
			for len(got[r%world]) <= int(k) {
				got[r%world] = append(got[r%world], interp.Tensor{})
			}
			got[r%world][k] = outs[r][i]
		}
	}
	return got
}

// TestLlama cuts a step into four stages and eight micro-batches, under each schedule: loss and
// gradients are those of one device and the whole batch.
func TestLlama(t *testing.T) {
	const micro = 8
	l := tiny(micro, 1, 1, ir.F64)
	whole, err := l.Device(nil)
	if err != nil {
		t.Fatal(err)
	}
	inputs, err := interp.RandomInputs(whole, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(t.Context(), whole, inputs, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l = tiny(1, 1, 1, ir.F64)
	one, err := l.Device(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, options := range []string{"schedule=gpipe", "schedule=1f1b", "schedule=1f1b,most=2", "schedule=1f1b,most=1", "schedule=interleaved", "schedule=zero-bubble"} {
		t.Run(options, func(t *testing.T) {
			m, r := cut(t, one, fmt.Sprintf("stages=4,micro-batches=%d,%s", micro, options))
			got, err := interp.RunStages(t.Context(), m, m.Stages()[0], spread(t, m, whole, inputs), interp.Options{Poison: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := same(collect(m, 1, got), want, 1e-13); err != nil {
				t.Error(err)
			}
			t.Log(r.Steps[0].Stats)
		})
	}
}

// same compares by a tolerance relative to the largest element of each tensor.
func same(got, want [][]interp.Tensor, tolerance float64) error {
	for r := range want {
		if len(got[r]) != len(want[r]) {
			return fmt.Errorf("rank %d has %d results, want %d", r, len(got[r]), len(want[r]))
		}
		for k := range want[r] {
			a, b := got[r][k].Float64s(), want[r][k].Float64s()
			if len(a) != len(b) {
				return fmt.Errorf("rank %d, result %d: %d elements, want %d", r, k, len(a), len(b))
			}
			most := 0.0
			for _, x := range b {
				most = max(most, x, -x)
			}
			for i := range b {
				if d := a[i] - b[i]; !(max(d, -d) <= tolerance*most) {
					return fmt.Errorf("rank %d, result %d, element %d: %v, want %v", r, k, i, a[i], b[i])
				}
			}
		}
	}
	return nil
}
