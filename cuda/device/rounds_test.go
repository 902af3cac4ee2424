//go:build linux

package device_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A wait is as long as the loops have stood still, to an eighth of the limit.
func TestTurns(t *testing.T) {
	const limit = 80 * time.Second
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		rounds func(at time.Duration) (uint32, error)
		late   time.Duration // when the limit is passed; 0: never
	}{
		{"no round", func(time.Duration) (uint32, error) { return 0, nil }, limit},
		{"a counter that cannot be read", func(time.Duration) (uint32, error) { return 7, broken }, limit},
		{"without end", func(at time.Duration) (uint32, error) { return uint32(at / time.Second), nil }, 0},
		{"rounds of three quarters of the limit", func(at time.Duration) (uint32, error) { return uint32(at / (60 * time.Second)), nil }, 0},
		{"rounds longer than the limit", func(at time.Duration) (uint32, error) { return uint32(at / (200 * time.Second)), nil }, limit},
		{"an end", func(at time.Duration) (uint32, error) { return uint32(min(at, 305*time.Second)), nil }, 310*time.Second + limit},
	} {
		var p device.Turns
		began := time.Unix(1000, 0)
		late := time.Duration(0)
		for at := time.Duration(0); at < 20*limit && late == 0; at += time.Second {
			if p.Still(began.Add(at), at, limit, func() (uint32, error) { return c.rounds(at) }) >= limit {
				late = at
			}
		}
		if late != c.late {
			t.Errorf("%s: late after %v, want %v", c.name, late, c.late)
		}
	}
}

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

// A step whose loop takes longer than a peer may is not broken for what waits behind the loop,
// as long as the loop goes round.
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
		if n, err := device.Rounds(r); n != 12 || err != nil {
			return fmt.Errorf("%d tests of the loop, %v; want 12", n, err)
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		if err := device.Look(r, 3*plenty); err != nil {
			t.Errorf("broken while the loop went round: %v", err)
			return err
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		if me != 0 {
			return broken(r)
		}
		device.BackThen(r, 2*plenty)
		release, err := device.HoldSetup(r) // who looks for what is stuck does not wait for it
		if err != nil {
			return err
		}
		return errors.Join(device.Look(r, 3*plenty), release())
	})
	var late *rt.TimeoutError
	if !errors.As(err, &late) {
		t.Errorf("%v of a loop that stands still", err)
	}
}
