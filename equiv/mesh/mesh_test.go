package mesh

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/ir"
)

var update = flag.Bool("update", false, "rewrite what golden cases want")

// pair reads the programs of a golden case.
func pair(t *testing.T, a *txtar.Archive) (device, ranks *ir.Func, o Options) {
	t.Helper()
	for _, f := range a.Files {
		switch f.Name {
		case "flags":
			for _, line := range strings.Split(strings.TrimSpace(string(f.Data)), "\n") {
				key, text, _ := strings.Cut(line, ":")
				var err error
				switch key {
				case "mesh":
					o.Mesh, err = placement.ParseMesh(strings.TrimSpace(text))
				case "inputs":
					o.Inputs, err = placement.ParsePlacements(text)
				case "results":
					o.Results, err = placement.ParsePlacements(text)
				default:
					err = fmt.Errorf("there is no flag %q", key)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		case "device.ir", "ranks.ir":
			m, err := ir.Parse(f.Name, string(f.Data))
			if err == nil {
				err = m.Verify()
			}
			if err != nil {
				t.Fatal(err)
			}
			if f.Name == "device.ir" {
				device = m.Funcs()[0]
			} else {
				ranks = m.Funcs()[0]
			}
		}
	}
	return device, ranks, o
}

// says is a proof's outcome as golden cases have it.
func says(rep *Report, err error) string {
	var b strings.Builder
	var e *Error
	switch {
	case err == nil:
		b.WriteString("proved\n")
	case errors.As(err, &e):
		for _, f := range e.Findings {
			fmt.Fprintln(&b, f)
		}
	default:
		fmt.Fprintln(&b, err)
	}
	if rep != nil {
		for _, u := range rep.Unknown {
			fmt.Fprintf(&b, "unknown: %s: %s\n", u.Node, u.Why)
		}
	}
	return b.String()
}

// TestGolden proves pairs of programs, or says why not.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			device, ranks, o := pair(t, a)
			got := says(Check(device, ranks, o))
			last := &a.Files[len(a.Files)-1]
			if last.Name != "want" {
				a.Files = append(a.Files, txtar.File{Name: "want"})
				last = &a.Files[len(a.Files)-1]
			}
			if *update {
				last.Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(last.Data) {
				t.Errorf("want:\n%s\ngot:\n%s(go test ./equiv/mesh -run TestGolden -update rewrites it)", last.Data, got)
			}
		})
	}
}
