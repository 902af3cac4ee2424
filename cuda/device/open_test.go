//go:build linux

package device_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
)

// openModels are models of testdata/models with sizes known at run time only, and values for these
// on each of their four ranks, twice: other ones on each, and equal ones.
var openModels = []struct{ name, ragged, equal string }{
	{"convnet_any", "s0=3/1/2/1 s1=5/12/17/1 s2=14/9/5/10", "s0=2 s1=8 s2=12"},
	{"decoder_any", "s0=5/1/8/2 s1=7/3/16/2 s2=5/1/8/2 s3=7/3/16/2", "s0=4 s1=8 s2=4 s3=8"},
	{"encoder_any", "s0=5/1/8/2 s1=7/3/16/2 s2=5/1/8/2 s3=7/3/16/2", "s0=4 s1=8 s2=4 s3=8"},
	{"gpt_any", "s0=7/1/3/32", "s0=16"},
	{"unet_any", "s0=1/2/1/1", "s0=1"},
}

// sizesOf reads what openModels has: a value for each rank, or one for all.
func sizesOf(t *testing.T, text string, world int) []map[string]int64 {
	t.Helper()
	out := make([]map[string]int64, world)
	for r := range out {
		out[r] = map[string]int64{}
		for field := range strings.FieldsSeq(text) {
			name, values, _ := strings.Cut(field, "=")
			list := strings.Split(values, "/")
			n, err := strconv.ParseInt(list[min(r, len(list)-1)], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			out[r][name] = n
		}
	}
	return out
}

// sized is a step at some sizes: its inputs, and what the interpreter makes of them.
type sized struct {
	sizes  []map[string]int64
	in     [][]interp.Tensor
	fw, bw [][]interp.Tensor
}

func interpreted(t *testing.T, pair *step.Pair, text string) *sized {
	t.Helper()
	s := &sized{sizes: sizesOf(t, text, pair.World())}
	var err error
	if s.in, err = interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{Symbols: s.sizes}); err != nil {
		t.Fatal(err)
	}
	if s.fw, s.bw, err = pair.Run(t.Context(), step.Interpret(interp.Options{Symbols: s.sizes}), s.in); err != nil {
		t.Fatal(err)
	}
	return s
}

// Models of open sizes, on GPUs or the fake driver: loaded once, their programs run for different
// sizes, as they come and captured, and agree with the interpreter as far as other traced steps do.
func TestOpenModels(t *testing.T) {
	for _, m := range openModels {
		if testing.Short() && m.name != "gpt_any" {
			continue
		}
		traced, err := step.Load(testdata+"models", m.name)
		if err != nil {
			t.Fatal(err)
		}
		ragged, equal := interpreted(t, traced, m.ragged), interpreted(t, traced, m.equal)
		runs := []sizedRun{{eager, ragged, 1}, {graph, ragged, 1}, {graph, equal, 1}}
		tried := []string{"pipeline"}
		if *onGPU {
			runs, tried = []sizedRun{{eager, ragged, 1}, {eager, equal, 1}, {graph, ragged, 10}, {graph, equal, 10}}, forms[1:]
		}
		for _, f := range tried {
			t.Run(m.name+"/"+f, func(t *testing.T) {
				noGoroutines(t)
				pair, lo := form(t, traced, f)
				fw, bw := lowered(t, pair.Forward, lo), lowered(t, pair.Backward, lo)
				outs := make([][2][][]interp.Tensor, len(runs)) // by run, half, rank
				for i := range outs {
					outs[i] = [2][][]interp.Tensor{make([][]interp.Tensor, pair.World()), make([][]interp.Tensor, pair.World())}
				}
				drv, devs, o := target(t, pair.World())
				if o.ShareDevice {
					t.Skip("needs four GPUs: ranks that share one wait for each other")
				}
				err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{fw.Module, bw.Module}, func(ctx context.Context, r *rt.Rank) error {
					k := r.Info().Rank
					for i, run := range runs {
						a, err := run.half(ctx, r, fw, run.at.in[k])
						if err != nil {
							return fmt.Errorf("forward, %v at %v: %w", run.how, run.at.sizes[k], err)
						}
						in, err := pair.BackwardInputs(a)
						if err != nil {
							return err
						}
						b, err := run.half(ctx, r, bw, in)
						if err != nil {
							return fmt.Errorf("backward, %v at %v: %w", run.how, run.at.sizes[k], err)
						}
						outs[i][0][k], outs[i][1][k] = a, b
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				for i, run := range runs {
					agrees(t, traced, run, outs[i][0], outs[i][1])
				}
			})
		}
	}
}

// sizedRun is a way to run a step at some sizes.
type sizedRun struct {
	how     how
	at      *sized
	replays int
}

// half runs a half on a rank. What is captured is for given sizes, which the inputs have later.
func (c sizedRun) half(ctx context.Context, r *rt.Rank, s hostrun.Step, in []interp.Tensor) ([]interp.Tensor, error) {
	o := rt.Options{}
	if c.how != eager {
		o.Symbols = c.at.sizes[r.Info().Rank]
	}
	vs, err := hostrun.Inputs(ctx, r, s.Module, in)
	if err != nil {
		return nil, err
	}
	return runWith(ctx, r, s, vs, o, c.how, c.replays)
}

// agrees compares results with the interpreter's. Where they are too far off, gradients that are
// zero but for rounding (of the biases in front of a normalisation) need not agree.
func agrees(t *testing.T, pair *step.Pair, run sizedRun, fw, bw [][]interp.Tensor) {
	t.Helper()
	want := run.at
	var rs []step.Result
	got := make([][][]interp.Tensor, len(fw))
	for r := range fw {
		got[r] = [][]interp.Tensor{fw[r], bw[r]}
		for half, f := range []*ir.Func{pair.Forward, pair.Backward} {
			all, expected := got[r][half], [][]interp.Tensor{want.fw[r], want.bw[r]}[half]
			for k, slot := range interp.OutputSlots(f) {
				d, err := interp.Compare(all[k], expected[k])
				if err != nil {
					t.Fatalf("rank %d, output %d, %%%s: %v", r, k, slot.Name, err)
				}
				rs = append(rs, step.Result{Rank: r, Backward: half == 1, Output: k, Name: slot.Name, Diff: d, Bound: step.Bound{Rel: step.GradientTolerance}})
			}
		}
	}
	if slices.ContainsFunc(rs, func(r step.Result) bool { return !r.OK() }) {
		noise, err := pair.MeasureNoise(t.Context(), interp.Options{Symbols: want.sizes}, want.in)
		if err != nil {
			t.Fatal(err)
		}
		noise.Allow(rs, got)
	}
	loss, gradient := step.Worst(rs)
	t.Logf("%v at %v: worst relative errors %.3g forward, %.3g backward", run.how, want.sizes, loss.Diff.Rel, gradient.Diff.Rel)
	if bad := slices.DeleteFunc(rs, step.Result.OK); len(bad) > 0 {
		t.Errorf("too far from the interpreter's:\n%s", step.Table(bad))
	}
}
