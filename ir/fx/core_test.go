package fx

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir/fx/internal/aten"
)

// notImported are operators of the core set that concert does not have, with the reason.
var notImported = map[string]string{
	"aten._local_scalar_dense.default": "a number of the host that a tensor decides",
	"aten.sym_numel.default":           "no tensor: sizes are numbers in files",
	"aten.sym_size.int":                "no tensor: sizes are numbers in files",
	"aten.sym_storage_offset.default":  "no tensor: sizes are numbers in files",
	"aten.sym_stride.int":              "no tensor: sizes are numbers in files",
}

// byOthers are operators of the core set whose numbers other tests check.
var byOthers = map[string]string{
	"aten.empty.memory_format":    "of any content",
	"aten.empty_strided.default":  "of any content",
	"aten.rand.default":           "TestDraws",
	"aten.randn.default":          "TestDraws",
	"aten.randperm.default":       "TestDraws",
	"aten.native_dropout.default": "TestDraws",
	"aten.nonzero.default":        "TestMasks",

	"aten.avg_pool3d.default":               "TestPools",
	"aten.max_pool3d_with_indices.default":  "TestPools",
	"aten._adaptive_avg_pool3d.default":     "TestResample",
	"aten.reflection_pad1d.default":         "TestResample",
	"aten.reflection_pad3d.default":         "TestResample",
	"aten.replication_pad3d.default":        "TestResample",
	"aten._native_batch_norm_legit.default": "TestBatchNorms",
}

// TestCore holds the operator table against PyTorch's core set: every operator of it is
// imported, with numbers of PyTorch's own, or stands in a list with the reason.
func TestCore(t *testing.T) {
	recorded := map[string]int{}
	file, err := os.Open("testdata/operators.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var call struct{ Target string }
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			t.Fatal(err)
		}
		recorded[call.Target]++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/core.txt")
	if err != nil {
		t.Fatal(err)
	}
	imported, named := 0, map[string]bool{}
	for _, name := range strings.Fields(string(text)) {
		named[name] = true
		known := Known(name)
		why, refused := notImported[name]
		_, elsewhere := byOthers[name]
		base, out := strings.CutSuffix(name, ".out")
		functional := Known(base + ".default")
		switch {
		case out && functional && !known && !refused: // traced graphs have the functional form
		case known && refused:
			t.Errorf("%s is imported, and stands in the list: %s", name, why)
		case !known && !refused:
			t.Errorf("%s is not imported, for no reason", name)
		case known && recorded[name] == 0 && !elsewhere:
			t.Errorf("%s has no numbers", name)
		case recorded[name] > 0 && elsewhere:
			t.Errorf("%s has numbers, and stands in the list of what has none", name)
		case known:
			imported++
		}
	}
	for _, list := range []map[string]string{notImported, byOthers} {
		for name := range list {
			if !named[name] {
				t.Errorf("%s is listed, but is no operator of the core set", name)
			}
		}
	}
	t.Logf("%d of %d operators", imported, len(named))
}

// What TestReference writes about the operator table.
var (
	NotImported = notImported
	ByOthers    = byOthers
)

// Known reports whether the importer's table has a target.
func Known(target string) bool {
	_, real := aten.Operators[target]
	_, pairs := aten.Complex[target]
	return real || pairs
}

// Targets lists the importer's table.
func Targets() []string { return slices.Sorted(maps.Keys(aten.Operators)) }

// ComplexTargets are those that it knows for complex numbers.
func ComplexTargets() []string { return slices.Sorted(maps.Keys(aten.Complex)) }

// Update reports whether tests rewrite what they expect.
func Update() bool { return *update }
