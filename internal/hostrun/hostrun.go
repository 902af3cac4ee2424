// Package hostrun runs functions as lowered programs on the host device: it
// carries tensors between the interpreter's form and the runtime's, so that the
// tests and the tool can compare the two on the same inputs.
package hostrun

import (
	"context"
	"fmt"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// Values are a function's inputs as the runtime takes them.
func Values(ts []interp.Tensor) []rt.Value {
	out := make([]rt.Value, len(ts))
	for i, t := range ts {
		out[i] = rt.Value{DType: t.DType, Shape: t.Shape, Data: t.Data}
	}
	return out
}

// Tensors are a program's outputs as the interpreter gives them. Outputs that
// are in flight are awaited; those of several tensors are listed one by one.
func Tensors(ctx context.Context, r *rt.Rank, vs []rt.Value) ([]interp.Tensor, error) {
	var out []interp.Tensor
	for _, v := range vs {
		if v.Work == nil {
			out = append(out, interp.Tensor{DType: v.DType, Shape: v.Shape, Data: v.Data})
			continue
		}
		if err := v.Work.Wait(ctx); err != nil {
			return nil, err
		}
		for _, t := range v.Work.Tensors() {
			data, err := r.Download(t)
			if err != nil {
				return nil, err
			}
			out = append(out, interp.Tensor{DType: t.DType, Shape: t.Shape, Data: data})
		}
	}
	return out, nil
}

// Step is emitted code: what lower.EmitGo prints as Module and Step.
type Step struct {
	Module *rt.Module
	Run    func(*rt.Exec)
}

// Goroutines is the runner that lowers a function and interprets the program on
// ranks that are goroutines of this process.
func Goroutines(cfg rt.Config) step.Runner {
	return func(ctx context.Context, f *ir.Func, inputs [][]interp.Tensor) ([][]interp.Tensor, error) {
		p, err := lower.Func(f)
		if err != nil {
			return nil, err
		}
		s, err := OfProgram(p)
		if err != nil {
			return nil, err
		}
		return RunLocal(ctx, cfg, p.World, s, inputs)
	}
}

// OfProgram is the step that interprets a program.
func OfProgram(p *program.Program) (Step, error) {
	m, err := rt.ModuleOf(p)
	if err != nil {
		return Step{}, err
	}
	return Step{m, func(x *rt.Exec) { rt.Interpret(x, p) }}, nil
}

// RunLocal runs a step once on goroutine ranks; inputs and outputs are by rank.
func RunLocal(ctx context.Context, cfg rt.Config, world int, s Step, inputs [][]interp.Tensor) ([][]interp.Tensor, error) {
	if len(inputs) != world {
		return nil, fmt.Errorf("inputs for %d ranks, the program has %d", len(inputs), world)
	}
	outs := make([][]interp.Tensor, world)
	err := host.Local(ctx, world, cfg, host.Options{}, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		vs, err := rt.RunModule(ctx, r, s.Module, s.Run, Values(inputs[k]), rt.Options{})
		if err != nil {
			return err
		}
		outs[k], err = Tensors(ctx, r, vs)
		return err
	})
	return outs, err
}
