package cli

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/bench"
	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// holdsTests are the operations of tests: expectations, and ranks that they start.
var holdsTests = regexp.MustCompile(`\b(check\.[a-z]|interpreter\.[a-z])`)

// tests reports whether files are tests in StableHLO's text, or folders of them: programs
// that hold their inputs. One or two files without expectations are a step.
func (f *runFlags) tests(files []string) bool {
	for _, file := range files {
		if !strings.HasSuffix(file, ".mlir") && !isDir(file) {
			return false
		}
	}
	switch {
	case f.inputs != "":
		return false
	case len(files) > 2:
		return true
	}
	return slices.ContainsFunc(files, func(file string) bool {
		data, err := os.ReadFile(file) // of a folder, too, that is an error
		return err != nil || holdsTests.Match(data)
	})
}

// runTests runs tests in StableHLO's text.
func (t tool) runTests(ctx context.Context, f *runFlags, files []string) error {
	switch {
	case f.device != "host" && f.device != "cuda" && f.device != "interp" || f.procs:
		return usagef("-device=%s: tests run on host, cuda and interp, without -procs", f.device)
	case f.expect != "" || f.record != "" || f.bench || f.replays > 0 || f.trace != "":
		return usagef("tests hold what is expected of them: -expect, -record, -bench, -replays and -trace are for steps")
	}
	s := bench.Suite{ByOp: f.verbose, Config: bench.Config{Device: f.device, FakeGPUs: f.fakeGPUs, Timeout: f.timeout}}
	var err error
	if f.device == "cuda" {
		if s.GPUs, err = f.libraries.options(); err != nil {
			return err
		}
	}
	f.resolve()
	p, err := t.parsed(f.pipeline)
	if err != nil {
		return err
	}
	target, err := f.pricing.target(t.deviceOf(source{pipeline: f.pipeline, device: f.device}))
	if err != nil {
		return err
	}
	s.Compile = func(ctx context.Context, m *ir.Module) (*compile.Result, error) {
		return t.compiler(ctx, m, target, compile.Options{Pipeline: p, Manager: passes.Manager{Validate: f.pricing.validate}})
	}
	return s.Run(ctx, t.console(), files)
}
