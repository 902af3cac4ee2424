package passestest

import (
	"errors"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/passtest"
)

// Write is a program in which a rule that looks past in-place writes, named by its
// statistic, gives wrong numbers.
type Write struct{ Rule, Options, Text string }

// PastWrites shows that the rules of p that look past in-place writes, as passes did while
// a write left the name of what it wrote, are caught by the verifier or by the proof, on
// programs in which they change the numbers, and that p itself keeps them: past runs the
// rules without knowing of writes, operands having lost their versions, and then every
// operand reads the newest version before it.
func PastWrites(t *testing.T, p passes.Pass, past func(ctx *passes.Context, f *ir.Func), writes []Write) {
	blind := p
	blind.Name = "past-" + p.Name
	blind.Run = func(ctx *passes.Context, f *ir.Func) error {
		for _, n := range f.Order() {
			for i, a := range n.DeclaredArgs() {
				if a.IsVersion() {
					f.SetArg(n, i, a.Base())
				}
			}
		}
		past(ctx, f)
		f.ResolveVersions()
		return nil
	}
	table, err := passes.NewTable([]passes.Pass{p, blind}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range writes {
		t.Run(c.Rule, func(t *testing.T) { pastWrite(t, table, p.Name+c.Options, blind.Name+c.Options, c) })
	}
}

func pastWrite(t *testing.T, table *passes.Table, today, blind string, c Write) {
	before, err := ir.Parse(c.Rule, "world 2\ngroup @g = [[0, 1]]\n"+c.Text)
	if err != nil {
		t.Fatal(err)
	}
	run := func(pass string, g passes.Manager) (*ir.Module, *passes.Report, error) {
		p, err := table.Parse(pass)
		if err != nil {
			t.Fatal(err)
		}
		g.Costs = Bandwidth{}
		m := before.Clone()
		rep, err := g.Run(m, p)
		return m, rep, err
	}
	sound, _, err := run(today, passes.Manager{Validate: passes.ValidateAlways})
	if err == nil {
		err = passtest.SameResults(before, sound, 1, 0)
	}
	if err != nil {
		t.Fatalf("the rules of today: %v", err)
	}
	broken, rep, err := run(blind, passes.Manager{Verify: passes.VerifyEnd})
	if illegal := (*diag.Error)(nil); errors.As(err, &illegal) {
		t.Logf("refused by the verifier: %v", illegal)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if rep.Steps[0].Stat(c.Rule) == 0 {
		t.Fatalf("the rule did nothing:\n%s", broken)
	}
	if passtest.SameResults(before, broken, 1, 0) == nil {
		t.Fatalf("the numbers are the same:\n%s", broken)
	}
	var unproved *equiv.Error
	if _, _, err = run(blind, passes.Manager{Validate: passes.ValidateAlways}); !errors.As(err, &unproved) {
		t.Fatalf("%v: not caught\n%s", err, broken)
	}
	t.Logf("not proved: %v", unproved.Findings[0])
}
