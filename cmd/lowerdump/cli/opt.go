package cli

import (
	"context"
	"flag"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/gonum/graph/encoding/dot"

	"github.com/seed-ee968945/concert/internal/bisect"
	"github.com/seed-ee968945/concert/ir/directed"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/ir/stablehlo/export"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
)

var optCommand = command{
	name: "opt", args: "[-passes=PIPELINE] [-print-after=all|changed|NAME] [-o FILE] FILE", doc: "runs passes and prints the IR",
	help: `
Examples:
  lowerdump opt step.graph.json.gz
  lowerdump opt -passes=canonicalize,sink-waits{limit=10} -print-after=changed mlp.ir
  lowerdump opt -passes=default -stats -o out.ir mlp.ir`,
	run: func(ctx context.Context, t tool, args []string) error {
		var f optFlags
		path, err := parseOne("opt", &f, args)
		if err != nil {
			return err
		}
		if err := f.validate(t); err != nil {
			return err
		}
		in, err := t.load(path)
		if err != nil {
			return err
		}
		c, err := t.compile(ctx, in, source{pipeline: f.pipeline, pricing: f.pricing, all: true}, func(g *passes.Manager) {
			g.PrintAfter, g.Dump = f.printAfter, passes.WriteDumps(t.busy.Over(t.err))
			g.Bisect, g.Limit, g.Repeat = f.bisect, f.limit, f.repeat
			if f.check {
				g.Hooks = append(g.Hooks, lower.CheckHook())
			}
		})
		if err != nil {
			return err
		}
		if f.stats {
			if err := c.Report.WriteTable(t.err); err != nil {
				return err
			}
			if err := c.Report.WriteRecords(t.err); err != nil {
				return err
			}
		}
		return t.output(f.out, func(w io.Writer) error {
			_, err := c.Module.WriteTo(w)
			return err
		})
	},
}

type optFlags struct {
	pipeline, printAfter, out, bisect string
	limit                             int
	pricing                           pricing
	stats, repeat, check              bool
}

// validate finds what is wrong with the command line before a file is read.
func (f *optFlags) validate(t tool) error {
	p, err := t.parsed(f.pipeline)
	if err != nil {
		return err
	}
	if _, err := bisect.Parse(f.bisect); err != nil {
		return usagef("-bisect: %v", err)
	}
	if f.limit < 0 {
		return usagef("-limit=%d: want at least 0", f.limit)
	}
	switch f.printAfter {
	case "", "all", "changed":
		return nil
	}
	var names []string
	for i := range p.Len() {
		names = append(names, p.Pass(i).Name)
	}
	if !slices.Contains(names, f.printAfter) {
		return usagef("-print-after=%s: want all, changed, or a pass of this pipeline: %s", f.printAfter, strings.Join(names, ", "))
	}
	return nil
}

func (f *optFlags) define(fs *flag.FlagSet) {
	definePipeline(fs, &f.pipeline, "default")
	f.pricing.define(fs)
	fs.StringVar(&f.printAfter, "print-after", "", "print the IR to standard error after these passes: all, changed (those that changed it), or a name")
	fs.StringVar(&f.out, "o", "", "write the IR to this file instead of standard output")
	fs.StringVar(&f.bisect, "bisect", "", "enable only the decisions (sites) that match this pattern")
	fs.IntVar(&f.limit, "limit", 0, "run only the first N passes; 0: all")
	fs.BoolVar(&f.stats, "stats", false, "print statistics and what happened to each collective to standard error")
	fs.BoolVar(&f.check, "check", false, "lower after every pass and prove the program free of races and deadlocks")
	fs.BoolVar(&f.repeat, "repeat", false, "run every pass twice and fail unless the results are identical")
}

var exportCommand = command{
	name: "export", args: "[-format=FORMAT] [-passes=PIPELINE] [-o FILE] FILE", doc: "writes the scheduled graph as a traced graph or as StableHLO",
	help: `
With -format=graph-json the result has the traced nodes, fields and names in their new order, so that
other programs can evaluate the schedule. A bucket is one collective node whose
"members" names the traced collectives in it; each traced wait of a
member remains as a view of the bucket's wait. If passes removed or
rewired traced nodes, export fails and names one.

With -format=stablehlo it is StableHLO text, which JAX reads: the program of every rank,
as a replica. Buckets are variadic collectives, and the schedule is the
order of the text; -barriers enforces it in compilers that reschedule.
What StableHLO cannot express is an error that names the node.

Example:
  lowerdump export -passes=order-only step.graph.json.gz > scheduled.graph.json
  lowerdump export -format=stablehlo -passes=default step.ir > step.mlir`,
	run: func(ctx context.Context, t tool, args []string) error {
		var f exportFlags
		path, err := parseOne("export", &f, args)
		if err != nil {
			return err
		}
		if f.format != "graph-json" && f.format != "stablehlo" {
			return usagef("-format=%s: want graph-json or stablehlo", f.format)
		}
		c, err := t.compiled(ctx, path, f.source)
		if err != nil {
			return err
		}
		return t.output(f.out, func(w io.Writer) error {
			if f.format == "graph-json" {
				return fx.Export(w, c.graph, c.function.Func)
			}
			o := export.Options{Barriers: f.barriers}
			if c.hlo != nil {
				o.Constants = c.hlo.Constants
			}
			return export.Write(w, c.function.Func, o)
		})
	},
}

type exportFlags struct {
	source
	format, out string
	barriers    bool
}

func (f *exportFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.format, "format", "graph-json", "output `format`: graph-json or stablehlo")
	fs.BoolVar(&f.barriers, "barriers", false, "StableHLO: keep the order of collectives by optimization barriers")
	f.source.define(fs, "order-only")
	fs.StringVar(&f.out, "o", "", "write to this file instead of standard output")
}

var dotCommand = command{
	name: "dot", args: "[-passes=PIPELINE] [-o FILE] FILE", doc: "prints the dependence graph in Graphviz form",
	help: `
Example:
  lowerdump dot -passes=canonicalize mlp.ir | dot -Tsvg > mlp.svg`,
	run: func(ctx context.Context, t tool, args []string) error {
		var f outFlags
		path, err := parseOne("dot", &f, args)
		if err != nil {
			return err
		}
		c, err := t.compiled(ctx, path, f.source)
		if err != nil {
			return err
		}
		fn := c.function.Func
		data, err := dot.Marshal(directed.Of(fn), fn.Name, "", "  ")
		if err != nil {
			return err
		}
		return t.output(f.out, func(w io.Writer) error {
			_, err := w.Write(append(data, '\n'))
			return err
		})
	},
}

// outFlags are those of a command that writes what became of a function.
type outFlags struct {
	source
	passes string // unless others are asked for
	out    string
}

func (f *outFlags) define(fs *flag.FlagSet) {
	f.source.define(fs, f.passes)
	fs.StringVar(&f.out, "o", "", "write to this file instead of standard output")
}
