package step

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// Traced steps, computed in float64, have results within the bounds for rounding.
func TestNoiseOfTracedSteps(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(graphs, "tiny_*.fw.graph.json.gz"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d traced steps, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".fw.graph.json.gz")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Load(graphs, name)
			if err != nil {
				t.Fatal(err)
			}
			in, err := p.ReadAllInputs(vectors)
			if errors.Is(err, fs.ErrNotExist) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			n, err := p.MeasureNoise(t.Context(), interp.Options{}, in)
			if err != nil {
				t.Fatal(err)
			}
			some := false
			for _, all := range [][][]Rounded{n.Forward, n.Backward} {
				for rank := range all {
					for k, x := range all[rank] {
						some = some || x.Error > 0
						if !(x.Error <= GradientTolerance*x.Norm) {
							t.Errorf("rank %d output %d: %g of %g", rank, k, x.Error, x.Norm)
						}
					}
				}
			}
			if !some {
				t.Error("float64 changes nothing")
			}
		})
	}
}

// What is about bits keeps them, also within a loop, and everything else is computed in float64.
func TestPrecise(t *testing.T) {
	m, err := ir.Parse("bits.ir", `world 1
func @main(%x: f32[4], %h: bf16[4]) -> (f32[4], i32[4], bf16[4]) {
  %zero = full {value=0} : i32[]
  %r:2 = while %zero, %x {body="body", cond="cond"} : i32[], f32[4]
  %bits = bitcast %x : i32[4]
  %wide = convert %h : f32[4]
  %square = mul %wide, %wide : f32[4]
  %out = convert %square : bf16[4]
  return %r#1, %bits, %out
}
func @body(%i: i32[], %x: f32[4]) -> (i32[], f32[4]) {
  %tenth = full {value=0.1} : f32[4]
  %y = add %x, %tenth : f32[4]
  %j = add %i {scalar=1.0} : i32[]
  return %j, %y
}
func @cond(%i: i32[], %x: f32[4]) -> (bool[]) {
  %go = lt %i {scalar=1000.0} : bool[]
  return %go
}
`)
	if err != nil {
		t.Fatal(err)
	}
	x, err := interp.FromSlice([]float32{1, 2, 3, -4}, 4)
	if err != nil {
		t.Fatal(err)
	}
	h := interp.Tensor{DType: ir.BF16, Shape: []int64{4}, Data: []byte{1, 63, 2, 63, 3, 63, 4, 63}}
	p := &Pair{Forward: m.Func("main")}
	q, err := p.Precise()
	if err != nil {
		t.Fatal(err)
	}
	run := func(p *Pair, in [][]interp.Tensor) []interp.Tensor {
		out, _, err := p.Run(t.Context(), Interpret(interp.Options{}), in)
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	in := [][]interp.Tensor{{x, h}}
	wide, err := doubles(in)
	if err != nil {
		t.Fatal(err)
	}
	got, exact := run(p, in), run(q, wide)
	if !interp.Equal(got[1], exact[1]) {
		t.Errorf("other bits: %v, want %v", exact[1].Float64s(), got[1].Float64s())
	}
	for i, v := range x.Float64s() {
		if want, e := v+100, exact[0].Float64s()[i]; math.Abs(e-want) > 1e-10 || math.Abs(got[0].Float64s()[i]-want) < 1e-6 {
			t.Errorf("sum %d: %v in float64, want %v; %v in float32", i, e, want, got[0].Float64s()[i])
		}
		if v := h.Float64s()[i]; exact[2].Float64s()[i] != v*v {
			t.Errorf("square %d: %v, want %v", i, exact[2].Float64s()[i], v*v)
		}
	}
}
