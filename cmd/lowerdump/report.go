package main

import (
	"context"
	"flag"
	"io"
	"path/filepath"

	"github.com/seed-ee968945/concert/internal/report"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

var reportCommand = command{
	name: "report", args: "[-passes=PIPELINE] [-o FILE] FILE", doc: "writes a page with timelines, memory, collectives and IR before and after a pipeline",
	help: `
The page needs no network and no other file: open it in a browser.

Example:
  lowerdump report -o report.html step.graph.json.gz`,
	run: runReport,
}

type reportFlags struct{ pipeline, out string }

func (f *reportFlags) define(fs *flag.FlagSet) {
	pipelineFlag(fs, &f.pipeline, "default")
	fs.StringVar(&f.out, "o", "report.html", "write to this file; - for standard output")
}

func runReport(ctx context.Context, t tool, args []string) error {
	var f reportFlags
	files, err := parse("report", &f, args)
	if err != nil {
		return err
	}
	path, err := oneFile(files)
	if err != nil {
		return err
	}
	in, err := t.load(path)
	if err != nil {
		return err
	}
	fn, err := in.theFunc()
	if err != nil {
		return err
	}
	model, err := costs()
	if err != nil {
		return err
	}
	r, err := report.New(filepath.Base(in.path)+", "+f.pipeline, fn, model)
	if err != nil {
		return err
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
	if fn, err = in.theFunc(); err != nil {
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
