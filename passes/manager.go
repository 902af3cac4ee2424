package passes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"

	"github.com/seed-ee968945/concert/internal/bisect"
	"github.com/seed-ee968945/concert/ir"
)

// VerifyMode says when the manager verifies the module.
type VerifyMode uint8

// The modes. The module is always verified before the first pass.
const (
	VerifyEach VerifyMode = iota // after every pass
	VerifyEnd                    // after the last pass only
)

// Manager runs pipelines. The zero Manager verifies after every pass and does
// nothing else; it may be used for several runs.
type Manager struct {
	// Costs serves nodes without attached costs; nil reckons them as free.
	Costs CostModel

	// Log takes the passes' messages; nil drops them.
	Log *slog.Logger

	// Clock returns nanoseconds since any fixed moment; nil leaves times zero.
	Clock func() int64

	// Verify says when to verify.
	Verify VerifyMode

	// Validate says when to prove, after every pass, that the module computes what it
	// did; see package equiv. It needs VerifyEach: only what is legal means something.
	// Package compile then proves what it lowers, too.
	Validate ValidateMode

	// PrintAfter selects the dumps: "" none, "all" after every pass, "changed"
	// after those that changed the module, or the name of a pass.
	PrintAfter string

	// Dump takes the selected dumps; see [WriteDumps]. An error ends the run.
	Dump func(Dump) error

	// Hooks run after every pass, in order, after the verifier.
	Hooks []Hook

	// Progress, if set, is called before every pass.
	Progress func(number, of int, pass string)

	// Brief makes no texts if neither Dump nor Repeat needs them: reports count every pass as
	// one that changed something, without a digest, and errors do not show the module. It is for
	// runs of which only the outcome matters.
	Brief bool

	// Limit, if positive, ends the pipeline after that many passes.
	Limit int

	// Bisect selects the sites at which passes may act, in the pattern syntax of
	// package internal/bisect: all, none, a suffix of the site's hash in binary
	// digits as in 0110, several of them as in 01+1100-101, =SITE for one site by
	// name, a leading ! to invert. Empty enables all.
	Bisect string

	// Enable, if set, selects sites in addition to Bisect: a site is enabled if both agree.
	Enable func(site string) bool

	// Repeat runs every pass a second time on a copy and fails with a
	// *DeterminismError if the results differ.
	Repeat bool

	// Input is what messages call the module's text, for example mlp.ir.
	Input string
}

// Hook is an extra check or observer; an error is reported like a broken module.
type Hook struct {
	Name  string
	After func(step *StepReport, m *ir.Module) error
}

// run is the state of one Manager.Run.
type run struct {
	ctx context.Context
	*Manager
	m       *ir.Module
	p       *Pipeline
	log     *slog.Logger
	pattern *bisect.Pattern
	steps   int
	text    []byte     // the module's text before the current step
	valid   *validator // nil if the module is not validated
	report  Report
}

// Run verifies the module, runs the pipeline on all its functions and returns
// the report. After an error the module is as the failing pass left it; the
// report covers the passes that succeeded. Errors: a *diag.Error if the module
// is broken to begin with, a *PassError for all that happens in a pass.
func (g *Manager) Run(m *ir.Module, p *Pipeline) (*Report, error) {
	return g.RunContext(context.Background(), m, p)
}

// RunContext is Run that ends when ctx does, within a pass, too; the error is then ctx's,
// and the module is to be thrown away.
func (g *Manager) RunContext(ctx context.Context, m *ir.Module, p *Pipeline) (*Report, error) {
	r := &run{Manager: g, ctx: ctx, m: m, p: p, log: g.Log, steps: p.Len()}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if g.Limit > 0 && g.Limit < r.steps {
		r.steps = g.Limit
	}
	r.report.Skipped = p.Len() - r.steps
	var err error
	if r.pattern, err = bisect.Parse(g.Bisect); err != nil {
		return &r.report, err
	}
	if err := g.checkPrintAfter(p); err != nil {
		return &r.report, err
	}
	if err := m.Verify(); err != nil {
		return &r.report, err
	}
	if r.steps > 0 {
		m.AssertUniform()
	}
	r.text = r.textOf(m)
	if g.Validate.Wants(m) && g.Verify == VerifyEach {
		r.valid = &validator{}
	}
	for i := range r.steps {
		err := ctx.Err()
		if err == nil {
			err = r.step(i)
		}
		if err != nil {
			return &r.report, err
		}
	}
	return &r.report, nil
}

func (g *Manager) checkPrintAfter(p *Pipeline) error {
	switch g.PrintAfter {
	case "", "all", "changed":
		return nil
	}
	for i := range p.Len() {
		if p.Pass(i).Name == g.PrintAfter {
			return nil
		}
	}
	return fmt.Errorf("passes: print after %q: it is neither all nor changed nor a pass of the pipeline %s", g.PrintAfter, p)
}

func (r *run) now() int64 {
	if r.Clock == nil {
		return 0
	}
	return r.Clock()
}

// step runs one pass and all that follows it.
func (r *run) step(i int) error {
	s := &r.p.steps[i]
	rep := StepReport{Number: i + 1, Pass: s.pass.Name, Spec: r.p.Spec(i)}
	if r.Progress != nil {
		r.Progress(i+1, r.steps, s.pass.Name)
	}
	before := r.text
	was := r.snapshot(s)
	begin := r.now()
	ctx, err := r.apply(s, r.m)
	end := r.now()
	rep.Nanos = end - begin
	if stop := r.ctx.Err(); stop != nil {
		return stop
	}
	text := r.textOf(r.m)
	fail := func(cause error) error { return r.failure(i, before, text, cause) }
	if err != nil {
		return fail(err)
	}
	rep.Changed = text == nil || string(text) != string(before)
	if text != nil {
		sum := sha256.Sum256(text)
		rep.Digest = hex.EncodeToString(sum[:])
	}
	for k, st := range s.pass.Stats {
		rep.Stats = append(rep.Stats, StatValue{st.Name, ctx.stats[k]})
	}
	rep.Records = ctx.records
	if err := r.check(i, s, was, rep.Changed, text); err != nil {
		return fail(err)
	}
	for _, h := range r.Hooks {
		if err := h.After(&rep, r.m); err != nil {
			return fail(fmt.Errorf("%s: %w", h.Name, err))
		}
	}
	rep.VerifyNanos = r.now() - end
	r.text = text
	r.report.Steps = append(r.report.Steps, rep)
	r.log.Info("pass", "number", rep.Number, "pass", rep.Spec, "changed", rep.Changed, "digest", fmt.Sprintf("%.12s", rep.Digest))
	if r.Dump != nil && (r.PrintAfter == "all" || r.PrintAfter == "changed" && rep.Changed || r.PrintAfter == rep.Pass) {
		return r.Dump(Dump{Step: &rep, Of: r.p.Len(), Text: text})
	}
	return nil
}

// snapshot is the module before a pass, as checks of that pass need it.
type snapshot struct {
	repeated    *ir.Module // on which the pass runs again
	ordered     *ir.Module // of which only the order may change
	partitioned *ir.Module // of which the pass makes functions of each rank's pieces
}

func (r *run) snapshot(s *step) (was snapshot) {
	if r.Repeat {
		was.repeated = r.m.Clone()
	}
	if s.pass.OrderOnly {
		was.ordered = r.m.Clone()
	}
	if r.valid != nil && s.pass.Partitions {
		was.partitioned = r.m.Clone()
	} else if r.valid != nil {
		r.valid.before(r.m, s.pass.proof(s.values))
	}
	return was
}

// check verifies what a pass has left, and proves it where the manager does.
func (r *run) check(i int, s *step, was snapshot, changed bool, text []byte) error {
	if r.Verify == VerifyEach || i == r.steps-1 {
		if err := r.m.Verify(); err != nil {
			return err
		}
	}
	if was.partitioned != nil && changed {
		if err := staged(was.partitioned, r.m); err != nil {
			return err
		}
		r.valid = &validator{}
	} else if r.valid != nil && changed {
		if err := r.valid.after(r.m, s.pass.Places); err != nil {
			return err
		}
	}
	if was.ordered != nil {
		if err := CheckOrderOnly(was.ordered, r.m); err != nil {
			return err
		}
	}
	if r.Repeat {
		return r.repeat(s, was.repeated, text)
	}
	return nil
}

// textOf is a module's text, if anybody reads it.
func (r *run) textOf(m *ir.Module) []byte {
	if r.Brief && r.Dump == nil && !r.Repeat {
		return nil
	}
	return m.AppendText(nil)
}

// removeLeft removes functions that nodes ran and that none runs any more: they would be
// programs of their own. run are the names of those that had been run.
func removeLeft(m *ir.Module, run map[string]bool) {
	for found := len(run) > 0; found; {
		found = false
		for _, f := range m.Entries() {
			if run[f.Name] {
				m.RemoveFunc(f)
				found = true
			}
		}
	}
}

// repeat runs the pass on a copy of its input and compares.
func (r *run) repeat(s *step, input *ir.Module, want []byte) error {
	again := input.Clone()
	if _, err := r.apply(s, again); err != nil {
		return err
	}
	if got := again.AppendText(nil); string(got) != string(want) {
		return &DeterminismError{Pass: s.pass.Name, First: want, Second: got}
	}
	return nil
}
