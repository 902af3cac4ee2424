package lower_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// memoryPipelines are what the tests run before lowering: nothing, reuse of
// everything but inputs, reuse of everything with planned offsets, and that around
// regions.
var memoryPipelines = []string{"", "reuse-buffers", "reuse-buffers{inputs=dying},plan-memory", fusedPipeline}

// fusedPipeline is the part of pipeline cuda that decides about launches and memory.
const fusedPipeline = "fuse,reuse-buffers{inputs=dying,updates=false},plan-memory"

// optimised runs a pipeline on a copy of a module.
func optimised(t testing.TB, m *ir.Module, pipeline string) *ir.Module {
	t.Helper()
	m = m.Clone()
	if pipeline == "" {
		return m
	}
	p, err := standard.Table().Parse(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{}
	if _, err := g.Run(m, p); err != nil {
		t.Fatal(err)
	}
	return m
}

// Every program of the golden cases of every pass, lowered with and without reuse,
// passes the checker, runs on the host device, and gives the interpreter's bits.
func TestGoldenProgramsRun(t *testing.T) {
	ran := 0
	err := filepath.WalkDir(testdata+"golden", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".txtar" {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, filepath.Clean(testdata+"golden")+"/"), ".txtar")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			m := runnable(t, txtar.Parse(data))
			known := make([]*numbers, len(m.Entries()))
			for k, pipeline := range memoryPipelines {
				after := optimised(t, m, pipeline)
				for i, f := range after.Entries() {
					if why := beyondHost(f); why != "" {
						t.Logf("@%s: %s", f.Name, why)
						continue
					}
					ran++
					if k < len(memoryPipelines)-1 && large(m.Entries()[i]) {
						continue // once, with all of it, says as much of how buffers are reused
					}
					if known[i] == nil {
						known[i] = numbersOf(t, m.Entries()[i])
					}
					sameOnHost(t, pipeline, known[i], f)
				}
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ran < 300 {
		t.Errorf("only %d programs ran", ran)
	}
}

// runnable is the program of a golden case, without what reuse-buffers and
// plan-memory find for themselves; it skips the case if there is none to run.
func runnable(t *testing.T, a *txtar.Archive) *ir.Module {
	t.Helper()
	var input []byte
	for _, f := range a.Files {
		switch {
		case f.Name == "want.err":
			t.Skip("the case is about an error")
		case f.Name == "flags" && strings.Contains(string(f.Data), "-nointerp"):
			t.Skip("the case is not to be run")
		case f.Name == "input.ir":
			input = f.Data
		}
	}
	if input == nil {
		t.Skip("the case is about no graph")
	}
	m, err := ir.Parse("input.ir", string(input))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	return m
}

// beyondHost says why the test cannot run a function on the host device.
func beyondHost(f *ir.Func) string {
	if s, _ := f.Module().StagesOf(f); s != nil {
		return "it is a stage, which runs beside others"
	}
	for _, n := range f.Order() {
		for _, b := range n.Bodies() {
			if why := beyondHost(b); why != "" {
				return why
			}
		}
		switch {
		case n.Op() == ir.OpCall:
			return "opaque calls need functions of the caller"
		case n.Op() == ir.OpInput && n.Result(0).Type().IsAsync():
			return "an input in flight needs a collective of the caller"
		}
	}
	return ""
}

// large reports whether a tensor of f has millions of bytes: for some passes only such
// are worth a change, and to compute them takes longer than all the rest.
func large(f *ir.Func) bool {
	for _, n := range f.Order() {
		for _, v := range n.Results() {
			if f.Module().Bound(v.Type().Bytes()) > 4<<20 {
				return true
			}
		}
	}
	return false
}

// numbers are inputs of a function on all ranks, and the interpreter's results.
type numbers struct{ in, want [][]interp.Tensor }

func numbersOf(t *testing.T, f *ir.Func) *numbers {
	t.Helper()
	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(context.Background(), f, in, interp.Options{Poison: true, Calls: passtest.Calls()})
	if err != nil {
		t.Fatal(err)
	}
	return &numbers{in, want}
}

func sameOnHost(t *testing.T, pipeline string, n *numbers, f *ir.Func) {
	t.Helper()
	ctx := context.Background()
	if _, err := lower.Check(f); err != nil {
		t.Errorf("%q: @%s: %v", pipeline, f.Name, err)
		return
	}
	in, want := n.in, n.want
	for _, kernels := range []bool{false, true} {
		o := lower.Options{Kernels: kernels}
		if kernels {
			p, err := lower.FuncWith(f, o)
			if err != nil {
				t.Errorf("%q: @%s with kernels: %v", pipeline, f.Name, err)
				return
			}
			r, err := program.CheckWith(p, lower.CheckOptions())
			if err == nil {
				err = r.Err()
			}
			if err != nil {
				t.Errorf("%q: @%s with kernels: %v", pipeline, f.Name, err)
				return
			}
		}
		got, err := hostrun.GoroutinesWith(rt.Config{}, o)(ctx, f, in)
		if err != nil {
			t.Errorf("%q: @%s, kernels %v: %v", pipeline, f.Name, kernels, err)
			return
		}
		for r := range want {
			for k := range want[r] {
				if !interp.Equal(got[r][k], want[r][k]) {
					t.Errorf("%q: @%s, kernels %v: rank %d output %d is %v, the interpreter's %v", pipeline, f.Name, kernels, r, k, got[r][k], want[r][k])
				}
			}
		}
	}
}

// The traced steps give the interpreter's bits with every reuse there is.
func TestTracedStepsReuse(t *testing.T) {
	for _, name := range append([]string{"tiny_moe2"}, steps...) {
		t.Run(name, func(t *testing.T) {
			pair, err := step.Load(testdata+"graphs", name)
			if err != nil {
				t.Fatal(err)
			}
			in, err := interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []**ir.Func{&pair.Forward, &pair.Backward} {
				m := optimised(t, (*f).Module(), "overlap,reuse-buffers{inputs=dying},plan-memory")
				*f = m.Func((*f).Name)
			}
			compareRunners(t, pair, in)
		})
	}
}

// Annotations that no longer fit the function are refused.
func TestStaleAnnotations(t *testing.T) {
	const text = `world 2
group @g = [[0, 1]]

func @f(%x: f32[128,8]%in) -> (f32[128,8]) {
  %a = neg %x : f32[128,8]%a
  %b = exp %a : f32[128,8]%b
  %c = add %b, %x : f32[128,8]%c
  return %c
}
`
	for _, c := range []struct{ in, a, b, c, want string }{
		{"", "", "", "", ""},
		{"", "", " !{inplace=[0]}", "", ""},
		{"", " !{inplace=[0]}", "", "", "%a: result 0 cannot lie in place of operand 0 (%x): it belongs to the caller"},
		{"", "", " !{inplace=[1]}", "", "there is no such operand"},
		{"", "", " !{inplace=[0, 0]}", "", "inplace has 2 entries for 1 result tensors"},
		{" !{offset=[0]}", " !{offset=[4096]}", " !{offset=[8192]}", " !{offset=[4096]}", ""},
		{" !{offset=[0]}", " !{offset=[4096]}", " !{offset=[8192]}", "", "stale: %c has none"},
		{" !{offset=[0]}", " !{offset=[4096]}", " !{offset=[4096]}", " !{offset=[8192]}", "%a at 4096 of 4096 bytes and %b at 4096"},
		{" !{offset=[0]}", " !{offset=[4100]}", " !{offset=[12288]}", " !{offset=[4096]}", "not a multiple"},
		{" !{pin=[8192]}", "", "", "", ""},
	} {
		src := strings.NewReplacer("%in", c.in, "f32[128,8]%a\n", "f32[128,8]"+c.a+"\n", "f32[128,8]%b\n", "f32[128,8]"+c.b+"\n", "f32[128,8]%c\n", "f32[128,8]"+c.c+"\n").Replace(text)
		m, err := ir.Parse("stale.ir", src)
		if err != nil {
			t.Fatal(err)
		}
		_, err = lower.Func(m.Entries()[0])
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", src, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("got %v, want an error with %q:\n%s", err, c.want, src)
		}
	}
}
