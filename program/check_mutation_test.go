package program_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/program/progtest"
)

// reportScore prints a mutation score and fails on what was missed.
func reportScore(t *testing.T, name string, scores []progtest.Score, missed, alarms []string) {
	t.Helper()
	var sum progtest.Score
	for _, s := range scores {
		t.Logf("%s: %-16s %3d mutants, %3d harmful, %3d noticed, %d false alarms", name, s.Kind, s.Mutants, s.Harmful, s.Detected, s.FalseAlarms)
		sum.Mutants += s.Mutants
		sum.Harmful += s.Harmful
		sum.Detected += s.Detected
		sum.FalseAlarms += s.FalseAlarms
	}
	t.Logf("%s: all %d mutants, %d harmful, %d noticed, %d false alarms", name, sum.Mutants, sum.Harmful, sum.Detected, sum.FalseAlarms)
	for _, m := range missed {
		t.Errorf("%s: missed %s", name, m)
	}
	for _, a := range alarms {
		t.Logf("%s: refused, though every schedule agrees: %s", name, a)
	}
	if sum.Harmful == 0 {
		t.Errorf("%s: no mutant does any harm, so the score says nothing", name)
	}
}

// valid lists the golden programs that the checker accepts.
func valid(t testing.TB) (names []string, ps []*program.Program) {
	files, archives := cases(t)
	for i, a := range archives {
		p, err := program.Parse(files[i], string(a.Files[0].Data))
		if err == nil && program.Check(p) == nil {
			names, ps = append(names, filepath.Base(files[i])), append(ps, p)
		}
	}
	return names, ps
}

// The checker refuses every mutant of the golden programs that gives other bytes,
// hangs or fails under some schedule.
func TestCheckMutants(t *testing.T) {
	names, ps := valid(t)
	if len(ps) == 0 {
		t.Fatal("no golden program passes")
	}
	for i, p := range ps {
		in, err := progtest.RandomInputs(p, 1)
		if err != nil {
			t.Fatal(err)
		}
		o, err := progtest.Run(p, in, progtest.Schedule{}, 1)
		if err != nil {
			t.Fatal(names[i], err)
		}
		if harm := progtest.Evaluate(p, in, o.Digest); harm != "" {
			t.Fatalf("%s passes the checker, but %s", names[i], harm)
		}
		scores, missed, alarms := progtest.Measure(progtest.Mutants(p), in, o.Digest, program.Check)
		reportScore(t, names[i], scores, missed, alarms)
	}
}

// The golden programs that the checker refuses for what they do, and not for what
// a device could do, do go wrong under some schedule.
func TestRefusedProgramsGoWrong(t *testing.T) {
	names, archives := cases(t)
	for i, a := range archives {
		p, err := program.Parse(names[i], string(a.Files[0].Data))
		if err != nil {
			continue
		}
		var e *program.CheckError
		if !errors.As(program.Check(p), &e) || e.Report.Findings[0].Kind == program.InFlight || e.Report.Findings[0].Kind == program.SelfOverlap {
			continue
		}
		in, err := progtest.RandomInputs(p, 1)
		if err != nil {
			t.Fatal(err)
		}
		o, err := progtest.Run(p, in, progtest.Schedule{}, 1)
		if err != nil {
			t.Fatal(names[i], err)
		}
		if progtest.Evaluate(p, in, o.Digest) == "" {
			t.Errorf("%s: every schedule gives the same outputs", names[i])
		}
	}
}
