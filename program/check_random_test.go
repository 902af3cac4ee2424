package program_test

import (
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/program/progtest"
)

// mendAndJudge makes a random program, adds the events that the checker asks for,
// and demands that all schedules then agree.
func mendAndJudge(t *testing.T, seed uint64, n int) (*program.Program, progtest.Inputs, uint64) {
	t.Helper()
	raw := progtest.Random(seed, n)
	if err := raw.Validate(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	p, err := progtest.AddEvents(raw)
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, raw)
	}
	in, err := progtest.RandomInputs(p, seed)
	if err != nil {
		t.Fatal(err)
	}
	o, err := progtest.Run(p, in, progtest.Schedule{}, seed)
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, p)
	}
	if harm := progtest.Evaluate(p, in, o.Digest); harm != "" {
		t.Fatalf("seed %d passes the checker, but %s\n%s", seed, harm, p)
	}
	return p, in, o.Digest
}

// What passes the checker gives the same bytes under every schedule, what the
// checker asks for is enough to pass it, and hardly any of it is superfluous: of
// random programs that hold just the events which findings named, nearly every
// mutant goes wrong, and every mutant that does is refused.
func TestCheckRandomPrograms(t *testing.T) {
	var sum []progtest.Score
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		p, in, want := mendAndJudge(t, seed, 12)
		// These programs update values in place, so two collectives exchanged may
		// be another program, as good as the first.
		mutants := slices.DeleteFunc(progtest.Mutants(p), func(m progtest.Mutant) bool { return m.Kind == "swap collectives" })
		scores, missed, _ := progtest.Measure(mutants, in, want, program.Check)
		for _, m := range missed {
			t.Errorf("seed %d: missed %s\n%s", seed, m, p)
		}
		for _, s := range scores {
			add := true
			for i := range sum {
				if sum[i].Kind == s.Kind {
					sum[i].Mutants += s.Mutants
					sum[i].Harmful += s.Harmful
					sum[i].Detected += s.Detected
					sum[i].FalseAlarms += s.FalseAlarms
					add = false
				}
			}
			if add {
				sum = append(sum, s)
			}
		}
	}
	reportScore(t, "random", sum, nil, nil)
}

// FuzzCheck looks for a program that passes the checker and does not always give
// the same bytes: the random program of a seed with events as the fuzzer likes, and
// the same one mended.
func FuzzCheck(f *testing.F) {
	f.Add(uint64(1), 10, []byte{})
	f.Add(uint64(2), 14, []byte{0, 1, 0, 3, 1, 0, 7, 2, 3})
	f.Fuzz(func(t *testing.T, seed uint64, n int, events []byte) {
		n = 1 + (n%16+16)%16
		mendAndJudge(t, seed, n)
		p := progtest.Random(seed, n)
		progtest.InsertEvents(p, events)
		if p.Validate() != nil || program.Check(p) != nil {
			return
		}
		in, err := progtest.RandomInputs(p, seed)
		if err != nil {
			t.Fatal(err)
		}
		o, err := progtest.Run(p, in, progtest.Schedule{}, seed)
		if err != nil {
			t.Fatal(err)
		}
		if harm := progtest.Evaluate(p, in, o.Digest); harm != "" {
			t.Fatalf("passes the checker, but %s\n%s", harm, p)
		}
	})
}
