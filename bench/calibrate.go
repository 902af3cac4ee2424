package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/internal/tempdir"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/launch"
)

// Calibration says what to measure. All ranks must be given the same.
type Calibration struct {
	Config // of the runs: Device is cuda

	Files []string
	// Make compiles one of Files with what a calibration, of a file of that name, has
	// found so far; empty: nothing. Its errors name the file that they are about.
	Make func(ctx context.Context, file, costs string) (*Made, error)

	Costs    string // file of a calibration; what is in it is not measured again
	Out      string // file of the table; - or empty for Console.Out
	Raw      string // file of what every rank measured in the last round, as JSON; empty: none
	Rounds   int    // how often to make and measure the programs
	Sweep    int64  // bytes of the largest single collective; 0: none
	Flush    int64  // bytes copied to flush the caches; 0: none
	Load     time.Duration
	Integers string // how integers among inputs are made: quick or hash
	Verbose  bool
}

// Made is a compiled function that is measured.
type Made struct {
	Name  string // of the step; a backward function has that of its forward one
	Data  string // as in Config
	Func  *compile.Function
	Model *cost.Model
}

// readMeasured reads a calibration, nil for no file.
func readMeasured(name string) (m *calibration.File, err error) {
	if name == "" {
		return nil, nil
	}
	r, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return calibration.Read(name, r)
}

// CalibrateRank is Calibrate's part on a process rank, whose command line is Config.Args.
func (f *Calibration) CalibrateRank(ctx context.Context, t *Console) error {
	s, err := f.session(ctx)
	if err != nil {
		return err
	}
	return s.processRank(ctx, t, t.Env(EnvResults))
}

// Calibrate measures the functions, and writes the table after every round: what comes
// later only adds to it.
func (f *Calibration) Calibrate(ctx context.Context, t *Console) (err error) {
	dir, remove, err := tempdir.New("lowerdump-calibrate-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	var text bytes.Buffer
	save := func() error {
		return t.Output(f.Out, func(w io.Writer) error {
			_, err := w.Write(text.Bytes())
			return err
		})
	}
	piped := f.Out == "" || f.Out == "-"
	for round := range f.Rounds {
		start := time.Now()
		if round > 0 {
			if err := f.settle(filepath.Join(dir, fmt.Sprintf("settled-%d.json", round))); err != nil {
				return err
			}
		}
		s, err := f.session(ctx)
		if err != nil {
			return err
		}
		if round > 0 && !s.hasNew() {
			break
		}
		if s.known, err = s.measure(ctx, t, dir); err != nil {
			return err
		}
		fmt.Fprintf(t.Err, "round %d of %s: %s, %s, %v\n", round+1, count(len(f.Files), "function"), count(len(s.known.Instructions), "instruction"),
			count(s.known.Count(calibration.Own), "collective"), time.Since(start).Round(time.Second/10))
		f.Costs = filepath.Join(dir, fmt.Sprintf("costs-%d.json", round))
		text.Reset()
		if _, err = s.known.WriteTo(&text); err == nil {
			err = os.WriteFile(f.Costs, text.Bytes(), 0o600)
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
func (f *Calibration) settle(name string) error {
	known, err := readMeasured(f.Costs)
	if err != nil {
		return err
	}
	known = known.Clone()
	for i := range known.Instructions {
		known.Instructions[i].Late = false
	}
	f.Costs = name
	var text bytes.Buffer
	if _, err := known.WriteTo(&text); err != nil {
		return err
	}
	return os.WriteFile(f.Costs, text.Bytes(), 0o600)
}

// session is one round: programs that are measured in one world.
type session struct {
	flags *Calibration
	cals  []*measuredProgram
	known *calibration.File // nil before the first round
	seen  map[string]bool   // what is known, or under way: keys of findings
	found [][]finding       // by rank
}

// session makes the programs.
func (f *Calibration) session(ctx context.Context) (*session, error) {
	s := &session{flags: f, seen: map[string]bool{}}
	var err error
	if s.known, err = readMeasured(f.Costs); err != nil {
		return nil, err
	}
	if s.known != nil {
		s.markKnown()
	}
	for _, path := range f.Files {
		c, err := s.measuredProgram(ctx, path)
		if err != nil {
			return nil, err
		}
		if len(s.cals) > 0 && c.j.pair.World() != s.cals[0].j.pair.World() {
			return nil, fmt.Errorf("%s is for %s, %s for %d: calibrate each on its own, the second with -costs", path, count(c.j.pair.World(), "rank"), f.Files[0], s.cals[0].j.pair.World())
		}
		s.pair(c)
		s.cals = append(s.cals, c)
	}
	s.found = make([][]finding, s.world())
	if s.known != nil && s.known.Ranks != 0 && s.known.Ranks != s.world() {
		return nil, usagef("-costs=%s is of %s, the programs are for %d", f.Costs, count(s.known.Ranks, "rank"), s.world())
	}
	return s, nil
}

// pair finds the forward function of c, if c is a backward one, which has tangents: that
// of the file of the same name before it whose outputs are what c takes.
func (s *session) pair(c *measuredProgram) {
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

// markKnown marks what is known.
func (s *session) markKnown() {
	for _, e := range s.known.Instructions {
		s.seen[e.Key] = true
	}
	for _, e := range s.known.Collectives {
		if e.Impl != calibration.Own {
			continue
		}
		s.seen[(&finding{What: aCollective, Key: e.Op, Ranks: e.Ranks, Bytes: e.Bytes}).key()] = true
	}
	for _, e := range s.known.Chains {
		s.seen[(&finding{What: aChain, Key: e.Key}).key()] = true
	}
	if s.known.Ranks > 0 { // of lowerdump calibrate
		s.seen[(&finding{What: anEdge}).key()] = true
	}
}

// hasNew reports whether a program has an instruction or a chain that is not known.
func (s *session) hasNew() bool {
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

// measuredProgram makes the program of a file.
func (s *session) measuredProgram(ctx context.Context, path string) (*measuredProgram, error) {
	made, err := s.flags.Make(ctx, path, s.flags.Costs)
	if err != nil {
		return nil, err
	}
	c, err := s.lowered(made)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// lowered lowers a function to a program that can be measured.
func (s *session) lowered(made *Made) (*measuredProgram, error) {
	config := s.flags.Config
	config.Data = made.Data
	j, err := New(config, made.Name, made.Func)
	if err != nil {
		return nil, err
	}
	if s.flags.Integers == "hash" {
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
	return newMeasuredProgram(s, j, h, made.Model), nil
}

// measure runs the ranks, and returns what was known with what they found.
func (s *session) measure(ctx context.Context, t *Console, dir string) (*calibration.File, error) {
	p, err := s.flags.platform(s.world(), true)
	if err != nil {
		return nil, err
	}
	defer t.Phase("measuring " + count(len(s.cals), "program"))()
	if s.flags.Processes {
		err = s.processes(ctx, t, dir)
	} else {
		err = p.local(ctx, s.world(), s.cals[0].j.config(), s.modules(), func(ctx context.Context, r *rt.Rank) error { return s.rank(ctx, t, r) })
	}
	if err = errors.Join(err, p.close()); err != nil {
		return nil, err
	}
	if s.flags.Raw != "" {
		err := t.Output(s.flags.Raw, func(w io.Writer) error { return json.NewEncoder(w).Encode(s.found) })
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
func (s *session) processes(ctx context.Context, t *Console, dir string) error {
	args := append(slices.Clone(s.flags.Args), "-costs="+s.flags.Costs)
	spec := launch.Spec{World: s.world(), Args: args, Env: []string{EnvResults + "=" + dir}}
	if s.flags.Verbose {
		spec.Stderr = t.Err
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
func (s *session) processRank(ctx context.Context, t *Console, dir string) error {
	p, err := s.flags.platform(1, true)
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
