package proof_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// pipelines are what tests run before lowering.
var pipelines = []string{"", "reuse-buffers{inputs=dying},plan-memory", "fuse,reuse-buffers{inputs=dying,updates=false},plan-memory", "fuse{kernels=true}"}

// proved lowers the functions of a module in all ways and proves the programs. It returns
// how many there were.
func proved(t *testing.T, m *ir.Module) int {
	t.Helper()
	n := 0
	for _, pipeline := range pipelines {
		after := m.Clone()
		if pipeline != "" {
			p, err := standard.Table().Parse(pipeline)
			if err != nil {
				t.Fatal(err)
			}
			r := passes.Manager{}
			if _, err := r.Run(after, p); err != nil {
				t.Log(err)
				continue
			}
		}
		for _, f := range after.Funcs() {
			for _, o := range []lower.Options{{}, {Kernels: true}} {
				p, err := lower.FuncWith(f, o)
				if err != nil {
					continue // lower's own tests say what it refuses
				}
				n++
				if err := proof.Check(f, p); err != nil {
					t.Errorf("%q, %+v: %v", pipeline, o, err)
				}
			}
		}
	}
	return n
}

// Every program of the golden cases is proved.
func TestGolden(t *testing.T) {
	n := 0
	for _, dir := range []string{"../../testdata/golden", "../cudagen/testdata", "../../ir/testdata", "../../test"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".txtar" {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, f := range txtar.Parse(data).Files {
				m, err := ir.Parse(f.Name, string(f.Data))
				if filepath.Ext(f.Name) != ".ir" || err != nil || m.Verify() != nil {
					continue
				}
				t.Run(filepath.Base(dir)+"/"+filepath.Base(path)+"/"+f.Name, func(t *testing.T) { n += proved(t, m) })
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d programs", n)
	if n < 1000 {
		t.Errorf("only %d programs were proved", n)
	}
}

// So are programs of random functions.
func TestRandom(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		m, err := gen.Module(seed, gen.Config{Nodes: 60, World: 2, Effects: seed%2 == 0, Flights: seed%3 == 0, Units: seed%5 == 0, Alike: seed%7 < 2, Kinds: seed%7 == 0})
		if err != nil {
			t.Fatal(err)
		}
		if proved(t, m) == 0 {
			t.Errorf("seed %d: nothing was lowered", seed)
		}
	}
}
