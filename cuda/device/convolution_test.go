//go:build linux

package device_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// slid is a convolution of a square image as PyTorch traces it.
type slid struct {
	model                    string
	n, c, side, rows, window int64
	stride, padding, groups  int64
	last                     bool // channels last, but for the filter
}

func (c slid) String() string {
	return fmt.Sprintf("%s/%dx%dx%d_%dx%d_s%d_g%d", c.model, c.n, c.c, c.side, c.rows, c.window, c.stride, c.groups)
}

// slides are the zoo's convolutions, one of those that are much alike.
var slides = []slid{
	{"resnet50", 16, 3, 224, 64, 7, 2, 3, 1, false},
	{"resnet50", 16, 64, 56, 64, 3, 1, 1, 1, false},
	{"resnet50", 16, 64, 56, 256, 1, 1, 0, 1, false},
	{"resnet50", 16, 128, 56, 128, 3, 2, 1, 1, false},
	{"resnet50", 16, 256, 56, 512, 1, 2, 0, 1, false},
	{"resnet50", 16, 128, 28, 128, 3, 1, 1, 1, false},
	{"resnet50", 16, 1024, 14, 256, 1, 1, 0, 1, false},
	{"resnet50", 16, 256, 14, 256, 3, 1, 1, 1, false},
	{"resnet50", 16, 512, 7, 2048, 1, 1, 0, 1, false},
	{"resnet50", 16, 512, 7, 512, 3, 1, 1, 1, false},
	{"convnext", 16, 3, 224, 96, 4, 4, 0, 1, false},
	{"convnext", 16, 96, 56, 96, 7, 1, 3, 96, true},
	{"convnext", 16, 96, 56, 192, 2, 2, 0, 1, true},
	{"convnext", 16, 768, 7, 768, 7, 1, 3, 768, true},
	{"efficientnet", 16, 32, 112, 32, 3, 1, 1, 32, false},
	{"efficientnet", 16, 144, 56, 144, 5, 2, 2, 144, false},
	{"efficientnet", 16, 672, 14, 672, 5, 1, 2, 672, false},
	{"efficientnet", 16, 1152, 7, 192, 1, 1, 0, 1, false},
	{"unet", 8, 4, 64, 64, 3, 1, 1, 1, false},
	{"unet", 8, 64, 64, 64, 3, 1, 1, 1, false},
	{"unet", 8, 384, 32, 128, 3, 1, 1, 1, false},
	{"vit", 16, 3, 224, 768, 16, 16, 0, 1, false},
	{"regnet", 16, 128, 28, 128, 3, 1, 1, 8, false},
}

// traced is the convolution and its gradients as a function.
func (c slid) traced(t testing.TB, dtype string) *ir.Func {
	t.Helper()
	tensor := func(last bool, n, c, h, w int64) map[string]any {
		st := []int64{c * h * w, h * w, w, 1}
		if last {
			st = []int64{c * h * w, 1, w * c, c}
		}
		return map[string]any{"shape": []int64{n, c, h, w}, "stride": st, "dtype": dtype}
	}
	q := (c.side+2*c.padding-c.window)/c.stride + 1
	x, y := tensor(c.last, c.n, c.c, c.side, c.side), tensor(c.last, c.n, c.rows, q, q)
	w := tensor(false, c.rows, c.c/c.groups, c.window, c.window)
	how := fmt.Sprintf("[%d, %d], [%d, %d], [1, 1], False, [0, 0], %d", c.stride, c.stride, c.padding, c.padding, c.groups)
	node := func(name, kind, target, args string, inputs []string, out ...any) map[string]any {
		return map[string]any{"name": name, "kind": kind, "target": target, "inputs": inputs, "args": args, "kwargs": "", "out": append([]any{}, out...)}
	}
	none := []string{}
	doc := map[string]any{"name": "f", "world": 1, "groups": map[string]any{}, "nodes": []any{
		node("x", "input", "x", "()", none, x), node("w", "input", "w", "()", none, w), node("dy", "input", "dy", "()", none, y),
		node("y", "compute", "aten.convolution.default", "(x, w, None, "+how+")", []string{"x", "w"}, y),
		node("dx", "compute", "aten.convolution_backward.default", "(dy, x, w, [0], "+how+", [True, False, False])", []string{"dy", "x", "w"}, x),
		node("dx0", "view", "<built-in function getitem>", "(dx, 0)", []string{"dx"}, x),
		node("dw", "compute", "aten.convolution_backward.default", "(dy, x, w, [0], "+how+", [False, True, False])", []string{"dy", "x", "w"}, w),
		node("dw0", "view", "<built-in function getitem>", "(dw, 1)", []string{"dw"}, w),
		node("output", "output", "output", "((y, dx0, dw0),)", []string{"y", "dx0", "dw0"}),
	}}
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fx.Read("f.json", strings.NewReader(string(b)))
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	res, err := f.Import()
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return res.Func
}

// convolve runs a convolution and its gradients as a captured step, and gives the results
// and, of each of the three, the time and what did it.
func convolve(t testing.TB, f *ir.Func, in [][]interp.Tensor, choose func(drv driver.Driver, o *device.Options)) (outs []interp.Tensor, spans map[string]rt.Span) {
	t.Helper()
	drv, devs, o := target(t, 1)
	choose(drv, &o)
	s := lowered(t, f, lower.Options{Kernels: true})
	spans = map[string]rt.Span{}
	err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		vs, err := hostrun.Inputs(ctx, r, s.Module, in[0])
		if err != nil {
			return err
		}
		st, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, true)
		if err != nil {
			return err
		}
		defer st.Close()
		got, err := st.Run(ctx, vs)
		if err != nil {
			return err
		}
		if outs, err = hostrun.Tensors(ctx, r, got); err != nil {
			return err
		}
		for range 5 {
			list, err := st.Trace(ctx)
			if err != nil {
				return err
			}
			for _, x := range list {
				if best, ok := spans[x.Name]; !ok || x.End-x.Start < best.End-best.Start {
					spans[x.Name] = x
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return outs, spans
}

// A convolution and its gradients are a library's where one serves them, and generated
// kernels' elsewhere, which say why. Both give the interpreter's numbers.
func TestConvolutions(t *testing.T) {
	for _, c := range []slid{{"plain", 2, 8, 9, 16, 3, 2, 1, 1, false}, {"last", 2, 8, 8, 8, 2, 2, 0, 1, true}, {"groups", 1, 8, 8, 16, 3, 1, 1, 4, false}, {"1x1", 2, 8, 7, 16, 1, 1, 0, 1, false}} {
		for _, dt := range []string{"bfloat16", "float32"} {
			f := c.traced(t, dt)
			in, err := interp.RandomInputs(f, 3, interp.RandomOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want, err := interp.Run(t.Context(), f, in, interp.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, served := range []bool{false, true} {
				got, spans := convolve(t, f, in, func(drv driver.Driver, o *device.Options) {
					if served {
						*o = hosted(drv, *o)
					} else if *onGPU {
						o.Libraries = nil
					}
				})
				for i, w := range want[0] {
					if e, most := farOff(got[i], w); !(e <= most) {
						t.Errorf("%v %s, served %v: result %d is %g of its largest element off, at most %g is allowed", c, dt, served, i, e, most)
					}
				}
				n := 0
				for name, x := range spans {
					if strings.Contains(name, ".h_2)") && c.groups > 1 && strings.Contains(name, "dx") {
						continue // the copy of a filter
					}
					n++
					who := map[bool]string{false: "host: the library cannot", true: "host"}[served]
					if *onGPU {
						who = map[bool]string{false: "generated", true: "cudnn "}[served]
					}
					if !strings.HasPrefix(x.Algo, who) || served && !*onGPU && x.Algo != who {
						t.Errorf("%v %s, served %v: %s is done by %s", c, dt, served, name, x.Algo)
					}
				}
				if n != 3 {
					t.Errorf("%v: %d launches, want 3", c, n)
				}
			}
		}
	}
}

// BenchmarkConvolutions tells what the zoo's convolutions and their gradients take by
// generated kernels and by cuDNN, and how far apart their results are. With -gpu only.
func BenchmarkConvolutions(b *testing.B) {
	if !*onGPU {
		b.Skip("times of the fake driver say nothing")
	}
	for _, c := range slides {
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			f := c.traced(b, "bfloat16")
			in, err := interp.RandomInputs(f, 3, interp.RandomOptions{})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				own, generated := convolve(b, f, in, func(_ driver.Driver, o *device.Options) { o.Libraries = nil })
				got, spans := convolve(b, f, in, func(driver.Driver, *device.Options) {})
				for i, name := range []string{"y", "dx", "dw"} {
					e, _ := farOff(got[i], own[i])
					b.Logf("%s off %.1e", name, e)
				}
				for _, form := range []map[string]rt.Span{generated, spans} {
					for _, name := range slices.Sorted(maps.Keys(form)) {
						b.Logf("%s %.4f ms: %s", form[name].Name, form[name].End-form[name].Start, form[name].Algo)
					}
				}
			}
		})
	}
}
