package cli

import (
	"context"
	"flag"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/bench"
	"github.com/seed-ee968945/concert/runtime/launch"
)

var calibrateCommand = command{
	name: "calibrate", args: "[flags] -o COSTS FILE...", doc: "measures the launches and collectives of programs on this machine's GPUs and writes a cost table",
	help: `
Each FILE is lowered for GPUs after the passes and runs with one rank per GPU. Measured are:
every distinct launch, after the two launches before it and with caches flushed; every distinct
collective, alone and overlapped with compute, as it occurs in the program; single-tensor
collectives by size; and the cost of an edge between streams. The whole step shows the rest, under
load and from captured graphs with markers: chains of launches without a wait in between, in which
matmuls are joined, kernels start early (programmatic dependent launch) and caches are warm; and
how much compute and communication slow each other down, per chain and per collective. Single
launches and chains count with the slowest rank's time, long launches within the step with the
median rank's. Inputs are random, with valid indices. A backward function after its forward
function (a file of the same name up to the first dot) takes that function's outputs, since the
duration of its launches depends on the data.

Passes with better costs may decide differently and make programs of which not everything
has been measured. So each round after the first starts with the costs of those before and
measures only what is new. What the table of -costs has is not measured again either.

Use the table with -costs of opt, report, run, stats and others. All ranks of a
world must use the same one.

Examples:
  lowerdump calibrate -o costs.json step.fw.graph.json.gz step.bw.graph.json.gz
  lowerdump run -device=cuda -bench -costs costs.json step.fw.graph.json.gz`,
	run: runCalibrate,
}

type calibrateFlags struct {
	run     runFlags // what a run on GPUs needs to know
	out     string
	sweep   int64 // largest collective of the sweep, in bytes
	flush   int64 // bytes that flush the caches
	rounds  int
	load    time.Duration
	random  string // how integers are made
	raw     string // where to leave what the ranks found
	verbose bool
}

func (f *calibrateFlags) define(fs *flag.FlagSet) {
	f.run.libraries.define(fs)
	f.run.pricing.define(fs)
	definePipeline(fs, &f.run.pipeline, "cuda")
	fs.StringVar(&f.out, "o", "costs.json", "write the table to this `file`; - for standard output")
	fs.Int64Var(&f.sweep, "sweep", 256<<20, "size in bytes of the largest single collective; 0 for none")
	fs.Int64Var(&f.flush, "flush", 96<<20, "bytes copied to flush the caches before each launch; 0 for none")
	fs.BoolVar(&f.run.procs, "procs", true, "one process per rank instead of one goroutine")
	fs.IntVar(&f.rounds, "rounds", 2, "rounds of compiling and measuring, each with the costs of the rounds before")
	fs.DurationVar(&f.load, "load", 120*time.Millisecond, "warm-up: replay a step this long before measuring, since GPU clocks drop under load")
	fs.StringVar(&f.random, "random", "quick", "how integer inputs are made: quick, any valid value; or hash, as by run -random=hash")
	fs.StringVar(&f.raw, "raw", "", "write every rank's measurements of the last round to this `file`, as JSON")
	fs.BoolVar(&f.verbose, "v", false, "log progress and times to standard error")
	fs.IntVar(&f.run.reps, "reps", 3, "timed replays per measurement, of which the median is used")
	fs.DurationVar(&f.run.timeout, "timeout", 30*time.Second, "how long a rank waits for a peer")
	defineFakeGPUs(fs, &f.run.fakeGPUs)
}

func runCalibrate(ctx context.Context, t tool, args []string) error {
	f := calibrateFlags{run: runFlags{device: "cuda", random: "quick", same: "none", steps: 1, seed: 1}}
	files, err := parse("calibrate", &f, args)
	if err != nil {
		return err
	}
	switch {
	case len(files) == 0:
		return usagef("want at least one FILE")
	case f.run.procs && slices.Contains(files, "-"):
		return usagef("standard input needs -procs=false")
	case f.run.reps < 1 || f.rounds < 1 || f.sweep < 0 || f.flush < 0 || f.load < 0 || f.run.timeout <= 0:
		return usagef("-reps=%d -rounds=%d -sweep=%d -flush=%d -load=%v -timeout=%v: want at least 1, 1, 0, 0, 0 and more than 0", f.run.reps, f.rounds, f.sweep, f.flush, f.load, f.run.timeout)
	}
	if f.random != "quick" && f.random != "hash" {
		return usagef("-random=%s: want quick or hash", f.random)
	}
	if _, err := t.parsed(f.run.pipeline); err != nil {
		return err
	}
	c, err := f.calibration(t, args, files)
	if err != nil {
		return err
	}
	if t.env(launch.EnvChild) != "" && t.env(bench.EnvResults) != "" {
		return c.CalibrateRank(ctx, t.console())
	}
	return c.Calibrate(ctx, t.console())
}

// calibration is what the flags ask for.
func (f *calibrateFlags) calibration(t tool, args, files []string) (*bench.Calibration, error) {
	r := &f.run
	gpus, err := r.libraries.options()
	if err != nil {
		return nil, err
	}
	c := &bench.Calibration{
		Config: bench.Config{Device: r.device, GPUs: gpus, FakeGPUs: r.fakeGPUs, Processes: r.procs, Args: append([]string{"calibrate"}, args...),
			Timeout: r.timeout, Steps: r.steps, Random: r.random, Same: r.same, Seed: r.seed, Reps: r.reps},
		Files: files, Costs: r.pricing.costs, Out: f.out, Raw: f.raw, Rounds: f.rounds, Sweep: f.sweep, Flush: f.flush, Load: f.load, Integers: f.random, Verbose: f.verbose,
	}
	c.Make = func(ctx context.Context, path, costs string) (*bench.Made, error) {
		prices := r.pricing
		prices.costs = costs
		made, err := t.compiled(ctx, path, source{pipeline: r.pipeline, pricing: prices, device: r.device})
		if err != nil {
			return nil, err
		}
		return &bench.Made{Name: stem(made.path), Data: dataOf(made.path), Func: made.function, Model: made.Costs()}, nil
	}
	return c, nil
}
