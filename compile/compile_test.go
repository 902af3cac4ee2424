package compile_test

import (
	"context"
	"errors"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// graph reads a traced graph.
func graph(t testing.TB, path string) *ir.Module {
	t.Helper()
	f, err := fx.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Import()
	if err != nil {
		t.Fatal(err)
	}
	return r.Module
}

// traced is the path of a graph of this repository.
func traced(name string) string {
	return filepath.Join("..", "testdata", "graphs", name+".graph.json.gz")
}

// compiled compiles a traced graph; an empty pipeline is the target's.
func compiled(t testing.TB, path, pipeline string, target compile.Target) *compile.Result {
	t.Helper()
	var o compile.Options
	if pipeline != "" {
		o.Pipeline = pipelineOf(t, pipeline)
	}
	r, err := compile.Compile(context.Background(), graph(t, path), target, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pipelineOf(t testing.TB, text string) *passes.Pipeline {
	t.Helper()
	p, err := standard.Table().Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func parse(t testing.TB, text string) *ir.Module {
	t.Helper()
	m, err := ir.Parse("test.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The schedule for GPUs knows what regions will cost: without that there are 21
// collectives and 39 regions.
func TestFeedback(t *testing.T) {
	r := compiled(t, traced("llama8b_l4_fsdp4.bw"), "", compile.Target{Device: compile.GPU})
	f := r.Funcs[0]
	regions := map[int64]bool{}
	collectives := 0
	for _, n := range f.Func.Order() {
		if n.Meta().Has(passes.FusionKey) {
			regions[n.Meta().Int(passes.FusionKey, 0)] = true
		}
		if n.Op().IsCollective() {
			collectives++
		}
	}
	if collectives != 23 || len(regions) != 36 {
		t.Errorf("%d collectives and %d regions, want 23 and 36", collectives, len(regions))
	}
	before, err := f.Before()
	if err != nil {
		t.Fatal(err)
	}
	after, err := f.After()
	if err != nil {
		t.Fatal(err)
	}
	if after.Makespan >= before.Makespan || after.Exposed >= 0.01*after.Makespan || compile.Gap(before, after) != after.Makespan/before.TightBound-1 {
		t.Errorf("%+v before, %+v after", before, after)
	}
	if len(r.Report.Steps) != 14 || len(r.Report.Steps[9].Records) == 0 {
		t.Errorf("the report has %d steps", len(r.Report.Steps))
	}
}

const mlp = `world 4
group @tp = [[0, 1, 2, 3]]

func @mlp(%x: bf16[8,16], %w: bf16[16,8]) -> (bf16[8,8]) {
  %h = matmul %x, %w : bf16[8,8] ms 0.5
  %r = all_reduce.sum %h on @tp : async bf16[8,8] ms 1.0
  %n = matmul %h, %h : bf16[8,8] ms 0.1
  %y = wait_tensor %r : bf16[8,8]
  %z = add %y, %n : bf16[8,8] ms 0.1
  return %z
}
`

// The caller's module stays as it is, and every rank gets the same program.
// A pass that leaves something broken is named, with the text before it, although feedback
// of costs runs the passes first and without looking at each.
func TestFeedbackNamesBrokenPass(t *testing.T) {
	drop := passes.Pass{Name: "drop", Doc: "Drops what it must not.", Run: func(_ *passes.Context, f *ir.Func) error {
		f.MoveBefore(f.Order()[len(f.Order())-2], f.Order()[0])
		return nil
	}}
	table, err := standard.Table().Extend([]passes.Pass{drop}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := table.Parse("drop,overlap,fuse{kernels=true}")
	if err != nil {
		t.Fatal(err)
	}
	_, err = compile.Compile(context.Background(), graph(t, traced("tiny_fsdp2.fw")), compile.Target{Device: compile.GPU}, compile.Options{Pipeline: p})
	var failed *passes.PassError
	if !errors.As(err, &failed) || failed.Pass != "drop" || len(failed.Before) == 0 {
		t.Errorf("%v", err)
	}
}

func TestCompileCopies(t *testing.T) {
	m := parse(t, mlp)
	was := string(m.AppendText(nil))
	digest := ""
	for range 2 {
		r, err := compile.Compile(context.Background(), m, compile.Target{Reprice: compile.RepriceCollectives}, compile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.Func("mlp").Program()
		if err != nil {
			t.Fatal(err)
		}
		if digest != "" && digest != p.Digest() {
			t.Error("two programs of one module differ")
		}
		digest = p.Digest()
		if ms, _ := r.Input.Func("mlp").Lookup("r").Cost(); ms >= 0.5 {
			t.Errorf("the all_reduce was not priced anew: %v ms", ms)
		}
	}
	if got := string(m.AppendText(nil)); got != was {
		t.Errorf("the module became\n%s", got)
	}
}

// Nothing is priced at zero silently.
func TestWarnings(t *testing.T) {
	m := parse(t, `world 2
func @f(%x: f32[4]) -> (f32[4]) {
  %a = call %x {target="mine", class="compute"} : f32[4]
  %b = call %a {target="mine", class="compute"} : f32[4] ms 0.5
  %c = neg %b : f32[4]
  return %c
}
`)
	r, err := compile.Compile(context.Background(), m, compile.Target{}, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if w := r.Warnings(); len(w) != 1 || !strings.Contains(w[0], "@f: 1 of 5 operations have no cost") || !strings.Contains(w[0], "%a;") {
		t.Error(w)
	}
	after, err := r.Func("f").After()
	if err != nil || after.Makespan <= 0.5 {
		t.Errorf("%v ms, %v: neg should cost something by default", after.Makespan, err)
	}
}

// A context that has ended ends a compilation.
func TestCompileEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := compile.Compile(ctx, parse(t, mlp), compile.Target{}, compile.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A program is simulated with what was measured, in the form for overlapped compute where
// there is compute beside, and with the nodes' costs where nothing was.
func TestSimulateProgram(t *testing.T) {
	r, err := compile.Compile(context.Background(), parse(t, mlp), compile.Target{}, compile.Options{Pipeline: pipelineOf(t, "")})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Func("mlp").Program()
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for i := range p.Instrs {
		keys[p.Instrs[i].Node] = p.CostKey(&p.Instrs[i])
	}
	m := &calibration.File{Ranks: 4, EdgeUs: 1, Instructions: []calibration.Instruction{
		{Key: keys["h"], Us: 10}, {Key: keys["n"], Us: 4}, {Key: keys["r"], Us: 100}, {Key: keys["r"] + compile.OverlappedKey, Us: 20}}}
	if _, err := m.WriteTo(io.Discard); err != nil { // sorts
		t.Fatal(err)
	}
	got, err := compile.SimulateProgram(p, r.Func("mlp").Func, m, cost.TracedH200())
	if err != nil {
		t.Fatal(err)
	}
	// 10 for h, an edge, 20 for the all_reduce, an edge, and add by its node's cost of 100.
	if math.Abs(got.Ms-0.132) > 1e-9 || math.Abs(got.ExposedMs-(0.132-0.114)) > 1e-9 || got.Unknown != 1 {
		t.Errorf("%v ms, %v exposed, %d unknown", got.Ms, got.ExposedMs, got.Unknown)
	}
	if text := got.Warning(p); !strings.Contains(text, "1 of ") {
		t.Error(text)
	}
}
