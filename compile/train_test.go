package compile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// TestTrainLoop trains a sharded model for a hundred steps in one living world: forward's
// parameters, what it saves and backward's updates lie in buffers, so that between two
// steps nothing but the loss leaves the device and nothing is copied in it. Losses and
// parameters are the interpreter's, to the bit.
func TestTrainLoop(t *testing.T) {
	const steps, rate = 100, 0.5
	tr, err := hostrun.NewTraining("../testdata", "tiny_fsdp2", rate, func(f *ir.Func) (*program.Program, error) {
		r, err := compile.Compile(t.Context(), f.Module(), compile.Target{}, compile.Options{})
		if err != nil {
			return nil, err
		}
		return r.Func(f.Name).Program()
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tr.Progs {
		if err := program.Check(p); err != nil {
			t.Error(err)
		}
		for _, in := range p.Instrs {
			if in.Kind == program.Copy {
				t.Errorf("@%s copies %s", p.Name, in.Node)
			}
		}
	}
	losses, last, err := tr.Reference(t.Context(), steps)
	if err != nil {
		t.Fatal(err)
	}
	err = host.Local(t.Context(), 2, rt.Config{}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		x, err := tr.On(ctx, r)
		if err != nil {
			return err
		}
		half := func(p *program.Program) func([]rt.Value) ([]rt.Value, error) {
			return func(in []rt.Value) ([]rt.Value, error) { return rt.Run(ctx, r, p, in, rt.Options{}) }
		}
		rank := r.Info().Rank
		for n := range steps {
			loss, err := x.Step(half(tr.Progs[0]), half(tr.Progs[1]))
			if err != nil {
				return err
			}
			if !slices.Equal(loss, losses[n][rank].Data) {
				return fmt.Errorf("step %d: the loss differs: %v, want %v", n, loss, losses[n][rank])
			}
		}
		state, err := x.State()
		if err != nil {
			return err
		}
		for i := range state {
			if !interp.Equal(state[i], last[rank][i]) {
				return fmt.Errorf("rank %d: input %d differs behind %d steps", rank, i, steps)
			}
		}
		return x.Close(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("loss %v at first, %v behind %d steps", losses[0][0], losses[steps-1][0], steps)
}
