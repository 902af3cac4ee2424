package bench

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/internal/targz"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/export"
)

// suite runs test files and returns what it prints.
func suite(t *testing.T, device string, paths ...string) (string, error) {
	t.Helper()
	target := compile.Target{}
	s := Suite{Config: Config{Device: device, Timeout: 30 * time.Second}}
	if device == "cuda" {
		s.FakeGPUs = 1
		target.Device = compile.GPU
	}
	s.Compile = func(ctx context.Context, m *ir.Module) (*compile.Result, error) {
		return compile.Compile(ctx, m, target, compile.Options{})
	}
	var out bytes.Buffer
	err := s.Run(t.Context(), &Console{Out: &out}, paths)
	return out.String(), err
}

// The project's own programs pass wherever they run. What takes long on the fake driver, or
// other tests run there, is left out.
func TestSuite(t *testing.T) {
	const dir = "../ir/stablehlo/testdata/"
	for device, paths := range map[string][]string{"interp": {dir}, "host": {dir}, "cuda": {dir + "calls.mlir", dir + "random.mlir", dir + "control.mlir", dir + "loops.mlir", dir + "more.mlir", dir + "elementwise.mlir", dir + "float8.mlir", dir + "general.mlir", dir + "tensors.mlir", dir + "windows.mlir", dir + "older.mlir", dir + "collectives.mlir", dir + "regions.mlir", dir + "shapes.mlir", dir + "dialects.mlir"}} {
		out, err := suite(t, device, paths...)
		if err != nil || strings.Contains(out, "skipped:") {
			t.Errorf("%s: %v\n%s", device, err, out)
		}
	}
}

// A mark of UTF-8 is no part of the text, and bytecode is no text.
func TestSuiteBytes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"marked.mlir": "\ufefffunc.func @main() {\n  return\n}\n", "packed.mlir": "ML\xefR\x06StableHLO_v1.0.0\x00"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := suite(t, "interp", dir)
	if !errors.Is(err, ErrFindings) || !strings.Contains(out, "marked.mlir:1: passed\n") || !strings.Contains(out, "packed.mlir:1: failed: is not text") || !strings.HasSuffix(out, "2 chunks: 1 passed, 1 failed, 0 skipped\n") {
		t.Error(err, out)
	}
}

// beside has the specification's own tests, where they are available.
const beside = "../../shared/stablehlo"

// leastPassed is how many chunks of the specification's tests pass, of those that are not
// skipped. It only goes up.
var leastPassed = map[string]int{"testdata": 1024, "interpret": 292}

// The specification's tests do not pass less than they did.
func TestSpecification(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, least := range leastPassed {
		dir := t.TempDir()
		if err := unpack(filepath.Join(beside, name+".tar.gz"), dir); errors.Is(err, fs.ErrNotExist) {
			t.Skip("the specification's tests are not here: ", err)
		} else if err != nil {
			t.Fatal(err)
		}
		out, err := suite(t, "interp", dir)
		if err != nil && !errors.Is(err, ErrFindings) {
			t.Fatal(err)
		}
		if n := strings.Count(out, ": passed\n"); n < least {
			t.Errorf("%s: %d passed, %d did\n%s", name, n, least, out)
		}
	}
}

// Written as StableHLO and read again, the specification's programs give the same numbers.
func TestSpecificationWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	dir := t.TempDir()
	if err := unpack(filepath.Join(beside, "testdata.tar.gz"), dir); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the specification's tests are not here: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(dir + "/*.mlir")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	for i := 0; i < len(files); i += 6 { // one of six
		text, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		p, err := readProgram(stablehlo.Parse, files[i], string(text))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := export.Write(&b, p.Module.Funcs()[0], export.Options{Constants: p.Constants}); err != nil {
			t.Fatal(err)
		}
		again, err := readProgram(stablehlo.Parse, "written.mlir", b.String())
		if err != nil {
			t.Fatal(err)
		}
		got, want := computed(t, again), computed(t, p)
		for k, w := range want {
			// What rounds once in an operation may round twice in several.
			if d, err := interp.Compare(got[k], w); err != nil || !(d.Rel <= 1e-6 || w.DType.Size() == 2 && d.Rel <= 1e-3) {
				t.Errorf("%s: result %d: %v %v\n%s", filepath.Base(files[i]), k, d, err, b.String())
			}
		}
	}
}

// computed are the results of a program that holds its inputs.
func computed(t *testing.T, p *stablehlo.Program) []interp.Tensor {
	t.Helper()
	var in []interp.Tensor
	for _, c := range p.Constants {
		if c == nil {
			t.Fatal("a program with arguments")
		}
		in = append(in, interp.Tensor{DType: c.DType, Shape: c.Shape, Data: c.Expand()})
	}
	out, err := interp.Run(t.Context(), p.Module.Funcs()[0], [][]interp.Tensor{in}, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// unpack writes the files of a .tar.gz to a folder.
func unpack(packed, dir string) error {
	files, err := targz.Files(packed, "")
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return err
}

// Shardy's programs, partitioned, compute what they do on one device: but one of complex numbers.
func TestShardy(t *testing.T) {
	dir := t.TempDir()
	if err := unpack("../../shared/shardy/executable.tar.gz", dir); errors.Is(err, fs.ErrNotExist) {
		t.Skip("Shardy's tests are not at hand")
	} else if err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{"interp", "host"} {
		out, _ := suite(t, device, dir)
		if strings.Count(out, ": passed\n") < 46 || strings.Contains(out, ": failed: ") {
			t.Errorf("%s:\n%s", device, out)
		}
	}
}
