package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/interp/step"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/launch"
)

var calibrateCommand = command{
	name: "calibrate", args: "[flags] -o COSTS FILE...", doc: "measures on this machine's GPUs what the programs of functions are made of, and writes a table of costs",
	help: `
Each FILE is lowered for GPUs after the passes and runs on one of them for each
rank. Measured is every distinct launch, behind the two before it and with
caches flushed before those; every distinct collective, alone and beside compute;
collectives of one tensor by size; what an edge between streams takes; and how much
compute and communication slow each other down. Times are those of the slowest
rank, from captured graphs. Inputs are random, and in reach of what they index.

-costs of opt, report, run, stats and others takes the table. Give all ranks of a
world the same one. Passes that know more may decide otherwise, and make programs of
which not everything was measured: calibrate again with -costs, and give the second
table to -simulate.

Examples:
  lowerdump calibrate -o costs.json step.fw.graph.json.gz step.bw.graph.json.gz
  lowerdump run -device=cuda -bench -costs costs.json step.fw.graph.json.gz`,
	run: runCalibrate,
}

type calibrateFlags struct {
	run   runFlags // what a run on GPUs needs to know
	out   string
	sweep int64 // largest collective of the sweep, in bytes
	flush int64 // bytes that flush the caches

	given []string // the flags, as process ranks get them
}

func (f *calibrateFlags) define(fs *flag.FlagSet) {
	f.run.libraries.define(fs)
	f.run.pricing.define(fs)
	definePipeline(fs, &f.run.pipeline, "cuda")
	fs.StringVar(&f.out, "o", "costs.json", "write the table to this `file`; - for standard output")
	fs.Int64Var(&f.sweep, "sweep", 256<<20, "size in bytes of the largest single collective; 0 for none")
	fs.Int64Var(&f.flush, "flush", 96<<20, "bytes copied to flush the caches before each launch; 0 for none")
	fs.BoolVar(&f.run.procs, "procs", true, "one process per rank instead of one goroutine")
	fs.IntVar(&f.run.reps, "reps", 5, "timed replays of each measurement; the median counts")
	fs.DurationVar(&f.run.timeout, "timeout", 30*time.Second, "how long a rank waits for a peer")
	fs.IntVar(&f.run.fakeGPUs, "fake-gpus", 0, hidden+"run on so many GPUs that are this machine's memory")
}

func runCalibrate(ctx context.Context, t tool, args []string) error {
	f := calibrateFlags{run: runFlags{device: "cuda", random: "quick", same: "data", steps: 1, seed: 1}}
	files, err := parse("calibrate", &f, args)
	if err != nil {
		return err
	}
	for _, a := range args { // file names stand among flags
		if !slices.Contains(files, a) {
			f.given = append(f.given, a)
		}
	}
	switch {
	case len(files) == 0:
		return usagef("want at least one FILE")
	case f.run.procs && slices.Contains(files, "-"):
		return usagef("standard input needs -procs=false")
	case f.run.reps < 1 || f.sweep < 0 || f.flush < 0 || f.run.timeout <= 0:
		return usagef("-reps=%d -sweep=%d -flush=%d -timeout=%v: want at least 1, 0, 0 and more than 0", f.run.reps, f.sweep, f.flush, f.run.timeout)
	}
	if _, err := f.run.parsed(); err != nil {
		return err
	}
	t.prices = f.run.pricing
	var tables []*cost.Measured
	for _, path := range files {
		m, err := t.calibrated(ctx, &f, path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if m == nil { // this is one rank
			return nil
		}
		fmt.Fprintf(t.err, "%s: %s, %s\n", filepath.Base(path), count(len(m.Instructions), "instruction"), count(len(m.Collectives), "collective"))
		tables = append(tables, m)
	}
	m := joined(tables)
	return t.output(f.out, func(w io.Writer) error {
		_, err := m.WriteTo(w)
		return err
	})
}

// calibrated measures one file's function.
func (t tool) calibrated(ctx context.Context, f *calibrateFlags, path string) (*cost.Measured, error) {
	in, fn, err := t.optimised(ctx, path, source{pipeline: f.run.pipeline, pricing: f.run.pricing})
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(filepath.Base(in.path), ".")
	j := &job{flags: f.run, pair: &step.Pair{Name: name, Forward: fn}, traced: &step.Pair{Name: name, Forward: fn}}
	if err := j.makeInputs(); err != nil {
		return nil, err
	}
	halves, _, err := j.lowered()
	if err != nil {
		return nil, err
	}
	h := &halves[0]
	if slices.ContainsFunc(h.step.Module.Outputs, func(q rt.Param) bool { return q.Async }) || slices.ContainsFunc(h.step.Module.Inputs, func(q rt.Param) bool { return q.Async }) {
		return nil, errors.New("collectives that are in flight when the program starts or ends cannot be measured")
	}
	model, err := f.run.pricing.model()
	if err != nil {
		return nil, err
	}
	c := newCalibration(j, h, f, model)
	if dir := t.env(envResults); t.env(launch.EnvChild) != "" && dir != "" {
		return nil, c.processRank(ctx, t, dir)
	}
	p, err := f.run.platform(t, j.pair.World())
	if err != nil {
		return nil, err
	}
	defer t.busy.phase("measuring @" + fn.Name)()
	if f.run.procs {
		err = c.processes(ctx, f, path)
	} else {
		err = p.local(ctx, j.pair.World(), j.config(), []*rt.Module{c.module}, func(ctx context.Context, r *rt.Rank) error { return c.rank(ctx, r) })
	}
	if err = errors.Join(err, p.close()); err != nil {
		return nil, err
	}
	m := c.table()
	m.Machine = p.name
	return m, nil
}

// processes starts a process for each rank and collects what they found.
func (c *calibration) processes(ctx context.Context, f *calibrateFlags, path string) error {
	dir, err := os.MkdirTemp("", "lowerdump-calibrate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args := append(append([]string{"calibrate"}, f.given...), path)
	if err := launch.Run(ctx, launch.Spec{World: len(c.found), Args: args, Env: []string{envResults + "=" + dir}}); err != nil {
		return err
	}
	for r := range c.found {
		text, err := os.ReadFile(rankPath(dir, "found", r, "json"))
		if err == nil {
			err = json.Unmarshal(text, &c.found[r])
		}
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		if len(c.found[r]) != len(c.found[0]) {
			return fmt.Errorf("rank %d measured %d things, rank 0 %d", r, len(c.found[r]), len(c.found[0]))
		}
	}
	return nil
}

// processRank measures as one process rank and leaves what it found.
func (c *calibration) processRank(ctx context.Context, t tool, dir string) error {
	p, err := c.flags.run.platform(t, 1)
	if err != nil {
		return err
	}
	r, err := rt.Join(ctx, p.opener(), c.j.config(), c.module)
	if err != nil {
		return errors.Join(err, p.close())
	}
	rank := r.Info().Rank
	if err = c.rank(ctx, r); err == nil {
		var text []byte
		if text, err = json.Marshal(c.found[rank]); err == nil {
			err = os.WriteFile(rankPath(dir, "found", rank, "json"), text, 0o600)
		}
	}
	return errors.Join(err, r.Close(), p.close())
}

// joined unites tables of one machine: of what several measured, the mean of the
// times counts.
func joined(tables []*cost.Measured) *cost.Measured {
	out := &cost.Measured{Machine: tables[0].Machine, Ranks: tables[0].Ranks}
	type sum struct{ us, n float64 }
	var keys []string
	instrs := map[string]*sum{}
	type curve struct {
		op    string
		ranks int
		bytes int64
	}
	var points []curve
	comms := map[curve]*sum{}
	type pair struct{ launch, collective string }
	var pairs []pair
	compute, comm := map[pair]*sum{}, map[pair]*sum{}
	var edge, scale sum
	for _, m := range tables {
		for _, e := range m.Instructions {
			if instrs[e.Key] == nil {
				keys, instrs[e.Key] = append(keys, e.Key), &sum{}
			}
			instrs[e.Key].us += e.Us
			instrs[e.Key].n++
		}
		for _, e := range m.Collectives {
			k := curve{e.Op, e.Ranks, e.Bytes}
			if comms[k] == nil {
				points, comms[k] = append(points, k), &sum{}
			}
			comms[k].us += e.Us
			comms[k].n++
		}
		for _, e := range m.Beside {
			k := pair{e.Launch, e.Collective}
			if compute[k] == nil {
				pairs, compute[k], comm[k] = append(pairs, k), &sum{}, &sum{}
			}
			compute[k].us += e.Compute
			compute[k].n++
			comm[k].us += e.Comm
			comm[k].n++
		}
		edge.us, edge.n = edge.us+m.EdgeUs, edge.n+1
		if m.MemoryScale > 0 {
			scale.us, scale.n = scale.us+m.MemoryScale, scale.n+1
		}
	}
	mean := func(s *sum) float64 { return s.us / max(s.n, 1) }
	for _, k := range keys {
		out.Instructions = append(out.Instructions, cost.Instruction{Key: k, Us: mean(instrs[k])})
	}
	for _, k := range points {
		out.Collectives = append(out.Collectives, cost.Collective{Op: k.op, Ranks: k.ranks, Bytes: k.bytes, Us: mean(comms[k])})
	}
	for _, k := range pairs {
		out.Beside = append(out.Beside, cost.Beside{Launch: k.launch, Collective: k.collective, Compute: mean(compute[k]), Comm: mean(comm[k])})
	}
	out.EdgeUs, out.MemoryScale = mean(&edge), mean(&scale)
	return out
}
