//go:build linux

package device_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/fillrand"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

var tinySteps = []string{"tiny_fsdp2", "tiny_tp2", "tiny_tpsp2", "tiny_ddp2", "tiny_moe2"}

// forms are what a step is made into before it runs.
var forms = []string{"nodes", "kernels", "pipeline"}

// form gives a step and the options to lower it with.
func form(t *testing.T, pair *step.Pair, name string) (*step.Pair, lower.Options) {
	t.Helper()
	if name == "pipeline" {
		p, err := forCUDA(pair)
		if err != nil {
			t.Fatal(err)
		}
		pair = p
	}
	return pair, lower.Options{Kernels: name != "nodes"}
}

// The traced steps on two devices of the fake driver: eagerly, packed, and as graphs;
// node by node, with kernels, and after the passes. All give the host device's bits.
func TestTraced(t *testing.T) {
	if *onGPU {
		t.Skip("GPUs have bits of their own: TestTracedOnGPU")
	}
	for _, name := range fewSteps() {
		pair, in, wantFw, wantBw := onHost(t, name)
		for _, f := range forms {
			pair, lo := form(t, pair, f)
			for _, h := range []how{eager, packed, graph} {
				if testing.Short() && (h == packed || h == eager && f != forms[0]) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%v", name, f, h), func(t *testing.T) {
					noGoroutines(t)
					drv, devs, o := target(t, 2)
					if !lo.Kernels {
						o = hosted(drv, o)
					}
					fw, bw, err := pair.Run(t.Context(), runner(drv, devs, o, lo, h, 3), in)
					if err != nil {
						t.Fatal(err)
					}
					compare(t, "forward", fw, wantFw)
					compare(t, "backward", bw, wantBw)
				})
			}
		}
	}
}

// fewSteps are the traced steps, or one with -short.
func fewSteps() []string {
	if testing.Short() {
		return tinySteps[:1]
	}
	return tinySteps
}

// onHost loads a traced step and gives random inputs, and its results on the host device.
func onHost(t *testing.T, name string) (pair *step.Pair, in, fw, bw [][]interp.Tensor) {
	t.Helper()
	pair, err := load(name)
	if err != nil {
		t.Fatal(err)
	}
	in, err = interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fw, bw, err = pair.Run(t.Context(), hostrun.Goroutines(rt.Config{}), in)
	if err != nil {
		t.Fatal(err)
	}
	return pair, in, fw, bw
}

func compare(t *testing.T, half string, got, want [][]interp.Tensor) {
	t.Helper()
	for r := range want {
		for k := range want[r] {
			if !interp.Equal(got[r][k], want[r][k]) {
				t.Errorf("%s: rank %d output %d differs from what is wanted", half, r, k)
			}
		}
	}
}

// The traced steps on GPUs agree with the interpreter as far as bfloat16 lets them,
// replays give equal bits, and so do ranks whose values are replicas.
func TestTracedOnGPU(t *testing.T) {
	if !*onGPU {
		t.Skip("needs GPUs: -gpu")
	}
	for _, name := range tinySteps {
		pair, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		in, recorded, err := stepInputs(name, pair)
		if err != nil {
			t.Fatal(err)
		}
		wantFw, wantBw, err := pair.Run(t.Context(), step.Interpret(interp.Options{}), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range forms[1:] {
			pair, lo := form(t, pair, f)
			for _, h := range []how{eager, packed, graph} {
				t.Run(fmt.Sprintf("%s/%s/%v", name, f, h), func(t *testing.T) {
					drv, devs, o := target(t, 2)
					if o.ShareDevice && h == graph && len(pair.Forward.Module().Groups()) > 1 {
						t.Skip("branches of two ranks' graphs need not run at once on a GPU that they share: collectives of two groups wait for each other")
					}
					run := runner(drv, devs, o, lo, h, 100)
					fw, bw, err := pair.Run(t.Context(), run, in)
					if err != nil {
						t.Fatal(err)
					}
					near(t, "forward", fw, wantFw)
					near(t, "backward", bw, wantBw)
					if !recorded {
						return
					}
					for r := range fw {
						want, err := pair.ReadExpected(testdata+"vectors", r)
						if err != nil {
							t.Fatal(err)
						}
						rs, err := step.Compare(r, want, fw[r], bw[r])
						if err != nil {
							t.Fatal(err)
						}
						rs = slices.DeleteFunc(rs, step.Result.OK)
						if len(rs) > 0 {
							t.Errorf("too far from the recording:\n%s", step.Table(rs))
						}
					}
				})
			}
		}
	}
}

// stepInputs are the inputs of a step on GPUs, where results are compared within rounding:
// those that were recorded, if there are any, else random ones, with which routers of
// experts are decisive (package fillrand; bench/routing.py wrote the files).
func stepInputs(name string, pair *step.Pair) (in [][]interp.Tensor, recorded bool, err error) {
	if in, err := pair.ReadAllInputs(testdata + "vectors"); err == nil {
		return in, true, nil
	}
	if in, err = interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{}); err != nil {
		return nil, false, err
	}
	for r := range in {
		text, err := os.ReadFile(fmt.Sprintf("%svectors/%s.rank%d.routing.json", testdata, name, r))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		var q fillrand.Routing
		if err == nil {
			err = json.Unmarshal(text, &q)
		}
		if err != nil {
			return nil, false, err
		}
		for k, part := range q.Inputs {
			x := in[r][k]
			if err := q.Fill(part, fillrand.New(1, k, r, len(x.Shape)), x.Data, x.DType, x.Shape); err != nil {
				return nil, false, fmt.Errorf("input %d of rank %d: %w", k, r, err)
			}
		}
	}
	return in, false, nil
}

// near compares results with the interpreter's, and demands equal bits of ranks for
// which the interpreter has equal bits.
func near(t *testing.T, half string, got, want [][]interp.Tensor) {
	t.Helper()
	worst, at := 0.0, ""
	for r := range want {
		for k := range want[r] {
			d, err := interp.Compare(got[r][k], want[r][k])
			if err != nil {
				t.Errorf("%s: rank %d output %d: %v", half, r, k, err)
				continue
			}
			if !(d.Rel <= worst) {
				worst, at = d.Rel, fmt.Sprintf("rank %d output %d", r, k)
			}
			if r > 0 && interp.Equal(want[r][k], want[0][k]) && !interp.Equal(got[r][k], got[0][k]) {
				t.Errorf("%s: output %d is a replica and differs between ranks 0 and %d", half, k, r)
			}
		}
	}
	t.Logf("%s: worst relative error %.3g (%s)", half, worst, at)
	if !(worst <= step.GradientTolerance) {
		t.Errorf("%s: %s is %.3g from the interpreter's", half, at, worst)
	}
}
