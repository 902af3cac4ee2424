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

// A run may be as far from float64 as the interpreter is, twice as far, and no further; what rounding
// leaves no digit of may be as far as some such errors; and bits must be bits. What is recorded may be as
// far from float64 as a run.
func TestAllow(t *testing.T) {
	m, err := ir.Parse("sums.ir", `world 1
func @main(%x: f32[64]) -> (f32[], f32[], i32[64]) {
  %h = convert %x : bf16[64]
  %square = mul %h, %h : bf16[64]
  %wide = convert %square : f32[64]
  %sum = sum %wide {dims=[0]} : f32[]
  %mean = mul %sum {scalar=0.015625} : f32[]
  %each = expand %mean : f32[64:0]
  %d = sub %wide, %each : f32[64]
  %nothing = sum %d {dims=[0]} : f32[]
  %bits = bitcast %x : i32[64]
  return %sum, %nothing, %bits
}
`)
	if err != nil {
		t.Fatal(err)
	}
	p := &Pair{Name: "sums", Forward: m.Func("main")}
	in, err := interp.RandomInputs(p.Forward, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := p.MeasureNoise(t.Context(), interp.Options{}, in)
	if err != nil {
		t.Fatal(err)
	}
	sum, nothing := n.Forward[0][0], n.Forward[0][1]
	if !(sum.Error > 1e-4*sum.Norm && sum.Error < digit*sum.Norm && nothing.Error > digit*nothing.Norm) {
		t.Fatalf("%+v and %+v of float64's", sum, nothing)
	}
	for _, c := range []struct {
		output int
		bound  Bound
		off    float64 // from float64
		record float64 // what is recorded, from float64
		want   string
	}{
		{0, Bound{}, 1.9 * sum.Error, 0, "float64"},
		{0, Bound{}, -1.9 * sum.Error, 0, "float64"},
		{0, Bound{}, 2.1 * sum.Error, 0, "0"},
		{0, Bound{}, 1.9 * sum.Error, -1.9 * sum.Error, "float64"},
		{0, Bound{}, 1.9 * sum.Error, 2.1 * sum.Error, "0"},
		{1, Bound{}, 20 * nothing.Error, 0, "rounding"},
		{1, Bound{}, 40 * nothing.Error, 0, "0"},
		{2, Bound{Bits: true}, 0.5, 0, "bits"},
	} {
		beside := func(off float64) interp.Tensor {
			exact := n.exact[0][0][c.output].Float64s()
			for i := range exact {
				exact[i] += off
			}
			moved, err := interp.FromSlice(exact, n.exact[0][0][c.output].Shape...)
			if err != nil {
				t.Fatal(err)
			}
			return moved
		}
		outs := make([]interp.Tensor, 3)
		outs[c.output] = beside(c.off)
		recorded := beside(c.record)
		rs := []Result{{Output: c.output, Bound: c.bound, recorded: &recorded, Diff: interp.Diff{Rel: 1, Error: math.Abs(c.off) + []float64{sum.Error, nothing.Error, 0}[c.output]}}}
		if n.Allow(rs, [][][]interp.Tensor{{outs}}); rs[0].Bound.String() != c.want {
			t.Errorf("output %d, %g from float64, recorded %g from it: %v, want %s", c.output, c.off, c.record, rs[0].Bound, c.want)
		}
	}
}
