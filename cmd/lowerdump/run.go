package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
NAME.fw.rankR.in.safetensors, or are random with -seed. Results are compared with
-expect: a directory of recordings (NAME.fw.rankR.out.safetensors and .bw.), or
"interp" for what the reference interpreter makes of the program before the
passes. A backward function gets the forward function's outputs, and ones as
incoming gradients. An async input gets a collective that is under way when the
program starts; async outputs are awaited.

-device=host lowers the functions and runs the programs on ranks that are
goroutines, or with -procs processes, over shared memory; -device=interp runs the
reference interpreter on the functions after the passes.

Examples:
  lowerdump run -inputs testdata/vectors -expect testdata/vectors \
      testdata/graphs/tiny_fsdp2.fw.graph.json.gz testdata/graphs/tiny_fsdp2.bw.graph.json.gz
  lowerdump run -procs -expect interp mlp.ir
  lowerdump run -func=fw,bw -passes=arena -expect interp step.ir`,
	run: runRun,
}

type runFlags struct {
	source
	device, inputs, expect string
	world                  int
	procs, all, timeline   bool
	seed                   uint64
	steps                  int
	tolerance              float64
	timeout                time.Duration
}

func (f *runFlags) define(fs *flag.FlagSet) {
	definePipeline(fs, &f.pipeline, "default")
	fs.StringVar(&f.fn, "func", "", "function to take from a FILE that holds several; FORWARD,BACKWARD takes both halves of a step from one FILE")
	fs.StringVar(&f.device, "device", "host", "what executes: host or interp")
	fs.StringVar(&f.inputs, "inputs", "", "directory of recorded inputs; random ones if empty")
	fs.StringVar(&f.expect, "expect", "", "directory of recorded results, or interp")
	fs.IntVar(&f.world, "world", 0, "number of ranks; must be the program's own, 0 takes it")
	fs.BoolVar(&f.procs, "procs", false, "one process per rank instead of one goroutine")
	fs.BoolVar(&f.all, "all", false, "list the outputs of every rank, not only the rank with the largest error")
	fs.BoolVar(&f.timeline, "timeline", true, "print the simulated timeline as text")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of random inputs")
	fs.IntVar(&f.steps, "steps", 1, "run the step this many times")
	fs.Float64Var(&f.tolerance, "tolerance", 0, "largest relative error allowed, in the 2-norm; 0: 0.01 for the loss, 0.02 for gradients, and equal bits against interp, which holds unless a pass was told to reassociate")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long a rank waits for a peer")
}

// job is a run that is ready to start: the same on the parent and on every rank.
type job struct {
	flags  runFlags
	pair   *step.Pair // after the passes
	traced *step.Pair // before
	inputs [][]interp.Tensor
	stdin  []byte // what process ranks must find there, nil if nothing
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
	case f.device != "host" && f.device != "interp" || f.procs && f.device != "host":
		return nil, usagef("-device=%s: have host, and interp without -procs", f.device)
	case f.steps < 1:
		return nil, usagef("-steps=%d: want at least 1", f.steps)
	case !(f.tolerance >= 0):
		return nil, usagef("-tolerance=%v: want a relative error, at least 0", f.tolerance)
	case f.timeout <= 0:
		return nil, usagef("-timeout=%v: want more than 0", f.timeout)
	}
	for i := range max(len(files), len(names)) {
		halves = append(halves, functionAt{files[min(i, len(files)-1)], names[min(i, len(names)-1)]})
	}
	_, err := f.parsed()
	return halves, err
}

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
	if f.timeline {
		if err := j.timelines(t); err != nil {
			return err
		}
	}
	start := time.Now()
	fw, bw, err := j.execute(ctx, t, args)
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
	fmt.Fprintf(t.out, "%s: %s on %s in %v\n", j.pair.Name, count(f.steps, "step"), count(j.pair.World(), how), time.Since(start).Round(time.Millisecond))
	return j.report(ctx, t, fw, bw)
}

// prepare loads the files, runs the passes and makes the inputs.
func (t tool) prepare(ctx context.Context, f runFlags, halves []functionAt) (*job, error) {
	j := &job{flags: f}
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
			if fn, err := t.through(ctx, in, source{f.pipeline, h.name}); err != nil {
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
	if f.inputs != "" {
		j.inputs, err = j.pair.ReadAllInputs(f.inputs)
	} else {
		j.inputs, err = interp.RandomInputs(j.traced.Forward, f.seed, interp.RandomOptions{})
	}
	return j, err
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

// execute runs the step on all ranks and returns the outputs of both halves by rank.
func (j *job) execute(ctx context.Context, t tool, args []string) (fw, bw [][]interp.Tensor, err error) {
	defer t.busy.phase("running " + count(j.pair.World(), "rank"))()
	switch {
	case j.flags.device == "interp":
		for range j.flags.steps {
			if fw, bw, err = j.pair.Run(ctx, step.Interpret(interp.Options{}), j.inputs); err != nil {
				return nil, nil, err
			}
		}
		return fw, bw, nil
	case j.flags.procs:
		return j.processes(ctx, t, args)
	}
	return j.goroutines(ctx)
}

// processes runs this program once per rank and collects what the ranks leave in a directory.
func (j *job) processes(ctx context.Context, t tool, args []string) (fw, bw [][]interp.Tensor, err error) {
	dir, err := os.MkdirTemp("", "lowerdump-run-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	env := []string{envResults + "=" + dir}
	if j.stdin != nil {
		kept := filepath.Join(dir, "stdin")
		if err := os.WriteFile(kept, j.stdin, 0o600); err != nil {
			return nil, nil, err
		}
		env = append(env, envStdin+"="+kept)
	}
	// What a rank says in failing is part of the error; nothing else is worth repeating for each.
	err = launch.Run(ctx, launch.Spec{World: j.pair.World(), Args: append([]string{"run"}, args...), Env: env})
	if err != nil {
		return nil, nil, err
	}
	for r := range j.pair.World() {
		f, err := readOutputs(dir, "fw", r)
		if err != nil {
			return nil, nil, err
		}
		fw = append(fw, f)
		if j.pair.Backward == nil {
			continue
		}
		b, err := readOutputs(dir, "bw", r)
		if err != nil {
			return nil, nil, err
		}
		bw = append(bw, b)
	}
	return fw, bw, nil
}

// report compares the results and prints a table.
func (j *job) report(ctx context.Context, t tool, fw, bw [][]interp.Tensor) error {
	end := t.busy.phase("computing what is expected")
	want, err := j.expected(ctx)
	end()
	if err != nil {
		return err
	}
	if want == nil {
		return j.summary(t, fw, bw)
	}
	var all []step.Result
	for r := range fw {
		var b []interp.Tensor
		if bw != nil {
			b = bw[r]
		}
		rs, err := step.Compare(r, want[r], fw[r], b)
		if err != nil {
			return err
		}
		all = append(all, rs...)
	}
	bad := 0
	for i := range all {
		switch {
		case j.flags.tolerance > 0:
			all[i].Limit = j.flags.tolerance
		case j.flags.expect == "interp":
			all[i].Limit = 0
		}
		if !all[i].OK() {
			bad++
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%s holds no result to compare with", j.flags.expect)
	}
	shown := all
	loss, gradient := step.Worst(all)
	if !j.flags.all {
		shown = worstRanks(all)
	}
	fmt.Fprint(t.out, step.Table(shown))
	if loss != nil && loss.Output == 0 && len(fw[loss.Rank][0].Shape) == 0 {
		fmt.Fprintf(t.out, "loss %.6f, relative error %.2g\n", fw[loss.Rank][0].Float64s()[0], loss.Diff.Rel)
	}
	if gradient != nil {
		fmt.Fprintf(t.out, "worst gradient error %.2g (rank %d, %s)\n", gradient.Diff.Rel, gradient.Rank, gradient.Name)
	}
	if bad > 0 {
		fmt.Fprintf(t.out, "%s: %d of %d outputs are too far from what is expected\n", t.colour("31", "FAIL"), bad, len(all))
		return errFindings
	}
	fmt.Fprintf(t.out, "%s: all %s agree\n", t.colour("32", "ok"), count(len(all), "output"))
	return nil
}

// worstRanks keeps of every output the rank with the largest error.
func worstRanks(all []step.Result) []step.Result {
	type output struct {
		backward bool
		number   int
	}
	at := map[output]int{}
	var out []step.Result
	for _, r := range all {
		k := output{r.Backward, r.Output}
		i, seen := at[k]
		switch {
		case !seen:
			at[k] = len(out)
			out = append(out, r)
		case !(r.Diff.Rel <= out[i].Diff.Rel): // or NaN
			out[i] = r
		}
	}
	return out
}

// expected returns what to compare with, by rank; nil if nothing was asked for.
func (j *job) expected(ctx context.Context) ([][]step.Expected, error) {
	out := make([][]step.Expected, j.pair.World())
	switch j.flags.expect {
	case "":
		return nil, nil
	case "interp":
		fw, bw, err := j.traced.Run(ctx, step.Interpret(interp.Options{}), j.inputs)
		if err != nil {
			return nil, err
		}
		add := func(f *ir.Func, ts [][]interp.Tensor, backward bool) {
			for r := range ts {
				for k, s := range interp.OutputSlots(f) {
					out[r] = append(out[r], step.Expected{Backward: backward, Output: k, Name: s.Name, Tensor: ts[r][k]})
				}
			}
		}
		add(j.traced.Forward, fw, false)
		if bw != nil {
			add(j.traced.Backward, bw, true)
		}
		return out, nil
	}
	for r := range out {
		var err error
		if out[r], err = j.pair.ReadExpected(j.flags.expect, r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// summary prints the outputs where there is nothing to compare them with.
func (j *job) summary(t tool, fw, bw [][]interp.Tensor) error {
	for _, half := range []struct {
		name string
		f    *ir.Func
		ts   [][]interp.Tensor
	}{{"fw", j.pair.Forward, fw}, {"bw", j.pair.Backward, bw}} {
		if half.f == nil {
			continue
		}
		slots := interp.OutputSlots(half.f)
		for r := range half.ts {
			for k, out := range half.ts[r] {
				if k >= 4 && !j.flags.all {
					fmt.Fprintf(t.out, "rank %d %s  ... %d more outputs; -all lists them\n", r, half.name, len(half.ts[r])-k)
					break
				}
				note := ""
				if !out.Finite() {
					note = "  NOT FINITE"
				}
				fmt.Fprintf(t.out, "rank %d %s  %%%s = %v%s\n", r, half.name, slots[k].Name, out, note)
			}
		}
	}
	return nil
}

// config is how ranks join their world.
func (j *job) config() rt.Config { return rt.Config{Timeout: j.flags.timeout} }

// errNoResults says that a rank was started by hand with the child's environment.
var errNoResults = errors.New("started as a rank of another run, but " + envResults + " names no directory")
