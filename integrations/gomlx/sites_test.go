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
	dir := filepath.Join(t.TempDir(), "new")
	h := newHarness(t, "dump="+dir)
	_, file, began, _ := runtime.Caller(0)
	n := h.b.Builder("sites")
	f := n.Main()
	x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2), nil))
	_, _, line, _ := runtime.Caller(0)
	y := h.must(f.Tanh(x))
	y = h.must(f.FusedLayerNorm(y, []int{0}, 1e-5, nil, nil))
	y = h.must(f.Neg(y))
	h.check(f.Return([]compute.Value{y}, nil))
	h.compile(n)
	sites := &n.(*builder).sites
	for text, want := range map[string]string{
		"launch v2: no": "%v2 is Tanh of ",
		"%v2 = tanh":    fmt.Sprintf("%s:%d: ", file, line+1),
		"of v99":        "of v99",
		"since v2.1":    "since v2.1",
		"v1 and (v1)":   "%v1 is Parameter of ",
	} {
		got := sites.explain(errors.New(text)).Error()
		if !strings.Contains(got, want) || !strings.HasSuffix(got, text) || want == text && got != text {
			t.Errorf("%q is explained as %q, want %q", text, got, want)
		}
	}
	for v := 3; v <= len(sites.of); v++ {
		wantOp, wantLine := "FusedLayerNorm", line+2
		if v == len(sites.of) {
			wantOp, wantLine = "Neg", line+3
		}
		if op, in, at := sites.where(v); op != wantOp || in != file || at != wantLine {
			t.Errorf("%%v%d is %s of %s:%d, want %s of %s:%d", v, op, in, at, wantOp, file, wantLine)
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
	for _, in, _ := sites.of[1].where(); in != ""; _, in, _ = sites.of[1].where() { // as if the program's line were too far
		sites.of[1] = sites.of[1][:len(sites.of[1])-1]
	}
	if op, in, at := sites.where(2); op != "Tanh" || in != file || at != began+1 {
		t.Errorf("%%v2, far from the program, is %s of %s:%d, want Tanh of %s:%d", op, in, at, file, began+1)
	}
}

// The line that an operation is of is none of GoMLX's, but its examples'.
func TestTheirs(t *testing.T) {
	const modules = "/go/pkg/mod/github.com/gomlx/"
	for _, test := range []struct {
		function, file string
		want           bool
	}{
		{"github.com/gomlx/gomlx/core/graph.Mul", modules + "gomlx@v0.28.8/core/graph/ops.go", true},
		{"github.com/gomlx/gomlx/core/graph.Mul", "/src/gomlx/core/graph/ops.go", true},
		{"main.matrix.RandomNormalFn.func1", modules + "gomlx@v0.28.8/ml/model/initializer/initializer.go", true}, // inlined
		{"main.matrix", "/src/gpt/main.go", false},
		{"main.apply[*github.com/gomlx/gomlx/core/graph.Node]", "/src/gpt/main.go", false},
		{"github.com/gomlx/gomlx/examples/adult.Model", modules + "gomlx/examples@v0.28.1/adult/model.go", false},
		{"main.main", modules + "gomlx/examples@v0.28.1/textgen/main.go", false},
	} {
		if got := theirs(runtime.Frame{Function: test.function, File: test.file}); got != test.want {
			t.Errorf("%s of %s is GoMLX's: %v, want %v", test.function, test.file, got, test.want)
		}
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
