package simplify_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/simplify"
	"github.com/seed-ee968945/concert/passes/standard"
)

// extremes lists, for each element type, the numbers that algebra forgets.
var extremes = map[ir.DType][]float64{
	ir.F64:  {0, math.Copysign(0, -1), 1, -1, 0.3, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, -math.MaxFloat64, 5e-324, -5e-324, 1e308},
	ir.F32:  {0, math.Copysign(0, -1), 1, -1, 0.3, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32, -math.MaxFloat32, 1e-45, -1e-45, 1 << 24},
	ir.F16:  {0, math.Copysign(0, -1), 1, -1, 0.3, math.Inf(1), math.Inf(-1), math.NaN(), 65504, -65504, 6e-8, -6e-8, 2049},
	ir.BF16: {0, math.Copysign(0, -1), 1, -1, 0.3, math.Inf(1), math.Inf(-1), math.NaN(), 3.3e38, -3.3e38, 1e-40, -1e-40, 257},
	ir.I64:  {0, 1, -1, 3, math.MaxInt64, math.MinInt64, 1<<53 + 2, -1 << 62},
	ir.I32:  {0, 1, -1, 3, math.MaxInt32, math.MinInt32, 20000001, -1 << 30},
	ir.I8:   {0, 1, -1, 3, 127, -128, 64, -65},
	ir.U8:   {0, 1, 2, 3, 255, 128, 127, 129},
	ir.Bool: {0, 1},
	ir.I16:  {0, 1, -1, 3, 32767, -32768, 16384, -16385},
	ir.U16:  {0, 1, 2, 3, 65535, 32768, 32767, 32769},
	ir.U32:  {0, 1, 2, 3, math.MaxUint32, 1 << 31, 1<<31 - 1, 1<<31 + 1},
	ir.U64:  {0, 1, 2, 3, 1<<64 - 1<<11, 1 << 63, 1<<53 + 2, 1<<63 + 1<<12},

	ir.F8E4M3FN: {0, math.Copysign(0, -1), 1, -1, 0.3, math.NaN(), 448, -448, 0x1p-9, -0x1p-9, 17},
}

// specialRun is one program of the table below with the rules that fired on it.
type specialRun struct {
	dtype ir.DType
	stats []passes.StatValue
}

// Every rule that is exact, or exact on integers and for min and max, keeps every
// bit on signed zeros, infinities, NaN, denormals and the ends of integers: the
// golden cases with each element type and reduction in place of theirs. NaN
// may be another NaN.
func TestSimplifyKeepsSpecialValues(t *testing.T) {
	dir := "../../testdata/golden/simplify-collectives"
	floats, ints := map[string]int{}, map[string]int{} // firings by rule; look-up only
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".txtar" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, run := range specialRuns(t, filepath.Base(path), txtar.Parse(data)) {
			for _, s := range run.stats {
				if run.dtype.IsFloat() {
					floats[s.Name] += int(s.Value)
				} else {
					ints[s.Name] += int(s.Value)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range simplify.Rules() {
		t.Logf("%-26s floats %4d, integers %4d", r.Name, floats[r.Name], ints[r.Name])
		if floats[r.Name]+ints[r.Name] == 0 && r.Name != "reduce-in-narrow" && !testing.Short() {
			t.Errorf("%s never fired", r.Name)
		}
	}
}

var (
	floatType = regexp.MustCompile(`\b(f64|f32|f16|bf16)\[`)
	bigType   = regexp.MustCompile(`\[\d{4,}`)
	reduction = regexp.MustCompile(`\b(all_reduce|reduce_scatter)\.\w+`)
	option    = regexp.MustCompile(`,?(reassociate|gather-sums)=true`)
)

// specialRuns runs a case with other element types and reductions, as far as it is
// then a program.
func specialRuns(t *testing.T, name string, ar *txtar.Archive) []specialRun {
	var input, pipeline string
	for _, f := range ar.Files {
		switch f.Name {
		case "input.ir":
			input = string(f.Data)
		case "flags":
			for _, w := range strings.Fields(string(f.Data)) {
				if p, ok := strings.CutPrefix(w, "-passes="); ok {
					pipeline = option.ReplaceAllString(p, "")
				}
			}
		}
	}
	pipeline = strings.ReplaceAll(strings.ReplaceAll(pipeline, "{,", "{"), "{}", "")
	p, err := standard.Table().Parse(pipeline)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	types := slices.Sorted(maps.Keys(extremes))
	reds := []string{"", "sum", "min", "max", "product"}
	seeds := uint64(3)
	if testing.Short() {
		types, reds = []ir.DType{ir.F32, ir.I32}, reds[:3]
	}
	if bigType.MatchString(input) {
		types, reds, seeds = []ir.DType{ir.F32, ir.I32}, reds[:1], 1
	}
	texts := map[string]bool{} // seen; look-up only
	var out []specialRun
	for _, dt := range types {
		for _, red := range reds {
			text := input
			if wide := floatType.FindAllString(input, -1); len(slices.Compact(slices.Sorted(slices.Values(wide)))) == 1 {
				text = floatType.ReplaceAllString(input, dt.String()+"[")
			} else if dt == ir.F16 { // what narrows narrows to another type
				text = strings.ReplaceAll(input, "bf16[", "f16[")
			}
			if red != "" {
				text = reduction.ReplaceAllString(text, "$1."+red)
			}
			if texts[text] {
				continue
			}
			texts[text] = true
			before, err := ir.Parse(name, text)
			if err != nil || before.Verify() != nil {
				continue
			}
			after := before.Clone()
			g := passes.Manager{Validate: passes.ValidateAlways, Input: name, Costs: passestest.Bandwidth{}}
			rep, err := g.Run(after, p)
			if err != nil {
				t.Errorf("%s with %v: %v\n%s", name, dt, err, text)
				continue
			}
			if before.String() == after.String() {
				continue
			}
			for seed := range seeds {
				if err := sameOnExtremes(before, after, seed); err != nil {
					t.Errorf("%s with %v: %v\nbefore:\n%s\nafter:\n%s", name, dt, err, before, after)
					break
				}
			}
			for _, s := range rep.Steps {
				out = append(out, specialRun{dt, s.Stats})
			}
		}
	}
	return out
}

// sameOnExtremes runs both modules on extremes: NaN aside, equal bits come out.
func sameOnExtremes(before, after *ir.Module, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 5))
	for _, f := range before.Funcs() {
		if s, _ := before.StagesOf(f); s != nil { // which the golden case runs side by side
			continue
		}
		in, err := interp.RandomInputs(f, seed, interp.RandomOptions{})
		if err != nil {
			return err
		}
		opts := interp.Options{Poison: true, Seed: int64(seed), Calls: passtest.Calls()}
		wild := make([][]interp.Tensor, len(in))
		for rank := range in {
			for _, x := range in[rank] {
				y, err := drawExtremes(r, x)
				if err != nil {
					return err
				}
				wild[rank] = append(wild[rank], y)
			}
		}
		want, err := interp.Run(context.Background(), f, wild, opts)
		if err != nil { // indices out of range
			for rank := range in {
				for k, x := range in[rank] {
					if !x.DType.IsFloat() {
						wild[rank][k] = x
					}
				}
			}
			if want, err = interp.Run(context.Background(), f, wild, opts); err != nil {
				return fmt.Errorf("before: %w", err)
			}
		}
		got, err := interp.Run(context.Background(), after.Func(f.Name), wild, opts)
		if err != nil {
			return fmt.Errorf("after: %w", err)
		}
		for rank := range want {
			for k := range want[rank] {
				if i := firstDifference(got[rank][k], want[rank][k]); i >= 0 {
					return fmt.Errorf("seed %d, rank %d, output %d, element %d: %v before, %v after", seed, rank, k, i,
						want[rank][k].Float64s()[i], got[rank][k].Float64s()[i])
				}
			}
		}
	}
	return nil
}

func drawExtremes(r *rand.Rand, like interp.Tensor) (interp.Tensor, error) {
	from, err := interp.FromFloats(like.DType, extremes[like.DType], int64(len(extremes[like.DType])))
	if err != nil {
		return from, err
	}
	out := like.Clone()
	size := like.DType.Size()
	for i := 0; i < len(out.Data); i += size {
		k := r.IntN(int(from.NumElems())) * size
		copy(out.Data[i:i+size], from.Data[k:])
	}
	return out, nil
}

// firstDifference is the index of the first element whose bits differ and that is
// not NaN in both, or -1.
func firstDifference(a, b interp.Tensor) int {
	if bytes.Equal(a.Data, b.Data) {
		return -1
	}
	x, y, size := a.Float64s(), b.Float64s(), a.DType.Size()
	for i := range x {
		nan := math.IsNaN(x[i]) && math.IsNaN(y[i])
		if string(a.Data[i*size:(i+1)*size]) != string(b.Data[i*size:(i+1)*size]) && !nan {
			return i
		}
	}
	return -1
}

// An operation moves behind a reduce_scatter only if no number tells, without
// reassociate; those that may, do.
func TestPointwiseAfterScatterOnExtremes(t *testing.T) {
	p, err := standard.Table().Parse("simplify-collectives")
	if err != nil {
		t.Fatal(err)
	}
	moved := map[string]bool{} // by reduction, operation and type; look-up only
	ops := []string{"neg %x", "relu %x", "floor %x", "clamp %x {min=0.0}", "clamp %x {max=-0.0}", "clamp %x {min=1e-60}", "clamp %x {max=-1e-60}",
		"clamp %x {min=-1.0, max=2.0}", "clamp %x {min=2.0, max=-1.0}", "clamp %x {min=-0.0, max=0.0}", "clamp %x {min=-1, max=1}", "clamp %x {min=300.0}"}
	for _, op := range []string{"add", "sub", "mul", "div"} {
		for _, c := range []string{"0.0", "-0.0", "1e-60", "1e60", "0.1", "-3.0", "2", "inf", "1e-45"} {
			ops = append(ops, fmt.Sprintf("%s %%x {scalar=%s}", op, c))
		}
	}
	for _, dt := range slices.Sorted(maps.Keys(extremes)) {
		for _, red := range []string{"sum", "min", "max"} {
			for _, op := range ops {
				typ := dt.String() + "[128]"
				text := fmt.Sprintf("world 2\ngroup @g = [[0, 1]]\nfunc @f(%%x: %s) -> (%v[64]) {\n  %%y = %s : %s\n  %%c = reduce_scatter.%s %%y on @g {dim=0} : async %v[64]\n  %%w = wait_tensor %%c : %v[64]\n  return %%w\n}\n",
					typ, dt, op, typ, red, dt, dt)
				before, err := ir.Parse("case", text)
				if err != nil || before.Verify() != nil {
					continue
				}
				after := before.Clone()
				g := passes.Manager{Validate: passes.ValidateAlways, Input: "case"}
				rep, err := g.Run(after, p)
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				moved[red+" "+op+" "+dt.String()] = rep.Steps[0].Stat("pointwise-after-scatter") > 0
				for seed := range uint64(4) {
					if err := sameOnExtremes(before, after, seed); err != nil {
						t.Fatalf("%v\n%s", err, text)
					}
				}
			}
		}
	}
	for _, c := range []struct {
		what string
		want bool
	}{
		{"min relu %x f32", false}, {"max relu %x i32", true}, {"min relu %x i8", true}, {"max floor %x bf16", true}, {"min clamp %x {min=0.0} f32", false},
		{"min clamp %x {min=1e-60} f32", false}, {"min clamp %x {min=1e-60} f64", true}, {"max clamp %x {max=-0.0} f64", false},
		{"min clamp %x {min=-1.0, max=2.0} f16", true}, {"min clamp %x {min=-0.0, max=0.0} bf16", true}, {"max clamp %x {min=-1, max=1} i64", true},
		{"min mul %x {scalar=0.1} f32", true}, {"min mul %x {scalar=1e-60} f32", false}, {"min mul %x {scalar=1e-60} f64", true}, {"min mul %x {scalar=1e60} f32", false},
		{"max add %x {scalar=-3.0} bf16", true}, {"max add %x {scalar=1e60} f32", false}, {"max sub %x {scalar=inf} f64", false}, {"max mul %x {scalar=-3.0} f32", false},
		{"sum neg %x i32", true}, {"sum neg %x f32", false}, {"sum mul %x {scalar=2} f32", false}, {"min add %x {scalar=2} i32", false},
	} {
		got, known := moved[c.what]
		if !known || got != c.want {
			t.Errorf("%s: moved %v, want %v (a program: %v)", c.what, got, c.want, known)
		}
	}
}
