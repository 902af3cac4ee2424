package fusecollectives_test

import (
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/standard"
)

// run runs a pipeline, proving every pass.
func run(t *testing.T, m *ir.Module, text string) *passes.StepReport {
	t.Helper()
	p, err := standard.Table().Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{Costs: cost.Default().ScaledTo(m), Verify: passes.VerifyEach, Validate: passes.ValidateAlways}
	rep, err := g.Run(m, p)
	if err != nil {
		t.Fatal(err)
	}
	return &rep.Steps[len(rep.Steps)-1]
}

// Every region of traced steps is cut, in numbers of chunks that do not divide rows and heads,
// too, and what comes out is proved.
func TestTracedInChunks(t *testing.T) {
	files, err := filepath.Glob("../../testdata/graphs/llama8b_l4_*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, chunks := range []string{"2", "3"} {
			s := run(t, passestest.Traced(t, file), "canonicalize,simplify-collectives,fuse-collectives{chunks="+chunks+"}")
			if s.Stat("fused") == 0 {
				t.Errorf("%s: nothing was cut", filepath.Base(file))
			}
		}
	}
}

// What the pass decides by cost: where collectives have nothing to run beside but the matmuls
// around them it gains, by its own reckoning and by that of overlap behind it; where they are
// hidden, or chunks cost more than they hide, the step stays as it is.
func TestDecision(t *testing.T) {
	for _, c := range []struct {
		graph string
		gain  float64 // of the step, percent; 0: nothing is cut
	}{
		{"llama8b_tp8_infer.fw", 5}, {"llama8b_l4_tp4_infer.fw", 2},
		{"llama8b_l4_tpsp4.bw", 0}, {"llama8b_l4_fsdp4.bw", 0},
	} {
		file := "../../testdata/graphs/" + c.graph + ".graph.json.gz"
		m := passestest.Traced(t, file)
		s := run(t, m, "canonicalize,simplify-collectives,fuse-collectives")
		before, after := s.Stat("makespan-before-ms"), s.Stat("makespan-after-ms")
		if cut := s.Stat("fused") > 0; cut != (c.gain > 0) || after > before*(1-c.gain/100) {
			t.Errorf("%s: %v regions cut, %.3f ms became %.3f", c.graph, s.Stat("fused"), before, after)
		}
		if c.gain == 0 {
			continue
		}
		plain := run(t, passestest.Traced(t, file), "canonicalize,simplify-collectives,overlap").Stat("makespan-after-ms")
		if cut := run(t, m, "overlap").Stat("makespan-after-ms"); cut > plain*(1-c.gain/100) {
			t.Errorf("%s: overlap makes %.3f ms of chunks, and %.3f of the whole", c.graph, cut, plain)
		}
	}
}
