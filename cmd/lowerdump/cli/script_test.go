package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata/script")

// TestMain makes the test binary stand in for lowerdump, so that scripts, and the
// process ranks that lowerdump starts, run the code under test.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"lowerdump": func() { os.Exit(Main(os.Args[1:], nil)) },
		"stuck":     func() { os.Exit(Main(os.Args[1:], stuckTable())) },
	})
}

// TestScripts runs the tool as a person would.
func TestScripts(t *testing.T) {
	data, err := filepath.Abs("../../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	machines, err := filepath.Abs("../../../cuda/topo/testdata/machines")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Condition: func(cond string) (bool, error) {
			if cond != "gpu" {
				return false, fmt.Errorf("no condition %q", cond)
			}
			_, err := os.Stat("/dev/nvidiactl")
			return err == nil, nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("DATA", data)
			e.Setenv("MACHINES", machines)
			return nil
		},
	})
}
