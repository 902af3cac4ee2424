package bench

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/standard"
)

// TestStagesAreCompared runs a step that was cut, and then with what a wrong pass would make of it.
func TestStagesAreCompared(t *testing.T) {
	m, err := ir.Parse("t.ir", `world 1
func @step(%x: f32[4,8] !{role="data"}, %w: f32[8,8] !{role="parameter"}, %v: f32[8,8] !{role="parameter"}) -> (f32[], f32[8,8], f32[8,8]) {
  %h = matmul %x, %w : f32[4,8] ms 1
  %y = matmul %h, %v : f32[4,8] ms 1
  %yy = mul %y, %y : f32[4,8]
  %loss = mean %yy : f32[]
  %dy = mul %y {scalar=0.0625} : f32[4,8]
  %vt = permute %v {dims=[1, 0]} : f32[8,8:1,8]
  %dh = matmul %dy, %vt : f32[4,8] ms 1
  %ht = permute %h {dims=[1, 0]} : f32[8,4:1,8]
  %dv = matmul %ht, %dy : f32[8,8] ms 1
  %xt = permute %x {dims=[1, 0]} : f32[8,4:1,8]
  %dw = matmul %xt, %dh : f32[8,8] ms 1
  return %loss, %dw, %dv
}
`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := standard.Table().Parse("pipeline{stages=2,micro-batches=4}")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		was, is string
		wrong   bool
	}{
		"as it is":                       {},
		"an average of three":            {"{scalar=0.25}", "{scalar=0.3333}", true},
		"rows of another micro-batch":    {"end=8, start=4", "end=12, start=8", true},
		"a step that was added up twice": {"%sum = add %loss.0, %loss.1", "%sum = add %loss.0, %loss.0", true},
	} {
		r, err := compile.Compile(t.Context(), m, compile.Target{}, compile.Options{Pipeline: p})
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(r.Module.String(), c.was, c.is, 1)
		if c.wrong == (text == r.Module.String()) {
			t.Fatalf("%s: there is no %s in\n%s", name, c.was, text)
		}
		if r.Module, err = ir.Parse("t.ir", text); err != nil {
			t.Fatal(err)
		}
		for _, device := range []string{"interp", "host"} {
			j, err := NewStages(Config{Device: device, Expect: "interp", Random: "valid", Seed: 1, Steps: 1, Timeout: leastJoin, Model: cost.Default()}, "step", r, m.Funcs()[0])
			if err != nil {
				t.Fatal(err)
			}
			err = j.Run(t.Context(), &Console{Out: io.Discard, Err: io.Discard, Colour: func(_, s string) string { return s }, Phase: func(string) func() { return func() {} }})
			if c.wrong && !errors.Is(err, ErrFindings) || !c.wrong && err != nil {
				t.Errorf("%s on %s: %v", name, device, err)
			}
		}
	}
}
