package sim_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/sim"
	"github.com/seed-ee968945/concert/sim/simtest"
)

func TestImportedProgramsToThePrintedDigit(t *testing.T) {
	for _, want := range traced {
		t.Run(want.name, func(t *testing.T) {
			m := simtest.Imported(t, want.name)
			tl, err := sim.Evaluate(m, m.InputOrder(), nil)
			if err != nil {
				t.Fatal(err)
			}
			b := sim.LowerBound(m)
			got := fmt.Sprintf("%.2f %.2f %.2f", tl.Makespan, b.Bound, float64(tl.Peak)/(1<<30))
			if w := want.makespan + " " + want.bound + " " + want.peak; got != w {
				t.Errorf("makespan, bound, peak %s, want %s", got, w)
			}
		})
	}
}

// A loop counts what its body makes, beside its results: two tensors at a time here, and of a choice
// the branch that makes most.
func TestBodies(t *testing.T) {
	const text = `world 1
func @f(%n: i64[], %x: f32[128]) -> (f32[128]) {
  %r:2 = while %n, %x {body="round", cond="more"} : i64[], f32[128]
  %y = case %r#0, %r#1 {branches=["small", "large"]} : f32[128]
  return %y
}
func @more(%i: i64[], %x: f32[128]) -> (bool[]) {
  %c = lt %i {scalar=3} : bool[]
  return %c
}
func @round(%i: i64[], %x: f32[128]) -> (i64[], f32[128]) {
  %a = neg %x : f32[128]
  %b = exp %a : f32[128]
  %j = add %i {scalar=1} : i64[]
  return %j, %b
}
func @small(%x: f32[128]) -> (f32[128]) {
  return %x
}
func @large(%x: f32[128]) -> (f32[128]) {
  %w = cat %x, %x, %x {dim=0} : f32[384]
  %y = slice %w {dim=0, end=128} : f32[128]
  return %y
}
`
	m, err := ir.Parse("bodies.ir", text)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	model, err := sim.FromFunc(m.Funcs()[0], sim.FuncOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := sim.Evaluate(model, model.InputOrder(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const one, tensor = sim.Align, 512
	inputs := int64(one + tensor)
	want := []int64{inputs, inputs, 2*inputs + 2*tensor, 2*inputs + tensor + 3*tensor, inputs + tensor}
	if !slices.Equal(tl.Memory, want) || tl.Peak != want[3] {
		t.Errorf("memory %v, want %v", tl.Memory, want)
	}
}

// A view that nothing reads comes before a write of what it views, as it names the old contents.
func TestViewBeforeWrite(t *testing.T) {
	m, err := ir.Parse("view.ir", `world 1
func @f(%x: f32[4]) -> (f32[4]) {
  %v = slice %x {dim=0, end=2} : f32[2]
  %w:0 = call %x {class="memory", effects=["writes"], target="inc"}
  return %x
}
`)
	if err != nil {
		t.Fatal(err)
	}
	model, err := sim.FromFunc(m.Funcs()[0], sim.FuncOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if next := model.Succ.At(1); !slices.Contains(next, 2) {
		t.Errorf("%v come after the view, not the write", next)
	}
}

func BenchmarkFromFunc(b *testing.B) {
	file, err := fx.ReadFile(filepath.Join(simtest.Root(), "testdata", "graphs", "llama70b_fsdp8_tp8.bw.graph.json.gz"))
	if err != nil {
		b.Fatal(err)
	}
	r, err := file.Import()
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		if _, err := sim.FromFunc(r.Func, sim.FuncOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
