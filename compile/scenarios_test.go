package compile_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sim"
)

// BenchmarkScenarios judges the schedules of all traced graphs again with costs that are
// off: computation and communication take a factor of what the scheduler counted on.
// Pipeline order-only for whole models, cuda for those of a few layers. The
// table in BENCHMARKS.md is made of its metrics, milliseconds of a step:
//
//	go test ./compile -run '^$' -bench Scenarios -benchtime 1x
func BenchmarkScenarios(b *testing.B) {
	files, err := filepath.Glob("../testdata/graphs/*.graph.json.gz")
	if err != nil || len(files) == 0 {
		b.Fatalf("no graphs: %v", err)
	}
	scenarios := []struct {
		name          string
		compute, comm float64
	}{{"given", 1, 1}, {"compute110", 1.1, 1}, {"compute125", 1.25, 1}, {"comm085", 1, 0.85}, {"comm115", 1, 1.15}, {"comm150", 1, 1.5}, {"110,085", 1.1, 0.85}, {"125,115", 1.25, 1.15}}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".graph.json.gz")
		pipeline := "order-only"
		if strings.Contains(name, "_l4_") || strings.Contains(name, "_l2_") {
			pipeline = "cuda"
		} else if strings.HasPrefix(name, "tiny") {
			continue
		}
		b.Run(name+"/"+pipeline, func(b *testing.B) {
			for b.Loop() {
				f := compiled(b, file, pipeline, compile.Target{}).Funcs[0].Func
				model := cost.Default()
				for _, s := range scenarios {
					m, err := sim.FromFunc(f, sim.FuncOptions{Ms: func(n *ir.Node) float64 {
						ms, _ := model.NodeMs(n)
						if n.Op().IsCollective() {
							return ms * s.comm
						}
						return ms * s.compute
					}})
					if err != nil {
						b.Fatal(err)
					}
					tl, err := sim.Evaluate(m, m.InputOrder(), nil)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(tl.Makespan, s.name)
				}
			}
		})
	}
}
