package cli

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/bench"
	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/runtime/launch"
)

var runCommand = command{
	name: "run", args: "[flags] FILE [BACKWARD-FILE], or TEST.mlir...", doc: "runs a function, or forward and backward of a step, on all ranks and compares the results",
	help: `
Inputs come from -inputs, a directory of recordings named
NAME.fw.rankR.in.safetensors, or are random with -seed: -random=valid makes values valid
for the operations that read them (indices in range), -random=hash is fast and the same as in
bench/peer_step.py, -random=quick makes integers as valid does and the rest as hash. Inputs
found by their traced names in NAME.data.safetensors next to the file (a model's buffers and
constants) have the values stored there.
Results are compared with -expect: a directory of recordings
(NAME.fw.rankR.out.safetensors and .bw.), a prefix of fingerprints
(PREFIX.rankR.safetensors, as bench/peer_step.py and -record write them), or
"interp" for the reference interpreter's results on the program before the
passes: bit by bit, or, where the device or a rewrite rounds differently, within a bound
that the table lists with the number of rounding operations. Outputs that agree but are all
zeros, or all one number, are counted separately. A result, recorded or of a GPU, that would be
zero but for rounding has no digits to agree in: where float64 shows that, the limit is 32 times the
interpreter's own rounding error. A GPU's may also be twice as far from what float64 gives as the
interpreter's. A backward function gets the forward function's
outputs, and ones as incoming gradients. An async input is a collective already in flight when the
program starts; async outputs are awaited.

For pipeline stages (in FILE, or made by pass pipeline) each rank runs the function of its stage.
With -expect=interp, stages in FILE are compared with the interpreter's run of them, and those
made by the pass with the step's average over the micro-batches.

-device=host lowers the functions and runs the programs on ranks that are goroutines, or with
-procs processes, over shared memory, and over TCP between the hosts of -hosts.
-device=cuda does the same on this machine's GPUs; except for timing, ranks may share a GPU.
-device=interp runs the reference interpreter on the functions after the passes.
-device=cuda -steps=0 loads, places and captures the step without running it.

The inputs of a StableHLO program are in NAME.in.safetensors, or for each rank
in NAME.in.rankR.safetensors, as 000, 001, ...; its results likewise with out. float32
may replace bfloat16, and a tensor of one element a scalar.

Without -inputs, StableHLO files with check.expect_... operations, three files and more, and folders
are tests: each part between lines of // ----- runs @main, or else every public function without
arguments, and evaluates these operations. One line for each says passed, failed or skipped, with the
reason.

On GPUs -bench captures each function into a graph and prints the time of a step,
the median of the replays on the slowest rank: captured, uncaptured, and without
collectives; their cost, which is the difference; how long compute waits for
collectives in a traced step; and the exposed time, the smaller of these two. Next to it
is the simulation with the costs of -costs or -simulate: its error relative to the measured
step, and the exposed time that it misses, as a fraction of the step. -replays runs the captured
step N times and compares the results bit by bit. -trace writes the measured timeline next to the
simulated one.

Examples:
  lowerdump run -inputs testdata/vectors -expect testdata/vectors \
      testdata/graphs/tiny_fsdp2.fw.graph.json.gz testdata/graphs/tiny_fsdp2.bw.graph.json.gz
  lowerdump run -procs -expect interp mlp.ir
  lowerdump run -procs -hosts=2 -expect interp mlp.ir
  lowerdump run -func=fw,bw -passes=order-only -expect interp step.ir
  lowerdump run -passes='pipeline{stages=4,micro-batches=8},default' -expect interp step.ir
  lowerdump run -device=interp add.mlir tests/
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
	hosts                  int
	eager                  bool // trace call by call
	bench, json, verbose   bool
	rounding               step.Rounding // of passes that were told to and have done something
	seed                   uint64
	steps, replays, reps   int
	tolerance              float64
	timeout                time.Duration

	flags *flag.FlagSet
	args  []string // the command line, as process ranks get it
	kept  []byte   // what was read from standard input, for process ranks; nil if nothing
}

// prepares reports whether something is asked for that needs captured steps.
func (f *runFlags) prepares() bool { return f.bench || f.replays > 0 || f.trace != "" }

func (f *runFlags) define(fs *flag.FlagSet) {
	f.flags = fs
	definePipeline(fs, &f.pipeline, autoPipeline)
	f.libraries.define(fs)
	f.pricing.define(fs)
	fs.StringVar(&f.fn, "func", "", "function to use, if FILE has several; FORWARD,BACKWARD for a training step in one FILE")
	fs.StringVar(&f.device, "device", "host", "device: host, cuda or interp")
	fs.StringVar(&f.inputs, "inputs", "", "directory of recorded inputs; default: random inputs")
	fs.StringVar(&f.expect, "expect", "", "directory of recorded results, prefix of fingerprints, or interp")
	fs.StringVar(&f.random, "random", "", "how random inputs are made: valid, hash or quick; default: quick with -device=cuda, else valid")
	fs.StringVar(&f.same, "same", "data", "with -random=hash, which inputs are the same on all ranks: data (those of role data and of fewer than two dimensions) or none")
	fs.StringVar(&f.sizes, "sizes", "", "values of symbols: a=5,b=3/4 sets a to 5 on every rank and b to 3 and 4 on ranks 0 and 1; default: derived from the inputs, or the hints")
	fs.StringVar(&f.peer, "peer", "", "`file` with the output of bench/peer_step.py: -bench prints its times next to ours")
	fs.StringVar(&f.simulate, "simulate", "", "calibration `file` for the simulated times only, not for passes; default: that of -costs")
	fs.StringVar(&f.record, "record", "", "write fingerprints of the results to files with this prefix")
	fs.BoolVar(&f.bench, "bench", false, "time the captured step and its parts; with -device=cuda")
	fs.BoolVar(&f.json, "json", false, "print the times as JSON lines")
	fs.IntVar(&f.reps, "reps", 20, "timed replays of -bench")
	fs.IntVar(&f.replays, "replays", 0, "replay the captured step N times and compare its outputs bit by bit; with -device=cuda")
	fs.BoolVar(&f.verbose, "v", false, "log to standard error what was compiled and how collectives are implemented (-device=cuda), or how many tests pass per operation")
	fs.StringVar(&f.trace, "trace", "", "write a Chrome trace of the measured and the simulated step to this file; with -device=cuda")
	fs.BoolVar(&f.eager, "eager", false, "trace a run without capture")
	defineFakeGPUs(fs, &f.fakeGPUs)
	fs.IntVar(&f.world, "world", 0, "number of ranks, which must match the program's; 0: the program's")
	fs.BoolVar(&f.procs, "procs", false, "one process per rank instead of one goroutine")
	fs.IntVar(&f.hosts, "hosts", 0, "with -procs, treat the ranks as on N hosts that share no memory: they use TCP, or NCCL with -device=cuda; 0: one host")
	fs.BoolVar(&f.all, "all", false, "list the outputs of every rank, not only of the rank with the largest error")
	fs.BoolVar(&f.timeline, "timeline", true, "print the simulated timeline as text")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of random inputs")
	fs.IntVar(&f.steps, "steps", 1, "run the step this many times; 0: load, place and capture it only, with -device=cuda")
	fs.Float64Var(&f.tolerance, "tolerance", 0, "largest relative error allowed, in the 2-norm; default: 0.01 for the loss, 0.02 for gradients; against fingerprints 0.0002 for the loss, 0 for integers, 0.02 for others; against interp 0 where results are bitwise equal by design (integers, moved data, the host device without reassociation or excess precision), else the rounding bound")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long a rank waits for a peer")
}

// functionAt says where one half of a step is.
type functionAt struct{ path, name string }

// validate finds what is wrong with the command line, and where the halves are.
func (f *runFlags) validate(t tool, files []string) ([]functionAt, error) {
	names := strings.Split(f.fn, ",")
	var halves []functionAt
	switch {
	case len(files) < 1 || len(files) > 2:
		return nil, usagef("want FILE or FILE BACKWARD-FILE, got %d", len(files))
	case len(files) == 2 && files[0] == "-" && files[1] == "-":
		return nil, usagef("only one FILE can be standard input")
	case len(names) > 2 || len(files) == 2 && f.fn != "" && len(names) != 2:
		return nil, usagef("-func=%s: want one name, or FORWARD,BACKWARD for a step", f.fn)
	case f.device != "host" && f.device != "cuda" && f.device != "interp" || f.procs && f.device == "interp":
		return nil, usagef("-device=%s: want host, cuda, or interp (without -procs)", f.device)
	case f.hosts < 0:
		return nil, usagef("-hosts=%d: want at least 0", f.hosts)
	case f.hosts > 0 && !f.procs:
		return nil, usagef("-hosts=%d needs -procs", f.hosts)
	case f.prepares() && f.device != "cuda":
		return nil, usagef("-bench, -replays and -trace need -device=cuda")
	case f.device != "cuda" && f.libraryFlag() != "":
		return nil, usagef("-%s needs -device=cuda", f.libraryFlag())
	case f.json && !f.bench:
		return nil, usagef("-json needs -bench")
	case !slices.Contains([]string{"", "valid", "hash", "quick"}, f.random) || f.same != "data" && f.same != "none":
		return nil, usagef("-random=%s -same=%s: want -random=valid, hash or quick, -same=data or none", f.random, f.same)
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
	f.resolve()
	_, err := t.parsed(f.pipeline)
	return halves, err
}

// libraryFlag names a flag on the command line that says how GPUs are used, if there is one.
func (f *runFlags) libraryFlag() (name string) {
	gpu := flag.NewFlagSet("", flag.ContinueOnError)
	new(libraryFlags).define(gpu)
	f.flags.Visit(func(given *flag.Flag) {
		if gpu.Lookup(given.Name) != nil {
			name = given.Name
		}
	})
	return name
}

// resolve names the pipeline made for the device.
func (f *runFlags) resolve() {
	if f.pipeline == autoPipeline {
		f.pipeline = "default"
		if f.device == "cuda" {
			f.pipeline = "cuda"
		}
	}
}

// autoPipeline stands for the pipeline made for the device.
const autoPipeline = "auto"

// mostFakeGPUs is the largest NVLink domain there is. All links are told to every rank.
const mostFakeGPUs = 72

func defineFakeGPUs(fs *flag.FlagSet, n *int) {
	fs.Func("fake-gpus", hidden+"run on so `many` GPUs that are this machine's memory", func(s string) (err error) {
		if *n, err = strconv.Atoi(s); err != nil || *n < 0 || *n > mostFakeGPUs {
			return fmt.Errorf("want a number from 0 to %d", mostFakeGPUs)
		}
		return nil
	})
}

// mostRanks bounds what one machine is asked to be.
const mostRanks = 1024

func runRun(ctx context.Context, t tool, args []string) error {
	var f runFlags
	files, err := parse("run", &f, args)
	if err != nil {
		return err
	}
	if f.tests(files) {
		return t.runTests(ctx, &f, files)
	}
	halves, err := f.validate(t, files)
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
	f.kept, f.args = kept, args
	j, err := t.job(ctx, &f, halves)
	if err != nil {
		return err
	}
	if t.env(launch.EnvChild) != "" {
		return j.Child(ctx, t.console())
	}
	return j.Run(ctx, t.console())
}

// job loads the files, runs the passes and makes the inputs.
func (t tool) job(ctx context.Context, f *runFlags, halves []functionAt) (*bench.Job, error) {
	var fs []*compile.Function
	var c *compiled
	for i, h := range halves {
		if i == 0 || h.path != halves[0].path || h.name == "" {
			t.entry = h.name
			in, err := t.load(h.path)
			if err != nil {
				return nil, err
			}
			if w := in.module.World; f.world != 0 && f.world != w {
				return nil, usagef("-world=%d: the program is for %s", f.world, count(w, "rank"))
			} else if w > mostRanks {
				return nil, fmt.Errorf("%s is for %d ranks; one machine can run %d at most", in.path, w, mostRanks)
			}
			if c, err = t.compile(ctx, in, source{pipeline: f.pipeline, fn: h.name, device: f.device, pricing: f.pricing, staged: len(halves) == 1}, nil); err != nil {
				return nil, err
			}
			if c.function == nil {
				return t.staged(f, in, c)
			}
			for _, s := range c.Report.Steps {
				switch {
				case s.Changed && strings.Contains(s.Spec, "excess-precision=true"):
					f.rounding = step.FewerRoundings
				case s.Changed && strings.Contains(s.Spec, "reassociate=true"):
					f.rounding = max(f.rounding, step.Reassociated)
				}
			}
			fs = append(fs, c.function)
			continue
		}
		if _, err := (&input{path: c.path, module: c.Module}).funcNamed(h.name); err != nil {
			return nil, err
		}
		fs = append(fs, c.Func(h.name))
	}
	cfg, err := f.config(t, c)
	if err != nil {
		return nil, err
	}
	if c.hlo != nil {
		cfg.StableHLO = c.hlo
	}
	cfg.Data = dataOf(c.path)
	return bench.New(cfg, stem(c.path), fs...)
}

// staged readies a run of stages, which FILE has, or a pass has made.
func (t tool) staged(f *runFlags, in *input, c *compiled) (*bench.Job, error) {
	if c.Module.World > mostRanks {
		return nil, fmt.Errorf("%s is for %d ranks; one machine can run %d at most", in.path, c.Module.World, mostRanks)
	}
	cfg, err := f.config(t, c)
	if err != nil {
		return nil, err
	}
	var whole *ir.Func
	if len(c.Input.Stages()) == 0 {
		whole = c.Input.Funcs()[0]
	}
	return bench.NewStages(cfg, stem(c.path), c.Result, whole)
}

// stem is NAME of NAME.fw.graph.json.gz, NAME.stablehlo.mlir and the like, which may have dots itself.
func stem(path string) string {
	name := filepath.Base(path)
	for {
		dot := strings.LastIndexByte(name, '.')
		if dot <= 0 {
			return name
		}
		switch name[dot+1:] {
		case "gz", "json", "graph", "fw", "bw", "ir", "mlir", "stablehlo", "hlo", "txt":
			name = name[:dot]
		default:
			return name
		}
	}
}

// dataOf is the file NAME.data.safetensors beside a traced graph, if it is there.
func dataOf(path string) string {
	data := filepath.Join(filepath.Dir(path), stem(path)+".data.safetensors")
	if _, err := os.Stat(data); err != nil {
		return ""
	}
	return data
}

// config is what the flags ask for.
func (f *runFlags) config(t tool, of *compiled) (bench.Config, error) {
	c := bench.Config{Device: f.device, FakeGPUs: f.fakeGPUs, Processes: f.procs, Hosts: f.hosts, Args: append([]string{"run"}, f.args...), Stdin: f.kept, Timeout: f.timeout, Steps: f.steps,
		Inputs: f.inputs, Random: f.random, Same: f.same, Seed: f.seed, Expect: f.expect, Record: f.record, Tolerance: f.tolerance, All: f.all, Rounding: f.rounding,
		Bench: f.bench, JSON: f.json, Reps: f.reps, Replays: f.replays, Trace: f.trace, Eager: f.eager, Peer: f.peer, Timelines: f.timeline}
	if f.verbose {
		c.Log = slog.New(slog.NewTextHandler(t.err, nil))
	}
	from := f.pricing
	if f.simulate != "" {
		from.costs = f.simulate
	}
	var err error
	if c.Simulate, err = from.measured(); err != nil {
		return c, err
	}
	c.Model = of.Costs()
	if c.Symbols, err = sizesOf(f.sizes, of.Module); err != nil || f.device != "cuda" {
		return c, err
	}
	c.GPUs, err = f.libraries.options()
	c.GPUs.Log = c.Log
	return c, err
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
			return nil, usagef("-sizes: no symbol %q; the program has %s", name, cmp.Or(strings.Join(have, ", "), "none"))
		}
		if _, ok := out[0][name]; ok {
			return nil, usagef("-sizes: %s is given twice", name)
		}
		if len(values) != 1 && len(values) != m.World {
			return nil, usagef("-sizes: %s: want one value or %d, one for each rank", part, m.World)
		}
		for r := range out {
			n, err := strconv.ParseInt(values[r%len(values)], 10, 64)
			if y := m.Symbol(name); err != nil || n < y.Min || n > y.Max {
				return nil, usagef("-sizes: %s: want sizes from %d to %d", part, y.Min, y.Max)
			}
			out[r][name] = n
		}
	}
	return out, nil
}
