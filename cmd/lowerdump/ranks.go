package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// What process ranks find in their environment: the directory in which they leave
// their outputs, and the file that holds the parent's standard input.
const (
	envResults = "LOWERDUMP_RESULTS"
	envStdin   = "LOWERDUMP_STDIN"
)

// half is one lowered function of a step.
type half struct {
	f    *ir.Func
	step hostrun.Step
}

// lowered lowers the functions of the step; both go into one world.
func (j *job) lowered() ([]half, []*rt.Module, error) {
	var halves []half
	var mods []*rt.Module
	for _, f := range []*ir.Func{j.pair.Forward, j.pair.Backward} {
		if f == nil {
			continue
		}
		p, err := lower.Func(f)
		if err != nil {
			return nil, nil, err
		}
		s, err := hostrun.OfProgram(p)
		if err != nil {
			return nil, nil, err
		}
		halves = append(halves, half{f, s})
		mods = append(mods, s.Module)
	}
	return halves, mods, nil
}

// rank runs all steps on one joined rank and returns the outputs of the last, by half.
func (j *job) rank(ctx context.Context, r *rt.Rank, halves []half) ([][]interp.Tensor, error) {
	var outs [][]interp.Tensor
	for n := range j.flags.steps {
		in := j.inputs[r.Info().Rank]
		outs = outs[:0]
		for i, h := range halves {
			if i > 0 {
				var err error
				if in, err = step.BackwardInputs(j.pair.Forward, j.pair.Backward, outs[0]); err != nil {
					return nil, err
				}
			}
			given, err := hostrun.Inputs(ctx, r, h.step.Module, in)
			if err != nil {
				return nil, fmt.Errorf("step %d of @%s: %w", n, h.f.Name, err)
			}
			vs, err := rt.RunModule(ctx, r, h.step.Module, h.step.Run, given, rt.Options{})
			if err != nil {
				return nil, fmt.Errorf("step %d of @%s: %w", n, h.f.Name, err)
			}
			ts, err := hostrun.Tensors(ctx, r, vs)
			if err != nil {
				return nil, err
			}
			outs = append(outs, ts)
		}
	}
	return outs, nil
}

// goroutines runs the ranks as goroutines of this process.
func (j *job) goroutines(ctx context.Context) (fw, bw [][]interp.Tensor, err error) {
	halves, mods, err := j.lowered()
	if err != nil {
		return nil, nil, err
	}
	fw = make([][]interp.Tensor, j.pair.World())
	if len(halves) > 1 {
		bw = make([][]interp.Tensor, j.pair.World())
	}
	err = host.Local(ctx, j.pair.World(), j.config(), host.Options{}, mods, func(ctx context.Context, r *rt.Rank) error {
		outs, err := j.rank(ctx, r, halves)
		if err != nil {
			return err
		}
		fw[r.Info().Rank] = outs[0]
		if len(outs) > 1 {
			bw[r.Info().Rank] = outs[1]
		}
		return nil
	})
	return fw, bw, err
}

// child is one process rank: it joins the world of its environment, runs, and
// leaves its outputs as files.
func (j *job) child(ctx context.Context, t tool) error {
	dir := t.env(envResults)
	if dir == "" {
		return errNoResults
	}
	halves, mods, err := j.lowered()
	if err != nil {
		return err
	}
	r, err := rt.Join(ctx, host.Opener(host.Options{}), j.config(), mods...)
	if err != nil {
		return err
	}
	outs, err := j.rank(ctx, r, halves)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	for i, name := range []string{"fw", "bw"}[:len(outs)] {
		if err := writeOutputs(dir, name, r.Info().Rank, outs[i]); err != nil {
			return errors.Join(err, r.Close())
		}
	}
	return r.Close()
}

func outputPath(dir, half string, rank int) string {
	return filepath.Join(dir, fmt.Sprintf("%s.rank%d.safetensors", half, rank))
}

func writeOutputs(dir, half string, rank int, ts []interp.Tensor) error {
	file := &safetensors.File{}
	for i, t := range ts {
		file.Tensors = append(file.Tensors, safetensors.Tensor{Name: fmt.Sprintf("%08d", i), DType: t.DType, Shape: t.Shape, Data: t.Data})
	}
	return safetensors.WriteFile(outputPath(dir, half, rank), file)
}

func readOutputs(dir, half string, rank int) ([]interp.Tensor, error) {
	file, err := safetensors.ReadFile(outputPath(dir, half, rank))
	if err != nil {
		return nil, err
	}
	var out []interp.Tensor
	for i := range file.Tensors {
		t, ok := file.Get(fmt.Sprintf("%08d", i))
		if !ok {
			return nil, fmt.Errorf("rank %d left no output %d", rank, i)
		}
		out = append(out, interp.Tensor{DType: t.DType, Shape: t.Shape, Data: t.Data})
	}
	return out, nil
}
