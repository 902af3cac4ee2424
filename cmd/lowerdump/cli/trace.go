package cli

import (
	"context"
	"io"

	"github.com/seed-ee968945/concert/bench"
	"github.com/seed-ee968945/concert/compile"
)

var traceCommand = command{
	name: "trace", args: "[-passes=PIPELINE] [-o FILE] FILE", doc: "writes the simulated timeline as a Chrome trace",
	help: `
The result opens in Perfetto and in chrome://tracing: one track for the compute
stream, one for each group's communication stream, arrows from the start of a
collective to its wait, and a counter for live memory. Each pipeline stage is a process.

Example:
  lowerdump trace -passes=default -o trace.json step.graph.json.gz`,
	run: func(ctx context.Context, t tool, args []string) error {
		f := outFlags{source: source{staged: true}, passes: "default"}
		path, err := parseOne("trace", &f, args)
		if err != nil {
			return err
		}
		c, err := t.compiled(ctx, path, f.source)
		if err != nil {
			return err
		}
		if len(c.Module.Stages()) > 0 {
			s := c.Module.Stages()[0]
			m, err := compile.MeasureStages(c.Module, s, c.Costs())
			if err != nil {
				return err
			}
			return t.output(f.out, func(w io.Writer) error { return bench.WriteStageTrace(w, c.Module, s, m) })
		}
		fn := c.function.Func
		m, tl, err := compile.Simulate(fn, c.Costs())
		if err != nil {
			return err
		}
		return t.output(f.out, func(w io.Writer) error { return bench.WriteTrace(w, fn, m, tl) })
	},
}
