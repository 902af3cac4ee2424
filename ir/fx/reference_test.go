package fx_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

// coverage is what the recorded calls of an operator show.
type coverage struct {
	calls int
	types map[string]bool // element types of first operands
	ops   map[ir.Op]bool  // what the importer makes of the calls
}

// covered reads the recordings.
func covered(t *testing.T) map[string]*coverage {
	file, err := os.Open(*recordings)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	out := map[string]*coverage{}
	for lines.Scan() {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		c := out[r.Target]
		if c == nil {
			c = &coverage{types: map[string]bool{}, ops: map[ir.Op]bool{}}
			out[r.Target] = c
		}
		dt := r.Out[0].DType
		if len(r.In) > 0 {
			dt = r.In[0].DType
		}
		if c.calls++; c.types[dt] {
			continue
		}
		c.types[dt] = true
		f, err := fx.Read("call.json", strings.NewReader(r.document()))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.Import()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range res.Func.Order() {
			if op := n.Op(); op != ir.OpInput && op != ir.OpReturn && !(op == ir.OpAlias && len(r.Out) > 1) {
				c.ops[op] = true
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// onGPU says what computes an op there; TestEveryOperation of lower/cudagen runs each kernel.
func onGPU(op ir.Op) string {
	switch {
	case op.IsView():
		return "view"
	case op == ir.OpConvolution:
		return "generated or library"
	case op.Class() == ir.ClassMemory || op.Info().Generated:
		return "generated"
	}
	return "kernel or library"
}

// TestReference holds docs/operators.md against the operator table and the recordings.
func TestReference(t *testing.T) {
	const path = "../../docs/operators.md"
	names, err := os.ReadFile("testdata/core.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen, core, complete := covered(t), strings.Fields(string(names)), 0
	var rows, without strings.Builder
	for _, name := range core {
		if why, refused := fx.NotImported[name]; refused {
			fmt.Fprintf(&without, "| `%s` | %s |\n", name, why)
			continue
		}
		if !fx.Known(name) {
			fmt.Fprintf(&without, "| `%s` | traces have its functional form, `%s` |\n", name, strings.TrimSuffix(name, ".out")+".default")
			continue
		}
		complete++
		c := seen[name]
		if c == nil {
			fmt.Fprintf(&rows, "| `%s` | yes | | | | `%s` |\n", name, fx.ByOthers[name])
			continue
		}
		ops, on := map[string]bool{}, map[string]bool{}
		for op := range c.ops {
			ops["`"+op.Name()+"`"], on[onGPU(op)] = true, true
		}
		fmt.Fprintf(&rows, "| `%s` | yes | %s | bits or 4 ulp | %s | %d: %s |\n", name, listed(ops, " "), listed(on, ", "), c.calls, listed(c.types, " "))
	}
	var beside []string
	for _, name := range fx.Targets() {
		if !slices.Contains(core, name) {
			beside = append(beside, "`"+name+"`")
		}
	}
	var pairs []string
	for _, name := range fx.ComplexTargets() {
		pairs = append(pairs, "`"+name+"`")
	}
	want := fmt.Sprintf(`# PyTorch's operators

Made by `+"`go test ./ir/fx -run TestReference -update`"+` from the importer's table and from what
PyTorch computed for each call (`+"`tools/torch/operators.py`"+`).

PyTorch tags %d operators as its core set; %d are complete: the importer reads them, the
interpreter and the host's kernels, which are the same, give PyTorch's numbers (integers and what
only moves to the bit, floating-point numbers to 4 units in the last place of the largest element),
and devices, real ones and the fake, have kernels for all that they become. What has
no number of PyTorch's names the test instead.

| operator | importer | becomes | numbers | on GPUs | calls checked, by element type |
| --- | --- | --- | --- | --- | --- |
%s
The others:

| operator | why |
| --- | --- |
%s
Beside the core set the importer knows %d more: %s.

Operators on lists of tensors (`+"`aten._foreach_add.List`"+`) are imported as the operator on each.
Signs of eigenvectors and singular vectors, and which ones stand for values that are equal, are as they come, which
PyTorch leaves open, too.
Complex numbers are pairs of real ones (`+"`view_as_real`"+`); known for them are %d operators: %s.
`, len(core), complete, rows.String(), without.String(), len(beside), strings.Join(beside, ", "), len(pairs), strings.Join(pairs, ", "))
	have, err := os.ReadFile(path)
	switch {
	case err == nil && string(have) == want:
	case fx.Update():
		if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not say what the table says; go test ./ir/fx -run TestReference -update", path)
	}
	if complete < 180 {
		t.Errorf("%d operators of the core set are complete, want 180", complete)
	}
}

func listed(set map[string]bool, between string) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), between)
}
