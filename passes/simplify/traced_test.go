package simplify_test

import (
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
)

func run(t testing.TB, m *ir.Module, text string) *passes.Report {
	t.Helper()
	p, err := standard.Table().Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{Costs: cost.TracedH200(), Verify: passes.VerifyEnd}
	rep, err := g.Run(m, p)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// What the rules find in the traced training steps, and that the schedule-only
// pipeline, whose results another tool compares node by node, leaves it alone.
func TestSimplifyTracedGraphs(t *testing.T) {
	files, err := filepath.Glob("../../testdata/graphs/*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	arena, err := standard.Table().Parse("order-only")
	if err != nil || strings.Contains(arena.String(), "simplify") {
		t.Fatalf("the order-only pipeline is %s, %v", arena, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".graph.json.gz")
		if testing.Short() && !strings.HasPrefix(name, "tiny") {
			continue
		}
		for _, opts := range []string{"", "{reassociate=true,reduce-in-narrow=true}"} {
			m := passestest.Traced(t, file)
			rep := run(t, m, "canonicalize,simplify-collectives"+opts)
			st := rep.Steps[1]
			var fired []string
			for _, s := range st.Stats {
				if s.Value > 0 && s.Name != "fired" && !strings.HasPrefix(s.Name, "collectives-") && !strings.HasPrefix(s.Name, "bytes-") {
					fired = append(fired, fmt.Sprintf("%s %.0f", s.Name, s.Value))
				}
			}
			sort.Strings(fired)
			t.Logf("%-24s %-45s collectives %4.0f -> %4.0f  GiB %7.3f -> %7.3f  %s", name, opts, st.Stat("collectives-before"), st.Stat("collectives-after"),
				st.Stat("bytes-before")/(1<<30), st.Stat("bytes-after")/(1<<30), strings.Join(fired, ", "))
			if b, a := st.Stat("bytes-before"), st.Stat("bytes-after"); a > b {
				t.Errorf("%s: the rules made %.0f bytes of %.0f", name, a, b)
			}
			if gradient := map[string]bool{"llama8b_l4_fsdp4.bw": true, "llama8b_fsdp8.bw": true, "llama70b_fsdp8_tp8.bw": true, "mixtral_l2_ep4_fsdp4.bw": true}[name]; gradient != (st.Stat("combine-before-reduce")+st.Stat("scatter-add-before-reduce") == 1) {
				t.Errorf("%s%s: fired: %v", name, opts, fired)
			}
		}
	}
}

// The default pipeline keeps every bit of the tiny steps on all ranks; the rules
// that round differently stay near.
func TestSimplifyTinySteps(t *testing.T) {
	files, err := filepath.Glob("../../testdata/graphs/tiny_*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".graph.json.gz"), func(t *testing.T) {
			before := passestest.Traced(t, file)
			for text, tolerance := range map[string]float64{"default": 0, "canonicalize,simplify-collectives{reassociate=true,split-all-reduce=true,split-bytes=0}": 2e-2} {
				m := passestest.Traced(t, file)
				run(t, m, text)
				if err := passtest.SameResults(before, m, 1, tolerance); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
		})
	}
}
