package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sim"
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
		var f traceFlags
		path, err := parseOne("trace", &f, args)
		if err != nil {
			return err
		}
		_, fn, err := t.optimised(ctx, path, f.source)
		if err != nil {
			return err
		}
		model, err := costs()
		if err != nil {
			return err
		}
		m, tl, err := simulate(fn, model)
		if err != nil {
			return err
		}
		return t.output(f.out, func(w io.Writer) error { return writeTrace(w, fn, m, tl) })
	},
}

type traceFlags struct {
	source
	out string
}

func (f *traceFlags) define(fs *flag.FlagSet) {
	f.source.define(fs, "default")
	fs.StringVar(&f.out, "o", "", "write to this file instead of standard output")
}

// traceEvent is one event of the trace event format; times are microseconds.
type traceEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Time  float64        `json:"ts"`
	Dur   float64        `json:"dur,omitempty"`
	Pid   int            `json:"pid"`
	Tid   int            `json:"tid"`
	ID    int            `json:"id,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Cat   string         `json:"cat,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// writeTrace writes the timeline of a function in its own order. Track 0 is the
// compute stream, 1 + s communication stream s.
func writeTrace(w io.Writer, f *ir.Func, m *sim.Model, tl *sim.Timeline) error {
	var events []traceEvent
	name := func(tid int, s string) {
		events = append(events, traceEvent{Name: "thread_name", Phase: "M", Tid: tid, Args: map[string]any{"name": s}})
	}
	name(0, "compute")
	named := make([]bool, m.Streams)
	for i, n := range f.Order() {
		if s := m.Stream[i]; s >= 0 && !named[s] && n.Group() != nil {
			named[s] = true
			name(1+int(s), "comm @"+n.Group().Name)
		}
	}
	for i, n := range f.Order() {
		begin, end := tl.Begin[i]*1e3, tl.End[i]*1e3
		args := map[string]any{"node": n.String()}
		switch n.Op().Class() {
		case ir.ClassCollective:
			tid := 1 + int(m.Stream[i])
			events = append(events,
				traceEvent{Name: n.Name(), Phase: "X", Time: begin, Dur: end - begin, Tid: tid, Cat: n.Op().Name(), Args: args},
				traceEvent{Name: "async", Phase: "s", Time: begin, Tid: tid, ID: i + 1, Cat: "async"})
		case ir.ClassWait:
			if issue := tl.Issue[i] * 1e3; end > issue {
				events = append(events, traceEvent{Name: "wait " + n.Name(), Phase: "X", Time: issue, Dur: end - issue, Cat: "exposed", Args: args})
			}
			if at := n.Arg(0).Def(); at.Op().IsCollective() {
				events = append(events, traceEvent{Name: "async", Phase: "f", Time: end, ID: at.At() + 1, Bind: "e", Cat: "async"})
			}
		case ir.ClassCompute, ir.ClassMemory:
			if end > begin {
				events = append(events, traceEvent{Name: n.Op().Name(), Phase: "X", Time: begin, Dur: end - begin, Cat: n.Op().Class().String(), Args: args})
			}
		}
		events = append(events, traceEvent{Name: "memory", Phase: "C", Time: tl.Issue[i] * 1e3, Args: map[string]any{"MiB": float64(tl.Memory[i]) / (1 << 20)}})
	}
	return json.NewEncoder(w).Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
}
