package passes_test

import (
	"flag"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden"
	"github.com/seed-ee968945/concert/passes"
)

var update = flag.Bool("update", false, "rewrite the want sections of golden cases")

func TestGolden(t *testing.T) {
	golden.Run(t, "../testdata/golden", golden.Config{Table: passes.Standard(), Update: *update, Package: "./passes"})
}
