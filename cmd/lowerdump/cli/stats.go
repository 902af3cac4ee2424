package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

var statsCommand = command{
	name: "stats", args: "[-passes=PIPELINE] [-json] FILE", doc: "compares time, memory and communication before and after a pipeline",
	help: `
Times are simulated: one compute stream, one communication stream per group,
costs as attached to the graph. exposed is the time during which compute waits
for communication. bound is a lower bound on the makespan of any order of the
input's nodes, without buckets; the gap is the distance of a schedule from it.
For pipeline stages (in FILE, or made by pass pipeline) it prints the compute time, idle time, end
and memory of each stage.
The last line gives the sources of costs: attached in FILE, a calibration (-costs), a
table of collectives, or the formulas of -machine. Tables and formulas of collectives are
rescaled to the attached costs, unless -reprice overrides those.

Examples:
  lowerdump stats step.graph.json.gz
  lowerdump stats -passes=order-only -json step.graph.json.gz
  lowerdump stats -passes='pipeline{stages=4,micro-batches=8},default' step.ir`,
	run: runStats,
}

type statsFlags struct {
	source
	json, records, nodes bool
}

func (f *statsFlags) define(fs *flag.FlagSet) {
	f.source.define(fs, "default")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.BoolVar(&f.nodes, "node-costs", false, "also print the cost of every operation of the input, and its source")
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

	Bottlenecks []compile.Bottleneck `json:"helps"`

	Sources map[string]int `json:"cost_sources"` // operations by where their cost comes from
	Costs   []nodeCost     `json:"costs,omitempty"`
}

// nodeCost is what an operation costs, and who says so.
type nodeCost struct {
	Node   string  `json:"node"`
	Op     string  `json:"op"`
	Ms     float64 `json:"ms"`
	Source string  `json:"source"`
}

// costsOf lists the costs of a function's operations as it came in. Inputs, views, waits
// and the return cost nothing and are none.
func (c *compiled) costsOf(f *ir.Func) []nodeCost {
	var out []nodeCost
	for _, n := range f.Order() {
		switch n.Op().Class() {
		case ir.ClassInput, ir.ClassOutput, ir.ClassView, ir.ClassWait:
			continue
		}
		ms, from := c.CostOf(n)
		out = append(out, nodeCost{n.Name(), n.Op().Name(), ms, from.String()})
	}
	return out
}

// writeSources says how many costs come from where.
func (r *statsResult) writeSources(w io.Writer) {
	var parts []string
	for from := cost.Attached; from <= cost.Modelled; from++ {
		if n := r.Sources[from.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d by %s", n, from))
		}
	}
	if n := r.Sources[cost.Unknown.String()]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d unknown", n))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "costs: %s\n", strings.Replace(strings.Join(parts, ", "), "by attached", "attached", 1))
	}
}

func writeCosts(out io.Writer, costs []nodeCost) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\noperation\top\tms\tcost by")
	for _, c := range costs {
		fmt.Fprintf(w, "%%%s\t%s\t%.6g\t%s\n", c.Node, c.Op, c.Ms, c.Source)
	}
	return w.Flush()
}

func runStats(ctx context.Context, t tool, args []string) error {
	var f statsFlags
	path, err := parseOne("stats", &f, args)
	if err != nil {
		return err
	}
	f.staged = true
	c, err := t.compiled(ctx, path, f.source)
	if err != nil {
		return err
	}
	if c.function == nil {
		return t.stageStats(c, f.json)
	}
	res := statsResult{File: c.path, Func: c.function.Func.Name, Stats: map[string]float64{}, Sources: map[string]int{}}
	if res.Before, res.After, err = t.figures(c.function); err != nil {
		return err
	}
	if res.Bottlenecks, err = c.function.Bottlenecks(); err != nil {
		return err
	}
	res.Gap = compile.Gap(compile.Figures(res.Before), compile.Figures(res.After))
	costs := c.costsOf(c.function.Input)
	for _, n := range costs {
		res.Sources[n.Source]++
	}
	if f.nodes {
		res.Costs = costs
	}
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
		return writeJSON(t.out, res)
	}
	if err := res.write(t.out); err != nil {
		return err
	}
	if f.nodes {
		if err := writeCosts(t.out, costs); err != nil {
			return err
		}
	}
	if f.records {
		return rep.WriteRecords(t.out)
	}
	return nil
}

// figures simulates a function before and after the passes.
func (t tool) figures(f *compile.Function) (before, after figures, err error) {
	defer t.busy.Phase("simulating @" + f.Func.Name)()
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
	for _, h := range r.Bottlenecks {
		fmt.Fprintln(out, "would help:", h)
	}
	for _, p := range r.Passes {
		mark := ""
		if !p.Changed {
			mark = "  (changed nothing)"
		}
		fmt.Fprintf(out, "%9.1f ms  %s%s\n", p.Millis, p.Pass, mark)
	}
	r.writeSources(out)
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
