// Package hostrun runs functions as lowered programs on the host device. It
// converts tensors between the interpreter's form and the runtime's, so that the
// tests and the tool can compare the two on the same inputs.
package hostrun

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// Inputs brings a function's inputs, as interp.InputSlots lists them, to what the
// runtime takes for module m, which is loaded on r. For an async input it uploads
// the tensors and starts a collective that brings each rank its own: the program
// then has to wait for it as for any collective of its caller.
func Inputs(ctx context.Context, r *rt.Rank, m *rt.Module, ts []interp.Tensor) ([]rt.Value, error) {
	var out []rt.Value
	next := 0
	for i := range m.Inputs {
		q := &m.Inputs[i]
		if next+len(q.Tensors) > len(ts) {
			return nil, fmt.Errorf("%d input tensors, module %s needs more: %s is the first without", len(ts), m.Name, q.Name)
		}
		mine := ts[next : next+len(q.Tensors)]
		next += len(mine)
		if !q.Async {
			out = append(out, rt.Value{DType: mine[0].DType, Shape: mine[0].Shape, Data: mine[0].Data})
			continue
		}
		w, err := inFlight(ctx, r, m, q, mine)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", q.Name, err)
		}
		out = append(out, rt.Value{Work: w})
	}
	if next != len(ts) {
		return nil, fmt.Errorf("%d input tensors, module %s takes %d", len(ts), m.Name, next)
	}
	return out, nil
}

// inFlight puts tensors where the module wants them, gives them to the previous rank, and
// starts what brings them back: who does not wait for that reads another rank's.
func inFlight(ctx context.Context, r *rt.Rank, m *rt.Module, q *rt.Param, ts []interp.Tensor) (*rt.Work, error) {
	c := &rt.Collective{Op: rt.CollectivePermute, Group: "world", Label: q.Name}
	away := *c
	n := int64(r.Info().World)
	for k := range n {
		away.Pairs = append(away.Pairs, (k+1)%n, k)
		c.Pairs = append(c.Pairs, k, (k+1)%n)
	}
	for i, t := range ts {
		at, err := r.In(m, q.Tensors[i])
		if err != nil {
			return nil, err
		}
		if at.DType != t.DType || len(at.Shape) != len(t.Shape) || t.NumElems() > at.NumElems() {
			return nil, fmt.Errorf("is %v%v, expected %v%v", t.DType, t.Shape, at.DType, at.Shape)
		}
		at.Shape = t.Shape // q has the sizes at the symbols' upper bounds
		if err := r.Upload(at, t.Data); err != nil {
			return nil, err
		}
		c.Ins = append(c.Ins, at)
	}
	c.Outs, away.Ins, away.Outs = c.Ins, c.Ins, c.Ins
	w, err := r.Start(ctx, "", &away)
	if err == nil {
		err = w.Wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	return r.Start(ctx, "", c)
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

// Places are a program's outputs one by one, where they lie in the rank's arena:
// outputs that are in flight are awaited, those of several tensors listed singly.
// It is for runs with Options.KeepOutputs.
func Places(ctx context.Context, vs []rt.Value) ([]rt.Value, error) {
	var out []rt.Value
	for _, v := range vs {
		if v.Work == nil {
			out = append(out, v)
			continue
		}
		if err := v.Work.Wait(ctx); err != nil {
			return nil, err
		}
		for _, t := range v.Work.Tensors() {
			out = append(out, rt.Value{DType: t.DType, Shape: t.Shape, Place: t})
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
func Goroutines(cfg rt.Config) step.Runner { return GoroutinesWith(cfg, lower.Options{}) }

// GoroutinesWith is Goroutines with options of the lowering.
func GoroutinesWith(cfg rt.Config, opts lower.Options) step.Runner {
	return func(ctx context.Context, f *ir.Func, inputs [][]interp.Tensor) ([][]interp.Tensor, error) {
		p, err := lower.FuncWith(f, opts)
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

// Stages is the runner of lowered stages, by place, on goroutine ranks.
func Stages(ctx context.Context, opts host.Options, name string, s program.Stages, inputs [][]interp.Tensor) ([][]interp.Tensor, error) {
	mods, err := rt.ModulesOf(name, s)
	if err != nil {
		return nil, err
	}
	outs := make([][]interp.Tensor, s[0].World)
	err = host.Local(ctx, s[0].World, rt.Config{}, opts, nil, func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		p := s.Of(k)
		m := mods[slices.Index(s, p)]
		if err := r.Add(ctx, m, nil); err != nil {
			return err
		}
		in, err := Inputs(ctx, r, m, inputs[k])
		if err != nil {
			return err
		}
		vs, err := rt.RunModule(ctx, r, m, func(x *rt.Exec) { rt.Interpret(x, p) }, in, rt.Options{})
		if err != nil {
			return err
		}
		outs[k], err = Tensors(ctx, r, vs)
		return err
	})
	return outs, err
}

// RunLocal runs a step once on goroutine ranks; inputs and outputs are by rank.
func RunLocal(ctx context.Context, cfg rt.Config, world int, s Step, inputs [][]interp.Tensor) ([][]interp.Tensor, error) {
	if len(inputs) != world {
		return nil, fmt.Errorf("inputs for %d ranks, the program has %d", len(inputs), world)
	}
	outs := make([][]interp.Tensor, world)
	err := host.Local(ctx, world, cfg, host.Options{}, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		in, err := Inputs(ctx, r, s.Module, inputs[k])
		if err != nil {
			return err
		}
		vs, err := rt.RunModule(ctx, r, s.Module, s.Run, in, rt.Options{})
		if err != nil {
			return err
		}
		outs[k], err = Tensors(ctx, r, vs)
		return err
	})
	return outs, err
}
