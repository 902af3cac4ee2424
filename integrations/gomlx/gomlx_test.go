package gomlx

import (
	"errors"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/compute/support/backendtest"
)

var devices = []string{"host", "fake"}

func init() {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		devices = append(devices, "cuda")
	}
}

// GoMLX's own tests of a backend, on the host device and by generated kernels.
func TestBackend(t *testing.T) {
	for _, device := range devices {
		t.Run("device="+device, func(t *testing.T) {
			b, err := New("device=" + device)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Finalize()
			backendtest.RunAll(t, b, nil)
		})
	}
}

// What TestBackend skips is what testdata/skips.txt lists; GoMLX's Go backend passes 266 tests.
func TestSkips(t *testing.T) {
	text, err := os.ReadFile("testdata/skips.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] != "#" {
			want = append(want, f[0])
		}
	}
	out, err := exec.Command(os.Args[0], "-test.run=^TestBackend$", "-test.v").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, device := range devices {
		var got []string
		for _, m := range regexp.MustCompile(`--- SKIP: TestBackend/device=`+device+`/(\S+)`).FindAllSubmatch(out, -1) {
			got = append(got, string(m[1]))
		}
		slices.Sort(got)
		passed := regexp.MustCompile(`--- PASS: TestBackend/device=`+device+`/(\S+)`).FindAllStringSubmatch(string(out), -1)
		groups := map[string]bool{}
		for _, m := range passed {
			groups[path.Dir(m[1])] = true
		}
		if n := len(passed) - len(groups); n < 266 {
			t.Errorf("device=%s passes %d tests, want 266 at least", device, n)
		}
		if !slices.Equal(got, want) {
			t.Errorf("device=%s skips %q, the list has %q", device, got, want)
		}
	}
}

// What is not there is said as GoMLX expects it, before anything runs.
func TestNotImplemented(t *testing.T) {
	b, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Finalize()
	f := b.Builder("test").Main()
	if _, err := f.FusedQuantizedDense(nil, nil, nil, nil, 0); !errors.Is(err, compute.ErrNotImplemented) || !strings.Contains(err.Error(), "FusedQuantizedDense") {
		t.Errorf("FusedQuantizedDense: %v", err)
	}
	if _, err := New("device=tpu"); err == nil {
		t.Error("a device that there is not was taken")
	}
}

// builtT makes values and closures of a computation that builds without an error.
type builtT struct{ *testing.T }

func (t builtT) must(v compute.Value, err error) compute.Value {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (t builtT) closure(f compute.Function, build func(g compute.Function) []compute.Value) compute.Function {
	t.Helper()
	g, err := f.Closure()
	if err == nil {
		err = g.Return(build(g), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

var number = shapes.Make(dtypes.Int32)

// collatz returns the last of Collatz' sequence, the sum of its odd numbers and its length.
func (t builtT) collatz(f compute.Function) {
	t.Helper()
	must, closure := t.must, t.closure
	constant := func(v int32) compute.Value { return must(f.Constant([]int32{v})) }
	start, zero, one, two, three := must(f.Parameter("start", number, nil)), constant(0), constant(1), constant(2), constant(3)
	state := func(g compute.Function) (k, sum, steps compute.Value) {
		return must(g.Parameter("k", number, nil)), must(g.Parameter("sum", number, nil)), must(g.Parameter("steps", number, nil))
	}
	cond := closure(f, func(g compute.Function) []compute.Value {
		k, _, _ := state(g)
		return []compute.Value{must(g.NotEqual(k, one))}
	})
	body := closure(f, func(g compute.Function) []compute.Value {
		k, sum, steps := state(g)
		odd := must(g.Equal(must(g.Rem(k, two)), one))
		next, err := g.If(odd, closure(g, func(h compute.Function) []compute.Value {
			return []compute.Value{must(h.Add(must(h.Mul(k, three)), one)), must(h.Add(sum, k))}
		}), closure(g, func(h compute.Function) []compute.Value {
			return []compute.Value{must(h.Div(k, two)), sum}
		}))
		if err != nil {
			t.Fatal(err)
		}
		return []compute.Value{next[0], next[1], must(g.Add(steps, one))}
	})
	if _, err := f.While(cond, cond, start); err == nil {
		t.Error("a loop whose closures do not fit was taken")
	}
	outs, err := f.While(cond, body, start, zero, zero)
	if err == nil {
		err = f.Return(outs, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A loop of a length that only its numbers say, with a branch in it that reads a value from
// around both.
func TestWhile(t *testing.T) {
	for _, device := range devices {
		b, err := New("device=" + device)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Finalize()
		n := b.Builder("collatz")
		builtT{t}.collatz(n.Main())
		x, err := n.Compile()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range [][4]int32{{1, 1, 0, 0}, {6, 1, 8, 8}, {7, 1, 53, 16}} { // 3+5; 7+11+17+13+5
			in, err := b.BufferFromFlatData(0, []int32{c[0]}, number)
			if err != nil {
				t.Fatal(err)
			}
			got, err := x.Execute([]compute.Buffer{in}, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i, o := range got {
				flat, err := o.Data()
				if err != nil {
					t.Fatal(err)
				}
				if v := flat.([]int32)[0]; v != c[i+1] {
					t.Errorf("device=%s, from %d: result %d is %d, want %d", device, c[0], i, v, c[i+1])
				}
			}
		}
	}
}

// A batch in groups is what each group makes of its part of the kernel's rows, as StableHLO has
// it, whatever the order of axes is.
func TestBatchGroups(t *testing.T) {
	for _, device := range devices {
		h := newHarness(t, "device="+device)
		n := h.b.Builder("groups")
		f := n.Main()
		axes := compute.ConvolveAxesConfig{InputBatch: 1, InputSpatial: []int{2}, KernelOutputChannels: 1, KernelSpatial: []int{2}, OutputBatch: 0, OutputChannels: 1, OutputSpatial: []int{2}}
		x, w := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2, 4, 3), nil)), h.must(f.Parameter("w", shapes.Make(dtypes.Float32, 2, 6, 2), nil))
		conv := func(x, w compute.Value, groups int) compute.Value {
			return h.must(f.ConvGeneral(x, w, axes, nil, nil, nil, nil, 1, groups))
		}
		var parts []compute.Value
		for g := range 2 {
			parts = append(parts, conv(h.must(f.Slice(x, []int{0, 2 * g, 0}, []int{2, 2*g + 2, 3}, nil)), h.must(f.Slice(w, []int{0, 3 * g, 0}, []int{2, 3*g + 3, 2}, nil)), 1))
		}
		h.check(f.Return([]compute.Value{conv(x, w, 2), h.must(f.Concatenate(1, parts...))}, nil))
		var in [2][]float32
		for i := range 24 {
			in[0], in[1] = append(in[0], float32(i*i%7)), append(in[1], float32(i*i%11))
		}
		outs := h.run(h.compile(n), nil, h.buffer(0, in[0], 2, 4, 3), h.buffer(0, in[1], 2, 6, 2))
		want := make([]float32, 2*6*2)
		h.check(outs[1].ToFlatData(want))
		h.want("device="+device+": the convolution", outs[0], want...)
	}
}

// Booleans are seen as bytes, and what is too narrow is an error.
func TestBitcast(t *testing.T) {
	h := newHarness(t, "")
	n := h.b.Builder("bits")
	f := n.Main()
	x := h.must(f.Parameter("x", shapes.Make(dtypes.Bool, 4), nil))
	word := h.must(f.Bitcast(x, dtypes.Uint32))
	if _, err := f.Bitcast(word, dtypes.Uint64); err == nil {
		t.Error("a scalar was taken for half a scalar")
	}
	back := h.must(f.Bitcast(word, dtypes.Bool))
	h.check(f.Return([]compute.Value{word, back}, nil))
	u, err := h.b.BufferFromFlatData(0, []bool{true, false, true, true}, shapes.Make(dtypes.Bool, 4))
	h.check(err)
	outs := h.run(h.compile(n), nil, u)
	var got [1]uint32
	var bools [4]bool
	h.check(outs[0].ToFlatData(got[:]))
	h.check(outs[1].ToFlatData(bools[:]))
	if got[0] != 0x01010001 || bools != [4]bool{true, false, true, true} {
		t.Errorf("booleans are %#x, and back %v", got[0], bools)
	}
}
