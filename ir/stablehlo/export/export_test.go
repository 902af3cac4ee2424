package export_test

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/export"
)

var update = flag.Bool("update", false, "rewrite the text in testdata")

// written writes a function and reads it back.
func written(t *testing.T, f *ir.Func, o export.Options) (*ir.Func, string, error) {
	t.Helper()
	var b strings.Builder
	if err := export.Write(&b, f, o); err != nil {
		return nil, "", err
	}
	m, err := stablehlo.Parse("written.mlir", b.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	p, err := m.Program()
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return p.Module.Funcs()[0], b.String(), nil
}

// most is how far results may be from those of the original: sums and functions that are
// composed round on the way.
func most(dt ir.DType) float64 {
	switch dt {
	case ir.F64:
		return 1e-12
	case ir.F32:
		return 2e-6
	case ir.F16:
		return 2e-3
	case ir.BF16:
		return 1e-2
	}
	return 0
}

// agrees runs both functions on the same inputs.
func agrees(t *testing.T, f, g *ir.Func, text string) {
	t.Helper()
	in, err := interp.RandomInputs(f, 7, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(t.Context(), f, in, interp.Options{})
	if err != nil {
		t.Skip(err) // what it calls is not known here
	}
	got, err := interp.Run(t.Context(), g, in, interp.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for r := range want {
		if len(got[r]) != len(want[r]) {
			t.Fatalf("%d results, want %d\n%s", len(got[r]), len(want[r]), text)
		}
		for k := range want[r] {
			d, err := interp.Compare(got[r][k], want[r][k])
			if err != nil || !(d.Rel <= most(want[r][k].DType)) || math.IsNaN(d.Rel) {
				t.Fatalf("rank %d, result %d: %v %v\n%s\n%s", r, k, d, err, f.Module(), text)
			}
		}
	}
}

// refused are the operations of which examples cannot be written, with what the error says.
var refused = map[ir.Op]string{
	ir.OpAllToAll:  "equal pieces",
	ir.OpAsyncCall: "no such operation",
	ir.OpCall:      "",
	ir.OpReadSize:  "no such operation",
}

// Every operation of the table becomes text that means the same.
func TestOperations(t *testing.T) {
	for _, op := range ir.Ops() {
		t.Run(op.Name(), func(t *testing.T) {
			m, err := ir.Example(op)
			if err != nil {
				t.Fatal(err)
			}
			f := m.Funcs()[0]
			g, text, err := written(t, f, export.Options{})
			if why, ok := refused[op]; ok && why != "" {
				if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "%r ("+op.Name()+")") {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if op != ir.OpCall && op != ir.OpRand {
				agrees(t, f, g, text)
			}
		})
	}
}

// Functions of other tests, and random ones, mean the same as text.
func TestFunctions(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/golden/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	for _, path := range files {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range a.Files {
			if m, err := ir.Parse(file.Name, string(file.Data)); file.Name == "input.ir" && err == nil && m.Verify() == nil {
				t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { sameNumbers(t, m, true) })
			}
		}
	}
	for seed := range uint64(30) {
		m, err := gen.Module(seed, gen.Config{Flights: seed%2 == 0, Units: true, Kinds: true, Alike: seed%3 == 0})
		if err != nil {
			t.Fatal(err)
		}
		t.Run("random", func(t *testing.T) { sameNumbers(t, m, false) })
	}
}

// Of a type without infinities, extremes begin at the last numbers that there are. The only
// place of a scalar is the first.
func TestExtremes(t *testing.T) {
	m, err := ir.Parse("f8.ir", `world 1
func @f(%x: f8e4m3fn[3,4], %e: f8e4m3fn[0,4], %s: f32[]) -> (f8e4m3fn[3], f8e4m3fn[3], i64[3], f8e4m3fn[4], i64[]) {
  %a = amax %x {dims=[1]} : f8e4m3fn[3]
  %b = amin %x {dims=[1]} : f8e4m3fn[3]
  %c = argmax %x {dim=1} : i64[3]
  %d = amax %e {dims=[0]} : f8e4m3fn[4]
  %p = reduce_window %s {reduce="argmax", window=[]} : i64[]
  return %a, %b, %c, %d, %p
}
`)
	if err != nil {
		t.Fatal(err)
	}
	sameNumbers(t, m, false)
}

// sameNumbers writes the functions of a module; some of what hand-written ones have StableHLO
// cannot say.
func sameNumbers(t *testing.T, m *ir.Module, some bool) {
	for _, f := range m.Funcs() {
		g, text, err := written(t, f, export.Options{})
		random := slices.ContainsFunc(f.Order(), func(n *ir.Node) bool { return n.Effects()&ir.EffectRandom != 0 })
		switch {
		case err != nil && !some:
			t.Error(err)
		case err == nil && !random && small(f):
			agrees(t, f, g, text)
		}
	}
}

// What a narrow integer does not have wraps in the IR, and is the nearest number in StableHLO.
func TestNarrowIntegers(t *testing.T) {
	m, err := ir.Parse("narrow.ir", `world 1
func @f(%x: f32[64]) -> (i8[64], u8[64], i16[64], u16[64], i32[64], u32[64]) {
  %a = mul %x {scalar=100000.0} : f32[64]
  %b = convert %a : i8[64]
  %c = convert %a : u8[64]
  %d = convert %a : i16[64]
  %e = add %a, %x : u16[64]
  %g = mul %a {scalar=1e6} : f32[64]
  %h = convert %g : i32[64]
  %i = convert %g : u32[64]
  return %b, %c, %d, %e, %h, %i
}
`)
	if err != nil {
		t.Fatal(err)
	}
	sameNumbers(t, m, false)
}

// The text of a schedule: a bucket, what was donated, barriers, and where nodes came from.
func TestText(t *testing.T) {
	const path = "testdata/step.txtar"
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ir.Parse("step.ir", string(a.Files[0].Data))
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	f.SetOrigin(f.Lookup("g"), &stablehlo.Position{File: "model.mlir", Line: 3, Col: 5, Location: `"train.py":7:2`})
	f.SetOrigin(f.Lookup("step"), &stablehlo.Position{File: "model.mlir", Line: 4, Col: 5, Location: "#loc9"})
	for i, o := range []export.Options{{}, {Barriers: true}} {
		_, text, err := written(t, f, o)
		if err != nil {
			t.Fatal(err)
		}
		if want := string(a.Files[1+i].Data); text != want && !*update {
			t.Errorf("%s:\n%s\nwant\n%s", a.Files[1+i].Name, text, want)
		}
		a.Files[1+i].Data = []byte(text)
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(a), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// small reports whether a function is computed in a moment.
func small(f *ir.Func) bool {
	for _, n := range f.Order() {
		for _, v := range n.Results() {
			for _, t := range v.Type().Tensors() {
				if size, ok := t.Bytes().Const(); !ok || size > 1<<16 {
					return false
				}
			}
		}
	}
	return true
}
