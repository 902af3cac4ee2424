package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/passes"
)

var statsCommand = command{
	name: "stats", args: "[-passes=PIPELINE] [-json] FILE", doc: "compares time, memory and communication before and after a pipeline",
	help: `
Times are simulated: one compute stream, one communication stream per group,
costs as attached to the graph. exposed is the time for which computing waits
for communication. bound is a lower bound on the makespan of any order of the
nodes as they came in, without buckets; the gap is how far above it a schedule is.

Examples:
  lowerdump stats step.graph.json.gz
  lowerdump stats -passes=order-only -json step.graph.json.gz`,
	run: runStats,
}

type statsFlags struct {
	source
	json, records bool
}

func (f *statsFlags) define(fs *flag.FlagSet) {
	f.source.define(fs, "default")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.BoolVar(&f.records, "records", false, "also print what each pass did to each collective, and why it stopped")
}

// figures is one column of the comparison: compile.Figures as JSON.
type figures struct {
	Nodes       int     `json:"nodes"`
	Collectives int     `json:"collectives"`
	CommBytes   int64   `json:"comm_bytes"`
	Makespan    float64 `json:"makespan_ms"`
	Compute     float64 `json:"compute_ms"`
	Exposed     float64 `json:"exposed_ms"`
	Bound       float64 `json:"bound_ms"`
	TightBound  float64 `json:"tight_bound_ms"`
	Peak        int64   `json:"peak_bytes"`
}

// passTime is the time one pass took.
type passTime struct {
	Pass    string  `json:"pass"`
	Changed bool    `json:"changed"`
	Millis  float64 `json:"ms"`
}

// statsResult is what -json prints.
type statsResult struct {
	File   string              `json:"file"`
	Func   string              `json:"func"`
	Before figures             `json:"before"`
	After  figures             `json:"after"`
	Gap    float64             `json:"gap"` // after.makespan / before.tight bound - 1
	Passes []passTime          `json:"passes"`
	Stats  map[string]float64  `json:"stats"`
	Moves  []passes.CommRecord `json:"moves,omitempty"`
}

func runStats(ctx context.Context, t tool, args []string) error {
	var f statsFlags
	path, err := parseOne("stats", &f, args)
	if err != nil {
		return err
	}
	c, err := t.compiled(ctx, path, f.source)
	if err != nil {
		return err
	}
	res := statsResult{File: c.path, Func: c.function.Func.Name, Stats: map[string]float64{}}
	if res.Before, res.After, err = t.figures(c.function); err != nil {
		return err
	}
	res.Gap = compile.Gap(compile.Figures(res.Before), compile.Figures(res.After))
	rep := c.Report
	for _, s := range rep.Steps {
		res.Passes = append(res.Passes, passTime{s.Spec, s.Changed, float64(s.Nanos) / 1e6})
		for _, v := range s.Stats {
			res.Stats[s.Pass+"."+v.Name] = v.Value
		}
		if f.records {
			res.Moves = append(res.Moves, s.Records...)
		}
	}
	if f.json {
		e := json.NewEncoder(t.out)
		e.SetIndent("", "  ")
		return e.Encode(res)
	}
	if err := res.write(t.out); err != nil {
		return err
	}
	if f.records {
		return rep.WriteRecords(t.out)
	}
	return nil
}

// figures simulates a function before and after the passes.
func (t tool) figures(f *compile.Function) (before, after figures, err error) {
	defer t.busy.phase("simulating @" + f.Func.Name)()
	b, err := f.Before()
	if err != nil {
		return before, after, err
	}
	a, err := f.After()
	return figures(b), figures(a), err
}

func (r *statsResult) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "@%s\tbefore\tafter\t\n", r.Func)
	row := func(name, format string, before, after any) {
		fmt.Fprintf(w, "%s\t"+format+"\t"+format+"\t\n", name, before, after)
	}
	b, a := &r.Before, &r.After
	ms := "%.2f"
	if b.Makespan < 1 {
		ms = "%.4f"
	}
	bytes := func(name string, before, after int64) {
		unit, size := byteUnit(before)
		row(name+" "+unit, "%.2f", float64(before)/size, float64(after)/size)
	}
	row("makespan ms", ms, b.Makespan, a.Makespan)
	row("exposed ms", ms, b.Exposed, a.Exposed)
	row("compute ms", ms, b.Compute, a.Compute)
	row("bound ms", ms, b.Bound, a.Bound)
	bytes("peak", b.Peak, a.Peak)
	row("collectives", "%d", b.Collectives, a.Collectives)
	bytes("moved", b.CommBytes, a.CommBytes)
	row("nodes", "%d", b.Nodes, a.Nodes)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\ngap: no order of these nodes is more than %.1f%% faster\n", max(0, 100*(1-b.TightBound/max(a.Makespan, 1e-12))))
	for _, p := range r.Passes {
		mark := ""
		if !p.Changed {
			mark = "  (changed nothing)"
		}
		fmt.Fprintf(out, "%9.1f ms  %s%s\n", p.Millis, p.Pass, mark)
	}
	return nil
}

// byteUnit is the unit in which n has digits before the point, and its size.
func byteUnit(n int64) (string, float64) {
	switch {
	case n >= 1<<30:
		return "GiB", 1 << 30
	case n >= 1<<20:
		return "MiB", 1 << 20
	}
	return "KiB", 1 << 10
}
