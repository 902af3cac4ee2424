package cudagen_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
		var shared []*ir.Value // what is donated is in place
		for _, d := range f.Donations() {
			shared = append(shared, d.Input.Result(0), f.Return().Arg(d.Result))
		}
		k, err := cudagen.Generate(name, st, order[len(f.Inputs()):len(order)-1], shared...)
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
		again, err := cudagen.Generate(name, tr.st, order[len(f.Inputs()):len(order)-1], shared...)
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
	compiles(t, trials)
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), true)
	compare(t, trials, runOnHost(t, trials), false)
	together(t, listing(trials), "-DEXACT_MATH")
}

// With -gpu=FOLDER the test leaves kernels0.cu, inputs0 and so on there, in parts that
// compilers can take side by side, and compares what a GPU made of them with exact
// functions and with its own, outputs0.exact and outputs0.fast, where they are there:
//
//	nvcc -std=c++17 -arch=sm_90 -fmad=false -DEXACT_MATH kernels0.cu -o k && ./k inputs0 outputs0.exact
func TestOnGPU(t *testing.T) {
	if *gpu == "" {
		t.Skip("no -gpu folder")
	}
	const parts = 8
	trials := slices.Concat(load(t), tracedTrials(t, "t", tinySteps...), sizedTrials(t, 6))
	compared := map[string]int{}
	for part := range parts {
		mine := trials[part*len(trials)/parts : (part+1)*len(trials)/parts]
		file := func(name, mode string) string { return filepath.Join(*gpu, fmt.Sprint(name, part, mode)) }
		write(t, file("kernels", ".cu"), []byte(program(mine)))
		write(t, file("inputs", ""), inputs(mine))
		for _, mode := range []string{"exact", "fast"} {
			got, err := os.ReadFile(file("outputs", "."+mode))
			if err != nil {
				t.Log(err)
				continue
			}
			compare(t, mine, got, mode == "exact")
			compared[mode] += len(mine)
		}
	}
	t.Logf("launches compared: %v of %d", compared, len(trials))
}
