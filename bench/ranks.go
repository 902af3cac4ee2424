package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/internal/tempdir"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/launch"
)

// What process ranks find in their environment: the directory in which they leave
// what they found, and the file that holds the parent's standard input.
const (
	EnvResults = "LOWERDUMP_RESULTS"
	EnvStdin   = "LOWERDUMP_STDIN"
)

// half is one lowered function of a step.
type half struct {
	name       string // fw or bw
	f          *ir.Func
	program    *program.Program
	step       hostrun.Step
	overwrites []bool // by input: whether a run leaves something else in its stage

	sizes map[string]int64 // that the halves of the step have read so far, on one rank
}

// outcome is what one rank found.
type outcome struct {
	// outs are the outputs of each half; nil where fingerprints were asked for, or
	// nothing is to be compared.
	outs   [][]interp.Tensor
	prints *fingerprint.Set
	notes  notes
}

// notes are the part of an outcome that a process rank writes as JSON.
type notes struct {
	Measured []measured  `json:"measured,omitempty"` // by half
	Replayed []replayed  `json:"replayed,omitempty"`
	Spans    [][]rt.Span `json:"spans,omitempty"` // by half
}

// lowered lowers the functions of the step, and gives what the world begins with: both go into
// one. Of stages there is a half for each, and every rank adds its own.
func (j *Job) lowered() ([]half, []*rt.Module, error) {
	if j.stages != nil {
		halves, err := j.stages.lowered()
		return halves, nil, err
	}
	var halves []half
	var mods []*rt.Module
	for i, f := range j.funcs {
		p, err := f.Program()
		if err != nil {
			return nil, nil, err
		}
		s, err := hostrun.OfProgram(p)
		if err != nil {
			return nil, nil, err
		}
		halves = append(halves, half{name: halfNames[i], f: f.Func, program: p, step: s, overwrites: overwritten(p)})
		mods = append(mods, s.Module)
	}
	return halves, mods, nil
}

var halfNames = [...]string{"fw", "bw"}

// rank does everything that was asked for on one joined rank.
func (j *Job) rank(ctx context.Context, r *rt.Rank, halves []half) (*outcome, error) {
	halves = slices.Clone(halves) // ranks read sizes of their own
	if j.stages != nil {
		stage := j.stages.s.Index(r.Info().Rank)
		halves = halves[stage : stage+1]
		if err := r.Add(ctx, halves[0].step.Module, nil); err != nil {
			return nil, err
		}
	}
	if j.Steps == 0 {
		return new(outcome), j.capture(ctx, r, halves)
	}
	outs := make([][]rt.Value, len(halves))
	for n := range j.Steps {
		sizes := map[string]int64{}
		for i := range halves {
			halves[i].sizes = sizes
			given, err := j.bind(ctx, r, halves, outs, i)
			if err == nil {
				outs[i], err = j.runHalf(ctx, r, &halves[i], given)
			}
			if err != nil {
				return nil, fmt.Errorf("step %d of @%s: %w", n, halves[i].f.Name, err)
			}
			j.say(r, "ran @"+halves[i].f.Name)
		}
	}
	o := new(outcome)
	if err := j.collect(r, halves, outs, o); err != nil {
		return nil, err
	}
	j.say(r, "took the results")
	if j.prepares() {
		for i := range halves {
			if err := j.prepared(ctx, r, halves, outs, i, o); err != nil {
				return nil, fmt.Errorf("@%s: %w", halves[i].f.Name, err)
			}
		}
	}
	return o, nil
}

// say logs, on one rank, that something is done.
func (j *Job) say(r *rt.Rank, what string) {
	if j.Log != nil && r.Info().Rank == 0 {
		j.Log.Info(what, "since", time.Since(j.start).Round(time.Millisecond))
	}
}

// bind makes the inputs of half number i; outs are the outputs of those before.
func (j *Job) bind(ctx context.Context, r *rt.Rank, halves []half, outs [][]rt.Value, i int) ([]rt.Value, error) {
	if i == 0 {
		return j.given(ctx, r, &halves[0])
	}
	return j.backwardInputs(outs[0])
}

// runHalf runs a half and returns where its outputs are, one by one. It adds the sizes that it reads.
func (j *Job) runHalf(ctx context.Context, r *rt.Rank, h *half, given []rt.Value) ([]rt.Value, error) {
	o := j.options(r, h)
	o.Sizes = h.sizes
	vs, err := rt.RunModule(ctx, r, h.step.Module, h.step.Run, given, o)
	if err != nil {
		return nil, err
	}
	return hostrun.Places(ctx, vs)
}

// collect downloads what will be compared.
func (j *Job) collect(r *rt.Rank, halves []half, outs [][]rt.Value, o *outcome) error {
	if j.Expect == "" && j.Record == "" && j.prepares() {
		return nil
	}
	for i := range halves {
		o.outs = append(o.outs, nil)
		for _, v := range outs[i] {
			data, err := r.Download(v.Place)
			if err != nil {
				return err
			}
			o.outs[i] = append(o.outs[i], interp.Tensor{DType: v.DType, Shape: v.Shape, Data: data})
		}
	}
	return j.fingerprinted(o)
}

// fingerprinted replaces outputs by their fingerprints where those were asked for.
func (j *Job) fingerprinted(o *outcome) error {
	if j.Record == "" && j.prints == nil {
		return nil
	}
	o.prints = &fingerprint.Set{Seed: uint32(j.Seed), Same: j.Same, Prints: map[fingerprint.Key]fingerprint.Print{}}
	for i, f := range []*ir.Func{j.pair.Forward, j.pair.Backward}[:len(o.outs)] {
		places, err := tracedPlaces(f)
		if err != nil {
			return err
		}
		for k, t := range o.outs[i] {
			p, err := fingerprint.Of(t)
			if err != nil {
				return err
			}
			for _, at := range places[k] {
				o.prints.Prints[fingerprint.Key{Func: j.pair.Name + "." + halfNames[i], Output: at}] = p
			}
		}
	}
	if j.prints != nil {
		o.outs = nil
	}
	return nil
}

// goroutines runs the ranks as goroutines of this process.
func (j *Job) goroutines(ctx context.Context, p *platform) ([]*outcome, error) {
	halves, mods, err := j.lowered()
	if err != nil {
		return nil, err
	}
	found := make([]*outcome, j.pair.World())
	err = p.local(ctx, j.pair.World(), j.config(), mods, func(ctx context.Context, r *rt.Rank) (err error) {
		found[r.Info().Rank], err = j.rank(ctx, r, halves)
		return err
	})
	return found, err
}

// processes runs this program once per rank and collects what the ranks leave in a directory.
func (j *Job) processes(ctx context.Context, stderr io.Writer) (found []*outcome, err error) {
	dir, remove, err := tempdir.New("lowerdump-run-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	env := []string{EnvResults + "=" + dir}
	if j.Stdin != nil {
		kept := filepath.Join(dir, "stdin")
		if err := os.WriteFile(kept, j.Stdin, 0o600); err != nil {
			return nil, err
		}
		env = append(env, EnvStdin+"="+kept)
	}
	// What a rank says in failing is part of the error; nothing else is worth repeating for each.
	spec := launch.Spec{World: j.pair.World(), Hosts: j.Hosts, Args: j.Args, Env: env}
	if j.Log != nil {
		spec.Stderr = stderr
	}
	if err = launch.Run(ctx, spec); err != nil {
		return nil, err
	}
	found = make([]*outcome, j.pair.World())
	for r := range found {
		if found[r], err = readOutcome(dir, r); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Child is one process rank: it joins the world of its environment, runs, and
// leaves what it found as files.
func (j *Job) Child(ctx context.Context, t *Console) error {
	dir := t.Env(EnvResults)
	if dir == "" {
		return errNoResults
	}
	p, err := j.platform(1, false)
	if err != nil {
		return err
	}
	return errors.Join(j.processRank(ctx, p, dir), p.close())
}

func (j *Job) processRank(ctx context.Context, p *platform, dir string) error {
	halves, mods, err := j.lowered()
	if err != nil {
		return err
	}
	r, err := rt.Join(ctx, p.opener(), j.config(), mods...)
	if err != nil {
		return err
	}
	o, err := j.rank(ctx, r, halves)
	if err == nil {
		err = o.write(dir, r.Info().Rank)
	}
	return errors.Join(err, r.Close())
}

func rankPath(dir, what string, rank int, ext string) string {
	return filepath.Join(dir, fmt.Sprintf("%s.rank%d.%s", what, rank, ext))
}

func (o *outcome) write(dir string, rank int) error {
	for i, ts := range o.outs {
		if err := writeOutputs(rankPath(dir, halfNames[i], rank, "safetensors"), ts); err != nil {
			return err
		}
	}
	if o.prints != nil {
		if err := o.prints.Write(rankPath(dir, "prints", rank, "safetensors")); err != nil {
			return err
		}
	}
	text, err := json.Marshal(o.notes)
	if err != nil {
		return err
	}
	return os.WriteFile(rankPath(dir, "notes", rank, "json"), text, 0o600)
}

func readOutcome(dir string, rank int) (*outcome, error) {
	o := new(outcome)
	for _, name := range halfNames {
		ts, err := readOutputs(rankPath(dir, name, rank, "safetensors"))
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		o.outs = append(o.outs, ts)
	}
	var err error
	if o.prints, err = fingerprint.Read(rankPath(dir, "prints", rank, "safetensors")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	text, err := os.ReadFile(rankPath(dir, "notes", rank, "json"))
	if err != nil {
		return nil, fmt.Errorf("rank %d left nothing: %w", rank, err)
	}
	return o, json.Unmarshal(text, &o.notes)
}

func writeOutputs(path string, ts []interp.Tensor) error {
	file := &safetensors.File{}
	for i, t := range ts {
		file.Tensors = append(file.Tensors, safetensors.Tensor{Name: fmt.Sprintf("%08d", i), DType: t.DType, Shape: t.Shape, Data: t.Data})
	}
	return safetensors.WriteFile(path, file)
}

func readOutputs(path string) ([]interp.Tensor, error) {
	file, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []interp.Tensor
	for i := range file.Tensors {
		t, ok := file.Get(fmt.Sprintf("%08d", i))
		if !ok {
			return nil, fmt.Errorf("%s has no output %d", path, i)
		}
		out = append(out, interp.Tensor{DType: t.DType, Shape: t.Shape, Data: t.Data})
	}
	return out, nil
}
