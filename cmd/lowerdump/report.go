package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/internal/report"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

var reportCommand = command{
	name: "report", args: "[-passes=PIPELINE] [-o FILE] FILE", doc: "writes a page with timelines, memory, collectives and IR before and after a pipeline",
	help: `
The page needs no network and no other file: open it in a browser.

Examples:
  lowerdump report -o report.html step.graph.json.gz
  lowerdump report -backward=step.bw.graph.json.gz step.fw.graph.json.gz`,
	run: runReport,
}

type reportFlags struct {
	source
	out, backward string
	frontier      bool
}

func (f *reportFlags) define(fs *flag.FlagSet) {
	f.source.define(fs, "default")
	fs.StringVar(&f.out, "o", "report.html", "write to this file; - for standard output")
	fs.StringVar(&f.backward, "backward", "", "traced backward graph of FILE: join both and plot saved memory against recomputation over budgets")
	fs.BoolVar(&f.frontier, "frontier", false, "also schedule under caps of 100%, 105%, 110% and 125% of the input's peak memory")
}

func runReport(ctx context.Context, t tool, args []string) error {
	var f reportFlags
	path, err := parseOne("report", &f, args)
	if err != nil {
		return err
	}
	t.prices = f.pricing
	in, fn, model, err := t.priced(path, f.source)
	if err != nil {
		return err
	}
	r, err := report.New(filepath.Base(in.path)+", "+f.pipeline, fn, model)
	if err != nil {
		return err
	}
	if f.frontier {
		if err := t.frontier(ctx, in, fn.Name, r); err != nil {
			return err
		}
	}
	if f.backward != "" {
		if err := t.curve(f.backward, fn, model, r); err != nil {
			return err
		}
	}
	rep, err := t.optimise(ctx, in, f.pipeline, func(g *passes.Manager) {
		g.Hooks = append(g.Hooks, passes.Hook{Name: "report", After: func(step *passes.StepReport, m *ir.Module) error {
			if step.Changed {
				r.Version("after "+step.Pass, m.AppendText(nil))
			}
			return nil
		}})
	})
	if err != nil {
		return err
	}
	if fn, err = in.funcNamed(f.fn); err != nil {
		return err
	}
	if err := r.Finish(fn, rep); err != nil {
		return err
	}
	return t.output(f.out, func(w io.Writer) error {
		_, err := r.WriteTo(w)
		return err
	})
}

// frontier adds the makespan under several memory caps.
func (t tool) frontier(ctx context.Context, in *input, name string, r *report.Report) error {
	model, err := t.prices.model()
	if err != nil {
		return err
	}
	for _, percent := range []int{100, 105, 110, 125} {
		at := &input{path: in.path, module: in.module.Clone()}
		if _, err := t.optimise(ctx, at, fmt.Sprintf("overlap{percent=%d}", percent), nil); err != nil {
			return err
		}
		fn, err := at.funcNamed(name)
		if err != nil {
			return err
		}
		_, tl, err := simulate(fn, model)
		if err != nil {
			return err
		}
		r.Frontier(float64(percent)/100, tl.Makespan, tl.Peak)
	}
	return nil
}

// curve joins a forward function with its backward graph and adds what pass
// partition would save and repeat for budgets from 0 to 1.
func (t tool) curve(path string, fw *ir.Func, costs *cost.Model, r *report.Report) error {
	in, err := t.load(path)
	if err != nil {
		return err
	}
	bw, err := in.funcNamed("")
	if err != nil {
		return err
	}
	m, err := joint.Join("joint", fw, bw)
	if err != nil {
		return err
	}
	var budgets []float64
	for k := range 21 {
		budgets = append(budgets, float64(k)/20)
	}
	points, err := passes.PartitionCurve(m.Funcs()[0], costs, budgets)
	if err != nil {
		return err
	}
	r.Curve(points)
	return nil
}
