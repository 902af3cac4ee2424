package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Capturer is a device that can collect a step and run it again. One goroutine uses
// it, the one that enqueues.
type Capturer interface {
	// BeginCapture makes the calls that follow be collected instead of run.
	BeginCapture() error
	// EndCapture ends that and readies the step: as a packed command buffer, or as a
	// graph that the hardware runs by one launch. It returns when all ranks of the world
	// have come here: what may block a device is over on all of them.
	EndCapture(ctx context.Context, graph bool) (Captured, error)
	// DropCapture forgets what was collected; what was planned for it stays planned.
	DropCapture()
	// PlanCapture is DropCapture once every call has been planned as it runs by itself. It gives what
	// Compare takes.
	PlanCapture() (calls string, err error)
	// Compare waits until all ranks of the world have called it as often as this one. A *MismatchError
	// says that they are about to run other collectives, or of other sizes.
	Compare(ctx context.Context, calls string) error
	// Mark puts a mark into a stream of the step that is being collected.
	Mark(s Stream) error
	// Barrier waits until all ranks of the world have called it as often as this one.
	Barrier(ctx context.Context) error
}

// Captured is a collected step.
type Captured interface {
	// Enqueue starts a replay, after everything that the device was given before.
	Enqueue() error
	// Wait waits for the last replay.
	Wait(ctx context.Context) error
	// Time runs that many replays, one after the other without the host between them,
	// and gives the milliseconds that each took on this rank. All ranks call it.
	Time(ctx context.Context, reps int) ([]float64, error)
	// Trace runs the step once, after a barrier of all ranks on their devices, with every
	// call between two events that tell the time, and gives the calls in the order in
	// which they were made, in milliseconds since the step began. A step that is a graph
	// runs packed instead. All ranks call it.
	Trace(ctx context.Context) ([]Span, error)
	// Marks tells when the last replay, which has ended, came past each mark, in the
	// order in which they were put: milliseconds since the first.
	Marks() ([]float64, error)
	// Close gives the step back. Its replays have ended.
	Close() error
}

// Span is one call of a traced run, in milliseconds since its beginning on this
// rank's device.
type Span struct {
	Stream, Name string
	Algo         string // what ran: a kernel and its grid, a library's algorithm
	Start, End   float64
}

// Tracer is a device that can tell when its calls ran.
type Tracer interface {
	// BeginTrace makes every call from now on be timed.
	BeginTrace() error
	// EndTrace waits for all streams and gives the calls in the order in which they were
	// made.
	EndTrace(ctx context.Context) ([]Span, error)
}

// Step is a module's step, collected once and ready to run again and again. Methods
// may be called from any goroutine; one replay of a rank runs at a time.
type Step struct {
	r    *Rank
	m    *Module
	opts Options
	syms map[string]int64
	cap  Captured
	host *ControlFlowError // why the host chooses in replays, nil if it does not
	read []sizesRead       // sizes that tensors hold once it has run
}

// Prepare collects a step of a loaded module without running it: with graph false the
// calls are packed into one command buffer, with graph true they become one graph.
// Sizes (Options.Symbols) and random numbers (Options.Seed, Options.Step) are fixed by
// it. All ranks of the world prepare the same steps in the same order; it returns when
// all have. Async outputs have arrived when a replay ends. On a device that is no
// Capturer the error wraps ErrUnsupported.
func Prepare(ctx context.Context, r *Rank, m *Module, step func(*Exec), opts Options, graph bool) (*Step, error) {
	misuse := func(err error) (*Step, error) {
		return nil, &CallError{Rank: r.env.Rank, Op: "capture of module " + m.Name, Err: err}
	}
	dev, ok := r.dev.(Capturer)
	if !ok {
		return misuse(fmt.Errorf("a %s device captures nothing: %w", r.dev.Info().Kind, ErrUnsupported))
	}
	if opts.Trace != nil {
		return misuse(fmt.Errorf("a captured step cannot be traced: %w", ErrUnsupported))
	}
	if err := r.take(ctx); err != nil {
		return nil, err
	}
	defer r.give()
	l := r.find(m)
	if l == nil {
		return misuse(errNotLoaded)
	}
	x := &Exec{r: r, m: m, l: l, opts: opts, recorded: make([]string, m.Events), ways: written}
	var err error
	if x.syms, err = m.symbols(r.env.Rank, make([]Value, len(m.Inputs)), opts.Symbols); err != nil {
		return misuse(err)
	}
	for _, q := range m.Inputs {
		if q.Async { // replays begin after it
			x.recorded[q.Event] = "inbound"
		}
	}
	// What peers wait for in collectives that the callers started must have begun everywhere.
	if err := dev.Barrier(ctx); err != nil {
		return nil, err
	}
	if err := dev.BeginCapture(); err != nil {
		return nil, err
	}
	step(x)
	if x.err != nil {
		dev.DropCapture()
		r.dev.Abort(x.err) // the peers wait for this rank
		return nil, x.err
	}
	s := &Step{r: r, m: m, opts: opts, syms: x.syms, read: x.unread}
	if s.cap, err = dev.EndCapture(ctx, graph); errors.As(err, &s.host) {
		s.cap, err = &hosted{s: s, dev: dev, step: step}, r.plan(ctx, x, step)
	}
	if err != nil {
		r.dev.Abort(err)
		return nil, err
	}
	l.steps[s] = true
	return s, nil
}

// Run brings the inputs into the arena, replays the step and gives the outputs, as RunModule
// does: inputs that are Resident cost nothing, and neither do outputs with
// Options.KeepOutputs. The error is a *CallError for inputs that do not fit the step, ctx's,
// or what broke the world.
func (s *Step) Run(ctx context.Context, inputs []Value) ([]Value, error) {
	var outs []Value
	err := s.replay(ctx, func() error {
		x, err := s.begin(inputs)
		if err == nil {
			outs, err = s.once(ctx, x)
		}
		return err
	})
	return outs, err
}

// Bind brings the inputs into the arena as Run does, and starts nothing: for timing replays of
// a step that overwrites some of its inputs. Inputs in flight need Run. The error is a
// *CallError for inputs that do not fit the step, ctx's, or what broke the world.
func (s *Step) Bind(ctx context.Context, inputs []Value) error {
	return s.replay(ctx, func() error {
		for i := range inputs {
			if inputs[i].Work != nil {
				return &CallError{Rank: s.r.env.Rank, Op: "inputs of module " + s.m.Name, Err: fmt.Errorf("input %d is in flight: Run takes it, not a binding alone", i)}
			}
		}
		_, err := s.begin(inputs)
		return err
	})
}

// begin binds the inputs, which must have the sizes of the step.
func (s *Step) begin(inputs []Value) (*Exec, error) {
	x, err := s.r.begin(s.m, inputs, s.opts)
	if err == nil && !maps.Equal(x.syms, s.syms) {
		err = x.misuse(fmt.Errorf("the inputs have sizes %v, the step was captured for %v", x.syms, s.syms))
	}
	return x, err
}

// once replays with bound inputs.
func (s *Step) once(ctx context.Context, x *Exec) ([]Value, error) {
	if err := s.enqueueAndWait(ctx); err != nil {
		return nil, err
	}
	x.unread = slices.Clone(s.read)
	if err := x.readAll(); err != nil {
		return nil, s.broke(err)
	}
	for _, w := range x.bound {
		if err := w.settle(nil); err != nil {
			return nil, err
		}
	}
	outs := make([]Value, len(s.m.Outputs))
	for i := range outs {
		q := &s.m.Outputs[i]
		var err error
		if q.Async {
			outs[i].Work, err = x.landed(q)
		} else {
			err = x.output(q, &outs[i])
		}
		if err != nil {
			return nil, x.misuse(fmt.Errorf("output %s: %w", q.Name, err))
		}
	}
	return outs, nil
}

// landed is an async output whose collective has ended.
func (x *Exec) landed(q *Param) (*Work, error) {
	ts, err := x.tensors(q)
	return &Work{r: x.r, op: "output " + q.Name, mod: x.m, settled: true, tensors: ts}, err
}

// Replay runs the step once on what the arena holds, and waits for its end: on all ranks where the device reads sizes
// that tensors hold (dynamic.go), as Run does. Outputs stay in the arena. The error is ctx's, or what broke the world.
func (s *Step) Replay(ctx context.Context) error {
	return s.replay(ctx, func() error { return s.enqueueAndWait(ctx) })
}

// Time runs that many replays on what the arena holds, one after the other, and gives the
// milliseconds that each took on this rank. All ranks call it. The error is ctx's, or what
// broke the world.
func (s *Step) Time(ctx context.Context, reps int) (ms []float64, err error) {
	err = s.replay(ctx, func() (err error) {
		ms, err = s.cap.Time(context.WithoutCancel(ctx), reps)
		return err
	})
	return ms, err
}

// Trace runs the step once on what the arena holds and tells when each of its calls
// ran, in the forms and on the streams that replays have. Timing costs a few
// microseconds a call. All ranks call it. The error is ctx's, or what broke the world.
func (s *Step) Trace(ctx context.Context) (spans []Span, err error) {
	err = s.replay(ctx, func() (err error) {
		spans, err = s.cap.Trace(context.WithoutCancel(ctx))
		return err
	})
	return spans, err
}

// Marks tells when the last replay came past each mark of the step, in the order in
// which Exec.Mark put them: milliseconds since the first. It is an error before the
// first replay.
func (s *Step) Marks(ctx context.Context) (ms []float64, err error) {
	err = s.replay(ctx, func() (err error) {
		ms, err = s.cap.Marks()
		return err
	})
	return ms, err
}

// ErrNotReplayed says that a step was never replayed, so that there is nothing to tell.
var ErrNotReplayed = errors.New("the step was never replayed")

func (s *Step) enqueueAndWait(ctx context.Context) error {
	if err := s.cap.Enqueue(); err != nil {
		return s.broke(err)
	}
	// Not ctx: it aborts, and the error is then the device's.
	ctx = context.WithoutCancel(ctx)
	err := s.cap.Wait(ctx)
	if dev, ok := s.r.dev.(Capturer); ok && err == nil && len(s.read) > 0 && s.host == nil && len(s.m.Groups) > 0 {
		// A peer whose sizes were wrong has gone on with zeros, and its host hears of them at the end.
		err = dev.Barrier(ctx)
	}
	if err != nil {
		return s.broke(err)
	}
	return nil
}

// broke breaks the world because of an error of a replay. What broke it first says
// more than what noticed it here.
func (s *Step) broke(err error) error {
	if derr := s.r.dev.Err(); derr != nil {
		return derr
	}
	s.r.dev.Abort(err)
	return err
}

// replay calls f with the rank to itself; cancelling ctx meanwhile breaks the world.
func (s *Step) replay(ctx context.Context, f func() error) error {
	if err := s.r.take(ctx); err != nil {
		return err
	}
	defer s.r.give()
	if l := s.r.find(s.m); l == nil || !l.steps[s] {
		return &CallError{Rank: s.r.env.Rank, Op: "replay of module " + s.m.Name, Err: errors.New("the step is closed, or its module has been dropped")}
	}
	stop := context.AfterFunc(ctx, func() { s.r.dev.Abort(context.Cause(ctx)) })
	defer stop()
	return f()
}

// Close gives the step back. Dropping its module does as well. The error is what the device
// could not give back.
func (s *Step) Close() error {
	s.r.running <- struct{}{}
	defer s.r.give()
	if l := s.r.find(s.m); l != nil {
		delete(l.steps, s)
	}
	return s.cap.Close()
}

// plan lets a device that can plan a step do so before the step runs. Planning may
// load code, which waits for the device, and within a process for whoever else asks
// the driver: in the middle of a step that would keep ranks from each other's kernels.
func (r *Rank) plan(ctx context.Context, x *Exec, step func(*Exec)) error {
	dev, ok := r.dev.(Capturer)
	if !ok {
		return nil
	}
	key := fmt.Sprint(x.syms) // maps print in order of keys
	calls, planned := x.l.planned[key]
	if planned && (len(x.m.Symbols) == 0 || x.m.Joint != "") {
		return nil
	}
	if x.l.planned == nil {
		// What peers wait for in collectives that the callers started must have begun everywhere.
		if err := dev.Barrier(ctx); err != nil {
			return err
		}
	}
	together := x.l.planned == nil || x.m.Joint == "" // stages have sizes of their own
	if !planned {
		if err := dev.BeginCapture(); err != nil {
			return err
		}
		y := &Exec{r: r, m: x.m, l: x.l, opts: x.opts, syms: x.syms, recorded: slices.Clone(x.recorded), ways: all}
		if step(y); y.err != nil {
			dev.DropCapture()
			return y.err
		}
		var err error
		if calls, err = dev.PlanCapture(); err != nil {
			return err
		}
	}
	if together {
		// Sizes differ by rank, but not those of what they communicate. Nor does a kernel of this rank
		// wait while a peer still loads code.
		if err := dev.Compare(ctx, calls); err != nil {
			return err
		}
	}
	if x.l.planned == nil {
		x.l.planned = map[string]string{}
	}
	x.l.planned[key] = calls
	return nil
}

// traced runs f with the device's calls timed, if the run asks for it.
func (r *Rank) traced(ctx context.Context, opts *Options, f func() error) error {
	if opts.Trace == nil {
		return f()
	}
	t, ok := r.dev.(Tracer)
	if !ok {
		return &CallError{Rank: r.env.Rank, Op: "trace", Err: fmt.Errorf("a %s device does not tell times: %w", r.dev.Info().Kind, ErrUnsupported)}
	}
	if err := t.BeginTrace(); err != nil {
		return err
	}
	err := f()
	spans, terr := t.EndTrace(context.WithoutCancel(ctx))
	if err == nil {
		*opts.Trace, err = spans, terr
	}
	return err
}

// Mark puts a mark into a stream of a step that is being prepared: Step.Marks tells
// when a replay came past it, that is, when everything before it in the stream had
// ended. Calls on both sides of a mark are not made one, and what is behind it begins
// when it has been passed: marks cost a microsecond or two each. Replays in which the host chooses
// (Step.HostControlFlow) pass none.
func (x *Exec) Mark(stream string) {
	op := opName("mark")
	if _, ok := x.take(); !ok {
		return
	}
	s, ok := x.stream(op, stream)
	if !ok {
		return
	}
	dev, ok := x.r.dev.(Capturer)
	if !ok {
		x.fail(op, fmt.Errorf("a %s device has no marks: %w", x.r.dev.Info().Kind, ErrUnsupported))
		return
	}
	if !x.unmarked {
		x.done(dev.Mark(s))
	}
}
