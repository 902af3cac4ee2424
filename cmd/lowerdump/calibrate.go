package main

import (
	"bytes"
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
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
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
nothing, in which products are joined, kernels begin early and caches are as they are,
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
	fs.IntVar(&f.rounds, "rounds", 2, "how often to make and measure the programs, each time with the costs of the times before")
	fs.DurationVar(&f.load, "load", 120*time.Millisecond, "replay a step for so long before looking at one: the clocks of GPUs under load are lower")
	fs.StringVar(&f.random, "random", "quick", "how integers among inputs are made: quick, anywhere in reach; or hash, as by run -random=hash")
	fs.StringVar(&f.raw, "raw", "", "write what every rank measured in the last round to this `file`, as JSON")
	fs.BoolVar(&f.verbose, "v", false, "say how long things take, on standard error")
	fs.IntVar(&f.run.reps, "reps", 3, "timed replays of each measurement; the median counts")
	fs.DurationVar(&f.run.timeout, "timeout", 30*time.Second, "how long a rank waits for a peer")
	fs.IntVar(&f.run.fakeGPUs, "fake-gpus", 0, hidden+"run on so many GPUs that are this machine's memory")
}

func runCalibrate(ctx context.Context, t tool, args []string) error {
	f := calibrateFlags{run: runFlags{device: "cuda", random: "quick", same: "none", steps: 1, seed: 1}}
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
	case f.run.reps < 1 || f.rounds < 1 || f.sweep < 0 || f.flush < 0 || f.load < 0 || f.run.timeout <= 0:
		return usagef("-reps=%d -rounds=%d -sweep=%d -flush=%d -load=%v -timeout=%v: want at least 1, 1, 0, 0, 0 and more than 0", f.run.reps, f.rounds, f.sweep, f.flush, f.load, f.run.timeout)
	}
	if f.random != "quick" && f.random != "hash" {
		return usagef("-random=%s: have quick and hash", f.random)
	}
	if _, err := f.run.parsed(); err != nil {
		return err
	}
	dir := t.env(envResults)
	if t.env(launch.EnvChild) != "" && dir != "" {
		s, err := t.session(ctx, &f, files)
		if err != nil {
			return err
		}
		return s.processRank(ctx, t, dir)
	}
	return t.calibrated(ctx, &f, files)
}

// calibrated measures the functions of files, and writes the table after every round:
// what comes later only adds to it.
func (t tool) calibrated(ctx context.Context, f *calibrateFlags, files []string) error {
	dir, err := os.MkdirTemp("", "lowerdump-calibrate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var text bytes.Buffer
	save := func() error {
		return t.output(f.out, func(w io.Writer) error {
			_, err := w.Write(text.Bytes())
			return err
		})
	}
	piped := f.out == "" || f.out == "-"
	for round := range f.rounds {
		start := time.Now()
		if round > 0 {
			if err := f.settle(filepath.Join(dir, fmt.Sprintf("settled-%d.json", round))); err != nil {
				return err
			}
		}
		s, err := t.session(ctx, f, files)
		if err != nil {
			return err
		}
		if round > 0 && !s.news() {
			break
		}
		if s.known, err = s.measure(ctx, t, dir); err != nil {
			return err
		}
		fmt.Fprintf(t.err, "round %d of %s: %s, %s, %v\n", round+1, count(len(files), "function"), count(len(s.known.Instructions), "instruction"),
			count(len(s.known.Collectives), "collective"), time.Since(start).Round(time.Second/10))
		f.run.pricing.costs = filepath.Join(dir, fmt.Sprintf("costs-%d.json", round))
		text.Reset()
		if _, err = s.known.WriteTo(&text); err == nil {
			err = os.WriteFile(f.run.pricing.costs, text.Bytes(), 0o600)
		}
		if err == nil && !piped {
			err = save()
		}
		if err != nil {
			return err
		}
	}
	if piped {
		return save()
	}
	return nil
}

// settle lets the passes of a next round see what the last one found. The table that is
// given out keeps what the last round found from them: so they make the programs of
// that round, of which everything is known.
func (f *calibrateFlags) settle(name string) error {
	known, err := f.run.pricing.measured()
	if err != nil {
		return err
	}
	known = known.Clone()
	for i := range known.Instructions {
		known.Instructions[i].Late = false
	}
	f.run.pricing.costs = name
	var text bytes.Buffer
	if _, err := known.WriteTo(&text); err != nil {
		return err
	}
	return os.WriteFile(f.run.pricing.costs, text.Bytes(), 0o600)
}

// session is one round: programs that are measured in one world.
type session struct {
	flags *calibrateFlags
	files []string
	cals  []*calibration
	known *cost.Measured  // nil before the first round
	seen  map[string]bool // what is known, or under way: keys of findings
	found [][]finding     // by rank
}

// session makes the programs.
func (t tool) session(ctx context.Context, f *calibrateFlags, files []string) (*session, error) {
	t.prices = f.run.pricing
	s := &session{flags: f, files: files, seen: map[string]bool{}}
	var err error
	if s.known, err = f.run.pricing.measured(); err != nil {
		return nil, err
	}
	if s.known != nil {
		s.recall()
	}
	model, err := f.run.pricing.model()
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		c, err := t.calibration(ctx, s, path, model)
		if err == nil && len(s.cals) > 0 && c.j.pair.World() != s.cals[0].j.pair.World() {
			err = fmt.Errorf("it is for %s, %s for %d: calibrate them apart, the second with -costs", count(c.j.pair.World(), "rank"), files[0], s.cals[0].j.pair.World())
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		s.pair(c)
		s.cals = append(s.cals, c)
	}
	s.found = make([][]finding, s.world())
	if s.known != nil && s.known.Ranks != s.world() {
		return nil, usagef("-costs=%s is of %s, the programs are for %d", f.run.pricing.costs, count(s.known.Ranks, "rank"), s.world())
	}
	return s, nil
}

// pair finds the forward function of c, if c is a backward one, which has tangents: that
// of the file of the same name before it whose outputs are what c takes.
func (s *session) pair(c *calibration) {
	backward := slices.ContainsFunc(interp.InputSlots(c.h.f), func(in interp.Slot) bool { return in.Value.Def().Role() == ir.RoleTangent })
	for _, f := range s.cals {
		if !backward || f.j.pair.Name != c.j.pair.Name {
			continue
		}
		if _, err := step.New(c.j.pair.Name, f.h.f, c.h.f); err == nil {
			c.forward = f
		}
	}
}

func (s *session) world() int { return s.cals[0].j.pair.World() }

// recall marks what is known.
func (s *session) recall() {
	for _, e := range s.known.Instructions {
		s.seen[e.Key] = true
	}
	for _, e := range s.known.Collectives {
		s.seen[(&finding{What: aCollective, Key: e.Op, Ranks: e.Ranks, Bytes: e.Bytes}).key()] = true
	}
	for _, e := range s.known.Chains {
		s.seen[(&finding{What: aChain, Key: e.Key}).key()] = true
	}
	s.seen[(&finding{What: anEdge}).key()] = true
}

// news reports whether a program has an instruction or a chain that is not known.
func (s *session) news() bool {
	for _, c := range s.cals {
		for _, chain := range c.chains {
			if !s.seen[(&finding{What: aChain, Key: c.p.ChainKey(chain)}).key()] {
				return true
			}
		}
		for i := range c.p.Instrs {
			if key := c.key(i); key != "" && !s.seen[key] {
				return true
			}
		}
	}
	return false
}

// calibration makes the program of a file.
func (t tool) calibration(ctx context.Context, s *session, path string, model *cost.Model) (*calibration, error) {
	f := s.flags
	in, fn, err := t.optimised(ctx, path, source{pipeline: f.run.pipeline, pricing: f.run.pricing})
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(filepath.Base(in.path), ".")
	j := &job{flags: f.run, pair: &step.Pair{Name: name, Forward: fn}, traced: &step.Pair{Name: name, Forward: fn}}
	if err := j.makeInputs(); err != nil {
		return nil, err
	}
	if f.random == "hash" {
		if err := j.hashIndices(); err != nil {
			return nil, err
		}
	}
	halves, _, err := j.lowered()
	if err != nil {
		return nil, err
	}
	h := &halves[0]
	if slices.ContainsFunc(h.step.Module.Outputs, func(q rt.Param) bool { return q.Async }) || slices.ContainsFunc(h.step.Module.Inputs, func(q rt.Param) bool { return q.Async }) {
		return nil, errors.New("collectives that are in flight when the program starts or ends cannot be measured")
	}
	return newCalibration(s, j, h, model), nil
}

// measure runs the ranks, and returns what was known with what they found.
func (s *session) measure(ctx context.Context, t tool, dir string) (*cost.Measured, error) {
	p, err := s.flags.run.platform(t, s.world())
	if err != nil {
		return nil, err
	}
	defer t.busy.phase("measuring " + count(len(s.cals), "program"))()
	if s.flags.run.procs {
		err = s.processes(ctx, t, dir)
	} else {
		err = p.local(ctx, s.world(), s.cals[0].j.config(), s.modules(), func(ctx context.Context, r *rt.Rank) error { return s.rank(ctx, t, r) })
	}
	if err = errors.Join(err, p.close()); err != nil {
		return nil, err
	}
	if s.flags.raw != "" {
		err := t.output(s.flags.raw, func(w io.Writer) error { return json.NewEncoder(w).Encode(s.found) })
		if err != nil {
			return nil, err
		}
	}
	m := s.table()
	m.Machine = p.name
	return m, nil
}

func (s *session) modules() []*rt.Module {
	var out []*rt.Module
	for _, c := range s.cals {
		out = append(out, c.module)
	}
	return out
}

// processes starts a process for each rank and collects what they found in dir.
func (s *session) processes(ctx context.Context, t tool, dir string) error {
	args := append([]string{"calibrate"}, s.flags.given...)
	args = append(append(args, "-costs="+s.flags.run.pricing.costs), s.files...)
	spec := launch.Spec{World: s.world(), Args: args, Env: []string{envResults + "=" + dir}}
	if s.flags.verbose {
		spec.Stderr = t.err
	}
	if err := launch.Run(ctx, spec); err != nil {
		return err
	}
	for r := range s.found {
		text, err := os.ReadFile(rankPath(dir, "found", r, "json"))
		if err == nil {
			err = json.Unmarshal(text, &s.found[r])
		}
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		if len(s.found[r]) != len(s.found[0]) {
			return fmt.Errorf("rank %d measured %d things, rank 0 %d", r, len(s.found[r]), len(s.found[0]))
		}
	}
	return nil
}

// processRank measures as one process rank and leaves what it found.
func (s *session) processRank(ctx context.Context, t tool, dir string) error {
	p, err := s.flags.run.platform(t, 1)
	if err != nil {
		return err
	}
	r, err := rt.Join(ctx, p.opener(), s.cals[0].j.config(), s.modules()...)
	if err != nil {
		return errors.Join(err, p.close())
	}
	rank := r.Info().Rank
	if err = s.rank(ctx, t, r); err == nil {
		var text []byte
		if text, err = json.Marshal(s.found[rank]); err == nil {
			err = os.WriteFile(rankPath(dir, "found", rank, "json"), text, 0o600)
		}
	}
	return errors.Join(err, r.Close(), p.close())
}
