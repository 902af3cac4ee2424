package concert

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/seed-ee968945/concert"

// layers lists, for every folder of the house, which folders of the house it may
// import (tests excepted). A folder also covers those below it. The arrows run
// one way; do not widen a row to fix a build: move the code to where it belongs.
var layers = []struct {
	folder string
	may    []string
}{
	{"internal/dtype", nil},
	{"internal/diag", nil},
	{"internal/bisect", nil},
	{"internal/cases", nil},
	{"internal/dim", nil},
	{"internal/heap", nil},
	{"internal/intmath", nil},
	{"internal/stall", nil},
	{"internal/leak", []string{"internal/stall"}},
	{"internal/lifecycle", []string{"internal/stall"}},
	{"internal/maxflow", nil},
	{"internal/model", nil},
	{"internal/pack", []string{"internal/heap", "internal/intmath"}},
	{"internal/randseed", nil},
	{"internal/targz", nil},
	{"internal/tempdir", nil},
	{"internal/rowmajor", nil},
	{"internal/attr", []string{"internal/dtype"}},
	{"internal/text", []string{"internal/attr", "internal/diag", "internal/dim", "internal/dtype"}},
	{"internal/safetensors", []string{"internal/dtype"}},
	{"internal/window", []string{"internal/intmath"}},
	{"internal/prelude", []string{"internal/dtype"}},
	{"internal/hostops", []string{"internal/attr", "internal/dtype", "internal/rowmajor", "internal/window"}},
	{"ir/types", []string{"internal/attr", "internal/dim", "internal/dtype", "internal/rowmajor", "internal/text", "internal/window"}},
	{"ir", []string{"internal/attr", "internal/diag", "internal/dim", "internal/dtype", "internal/intmath", "internal/rowmajor", "internal/text", "internal/window"}},
	{"ir/directed", []string{"ir"}},
	{"ir/fx/internal/pytext", []string{"internal/attr", "internal/dtype"}},
	{"ir/fx/internal/traced", []string{"ir", "ir/internal/decompose", "internal/attr", "internal/dtype", "internal/intmath"}},
	{"ir/fx/internal/training", []string{"ir", "internal/attr"}},
	{"ir/fx/internal/layers", []string{"ir", "internal/attr"}},
	{"ir/fx/internal/windows", []string{"ir", "internal/attr", "internal/intmath", "internal/window"}},
	{"ir/fx/internal/aten", []string{"ir", "internal/attr", "internal/dtype", "internal/intmath"}},
	{"ir/internal/attend", []string{"ir", "internal/forwarding", "internal/intmath"}},
	{"ir/stablehlo/mlir", []string{"ir", "internal/diag", "internal/dtype"}},
	{"ir/stablehlo/internal/fold", []string{"ir", "ir/stablehlo/mlir", "internal/dtype"}},
	{"ir/stablehlo/internal/processgroups", []string{"ir/stablehlo/mlir"}},
	{"ir/stablehlo/expect", []string{"ir", "internal/dtype"}},
	{"internal/forwarding", []string{"ir", "internal/attr"}},
	{"internal/fusion", []string{"ir", "internal/intmath"}},
	{"internal/place", []string{"ir", "internal/attr", "internal/fusion", "internal/pack"}},
	{"interp", []string{"ir", "internal/attr", "internal/diag", "internal/dim", "internal/dtype", "internal/hostops", "internal/intmath", "internal/randseed", "internal/safetensors"}},
	{"equiv", []string{"ir", "internal/attr"}},
	{"equiv/internal/terms", []string{"ir", "equiv/internal", "internal/attr", "internal/dim", "internal/intmath"}},
	{"equiv/internal/scalar", []string{"ir", "internal/attr"}},
	{"equiv/internal/layout", []string{"ir", "internal/intmath"}},
	{"equiv/internal/index", []string{"ir"}},
	{"equiv/internal/lines", []string{"ir", "internal/attr"}},
	{"equiv/internal/numbered", nil},
	{"equiv/internal/ranks", []string{"equiv/internal/numbered"}},
	{"equiv/memory", []string{"ir", "equiv"}},
	{"equiv/mesh", []string{"ir", "internal/window"}},
	{"equiv/mesh/internal/normal", []string{"equiv/mesh/internal/digits", "internal/dtype", "internal/intmath", "internal/window"}},
	{"equiv/mesh/placement", []string{"ir"}},
	{"equiv/mesh/internal/digits", []string{"internal/intmath"}},
	{"sharding", []string{"ir", "internal/intmath"}},
	{"internal/fillrand", []string{"internal/dtype", "internal/intmath"}},
	{"internal/fingerprint", []string{"interp", "internal/dtype", "internal/fillrand", "internal/safetensors"}},
	{"internal/strictjson", nil},
	{"cost/calibration", []string{"internal/strictjson"}},
	{"cost", []string{"ir", "internal/strictjson"}},
	{"sim", []string{"ir", "cost", "internal/heap"}},
	{"internal/sched", []string{"sim", "internal/heap"}},
	{"passes", []string{"ir", "equiv", "internal/bisect", "internal/diag", "internal/place"}},
	{"passes/internal", []string{"ir", "passes", "sim"}},
	{"passes/simplify", []string{"ir", "passes", "passes/internal", "internal/attr"}},
	{"passes/partition", []string{"ir", "passes", "passes/internal", "sim", "internal/attr", "internal/maxflow"}},
	{"passes/reuse", []string{"ir", "passes", "internal/attr", "internal/place"}},
	{"passes/hierarchy", []string{"ir", "passes", "internal/attr"}},
	{"passes/pipeline", []string{"ir", "passes"}},
	{"passes/overlap", []string{"ir", "passes", "passes/internal", "passes/reuse", "sim", "internal/attr", "internal/sched"}},
	{"passes/reorder", []string{"ir", "passes", "passes/internal", "sim"}},
	{"passes/fuse", []string{"ir", "passes", "passes/internal", "sim", "internal/attr", "internal/fusion", "internal/sched"}},
	{"passes/spmd", []string{"ir", "passes", "sharding", "internal/window"}},
	{"passes/internal/loops", []string{"ir", "internal/dtype", "internal/hostops"}},
	{"passes/unroll", []string{"ir", "passes", "passes/internal", "internal/attr", "internal/hostops"}},
	{"passes/pipelinecollectives", []string{"ir", "passes", "passes/internal", "sim", "internal/attr", "internal/hostops", "internal/sched"}},
	{"passes/fusecollectives", []string{"ir", "passes", "passes/internal", "sim", "sharding", "internal/intmath", "internal/sched"}},
	{"passes/standard", []string{"ir", "passes", "internal/attr", "internal/forwarding", "internal/intmath", "internal/place"}},
	{"passes/passtest", []string{"ir", "interp", "cost", "passes", "internal/joint"}},
	{"internal/golden", []string{"ir", "interp", "cost", "passes", "internal"}},
	{"internal/report", []string{"ir", "cost", "sim", "passes"}},
	{"program", []string{"internal/attr", "internal/dim", "internal/dtype", "internal/rowmajor", "internal/text"}},
	{"lower", []string{"ir", "passes", "program", "internal/attr", "internal/dim", "internal/dtype", "internal/fusion", "internal/intmath", "internal/pack", "internal/place", "internal/prelude", "internal/text", "internal/window"}},
	{"lower/cudagen/internal/index", []string{"internal/intmath"}},
	{"lower/proof", []string{"ir", "equiv", "program", "internal/attr"}},
	{"compile", []string{"ir", "equiv", "sharding", "cost", "sim", "passes", "lower", "program", "internal/place"}},
	{"runtime", []string{"program", "internal/lifecycle", "internal/attr", "internal/dim", "internal/dtype", "internal/hostops", "internal/randseed", "internal/rowmajor", "internal/stall"}},
	{"kernels", []string{"cost/calibration", "internal/dtype"}},
	{"cuda", nil}, // the tests of all below it
	{"cuda/internal/hostmem", nil},
	{"cuda/internal/machine", []string{"internal/prelude"}},
	{"cuda/dl", nil},
	{"cuda/driver", []string{"cuda/dl", "cuda/internal/hostmem"}},
	{"cuda/internal/owned", []string{"cuda/driver", "internal/lifecycle"}},
	{"cuda/internal/drivertest", []string{"cuda/driver"}},
	{"cuda/driver/fake", []string{"cuda/driver", "cuda/internal/hostmem", "kernels", "internal/dtype"}},
	{"cuda/symm", []string{"cuda/driver", "cuda/internal/hostmem", "cuda/internal/owned", "runtime/rendezvous", "kernels", "internal/dtype", "internal/lifecycle", "internal/stall"}},
	{"cuda/coll", []string{"cuda/symm", "cuda/driver", "kernels", "internal/dtype", "internal/stall"}},
	{"cuda/eager", []string{"cuda/coll", "cuda/symm", "cuda/driver", "kernels"}},
	{"cuda/topo", []string{"runtime/rendezvous", "internal/strictjson"}},
	{"cuda/nvrtc", []string{"cuda/dl"}},
	{"cuda/nccl", []string{"cuda/dl", "runtime/rendezvous", "internal/dtype", "internal/hostops", "internal/stall"}},
	{"cuda/library", []string{"cuda/driver", "cuda/nvrtc", "internal/attr", "internal/dtype", "internal/hostops"}},
	{"cuda/lt", []string{"cost/calibration", "cuda/dl", "cuda/driver", "cuda/library", "internal/attr", "internal/dtype", "internal/hostops"}},
	{"cuda/wgmma", []string{"cuda/driver", "cuda/library", "cuda/lt", "internal/dtype", "kernels"}},
	{"cuda/attention", []string{"cuda/driver", "cuda/internal/machine", "cuda/library", "cuda/symm", "internal/attr", "internal/dtype"}},
	{"cuda/gemm", []string{"cuda/driver", "cuda/internal/machine", "cuda/library", "internal/attr", "internal/dtype", "internal/prelude"}},
	{"cuda/cudnn", []string{"cuda/attention", "cuda/dl", "cuda/driver", "cuda/library", "cuda/nvrtc", "cuda/symm", "internal/dtype", "internal/intmath", "internal/window"}},
	{"cuda/device/internal/brackets", []string{"program"}},
	{"cuda/device/internal/callkey", []string{"program", "runtime"}},
	{"cuda/device/internal/code", []string{"cuda/device/internal/layout", "cuda/driver", "cuda/internal/hostmem", "cuda/internal/owned", "cuda/nvrtc", "runtime", "internal/dim", "internal/dtype", "internal/hostops", "internal/lifecycle"}},
	{"cuda/device/internal/pace", nil},
	{"cuda/device/internal/segments", []string{"cuda/coll", "cuda/device/internal/layout", "cuda/driver", "cuda/nccl", "kernels", "runtime", "internal/dim", "internal/dtype", "internal/intmath"}},
	{"cuda/device/internal/progress", []string{"runtime/rendezvous"}},
	{"cuda/device/internal/domain", []string{"cuda/coll", "cuda/driver", "cuda/symm", "cuda/topo", "runtime", "kernels"}},
	{"cuda/device/internal/layout", []string{"runtime", "internal/hostops"}},
	{"cuda/device", []string{"cuda/attention", "cuda/coll", "cuda/cudnn", "cuda/driver", "cuda/gemm", "cuda/internal/hostmem", "cuda/internal/owned", "cuda/library", "cuda/lt", "cuda/nccl", "cuda/nvrtc", "cuda/symm", "cuda/topo", "cuda/wgmma", "runtime", "kernels", "program", "internal/attr", "internal/dim", "internal/dtype", "internal/hostops", "internal/intmath", "internal/lifecycle", "internal/stall"}},
	{"internal/joint", []string{"ir", "interp", "internal/attr"}},
	{"internal/llama", []string{"ir"}},
	{"internal/gpubench", []string{"cost/calibration", "cuda", "kernels", "runtime", "internal/dtype", "internal/tempdir"}},
	{"internal/hostrun", []string{"ir", "interp", "lower", "program", "runtime"}},
	{"test", []string{"ir", "interp", "cost", "passes", "program", "lower", "runtime", "cuda", "kernels", "internal"}},
	{"bench", []string{"ir", "sharding", "interp", "cost", "sim", "compile", "program", "runtime", "cuda", "internal"}},
	{"cmd", []string{"bench", "ir", "equiv", "sharding", "interp", "cost", "sim", "passes", "program", "lower", "compile", "runtime", "cuda", "kernels", "internal"}},
	{"examples", []string{"ir", "interp", "cost", "sim", "passes", "program", "lower", "compile", "runtime", "cuda"}},
}

// banned lists imports that a folder must not have, with the reason.
var banned = []struct {
	folders []string
	path    string
	why     string
}{
	{[]string{"ir", "equiv", "sharding", "passes", "lower", "lower/proof", "compile", "sim", "cost", "program", "internal/sched"}, "time", "decisions must not depend on a clock"},
	{[]string{"ir", "equiv", "sharding", "passes", "lower", "lower/proof", "compile", "sim", "cost", "program", "internal/sched"}, "math/rand", "decisions must be the same on every rank"},
	// internal/sched searches with a generator of its own, seeded with a constant.
	{[]string{"ir", "equiv", "sharding", "passes", "lower", "lower/proof", "compile", "sim", "cost", "program"}, "math/rand/v2", "decisions must be the same on every rank"},
	{[]string{"ir", "equiv", "sharding", "passes", "lower", "lower/proof", "compile", "sim", "cost", "program", "internal/sched"}, "os", "decisions must not depend on the environment"},
	{[]string{"ir", "equiv", "sharding", "interp", "cost", "sim", "passes", "program", "lower", "lower/proof", "internal/hostops", "runtime", "kernels", "bench", "cmd"}, "C", "only cuda calls C"},
	{[]string{"ir", "equiv", "sharding", "interp", "cost", "sim", "passes", "program", "lower", "lower/proof", "runtime", "kernels", "bench", "cmd"}, "unsafe", "only cuda, the host device's shared memory and the bytes of its numbers need it"},
}

// onlyTable is why passes do not know each other.
const onlyTable = "passes are found in the table, and do not call each other"

// limited lists packages that only some folders may import, with the reason. Tests may.
var limited = []struct {
	path string
	to   []string
	why  string
}{
	{"passes/simplify", []string{"passes/standard"}, onlyTable},
	{"passes/hierarchy", []string{"passes/standard"}, onlyTable},
	{"passes/pipeline", []string{"passes/standard"}, onlyTable},
	{"passes/overlap", []string{"passes/standard"}, onlyTable},
	{"passes/fuse", []string{"passes/standard"}, onlyTable},
	{"passes/fusecollectives", []string{"passes/standard"}, onlyTable},
	{"passes/reorder", []string{"passes/standard"}, onlyTable},
	{"passes/unroll", []string{"passes/standard"}, onlyTable},
	{"passes/pipelinecollectives", []string{"passes/standard"}, onlyTable},
	{"passes/reuse", []string{"passes/standard", "passes/overlap"}, onlyTable},
	{"cuda/driver/fake", []string{"bench", "test"}, "it computes nothing on a GPU: only tests, and commands that are asked for it, use it"},
}

// TestImports holds the import rules for every file that is not a test.
func TestImports(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); path != "." && err == nil {
				return filepath.SkipDir // a module of its own imports what its users may
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		checkFile(t, path, seen)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rationale, err := os.ReadFile("RATIONALE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if !regexp.MustCompile("(?m)^\\| (`[^|]*, )?`" + l.folder + "`[ ,]").Match(rationale) {
			t.Errorf("the rules name %s; the table in RATIONALE.md does not say what it owns", l.folder)
		}
		if !seen[l.folder] && l.folder != "examples" && l.folder != "internal/joint" {
			t.Errorf("the rules name %s, which holds no Go file", l.folder)
		}
	}
}

func checkFile(t *testing.T, path string, seen map[string]bool) {
	t.Helper()
	dir := filepath.ToSlash(filepath.Dir(path))
	at := -1
	for i, l := range layers {
		if under(dir, l.folder) && (at < 0 || len(l.folder) > len(layers[at].folder)) {
			at = i
		}
	}
	if at < 0 {
		if dir != "." {
			t.Errorf("%s: no row of the import rules covers %s", path, dir)
		}
		return
	}
	layer := layers[at]
	seen[layer.folder] = true
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	test := strings.Contains(dir, "test") // packages that serve tests, such as sim/simtest
	for _, imp := range f.Imports {
		p, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			t.Error(err)
			continue
		}
		if ours, ok := strings.CutPrefix(p, module+"/"); ok {
			allowed := under(ours, layer.folder) || slices.ContainsFunc(layer.may, func(m string) bool { return under(ours, m) })
			if !allowed && !test {
				t.Errorf("%s imports %s; %s may import %v", path, ours, layer.folder, layer.may)
			}
			for _, l := range limited {
				if under(ours, l.path) && !slices.ContainsFunc(l.to, func(f string) bool { return under(dir, f) }) && !test {
					t.Errorf("%s imports %s: %s", path, ours, l.why)
				}
			}
		}
		for _, b := range banned {
			if p == b.path && slices.Contains(b.folders, layer.folder) && !test && !exempt(path, p) {
				t.Errorf("%s imports %q: %s", path, p, b.why)
			}
		}
	}
}

// exempt lists the files that a ban does not reach.
func exempt(path, imp string) bool {
	path = filepath.ToSlash(path)
	switch imp {
	case "os":
		return strings.HasPrefix(path, "ir/fx/") // reads the file it is asked to import
	case "unsafe":
		return strings.HasPrefix(path, "runtime/internal/shm/") // the host device's shared memory
	}
	return false
}

func under(dir, folder string) bool { return dir == folder || strings.HasPrefix(dir, folder+"/") }
