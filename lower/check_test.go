package lower_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
)

// imported reads a traced graph.
func imported(t testing.TB, path string) *ir.Module {
	t.Helper()
	file, err := fx.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := file.Import()
	if err != nil {
		t.Fatal(err)
	}
	return r.Func.Module()
}

// Every traced graph lowers to a program that the checker proves, in the traced
// order and with starts and waits far apart.
func TestCheckTracedGraphs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testdata, "graphs", "*.graph.json.gz"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".graph.json.gz")
		m := imported(t, file)
		checkAll(t, name, m)
		// With collectives in flight behind computation there is something to order.
		pl, err := standard.Table().Parse("raise-starts,sink-waits")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&passes.Manager{}).Run(m, pl); err != nil {
			t.Fatal(name, err)
		}
		checkAll(t, name+", spread", m)
	}
}

func checkAll(t *testing.T, name string, m *ir.Module) {
	t.Helper()
	for _, f := range m.Funcs() {
		r, err := lower.Check(f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Logf("%s: %v, %d comparisons", name, strings.TrimSpace(r.String()), r.Stats.Comparisons)
	}
}

// The hook runs after the passes of a pipeline.
func TestCheckHook(t *testing.T) {
	m := imported(t, filepath.Join(testdata, "graphs", "tiny_fsdp2.bw.graph.json.gz"))
	p, err := standard.Table().Parse("raise-starts,sink-waits")
	if err != nil {
		t.Fatal(err)
	}
	hook := lower.CheckHook()
	after, calls := hook.After, 0
	hook.After = func(step *passes.StepReport, m *ir.Module) error {
		calls++
		return after(step, m)
	}
	g := passes.Manager{Hooks: []passes.Hook{hook}}
	if _, err := g.Run(m, p); err != nil {
		t.Fatal(err)
	}
	if calls != p.Len() {
		t.Errorf("the hook ran %d times for %d passes", calls, p.Len())
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, name := range []string{"llama70b_fsdp8_tp8.bw", "mixtral_ep8_fsdp8.fw", "tiny_fsdp2.fw"} {
		_, p := scheduled(b, name, "raise-starts,sink-waits")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := program.Check(p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(p.Instrs)), "instrs")
		})
	}
}
