//go:build linux

package device_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// calling is a loop of one function of the caller's.
const calling = `world 1
func @f(%n: i64[]) -> (i64[]) {
  %r = while %n {body="round", cond="more"} : i64[]
  return %r
}

func @more(%n: i64[]) -> (bool[]) {
  %c = gt %n {scalar=0.0} : bool[]
  return %c
}

func @round(%n: i64[]) -> (i64[]) {
  %m = sub %n {scalar=1.0} : i64[]
  %k = call %m {effects=["pure"], target="own"} : i64[]
  return %k
}
`

// Whether the device chooses in the replays of a step, or the host, and why.
func TestWhoChooses(t *testing.T) {
	fakeOnly(t)
	for _, c := range []struct {
		name, text string
		how        how
		old        bool // driver
		engines    bool // that are preferred wherever they can be
		why        string
	}{
		{name: "graph", text: rounds, how: graph},
		{name: "graph of collectives that engines would serve", text: rounds, how: graph, engines: true},
		{name: "list of calls", text: rounds, how: packed, why: "a list of calls"},
		{name: "driver without conditional nodes", text: rounds, how: graph, old: true, why: "too old"},
		{name: "function of the caller's", text: calling, how: graph, why: "call @own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := ir.Parse("t.ir", c.text)
			if err != nil {
				t.Fatal(err)
			}
			s := lowered(t, m.Func("f"), lower.Options{Kernels: true})
			drv, devs, o := target(t, m.World)
			if c.old {
				drv.(*fake.Driver).NoConditions()
			}
			if c.engines {
				o.Group.Tuning.EngineMove, o.Group.Tuning.EngineReduce, o.Group.Tuning.EngineInPlace = 1, 1, 1
			}
			own := rt.Func{GPU: func(*rt.FuncCall) error { return nil }}
			cfg := rt.Config{Timeout: plenty, Funcs: map[string]rt.Func{"own": own}}
			err = device.Local(t.Context(), drv, devs, cfg, hosted(drv, o), []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
				marked := func(x *rt.Exec) {
					x.Mark(s.Module.Streams[0])
					s.Run(x)
				}
				st, err := rt.Prepare(ctx, r, s.Module, marked, rt.Options{}, c.how == graph)
				if err != nil {
					return err
				}
				defer st.Close()
				if why := st.HostControlFlow(); (why == nil) != (c.why == "") || why != nil && (!strings.Contains(why.Error(), c.why) || !errors.Is(why, rt.ErrUnsupported)) {
					return fmt.Errorf("the host chooses: %v, want %q", why, c.why)
				}
				if _, err := st.Trace(ctx); !errors.Is(err, rt.ErrUnsupported) {
					return fmt.Errorf("traced: %v", err)
				}
				ms, err := st.Time(ctx, 2)
				if err == nil && (len(ms) != 2 || ms[0] <= 0) {
					err = fmt.Errorf("times %v", ms)
				}
				if err = errors.Join(err, st.Replay(ctx)); err != nil {
					return err
				}
				if _, err := st.Marks(ctx); errors.Is(err, rt.ErrUnsupported) != (c.why != "") {
					return fmt.Errorf("marks: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A world that breaks with a captured loop in it ends the loop, and only then gives back what
// the loop's end is told by.
func TestBreaksBesideLoops(t *testing.T) {
	fakeOnly(t)
	m, err := ir.Parse("t.ir", endless)
	if err != nil {
		t.Fatal(err)
	}
	s := lowered(t, m.Func("f"), lower.Options{})
	own := errors.New("the caller's")
	for range 10 {
		drv, devs, o := target(t, 1)
		err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
			if _, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, true); err != nil {
				return err
			}
			r.Device().Abort(own)
			return own
		})
		if !errors.Is(err, own) {
			t.Fatal(err)
		}
	}
}

// branching is a loop with branches in it.
const branching = `world 1
func @f(%n: i64[], %x: f32[4]) -> (i64[], f32[4]) {
  %r:2 = while %n, %x {body="round", cond="more"} : i64[], f32[4]
  return %r#0, %r#1
}

func @more(%n: i64[], %x: f32[4]) -> (bool[]) {
  %c = ne %n {scalar=0.0} : bool[]
  return %c
}

func @round(%n: i64[], %x: f32[4]) -> (i64[], f32[4]) {
  %m = sub %n {scalar=1.0} : i64[]
  %odd = bitwise_and %n {scalar=1} : i64[]
  %y = case %odd, %x {branches=["twice", "less"]} : f32[4]
  return %m, %y
}

func @twice(%x: f32[4]) -> (f32[4]) {
  %y = add %x, %x : f32[4]
  return %y
}

func @less(%x: f32[4]) -> (f32[4]) {
  %y = sub %x {scalar=1.0} : f32[4]
  return %y
}
`

// Whichever call of the driver fails while a step with loops is captured: the step is refused, or
// the host runs the loop instead and computes the same, and nothing is left behind.
func TestConditionsEveryCallFails(t *testing.T) {
	fakeOnly(t)
	m, err := ir.Parse("t.ir", branching)
	if err != nil {
		t.Fatal(err)
	}
	s := lowered(t, m.Func("f"), lower.Options{Kernels: true})
	n, err := interp.FromFloats(ir.I64, []float64{3})
	if err != nil {
		t.Fatal(err)
	}
	x, err := interp.FromFloats(ir.F32, []float64{1, 2, 3, 4}, 4)
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.FromFloats(ir.F32, []float64{-1, 1, 3, 5}, 4)
	if err != nil {
		t.Fatal(err)
	}
	own := errors.New("injected")
	refused, byHost, byDevice := 0, 0, 0
	for call, last := 1, false; !last; call++ {
		drv, devs, o := target(t, 1)
		f := drv.(*fake.Driver)
		err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
			in, err := hostrun.Inputs(ctx, r, s.Module, []interp.Tensor{n, x})
			if err != nil {
				return err
			}
			f.FailCall(call, own)
			st, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, true)
			last = f.Calls() < call
			f.FailCall(0, nil)
			if err != nil {
				return err
			}
			defer st.Close()
			if byHost++; st.HostControlFlow() == nil {
				byHost, byDevice = byHost-1, byDevice+1
			}
			for range 2 {
				outs, err := st.Run(ctx, in)
				if err != nil {
					return fmt.Errorf("replayed: %v", err)
				}
				ts, err := hostrun.Tensors(ctx, r, outs)
				if err != nil {
					return err
				}
				if !interp.Equal(ts[1], want) {
					t.Errorf("call %d: %v, want %v", call, ts[1], want)
				}
			}
			return nil
		})
		if errors.Is(err, own) {
			refused++
		} else if err != nil {
			t.Fatalf("call %d: %v", call, err)
		}
	}
	if refused == 0 || byHost < 20 || byDevice == 0 {
		t.Errorf("%d refused, %d by the host, %d by the device", refused, byHost, byDevice)
	}
}
