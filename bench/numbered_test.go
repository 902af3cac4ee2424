package bench

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir/hlo"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/export"
	"github.com/seed-ee968945/concert/sharding/sdy"
)

// recorded runs a program on recordings, and returns what is printed.
func recorded(t *testing.T, name string, p *stablehlo.Program, device, dir string) (string, error) {
	t.Helper()
	var target compile.Target
	if device == "cuda" {
		target.Device = compile.GPU
	}
	r, err := compile.Compile(t.Context(), p.Module, target, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := New(Config{Device: device, FakeGPUs: p.Module.World, Steps: 1, Inputs: dir, Expect: dir, Random: "valid", Timeout: 30 * time.Second, StableHLO: p}, name, r.Funcs[0])
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	plain := func(_, text string) string { return text }
	err = j.Run(t.Context(), &Console{Out: &out, Err: &out, Env: func(string) string { return "" }, Colour: plain, Phase: func(string) func() { return func() {} }})
	return out.String(), err
}

// Recordings are by number: scalars have one element, bfloat16 is stored as float32, and
// constants that are too large for the text are not among them.
func TestNumbered(t *testing.T) {
	large := strings.Repeat("0000803F", 1<<15)
	text := `func.func @main(%a: tensor<2xbf16>, %s: tensor<f32>) -> (tensor<2xbf16>, tensor<f32>, tensor<2xi32>) {
  %b = stablehlo.add %a, %a : tensor<2xbf16>
  %i = stablehlo.iota dim = 0 : tensor<2xi32>
  %large = stablehlo.constant dense<"0x` + large + `"> : tensor<32768xf32>
  %one = stablehlo.constant dense<2.0> : tensor<32768xf32>
  %two = stablehlo.multiply %large, %one : tensor<32768xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%two init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<32768xf32>, tensor<f32>) -> tensor<f32>
  %t = stablehlo.multiply %s, %sum : tensor<f32>
  return %b, %t, %i : tensor<2xbf16>, tensor<f32>, tensor<2xi32>
}
`
	tensor := func(vals ...float32) interp.Tensor { return floats(t, vals) }
	ints, err := interp.FromSlice([]int32{0, 1}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{"interp", "host"} {
		for last, want := range map[float32]error{65536 * 3: nil, 65536 * 3.1: ErrFindings} {
			dir := t.TempDir()
			record(t, dir, "in", tensor(1, 2), tensor(3))
			record(t, dir, "out", tensor(2, 4.01), tensor(last), ints)
			p, err := readProgram(stablehlo.Parse, "small", text)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := recorded(t, "small", p, device, dir); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v\n%s", device, err, want, out)
			}
		}
	}
}

func floats(t *testing.T, vals []float32) interp.Tensor {
	t.Helper()
	x, err := interp.FromSlice(vals, int64(len(vals)))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// record writes the inputs or the results of a program that is called small.
func record(t *testing.T, dir, what string, ts ...interp.Tensor) {
	t.Helper()
	file := &safetensors.File{}
	for i, x := range ts {
		file.Tensors = append(file.Tensors, safetensors.Tensor{Name: "00" + string(rune('0'+i)), DType: x.DType, Shape: x.Shape, Data: x.Data})
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "small."+what+".safetensors"), file); err != nil {
		t.Fatal(err)
	}
}

// A result that would be zero but for rounding agrees with one that was rounded otherwise, and with
// no other; one with digits keeps its limit.
func TestNoise(t *testing.T) {
	const text = `func.func @main(%x: tensor<64xf32>) -> (tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<64.0> : tensor<f32>
  %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
  %mean = stablehlo.divide %sum, %n : tensor<f32>
  %all = stablehlo.broadcast_in_dim %mean, dims = [] : (tensor<f32>) -> tensor<64xf32>
  %d = stablehlo.subtract %x, %all : tensor<64xf32>
  %r = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
  return %r, %sum : tensor<f32>, tensor<f32>
}
`
	var x []float32
	var sum float64
	rng := rand.New(rand.NewPCG(1, 2))
	for range 64 {
		x = append(x, rng.Float32())
		sum += float64(x[len(x)-1])
	}
	for _, c := range []struct {
		zero, sum float32 // how far the recording is off
		want      error
	}{{3e-6, 0, nil}, {3e-3, 0, ErrFindings}, {0, 3e-2, ErrFindings}} {
		dir := t.TempDir()
		record(t, dir, "in", floats(t, x))
		record(t, dir, "out", floats(t, []float32{c.zero}), floats(t, []float32{float32(sum) + c.sum}))
		p, err := readProgram(stablehlo.Parse, "small", text)
		if err != nil {
			t.Fatal(err)
		}
		out, err := recorded(t, "small", p, "host", dir)
		if !errors.Is(err, c.want) {
			t.Errorf("%+v: %v\n%s", c, err, out)
		}
		if noted := strings.Contains(out, "1 of them are rounding errors"); noted != (c.want == nil) {
			t.Errorf("%+v: noted: %v\n%s", c, noted, out)
		}
	}
}

// JAX's programs give JAX's numbers, after they were written as StableHLO and read again, too:
// ours, which tools/jax/programs.py writes, and others where they are.
func TestJAX(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ours, err := filepath.Glob("../testdata/jax/*.gz")
	if err != nil || len(ours) < 20 {
		t.Fatalf("%d programs, %v", len(ours), err)
	}
	others, err := filepath.Glob("../../shared/jax/*.gz")
	if err != nil || len(others) == 0 {
		t.Log("programs of others are not here: ", err)
	}
	for _, path := range append(ours, others...) {
		dir, file := filepath.Split(path)
		name, kind, _ := strings.Cut(file, ".")
		t.Run(name+"."+kind, func(t *testing.T) {
			t.Parallel()
			packed, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := inflate(packed)
			if err != nil {
				t.Fatal(err)
			}
			parse := stablehlo.Parse
			if kind == "hlo.txt.gz" {
				parse = hlo.Parse
			}
			p, err := readProgram(parse, name, text)
			if err != nil && strings.Contains(err.Error(), "op not supported") {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			var again strings.Builder // written, and read once more
			if err := export.Write(&again, p.Module.Funcs()[0], export.Options{Constants: p.Constants}); err != nil {
				t.Fatal(err)
			}
			if p, err = readProgram(stablehlo.Parse, name, again.String()); err != nil {
				t.Fatal(err)
			}
			if out, err := recorded(t, name, p, "host", dir); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if slices.Contains(ours, path) {
				if out, err := recorded(t, name, p, "cuda", dir); err != nil {
					t.Errorf("on the fake driver: %v\n%s", err, out)
				}
			}
		})
	}
}

// readProgram reads a text as a program.
func readProgram(parse func(name, text string) (*stablehlo.Module, error), name, text string) (*stablehlo.Program, error) {
	m, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	m.Sharded(sdy.Inferred)
	p, err := m.Program()
	if err != nil {
		return nil, err
	}
	return p, compile.Partition(p.Module, compile.PartitionOptions{})
}

// inflate is what gzip has packed.
func inflate(packed []byte) (string, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(z)
	return string(text), err
}
