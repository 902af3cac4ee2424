package lower_test

import (
	"context"
	"testing"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

var steps = []string{"tiny_fsdp2", "tiny_tp2", "tiny_tpsp2", "tiny_ddp2"}

const testdata = "../testdata/"

// The lowered program on goroutine ranks gives the interpreter's bits, and both
// agree with what PyTorch recorded.
func TestTracedSteps(t *testing.T) {
	ctx := context.Background()
	for _, name := range steps {
		t.Run(name, func(t *testing.T) {
			pair, err := step.Load(testdata+"graphs", name)
			if err != nil {
				t.Fatal(err)
			}
			rs, err := pair.Check(ctx, hostrun.Goroutines(rt.Config{}), testdata+"vectors")
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				if !r.OK() {
					t.Errorf("too far from the recording:\n%s", step.Table([]step.Result{r}))
				}
			}
			in, err := pair.ReadAllInputs(testdata + "vectors")
			if err != nil {
				t.Fatal(err)
			}
			compareRunners(t, pair, in)
		})
	}
}

// A mixture of experts: all_to_all among gathers and scatters.
func TestTracedMoE(t *testing.T) {
	pair, err := step.Load(testdata+"graphs", "tiny_moe2")
	if err != nil {
		t.Fatal(err)
	}
	in, err := interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compareRunners(t, pair, in)
}

// compareRunners demands equal bits from interpreter and program.
func compareRunners(t *testing.T, pair *step.Pair, in [][]interp.Tensor) {
	t.Helper()
	compareWith(t, pair, pair, in, lower.Options{})
}

// compareWith demands that the program of one pair has the bits that the interpreter
// finds for another.
func compareWith(t *testing.T, before, pair *step.Pair, in [][]interp.Tensor, o lower.Options) {
	t.Helper()
	ctx := context.Background()
	fw, bw, err := pair.Run(ctx, hostrun.GoroutinesWith(rt.Config{}, o), in)
	if err != nil {
		t.Fatal(err)
	}
	wantFw, wantBw, err := before.Run(ctx, step.Interpret(interp.Options{}), in)
	if err != nil {
		t.Fatal(err)
	}
	compare := func(half string, got, want [][]interp.Tensor) {
		for r := range want {
			for k := range want[r] {
				if !interp.Equal(got[r][k], want[r][k]) {
					t.Errorf("%s: rank %d output %d differs from the interpreter's", half, r, k)
				}
			}
		}
	}
	compare("forward", fw, wantFw)
	compare("backward", bw, wantBw)
}
