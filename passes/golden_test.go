package passes_test

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
)

var update = flag.Bool("update", false, "rewrite the want sections of golden cases")

// Every pass has a folder of golden cases; pipelines holds what is about several
// passes or about the manager.
func TestGolden(t *testing.T) {
	table := standard.Table()
	cfg := passtest.Config{Table: table, Update: *update, Package: "./passes", Manager: passes.Manager{Costs: cost.TracedH200()}}
	folders := []string{"pipelines"}
	for _, p := range table.Passes() {
		folders = append(folders, p.Name)
	}
	for _, name := range folders {
		t.Run(name, func(t *testing.T) { passtest.Run(t, filepath.Join("../testdata/golden", name), cfg) })
	}
}
