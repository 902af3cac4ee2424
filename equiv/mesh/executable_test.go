package mesh_test

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/internal/targz"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding/sdy"
)

// TestExecutable proves what the partitioner makes of Shardy's programs.
func TestExecutable(t *testing.T) {
	files, err := targz.Files("../../../shared/shardy/executable.tar.gz", ".mlir")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("Shardy's tests are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	proved, all := 0, 0
	for _, name := range names {
		for _, c := range mlir.Split(name, files[name]) {
			m, err := c.Parse()
			if err != nil || m.Empty() {
				continue
			}
			for _, f := range m.Entries() {
				program := &stablehlo.Module{Module: m}
				program.Sharded(sdy.Given)
				plan, err := program.Import(f)
				if err != nil {
					t.Logf("%s: %v", name, err)
					continue
				}
				for _, st := range plan.Stages {
					device := st.Module.Clone().Func(st.Func.Name)
					if err := compile.Partition(st.Module, compile.PartitionOptions{}); err != nil {
						t.Logf("%s: %v", name, err)
						continue
					}
					ranks := st.Module.Func(st.Func.Name)
					o, err := mesh.Annotated(device, ranks)
					if err != nil {
						t.Logf("%s @%s: %v", name, f.Name, err)
						continue
					}
					all++
					rep, err := mesh.Check(device, ranks, o)
					if err == nil {
						proved++
						continue
					}
					t.Logf("%s @%s: %v", name, f.Name, err)
					if rep != nil {
						for _, u := range rep.Unknown {
							t.Logf("  unknown: %s: %s", u.Node, u.Why)
						}
					}
				}
			}
		}
	}
	t.Logf("%d of %d functions are proved", proved, all)
	if proved*20 < all*19 {
		t.Errorf("want at least nineteen of twenty")
	}
}

// TestJAX proves what the partitioner makes of a step that JAX wrote with shardings.
func TestJAX(t *testing.T) {
	files, err := filepath.Glob("../../../shared/jax/gspmd_*.stablehlo.mlir.gz")
	if err != nil || len(files) == 0 {
		t.Skip("JAX's programs are not here", err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		m, err := stablehlo.Parse(name, string(text))
		if err != nil {
			t.Fatal(err)
		}
		m.Sharded(sdy.Inferred)
		p, err := m.Program()
		if err != nil {
			t.Fatal(err)
		}
		if err := compile.PartitionProved(p.Module, compile.PartitionOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
