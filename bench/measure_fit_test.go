package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/program"
)

// tracedCalibration is a calibration of a traced graph that nobody runs.
func tracedCalibration(t *testing.T, name string) (*session, *measuredProgram) {
	t.Helper()
	file, err := fx.ReadFile("../testdata/graphs/" + name + ".graph.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	in, err := file.Import()
	if err != nil {
		t.Fatal(err)
	}
	r, err := compile.Compile(context.Background(), in.Module, compile.Target{Device: compile.GPU}, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := New(Config{Device: "cuda"}, name, r.Funcs[0])
	if err != nil {
		t.Fatal(err)
	}
	halves, _, err := j.lowered()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{flags: &Calibration{}, seen: map[string]bool{}}
	cal := newMeasuredProgram(s, j, &halves[0], cost.Default())
	s.cals = []*measuredProgram{cal}
	return s, cal
}

// machine is what the truth is in a test.
type machine struct {
	joined float64 // time of an instruction in its chain, as a part of that alone
	stepUs float64
	slow   map[string][2]float64 // by "memory op" or "compute op": speeds
}

func (m *machine) speeds() func(l, c *program.Instr) (float64, float64) {
	return func(l, c *program.Instr) (float64, float64) {
		kind := "compute "
		if !l.Holds() {
			kind = "memory "
		}
		v, ok := m.slow[kind+c.Op]
		if !ok {
			return 1, 1
		}
		return v[0], v[1]
	}
}

// measured is what a calibration finds on the machine, on ranks of which the later ones
// start collectives late.
func (m *machine) measured(t *testing.T, s *session, c *measuredProgram, ranks int) (want float64, table *calibration.File) {
	t.Helper()
	table = &calibration.File{Ranks: ranks}
	done := map[string]bool{}
	real := func(in *program.Instr) float64 {
		us := 1 + c.guess(in)
		if in.Kind == program.Collective {
			return us
		}
		return us * m.joined
	}
	for i := range c.p.Instrs {
		if key := c.key(i); key != "" && !done[key] {
			done[key] = true
			table.Instructions = append(table.Instructions, calibration.Instruction{Key: key, Us: 1 + c.guess(&c.p.Instrs[i])})
		}
	}
	var b strings.Builder
	if _, err := table.WriteTo(&b); err != nil { // sorts
		t.Fatal(err)
	}
	truth, err := program.Simulate(c.p, program.SimOptions{Us: real, Overlap: m.speeds()})
	if err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		r, run := &inStep{StepUs: m.stepUs + float64(rank)}, inRun{}
		for _, chain := range c.chains {
			sum := 0.0
			for _, i := range chain.Instrs {
				sum += real(&c.p.Instrs[i])
			}
			r.Chains = append(r.Chains, sum)
			run.From = append(run.From, truth.Begin[chain.Instrs[0]])
			run.To = append(run.To, truth.End[chain.Instrs[len(chain.Instrs)-1]])
		}
		for _, i := range c.collectives {
			run.From = append(run.From, truth.Begin[i]-2*float64(rank)) // it waits for its peers
			run.To = append(run.To, truth.End[i])
		}
		r.Runs = []inRun{run, run}
		s.found = append(s.found, []finding{{What: aStep, Key: c.whole(), Step: r}})
	}
	return truth.Us + m.stepUs, table
}

// A table made from what a machine would show simulates the machine's step, and has its
// slowdowns.
func TestFittedTableSimulates(t *testing.T) {
	for _, c := range []struct {
		graph string
		m     machine
	}{
		{"llama8b_l4_tpsp4.bw", machine{0.85, 6, map[string][2]float64{
			"compute all_gather": {0.94, 0.8}, "memory all_gather": {0.7, 0.8}, "compute reduce_scatter": {0.8, 0.6}, "memory reduce_scatter": {0.5, 0.6}}}},
		{"llama8b_l4_fsdp4.fw", machine{0.97, 7, map[string][2]float64{"compute all_gather": {0.92, 0.95}, "memory all_gather": {0.92, 0.95}}}},
		{"llama8b_l4_tp4_small.fw", machine{0.8, 5, nil}},
	} {
		s, cal := tracedCalibration(t, c.graph)
		want, table := c.m.measured(t, s, cal, 3)
		s.addSteps(table)
		if _, err := table.WriteTo(io.Discard); err != nil {
			t.Fatalf("%s: %v", c.graph, err)
		}
		st, err := compile.SimulateProgram(cal.p, cal.h.f, table, cost.Default())
		if err != nil {
			t.Fatal(err)
		}
		if got := 1e3 * st.Ms; st.Unknown > 0 || math.Abs(got/want-1) > 0.01 {
			t.Errorf("%s: %.1f us simulated, %.1f in truth, %d instructions missing", c.graph, got, want, st.Unknown)
		}
		for _, b := range table.Overlaps {
			truth := c.m.slow["compute "+b.Collective]
			if b.Launch != "matmul" {
				continue // too little of it is overlapped with collectives to tell
			}
			if math.Abs(b.Compute-truth[0]) > 0.06 || math.Abs(b.Comm-truth[1]) > 0.06 {
				t.Errorf("%s: %+v, want %v", c.graph, b, truth)
			}
		}
		if (len(c.m.slow) > 0) != (len(table.Overlaps) > 0) {
			t.Errorf("%s: %v", c.graph, table.Overlaps)
		}
	}
}

// What steps show, as a table's rows: the slowest rank's chains, the rank that waits
// least in collectives, and the calmest program around a step.
func TestStepsInTable(t *testing.T) {
	s, c := tracedCalibration(t, "llama8b_l4_tp4_small.fw")
	n := len(c.chains) + len(c.collectives)
	for rank := range 2 {
		r := &inStep{StepUs: 5.5 - float64(rank), Chains: make([]float64, len(c.chains)), Runs: []inRun{{make([]float64, n), make([]float64, n)}}}
		for k := range r.Chains {
			r.Chains[k] = float64(20 + rank + 2*(k%2))
		}
		s.found = append(s.found, []finding{{What: anEdge}, {What: aStep, Key: c.whole(), Step: r}})
	}
	table := &calibration.File{}
	s.addSteps(table)
	counts := map[string]int{}
	for _, chain := range c.chains {
		counts[c.p.ChainKey(chain)]++
	}
	got := []string{fmt.Sprintf("step %v", table.StepUs)}
	for _, e := range table.Chains {
		got = append(got, fmt.Sprintf("%.14s x%d %v", e.Key, counts[e.Key], e.Us))
	}
	want := []string{"step 5.5", "chain of 7 fus x1 21", "chain of 5 fus x4 23", "chain of 7 fus x3 21", "chain of 2 fus x1 21"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(table.Overlaps) > 0 {
		t.Errorf("nothing ran beside anything: %v", table.Overlaps)
	}
}

func TestSpanCovered(t *testing.T) {
	list := []span{{0, 0, 10}, {1, 10, 12}, {2, 20, 30}}
	for _, c := range []struct{ from, to, want float64 }{{0, 40, 22}, {11, 21, 2}, {12, 20, 0}, {5, 6, 1}, {30, 31, 0}, {-5, 1, 1}} {
		if got := (span{0, c.from, c.to}).covered(list); got != c.want {
			t.Errorf("%v to %v: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
