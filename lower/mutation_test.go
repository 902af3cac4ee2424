package lower_test

import (
	"bytes"
	"context"
	"flag"
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/program/progtest"
)

// tinies are the traced graphs that are small enough to run thousands of times.
var tinies = []string{"tiny_fsdp2.fw", "tiny_fsdp2.bw", "tiny_tp2.fw", "tiny_tp2.bw", "tiny_tpsp2.fw", "tiny_tpsp2.bw", "tiny_ddp2.bw", "tiny_moe2.fw", "tiny_moe2.bw"}

// scheduled reads a traced graph, runs a pipeline and lowers it.
func scheduled(t testing.TB, name, pipeline string) (*ir.Func, *program.Program) {
	t.Helper()
	m := imported(t, filepath.Join(testdata, "graphs", name+".graph.json.gz"))
	pl, err := standard.Table().Parse(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{Hooks: []passes.Hook{lower.CheckHook()}}
	if _, err := g.Run(m, pl); err != nil {
		t.Fatal(name, err)
	}
	f := m.Funcs()[0]
	p, err := lower.Func(f)
	if err != nil {
		t.Fatal(name, err)
	}
	return f, p
}

// programInputs deals an interpreter's inputs to a program's.
func programInputs(t testing.TB, f *ir.Func, p *program.Program) progtest.Inputs {
	t.Helper()
	all, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return progtest.InputsOf(p, func(rank, k int) []byte { return all[rank][k].Data })
}

// sameAsInterpreter holds the simulator to the reference.
func sameAsInterpreter(t *testing.T, name string, f *ir.Func, o *progtest.Outcome) {
	t.Helper()
	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(context.Background(), f, in, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for r := range want {
		var got [][]byte
		for _, ts := range o.Outputs[r] {
			got = append(got, ts...)
		}
		for k := range want[r] {
			if !bytes.Equal(got[k], want[r][k].Data) {
				t.Errorf("%s: rank %d output %d differs from the interpreter's", name, r, k)
			}
		}
	}
}

// mutants is how many mutants of each kind and graph are run: all are too many
// for every run of the tests.
var mutants = flag.Int("mutants", 1, "mutants of each kind and graph to run; 0 for all")

// The checker refuses every mutant of a lowered training step that gives other
// bytes, hangs or fails under some schedule.
func TestCheckMutantsOfTracedGraphs(t *testing.T) {
	check := func(p *program.Program) error {
		r, err := program.CheckWith(p, lower.CheckOptions())
		if err != nil {
			return err
		}
		return r.Err()
	}
	var sum progtest.Score
	type subject struct{ name, pipeline string }
	var subjects []subject
	for _, name := range tinies {
		subjects = append(subjects, subject{name, "raise-starts,sink-waits"})
	}
	for _, name := range tinies[:4] { // with fused launches
		subjects = append(subjects, subject{name, "cuda"})
	}
	for _, u := range subjects {
		name := u.name
		f, p := scheduled(t, name, u.pipeline)
		in := programInputs(t, f, p)
		o, err := progtest.Run(p, in, progtest.Schedule{}, 1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sameAsInterpreter(t, name, f, o)
		if harm := progtest.Evaluate(p, in, o.Digest); harm != "" {
			t.Fatalf("%s passes the checker, but %s", name, harm)
		}
		scores, missed, alarms := progtest.Measure(progtest.Pick(progtest.Mutants(p), *mutants), in, o.Digest, check)
		for _, s := range scores {
			t.Logf("%s: %-16s %3d mutants, %3d harmful, %3d noticed, %d false alarms", name, s.Kind, s.Mutants, s.Harmful, s.Detected, s.FalseAlarms)
			sum.Mutants += s.Mutants
			sum.Harmful += s.Harmful
			sum.Detected += s.Detected
			sum.FalseAlarms += s.FalseAlarms
		}
		for _, m := range missed {
			t.Errorf("%s: missed %s", name, m)
		}
		for _, a := range alarms {
			t.Logf("%s: refused, though every schedule agrees: %s", name, a)
		}
	}
	t.Logf("all: %d mutants, %d harmful, %d noticed, %d false alarms", sum.Mutants, sum.Harmful, sum.Detected, sum.FalseAlarms)
	if sum.Harmful == 0 {
		t.Error("no mutant does any harm, so the score says nothing")
	}
}
