package passes_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/sim"
)

const graphs = "../testdata/graphs"

// The pipeline of the arena on every traced graph that the repository keeps: the
// manager checks that nothing traced was removed, renamed or rewired; the
// program that comes out, judged afresh, has the makespan and the peak that the
// pass promised; and neither is above the input's.
func TestArenaPipelineOnTracedGraphs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(graphs, "*.graph.json.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no graphs: %v", err)
	}
	table := standard.Table()
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".graph.json.gz"), func(t *testing.T) {
			m := passestest.Traced(t, file)
			for _, text := range []string{"order-only", "bucket", "reorder-comms"} {
				after := m.Clone()
				p, err := table.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				g := passes.Manager{Costs: cost.TracedH200()}
				r, err := g.Run(after, p)
				if err != nil {
					t.Fatal(err)
				}
				last := &r.Steps[len(r.Steps)-1]
				was, now := judge(t, m), judge(t, after)
				if peak := last.Stat("peak-after-bytes"); peak != float64(now.Peak) {
					t.Errorf("%s: promised a peak of %.0f bytes, the program has %d", text, peak, now.Peak)
				}
				if ms := last.Stat("makespan-after-ms"); last.Pass != "reorder-comms" && math.Abs(ms-now.Makespan) > 1e-6*ms {
					t.Errorf("%s: promised %.6f ms, the program takes %.6f", text, ms, now.Makespan)
				}
				if now.Peak > was.Peak || now.Makespan > was.Makespan*(1+1e-9) {
					t.Errorf("%s: from %.4f ms and %d bytes to %.4f ms and %d bytes", text, was.Makespan, was.Peak, now.Makespan, now.Peak)
				}
			}
		})
	}
}

func judge(t *testing.T, m *ir.Module) *sim.Timeline {
	t.Helper()
	model, err := sim.FromFunc(m.Funcs()[0], sim.FuncOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := sim.Evaluate(model, model.InputOrder(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// BenchmarkPipeline is a whole pipeline, import excluded, with the manager's
// checks and without; see BENCHMARKS.md.
func BenchmarkPipeline(b *testing.B) {
	table := standard.Table()
	for _, name := range []string{"llama8b_fsdp8.bw", "llama70b_fsdp8_tp8.bw"} {
		m := passestest.Traced(b, filepath.Join(graphs, name+".graph.json.gz"))
		for _, text := range []string{"order-only", "default", "bucket", "reorder-comms", "raise-starts,sink-waits", "canonicalize"} {
			p, err := table.Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(name+"/"+text, func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					c := m.Clone()
					b.StartTimer()
					g := passes.Manager{Costs: cost.TracedH200()}
					if _, err := g.Run(c, p); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
