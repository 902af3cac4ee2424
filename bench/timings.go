package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/seed-ee968945/concert/compile"
	rt "github.com/seed-ee968945/concert/runtime"
)

// measured is the times of one half on one rank, in milliseconds for each replay.
type measured struct {
	Graph       []float64 `json:"graph"`   // captured
	Calls       []float64 `json:"calls"`   // enqueued one crossing a step
	Compute     []float64 `json:"compute"` // captured, without collectives
	Waiting     float64   `json:"waiting"` // of a traced step, see waiting
	ControlFlow string    `json:"chooses"` // of a step with loops or branches, who runs them; then Compute and Waiting are not measured
}

// warmUp is the number of replays before timed ones.
const warmUp = 3

// prepared captures one half and does with it what was asked for. It leaves in outs
// what the half's outputs should be.
func (j *Job) prepared(ctx context.Context, r *rt.Rank, halves []half, outs [][]rt.Value, i int, o *outcome) error {
	h := &halves[i]
	first, err := j.bind(ctx, r, halves, outs, i)
	if err != nil {
		return err
	}
	s, err := rt.Prepare(ctx, r, h.step.Module, h.step.Run, j.options(r, h), true)
	if err != nil {
		return err
	}
	defer func() { s.Close() }() // again, if all went well
	if _, err := s.Run(ctx, first); err != nil {
		return err
	}
	j.say(r, "captured @"+h.f.Name)
	again := h.rebind(first)
	if j.Replays > 0 {
		rep, err := replays(ctx, r, s, again, j.Replays)
		if err != nil {
			return err
		}
		o.notes.Replayed = append(o.notes.Replayed, *rep)
		j.say(r, "replayed @"+h.f.Name)
	}
	if j.Bench {
		m, err := j.timed(ctx, r, h, s, again)
		if err != nil {
			return err
		}
		o.notes.Measured = append(o.notes.Measured, *m)
		j.say(r, "timed @"+h.f.Name)
	}
	if j.Trace != "" {
		spans, err := traced(ctx, r, h, again, j.options(r, h), j.Eager)
		if err != nil {
			return err
		}
		o.notes.Spans = append(o.notes.Spans, spans)
	}
	// The next half reads these outputs; a run without collectives may have spoilt them.
	vs, err := s.Run(ctx, again)
	if err != nil {
		return err
	}
	outs[i] = vs
	return s.Close()
}

// traced returns when each call of a half ran: of the packed step, in the forms and
// with the streams that the captured one has, or with eager call by call. The first
// such run does not count: it meets cold caches.
func traced(ctx context.Context, r *rt.Rank, h *half, again []rt.Value, opts rt.Options, eager bool) (spans []rt.Span, err error) {
	if !eager {
		return tracedStep(ctx, r, h, again, opts)
	}
	for range 2 {
		if err := r.Barrier(ctx); err != nil {
			return nil, err
		}
		opts.Trace = &spans
		if _, err := rt.RunModule(ctx, r, h.step.Module, h.step.Run, again, opts); err != nil {
			return nil, err
		}
	}
	return spans, nil
}

func tracedStep(ctx context.Context, r *rt.Rank, h *half, again []rt.Value, opts rt.Options) (spans []rt.Span, err error) {
	s, err := rt.Prepare(ctx, r, h.step.Module, h.step.Run, opts, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for range 2 {
		if err = s.Bind(ctx, again); err != nil {
			return nil, err
		}
		if spans, err = s.Trace(ctx); err != nil {
			return nil, err
		}
	}
	return spans, nil
}

// timed measures one half: captured, uncaptured, and without its collectives.
func (j *Job) timed(ctx context.Context, r *rt.Rank, h *half, s *rt.Step, again []rt.Value) (*measured, error) {
	m := new(measured)
	var err error
	if m.Graph, err = times(ctx, s, h, again, j.Reps); err != nil {
		return nil, err
	}
	other := func(graph, skip bool) ([]float64, error) {
		opts := j.options(r, h)
		opts.SkipCollectives = skip
		s, err := rt.Prepare(ctx, r, h.step.Module, h.step.Run, opts, graph)
		if err != nil {
			return nil, err
		}
		defer func() { s.Close() }() // again, if all went well
		ts, err := times(ctx, s, h, again, j.Reps)
		if err != nil {
			return nil, err
		}
		return ts, s.Close()
	}
	if m.Calls, err = other(false, false); err != nil {
		return nil, fmt.Errorf("uncaptured: %w", err)
	}
	if h.program.HasControlFlow() {
		// Without its collectives a loop may have no end, and nobody tells what ran in it when.
		m.Compute, m.ControlFlow = m.Graph, "the device runs its loops and branches"
		if why := s.HostControlFlow(); why != nil {
			m.ControlFlow = why.Error()
		}
		return m, nil
	}
	if m.Compute, err = other(true, true); err != nil {
		return nil, fmt.Errorf("without collectives: %w", err)
	}
	spans, err := tracedStep(ctx, r, h, again, j.options(r, h))
	if err != nil {
		return nil, fmt.Errorf("traced: %w", err)
	}
	m.Waiting = waiting(spans, h.step.Module.Streams[0])
	return m, nil
}

// times replays a step, after some that do not count, and returns what each took.
// Inputs that the program overwrites are brought in anew before each.
func times(ctx context.Context, s *rt.Step, h *half, again []rt.Value, reps int) ([]float64, error) {
	if !slices.Contains(h.overwrites, true) {
		if err := s.Bind(ctx, again); err != nil {
			return nil, err
		}
		if _, err := s.Time(ctx, warmUp); err != nil {
			return nil, err
		}
		return s.Time(ctx, reps)
	}
	var out []float64
	for k := range warmUp + reps {
		if err := s.Bind(ctx, again); err != nil {
			return nil, err
		}
		ts, err := s.Time(ctx, 1)
		if err != nil {
			return nil, err
		}
		if k >= warmUp {
			out = append(out, ts...)
		}
	}
	return out, nil
}

// timing is one half's times over all ranks: a line of -bench.
type timing struct {
	Func        string  `json:"func"`
	Ranks       int     `json:"ranks"`
	Ms          float64 `json:"ms"`          // median replay of the captured step, slowest rank
	Least       float64 `json:"least_ms"`    // least replay, slowest rank
	Calls       float64 `json:"calls_ms"`    // median of the uncaptured step
	Compute     float64 `json:"compute_ms"`  // median without collectives
	Lost        float64 `json:"lost_ms"`     // the difference
	Waiting     float64 `json:"waiting_ms"`  // in a traced step, computing waits for collectives, slowest rank
	Exposed     float64 `json:"exposed_ms"`  // the smaller of the two, see exposed
	Sim         float64 `json:"sim_ms"`      // simulated step
	SimExposed  float64 `json:"sim_exposed"` // simulated exposed communication
	SimError    float64 `json:"sim_error"`   // simulated step over measured step, less 1
	Unhidden    float64 `json:"unhidden"`    // exposed beyond what the simulation says, as a part of the step
	Instrs      int     `json:"instructions"`
	Arena       int64   `json:"arena_bytes"`
	ControlFlow string  `json:"chooses,omitempty"` // who runs the loops; what collectives cost is not measured then

	Peer *peerTimes `json:"peer,omitempty"` // of the same function, if -peer has it
}

func median(ts []float64) float64 {
	if len(ts) == 0 {
		return math.NaN()
	}
	ts = slices.Sorted(slices.Values(ts))
	return ts[len(ts)/2]
}

// timings joins what the ranks measured.
func (j *Job) timings(tl *Console, found []*outcome) ([]timing, error) {
	halves, _, err := j.lowered()
	if err != nil {
		return nil, err
	}
	var peers map[string]peerTimes
	if j.Peer != "" {
		if peers, err = readPeer(j.Peer); err != nil {
			return nil, err
		}
	}
	var out []timing
	runs := j.functions()
	for i := range halves {
		h := runs[i]
		t := timing{Func: j.pair.Name + "." + h.name, Ranks: len(h.ranks), Instrs: len(halves[i].program.Instrs), Arena: halves[i].program.Arena}
		for _, rank := range h.ranks {
			m := &found[rank].notes.Measured[h.at]
			t.Ms = max(t.Ms, median(m.Graph))
			t.Least = max(t.Least, slices.Min(m.Graph))
			t.Calls = max(t.Calls, median(m.Calls))
			t.Compute = max(t.Compute, median(m.Compute))
			t.Waiting, t.ControlFlow = max(t.Waiting, m.Waiting), m.ControlFlow
		}
		t.Lost = t.Ms - t.Compute
		t.Exposed = exposed(t.Lost, t.Waiting)
		if t.Sim, t.SimExposed, err = j.simulated(tl, &halves[i]); err != nil {
			return nil, err
		}
		if t.Ms > 0 {
			t.SimError, t.Unhidden = t.Sim/t.Ms-1, (t.Exposed-t.SimExposed)/t.Ms
		}
		if p, ok := peers[t.Func]; ok {
			t.Peer = &p
		}
		out = append(out, t)
	}
	return out, nil
}

// simulated is the simulated time of a half and its exposed communication: of the
// program where there is a calibration, else of the function's nodes.
func (j *Job) simulated(t *Console, h *half) (ms, exposed float64, err error) {
	if j.stages != nil {
		m, err := compile.MeasureStages(j.stages.r.Module, j.stages.s, j.Model)
		if err != nil {
			return 0, 0, err
		}
		f := m.Stages[slices.Index(j.stages.s.Funcs, h.f.Name)]
		return f.Makespan, f.Exposed, nil
	}
	st, err := j.simulatedProgram(h)
	if err != nil {
		return 0, 0, err
	}
	if st != nil {
		if text := st.Warning(h.program); text != "" {
			fmt.Fprintln(t.Err, "warning: "+text)
		}
		return st.Ms, st.ExposedMs, nil
	}
	_, tl, err := compile.Simulate(h.f, j.Model)
	if err != nil {
		return 0, 0, err
	}
	return tl.Makespan, tl.Exposed, nil
}

// simulatedProgram plays a half's program with measured costs, nil without any.
func (j *Job) simulatedProgram(h *half) (*compile.Simulation, error) {
	if j.Simulate == nil {
		return nil, nil
	}
	return compile.SimulateProgram(h.program, h.f, j.Simulate, j.Model)
}

// reportPrepared prints what the captured steps were asked for.
func (j *Job) reportPrepared(t *Console, found []*outcome) error {
	if j.Bench {
		ts, err := j.timings(t, found)
		if err != nil {
			return err
		}
		if err := writeTimings(t.Out, ts, j.JSON); err != nil {
			return err
		}
	}
	if j.Trace != "" {
		if err := t.Output(j.Trace, func(w io.Writer) error { return j.writeTraces(w, found) }); err != nil {
			return err
		}
	}
	if j.Replays > 0 {
		return j.reportReplays(t, found)
	}
	return nil
}

func writeTimings(w io.Writer, ts []timing, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		for i := range ts {
			if err := e.Encode(&ts[i]); err != nil {
				return err
			}
		}
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "function\tranks\tstep ms\tfastest\tuncaptured\tcompute alone\tcollectives cost\tcompute waits\texposed\tinstructions\tarena GiB\t")
	for _, t := range ts {
		fmt.Fprintf(tw, "%s\t%d\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%d\t%.2f\t\n",
			t.Func, t.Ranks, t.Ms, t.Least, t.Calls, t.Compute, t.Lost, t.Waiting, t.Exposed, t.Instrs, float64(t.Arena)/(1<<30))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, t := range ts {
		if t.ControlFlow != "" {
			fmt.Fprintf(w, "%s: %s; what collectives cost was not measured\n", t.Func, t.ControlFlow)
		}
	}
	fmt.Fprintln(tw, "simulated\tstep ms\tof measured\tcompute alone\texposed\texposed beyond it\t")
	for _, t := range ts {
		fmt.Fprintf(tw, "%s\t%.4f\t%+.1f%%\t%.4f\t%.4f\t%+.1f%%\t\n", t.Func, t.Sim, 100*t.SimError, t.Sim-t.SimExposed, t.SimExposed, 100*t.Unhidden)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if err := writePeers(w, ts); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, timingsLegend)
	return err
}

// timingsLegend says what the columns of writeTimings are.
const timingsLegend = `  step ms            median replay of the captured step; all times are of the slowest rank
  fastest            the fastest replay
  uncaptured         the same calls without capture
  compute alone      the step without its collectives, except those of integers
  collectives cost   step minus compute alone; includes the slowdown of kernels by concurrent copies
  compute waits      time during which compute waits for collectives in a traced step; includes tracing overhead
  exposed            the smaller of these two: communication that is not overlapped
  of measured        simulated step relative to the measured one
  exposed beyond it  measured minus simulated exposed time, as a fraction of the step: the aim is at most 5%
`

// writePeers prints what another runtime takes for the same functions, and how many
// times as long that is; nothing if there is no such function.
func writePeers(w io.Writer, ts []timing) error {
	if !slices.ContainsFunc(ts, func(t timing) bool { return t.Peer != nil }) {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "beside PyTorch\tstep ms\tas traced\tratio\tInductor\tratio\tcollectives cost\tas traced\tratio\t")
	for _, t := range ts {
		if p := t.Peer; p != nil {
			comm := 0.0
			if p.Compute > 0 {
				comm = p.Traced - p.Compute
			}
			fmt.Fprintf(tw, "%s\t%.4f\t%s\t%s\t%s\t%s\t%.4f\t%s\t%s\t\n", t.Func, t.Ms, millis(p.Traced), ratio(p.Traced, t.Ms),
				millis(p.Inductor), ratio(p.Inductor, t.Ms), t.Lost, millis(comm), ratio(comm, t.Lost))
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "  ratio              how many times as long PyTorch takes: its graph as traced, or the better of its two by Inductor")
	return err
}
