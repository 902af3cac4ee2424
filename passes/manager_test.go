package passes_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

const small = `world 2
group @g = [[0, 1]]

func @f(%a: f32[4], %b: f32[4]) -> (f32[4], f32[4]) {
  %x = neg %a : f32[4] ms 1
  %ar = all_reduce.sum %b on @g : async f32[4] ms 1
  %w = wait_tensor %ar : f32[4]
  %y = exp %x : f32[4] ms 1
  return %y, %w
}
`

func parse(t testing.TB, text string) *ir.Module {
	t.Helper()
	m, err := ir.Parse("small.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// table builds a table of one-function passes.
func table(t testing.TB, ps ...passes.Pass) *passes.Table {
	t.Helper()
	for i := range ps {
		if ps[i].Doc == "" {
			ps[i].Doc = "Does something."
		}
	}
	tab, err := passes.NewTable(ps, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func run(t testing.TB, g passes.Manager, tab *passes.Table, text string, m *ir.Module) (*passes.Report, error) {
	t.Helper()
	p, err := tab.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g.Run(m, p)
}

func TestManagerReport(t *testing.T) {
	var dumps, log bytes.Buffer
	var clock int64
	var hooked []string
	g := passes.Manager{
		PrintAfter: "changed", Dump: passes.WriteDumps(&dumps), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Clock:    func() int64 { clock += 1000; return clock },
		Hooks:    []passes.Hook{{Name: "seen", After: func(s *passes.StepReport, m *ir.Module) error { hooked = append(hooked, s.Pass); return nil }}},
		Progress: func(number, of int, pass string) { hooked = append(hooked, fmt.Sprint(number, "/", of)) },
	}
	m := parse(t, small)
	r, err := run(t, g, standard.Table(), "canonicalize,raise-starts,raise-starts{limit=1}", m)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(hooked) != "[1/3 canonicalize 2/3 raise-starts 3/3 raise-starts]" {
		t.Errorf("progress and hooks: %v", hooked)
	}
	for i, changed := range []bool{false, true, false} {
		s := r.Steps[i]
		if s.Changed != changed || s.Number != i+1 || s.Nanos != 1000 || s.VerifyNanos != 1000 {
			t.Errorf("step %d: %+v", i, s)
		}
	}
	if r.Steps[2].Digest != m.Digest() || r.Steps[1].Digest != r.Steps[2].Digest || r.Steps[0].Digest == r.Steps[1].Digest {
		t.Error("digests do not follow the changes")
	}
	if got := strings.Count(dumps.String(), "// after "); got != 1 || !strings.Contains(dumps.String(), "// after raise-starts (2 of 3): changed") {
		t.Errorf("dumps of what changed:\n%s", &dumps)
	}
	if again := parse(t, dumps.String()); again.String() != m.String() {
		t.Error("a dump does not read back")
	}
	if !strings.Contains(log.String(), `pass="raise-starts{limit=1}" changed=false`) {
		t.Errorf("log:\n%s", &log)
	}
	var b strings.Builder
	if err := errors.Join(r.WriteStats(&b), r.WriteTable(&b), r.WriteRecords(&b)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"raise-starts.raised 1\n", "raise-starts.2.raised 0\n", "raise-starts{limit=1}", "exposed before", "0.0000"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &b)
		}
	}
}

func TestManagerLimitAndBisect(t *testing.T) {
	for _, c := range []struct {
		g     passes.Manager
		moved bool
		steps int
	}{
		{passes.Manager{}, true, 2},
		{passes.Manager{Limit: 1}, false, 1},
		{passes.Manager{Bisect: "none"}, false, 2},
		{passes.Manager{Bisect: "=raise-starts/f/ar"}, true, 2},
		{passes.Manager{Bisect: "!=raise-starts/f/ar"}, false, 2},
		{passes.Manager{Enable: func(site string) bool { return site != "raise-starts/f/ar" }}, false, 2},
	} {
		m := parse(t, small)
		r, err := run(t, c.g, standard.Table(), "canonicalize,raise-starts", m)
		if err != nil {
			t.Fatal(err)
		}
		if moved := m.String() != small; moved != c.moved || len(r.Steps) != c.steps || r.Skipped != 2-c.steps {
			t.Errorf("%+v: moved %v, %d steps, %d skipped", c.g, moved, len(r.Steps), r.Skipped)
		}
	}
	if _, err := run(t, passes.Manager{Bisect: "12"}, standard.Table(), "", parse(t, small)); err == nil || !strings.Contains(err.Error(), "bisect pattern") {
		t.Errorf("a malformed pattern gave %v", err)
	}
	if _, err := run(t, passes.Manager{PrintAfter: "canon"}, standard.Table(), "canonicalize", parse(t, small)); err == nil || !strings.Contains(err.Error(), `print after "canon"`) {
		t.Errorf("an unknown pass to print after gave %v", err)
	}
}

// A pass that breaks the module is named, with its number, a position in the text
// that it left, and the command that runs it alone on the text that went in.
func TestManagerBrokenPass(t *testing.T) {
	drop := passes.Pass{Name: "drop-wait", Run: func(_ *passes.Context, f *ir.Func) error {
		w := f.Lookup("w")
		f.ReplaceUses(w.Result(0), f.Lookup("a").Result(0))
		f.Remove(w)
		return nil
	}}
	late := passes.Pass{Name: "late", Run: func(_ *passes.Context, f *ir.Func) error {
		f.MoveBefore(f.Lookup("y"), f.Lookup("x"))
		return nil
	}}
	idle := passes.Pass{Name: "idle", Run: nothing}
	tab := table(t, drop, late, idle)
	for _, c := range []struct{ pass, finding string }{
		{"drop-wait", "02-drop-wait.out.ir:6:9: error[async-use]: nobody waits for %ar\n    6 |   %ar = all_reduce.sum"},
		{"late", "02-late.out.ir:5:12: error[undefined]: %x is not defined before this line\n    5 |   %y = exp %x"},
	} {
		m := parse(t, small)
		r, err := run(t, passes.Manager{Input: "small.ir"}, tab, "idle,"+c.pass+",idle", m)
		var pe *passes.PassError
		if !errors.As(err, &pe) {
			t.Fatalf("%s: %v", c.pass, err)
		}
		want := "note: after pass " + c.pass + " (2 of 3) on small.ir; rerun: lowerdump opt -passes='" + c.pass + "' 02-" + c.pass + ".in.ir"
		if !strings.Contains(err.Error(), c.finding) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v\nwant\n%s\n%s", c.pass, err, c.finding, want)
		}
		if string(pe.Before) != small || len(r.Steps) != 1 {
			t.Errorf("%s: the text before the pass is not what went in, or %d steps are reported", c.pass, len(r.Steps))
		}
		var de *diag.Error
		if !errors.As(err, &de) {
			t.Errorf("%s: the findings are lost", c.pass)
		}
	}
	// Only at the end, if asked; then nobody knows which pass it was.
	_, err := run(t, passes.Manager{Verify: passes.VerifyEnd}, tab, "drop-wait,idle", parse(t, small))
	if err == nil || !strings.Contains(err.Error(), "after pass idle (2 of 2)") {
		t.Errorf("verification at the end gave %v", err)
	}
}

// A brief run leaves the same module, and says nothing of texts.
func TestManagerBrief(t *testing.T) {
	m, brief := parse(t, small), parse(t, small)
	if _, err := run(t, passes.Manager{}, standard.Table(), "canonicalize,overlap", m); err != nil {
		t.Fatal(err)
	}
	r, err := run(t, passes.Manager{Brief: true}, standard.Table(), "canonicalize,overlap", brief)
	if err != nil || brief.String() != m.String() || m.String() == small {
		t.Errorf("%v, the module is\n%s\nand not\n%s", err, brief, m)
	}
	if len(r.Steps) != 2 || !r.Steps[0].Changed || r.Steps[1].Digest != "" {
		t.Errorf("the report is %+v", r.Steps)
	}
	if _, err := run(t, passes.Manager{Brief: true, Repeat: true}, standard.Table(), "overlap", parse(t, small)); err != nil {
		t.Error(err)
	}
}

func TestManagerMisbehaviour(t *testing.T) {
	calls := 0
	tab := table(t,
		passes.Pass{Name: "panics", Run: func(*passes.Context, *ir.Func) error { panic("lost") }},
		passes.Pass{Name: "counts", Run: func(c *passes.Context, _ *ir.Func) error { c.Count("pears", 1); return nil }},
		passes.Pass{Name: "asks", Run: func(c *passes.Context, _ *ir.Func) error { c.Int("pears"); return nil }},
		passes.Pass{Name: "refuses", Run: func(*passes.Context, *ir.Func) error { return errors.New("no") }},
		passes.Pass{Name: "wavers", Run: func(_ *passes.Context, f *ir.Func) error {
			calls++
			f.SetMeta(f.Lookup("x"), attr.Make(attr.Attr{Key: "call", Val: attr.Int(int64(calls))}))
			return nil
		}},
		passes.Pass{Name: "renames", OrderOnly: true, Run: func(_ *passes.Context, f *ir.Func) error { f.Rename(f.Lookup("x"), "z"); return nil }},
	)
	for pass, want := range map[string]string{
		"panics":  "the pass panicked: lost",
		"counts":  `pass counts counts "pears", which it does not declare`,
		"asks":    `pass asks reads option "pears" of kind integer of at least 0, which it does not declare`,
		"refuses": "@f: no",
		"wavers":  "wavers is not deterministic: line 5 is",
		"renames": "@f: %z is new and neither a bucket nor the wait of one",
	} {
		if _, err := run(t, passes.Manager{Repeat: true}, tab, pass, parse(t, small)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v, want %q", pass, err, want)
		}
	}
	g := passes.Manager{Hooks: []passes.Hook{{Name: "checker", After: func(*passes.StepReport, *ir.Module) error { return errors.New("a race") }}}}
	if _, err := run(t, g, standard.Table(), "canonicalize", parse(t, small)); err == nil || !strings.Contains(err.Error(), "checker: a race") {
		t.Errorf("a hook's error gave %v", err)
	}
	broken := strings.Replace(small, "%w = wait_tensor %ar", "%w = neg %b", 1)
	if _, err := run(t, passes.Manager{}, standard.Table(), "canonicalize", parse(t, broken)); err == nil || strings.Contains(err.Error(), "after pass") {
		t.Errorf("a broken input gave %v", err)
	}
}
