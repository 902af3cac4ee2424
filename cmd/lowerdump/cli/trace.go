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
collective to its wait, and a counter for live memory.

Example:
  lowerdump trace -passes=default -o trace.json step.graph.json.gz`,
	run: func(ctx context.Context, t tool, args []string) error {
		f := outFlags{passes: "default"}
		path, err := parseOne("trace", &f, args)
		if err != nil {
			return err
		}
		c, err := t.compiled(ctx, path, f.source)
		if err != nil {
			return err
		}
		fn := c.function.Func
		m, tl, err := compile.Simulate(fn, c.Costs())
		if err != nil {
			return err
		}
		return t.output(f.out, func(w io.Writer) error { return bench.WriteTrace(w, fn, m, tl) })
	},
}
