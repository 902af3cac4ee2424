package cli

import (
	"context"
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/bench"
	"github.com/seed-ee968945/concert/runtime/launch"
)

var calibrateCommand = command{
	name: "calibrate", args: "[flags] -o COSTS FILE...", doc: "measures on this machine's GPUs what the programs of functions are made of, and writes a table of costs",
	help: `
Each FILE is lowered for GPUs after the passes and runs on one of them for each
rank. Measured is every distinct launch, behind the two before it and with
caches flushed before those; every distinct collective, alone or beside compute, as
it stands in the program; collectives of one tensor by size; and what an edge between
streams takes. The whole step shows the rest, under load and from captured graphs with
marks in them: the times of chains of launches between which their stream waits for
nothing, in which matmuls are joined, kernels begin early and caches are as they are,
and how much compute and communication slow each other down, each chain and collective
by itself. Times of launches by themselves and of chains are those of the slowest rank,
those of long launches in the step of the middle one.
Inputs are random, and in reach of what they index. A backward function whose forward
one comes before it, from a file of the same name up to the first dot, takes what that
leaves: how long its launches take depends on its numbers.

Passes that know more may decide otherwise, and make programs of which not everything
was measured: so each round but the first begins with the costs of those before, and
measures what is new. What the table of -costs has is not measured again either.

-costs of opt, report, run, stats and others takes the table. Give all ranks of a
world the same one.

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
	fs.IntVar(&f.rounds, "rounds", 2, "how often to make and measure the programs, each time with the costs of the times before")
	fs.DurationVar(&f.load, "load", 120*time.Millisecond, "replay a step for so long before looking at one: the clocks of GPUs under load are lower")
	fs.StringVar(&f.random, "random", "quick", "how integers among inputs are made: quick, anywhere in reach; or hash, as by run -random=hash")
	fs.StringVar(&f.raw, "raw", "", "write what every rank measured in the last round to this `file`, as JSON")
	fs.BoolVar(&f.verbose, "v", false, "say how long things take, on standard error")
	fs.IntVar(&f.run.reps, "reps", 3, "timed replays of each measurement; the median counts")
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
		return usagef("-random=%s: have quick and hash", f.random)
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
		name, _, _ := strings.Cut(filepath.Base(made.path), ".")
		return &bench.Made{Name: name, Data: dataBeside(made.path), Func: made.function, Model: made.Costs()}, nil
	}
	return c, nil
}
