package gomlx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	rt "github.com/seed-ee968945/concert/runtime"
)

// An error that names a value says what operation that is, and which line asked for it; so does
// what is dumped.
func TestSites(t *testing.T) {
	dir := t.TempDir()
	h := newHarness(t, "dump="+dir)
	n := h.b.Builder("sites")
	f := n.Main()
	x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2), nil))
	_, file, line, _ := runtime.Caller(0)
	y := h.must(f.Tanh(x))
	h.check(f.Return([]compute.Value{y}, nil))
	h.compile(n)
	sites := n.(*builder).sites
	for text, want := range map[string]string{
		"launch v2: no": "%v2 is Tanh of ",
		"%v2 = tanh":    fmt.Sprintf("%s:%d: ", file, line+1),
		"of v3":         "of v3",
		"since v2.1":    "since v2.1",
		"v1 and (v1)":   "%v1 is Parameter of ",
	} {
		got := explain(errors.New(text), sites).Error()
		if !strings.Contains(got, want) || !strings.HasSuffix(got, text) || want == text && got != text {
			t.Errorf("%q is explained as %q, want %q", text, got, want)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "sites-*.mlir"))
	if len(files) != 1 {
		t.Fatalf("dumped %q", files)
	}
	text, err := os.ReadFile(files[0])
	h.check(err)
	if !strings.Contains(string(text), `loc("Tanh"("`) || !strings.Contains(string(text), fmt.Sprintf("%q:%d:1))", file, line+1)) {
		t.Errorf("dumped without lines:\n%s", text)
	}
}

// A context ends what runs, and a computation that it has ended says so.
func TestContext(t *testing.T) {
	for _, devices := range []int{1, 2} {
		h := newHarness(t, fmt.Sprint("devices=", devices))
		n := h.b.Builder("forever")
		h.check(n.DistributedSPMD(devices))
		f := n.Main()
		x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32), nil))
		closure := func(build func(g compute.Function, x compute.Value) compute.Value) compute.Function {
			g, err := f.Closure()
			h.check(err)
			h.check(g.Return([]compute.Value{build(g, h.must(g.Parameter("x", shapes.Make(dtypes.Float32), nil)))}, nil))
			return g
		}
		outs, err := f.While(closure(func(g compute.Function, x compute.Value) compute.Value { return h.must(g.Equal(x, x)) }),
			closure(func(g compute.Function, x compute.Value) compute.Value { return h.must(g.Neg(x)) }), x)
		h.check(err)
		h.check(f.Return(outs, nil))
		e := h.compile(n)
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Millisecond, errors.New("enough"))
		defer cancel()
		h.b.SetContext(ctx)
		var in []compute.Buffer
		for d := range devices {
			in = append(in, h.buffer(d, []float32{1}))
		}
		if _, err := e.Execute(in, nil, 0); !errors.Is(err, rt.ErrCanceled) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("%d devices: %v", devices, err)
		}
		bad := h.b.Builder("late")
		h.check(bad.Main().Return([]compute.Value{h.must(bad.Main().Constant([]float32{1}))}, nil))
		if _, err := bad.Compile(); !errors.Is(err, rt.ErrCanceled) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("%d devices, compiled late: %v", devices, err)
		}
	}
}
