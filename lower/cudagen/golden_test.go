package cudagen_test

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
)

var (
	update = flag.Bool("update", false, "rewrite the kernels of golden cases")
	gpu    = flag.String("gpu", "", "write kernels.cu, inputs and wanted results to this folder, or compare what a GPU made of them there")
)

// load reads testdata/*.txtar: a comment, the function and its kernel. The word
// ulp=N of the comment allows the default mathematical functions to be N units in
// the last place off.
func load(t *testing.T) []*trial {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	var out []*trial
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ir.Parse(file, string(ar.Files[0].Data))
		if err != nil {
			t.Fatal(err)
		}
		f := m.Funcs()[0]
		if err := m.Verify(); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		order := f.Order()
		ulp := int64(0)
		for _, w := range strings.Fields(string(ar.Comment)) {
			if n, ok := strings.CutPrefix(w, "ulp="); ok {
				if ulp, err = strconv.ParseInt(n, 10, 64); err != nil {
					t.Fatal(err)
				}
			}
		}
		st, err := ir.ComputeStorages(f)
		if err != nil {
			t.Fatal(err)
		}
		k, err := cudagen.Generate(name, st, order[len(f.Inputs()):len(order)-1])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		tr, err := newTrialAt(k, st, f, ulp, 1, sizesAt(m)[0])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		want := ""
		if len(ar.Files) > 1 {
			want = string(ar.Files[1].Data)
		}
		if d := cmp.Diff(want, tr.k.Body); d != "" {
			if !*update || os.Getenv("CI") != "" {
				t.Errorf("%s: the kernel differs (-want +got):\n%s", file, d)
			} else {
				ar.Files = append(ar.Files[:1:1], txtar.File{Name: "want.cu", Data: []byte(tr.k.Body)})
				write(t, file, txtar.Format(ar))
			}
		}
		again, err := cudagen.Generate(name, tr.st, order[len(f.Inputs()):len(order)-1])
		if err != nil || again.Source() != tr.k.Source() || again.Key(nil) != tr.k.Key(nil) {
			t.Errorf("%s: a second run gives another kernel, %v", file, err)
		}
		out = append(out, tr)
		for _, at := range sizesAt(m)[1:] {
			more, err := newTrialAt(tr.k, tr.st, f, ulp, 2, at)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out = append(out, more)
		}
	}
	return out
}

// sizesAt are values for the symbols of a module: hints, bounds, and nothing at all.
func sizesAt(m *ir.Module) []map[string]int64 {
	if len(m.Symbols()) == 0 {
		return []map[string]int64{nil}
	}
	out := []map[string]int64{{}, {}, {}}
	for _, s := range m.Symbols() {
		out[0][s.Name], out[1][s.Name], out[2][s.Name] = s.Hint, s.Max, 0
	}
	return out
}

// The kernels of characteristic regions, their text and, on the host, their
// numbers: with exact functions the bits of the host's kernels.
func TestGolden(t *testing.T) {
	trials := load(t)
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), true)
	compare(t, trials, runOnHost(t, trials), false)
}

// With -gpu=FOLDER the test leaves kernels.cu and inputs there, and compares
// outputs.exact and outputs.fast if they are there:
//
//	nvcc -std=c++17 -arch=sm_90 -fmad=false -DEXACT_MATH kernels.cu -o k && ./k inputs outputs.exact
func TestOnGPU(t *testing.T) {
	if *gpu == "" {
		t.Skip("no -gpu folder")
	}
	trials := append(load(t), tinyTrials(t, "t")...)
	write(t, filepath.Join(*gpu, "kernels.cu"), []byte(program(trials)))
	write(t, filepath.Join(*gpu, "inputs"), inputs(trials))
	for _, mode := range []string{"exact", "fast"} {
		got, err := os.ReadFile(filepath.Join(*gpu, "outputs."+mode))
		if err != nil {
			t.Log(err)
			continue
		}
		compare(t, trials, got, mode == "exact")
	}
}
