package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/launch"
)

var runCommand = command{
	name: "run", args: "[flags] FILE [BACKWARD-FILE]", doc: "runs a function, or a training step of two, on all ranks and compares the results",
	help: `
Inputs come from -inputs, a directory of recordings named
NAME.fw.rankR.in.safetensors, or are random with -seed: -random=valid makes them
in reach of what reads them, -random=hash quickly and as bench/peer_step.py does,
-random=quick the integers as the one and the rest as the other.
Results are compared with -expect: a directory of recordings
(NAME.fw.rankR.out.safetensors and .bw.), a prefix of fingerprints
(PREFIX.rankR.safetensors, as bench/peer_step.py and -record write them), or
"interp" for what the reference interpreter makes of the program before the
passes. What agrees but is expected to be zeros, or one number, throughout is counted
apart. A backward function gets the forward function's outputs, and ones as
incoming gradients. An async input gets a collective that is under way when the
program starts; async outputs are awaited.

-device=host lowers the functions and runs the programs on ranks that are
goroutines, or with -procs processes, over shared memory; -device=cuda the same on
GPUs of this machine, one for each rank; -device=interp runs the reference
interpreter on the functions after the passes. -device=cuda -steps=0 loads, places and
captures the step without running it.

On GPUs -bench captures each function into a graph and prints the time of a step,
the median of the replays on the slowest rank: captured, uncaptured, and without
its collectives; what these cost, the difference; how long computing waits for
collectives in a traced step; and what is exposed, the smaller of these two. Beside that
stands what was simulated with the costs of -costs or -simulate: how far the simulated
step is from the measured one, and how much more is exposed than the simulation says, as
a part of the step. -replays runs the captured step so many times and
compares all bits of the results. -trace writes what ran when beside what was
simulated.

Examples:
  lowerdump run -inputs testdata/vectors -expect testdata/vectors \
      testdata/graphs/tiny_fsdp2.fw.graph.json.gz testdata/graphs/tiny_fsdp2.bw.graph.json.gz
  lowerdump run -procs -expect interp mlp.ir
  lowerdump run -func=fw,bw -passes=arena -expect interp step.ir
  lowerdump run -device=cuda -bench -trace step.json -random=hash step.graph.json.gz`,
	run: runRun,
}

type runFlags struct {
	source
	libraries              libraryFlags
	device, inputs, expect string
	random, same           string
	record, trace          string
	sizes                  string // values of symbols
	peer                   string // what bench/peer_step.py printed
	simulate               string // calibration for simulated times
	world, fakeGPUs        int
	procs, all, timeline   bool
	eager                  bool // trace call by call
	bench, json, verbose   bool
	seed                   uint64
	steps, replays, reps   int
	tolerance              float64
	timeout                time.Duration
}

// prepares reports whether something is asked for that needs captured steps.
func (f *runFlags) prepares() bool { return f.bench || f.replays > 0 || f.trace != "" }

func (f *runFlags) define(fs *flag.FlagSet) {
	definePipeline(fs, &f.pipeline, autoPipeline)
	f.libraries.define(fs)
	f.pricing.define(fs)
	fs.StringVar(&f.fn, "func", "", "function to take from a FILE that holds several; FORWARD,BACKWARD takes both halves of a step from one FILE")
	fs.StringVar(&f.device, "device", "host", "what executes: host, cuda or interp")
	fs.StringVar(&f.inputs, "inputs", "", "directory of recorded inputs; random ones if empty")
	fs.StringVar(&f.expect, "expect", "", "directory of recorded results, prefix of fingerprints, or interp")
	fs.StringVar(&f.random, "random", "", "how random inputs are made: valid, hash or quick; empty: quick with -device=cuda, else valid")
	fs.StringVar(&f.same, "same", "data", "of -random=hash: data, so that inputs of role data and of fewer than two dimensions are the same on all ranks, or none")
	fs.StringVar(&f.sizes, "sizes", "", "sizes known at run time only: a=5,b=3/4 is 5 on every rank for symbol a, and 3 and 4 on ranks 0 and 1 for b; absent ones are what inputs tell, or the hints")
	fs.StringVar(&f.peer, "peer", "", "`file` of what bench/peer_step.py printed: -bench prints its times beside ours")
	fs.StringVar(&f.simulate, "simulate", "", "`file` of lowerdump calibrate for simulated times; empty: that of -costs. The passes do not see it")
	fs.StringVar(&f.record, "record", "", "write fingerprints of the results to files of this prefix")
	fs.BoolVar(&f.bench, "bench", false, "time the captured step and its parts; with -device=cuda")
	fs.BoolVar(&f.json, "json", false, "print the times as JSON lines")
	fs.IntVar(&f.reps, "reps", 20, "timed replays of -bench")
	fs.IntVar(&f.replays, "replays", 0, "replay the captured step so many times and compare the bits of its outputs; with -device=cuda")
	fs.BoolVar(&f.verbose, "v", false, "say on standard error what was compiled and how collectives are done; with -device=cuda")
	fs.StringVar(&f.trace, "trace", "", "write a Chrome trace of the run beside the simulated one to this file; with -device=cuda")
	fs.BoolVar(&f.eager, "eager", false, "trace a run call by call instead of the captured step")
	fs.IntVar(&f.fakeGPUs, "fake-gpus", 0, hidden+"run on so many GPUs that are this machine's memory")
	fs.IntVar(&f.world, "world", 0, "number of ranks; must be the program's own, 0 takes it")
	fs.BoolVar(&f.procs, "procs", false, "one process per rank instead of one goroutine")
	fs.BoolVar(&f.all, "all", false, "list the outputs of every rank, not only the rank with the largest error")
	fs.BoolVar(&f.timeline, "timeline", true, "print the simulated timeline as text")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of random inputs")
	fs.IntVar(&f.steps, "steps", 1, "run the step this many times; 0: load, place and capture it only, with -device=cuda")
	fs.Float64Var(&f.tolerance, "tolerance", 0, "largest relative error allowed, in the 2-norm; 0: 0.01 for the loss, 0.02 for gradients; against fingerprints 0.0002 for the loss, nothing for integers and 0.02 for others; and equal bits against interp, which holds unless a pass was told to reassociate")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long a rank waits for a peer")
}

// job is a run that is ready to start: the same on the parent and on every rank.
type job struct {
	flags  runFlags
	pair   *step.Pair        // after the passes
	traced *step.Pair        // before
	inputs [][]interp.Tensor // by rank; nil where each rank makes its own
	// indices, by rank, has the integers among inputs made by hash; nil: they are made so, too
	indices [][]interp.Tensor
	symbols []map[string]int64 // by rank; what -sizes names, nil if that is nothing
	prints  []*fingerprint.Set // by rank; what -expect names, if it names fingerprints
	stdin   []byte             // what process ranks must find there, nil if nothing
	log     *slog.Logger       // nil: nobody wants to know
	start   time.Time          // of this process's work, for the log
}

// functionAt says where one half of a step is.
type functionAt struct{ path, name string }

// validate finds what is wrong with the command line, and where the halves are.
func (f *runFlags) validate(files []string) ([]functionAt, error) {
	names := strings.Split(f.fn, ",")
	var halves []functionAt
	switch {
	case len(files) < 1 || len(files) > 2:
		return nil, usagef("want FILE and perhaps BACKWARD-FILE, got %d", len(files))
	case len(files) == 2 && files[0] == "-" && files[1] == "-":
		return nil, usagef("standard input holds one FILE only")
	case len(names) > 2 || len(files) == 2 && f.fn != "" && len(names) != 2:
		return nil, usagef("-func=%s: want one name, or FORWARD,BACKWARD for a step", f.fn)
	case f.device != "host" && f.device != "cuda" && f.device != "interp" || f.procs && f.device == "interp":
		return nil, usagef("-device=%s: have host, cuda, and interp without -procs", f.device)
	case f.prepares() && f.device != "cuda":
		return nil, usagef("-bench, -replays and -trace are for -device=cuda")
	case !slices.Contains([]string{"", "valid", "hash", "quick"}, f.random) || f.same != "data" && f.same != "none":
		return nil, usagef("-random=%s -same=%s: have -random=valid, hash or quick, -same=data or none", f.random, f.same)
	case f.reps < 1 || f.replays < 0:
		return nil, usagef("-reps=%d -replays=%d: want at least 1 and 0", f.reps, f.replays)
	case f.steps < 0 || f.steps == 0 && (f.device != "cuda" || f.prepares() || f.expect != "" || f.record != ""):
		return nil, usagef("-steps=%d: want at least 1, or 0 with -device=cuda and nothing that needs a run", f.steps)
	case !(f.tolerance >= 0):
		return nil, usagef("-tolerance=%v: want a relative error, at least 0", f.tolerance)
	case f.timeout <= 0:
		return nil, usagef("-timeout=%v: want more than 0", f.timeout)
	}
	for i := range max(len(files), len(names)) {
		halves = append(halves, functionAt{files[min(i, len(files)-1)], names[min(i, len(names)-1)]})
	}
	if f.random == "" {
		f.random = "valid"
		if f.device == "cuda" {
			f.random = "quick"
		}
	}
	if f.pipeline == autoPipeline {
		f.pipeline = "default"
		if f.device == "cuda" {
			f.pipeline = "cuda"
		}
	}
	_, err := f.parsed()
	return halves, err
}

// autoPipeline stands for the pipeline made for the device.
const autoPipeline = "auto"

// mostRanks bounds what one machine is asked to be.
const mostRanks = 1024

func runRun(ctx context.Context, t tool, args []string) error {
	var f runFlags
	files, err := parse("run", &f, args)
	if err != nil {
		return err
	}
	halves, err := f.validate(files)
	if err != nil {
		return err
	}
	var kept []byte
	if f.procs && slices.Contains(files, "-") && t.env(launch.EnvChild) == "" {
		if kept, err = io.ReadAll(t.in); err != nil {
			return err
		}
		t.in = bytes.NewReader(kept)
	}
	j, err := t.prepare(ctx, f, halves)
	if err != nil {
		return err
	}
	if t.env(launch.EnvChild) != "" {
		return j.child(ctx, t)
	}
	j.stdin = kept
	p, err := f.platform(t, j.pair.World())
	if err != nil {
		return err
	}
	return errors.Join(j.runOn(ctx, t, p, args), p.close())
}

// runOn runs the ranks and reports what they found.
func (j *job) runOn(ctx context.Context, t tool, p *platform, args []string) error {
	f := &j.flags
	if f.timeline {
		if err := j.timelines(t); err != nil {
			return err
		}
	}
	start := time.Now()
	found, err := j.execute(ctx, t, p, args)
	if err != nil {
		return err
	}
	how := "goroutine"
	switch {
	case f.device == "interp":
		how = "interpreter rank"
	case f.procs:
		how = "process"
	}
	done := count(f.steps, "step")
	if f.steps == 0 {
		done = "captured, not run,"
	}
	fmt.Fprintf(t.out, "%s: %s on %s in %v\n", j.pair.Name, done, count(j.pair.World(), how), time.Since(start).Round(time.Millisecond))
	if f.steps == 0 {
		return j.reportCaptured(t)
	}
	if err := j.reportPrepared(t, found); err != nil {
		return err
	}
	return j.report(ctx, t, resultsOf(found))
}

// capture loads and captures the step on a rank, and leaves it at that.
func (j *job) capture(ctx context.Context, r *rt.Rank, halves []half) error {
	for i := range halves {
		h := &halves[i]
		s, err := rt.Prepare(ctx, r, h.step.Module, h.step.Run, j.options(r), true)
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
func (j *job) reportCaptured(t tool) error {
	halves, _, err := j.lowered()
	if err != nil {
		return err
	}
	for i := range halves {
		p := halves[i].program
		fmt.Fprintf(t.out, "%s.%s: %d instructions, %d streams, an arena of %.2f GiB on each rank\n", j.pair.Name, halves[i].name, len(p.Instrs), len(p.Streams), float64(p.Arena)/(1<<30))
	}
	return nil
}

// prepare loads the files, runs the passes and makes the inputs.
func (t tool) prepare(ctx context.Context, f runFlags, halves []functionAt) (*job, error) {
	t.prices = f.pricing
	j := &job{flags: f, start: time.Now()}
	if f.verbose {
		j.log = slog.New(slog.NewTextHandler(t.err, nil))
	}
	var before, after []*ir.Func
	var in *input
	for i, h := range halves {
		if i == 0 || h.path != halves[0].path || h.name == "" {
			var err error
			if in, err = t.load(h.path); err != nil {
				return nil, err
			}
			if w := in.module.World; f.world != 0 && f.world != w {
				return nil, usagef("-world=%d: the program is for %s", f.world, count(w, "rank"))
			} else if w > mostRanks {
				return nil, fmt.Errorf("%s is for %d ranks; one machine plays %d at most", in.path, w, mostRanks)
			}
			orig := &input{path: in.path, module: in.module.Clone()}
			if fn, err := orig.funcNamed(h.name); err != nil {
				return nil, err
			} else {
				before = append(before, fn)
			}
			if fn, err := t.through(ctx, in, source{pipeline: f.pipeline, fn: h.name}); err != nil {
				return nil, err
			} else {
				after = append(after, fn)
			}
			continue
		}
		fn, err := in.funcNamed(h.name)
		if err != nil {
			return nil, err
		}
		after = append(after, fn)
		before = append(before, before[0].Module().Func(h.name))
	}
	name, _, _ := strings.Cut(filepath.Base(in.path), ".")
	var err error
	if j.pair, err = newPair(name, after); err != nil {
		return nil, err
	}
	if j.traced, err = newPair(name, before); err != nil {
		return nil, err
	}
	if err := j.readPrints(); err != nil {
		return nil, err
	}
	if j.symbols, err = sizesOf(f.sizes, j.pair.Forward.Module()); err != nil {
		return nil, err
	}
	if f.steps == 0 {
		return j, nil
	}
	return j, j.makeInputs()
}

// sizesOf reads -sizes: values of symbols by rank; nil if the text is empty.
func sizesOf(text string, m *ir.Module) ([]map[string]int64, error) {
	if text == "" {
		return nil, nil
	}
	out := make([]map[string]int64, m.World)
	for r := range out {
		out[r] = map[string]int64{}
	}
	for _, part := range strings.Split(text, ",") {
		name, list, _ := strings.Cut(part, "=")
		values := strings.Split(list, "/")
		if m.Symbol(name) == nil {
			have := []string{}
			for _, s := range m.Symbols() {
				have = append(have, s.Name)
			}
			return nil, usagef("-sizes: there is no symbol %q, have %v", name, have)
		}
		if _, ok := out[0][name]; ok {
			return nil, usagef("-sizes: %s is given twice", name)
		}
		if len(values) != 1 && len(values) != m.World {
			return nil, usagef("-sizes: %s: want one value or %d, one for each rank", part, m.World)
		}
		for r := range out {
			n, err := strconv.ParseInt(values[r%len(values)], 10, 64)
			if err != nil || n < 0 || n > m.Symbol(name).Max {
				return nil, usagef("-sizes: %s: want sizes from 0 to %d", part, m.Symbol(name).Max)
			}
			out[r][name] = n
		}
	}
	return out, nil
}

// options are those of a run on one rank.
func (j *job) options(r *rt.Rank) rt.Options {
	o := rt.Options{KeepOutputs: true}
	if j.symbols != nil {
		o.Symbols = j.symbols[r.Info().Rank]
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

func newPair(name string, fs []*ir.Func) (*step.Pair, error) {
	if len(fs) == 1 {
		return &step.Pair{Name: name, Forward: fs[0]}, nil
	}
	return step.New(name, fs[0], fs[1])
}

// execute runs the step on all ranks and returns what each found.
func (j *job) execute(ctx context.Context, t tool, p *platform, args []string) ([]*outcome, error) {
	defer t.busy.phase("running " + count(j.pair.World(), "rank"))()
	switch {
	case j.flags.procs: // each opens its own devices
		return j.processes(ctx, args, t.err)
	case j.flags.device != "interp":
		return j.goroutines(ctx, p)
	}
	in, err := j.allInputs()
	if err != nil {
		return nil, err
	}
	var fw, bw [][]interp.Tensor
	for range j.flags.steps {
		if fw, bw, err = j.pair.Run(ctx, step.Interpret(interp.Options{Symbols: j.symbols}), in); err != nil {
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
func (j *job) config() rt.Config {
	return rt.Config{Timeout: j.flags.timeout, JoinTimeout: max(j.flags.timeout, leastJoin), Log: j.log}
}

// leastJoin is the least time to join in: a rank may compile kernels meanwhile.
const leastJoin = 5 * time.Minute

// errNoResults says that a rank was started by hand with the child's environment.
var errNoResults = errors.New("started as a rank of another run, but " + envResults + " names no directory")
