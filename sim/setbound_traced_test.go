package sim_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/sim"
	"github.com/seed-ee968945/concert/sim/simtest"
)

// On every traced graph both bounds hold for the order as traced; which of them is
// the tighter one goes to the log.
func TestSetBoundOnTracedGraphs(t *testing.T) {
	files, err := filepath.Glob("../testdata/graphs/*.graph.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no graphs: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".graph.json.gz")
		m := simtest.Model(t, name)
		tl, err := sim.Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			t.Fatal(err)
		}
		sets, bound := sim.SetBound(m), sim.LowerBound(m).Bound
		t.Logf("%-24s sets %8.3f  arena %8.3f  as traced %8.3f ms", name, sets, bound, tl.Makespan)
		if sets > tl.Makespan*(1+1e-9) {
			t.Errorf("%s: the bound over sets is %v, the order as traced takes %v", name, sets, tl.Makespan)
		}
	}
}
