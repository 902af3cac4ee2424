package fx

import (
	"path/filepath"
	"testing"
)

// graphFiles lists the traced graphs of the repository.
func graphFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../testdata/graphs/*.graph.json.gz")
	if err != nil || len(files) < 28 {
		t.Fatalf("found %d graphs, want at least 28 (%v)", len(files), err)
	}
	return files
}

// Every traced graph imports without an opaque call or a warning, one IR node
// for each traced node, of the same name and in the same order.
func TestImportGraphs(t *testing.T) {
	for _, path := range graphFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := f.Import()
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range r.Warnings {
				t.Error(w)
			}
			order := r.Func.Order()
			if len(order) != len(f.Nodes) {
				t.Fatalf("%d IR nodes for %d traced nodes", len(order), len(f.Nodes))
			}
			for i, n := range order {
				if want := f.Nodes[i].Name; n.Name() != want && want != KindOutput {
					t.Fatalf("node %d is %s, traced %s", i, n.Name(), want)
				}
			}
		})
	}
}
