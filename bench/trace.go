package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/sim"
)

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

// WriteTrace writes the timeline of a function in its own order as a Chrome trace, which
// Perfetto opens, too.
func WriteTrace(w io.Writer, f *ir.Func, m *sim.Model, tl *sim.Timeline) error {
	return writeEvents(w, (&tracer{}).simulated(nil, f, m, tl))
}

func writeEvents(w io.Writer, events []traceEvent) error {
	return json.NewEncoder(w).Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
}

// tracer makes events of one process of a trace.
type tracer struct {
	pid    int
	offset float64 // microseconds before which something else ran
	ids    int     // of arrows: those below are taken
	tracks []string
}

// track is the number of a track of that name, which is announced when it is new.
func (t *tracer) track(events []traceEvent, name string) ([]traceEvent, int) {
	if i := slices.Index(t.tracks, name); i >= 0 {
		return events, i
	}
	t.tracks = append(t.tracks, name)
	tid := len(t.tracks) - 1
	return append(events, traceEvent{Name: "thread_name", Phase: "M", Pid: t.pid, Tid: tid, Args: map[string]any{"name": name}}), tid
}

// named announces the process.
func (t *tracer) named(events []traceEvent, name string) []traceEvent {
	return append(events, traceEvent{Name: "process_name", Phase: "M", Pid: t.pid, Args: map[string]any{"name": name}})
}

// simulated adds a simulated timeline: a track for the compute stream, one for each
// communication stream, arrows, and live memory.
func (t *tracer) simulated(events []traceEvent, f *ir.Func, m *sim.Model, tl *sim.Timeline) []traceEvent {
	from := len(events)
	events, _ = t.track(events, "compute")
	tids := make([]int, m.Streams)
	for i := range tids {
		tids[i] = -1
	}
	for i, n := range f.Order() {
		if s := m.Stream[i]; s >= 0 && tids[s] < 0 && n.Group() != nil {
			events, tids[s] = t.track(events, "comm @"+n.Group().Name)
		}
	}
	for i, n := range f.Order() {
		begin, end := tl.Begin[i]*1e3, tl.End[i]*1e3
		args := map[string]any{"node": n.String()}
		switch n.Op().Class() {
		case ir.ClassCollective:
			tid := tids[m.Stream[i]]
			events = append(events,
				traceEvent{Name: n.Name(), Phase: "X", Time: begin, Dur: end - begin, Tid: tid, Cat: n.Op().Name(), Args: args},
				traceEvent{Name: "async", Phase: "s", Time: begin, Tid: tid, ID: t.ids + i + 1, Cat: "async"})
		case ir.ClassWait:
			if issue := tl.Issue[i] * 1e3; end > issue {
				events = append(events, traceEvent{Name: "wait " + n.Name(), Phase: "X", Time: issue, Dur: end - issue, Cat: "exposed", Args: args})
			}
			if at := n.Arg(0).Def(); at.Op().IsCollective() {
				events = append(events, traceEvent{Name: "async", Phase: "f", Time: end, ID: t.ids + at.At() + 1, Bind: "e", Cat: "async"})
			}
		case ir.ClassCompute, ir.ClassMemory:
			if end > begin {
				events = append(events, traceEvent{Name: n.Op().Name(), Phase: "X", Time: begin, Dur: end - begin, Cat: n.Op().Class().String(), Args: args})
			}
		}
		events = append(events, traceEvent{Name: "memory", Phase: "C", Time: tl.Issue[i] * 1e3, Args: map[string]any{"MiB": float64(tl.Memory[i]) / (1 << 20)}})
	}
	t.ids += len(f.Order())
	t.shift(events[from:], tl.Makespan*1e3)
	return events
}

// spans adds what a rank measured: a track for each stream.
func (t *tracer) spans(events []traceEvent, spans []rt.Span) []traceEvent {
	from, last := len(events), 0.0
	for _, s := range spans {
		var tid int
		events, tid = t.track(events, s.Stream)
		last = max(last, s.End*1e3)
		events = append(events, traceEvent{Name: s.Name, Phase: "X", Time: s.Start * 1e3, Dur: (s.End - s.Start) * 1e3, Tid: tid, Cat: "call", Args: algo(s)})
	}
	t.shift(events[from:], last)
	return events
}

// algo says how a call was done, where that is known.
func algo(s rt.Span) map[string]any {
	if s.Algo == "" {
		return nil
	}
	return map[string]any{"algorithm": s.Algo}
}

// shift puts new events into the process, after those that it has; they last so
// many microseconds.
func (t *tracer) shift(events []traceEvent, lasting float64) {
	for i := range events {
		if events[i].Pid = t.pid; events[i].Phase != "M" {
			events[i].Time += t.offset
		}
	}
	t.offset += lasting
}

// WriteStageTrace writes the timelines of stages that run side by side as a Chrome trace, each as
// a process.
func WriteStageTrace(w io.Writer, m *ir.Module, s *ir.Stages, staged *compile.Staged) error {
	return writeEvents(w, stageEvents(m, s, staged))
}

func stageEvents(m *ir.Module, s *ir.Stages, staged *compile.Staged) (events []traceEvent) {
	ids := 0
	for place, name := range s.Funcs {
		t := &tracer{pid: place, ids: ids}
		events = t.named(events, "simulated, @"+name)
		events = t.simulated(events, m.Func(name), staged.Models[place], staged.Lines[place])
		ids = t.ids
	}
	return events
}

// writeTraces writes what was simulated as one process, or one for each stage, and what each rank
// measured as another; backward follows forward. With a calibration the program is simulated,
// else the function's nodes are.
func (j *Job) writeTraces(w io.Writer, found []*outcome) error {
	events, before, err := j.simulatedEvents()
	if err != nil {
		return err
	}
	for r, o := range found {
		t := &tracer{pid: before + r}
		events = t.named(events, fmt.Sprintf("measured, rank %d", r))
		for _, spans := range o.notes.Spans {
			events = t.spans(events, spans)
		}
	}
	return writeEvents(w, events)
}

// simulatedEvents are the events of what was simulated, and how many processes they are of.
func (j *Job) simulatedEvents() (events []traceEvent, processes int, err error) {
	if j.stages != nil {
		staged, err := compile.MeasureStages(j.stages.r.Module, j.stages.s, j.Model)
		if err != nil {
			return nil, 0, err
		}
		return stageEvents(j.stages.r.Module, j.stages.s, staged), len(j.stages.s.Funcs), nil
	}
	halves, _, err := j.lowered()
	if err != nil {
		return nil, 0, err
	}
	t := &tracer{}
	events = t.named(nil, "simulated")
	for i := range halves {
		h := &halves[i]
		st, err := j.simulatedProgram(h)
		if err != nil {
			return nil, 0, err
		}
		if st != nil {
			events = t.spans(events, programSpans(h.program, st.Timeline))
			continue
		}
		m, tl, err := compile.Simulate(h.f, j.Model)
		if err != nil {
			return nil, 0, err
		}
		events = t.simulated(events, h.f, m, tl)
	}
	return events, 1, nil
}

// programSpans are the calls of a simulated program.
func programSpans(p *program.Program, s *program.Simulated) []rt.Span {
	var out []rt.Span
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if in.Kind == program.Record || in.Kind == program.Wait {
			continue
		}
		name := in.Op
		if in.Kind == program.Copy {
			name = "copy"
		}
		out = append(out, rt.Span{Stream: p.Streams[in.Stream].Name, Name: name + " (" + in.Node + ")", Start: s.Begin[i] / 1e3, End: s.End[i] / 1e3})
	}
	return out
}
