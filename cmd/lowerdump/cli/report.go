package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/internal/report"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/partition"
)

var reportCommand = command{
	name: "report", args: "[-passes=PIPELINE] [-o FILE] FILE", doc: "writes a page with timelines, memory, collectives and IR before and after a pipeline",
	help: `
The page needs no network and no other file: open it in a browser. For pipeline stages it
shows the timeline and memory of each, side by side.

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
	if _, err := t.parsed(f.pipeline); err != nil {
		return err // before a large file is read
	}
	t.entry = f.fn
	in, err := t.load(path)
	if err != nil {
		return err
	}
	f.staged = true
	var versions []passes.Dump
	c, err := t.compile(ctx, in, f.source, func(g *passes.Manager) {
		g.PrintAfter, g.Dump = "changed", func(d passes.Dump) error {
			versions = append(versions, d)
			return nil
		}
	})
	if err != nil {
		return err
	}
	title := filepath.Base(in.path) + ", " + f.pipeline
	var r *report.Report
	if c.function == nil {
		r, err = t.stageReport(c, &f, title, versions)
	} else {
		r, err = t.funcReport(ctx, in, c, &f, title, versions)
	}
	if err != nil {
		return err
	}
	size := int64(0)
	err = t.output(f.out, func(w io.Writer) error {
		size, err = r.WriteTo(w)
		return err
	})
	if err == nil && f.out != "" && f.out != "-" {
		fmt.Fprintf(t.err, "wrote %s, %d KiB: open it in a browser\n", f.out, (size+1023)/1024)
	}
	return err
}

// funcReport is the report on a function.
func (t tool) funcReport(ctx context.Context, in *input, c *compiled, f *reportFlags, title string, versions []passes.Dump) (*report.Report, error) {
	r, err := report.New(title, c.function.Input, c.Costs())
	if err != nil {
		return nil, err
	}
	for _, d := range versions {
		r.Version("after "+d.Step.Pass, d.Text)
	}
	if f.frontier {
		if err := t.frontier(ctx, in, f.source, r); err != nil {
			return nil, err
		}
	}
	if f.backward != "" {
		if err := t.curve(ctx, f.backward, f.pricing, c.function.Input, c.Costs(), r); err != nil {
			return nil, err
		}
	}
	helps, err := c.function.Bottlenecks()
	if err != nil {
		return nil, err
	}
	for _, h := range helps {
		r.Help(h.String())
	}
	return r, r.Finish(c.function.Func, c.Report)
}

// stageReport is the report on stages, with a timeline of each.
func (t tool) stageReport(c *compiled, f *reportFlags, title string, versions []passes.Dump) (*report.Report, error) {
	if f.frontier || f.backward != "" {
		return nil, usagef("-frontier and -backward are for a function that all ranks run")
	}
	s := c.Module.Stages()[0]
	m, err := compile.MeasureStages(c.Module, s, c.Costs())
	if err != nil {
		return nil, err
	}
	helps, err := c.StageBottlenecks(s)
	if err != nil {
		return nil, err
	}
	r := report.Of(title, c.Input)
	for _, d := range versions {
		r.Version("after "+d.Step.Pass, d.Text)
	}
	for _, h := range helps {
		r.Help(h.String())
	}
	r.FinishStages(c.Module, s, m.Models, m.Lines, m.Bubble, c.Report)
	return r, nil
}

// frontier adds the makespan under several memory caps.
func (t tool) frontier(ctx context.Context, in *input, s source, r *report.Report) error {
	for _, percent := range []int{100, 105, 110, 125} {
		s.pipeline = fmt.Sprintf("overlap{percent=%d}", percent)
		c, err := t.compile(ctx, in, s, nil)
		if err != nil {
			return err
		}
		after, err := c.function.After()
		if err != nil {
			return err
		}
		r.Frontier(float64(percent)/100, after.Makespan, after.Peak)
	}
	return nil
}

// curve joins a forward function with its backward graph and adds what pass
// partition would save and repeat for budgets from 0 to 1.
func (t tool) curve(ctx context.Context, path string, prices pricing, fw *ir.Func, costs *cost.Model, r *report.Report) error {
	c, err := t.compiled(ctx, path, source{pricing: prices})
	if err != nil {
		return err
	}
	bw := c.function.Func
	m, err := joint.Join("joint", fw, bw)
	if err != nil {
		return err
	}
	var budgets []float64
	for k := range 21 {
		budgets = append(budgets, float64(k)/20)
	}
	points, err := partition.Curve(m.Funcs()[0], costs, budgets)
	if err != nil {
		return err
	}
	r.Curve(points)
	return nil
}
