// Package bench runs steps: a function, or forward and backward of a training step, on all
// ranks, on the host or on GPUs. It makes inputs; compares results with recordings,
// fingerprints or the reference interpreter; times and traces captured steps; and calibrates,
// that is, measures launches and collectives as costs for passes and simulator.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Console is who a run speaks to.
type Console struct {
	Out, Err io.Writer
	Env      func(string) string            // of the process
	Colour   func(code, text string) string // text in an escape sequence, where that is shown
	Phase    func(what string) (end func()) // says what is going on until end
}

// Output writes to the file of that name, to Out if it is empty or -.
func (c *Console) Output(path string, write func(io.Writer) error) error {
	if path == "" || path == "-" {
		return write(c.Out)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// ErrFindings is a failure whose explanation has been printed already.
var ErrFindings = errors.New("findings")

// UsageError says that what was asked for does not go together.
type UsageError struct{ Msg string }

// Error implements error.
func (e *UsageError) Error() string { return e.Msg }

func usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Config says what to run and what to find out.
type Config struct {
	Device    string         // host, cuda or interp
	GPUs      device.Options // with Device cuda
	FakeGPUs  int            // so many GPUs that are this machine's memory, for tests; 0: real ones
	Processes bool           // ranks are processes, not goroutines
	Hosts     int            // of processes: as many hosts as they are declared to be on; 0: one
	Args      []string       // command line of a process rank, which calls Job.Child
	Stdin     []byte         // what process ranks find in the file that EnvStdin names; nil: nothing
	Timeout   time.Duration  // how long a rank waits for a peer
	Steps     int            // run the step so often; 0: load and capture it only

	Inputs  string // directory of recordings; empty: random ones
	Data    string // file of the values of inputs that are not free, for random ones; empty: all are
	Random  string // valid, hash or quick
	Same    string // of hash: data or none
	Seed    uint64
	Symbols []map[string]int64 // sizes known at run time only, by rank; nil: hints, or what inputs tell

	// StableHLO is the program that the function is: constants that are inputs are its own, and
	// recordings are NAME.in.safetensors and NAME.in.rankR.safetensors, and so with out.
	StableHLO *stablehlo.Program

	Expect    string        // directory of recordings, prefix of fingerprints, interp or empty
	Record    string        // prefix of fingerprints to write; empty: none
	Tolerance float64       // relative error; 0: by kind of output
	All       bool          // list the outputs of every rank
	Rounding  step.Rounding // what passes may have changed of roundings

	Bench     bool   // time the captured step and its parts
	JSON      bool   // times as JSON lines
	Reps      int    // timed replays
	Replays   int    // replays whose bits are compared
	Trace     string // file of a Chrome trace
	Eager     bool   // trace call by call
	Peer      string // file of what bench/peer_step.py printed
	Timelines bool   // print simulated timelines

	Model    *cost.Model       // of the simulated times
	Simulate *calibration.File // costs of the simulated program; nil: nodes are simulated
	Log      *slog.Logger      // nil: nobody wants to know
}

// prepares reports whether something is asked for that needs captured steps.
func (c *Config) prepares() bool { return c.Bench || c.Replays > 0 || c.Trace != "" }

// Job is a run that is ready to start: the same on the parent and on every rank.
type Job struct {
	Config
	funcs  []*compile.Function // forward, and backward if there is one
	pair   *step.Pair          // they after the passes
	traced *step.Pair          // and before
	stages *staged             // instead, where each rank runs the function of its place; pair is the first's
	inputs [][]interp.Tensor   // by rank; nil where each rank makes its own
	// indices, by rank, has the integers among inputs made by hash; nil: they are made so, too
	indices [][]interp.Tensor
	data    []interp.Tensor    // what Data says of each forward input, empty where it is free
	prints  []*fingerprint.Set // by rank; what Expect names, if it names fingerprints
	start   time.Time          // of this process's work, for the log
}

// New readies a run of a compiled function, or of a forward and a backward one. name is
// what recordings and fingerprints call the step.
func New(c Config, name string, fs ...*compile.Function) (*Job, error) {
	j := &Job{Config: c, funcs: fs, start: time.Now()}
	if c.StableHLO != nil && c.StableHLO.Missing != nil {
		return nil, c.StableHLO.Missing
	}
	var before, after [2]*ir.Func // forward, and backward or nil
	for i, f := range fs {
		before[i], after[i] = f.Input, f.Func
	}
	var err error
	if j.traced, err = step.New(name, before[0], before[1]); err != nil {
		return nil, err
	}
	if j.pair, err = j.traced.Compiled(after[0], after[1]); err != nil {
		return nil, err
	}
	if err := j.readPrints(); err != nil {
		return nil, err
	}
	if j.Steps == 0 {
		return j, nil
	}
	return j, j.makeInputs()
}

// Run runs the step on all ranks, and prints what was asked for and how the results
// compare. ErrFindings if they are wrong.
func (j *Job) Run(ctx context.Context, t *Console) error {
	p, err := j.platform(j.pair.World(), j.Bench || j.Trace != "")
	if err != nil {
		return err
	}
	return errors.Join(j.runOn(ctx, t, p), p.close())
}

// runOn runs the ranks and reports what they found.
func (j *Job) runOn(ctx context.Context, t *Console, p *platform) error {
	if j.Timelines {
		if err := j.timelines(t); err != nil {
			return err
		}
	}
	start := time.Now()
	found, err := j.execute(ctx, t, p)
	if err != nil {
		return err
	}
	how := "goroutine"
	switch {
	case j.Device == "interp":
		how = "interpreter rank"
	case j.Processes:
		how = "process"
	}
	done := count(j.Steps, "step")
	if j.Steps == 0 {
		done = "captured, not run,"
	}
	fmt.Fprintf(t.Out, "%s: %s on %s in %v\n", j.pair.Name, done, count(j.pair.World(), how), time.Since(start).Round(time.Millisecond))
	if j.Steps == 0 {
		return j.reportCaptured(t)
	}
	if err := j.reportPrepared(t, found); err != nil {
		return err
	}
	return j.report(ctx, t, resultsOf(found))
}

// capture loads and captures the step on a rank, and leaves it at that.
func (j *Job) capture(ctx context.Context, r *rt.Rank, halves []half) error {
	for i := range halves {
		h := &halves[i]
		s, err := rt.Prepare(ctx, r, h.step.Module, h.step.Run, j.options(r, h), true)
		if err != nil {
			return fmt.Errorf("@%s: %w", h.f.Name, err)
		}
		j.say(r, "captured @"+h.f.Name)
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

// reportCaptured says of each half how large it is.
func (j *Job) reportCaptured(t *Console) error {
	halves, _, err := j.lowered()
	if err != nil {
		return err
	}
	for i := range halves {
		p := halves[i].program
		fmt.Fprintf(t.Out, "%s.%s: %d instructions, %d streams, an arena of %.2f GiB on each rank\n", j.pair.Name, halves[i].name, len(p.Instrs), len(p.Streams), float64(p.Arena)/(1<<30))
	}
	return nil
}

// options are those of a run of a half on one rank, with the sizes that halves before it have read there.
func (j *Job) options(r *rt.Rank, h *half) rt.Options {
	o := rt.Options{KeepOutputs: true, Symbols: map[string]int64{}}
	if j.Symbols != nil {
		maps.Copy(o.Symbols, j.Symbols[r.Info().Rank])
	}
	for _, s := range h.step.Module.Symbols {
		if v, ok := h.sizes[s.Name]; ok && !s.Read {
			o.Symbols[s.Name] = v
		}
	}
	return o
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// execute runs the step on all ranks and returns what each found.
func (j *Job) execute(ctx context.Context, t *Console, p *platform) ([]*outcome, error) {
	defer t.Phase("running " + count(j.pair.World(), "rank"))()
	switch {
	case j.Processes: // each opens its own devices
		return j.processes(ctx, t.Err)
	case j.Device != "interp":
		return j.goroutines(ctx, p)
	}
	in, err := j.allInputs()
	if err != nil {
		return nil, err
	}
	var fw, bw [][]interp.Tensor
	for range j.Steps {
		if j.stages != nil {
			fw, err = j.stages.interpret(ctx, j.stages.r.Module, in)
		} else {
			fw, bw, err = j.pair.Run(ctx, step.Interpret(interp.Options{Symbols: j.Symbols}), in)
		}
		if err != nil {
			return nil, err
		}
	}
	found := make([]*outcome, len(fw))
	for r := range found {
		found[r] = &outcome{outs: [][]interp.Tensor{fw[r]}}
		if bw != nil {
			found[r].outs = append(found[r].outs, bw[r])
		}
		if err := j.fingerprinted(found[r]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// config is how ranks join their world.
func (j *Job) config() rt.Config {
	return rt.Config{Timeout: j.Timeout, JoinTimeout: max(j.Timeout, leastJoin), Log: j.Log}
}

// leastJoin is the least time to join in: a rank may compile kernels meanwhile.
const leastJoin = 5 * time.Minute

// errNoResults says that a rank was started by hand with the child's environment.
var errNoResults = errors.New("started as a rank of another run, but " + EnvResults + " names no directory")
