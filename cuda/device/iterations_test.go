//go:build linux

package device_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// long is a loop, and then what waits for a peer without a kernel.
const long = `world 2
group @all = [[0, 1]]
func @f(%n: i64[] {uniform=true}, %x: f32[1024]) -> (i64[], f32[1024]) {
  %r = while %n {body="round", cond="more"} : i64[]
  %a = broadcast %x on @all {root=0} : async f32[1024]
  %b = wait_tensor %a : f32[1024]
  return %r, %b
}

func @more(%n: i64[]) -> (bool[]) {
  %c = gt %n {scalar=0.0} : bool[]
  return %c
}

func @round(%n: i64[]) -> (i64[]) {
  %m = sub %n {scalar=1.0} : i64[]
  return %m
}
`

// A step whose loop takes longer than a peer may is not late for what waits behind the loop,
// as long as the loop iterates.
func TestLongLoopIsNotLate(t *testing.T) {
	fakeOnly(t)
	m, err := ir.Parse("t.ir", long)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	f := m.Func("f")
	s := lowered(t, f, lower.Options{Kernels: true})
	inputs, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for r := range inputs {
		inputs[r][0].Data = []byte{5, 0, 0, 0, 0, 0, 0, 0}
	}
	drv, devs, o := target(t, m.World)
	err = device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		in, err := hostrun.Inputs(ctx, r, s.Module, inputs[me])
		if err != nil {
			return err
		}
		if _, err := runStep(ctx, r, s, in, graph, 2); err != nil {
			return err
		}
		if n, err := device.Iterations(r); n != 12 || err != nil {
			return fmt.Errorf("%d tests of the loop, %v; want 12", n, err)
		}
		if still := device.Still(r, 3*plenty); still >= plenty {
			return fmt.Errorf("the loop has stood still for %v, an iteration began just now", still)
		}
		device.BackThen(r, 2*plenty)
		release, err := device.HoldSetup(r) // who looks for what is stuck does not wait for it
		if err != nil {
			return err
		}
		if still := device.Still(r, 3*plenty); still < 2*plenty {
			err = fmt.Errorf("the loop has stood still for %v, want %v at least", still, 2*plenty)
		}
		return errors.Join(err, release())
	})
	if err != nil {
		t.Error(err)
	}
}
