package progen

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/program/progtest"
)

var (
	checked = flag.Int("checker.programs", 0, "programs that the checker must not refuse; 0 for 300, 100 with -short")
	mutated = flag.Int("checker.mutated", 0, "programs whose mutants the checker must tell; 0 for 25, 8 with -short")
	each    = flag.Int("checker.each", 2, "mutants of each kind and program, 0 for all")
	from    = flag.Uint64("checker.seed", 1, "first seed")
)

func count(given, long, short int) int {
	switch {
	case given > 0:
		return given
	case testing.Short():
		return short
	}
	return long
}

// lowerable makes the program of a seed, as it is or behind one pass or pipeline, and
// lowers it; nil where something refuses it, which other tests look at.
func lowerable(t *testing.T, seed uint64) *program.Program {
	t.Helper()
	c := New(seed)
	m, err := ir.Parse("case.ir", c.Text)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 0xc0de))
	if r.IntN(2) == 0 {
		table := standard.Table()
		p, err := table.Parse(Pipeline(table, r))
		if err != nil {
			t.Fatal(err)
		}
		g := passes.Manager{}
		if _, err := g.Run(m, p); err != nil {
			return nil
		}
	}
	f := m.Func("f")
	if f == nil {
		return nil
	}
	p, err := lower.Func(f)
	if err != nil {
		return nil
	}
	return p
}

func verdict(p *program.Program) error {
	r, err := program.CheckWith(p, lower.CheckOptions())
	if err != nil {
		return err
	}
	return r.Err()
}

// The checker refuses nothing that passes and lowering make, with calls of all effects.
func TestCheckerFalseAlarms(t *testing.T) {
	n, seen, written, aliased := count(*checked, 300, 100), 0, 0, 0
	for i := range n {
		p := lowerable(t, *from+uint64(i))
		if p == nil {
			continue
		}
		seen++
		for k := range p.Instrs {
			if in := &p.Instrs[k]; in.Aliases() {
				aliased++
			} else if in.IsCall() && in.Writes(0) {
				written++
			}
		}
		if err := verdict(p); err != nil {
			t.Errorf("seed %d: %v\n%s", *from+uint64(i), err, p)
		}
	}
	t.Logf("%d programs of %d seeds with %d calls that write and %d that alias, no false alarm", seen, n, written, aliased)
	if seen < n/2 || written == 0 || aliased == 0 {
		t.Error("too few programs")
	}
}

// Of programs with an event removed or instructions exchanged, the checker refuses all
// that give other bytes, hang or fail under some order of streams and ranks.
func TestCheckerMutants(t *testing.T) {
	n := count(*mutated, 25, 8)
	var sum progtest.Score
	ran := 0
	for i := range n {
		seed := *from + 1<<32 + uint64(i)
		p := lowerable(t, seed)
		if p == nil || len(p.Streams) == 1 {
			continue
		}
		in, err := progtest.RandomInputs(p, seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		o, err := progtest.Run(p, in, progtest.Schedule{}, 1)
		if err != nil {
			continue // indices outside their table, say, since inputs are any small numbers
		}
		ran++
		if harm := progtest.Evaluate(p, in, o.Digest); harm != "" {
			t.Errorf("seed %d: %s\n%s", seed, harm, p)
			continue
		}
		scores, missed, _ := progtest.Measure(progtest.Pick(progtest.Mutants(p), *each), in, o.Digest, verdict)
		for _, m := range missed {
			t.Errorf("seed %d: missed %s\n%s", seed, m, p)
		}
		for _, s := range scores {
			sum.Mutants += s.Mutants
			sum.Harmful += s.Harmful
			sum.Detected += s.Detected
			sum.FalseAlarms += s.FalseAlarms
		}
	}
	t.Logf("%d programs, %d mutants, %d harmful, %d noticed; %d refused, though every schedule gives the same outputs", ran, sum.Mutants, sum.Harmful, sum.Detected, sum.FalseAlarms)
	if sum.Harmful == 0 {
		t.Error("no mutant does any harm, so the score says nothing")
	}
}
