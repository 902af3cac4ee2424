// Package passtest runs golden tests of passes: a case is one text file with
// a program, the pipeline to run and the expected output.
//
// A case is a txtar archive. Its comment, which must not be empty, says what the
// case shows. Its sections are
//
//	flags        words, see below
//	input.ir     the module
//	want.ir      the module after the pipeline, byte for byte
//	want.order   the operations in their order, without views; collectives of several operands as name*operands
//	want.stats   statistics, "pass.stat value", as many as the case is about
//	want.report  what the passes say about each collective
//	want.err     the expected error; excludes all other wants
//
// and those that the caller registers. The flags are
//
//	-passes=PIPELINE    required
//	-runs=N             compile N times, default 3; all must give the same bytes
//	-seed=N             seed of the inputs, default 1
//	-tolerance=X        largest relative error in the 2-norm of any output, default 0: bitwise
//	-noproof=REASON     do not prove what the passes did, and why not
//	-nointerp=REASON    do not run the program, and why not
//	-bisect=PATTERN     sites at which passes may act
//	-limit=N            run only the first N passes
//	-machine=NAME:N     cost model: that machine's formulas, with N ranks on each host
//	-comm=A,B           cost model: a collective of n bytes takes A + B*n/1024 milliseconds (B is 0 if omitted);
//	                    other nodes have their attached costs
//
// Besides comparing, the runner round-trips the module's text before and after,
// verifies after every pass, and runs the reference interpreter on the program
// before and after with seeded inputs on all ranks, with results in flight
// poisoned, and compares every output. An unknown section, flag or statistic is
// an error, so that nothing is skipped silently.
package passtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// Config says how to run cases.
type Config struct {
	Table   *passes.Table
	Manager passes.Manager // template: Costs, Hooks and the like; the runner sets the rest

	// Update rewrites the want sections of cases that differ. It is refused where
	// the environment variable CI is set.
	Update bool

	// Calls says what further opaque calls of programs compute, by target.
	Calls map[string]interp.CallFunc

	// Sections are further want sections by name, for example want.program.
	Sections map[string]Section

	// Package is what the command that re-blesses a case tests, for example ./passes.
	Package string
}

// Section computes the text of a want section from a case that compiled.
type Section func(c *Case) ([]byte, error)

// Case is a compiled case.
type Case struct {
	Name   string
	Before *ir.Module // as read
	After  *ir.Module // after the pipeline
	Report *passes.Report
}

// Run runs every *.txtar file under dir as a subtest named by its path.
func Run(t *testing.T, dir string, cfg Config) {
	t.Helper()
	if cfg.Update && os.Getenv("CI") != "" {
		t.Fatal("passtest: -update is refused in CI: a person has to look at what changes")
	}
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".txtar" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("passtest: no *.txtar under %s", dir)
	}
	slices.Sort(files)
	for _, file := range files {
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.ToSlash(rel), ".txtar")
		t.Run(name, func(t *testing.T) { runFile(t, file, name, cfg) })
	}
}

func runFile(t *testing.T, file, name string, cfg Config) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	updated, problems := cfg.Check(name, data)
	if cfg.Update && updated != nil && !bytes.Equal(updated, data) {
		if err := os.WriteFile(file, updated, 0o666); err != nil {
			t.Fatal(err)
		}
		t.Logf("rewrote %s", file)
		if _, problems = cfg.Check(name, updated); len(problems) == 0 {
			return
		}
	}
	for _, p := range problems {
		t.Error(p)
	}
	if len(problems) > 0 {
		t.Logf("to accept what came out, after looking at it:\n  go test %s -run '%s' -update", cfg.Package, runPattern(t.Name()))
	}
}

// runPattern is the -run pattern that selects one subtest.
func runPattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}

// Compile reads a case and runs its pipeline, and compares nothing that it wants.
func (cfg *Config) Compile(name string, data []byte) (*Case, error) {
	c := &checker{cfg: cfg, name: name, ar: txtar.Parse(data)}
	var got *Case
	var err error
	if c.structure() {
		got, err = c.compile()
	}
	if len(c.problems) > 0 {
		return nil, errors.New(strings.Join(c.problems, "\n"))
	}
	return got, err
}

// checker is the state of one Check.
type checker struct {
	cfg      *Config
	name     string
	ar       *txtar.Archive
	flags    flags
	problems []string
}

func (c *checker) failf(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// Check runs one case and returns what is wrong with it, and the case with its
// want sections rewritten to what came out; nil if the case itself is broken or
// ended in an error that it does not want, or in none where it wants one.
func (cfg *Config) Check(name string, data []byte) (updated []byte, problems []string) {
	c := &checker{cfg: cfg, name: name, ar: txtar.Parse(data)}
	if !c.structure() {
		return nil, c.problems
	}
	got, err := c.compile()
	switch want := c.index("want.err") >= 0; {
	case err != nil && want:
		c.compare("want.err", []byte(strings.TrimRight(err.Error(), "\n")+"\n"))
	case err != nil:
		// Whether a case is about an error is for a person to say, not for -update.
		c.failf("%v", err)
		return nil, c.problems
	case want:
		c.failf("no error, want.err says:\n%s", c.section("want.err"))
		return nil, c.problems
	default:
		c.wants(got)
	}
	return txtar.Format(c.ar), c.problems
}

func (c *checker) index(name string) int {
	return slices.IndexFunc(c.ar.Files, func(f txtar.File) bool { return f.Name == name })
}

func (c *checker) section(name string) []byte {
	if i := c.index(name); i >= 0 {
		return c.ar.Files[i].Data
	}
	return nil
}

// structure checks sections and flags.
func (c *checker) structure() bool {
	if len(bytes.TrimSpace(c.ar.Comment)) == 0 {
		c.failf("the case has no comment that says what it shows")
	}
	wants := 0
	for i, f := range c.ar.Files {
		known := slices.Contains([]string{"flags", "input.ir", "want.ir", "want.order", "want.stats", "want.report", "want.err"}, f.Name)
		if _, ok := c.cfg.Sections[f.Name]; !ok && !known {
			c.failf("unknown section %q", f.Name)
		}
		if c.index(f.Name) != i {
			c.failf("section %q appears twice", f.Name)
		}
		if strings.HasPrefix(f.Name, "want.") {
			wants++
		}
	}
	switch {
	case c.index("input.ir") < 0:
		c.failf("no section input.ir")
	case wants == 0:
		c.failf("the case wants nothing")
	case wants > 1 && c.index("want.err") >= 0:
		c.failf("want.err excludes other wants")
	}
	var err error
	if c.flags, err = parseFlags(string(c.section("flags"))); err != nil {
		c.failf("flags: %v", err)
	}
	return len(c.problems) == 0
}

// compile parses, runs the pipeline repeatedly and checks what holds for every case.
func (c *checker) compile() (*Case, error) {
	p, err := c.cfg.Table.Parse(c.flags.passes)
	if err != nil {
		return nil, err
	}
	input := string(c.section("input.ir"))
	var first *Case
	var text string
	for run := range c.flags.runs {
		m, err := ir.Parse("input.ir", input)
		if err != nil {
			return nil, err
		}
		got := &Case{Name: c.name, Before: m.Clone(), After: m}
		g := c.cfg.Manager
		if c.flags.comm != nil {
			g.Costs = c.flags.comm
		}
		g.Validate = passes.ValidateAlways
		if c.flags.noproof != "" {
			g.Validate = passes.ValidateNever
		}
		g.Input, g.Bisect, g.Limit, g.Repeat = "input.ir", c.flags.bisect, c.flags.limit, run == 0
		if got.Report, err = g.Run(m, p); err != nil {
			return nil, err
		}
		switch {
		case run == 0:
			first, text = got, m.String()
		case m.String() != text:
			c.failf("run %d gives other bytes than the first:\n%s", run+1, diff.Diff("run 1", []byte(text), "another run", []byte(m.String())))
		}
	}
	c.roundTrip("input.ir", first.Before)
	c.roundTrip("the result", first.After)
	if c.flags.nointerp == "" {
		if err := sameResults(first.Before, first.After, c.flags.seed, c.flags.tolerance, c.calls()); err != nil {
			c.failf("%v", err)
		}
	}
	return first, nil
}

// calls are those that every case may use, and the caller's.
func (c *checker) calls() map[string]interp.CallFunc {
	all := Calls()
	maps.Copy(all, c.cfg.Calls)
	return all
}

func (c *checker) roundTrip(what string, m *ir.Module) {
	text := m.String()
	again, err := ir.Parse(what, text)
	if err != nil {
		c.failf("%s prints as text that does not parse: %v", what, err)
		return
	}
	if again.String() != text {
		c.failf("%s does not round-trip:\n%s", what, diff.Diff("printed", []byte(text), "printed, parsed and printed", []byte(again.String())))
	}
}

// compare holds a section against what came out and puts that in its place.
func (c *checker) compare(name string, got []byte) {
	i := c.index(name)
	if want := c.ar.Files[i].Data; !bytes.Equal(got, want) {
		c.failf("%s differs:\n%s", name, diff.Diff(name, want, "got", got))
	}
	c.ar.Files[i].Data = got
}

func (c *checker) wants(got *Case) {
	for _, f := range slices.Clone(c.ar.Files) {
		switch f.Name {
		case "flags", "input.ir":
		case "want.ir":
			c.compare(f.Name, []byte(got.After.String()))
		case "want.order":
			c.compare(f.Name, []byte(orderOf(got.After)))
		case "want.stats":
			c.stats(got, string(f.Data))
		case "want.report":
			var b strings.Builder
			for _, s := range got.Report.Steps {
				for _, r := range s.Records {
					fmt.Fprintf(&b, "%s\n", r)
				}
			}
			c.compare(f.Name, []byte(b.String()))
		default:
			text, err := c.cfg.Sections[f.Name](got)
			if err != nil {
				c.failf("%s: %v", f.Name, err)
				continue
			}
			c.compare(f.Name, text)
		}
	}
}

// stats compares the statistics that the section names; an empty section asks
// for all.
func (c *checker) stats(got *Case, want string) {
	var b strings.Builder
	if err := got.Report.WriteStats(&b); err != nil {
		c.failf("%v", err)
	}
	have := map[string]string{} // look-up only
	var all []string
	for line := range strings.Lines(b.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			have[name] = value
			all = append(all, name)
		}
	}
	var out strings.Builder
	for line := range strings.Lines(want) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, ok := have[name]
		if !ok {
			c.failf("want.stats names %q, which no pass of the pipeline declares; have %s", name, strings.Join(all, " "))
			return
		}
		fmt.Fprintf(&out, "%s %s\n", name, value)
	}
	if out.Len() == 0 {
		for _, name := range all {
			fmt.Fprintf(&out, "%s %s\n", name, have[name])
		}
	}
	c.compare("want.stats", []byte(out.String()))
}
