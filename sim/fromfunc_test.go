package sim_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/sim"
	"github.com/seed-ee968945/concert/sim/simtest"
)

// imported returns the model of a traced graph by way of the IR.
func imported(t testing.TB, name string) *sim.Model {
	t.Helper()
	file, err := fx.ReadFile(filepath.Join(simtest.Root(), "testdata", "graphs", name+".graph.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := file.Import()
	if err != nil {
		t.Fatal(err)
	}
	m, err := sim.FromFunc(r.Func, sim.FuncOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestImportedProgramsToThePrintedDigit(t *testing.T) {
	for _, want := range traced {
		t.Run(want.name, func(t *testing.T) {
			m := imported(t, want.name)
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
