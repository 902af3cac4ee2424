package gomlx

import (
	"errors"
	"os"
	"os/exec"
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

// What TestBackend skips is what testdata/skips.txt lists.
func TestSkips(t *testing.T) {
	text, err := os.ReadFile("testdata/skips.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	unshared := map[string]bool{} // of devices whose memory is not the host's
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] != "#" {
			want = append(want, f[0])
			unshared[f[0]] = f[1] == "unshared:"
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
		want := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return device == "host" && unshared[name] })
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

// A loop of a length that only its numbers say, with a branch in it that reads a value from
// around both: the sum of the odd numbers of Collatz' sequence, and how long that is.
func TestWhile(t *testing.T) {
	must := func(v compute.Value, err error) compute.Value {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	closure := func(f compute.Function, build func(g compute.Function) []compute.Value) compute.Function {
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
	number := shapes.Make(dtypes.Int32)
	for _, device := range devices {
		b, err := New("device=" + device)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Finalize()
		n := b.Builder("collatz")
		f := n.Main()
		start := must(f.Parameter("start", number, nil))
		one := must(f.Constant([]int32{1}))
		two := must(f.Constant([]int32{2}))
		three := must(f.Constant([]int32{3}))
		zero := must(f.Constant([]int32{0}))
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
		outs, err := f.While(cond, body, start, zero, zero)
		if err == nil {
			err = f.Return(outs, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
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
		if _, err := n.Main().While(cond, cond, start); err == nil {
			t.Error("a loop whose closures do not fit was taken")
		}
	}
}
